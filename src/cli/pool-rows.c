/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pool-rows.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/memory.h"
#include "store/local/join.h"

enum {
    PAGES = 64, /* of one batch */
    LOOKUPS = 2000,
    SMALL_ENTRIES = 10000,
    LARGE_ENTRIES = 10000000,
    CHAIN_TOKENS = 32,
    CHILD_ROUNDS = 12,
    CHILDREN = 2,
    PATH_BYTES = 128,
};

static const uint64_t LARGE_NEEDS_BYTES = UINT64_C(3) << 30;

struct rig {
    const struct pool_rows_options *options;
    struct bench_rows *out;
    char directory[64];
    char pool_path[PATH_BYTES];
    char file_path[PATH_BYTES];
    uint64_t page_bytes;
    uint64_t next_key;
    uint8_t *source; /* PAGES pages in private memory */
    uint8_t *target;
    uint8_t *file; /* PAGES pages of a mapped file in tmpfs */
    struct store *store;
    uint32_t space;
    struct tarn_span spans[PAGES];
    struct store_item items[PAGES];
};

/* ---- being interrupted ---- */

/* These wait until what was made is gone, and then end the program as they always do. */
static void signals_block(sigset_t *out_before)
{
    static const int deadly[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    sigset_t signals;
    (void)sigemptyset(&signals);
    for (size_t i = 0; i < LENGTH_OF(deadly); i++)
        (void)sigaddset(&signals, deadly[i]);
    (void)pthread_sigmask(SIG_BLOCK, &signals, out_before);
}

/* Asked before each batch. AGAIN: told to end. */
static enum tarn_status interrupted(void)
{
    sigset_t pending;
    (void)sigemptyset(&pending);
    (void)sigpending(&pending);
    return sigisemptyset(&pending) ? TARN_OK : TARN_AGAIN;
}

/* ---- numbers ---- */

static uint64_t rig_now_ns(const struct rig *rig)
{
    struct timespec now = { 0 };
    if (!rig->options->cpu_time)
        return clock_now_ns();
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static double seconds_since(const struct rig *rig, uint64_t start_ns)
{
    return (double)(rig_now_ns(rig) - start_ns) / 1e9;
}

/* A row of two rates over the same bytes, from the times of runs that took turns. */
static void ratio_add(struct rig *rig, const char *what, const double *ours_s,
                      const double *theirs_s, double bar)
{
    char name[BENCH_ROW_NAME_BYTES];
    const char *size = rig->page_bytes >= 1 << 20 ? "3 MiB" : "512 KiB";
    const double bytes = (double)rig->page_bytes * PAGES;
    (void)snprintf(name, sizeof(name), "%s, 64 x %s", what, size);
    struct bench_row *row = bench_row_add(rig->out, name);
    bench_row_rates(row, bytes, ours_s, theirs_s, rig->options->runs);
    row->bar = bar;
}

/* ---- memory, files, pools ---- */

static enum tarn_status failed(const char *what)
{
    log_error("bench pool: %s: %s", what, strerrordesc_np(errno));
    return TARN_IO;
}

/* Private memory, resident. */
static uint8_t *memory_make(uint64_t size_bytes)
{
    uint8_t *at =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    for (uint64_t i = 0; i < size_bytes; i += 64)
        at[i] = (uint8_t)(i * 2654435761U >> 13);
    return at;
}

static void memory_free(uint8_t *at, uint64_t size_bytes)
{
    if (at)
        (void)munmap(at, size_bytes);
}

/* A file of PAGES pages in tmpfs with its memory, mapped; resident in this process if asked. */
static uint8_t *file_make(struct rig *rig, bool is_resident)
{
    const uint64_t size_bytes = rig->page_bytes * PAGES;
    const int fd = open(rig->file_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    uint8_t *at = MAP_FAILED;
    if (fd >= 0 && fallocate(fd, 0, 0, (off_t)size_bytes) == 0)
        at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    (void)unlink(rig->file_path);
    if (at == MAP_FAILED)
        return NULL;
    if (is_resident)
        memcpy(at, rig->source, size_bytes);
    return at;
}

static enum tarn_status pool_start(struct rig *rig, uint64_t size_bytes, uint32_t page_bytes_min)
{
    const struct pool_options options = { .path = rig->pool_path,
                                          .size_bytes = size_bytes,
                                          .page_bytes_min = page_bytes_min };
    TRY(pool_open(&options, &rig->store));
    return store_namespace(rig->store, "tarn/bench", &rig->space);
}

static void pool_stop(struct rig *rig)
{
    store_close(rig->store);
    rig->store = NULL;
    (void)unlink(rig->pool_path);
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 33) * UINT64_C(0xff51afd7ed558ccd);
    value = (value ^ value >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return value ^ value >> 33;
}

static struct store_key key_of(const struct rig *rig, uint64_t number)
{
    struct store_key key = { .namespace_index = rig->space, .depth = (uint32_t)(number % PAGES) };
    const uint64_t words[2] = { mix(number * 2 + 1), mix(number * 2 + 2) };
    memcpy(key.digest.bytes, words, sizeof(words));
    return key;
}

/* Aim the batch at PAGES keys from `first` on and at the pages of `memory`. */
/* NOLINTNEXTLINE(readability-non-const-parameter): a get writes there */
static void items_set(struct rig *rig, uint64_t first, uint8_t *memory)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        rig->spans[i] = (struct tarn_span){ memory + i * rig->page_bytes, rig->page_bytes };
        rig->items[i] = (struct store_item){ .key = key_of(rig, first + i),
                                             .spans = &rig->spans[i],
                                             .span_count = 1 };
    }
}

static enum tarn_status items_status(const struct rig *rig)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        if (rig->items[i].status != TARN_OK)
            return rig->items[i].status;
    }
    return TARN_OK;
}

/* ---- one batch, timed ---- */

static enum tarn_status put_time(struct rig *rig, double *out_seconds)
{
    items_set(rig, rig->next_key, rig->source);
    rig->next_key += PAGES;
    TRY(interrupted());
    const uint64_t start_ns = rig_now_ns(rig);
    TRY(store_put(rig->store, rig->items, PAGES));
    *out_seconds = seconds_since(rig, start_ns);
    return items_status(rig);
}

static enum tarn_status get_time(struct rig *rig, bool verify, double *out_seconds)
{
    pool_behind(rig->store)->view.verify = verify;
    items_set(rig, 0, rig->target);
    TRY(interrupted());
    const uint64_t start_ns = rig_now_ns(rig);
    TRY(store_get(rig->store, rig->items, PAGES));
    *out_seconds = seconds_since(rig, start_ns);
    return items_status(rig);
}

static double copy_time(const struct rig *rig, uint8_t *target, const uint8_t *source)
{
    const uint64_t start_ns = rig_now_ns(rig);
    for (uint32_t i = 0; i < PAGES; i++)
        memcpy(target + i * rig->page_bytes, source + i * rig->page_bytes, rig->page_bytes);
    return seconds_since(rig, start_ns);
}

/* ---- rows: puts ---- */

/* The pool is new and large enough for all runs: every slot is written for the first time. */
static enum tarn_status fresh_measure(struct rig *rig)
{
    double ours[BENCH_RUNS_MAX];
    double theirs[BENCH_RUNS_MAX];
    const uint64_t batch_bytes = rig->page_bytes * PAGES;
    TRY(pool_start(rig, (rig->options->runs + 2) * batch_bytes + (64 << 20), 0));
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        TRY(put_time(rig, &ours[run]));
        uint8_t *file = file_make(rig, false);
        if (!file)
            return failed("a file in /dev/shm");
        theirs[run] = copy_time(rig, file, rig->source);
        memory_free(file, batch_bytes);
    }
    pool_stop(rig);
    ratio_add(rig, "put into fresh slots, against memcpy", ours, theirs, 1.0);
    return TARN_OK;
}

/* The pool is full: every put evicts, and writes over memory that is there. */
static enum tarn_status warm_measure(struct rig *rig)
{
    enum { WARM_UP = 4 };
    double ours[BENCH_RUNS_MAX];
    double theirs[BENCH_RUNS_MAX];
    double ignored;
    TRY(pool_start(rig, rig->page_bytes * PAGES + (64 << 20), 0));
    for (uint32_t run = 0; run < WARM_UP; run++)
        TRY(put_time(rig, &ignored));
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        TRY(put_time(rig, &ours[run]));
        theirs[run] = copy_time(rig, rig->file, rig->source);
    }
    pool_stop(rig);
    ratio_add(rig, "put into warm slots, against memcpy", ours, theirs, 1.0);
    return TARN_OK;
}

/* ---- rows: gets ---- */

static enum tarn_status gets_measure(struct rig *rig)
{
    double plain[BENCH_RUNS_MAX];
    double verified[BENCH_RUNS_MAX];
    double copies[BENCH_RUNS_MAX];
    double ignored;
    TRY(get_time(rig, true, &ignored));
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        copies[run] = copy_time(rig, rig->target, rig->file);
        TRY(get_time(rig, false, &plain[run]));
        TRY(get_time(rig, true, &verified[run]));
    }
    ratio_add(rig, "get, unverified, against memcpy", plain, copies, 0.9);
    ratio_add(rig, "get, verified, against memcpy", verified, copies, 0.7);
    return TARN_OK;
}

/* What one child does over and over: a batch from the pool, or the same by memcpy. */
static enum tarn_status child_batch(struct rig *rig, bool is_ours)
{
    double ignored;
    if (is_ours)
        return get_time(rig, false, &ignored);
    (void)copy_time(rig, rig->target, rig->file);
    return TARN_OK;
}

/* How long a child's batches took; negative: they failed. */
static double child_measure(struct rig *rig, bool is_ours)
{
    const uint64_t start_ns = rig_now_ns(rig);
    for (uint32_t i = 0; i < CHILD_ROUNDS; i++) {
        if (child_batch(rig, is_ours) != TARN_OK)
            return -1;
    }
    return seconds_since(rig, start_ns);
}

/* A child says that it is ready, waits for the start, works, and tells how long it took. It ends
 * with its parent, or when that hangs up. */
static _Noreturn void child_run(struct rig *rig, bool is_ours, int fd)
{
    char byte = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    rig->store = NULL; /* the parent's is dead here */
    double seconds =
        pool_start(rig, 0, 0) == TARN_OK && child_batch(rig, is_ours) == TARN_OK ? 0 : -1;
    if (write(fd, &seconds, sizeof(seconds)) != sizeof(seconds) || seconds < 0 ||
        read(fd, &byte, 1) != 1)
        _exit(1);
    seconds = child_measure(rig, is_ours);
    _exit(write(fd, &seconds, sizeof(seconds)) == sizeof(seconds) && seconds >= 0 ? 0 : 1);
}

/* *out_fd: the way to the child and back, which ends when either does. */
static bool child_start(struct rig *rig, bool is_ours, int *out_fd)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        child_run(rig, is_ours, ends[1]);
    }
    (void)close(ends[1]);
    *out_fd = ends[0];
    return pid > 0;
}

/* What the child says next; negative: nothing good. */
static double child_hear(int fd)
{
    double seconds = -1;
    return read(fd, &seconds, sizeof(seconds)) == sizeof(seconds) ? seconds : -1;
}

/* Two processes at once; the time of both together. */
static enum tarn_status children_time(struct rig *rig, bool is_ours, double *out_seconds)
{
    int fds[CHILDREN];
    double total = 0;
    bool is_good = true;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        fds[i] = -1;
        is_good = is_good && child_start(rig, is_ours, &fds[i]);
    }
    for (uint32_t i = 0; i < CHILDREN; i++)
        is_good = is_good && child_hear(fds[i]) >= 0;
    for (uint32_t i = 0; i < CHILDREN; i++)
        is_good = is_good && send(fds[i], "g", 1, MSG_NOSIGNAL) == 1;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        const double seconds = is_good ? child_hear(fds[i]) : -1;
        is_good = is_good && seconds >= 0;
        total += seconds;
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
    TRY(interrupted());
    if (!is_good) {
        log_error("bench pool: a child process failed");
        return TARN_IO;
    }
    *out_seconds = total / CHILDREN / CHILD_ROUNDS;
    return TARN_OK;
}

static enum tarn_status together_measure(struct rig *rig)
{
    double ours[BENCH_RUNS_MAX];
    double theirs[BENCH_RUNS_MAX];
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        TRY(children_time(rig, false, &theirs[run]));
        TRY(children_time(rig, true, &ours[run]));
    }
    ratio_add(rig, "get in two processes at once, against memcpy in two", ours, theirs, 0.9);
    return TARN_OK;
}

static void page_path(const struct rig *rig, uint32_t page, char out_path[static PATH_BYTES + 16])
{
    (void)snprintf(out_path, PATH_BYTES + 16, "%s.%u", rig->file_path, page);
}

static void page_files_remove(const struct rig *rig)
{
    char path[PATH_BYTES + 16];
    for (uint32_t i = 0; i < PAGES; i++) {
        page_path(rig, i, path);
        (void)unlink(path);
    }
}

/* One file a page in tmpfs, as a cache of files would have it. */
static enum tarn_status files_measure(struct rig *rig)
{
    double ours[BENCH_RUNS_MAX];
    double theirs[BENCH_RUNS_MAX];
    char path[PATH_BYTES + 16];
    for (uint32_t i = 0; i < PAGES; i++) {
        page_path(rig, i, path);
        const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, rig->source, rig->page_bytes) != (ssize_t)rig->page_bytes)
            return failed(path);
        (void)close(fd);
    }
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        const uint64_t start_ns = rig_now_ns(rig);
        for (uint32_t i = 0; i < PAGES; i++) {
            page_path(rig, i, path);
            const int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0 || read(fd, rig->target + i * rig->page_bytes, rig->page_bytes) !=
                              (ssize_t)rig->page_bytes)
                return failed(path);
            (void)close(fd);
        }
        theirs[run] = seconds_since(rig, start_ns);
        TRY(get_time(rig, true, &ours[run]));
    }
    page_files_remove(rig);
    ratio_add(rig, "get, verified, against files in tmpfs", ours, theirs, 1.5);
    return TARN_OK;
}

static enum tarn_status pages_measure_with(struct rig *rig)
{
    double ignored;
    TRY(fresh_measure(rig));
    TRY(warm_measure(rig));
    rig->next_key = 0;
    TRY(pool_start(rig, rig->page_bytes * (PAGES + 16) + (64 << 20), 0));
    TRY(put_time(rig, &ignored));
    TRY(gets_measure(rig));
    TRY(together_measure(rig));
    if (rig->page_bytes < 1 << 20)
        TRY(files_measure(rig));
    pool_stop(rig);
    return TARN_OK;
}

static enum tarn_status pages_measure(struct rig *rig, uint64_t page_bytes)
{
    const uint64_t batch_bytes = page_bytes * PAGES;
    rig->page_bytes = page_bytes;
    rig->source = memory_make(batch_bytes);
    rig->target = memory_make(batch_bytes);
    rig->file = rig->source ? file_make(rig, true) : NULL;
    const enum tarn_status status =
        rig->source && rig->target && rig->file ? pages_measure_with(rig) : TARN_NO_MEMORY;
    memory_free(rig->source, batch_bytes);
    memory_free(rig->target, batch_bytes);
    memory_free(rig->file, batch_bytes);
    return status;
}

/* ---- rows: lookups ---- */

/* The bench of lookups needs entries, not bytes: its pages get no memory. */
static enum tarn_status write_nothing(void *context, uint64_t offset, const struct tarn_span *spans,
                                      uint32_t count)
{
    (void)context;
    (void)offset;
    (void)spans;
    (void)count;
    return TARN_OK;
}

static enum tarn_status populate_nothing(void *context, uint64_t offset, uint64_t size_bytes)
{
    (void)context;
    (void)offset;
    (void)size_bytes;
    return TARN_OK;
}

static enum tarn_status entries_make(struct rig *rig, uint64_t entry_count)
{
    struct pool *pool = pool_behind(rig->store);
    uint8_t byte = 1;
    pool->view.env.window = NULL;
    pool->view.env.write = write_nothing;
    pool->view.env.populate = populate_nothing;
    for (uint64_t first = 0; first < entry_count; first += PAGES) {
        TRY(interrupted());
        items_set(rig, first, &byte);
        for (uint32_t i = 0; i < PAGES; i++)
            rig->spans[i] = (struct tarn_span){ &byte, 1 };
        TRY(store_put(rig->store, rig->items, PAGES));
        TRY(items_status(rig));
    }
    return TARN_OK;
}

static enum tarn_status lookups_time(struct rig *rig, uint64_t entry_count, double *out_seconds)
{
    struct store_key keys[PAGES];
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        struct store_lease *lease = NULL;
        size_t count = 0;
        TRY(interrupted());
        const uint64_t first = mix(i + 1) % (entry_count / PAGES) * PAGES;
        for (uint32_t j = 0; j < PAGES; j++)
            keys[j] = key_of(rig, first + j);
        const uint64_t start_ns = rig_now_ns(rig);
        TRY(store_lookup(rig->store, keys, PAGES, &lease, &count));
        out_seconds[i] = seconds_since(rig, start_ns);
        store_lease_release(lease);
        if (count != PAGES)
            return TARN_MISS;
    }
    return TARN_OK;
}

static enum tarn_status lookups_measure(struct rig *rig, uint64_t entry_count, const char *count,
                                        double bar_us)
{
    static double seconds[LOOKUPS];
    double medians[BENCH_RUNS_MAX];
    double tails[BENCH_RUNS_MAX];
    char name[BENCH_ROW_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "lookup with lease of 64 keys among %s", count);
    struct bench_row *row = bench_row_add(rig->out, name);
    (void)snprintf(name, sizeof(name), "the same, 99th percentile over median");
    struct bench_row *tail = bench_row_add(rig->out, name);
    const uint64_t frames = entry_count / 512 * 9 / 8 + 4;
    TRY(pool_start(rig, frames * (2 << 20) + entry_count * 96 + (16 << 20), POOL_UNIT_BYTES));
    TRY(entries_make(rig, entry_count));
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        TRY(lookups_time(rig, entry_count, seconds));
        medians[run] = bench_quantile(seconds, LOOKUPS, 0.5) * 1e6;
        tails[run] = bench_quantile(seconds, LOOKUPS, 0.99) * 1e6;
    }
    pool_stop(rig);
    row->unit = "us";
    row->ours = row->value = bench_quantile(medians, rig->options->runs, 0.5);
    row->bar = bar_us;
    tail->unit = "us";
    tail->ours = bench_quantile(tails, rig->options->runs, 0.5);
    tail->value = tail->ours / row->ours;
    tail->bar = 3.0;
    row->less_is_better = tail->less_is_better = true;
    return TARN_OK;
}

static enum tarn_status large_lookups_measure(struct rig *rig)
{
    uint64_t available_bytes = 0;
    const char *reason = rig->options->is_quick ? "left out by --quick" : NULL;
    if (!reason &&
        (memory_available(&available_bytes) != TARN_OK || available_bytes < LARGE_NEEDS_BYTES))
        reason = "left out: needs 3 GiB of available memory";
    if (!reason)
        return lookups_measure(rig, LARGE_ENTRIES, "10^7", 8.0);
    struct bench_row *row = bench_row_add(rig->out, "lookup with lease of 64 keys among 10^7");
    (void)snprintf(row->note, sizeof(row->note), "%s", reason);
    return TARN_OK;
}

/* ---- rows: the rest ---- */

static enum tarn_status chain_measure(struct rig *rig)
{
    static int32_t tokens[PAGES * CHAIN_TOKENS];
    double times[BENCH_RUNS_MAX];
    for (uint32_t i = 0; i < LENGTH_OF(tokens); i++)
        tokens[i] = (int32_t)(mix(i) % 100000);
    for (uint32_t run = 0; run < rig->options->runs; run++) {
        struct tarn_chain *chain = NULL;
        const uint64_t start_ns = rig_now_ns(rig);
        TRY(tarn_chain_create(NULL, CHAIN_TOKENS, &chain));
        const enum tarn_status status = tarn_chain_extend(chain, tokens, LENGTH_OF(tokens));
        times[run] = seconds_since(rig, start_ns) * 1e6;
        tarn_chain_destroy(chain);
        TRY(status);
    }
    struct bench_row *row = bench_row_add(rig->out, "chain of 64 blocks of 32 tokens");
    row->unit = "us";
    row->ours = row->value = bench_quantile(times, rig->options->runs, 0.5);
    row->less_is_better = true;
    return TARN_OK;
}

static enum tarn_status metadata_measure(struct rig *rig)
{
    struct pool_geometry geometry;
    TRY(geometry_init(4096, POOL_FRAME_BYTES / (16 << 10), &geometry)); /* 8 GiB, as by default */
    struct bench_row *row =
        bench_row_add(rig->out, "metadata of a slot, index included, pool of 8 GiB");
    row->unit = "bytes";
    row->ours = row->value = (double)geometry.data_offset / geometry.slot_count;
    row->bar = 96;
    row->less_is_better = true;
    return TARN_OK;
}

static enum tarn_status rig_measure(struct rig *rig)
{
    TRY(pages_measure(rig, 512 << 10));
    TRY(pages_measure(rig, 3 << 20));
    TRY(lookups_measure(rig, SMALL_ENTRIES, "10^4", 2.0));
    TRY(large_lookups_measure(rig));
    TRY(chain_measure(rig));
    return metadata_measure(rig);
}

enum tarn_status pool_rows_measure(const struct pool_rows_options *options,
                                   struct bench_rows *out_rows)
{
    struct rig *rig = mem_alloc(1, sizeof(*rig));
    if (!rig)
        return TARN_NO_MEMORY;
    *out_rows = (struct bench_rows){ 0 };
    rig->options = options;
    rig->out = out_rows;
    (void)snprintf(rig->directory, sizeof(rig->directory), "/dev/shm/tarn-bench-XXXXXX");
    enum tarn_status status = mkdtemp(rig->directory) ? TARN_OK : failed(rig->directory);
    (void)snprintf(rig->pool_path, sizeof(rig->pool_path), "%s/p.pool", rig->directory);
    (void)snprintf(rig->file_path, sizeof(rig->file_path), "%s/file", rig->directory);
    sigset_t before;
    signals_block(&before);
    log_set_level(LOG_WARN); /* pools come and go here */
    if (status == TARN_OK)
        status = rig_measure(rig);
    log_set_level(LOG_INFO);
    if (status == TARN_AGAIN)
        log_error("bench pool: interrupted");
    else if (status != TARN_OK)
        log_error("bench pool: %s", tarn_strerror(status));
    pool_stop(rig);
    page_files_remove(rig);
    (void)rmdir(rig->directory);
    mem_free(rig);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* what waited ends the program here */
    return status;
}
