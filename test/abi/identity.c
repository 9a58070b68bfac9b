/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a page can be read as anything but what it was saved as: engine A saves a prompt's pages,
 * and engine B, which differs from it in exactly one field of one structure of tarn.h, looks them
 * up and loads them. What changes the meaning of a page's bytes must miss, what does not must bring
 * the same bytes, and what the gates refuse must not open. An engine that knows tarn.h alone.
 *
 * Usage: identity                        A and B, over a new pool on this host
 *        identity POOL                   A, until its input ends: saves, then says "saved"
 *        identity POOL SHARE SHARES      B, its share of the comparisons, from 0 on: a Mooncake
 * client takes a second to close Prints TAP.
 *
 * The lists below have every field of their structures in order: a field that tarn.h gains does not
 * compile here until it has a row, and so a flip.
 */
#pragma GCC diagnostic error "-Wmissing-field-initializers"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tarn/tarn.h"

enum { T = 16, BLOCKS = 3, TOKENS = BLOCKS * T + 1, SLOTS = 64, GROUPS_MAX = 2, STRIDE_MAX = 192 };
enum { KEYS = 96, VALUES = 32, PATIENCE_MS = 60000, METRICS_BYTES = 1 << 16 };

/* What is expected of B. ELSEWHERE: the field cannot be flipped alone, or holds what is flipped in
 * a list of its own; the comment says where. */
enum outcome { MISSES, HITS, REFUSED, ELSEWHERE };

static const struct tarn_digest adapter_a = { { 1 } };
static const struct tarn_digest adapter_b = { { 2 } };
static const struct tarn_digest media_a[] = { { { 3 } }, { { 4 } } };
static const struct tarn_digest media_b[] = { { { 3 } }, { { 5 } } };
static const uint32_t layers_a[] = { 0, 1 };
static const uint32_t layers_b[] = { 0, 2 };
static int32_t tokens_a[TOKENS];
static int32_t tokens_b[TOKENS]; /* another first token */

/* X(structure, field, of A, of B, what is expected of B) */
#define OPTIONS_LIST(X)                                                                            \
    X(options, size, sizeof(struct tarn_connector_options), 0, ELSEWHERE) /* test/abi/abi.c */     \
    X(options, pool, NULL, NULL, ELSEWHERE)                               /* both share one */     \
    X(options, pool_size_bytes, 64 << 20, 0, ELSEWHERE)                                            \
    X(options, cache_prefix, "tarn-a", "tarn-b", MISSES)                                           \
    X(options, role, TARN_ROLE_BOTH, TARN_ROLE_CONSUMER, HITS)                                     \
    X(options, transfer_batch_size, 64, 2, HITS)                                                   \
    X(options, lookup_deadline_ms, PATIENCE_MS, PATIENCE_MS / 2, HITS)                             \
    X(options, load_deadline_ms, PATIENCE_MS, PATIENCE_MS / 2, HITS)                               \
    X(options, load_bytes_per_step, 0, 1 << 20, HITS)                                              \
    X(options, load_failure, TARN_LOAD_RECOMPUTE, TARN_LOAD_FAIL, HITS)                            \
    X(options, save_generated, TARN_SETTING_UNSET, TARN_SETTING_OFF, HITS)                         \
    X(options, verify_tokens, TARN_SETTING_UNSET, TARN_SETTING_ON, MISSES) /* pages are longer */  \
    X(options, pinned_bytes_max, 0, 1 << 20, HITS)                                                 \
    X(options, save_queue_pages_max, 0, 64, HITS)                                                  \
    X(options, staging_buffer_bytes, 1 << 20, 1 << 19, HITS)                                       \
    X(options, stage_through_host, TARN_SETTING_UNSET, TARN_SETTING_ON, HITS)
#define ENGINE_LIST(X)                                                                             \
    X(engine, size, sizeof(struct tarn_engine_desc), 0, ELSEWHERE)                                 \
    X(engine, name, "a", "b", HITS)                                                                \
    X(engine, model_key, "model-0123456789abcdef", "model-0123456789abcdee", MISSES)               \
    X(engine, format, NULL, NULL, ELSEWHERE) /* FORMAT_LIST */                                     \
    X(engine, flags, TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,                             \
      TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK | TARN_ENGINE_CAN_REWIND, HITS)             \
    X(engine, rank, 0, 1, REFUSED)                 /* alone; else ranks() */                       \
    X(engine, world_size, 1, 2, REFUSED)           /* alone; else world() */                       \
    X(engine, tensor_parallel_size, 1, 2, REFUSED) /* alone; else world() */                       \
    X(engine, pipeline_parallel_size, 1, 2, REFUSED)                                               \
    X(engine, context_parallel_size, 1, 2, REFUSED)                                                \
    X(engine, beam_width_max, 1, 2, REFUSED)                                                       \
    X(engine, lower_tier, TARN_SETTING_OFF, TARN_SETTING_ON, REFUSED)                              \
    X(engine, partial_reuse, TARN_SETTING_OFF, TARN_SETTING_UNSET, HITS)                           \
    X(engine, request_count_max, 16, 32, HITS)                                                     \
    X(engine, request_tokens_max, 1024, 2048, HITS)
#define FORMAT_LIST(X)                                                                             \
    X(format, size, sizeof(struct tarn_kv_format), 0, ELSEWHERE)                                   \
    X(format, element_type, "f16", "bf16", MISSES)                                                 \
    X(format, quantisation, "k8v4", NULL, MISSES)                                                  \
    X(format, order, "layer,kv,token,head,dim", "layer,kv,head,token,dim", MISSES)                 \
    X(format, layer_count, 2, 3, MISSES)                                                           \
    X(format, head_count, 3, 4, MISSES)                                                            \
    X(format, key_head_size, 64, 32, MISSES)                                                       \
    X(format, value_head_size, 64, 32, MISSES)                                                     \
    X(format, rope_dimensions, 32, 16, MISSES)                                                     \
    X(format, rope_base, 10000, 500000, MISSES)                                                    \
    X(format, rope_scale, 8, 4, MISSES)                                                            \
    X(format, rope_type, "normal", "neox", MISSES)                                                 \
    X(format, window_tokens, 0, 512, REFUSED)                                                      \
    X(format, other, "abcd", "abce", MISSES)                                                       \
    X(format, other_size_bytes, 4, 3, MISSES)
#define LAYOUT_LIST(X)                                                                             \
    X(layout, size, sizeof(struct tarn_layout), 0, ELSEWHERE)                                      \
    X(layout, tokens_per_block, T, T / 2, MISSES)                                                  \
    X(layout, page_form, TARN_PAGES_BY_SLOT, 0, ELSEWHERE) /* by_address() */                      \
    X(layout, groups, NULL, NULL, ELSEWHERE)               /* GROUP_LIST */                        \
    X(layout, group_count, 1, GROUPS_MAX, MISSES)                                                  \
    X(layout, memory, NULL, NULL, ELSEWHERE) /* by_address() */                                    \
    X(layout, memory_count, 0, 0, ELSEWHERE)                                                       \
    X(layout, device, NULL, NULL, ELSEWHERE)  /* how pages are reached; test-staging.c */          \
    X(layout, headroom_bytes, 0, 64, REFUSED) /* of pages of two regions; else: test-staging.c */
#define GROUP_LIST(X)                                                                              \
    X(group, id, 0, 1, REFUSED) /* alone; else groups() */                                         \
    X(group, window_tokens, 0, 512, REFUSED)                                                       \
    X(group, layers, layers_a, layers_b, MISSES)                                                   \
    X(group, layer_count, 2, 1, MISSES)                                                            \
    X(group, regions, NULL, NULL, ELSEWHERE) /* REGION_LIST */                                     \
    X(group, region_count, 2, 1, MISSES)
#define REGION_LIST(X)                                                                             \
    X(region, base, 0, 0, ELSEWHERE) /* each engine has memory of its own */                       \
    X(region, size_bytes, KEYS, KEYS / 2, MISSES)                                                  \
    X(region, stride_bytes, 128, STRIDE_MAX, HITS)                                                 \
    X(region, slot_count, SLOTS / 2, SLOTS, HITS)                                                  \
    X(region, buffers, NULL, NULL, ELSEWHERE) /* BUFFER_LIST */                                    \
    X(region, buffer_count, 2, 1, MISSES)
#define BUFFER_LIST(X)                                                                             \
    X(buffer, layer, 0, 1, MISSES)                                                                 \
    X(buffer, role, TARN_KEY, TARN_INDEX_KEY, MISSES)
#define REQUEST_LIST(X)                                                                            \
    X(request, size, sizeof(struct tarn_request), 0, ELSEWHERE)                                    \
    X(request, id, 1, 2, HITS)                                                                     \
    X(request, tokens, tokens_a, tokens_b, MISSES)                                                 \
    X(request, token_count, TOKENS, TOKENS - T, HITS)                                              \
    X(request, scope, NULL, NULL, ELSEWHERE) /* SCOPE_LIST */                                      \
    X(request, flags, 0, 0, ELSEWHERE)       /* which pages are asked for at all */
#define SCOPE_LIST(X)                                                                              \
    X(scope, size, sizeof(struct tarn_scope), 0, ELSEWHERE)                                        \
    X(scope, cache_salt, "tenant-a", "tenant-b", MISSES)                                           \
    X(scope, adapter, &adapter_a, &adapter_b, MISSES)                                              \
    X(scope, adapter_scale, 1, 2, MISSES)                                                          \
    X(scope, media, media_a, media_b, MISSES)                                                      \
    X(scope, media_count, 2, 1, MISSES)
#define SUBJECT_LIST(X)                                                                            \
    OPTIONS_LIST(X)                                                                                \
    ENGINE_LIST(X)                                                                                 \
    FORMAT_LIST(X)                                                                                 \
    LAYOUT_LIST(X)                                                                                 \
    GROUP_LIST(X)                                                                                  \
    REGION_LIST(X)                                                                                 \
    BUFFER_LIST(X)                                                                                 \
    REQUEST_LIST(X)                                                                                \
    SCOPE_LIST(X)
/* The pool's own names for all that, layer 1. */
#define NAMESPACE_LIST(X)                                                                          \
    X(space, size, sizeof(struct tarn_namespace), 0, ELSEWHERE)                                    \
    X(space, prefix, "tarn-a", NULL, MISSES)                                                       \
    X(space, model, "model-a", "model-b", MISSES)                                                  \
    X(space, world_size, 2, 3, MISSES)                                                             \
    X(space, rank, 0, 1, MISSES)                                                                   \
    X(space, group, 0, 1, MISSES)                                                                  \
    X(space, tokens_per_block, T, T / 2, MISSES)                                                   \
    X(space, bytes_per_page, KEYS, KEYS + 1, MISSES)                                               \
    X(space, layout, 7, 8, MISSES)

/* All that an engine says of itself, one of each; what is more than one of is made of it. */
struct subject {
    struct tarn_connector_options options;
    struct tarn_engine_desc engine;
    struct tarn_kv_format format;
    struct tarn_layout layout;
    struct tarn_group group;
    struct tarn_region region; /* keys; values lie behind them */
    struct tarn_buffer buffer;
    struct tarn_request request;
    struct tarn_scope scope;
    struct tarn_namespace space;
    uint64_t values_bytes;
};

#define OF_A(structure, field, a, b, outcome) a,
static const struct subject subject_a = {
    { OPTIONS_LIST(OF_A) },
    { ENGINE_LIST(OF_A) },
    { FORMAT_LIST(OF_A) },
    { LAYOUT_LIST(OF_A) },
    { GROUP_LIST(OF_A) },
    { REGION_LIST(OF_A) },
    { BUFFER_LIST(OF_A) },
    { REQUEST_LIST(OF_A) },
    { SCOPE_LIST(OF_A) },
    { NAMESPACE_LIST(OF_A) },
    VALUES,
};

struct flip {
    const char *name;
    size_t offset;
    size_t size;
    const void *of_a;
    const void *of_b;
    enum outcome outcome;
};

#define TYPE_OF(structure, field) __typeof__(((struct subject *)0)->structure.field)
#define FLIP(structure, field, a, b, outcome)                                                      \
    { #structure "." #field,                                                                       \
      offsetof(struct subject, structure.field),                                                   \
      sizeof(TYPE_OF(structure, field)),                                                           \
      &(const TYPE_OF(structure, field)){ a },                                                     \
      &(const TYPE_OF(structure, field)){ b },                                                     \
      outcome },
static const struct flip flips[] = { SUBJECT_LIST(FLIP) };
static const struct flip space_flips[] = { NAMESPACE_LIST(FLIP) };

struct engine {
    struct subject subject;
    struct tarn_group groups[GROUPS_MAX];
    struct tarn_region regions[GROUPS_MAX][2];
    struct tarn_buffer buffers[2];
    struct tarn_span memory;
    struct tarn_connector *connector;
    uint64_t step_number;
    size_t busy; /* transfers under way */
    unsigned char pages[GROUPS_MAX][SLOTS * STRIDE_MAX];
};

static const struct tarn_connector_ops *ops;
static const char *pool_path;
static unsigned long share;
static unsigned long shares = 1;
static unsigned long comparison_count;
static int number;
static int failed;

static void ok(int good, const char *what, const char *expected)
{
    failed += !good;
    printf("%s %d - %s%s\n", good ? "ok" : "not ok", ++number, what, expected);
    fflush(stdout);
}

static void need(enum tarn_status status, const char *what)
{
    if (status == TARN_OK)
        return;
    printf("Bail out! %s: %s\n", what, tarn_strerror(status));
    fflush(stdout);
    _exit(1); /* a store that is open has threads */
}

/* `line`: what stands before the number, from the end of the line before on. */
static double metric(const char *line)
{
    static char text[METRICS_BYTES];
    size_t size;
    need(tarn_metrics(text, sizeof(text), &size), "metrics");
    const char *found = strstr(text, line);
    return found ? strtod(found + strlen(line), NULL) : -1;
}

/* ---- an engine ---- */

static void regions_make(struct engine *engine, uint32_t group)
{
    struct tarn_region *regions = engine->regions[group];
    regions[0] = engine->subject.region;
    regions[0].base = engine->subject.layout.page_form == TARN_PAGES_BY_ADDRESS
                          ? 0
                          : (uintptr_t)engine->pages[group];
    regions[0].buffers = engine->buffers;
    regions[1] = regions[0];
    regions[1].base += regions[0].size_bytes;
    regions[1].size_bytes = engine->subject.values_bytes;
    engine->groups[group] = engine->subject.group;
    engine->groups[group].id += group;
    engine->groups[group].regions = regions;
}

static enum tarn_status engine_open(struct engine *engine, const struct subject *subject)
{
    engine->subject = *subject;
    engine->step_number = 0;
    engine->busy = 0;
    memset(engine->pages, 0xa5, sizeof(engine->pages));
    engine->subject.options.pool = pool_path;
    engine->subject.engine.format = &engine->subject.format;
    engine->subject.layout.groups = engine->groups;
    engine->subject.request.scope = &engine->subject.scope;
    engine->buffers[0] = subject->buffer;
    engine->buffers[1] = (struct tarn_buffer){ 1, TARN_KEY };
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        regions_make(engine, i);
    if (subject->layout.page_form == TARN_PAGES_BY_ADDRESS) {
        engine->memory = (struct tarn_span){ engine->pages, sizeof(engine->pages) };
        engine->subject.layout.memory = &engine->memory;
        engine->subject.layout.memory_count = 1;
    }
    const enum tarn_status status =
        ops->open(&engine->subject.options, &engine->subject.engine, &engine->connector);
    if (status != TARN_OK)
        return status;
    const enum tarn_status taken = ops->register_layout(engine->connector, &engine->subject.layout);
    if (taken != TARN_OK)
        need(ops->close(engine->connector, PATIENCE_MS), "close");
    return taken;
}

static unsigned char *page_of(struct engine *engine, uint32_t group, uint64_t block)
{
    return engine->pages[group] + block * engine->subject.region.stride_bytes;
}

/* "Computing" a block leaves bytes that depend on it, its group and the rank. */
static unsigned char byte_of(const struct engine *engine, uint32_t group, uint64_t block, size_t at)
{
    return (unsigned char)(block * 31 + group * 101 + engine->subject.engine.rank * 7 + at * 3);
}

static void compute(struct engine *engine)
{
    for (uint32_t group = 0; group < engine->subject.layout.group_count; group++)
        for (uint64_t block = 0; block < BLOCKS; block++)
            for (size_t i = 0; i < KEYS + VALUES; i++)
                page_of(engine, group, block)[i] = byte_of(engine, group, block, i);
}

static int is_computed(struct engine *engine, uint64_t block_count)
{
    for (uint64_t block = 0; block < block_count; block++)
        for (size_t i = 0; i < KEYS + VALUES; i++)
            if (page_of(engine, 0, block)[i] != byte_of(engine, 0, block, i))
                return 0;
    return 1;
}

/* A step of our one request; `load` its offer, or run all that it has. */
static struct tarn_bytes engine_step(struct engine *engine, uint32_t load)
{
    tarn_page slots[GROUPS_MAX][2 * BLOCKS + 1];
    const tarn_page *pages[GROUPS_MAX];
    const struct tarn_request *request = &engine->subject.request;
    const uint64_t block_count = request->token_count / engine->subject.layout.tokens_per_block;
    struct tarn_bytes metadata;
    for (uint32_t group = 0; group < GROUPS_MAX; group++) {
        pages[group] = slots[group];
        for (uint64_t i = 0; i < block_count; i++)
            slots[group][i] = engine->subject.layout.page_form == TARN_PAGES_BY_ADDRESS
                                  ? (uintptr_t)page_of(engine, group, i)
                                  : i;
    }
    const struct tarn_step_request part = { .id = request->id,
                                            .pages = pages,
                                            .block_count = block_count,
                                            .scheduled_tokens = load ? 0 : request->token_count,
                                            .load = load };
    const struct tarn_step step = {
        .size = sizeof(step), .number = ++engine->step_number, .requests = &part, .request_count = 1
    };
    need(ops->step(engine->connector, &step, &metadata), "step");
    need(ops->load_start(engine->connector, metadata), "load_start");
    return metadata;
}

static void transfers_follow(struct engine *engine)
{
    struct tarn_transfer transfers[16];
    size_t count;
    do {
        need(ops->transfers(engine->connector, transfers, 16, &count), "transfers");
        for (size_t i = 0; i < count; i++)
            engine->busy += transfers[i].phase == TARN_TRANSFER_STARTED ? 1u : ~(size_t)0;
    } while (count);
}

static enum tarn_status engine_lookup(struct engine *engine, struct tarn_offer *out_offer)
{
    return ops->lookup(engine->connector, &engine->subject.request, 0, out_offer);
}

static void engine_save(struct engine *engine)
{
    struct tarn_offer offer;
    uint32_t pending;
    if (engine_lookup(engine, &offer) != TARN_MISS)
        need(TARN_INVALID, "the pool is not empty");
    engine_step(engine, 0);
    compute(engine);
    need(ops->forward_done(engine->connector, engine->step_number, TARN_OK, NULL), "forward_done");
    do
        transfers_follow(engine);
    while (engine->busy);
    need(ops->finished(engine->connector, engine->subject.request.id, &pending), "finished");
}

/* How many blocks of the offer came. */
static uint64_t engine_load(struct engine *engine)
{
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded[64];
    size_t count;
    uint32_t pending;
    engine_step(engine, 1);
    need(ops->load_poll(engine->connector, PATIENCE_MS, &report), "load_poll");
    need(ops->verdict(engine->connector, &report, 1, &verdict), "verdict");
    need(ops->verdict_apply(engine->connector, verdict, loaded, 64, &count), "verdict_apply");
    do
        transfers_follow(engine);
    while (engine->busy);
    need(ops->finished(engine->connector, engine->subject.request.id, &pending), "finished");
    return count ? loaded[0].block_count : 0;
}

/* ---- what B gets of A's pages ---- */

/* A miss is one that the pool gave: nothing failed, came late or was not asked. */
static int misses(struct engine *engine)
{
    struct tarn_offer offer;
    const double before = metric("\ntarn_pool_blocks_total{result=\"miss\"} ");
    const enum tarn_status status = engine_lookup(engine, &offer);
    return status == TARN_MISS && metric("\ntarn_pool_blocks_total{result=\"miss\"} ") > before &&
           metric("\ntarn_pool_probe_failures_total{reason=\"error\"} ") == 0 &&
           metric("\ntarn_pool_probe_failures_total{reason=\"deadline\"} ") == 0;
}

static int hits(struct engine *engine)
{
    struct tarn_offer offer = { 0, 0 };
    const uint64_t block_count = (engine->subject.request.token_count - 1) / T;
    return engine_lookup(engine, &offer) == TARN_OK && offer.token_count == block_count * T &&
           engine_load(engine) == block_count && is_computed(engine, block_count);
}

static void expect(const struct subject *subject, const char *what, enum outcome outcome)
{
    static struct engine b;
    if (comparison_count++ % shares != share)
        return;
    const enum tarn_status status = engine_open(&b, subject);
    if (outcome == REFUSED) {
        ok(status == TARN_UNSUPPORTED || status == TARN_INVALID, what, " is refused");
        if (status == TARN_OK)
            need(ops->close(b.connector, PATIENCE_MS), "close");
        return;
    }
    need(status, what);
    if (outcome == HITS)
        ok(hits(&b), what, " does not count: a hit, and the same bytes");
    else
        ok(misses(&b), what, " is another: a miss");
    need(ops->close(b.connector, PATIENCE_MS), "close");
}

static void each_field(void)
{
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        const struct flip *flip = &flips[i];
        struct subject b = subject_a;
        if (flip->outcome == ELSEWHERE)
            continue;
        memcpy((char *)&b + flip->offset, flip->of_b, flip->size);
        if (memcmp(flip->of_a, flip->of_b, flip->size) == 0)
            ok(0, flip->name, " is not flipped");
        else
            expect(&b, flip->name, flip->outcome);
    }
}

/* Fields that hold more than one thing, or go together. */
static void what_goes_together(void)
{
    struct subject b = subject_a;
    b.engine.model_key = "model-b-0123456789abcdef";
    expect(&b, "the model's name in engine.model_key", MISSES);
    b = subject_a;
    b.engine.world_size = b.engine.tensor_parallel_size = 2;
    expect(&b, "engine.world_size with its tensor_parallel_size", MISSES);
    b = subject_a;
    b.region.size_bytes -= VALUES;
    b.values_bytes += VALUES;
    expect(&b, "region.size_bytes, in pages of the same length", MISSES);
    b = subject_a;
    b.layout.page_form = TARN_PAGES_BY_ADDRESS;
    expect(&b, "layout.page_form, with layout.memory", HITS);
    b = subject_a;
    b.scope.cache_salt = NULL;
    expect(&b, "no scope.cache_salt", MISSES);
    b.scope =
        (struct tarn_scope){ sizeof(b.scope), subject_a.scope.cache_salt, NULL, 0, media_a, 2 };
    expect(&b, "no scope.adapter", MISSES);
}

static void comparisons(void)
{
    comparison_count =
        share; /* each share sees that there is something to be had, before and after */
    expect(&subject_a, "nothing", HITS);
    comparison_count = 0;
    each_field();
    what_goes_together();
    comparison_count = share;
    expect(&subject_a, "still nothing", HITS);
}

/* ---- ranks ---- */

static double saves_ended(void)
{
    return metric("\ntarn_pool_save_pages_total ") + metric("\ntarn_pool_save_skipped_total ");
}

/* The leader of two ranks finds nothing as long as rank 1 has not saved its own: what rank 0 saved
 * does not stand for it. */
static void ranks(void)
{
    static struct engine rank[2];
    static struct engine b;
    struct subject subject = subject_a;
    struct tarn_offer offer;
    subject.options.cache_prefix = "ranks";
    subject.engine.world_size = subject.engine.tensor_parallel_size = 2;
    for (uint32_t i = 0; i < 2; i++) {
        subject.engine.rank = i;
        need(engine_open(&rank[i], &subject), "a rank");
    }
    subject.engine.rank = 0;
    need(engine_open(&b, &subject), "the leader of B");
    ok(engine_lookup(&rank[0], &offer) == TARN_MISS, "two ranks of an empty pool", ": a miss");
    const struct tarn_bytes metadata = engine_step(&rank[0], 0);
    need(ops->load_start(rank[1].connector, metadata), "load_start of rank 1");
    for (uint32_t i = 0; i < 2; i++) {
        const double ended = saves_ended();
        compute(&rank[i]);
        need(ops->forward_done(rank[i].connector, 1, TARN_OK, NULL), "forward_done of a rank");
        while (saves_ended() < ended + BLOCKS)
            transfers_follow(&rank[i]);
        if (i == 0)
            ok(misses(&b), "engine.rank", " is another: what rank 0 saved is not rank 1's");
    }
    ok(engine_lookup(&b, &offer) == TARN_OK && offer.token_count == (uint64_t)BLOCKS * T,
       "engine.rank", " of both: a hit");
    subject.engine.world_size = subject.engine.tensor_parallel_size = 1;
    expect(&subject, "engine.world_size of one, who would read rank 0's pages as whole,", MISSES);
    need(ops->close(b.connector, PATIENCE_MS), "close");
    need(ops->close(rank[1].connector, PATIENCE_MS), "close");
    need(ops->close(rank[0].connector, PATIENCE_MS), "close");
}

/* ---- layer 1 ---- */

static enum tarn_status space_get(struct tarn_pool *pool, const struct tarn_namespace *space,
                                  unsigned char *out)
{
    const struct tarn_digest digest = { { 9 } };
    const struct tarn_span span = { out, space->bytes_per_page };
    uint32_t index;
    memset(out, 0, space->bytes_per_page);
    need(tarn_pool_namespace(pool, space, &index), "namespace");
    return tarn_pool_get(pool, index, &digest, &span, 1);
}

static void each_field_of_a_namespace(void)
{
    const struct tarn_pool_options options = { sizeof(options), pool_path, 64 << 20, 0 };
    const struct tarn_digest digest = { { 9 } };
    unsigned char page[KEYS];
    unsigned char got[KEYS + 1];
    const struct tarn_span span = { page, sizeof(page) };
    struct tarn_pool *pool;
    uint32_t index;
    for (size_t i = 0; i < sizeof(page); i++)
        page[i] = (unsigned char)(i * 5 + 1);
    need(tarn_pool_open(&options, &pool), "the pool");
    need(tarn_pool_namespace(pool, &subject_a.space, &index), "namespace");
    need(tarn_pool_put(pool, index, &digest, 0, &span, 1), "put");
    for (size_t i = 0; i < sizeof(space_flips) / sizeof(space_flips[0]); i++) {
        const struct flip *flip = &space_flips[i];
        struct subject b = subject_a;
        if (flip->outcome == ELSEWHERE)
            continue;
        memcpy((char *)&b + flip->offset, flip->of_b, flip->size);
        ok(memcmp(flip->of_a, flip->of_b, flip->size) != 0 &&
               space_get(pool, &b.space, got) == TARN_MISS,
           flip->name, " is another: a miss");
    }
    ok(space_get(pool, &subject_a.space, got) == TARN_OK && memcmp(got, page, sizeof(page)) == 0,
       "the same namespace", ": a hit, and the same bytes");
    tarn_pool_close(pool);
}

static void engine_a(int and_b)
{
    static struct engine a;
    need(engine_open(&a, &subject_a), "engine A");
    engine_save(&a);
    printf("# saved\n");
    fflush(stdout);
    if (and_b)
        comparisons();
    ranks();
    each_field_of_a_namespace();
    while (!and_b && getchar() != EOF)
        ;
    need(ops->close(a.connector, PATIENCE_MS), "close");
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/tarn-test-XXXXXX";
    char path[64];
    if (argc == 1 && !mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/pool", folder);
    pool_path = argc > 1 ? argv[1] : path;
    ops = tarn_connector_ops(TARN_ABI_VERSION);
    for (int32_t i = 0; i < TOKENS; i++)
        tokens_a[i] = tokens_b[i] = i * 3;
    tokens_b[0] = 1;
    if (argc > 3) {
        share = strtoul(argv[2], NULL, 10);
        shares = strtoul(argv[3], NULL, 10);
        comparisons();
    } else {
        engine_a(argc == 1);
    }
    if (argc == 1) {
        unlink(path);
        rmdir(folder);
    }
    printf("1..%d\n", number);
    return failed != 0;
}
