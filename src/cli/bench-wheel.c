/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-wheel.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "os/clock.h"
#include "os/stop.h"

#ifndef MOONCAKE_WHEEL
#define MOONCAKE_WHEEL "" /* the folder with the Python package that Tarn was built with */
#endif

enum { ANSWER_MS = 60000, LOOK_MS = 50, GRACE_MS = 5000, LINE_BYTES = 1024, NUMBER_BYTES = 24 };

/*
 * Standard output and error are the socket, and orders come from it, too. An answer begins with
 * "tarn "; all else is what the package has to say.
 */
static const char script[] =
    "import ctypes, importlib.metadata, mmap, os, sys, time\n"
    "folder, host, metadata, protocol, device, master, space, size, buffer = sys.argv[1:]\n"
    "sys.path += [folder] if folder else []\n"
    "def answer(text):\n"
    "    os.write(1, ('tarn ' + ' '.join(str(text).split()) + '\\n').encode())\n"
    "def version():\n"
    "    for name in ('-non-cuda', '', '-cuda13'):\n"
    "        try:\n"
    "            return importlib.metadata.version('mooncake-transfer-engine' + name)\n"
    "        except importlib.metadata.PackageNotFoundError:\n"
    "            pass\n"
    "    return ''\n"
    "def work(what, first, count, page):\n"
    "    keys = [f'{space}/{number:032x}' for number in range(first, first + count)]\n"
    "    half = int(size) // 2 if what == 'get' else 0\n"
    "    places, sizes = [base + half + i * page for i in range(count)], [page] * count\n"
    "    if what == 'remove':\n"
    "        for key in keys:\n"
    "            store.remove(key, True)\n"
    "        return 0\n"
    "    start = time.perf_counter_ns()\n"
    "    if what == 'put':\n"
    "        results = store.batch_put_from(keys, places, sizes)\n"
    "    elif what == 'get':\n"
    "        results = store.batch_get_into(keys, places, sizes)\n"
    "    else:\n"
    "        results = store.batch_is_exist(keys)\n"
    "    spent = time.perf_counter_ns() - start\n"
    "    wanted = {'put': 0, 'get': page, 'exists': 1}[what]\n"
    "    if list(results) != [wanted] * count:\n"
    "        raise RuntimeError(f'{what} of {count} x {page} gave {results}')\n"
    "    return spent\n"
    "try:\n"
    "    from mooncake.store import MooncakeDistributedStore\n"
    "    memory = mmap.mmap(-1, int(size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "    memory.madvise(mmap.MADV_HUGEPAGE)\n"
    "    memory.write(os.urandom(1 << 20) * (int(size) >> 20))\n"
    "    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
    "    store = MooncakeDistributedStore()\n"
    "    joined = store.setup(host, metadata, 0, int(buffer), protocol, device, master)\n"
    "    if joined != 0 or store.register_buffer(base, int(size)) != 0:\n"
    "        raise RuntimeError(f'setup gave {joined}')\n"
    "    answer('joined ' + version())\n"
    "    for line in open(1, closefd=False):\n"
    "        what, *numbers = line.split()\n"
    "        answer(work(what, *map(int, numbers)))\n"
    "except Exception as error:\n"
    "    answer(f'failed {type(error).__name__}: {error}')\n"
    "os._exit(0)\n";

/* ---- lines ---- */

/* A line from the child, without its end, moved out of the buffer. */
static bool line_take(struct wheel *wheel, char out_line[LINE_BYTES])
{
    const char *end = memchr(wheel->buffer, '\n', wheel->buffer_bytes);
    const bool is_full = wheel->buffer_bytes == sizeof(wheel->buffer);
    if (!end && !is_full)
        return false;
    const size_t length = end ? (size_t)(end - wheel->buffer) : wheel->buffer_bytes;
    const size_t used = end ? length + 1 : length;
    (void)snprintf(out_line, LINE_BYTES, "%.*s", (int)length, wheel->buffer);
    wheel->buffer_bytes -= used;
    memmove(wheel->buffer, wheel->buffer + used, wheel->buffer_bytes);
    return true;
}

static enum tarn_status bytes_wait(struct wheel *wheel, uint64_t deadline_ns)
{
    struct pollfd poll_fd = { .fd = wheel->fd, .events = POLLIN };
    for (;;) {
        if (stop_wait(0))
            return TARN_AGAIN;
        const int ready = poll(&poll_fd, 1, LOOK_MS);
        if (ready > 0)
            return TARN_OK;
        if (ready < 0 && errno != EINTR)
            return TARN_IO;
        if (clock_now_ns() >= deadline_ns) {
            log_error("bench mooncake: Python did not answer for %d s", ANSWER_MS / 1000);
            return TARN_IO;
        }
    }
}

/* The next answer, without its "tarn ". */
static enum tarn_status answer_read(struct wheel *wheel, char out_answer[LINE_BYTES])
{
    const uint64_t deadline_ns = clock_now_ns() + ANSWER_MS * NS_PER_MS;
    char line[LINE_BYTES] = "(nothing)";
    for (;;) {
        while (line_take(wheel, line)) {
            if (strncmp(line, "tarn ", 5) == 0) {
                (void)snprintf(out_answer, LINE_BYTES, "%s", line + 5);
                return TARN_OK;
            }
            log_debug("bench mooncake: Python: %s", line);
        }
        TRY(bytes_wait(wheel, deadline_ns));
        const ssize_t got = read(wheel->fd, wheel->buffer + wheel->buffer_bytes,
                                 sizeof(wheel->buffer) - wheel->buffer_bytes);
        if (got <= 0) {
            log_error("bench mooncake: the Python process ended; its last line: %s", line);
            return TARN_IO;
        }
        wheel->buffer_bytes += (size_t)got;
    }
}

/* ---- life ---- */

static enum tarn_status python_find(const char *named, char out_path[PATH_MAX])
{
    const char *name = named ? named : "python3";
    if (process_find(name, process_variable(environ, "PATH"), out_path, PATH_MAX) == TARN_OK)
        return TARN_OK;
    log_error("bench mooncake: there is no program %s; name the Python to compare with: --python",
              name);
    return TARN_UNSUPPORTED;
}

static enum tarn_status python_run(const struct wheel_options *options, int output_fd,
                                   struct process *out_process)
{
    const struct mooncake_options *client = options->client;
    char path[PATH_MAX];
    char memory[NUMBER_BYTES];
    char buffer[NUMBER_BYTES];
    TRY(python_find(options->python, path));
    (void)snprintf(memory, sizeof(memory), "%" PRIu64, options->memory_bytes);
    (void)snprintf(buffer, sizeof(buffer), "%" PRIu64, client->local_buffer_bytes);
    const char *const arguments[] = { path,
                                      "-c",
                                      script,
                                      MOONCAKE_WHEEL,
                                      client->local_hostname,
                                      client->metadata_server,
                                      client->protocol,
                                      client->device_name,
                                      client->master_server_address,
                                      options->space,
                                      memory,
                                      buffer,
                                      NULL };
    return process_start(path, (char *const *)(const void *)arguments, options->environment,
                         output_fd, out_process);
}

static enum tarn_status joined_wait(struct wheel *wheel)
{
    char answer[LINE_BYTES];
    TRY(answer_read(wheel, answer));
    if (strncmp(answer, "joined", 6) != 0) {
        log_error("bench mooncake: Mooncake's package in a Python of its own: %s; --python names "
                  "another",
                  answer);
        return TARN_UNSUPPORTED;
    }
    (void)snprintf(wheel->version, sizeof(wheel->version), "%.63s",
                   answer[6] == ' ' ? answer + 7 : "");
    return TARN_OK;
}

enum tarn_status wheel_start(const struct wheel_options *options, struct wheel *out_wheel)
{
    int ends[2];
    *out_wheel = (struct wheel){ .fd = -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        log_error("bench mooncake: a socket: %s", strerrordesc_np(errno));
        return TARN_IO;
    }
    out_wheel->fd = ends[0];
    const enum tarn_status status = python_run(options, ends[1], &out_wheel->process);
    (void)close(ends[1]);
    TRY(status);
    return joined_wait(out_wheel);
}

enum tarn_status wheel_do(struct wheel *wheel, enum wheel_work work, uint64_t first, uint32_t count,
                          uint64_t page_bytes, double *out_seconds)
{
    static const char *const names[] = { [WHEEL_PUT] = "put",
                                         [WHEEL_GET] = "get",
                                         [WHEEL_EXISTS] = "exists",
                                         [WHEEL_REMOVE] = "remove" };
    char line[LINE_BYTES];
    uint64_t spent_ns = 0;
    const int length = snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu32 " %" PRIu64 "\n",
                                names[work], first, count, page_bytes);
    if (send(wheel->fd, line, (size_t)length, MSG_NOSIGNAL) != length) {
        log_error("bench mooncake: the Python process ended");
        return TARN_IO;
    }
    TRY(answer_read(wheel, line));
    if (sscanf(line, "%" SCNu64, &spent_ns) != 1) { /* NOLINT(cert-err34-c) */
        log_error("bench mooncake: Python: %s", line);
        return TARN_IO;
    }
    *out_seconds = (double)spent_ns / 1e9;
    return TARN_OK;
}

void wheel_stop(struct wheel *wheel)
{
    if (wheel->fd >= 0)
        (void)close(wheel->fd); /* it ends when nobody orders any more */
    wheel->fd = -1;
    (void)process_stop(&wheel->process, GRACE_MS);
}
