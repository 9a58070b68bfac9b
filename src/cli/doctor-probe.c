/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor-probe.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "os/block.h"
#include "os/clock.h"

/* Pages under a save are at most a quarter of the memory. */
enum { T = 16, BLOCKS = 8, SLOTS = 64, PAGE_BYTES = 32 << 10, TOKENS = T * BLOCKS + 1 };
enum { POLL_MS = 10, DEADLINE_MS = 20000 };

struct engine {
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector;
    struct block memory; /* SLOTS pages; block b lies in slot b */
    int32_t tokens[TOKENS];
    uint64_t step;
    char *reason;
};

static enum tarn_status step_check(const struct engine *engine, const char *what,
                                   enum tarn_status status)
{
    if (status != TARN_OK)
        (void)snprintf(engine->reason, PROBE_REASON_BYTES, "%s: %s", what, tarn_strerror(status));
    return status;
}

/* The bytes that block `block` must have: they follow from the tokens, which are random. */
static void page_fill(const struct engine *engine, size_t block, uint8_t *out)
{
    uint32_t state = (uint32_t)engine->tokens[block * T] | 1;
    for (size_t i = 0; i < PAGE_BYTES; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        out[i] = (uint8_t)state;
    }
}

static enum tarn_status engine_open(struct engine *engine,
                                    const struct tarn_connector_options *options)
{
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "u8", .order = "bytes", .layer_count = 1
    };
    const struct tarn_engine_desc desc = { .size = sizeof(desc),
                                           .name = "tarn doctor",
                                           .model_key = "tarn-doctor",
                                           .format = &format,
                                           .flags =
                                               TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                           .lower_tier = TARN_SETTING_OFF,
                                           .partial_reuse = TARN_SETTING_OFF,
                                           .request_count_max = 1,
                                           .request_tokens_max = TOKENS };
    const uint32_t layer = 0;
    const struct tarn_region region = { .base = (uintptr_t)engine->memory.base,
                                        .size_bytes = PAGE_BYTES,
                                        .stride_bytes = PAGE_BYTES,
                                        .slot_count = SLOTS };
    const struct tarn_group group = {
        .layers = &layer, .layer_count = 1, .regions = &region, .region_count = 1
    };
    const struct tarn_layout layout = {
        .size = sizeof(layout), .tokens_per_block = T, .groups = &group, .group_count = 1
    };
    TRY(step_check(engine, "opening it", engine->ops->open(options, &desc, &engine->connector)));
    return step_check(engine, "registering memory with it",
                      engine->ops->register_layout(engine->connector, &layout));
}

/* One step of the one request: load the offer, or compute what is past `computed`. */
static enum tarn_status engine_step(struct engine *engine, uint64_t computed, bool load)
{
    tarn_page slots[BLOCKS + 1];
    const tarn_page *const pages = slots;
    struct tarn_bytes metadata;
    for (size_t i = 0; i <= BLOCKS; i++)
        slots[i] = i;
    const struct tarn_step_request request = { .id = 1,
                                               .pages = &pages,
                                               .block_count = BLOCKS + 1,
                                               .computed_tokens = computed,
                                               .scheduled_tokens = load ? 0 : TOKENS - computed,
                                               .load = load };
    const struct tarn_step step = {
        .size = sizeof(step), .number = ++engine->step, .requests = &request, .request_count = 1
    };
    TRY(step_check(engine, "planning a step",
                   engine->ops->step(engine->connector, &step, &metadata)));
    return step_check(engine, "beginning a step",
                      engine->ops->load_start(engine->connector, metadata));
}

/* Follow the transfers of our pages until none touches them. */
static enum tarn_status engine_settle(struct engine *engine)
{
    struct tarn_transfer transfers[2 * BLOCKS];
    const uint64_t deadline_ns = clock_now_ns() + DEADLINE_MS * NS_PER_MS;
    struct pollfd news = { .events = POLLIN };
    uint32_t busy = 0;
    size_t count = 0;
    news.fd = engine->ops->poll_fd ? engine->ops->poll_fd(engine->connector) : -1;
    for (;;) {
        TRY(step_check(
            engine, "asking for transfers",
            engine->ops->transfers(engine->connector, transfers, LENGTH_OF(transfers), &count)));
        for (size_t i = 0; i < count; i++)
            busy += transfers[i].phase == TARN_TRANSFER_STARTED ? 1U : UINT32_MAX;
        if (count == 0 && busy == 0)
            return TARN_OK;
        if (clock_now_ns() > deadline_ns)
            return step_check(engine, "waiting for transfers", TARN_AGAIN);
        if (count == 0)
            (void)poll(&news, 1, POLL_MS);
    }
}

static enum tarn_status request_end(struct engine *engine)
{
    uint32_t pending = 0;
    TRY(step_check(engine, "ending a request",
                   engine->ops->finished(engine->connector, 1, &pending)));
    return step_check(engine, "closing it", engine->ops->close(engine->connector, DEADLINE_MS));
}

static enum tarn_status engine_ask(struct engine *engine, struct tarn_offer *out_offer)
{
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = engine->tokens, .token_count = TOKENS
    };
    return engine->ops->lookup(engine->connector, &request, 0, out_offer);
}

static enum tarn_status engine_save(struct engine *engine)
{
    struct tarn_offer offer;
    const enum tarn_status asked = engine_ask(engine, &offer);
    if (asked != TARN_MISS)
        return step_check(engine, "looking up blocks that nobody saved",
                          asked ? asked : TARN_INVALID);
    TRY(engine_step(engine, 0, false));
    for (size_t i = 0; i < BLOCKS; i++)
        page_fill(engine, i, (uint8_t *)engine->memory.base + i * PAGE_BYTES);
    TRY(step_check(engine, "saving",
                   engine->ops->forward_done(engine->connector, engine->step, TARN_OK, NULL)));
    TRY(engine_settle(engine));
    return request_end(engine);
}

static enum tarn_status engine_load(struct engine *engine, uint64_t *out_blocks)
{
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded;
    size_t count = 0;
    const uint64_t deadline_ns = clock_now_ns() + DEADLINE_MS * NS_PER_MS;
    TRY(engine_step(engine, 0, true));
    enum tarn_status status = TARN_AGAIN;
    while (status == TARN_AGAIN && clock_now_ns() < deadline_ns)
        status = engine->ops->load_poll(engine->connector, POLL_MS, &report);
    TRY(step_check(engine, "loading", status));
    TRY(step_check(engine, "judging a load",
                   engine->ops->verdict(engine->connector, &report, 1, &verdict)));
    TRY(step_check(engine, "taking a load's verdict",
                   engine->ops->verdict_apply(engine->connector, verdict, &loaded, 1, &count)));
    *out_blocks = count ? loaded.block_count : 0;
    TRY(step_check(engine, "ending a step",
                   engine->ops->forward_done(engine->connector, engine->step, TARN_OK, NULL)));
    return engine_settle(engine);
}

static enum tarn_status pages_compare(const struct engine *engine)
{
    uint8_t *expected = mem_alloc(PAGE_BYTES, 1);
    enum tarn_status status = expected ? TARN_OK : TARN_NO_MEMORY;
    for (size_t i = 0; i < BLOCKS && status == TARN_OK; i++) {
        page_fill(engine, i, expected);
        if (memcmp(expected, (uint8_t *)engine->memory.base + i * PAGE_BYTES, PAGE_BYTES) != 0)
            status = TARN_CORRUPT;
    }
    mem_free(expected);
    return step_check(engine, "comparing what was read with what was written", status);
}

static enum tarn_status engine_replay(struct engine *engine)
{
    struct tarn_offer offer = { 0, 0 };
    uint64_t blocks = 0;
    TRY(step_check(engine, "looking up what was just saved", engine_ask(engine, &offer)));
    TRY(engine_load(engine, &blocks));
    if (blocks != BLOCKS) {
        (void)snprintf(engine->reason, PROBE_REASON_BYTES,
                       "of %d blocks that were saved %d could be read", BLOCKS, (int)blocks);
        return TARN_MISS;
    }
    TRY(pages_compare(engine));
    return request_end(engine);
}

/* One engine's life with the connector: open, do, close. */
static enum tarn_status engine_run(struct engine *engine,
                                   const struct tarn_connector_options *options,
                                   enum tarn_status (*what)(struct engine *engine),
                                   uint64_t *out_ns)
{
    engine->connector = NULL;
    engine->step = 0;
    memset(engine->memory.base, 0, engine->memory.size_bytes);
    enum tarn_status status = engine_open(engine, options);
    const uint64_t start_ns = clock_now_ns();
    if (status == TARN_OK)
        status = what(engine);
    *out_ns = clock_now_ns() - start_ns;
    if (status != TARN_OK && engine->connector &&
        engine->ops->close(engine->connector, DEADLINE_MS) != TARN_OK)
        return TARN_AGAIN; /* the memory must stay */
    return status;
}

enum tarn_status probe_connector(const struct tarn_connector_ops *ops,
                                 const struct tarn_connector_options *options,
                                 struct probe_result *out_result)
{
    struct engine engine = { .ops = ops, .reason = out_result->reason };
    *out_result =
        (struct probe_result){ .block_count = BLOCKS, .bytes = (uint64_t)BLOCKS * PAGE_BYTES };
    if (getrandom(engine.tokens, sizeof(engine.tokens), 0) != sizeof(engine.tokens))
        return step_check(&engine, "random numbers", TARN_IO);
    for (size_t i = 0; i < TOKENS; i++)
        engine.tokens[i] &= INT32_MAX;
    TRY(step_check(&engine, "memory", block_init(&engine.memory, SLOTS * PAGE_BYTES)));
    enum tarn_status status = engine_run(&engine, options, engine_save, &out_result->save_ns);
    if (status == TARN_OK)
        status = engine_run(&engine, options, engine_replay, &out_result->load_ns);
    if (status != TARN_AGAIN)
        block_deinit(&engine.memory);
    return status;
}
