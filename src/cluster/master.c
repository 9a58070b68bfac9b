/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/master.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cluster/probe.h"
#include "cluster/wait.h"
#include "config/value.h"
#include "os/clock.h"

#define PROGRAM_NAME "mooncake_master"
#ifndef MOONCAKE_WHEEL
#define MOONCAKE_WHEEL "" /* the folder with the Python package that Tarn was built with */
#endif

enum {
    LOG_MODE = 0644,
    STOP_GRACE_MS = 10000,
    PROBE_MS = 1000,
    FLAG_BYTES = 48,
    TAIL_BYTES = 32 << 10,
    WORDS_BYTES = 1 << 10, /* of a line of the log that is shown */
};

/* ---- which program ---- */

enum tarn_status master_find(const char *program, char *const *environment, char out_path[PATH_MAX])
{
    const char *path = process_variable(environment, "PATH");
    const char *named = program ? program : process_variable(environment, "TARN_MOONCAKE_MASTER");
    if (named) {
        if (process_find(named, path, out_path, PATH_MAX) == TARN_OK)
            return TARN_OK;
        log_error("%s %s: there is no such program, or it is not executable",
                  program ? "--mooncake-master" : "TARN_MOONCAKE_MASTER", named);
        return TARN_UNSUPPORTED;
    }
    if (process_find(PROGRAM_NAME, path, out_path, PATH_MAX) == TARN_OK)
        return TARN_OK;
    if (MOONCAKE_WHEEL[0] &&
        process_find(MOONCAKE_WHEEL "/mooncake/" PROGRAM_NAME, NULL, out_path, PATH_MAX) == TARN_OK)
        return TARN_OK;
    log_error("there is no " PROGRAM_NAME
              " to launch: not on the PATH, nor in '%s', where Tarn was "
              "built with it. Install it (pip install mooncake-transfer-engine-non-cuda), or name "
              "it with --mooncake-master or TARN_MOONCAKE_MASTER",
              MOONCAKE_WHEEL);
    return TARN_UNSUPPORTED;
}

/* ---- last words ---- */

/* The start of the last lines of a text, at most MASTER_LAST_LINES of them. */
static const char *last_lines(const char *chars, size_t length)
{
    size_t line_count = 0;
    const char *at = chars + length;
    while (at > chars) {
        if (at[-1] == '\n' && at < chars + length && ++line_count == MASTER_LAST_LINES)
            return at;
        at--;
    }
    return at;
}

static void log_tail(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *chars = mem_alloc(TAIL_BYTES + 1, 1);
    ssize_t length = 0;
    if (fd >= 0 && chars) {
        const off_t end = lseek(fd, 0, SEEK_END);
        length = pread(fd, chars, TAIL_BYTES, end > TAIL_BYTES ? end - TAIL_BYTES : 0);
    }
    if (fd >= 0)
        (void)close(fd);
    if (length <= 0)
        log_error("  master: (it wrote nothing)");
    for (const char *line = length > 0 ? last_lines(chars, (size_t)length) : ""; *line;) {
        const size_t line_bytes = strcspn(line, "\n");
        log_error("  master: %.*s", (int)(line_bytes < WORDS_BYTES ? line_bytes : WORDS_BYTES),
                  line);
        line += line_bytes + (line[line_bytes] == '\n');
    }
    mem_free(chars);
}

static void mourn(struct master *master, const char *when)
{
    char end[PROCESS_END_BYTES];
    if (master->is_mourned)
        return;
    master->is_mourned = true;
    process_print_end(&master->process, end);
    log_error("the master %s ended with %s %s; its last lines, of %s:", master->program, end, when,
              master->log_path);
    log_tail(master->log_path);
}

/* ---- where ---- */

static bool is_everywhere(const char *listen)
{
    return !listen || strcmp(listen, "0.0.0.0") == 0 || strcmp(listen, "::") == 0;
}

const char *master_place(const char *listen)
{
    return listen ? listen : "all addresses";
}

const char *master_near(const char *listen)
{
    if (!is_everywhere(listen))
        return listen;
    return listen && strchr(listen, ':') ? "::1" : "127.0.0.1";
}

enum tarn_status master_address(const struct master_options *options, const char *wanted,
                                char out_text[ADDRESS_TEXT_BYTES_MAX + 1])
{
    char own[ADDRESS_HOST_BYTES_MAX + 1];
    const char *host = wanted ? wanted : options->listen;
    if (!wanted && is_everywhere(options->listen)) {
        probe_own_host(own);
        host = own;
    }
    if (strlen(host) > ADDRESS_HOST_BYTES_MAX) {
        log_error("the master's host %.100s... is longer than %d bytes", host,
                  ADDRESS_HOST_BYTES_MAX);
        return TARN_INVALID;
    }
    (void)snprintf(out_text, ADDRESS_TEXT_BYTES_MAX + 1, strchr(host, ':') ? "[%s]:%u" : "%s:%u",
                   host, options->rpc_port);
    return TARN_OK;
}

/* ---- start ---- */

static enum tarn_status ports_check(const struct master_options *options)
{
    const uint16_t ports[] = { options->rpc_port, options->http_port };
    if (options->rpc_port == options->http_port) {
        log_error("the master cannot have port %u for both its clients and its metrics",
                  options->rpc_port);
        return TARN_INVALID;
    }
    for (size_t i = 0; i < LENGTH_OF(ports); i++) {
        if (probe_port_is_free(options->listen, ports[i]))
            continue;
        log_error("the master cannot have port %u for its %s: something has it already; choose "
                  "another with %s",
                  ports[i], i == 0 ? "clients" : "metrics",
                  i == 0 ? "--master-port (tarn master: --rpc-port)"
                         : "--master-metrics-port (tarn master: --metrics-port)");
        return TARN_IO;
    }
    return TARN_OK;
}

static enum tarn_status child_start(const struct master_options *options, struct master *master)
{
    static const char *const defaults[] = { "GLOG_logtostderr=1", "GLOG_v=1", NULL };
    char name[] = PROGRAM_NAME;
    char rpc[FLAG_BYTES];
    char http[FLAG_BYTES];
    const char *place = master_place(options->listen);
    char rpc_host[FLAG_BYTES + ADDRESS_HOST_BYTES_MAX];
    char http_host[FLAG_BYTES + ADDRESS_HOST_BYTES_MAX];
    char eviction[FLAG_BYTES];
    /* Masters before 0.3.13 do not know the flags of the hosts: only who asks for one gets them. */
    char *const arguments[] = { name,      rpc, http, eviction, options->listen ? rpc_host : NULL,
                                http_host, NULL };
    char **environment = NULL;
    (void)snprintf(rpc, sizeof(rpc), "--rpc_port=%u", options->rpc_port);
    (void)snprintf(http, sizeof(http), "--metrics_port=%u", options->http_port);
    (void)snprintf(rpc_host, sizeof(rpc_host), "--rpc_address=%s", place);
    (void)snprintf(http_host, sizeof(http_host), "--metrics_host=%s", place);
    (void)snprintf(eviction, sizeof(eviction), "--eviction_ratio=%.6f",
                   (double)options->eviction_millionths / 1e6);
    const int fd =
        open(options->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, LOG_MODE);
    if (fd < 0) {
        log_error("%s: %s", options->log_path, strerrordesc_np(errno));
        return TARN_IO;
    }
    enum tarn_status status = process_environment(options->environment, defaults, &environment);
    if (status == TARN_OK)
        status = process_start(master->program, arguments, environment, fd, &master->process);
    mem_free(environment);
    (void)close(fd);
    if (status != TARN_OK)
        return status;
    log_info("master: started %s %s %s %s on %s, process %d; its log is %s", master->program, rpc,
             http, eviction, place, (int)master->process.pid, master->log_path);
    return TARN_OK;
}

static enum tarn_status accept_wait(const struct master_options *options, struct master *master)
{
    struct address address = { .port = options->rpc_port };
    struct probe_route route;
    char reason[PROBE_REASON_BYTES];
    struct wait wait;
    if (snprintf(address.host, sizeof(address.host), "%s", master_near(options->listen)) >=
        (int)sizeof(address.host))
        return TARN_INVALID; /* it was looked at before anything was started */
    wait_init(&wait, "the master to accept connections", options->timeout_ms);
    while (probe_connect(&address, PROBE_MS, &route, reason) != TARN_OK) {
        if (process_has_ended(&master->process)) {
            mourn(master, "before it accepted connections");
            return TARN_IO;
        }
        const enum tarn_status status = wait_pause(&wait, reason);
        if (status == TARN_STALE) {
            log_error("time-out: the master %s runs, but does not listen on port %u of %s after "
                      "%" PRIu64 " ms (%s); its last lines, of %s:",
                      master->program, options->rpc_port, master_place(options->listen),
                      options->timeout_ms, reason, master->log_path);
            log_tail(master->log_path);
            return TARN_IO;
        }
        TRY(status);
    }
    log_info("master: accepts connections on port %u of %s after %" PRIu64 " ms", options->rpc_port,
             master_place(options->listen), wait_passed_ms(&wait));
    return TARN_OK;
}

enum tarn_status master_start(const struct master_options *options, struct master *out_master)
{
    struct master *master = out_master;
    *master = (struct master){ .is_started = false };
    TRY(master_find(options->program, options->environment, master->program));
    TRY(ports_check(options));
    (void)snprintf(master->log_path, sizeof(master->log_path), "%s", options->log_path);
    TRY(child_start(options, master));
    master->is_started = true;
    const enum tarn_status status = accept_wait(options, master);
    if (status != TARN_OK)
        master_stop(master);
    return status;
}

bool master_has_ended(struct master *master)
{
    if (!master->is_started || !process_has_ended(&master->process))
        return false;
    mourn(master, "by itself");
    return true;
}

void master_stop(struct master *master)
{
    if (!master->is_started)
        return;
    master->is_started = false;
    if (process_has_ended(&master->process))
        return;
    if (!process_stop(&master->process, STOP_GRACE_MS))
        log_warn("the master did not end within %d s of SIGTERM and was killed",
                 STOP_GRACE_MS / 1000);
    else
        log_info("master: stopped");
}
