/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mooncake-rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cluster/capacity.h"
#include "cluster/find-master.h"
#include "cluster/master.h"
#include "cluster/run-dir.h"
#include "cluster/wait.h"
#include "os/block.h"
#include "os/clock.h"
#include "os/stop.h"
#include "store/mooncake/client.h"
#include "store/mooncake/environment.h"
#include "store/mooncake/header.h"
#include "store/mooncake/mooncake.h"

enum {
    PAGES_MAX = 64, /* of one batch, and of one question */
    ASKS = 50,      /* questions of one run, whose median counts */
    DEADLINE_MS = 10000,
    START_MS = 60000,
    GRACE_MS = 10000,
    KEY_BYTES = 96,
    SPACE_BYTES = 48,
    ARGUMENT_BYTES = PATH_MAX + 32,
};

static const uint64_t SEGMENT_BYTES = UINT64_C(512) << 20; /* of the donor: some batches at once */
static const uint64_t BATCH_BYTES_MAX = UINT64_C(48) << 20;
static const double SPEED_BAR = 0.9;
static const double ASK_BAR = 1.2;

/* Two sides; Tarn putting pages without room for a header before them; and the provider called
 * from C without what Tarn adds. */
enum side { SIDE_TARN, SIDE_WHEEL, SIDE_APART, SIDE_UNCHECKED, SIDE_COUNT };

struct shape {
    uint32_t pages;
    uint64_t page_bytes;
    const char *text;
};

static const struct shape shapes[] = { { 64, 512 << 10, "64 x 512 KiB" },
                                       { 16, 3 << 20, "16 x 3 MiB" } };

struct rig {
    const struct mooncake_rows_options *options;
    struct mooncake_rows *out;
    char **environment; /* as it was at the start, without what Tarn sets for Mooncake */
    struct run_dir dir;
    struct master master;
    struct process donor;
    char ready_path[PATH_MAX]; /* the donor's */
    struct mooncake_options client;
    struct store *store;
    struct wheel wheel;
    char space_text[SPACE_BYTES];
    uint32_t space;
    struct block memory; /* source and target, each a batch with headroom before every page */
    uint64_t next_key;
    struct tarn_span spans[PAGES_MAX];
    struct store_item items[PAGES_MAX];
};

static enum tarn_status interrupted(void)
{
    return stop_wait(0) ? TARN_AGAIN : TARN_OK;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) / 1e9;
}

/* ---- the pool ---- */

static enum tarn_status master_launch(struct rig *rig, uint16_t *out_http_port)
{
    char log_path[PATH_MAX];
    const uint16_t port = probe_port_free();
    *out_http_port = probe_port_free();
    TRY(run_dir_open(NULL, &rig->dir));
    TRY(run_dir_file(&rig->dir, RUN_DIR_MASTER_LOG, log_path));
    const struct master_options options = { .environment = environ,
                                            .log_path = log_path,
                                            .listen = "127.0.0.1",
                                            .rpc_port = port,
                                            .http_port = *out_http_port,
                                            .eviction_millionths = 50000,
                                            .timeout_ms = START_MS };
    (void)snprintf(rig->out->master, sizeof(rig->out->master), "127.0.0.1:%u", port);
    return master_start(&options, &rig->master);
}

static enum tarn_status donor_wait(struct rig *rig)
{
    struct wait wait;
    char end[PROCESS_END_BYTES];
    wait_init(&wait, "the donor", START_MS);
    while (access(rig->ready_path, F_OK) != 0) {
        if (process_has_ended(&rig->donor)) {
            process_print_end(&rig->donor, end);
            log_error("bench mooncake: the donor ended with %s", end);
            return TARN_IO;
        }
        const enum tarn_status status = wait_pause(&wait, "it does not lend yet");
        if (status == TARN_STALE) {
            log_error("bench mooncake: the donor does not lend memory after %d s", START_MS / 1000);
            return TARN_IO;
        }
        TRY(status);
    }
    return TARN_OK;
}

/* A process of its own, so that it is neither side's; its log goes where this one's does. */
static enum tarn_status donor_launch(struct rig *rig, uint16_t http_port)
{
    char master[MOONCAKE_TEXT_BYTES_MAX + 32];
    char segment[ARGUMENT_BYTES];
    char metrics[ARGUMENT_BYTES];
    char ready[ARGUMENT_BYTES];
    TRY(run_dir_file(&rig->dir, "donor.ready", rig->ready_path));
    (void)snprintf(master, sizeof(master), "--master=%s", rig->out->master);
    (void)snprintf(segment, sizeof(segment), "--segment-size=%" PRIu64 "B", SEGMENT_BYTES);
    (void)snprintf(metrics, sizeof(metrics), "--metrics-port=%u", http_port);
    (void)snprintf(ready, sizeof(ready), "--ready-file=%s", rig->ready_path);
    const char *const arguments[] = { "tarn", "donor", master, segment, metrics, ready, NULL };
    TRY(process_start("/proc/self/exe", (char *const *)(const void *)arguments, environ,
                      STDERR_FILENO, &rig->donor));
    return donor_wait(rig);
}

static enum tarn_status pool_find(struct rig *rig)
{
    struct mooncake_options *client = &rig->client;
    struct found_master found;
    uint16_t http_port;
    if (!rig->options->master) {
        TRY(master_launch(rig, &http_port));
        TRY(donor_launch(rig, http_port));
    }
    TRY(find_master(rig->options->master ? rig->options->master : rig->out->master, START_MS,
                    &found));
    (void)snprintf(rig->out->master, sizeof(rig->out->master), "%s", found.text);
    mooncake_options_init(client);
    (void)snprintf(client->master_server_address, sizeof(client->master_server_address), "%s",
                   found.text);
    client->global_segment_bytes = 0;
    client->local_buffer_bytes = CAPACITY_DONOR_BUFFER_BYTES;
    return find_local_host(&found, NULL, client->local_hostname);
}

static void pool_leave(struct rig *rig)
{
    (void)process_stop(&rig->donor, GRACE_MS);
    master_stop(&rig->master);
    if (rig->ready_path[0])
        (void)unlink(rig->ready_path);
    run_dir_close(&rig->dir);
}

/* ---- the two sides ---- */

static enum tarn_status memory_make(struct rig *rig)
{
    const uint64_t size_bytes = 2 * (BATCH_BYTES_MAX + (uint64_t)PAGES_MAX * HEADER_BYTES);
    TRY(block_init(&rig->memory, size_bytes)); /* as the engine's pages */
    uint8_t *bytes = rig->memory.base;
    for (uint64_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(i * UINT64_C(2654435761) >> 13);
    return store_register(rig->store, bytes, size_bytes);
}

static enum tarn_status sides_start(struct rig *rig)
{
    (void)snprintf(rig->space_text, sizeof(rig->space_text), "tarn/bench/%d-%" PRIu64,
                   (int)getpid(), clock_now_ns());
    TRY(mooncake_open(&rig->client, &rig->store));
    TRY(store_namespace(rig->store, rig->space_text, &rig->space));
    TRY(memory_make(rig));
    const struct client *client = mooncake_behind(rig->store);
    const struct wheel_options options = { .python = rig->options->python,
                                           .environment = rig->environment,
                                           .client = &rig->client,
                                           .space = rig->space_text,
                                           .memory_bytes = 2 * BATCH_BYTES_MAX };
    TRY(wheel_start(&options, &rig->wheel));
    (void)snprintf(rig->out->provider, sizeof(rig->out->provider), "%.160s%s%s",
                   client->provider.is_bridge ? "the bridge" : client->provider.path,
                   client->version[0] ? " to Mooncake " : "", client->version);
    (void)snprintf(rig->out->version, sizeof(rig->out->version), "%s", rig->wheel.version);
    if (client->version[0] == '\0' || strcmp(client->version, rig->wheel.version) == 0)
        return TARN_OK;
    log_error("bench mooncake: the bridge has Mooncake %s, and Python %s, which is another: name "
              "the Python that has the same with --python",
              client->version, rig->wheel.version);
    return TARN_UNSUPPORTED;
}

static void sides_stop(struct rig *rig)
{
    wheel_stop(&rig->wheel);
    if (rig->memory.base && rig->store)
        store_unregister(rig->store, rig->memory.base);
    store_close(rig->store);
    block_deinit(&rig->memory);
}

/* ---- one batch, timed ---- */

/* The key's text is that of the number: what Tarn puts, Python can remove. */
static struct store_key key_of(const struct rig *rig, uint64_t number)
{
    struct store_key key = { .namespace_index = rig->space };
    for (size_t i = 0; i < sizeof(number); i++)
        key.digest.bytes[sizeof(key.digest.bytes) - 1 - i] = (uint8_t)(number >> 8 * i);
    return key;
}

static uint8_t *page_at(const struct rig *rig, const struct shape *shape, bool is_target,
                        uint32_t page)
{
    return (uint8_t *)rig->memory.base + (is_target ? rig->memory.size_bytes / 2 : 0) +
           page * (shape->page_bytes + HEADER_BYTES) + HEADER_BYTES;
}

static void items_set(struct rig *rig, const struct shape *shape, uint64_t first, bool is_target,
                      bool has_headroom)
{
    for (uint32_t i = 0; i < shape->pages; i++) {
        rig->spans[i] = (struct tarn_span){ page_at(rig, shape, is_target, i), shape->page_bytes };
        rig->items[i] = (struct store_item){ .key = key_of(rig, first + i),
                                             .spans = &rig->spans[i],
                                             .span_count = 1,
                                             .has_headroom = has_headroom };
    }
}

static enum tarn_status items_check(const struct rig *rig, const struct shape *shape)
{
    for (uint32_t i = 0; i < shape->pages; i++) {
        const struct store_item *item = &rig->items[i];
        if (item->status == TARN_OK && !item->was_present)
            continue;
        log_error("bench mooncake: page %u of %s: %s", i, shape->text,
                  item->was_present ? "is there already" : tarn_strerror(item->status));
        return item->status == TARN_OK ? TARN_IO : item->status;
    }
    return TARN_OK;
}

/* No two puts have the same bytes. */
static void pages_stamp(const struct rig *rig, const struct shape *shape, uint64_t first)
{
    for (uint32_t i = 0; i < shape->pages; i++) {
        const uint64_t number = first + i;
        memcpy(page_at(rig, shape, false, i), &number, sizeof(number));
    }
}

static enum tarn_status pages_compare(const struct rig *rig, const struct shape *shape)
{
    for (uint32_t i = 0; i < shape->pages; i++) {
        if (memcmp(page_at(rig, shape, true, i), page_at(rig, shape, false, i),
                   shape->page_bytes) == 0)
            continue;
        log_error("bench mooncake: page %u of %s came back with other bytes", i, shape->text);
        return TARN_CORRUPT;
    }
    return TARN_OK;
}

/* A get has a slot with room for the header, always. */
static enum tarn_status tarn_time(struct rig *rig, const struct shape *shape, bool has_headroom,
                                  uint64_t first, double *out_put_s, double *out_get_s)
{
    pages_stamp(rig, shape, first);
    items_set(rig, shape, first, false, has_headroom);
    uint64_t start_ns = clock_now_ns();
    TRY(store_put(rig->store, rig->items, shape->pages));
    *out_put_s = seconds_since(start_ns);
    TRY(items_check(rig, shape));
    items_set(rig, shape, first, true, true);
    start_ns = clock_now_ns();
    TRY(store_get(rig->store, rig->items, shape->pages));
    *out_get_s = seconds_since(start_ns);
    TRY(items_check(rig, shape));
    return pages_compare(rig, shape);
}

/* As the package's user would, in C: no header, no checksum, no question. */
static enum tarn_status unchecked_time(struct rig *rig, const struct shape *shape, uint64_t first,
                                       double *out_put_s, double *out_get_s)
{
    const struct client *client = mooncake_behind(rig->store);
    const struct mooncake_functions *functions = &client->provider.functions;
    char texts[PAGES_MAX][KEY_BYTES];
    const char *keys[PAGES_MAX];
    void *sources[PAGES_MAX];
    void *targets[PAGES_MAX];
    size_t sizes[PAGES_MAX];
    int put[PAGES_MAX];
    int64_t got[PAGES_MAX];
    for (uint32_t i = 0; i < shape->pages; i++) {
        (void)snprintf(texts[i], KEY_BYTES, "%s/%032" PRIx64, rig->space_text, first + i);
        keys[i] = texts[i];
        sources[i] = page_at(rig, shape, false, i);
        targets[i] = page_at(rig, shape, true, i);
        sizes[i] = shape->page_bytes;
    }
    uint64_t start_ns = clock_now_ns();
    int result =
        functions->batch_put_from(client->handle, keys, sources, sizes, shape->pages, NULL, put);
    *out_put_s = seconds_since(start_ns);
    start_ns = clock_now_ns();
    if (result >= 0)
        result = functions->batch_get_into(client->handle, keys, targets, sizes, shape->pages, got);
    *out_get_s = seconds_since(start_ns);
    for (uint32_t i = 0; i < shape->pages && result >= 0; i++)
        result = put[i] == 0 && got[i] == (int64_t)shape->page_bytes ? 0 : -1;
    if (result >= 0)
        return TARN_OK;
    log_error("bench mooncake: the provider did not put and get %s", shape->text);
    return TARN_IO;
}

static enum tarn_status side_time(struct rig *rig, enum side side, const struct shape *shape,
                                  double *out_put_s, double *out_get_s)
{
    const uint64_t first = rig->next_key;
    double ignored;
    rig->next_key += shape->pages;
    TRY(interrupted());
    if (side == SIDE_TARN || side == SIDE_APART) {
        TRY(tarn_time(rig, shape, side == SIDE_TARN, first, out_put_s, out_get_s));
    } else if (side == SIDE_UNCHECKED) {
        TRY(unchecked_time(rig, shape, first, out_put_s, out_get_s));
    } else {
        TRY(wheel_do(&rig->wheel, WHEEL_PUT, first, shape->pages, shape->page_bytes, out_put_s));
        TRY(wheel_do(&rig->wheel, WHEEL_GET, first, shape->pages, shape->page_bytes, out_get_s));
    }
    return wheel_do(&rig->wheel, WHEEL_REMOVE, first, shape->pages, 0, &ignored);
}

/* ---- rows ---- */

static void ratio_add(struct rig *rig, const struct shape *shape, const char *what,
                      const double *ours_s, const double *theirs_s, double bar)
{
    char name[BENCH_ROW_NAME_BYTES];
    const double bytes = (double)shape->page_bytes * shape->pages;
    (void)snprintf(name, sizeof(name), "%s, %s", what, shape->text);
    struct bench_row *row = bench_row_add(&rig->out->rows, name);
    bench_row_rates(row, bytes, ours_s, theirs_s, rig->options->runs);
    row->bar = bar;
}

/* All sides in every run; who begins changes, and who follows whom. The first run is not counted:
 * memory and connections are new in it. */
static enum tarn_status pages_measure(struct rig *rig, const struct shape *shape)
{
    double put[SIDE_COUNT][BENCH_RUNS_MAX];
    double get[SIDE_COUNT][BENCH_RUNS_MAX];
    log_info("bench mooncake: %s", shape->text);
    for (uint32_t run = 0; run <= rig->options->runs; run++) {
        const uint32_t at = run ? run - 1 : 0;
        for (uint32_t i = 0; i < SIDE_COUNT; i++) {
            const uint32_t turn = run % 2 ? i : SIDE_COUNT - 1 - i;
            const enum side side = (enum side)((run / 2 + turn) % SIDE_COUNT);
            TRY(side_time(rig, side, shape, &put[side][at], &get[side][at]));
        }
    }
    ratio_add(rig, shape, "put", put[SIDE_TARN], put[SIDE_WHEEL], SPEED_BAR);
    ratio_add(rig, shape, "get", get[SIDE_TARN], get[SIDE_WHEEL], SPEED_BAR);
    ratio_add(rig, shape, "put, header apart", put[SIDE_APART], put[SIDE_WHEEL], 0);
    ratio_add(rig, shape, "put unchecked", put[SIDE_UNCHECKED], put[SIDE_WHEEL], 0);
    ratio_add(rig, shape, "get unchecked", get[SIDE_UNCHECKED], get[SIDE_WHEEL], 0);
    return TARN_OK;
}

static enum tarn_status ask_time(struct rig *rig, enum side side, uint64_t first, double *out_us)
{
    double seconds[ASKS];
    struct store_key keys[PAGES_MAX];
    bool present[PAGES_MAX];
    TRY(interrupted());
    for (uint32_t i = 0; i < PAGES_MAX; i++)
        keys[i] = key_of(rig, first + i);
    for (uint32_t ask = 0; ask < ASKS; ask++) {
        if (side == SIDE_WHEEL) {
            TRY(wheel_do(&rig->wheel, WHEEL_EXISTS, first, PAGES_MAX, 0, &seconds[ask]));
            continue;
        }
        const uint64_t start_ns = clock_now_ns();
        TRY(store_exists(rig->store, keys, PAGES_MAX, present));
        seconds[ask] = seconds_since(start_ns);
        for (uint32_t i = 0; i < PAGES_MAX; i++) {
            if (!present[i])
                return TARN_MISS;
        }
    }
    *out_us = bench_quantile(seconds, ASKS, 0.5) * 1e6;
    return TARN_OK;
}

static enum tarn_status asks_measure(struct rig *rig)
{
    const struct shape *shape = &shapes[0];
    double times[SIDE_COUNT][BENCH_RUNS_MAX];
    double ignored;
    const uint64_t first = rig->next_key;
    rig->next_key += PAGES_MAX;
    log_info("bench mooncake: exists");
    TRY(tarn_time(rig, shape, true, first, &ignored, &ignored));
    for (uint32_t run = 0; run <= rig->options->runs; run++) {
        const uint32_t at = run ? run - 1 : 0;
        for (uint32_t i = 0; i < 2; i++) {
            const enum side side = (run + i) % 2 ? SIDE_WHEEL : SIDE_TARN;
            TRY(ask_time(rig, side, first, &times[side][at]));
        }
    }
    struct bench_row *row = bench_row_add(&rig->out->rows, "exists, 64 keys");
    row->unit = "us";
    bench_row_compare(row, times[SIDE_TARN], times[SIDE_WHEEL], rig->options->runs);
    row->bar = ASK_BAR;
    row->less_is_better = true;
    return wheel_do(&rig->wheel, WHEEL_REMOVE, first, PAGES_MAX, 0, &ignored);
}

static enum tarn_status rows_measure(struct rig *rig)
{
    for (size_t i = 0; i < LENGTH_OF(shapes); i++)
        TRY(pages_measure(rig, &shapes[i]));
    return asks_measure(rig);
}

enum tarn_status mooncake_rows_measure(const struct mooncake_rows_options *options,
                                       struct mooncake_rows *out_rows)
{
    struct rig *rig = mem_alloc(1, sizeof(*rig));
    if (!rig)
        return TARN_NO_MEMORY;
    *rig = (struct rig){
        .options = options, .out = out_rows, .dir = { .lock_fd = -1 }, .wheel = { .fd = -1 }
    };
    *out_rows = (struct mooncake_rows){ .rows = { .count = 0 } };
    stop_prepare();
    (void)unsetenv("MOONCAKE_CONFIG_PATH"); /* NOLINT(concurrency-mt-unsafe): of another pool */
    enum tarn_status status =
        process_environment(environ, (const char *const[]){ NULL }, &rig->environment);
    mooncake_environment_prepare(DEADLINE_MS);
    if (status == TARN_OK)
        status = pool_find(rig);
    if (status == TARN_OK)
        status = sides_start(rig);
    if (status == TARN_OK)
        status = rows_measure(rig);
    if (status == TARN_AGAIN)
        log_error("bench mooncake: interrupted");
    else if (status != TARN_OK)
        log_error("bench mooncake: %s", tarn_strerror(status));
    sides_stop(rig);
    pool_leave(rig);
    mem_free(rig->environment);
    mem_free(rig);
    return status;
}
