/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines with little memory on one store that fails at random. A seed picks what each store
 * asks of its engine, how pages are staged and where they lie, prompts, steps, ends, cancels,
 * preemptions and faults; after every step a checker looks at the pages:
 *   - what a verdict calls good holds exactly what its digest stands for;
 *   - a page under a transfer belongs to the request it was started for and to no other;
 *   - the store never holds anything but what the digests stand for;
 *   - in the end no page, lease, transfer or request is left.
 */
#include "connector/connector.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "key/chain.h"
#include "lib/fake-device.h"
#include "lib/fake-store.h"
#include "obs/metric.h"

enum { T = 4, GROUPS = 2, SLOTS = 96, BLOCKS = 16, REQUESTS = 6, ENGINES = 2, STEPS = 120 };
enum { PAGE_A = 32, PAGE_B = 16, TOKENS = T * BLOCKS };
enum { NOBODY = -1 };

enum state { FREE, READY, LOADING, ENDED };

struct request {
    enum state state;
    uint64_t id;
    int32_t tokens[TOKENS];
    struct tarn_digest digests[BLOCKS];
    size_t prompt_count;
    size_t told_count;
    size_t computed;
    size_t scheduled;
    uint64_t offer_first;
    uint64_t offer_count;
    bool load_told;
    tarn_page slots[BLOCKS]; /* the same in both groups */
};

struct engine {
    struct tarn_connector *connector;
    struct store *store;
    struct fake_device *device; /* that the pages lie on; NULL: host memory */
    uint8_t *memory[GROUPS];
    int owners[SLOTS];
    unsigned busy[SLOTS]; /* transfers, of both groups */
    struct request requests[REQUESTS];
    uint64_t step_number;
    uint64_t next_id;
};

static const struct tarn_connector_ops *ops;
static struct fake_pages *pages;
static struct engine engines[ENGINES];
static uint64_t random_state;

static uint32_t pick(uint32_t count)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % count;
}

static void pattern(const struct tarn_digest *digest, uint8_t *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(digest->bytes[i % 16] + i / 16);
}

static bool page_is_right(const struct tarn_digest *digest, const uint8_t *bytes,
                          uint64_t size_bytes)
{
    uint8_t expected[PAGE_A];
    const uint64_t extra_bytes = 16 + 8 * T; /* with verify_tokens */
    pattern(digest, expected, PAGE_A);
    if (size_bytes == PAGE_A + extra_bytes || size_bytes == PAGE_B + extra_bytes)
        size_bytes -= extra_bytes;
    return size_bytes <= PAGE_A && memcmp(bytes, expected, size_bytes) == 0;
}

static bool slot_is_right(const struct engine *engine, tarn_page slot,
                          const struct tarn_digest *digest)
{
    return page_is_right(digest, engine->memory[0] + slot * PAGE_A, PAGE_A) &&
           page_is_right(digest, engine->memory[1] + slot * PAGE_B, PAGE_B);
}

/* ---- life ---- */

/* What a store may ask for; ranges that hold a slot, and cut pages in two. */
static struct store_traits traits_pick(void)
{
    const struct store_traits kinds[] = {
        { .is_beyond_host = false },
        { .is_beyond_host = true },
        { .is_beyond_host = true,
          .must_register = true,
          .headroom_bytes = 16,
          .range_bytes_max = 256 + pick(300) },
        { .is_beyond_host = true,
          .must_register = true,
          .is_contiguous_only = true,
          .headroom_bytes = 64,
          .range_bytes_max = 256 + pick(300) },
    };
    return kinds[pick(LENGTH_OF(kinds))];
}

static void engine_open(struct engine *engine, const struct tarn_connector_options *common)
{
    struct tarn_connector_options options = *common;
    const struct store_traits traits = traits_pick();
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
    };
    const struct tarn_engine_desc desc = { .size = sizeof(desc),
                                           .model_key = "m",
                                           .format = &format,
                                           .flags =
                                               TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                           .request_count_max = 2 * REQUESTS,
                                           .request_tokens_max = TOKENS };
    *engine = (struct engine){ .next_id = 1 };
    engine->store = fake_store_create(pages);
    engine->device = pick(3) == 0 ? fake_device_create(3) : NULL;
    fake_store_set_traits(engine->store, &traits);
    const bool must_stage = engine->device || traits.is_contiguous_only || traits.must_register;
    options.stage_through_host = pick(must_stage ? 2 : 3) ? TARN_SETTING_ON : TARN_SETTING_UNSET;
    if (!must_stage && pick(3) == 0)
        options.stage_through_host = TARN_SETTING_OFF;
    const uint64_t far = engine->device ? FAKE_DEVICE_BIAS : 0;
    engine->memory[0] = mem_alloc(SLOTS, PAGE_A);
    engine->memory[1] = mem_alloc(SLOTS, PAGE_B);
    for (size_t i = 0; i < SLOTS; i++)
        engine->owners[i] = NOBODY;
    const struct tarn_region regions[GROUPS] = {
        { (uintptr_t)engine->memory[0] + far, PAGE_A, PAGE_A, SLOTS, NULL, 0 },
        { (uintptr_t)engine->memory[1] + far, PAGE_B, PAGE_B, SLOTS, NULL, 0 }
    };
    const struct tarn_group groups[GROUPS] = { { 0, 0, NULL, 0, &regions[0], 1 },
                                               { 1, 0, NULL, 0, &regions[1], 1 } };
    const struct tarn_layout layout = {
        .size = sizeof(layout),
        .tokens_per_block = T,
        .groups = groups,
        .group_count = GROUPS,
        .device = engine->device ? fake_device_table(engine->device) : NULL,
    };
    assert_int_equal(connector_open_with(&options, &desc, engine->store, &engine->connector),
                     TARN_OK);
    assert_int_equal(ops->register_layout(engine->connector, &layout), TARN_OK);
}

static bool slot_take(struct engine *engine, int owner, tarn_page *out_slot)
{
    for (uint32_t i = 0, at = pick(SLOTS); i < SLOTS; i++, at = (at + 1) % SLOTS) {
        if (engine->owners[at] != NOBODY)
            continue;
        assert_int_equal(engine->busy[at], 0);
        engine->owners[at] = owner;
        *out_slot = at;
        return true;
    }
    return false;
}

static void slot_leave(struct engine *engine, tarn_page slot)
{
    if (slot == TARN_PAGE_NONE)
        return;
    assert_int_equal(engine->busy[slot], 0);
    engine->owners[slot] = NOBODY;
}

static void request_release(struct engine *engine, struct request *request)
{
    for (size_t i = 0; i < BLOCKS; i++)
        slot_leave(engine, request->slots[i]);
    request->state = FREE;
}

/* Prompts share prefixes: one of three beginnings, cut and continued at random. */
static void request_fill(struct request *request, uint64_t id)
{
    struct chain chain;
    const uint32_t stem = pick(3);
    const uint32_t shared = pick(TOKENS);
    const uint32_t tail = pick(4);
    *request = (struct request){ .state = READY, .id = id };
    request->prompt_count = 1 + pick(TOKENS - 8);
    request->told_count = request->prompt_count;
    for (uint32_t i = 0; i < TOKENS; i++)
        request->tokens[i] = (int32_t)(i < shared ? stem * 1000 + i : 5000 + tail * 1000 + i);
    assert_int_equal(chain_init(&chain, NULL, T), TARN_OK);
    assert_int_equal(chain_extend(&chain, request->tokens, TOKENS), TARN_OK);
    memcpy(request->digests, chain.blocks, sizeof(request->digests));
    chain_deinit(&chain);
    for (size_t i = 0; i < BLOCKS; i++)
        request->slots[i] = TARN_PAGE_NONE;
}

static void request_start(struct engine *engine, int which)
{
    struct request *request = &engine->requests[which];
    struct tarn_offer offer;
    request_fill(request, engine->next_id++);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!slot_take(engine, which, &request->slots[i])) {
            request_release(engine, request);
            return;
        }
    }
    const struct tarn_request asked = { .size = sizeof(asked),
                                        .id = request->id,
                                        .tokens = request->tokens,
                                        .token_count = request->prompt_count };
    const enum tarn_status status = ops->lookup(engine->connector, &asked, 0, &offer);
    if (status == TARN_MISS)
        return;
    assert_int_equal(status, TARN_OK);
    assert_true(offer.token_count < request->prompt_count && offer.token_count % T == 0);
    if (pick(4) == 0) {
        assert_int_equal(
            ops->cancel(engine->connector, request->id, pick((uint32_t)offer.token_count), TOKENS),
            TARN_OK);
        return; /* part of it may still be offered, and is not taken */
    }
    request->state = LOADING;
    request->offer_count = offer.token_count / T;
}

static void request_end(struct engine *engine, struct request *request)
{
    uint32_t pending;
    assert_int_equal(ops->finished(engine->connector, request->id, &pending), TARN_OK);
    request->state = ENDED;
    if (!pending)
        request_release(engine, request);
}

/* ---- what the connector says ---- */

static void take_transfers(struct engine *engine)
{
    struct tarn_transfer out[5];
    size_t count;
    do {
        assert_int_equal(ops->transfers(engine->connector, out, 5, &count), TARN_OK);
        for (size_t i = 0; i < count; i++) {
            const tarn_page slot = out[i].page;
            assert_true(engine->owners[slot] != NOBODY);
            assert_int_equal(engine->requests[engine->owners[slot]].id, out[i].request_id);
            if (out[i].phase == TARN_TRANSFER_STARTED)
                engine->busy[slot]++;
            else
                assert_true(engine->busy[slot]-- > 0);
        }
    } while (count == 5);
}

static struct request *request_of(struct engine *engine, uint64_t id)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        if (engine->requests[i].state != FREE && engine->requests[i].id == id)
            return &engine->requests[i];
    }
    fail_msg("the connector speaks of an unknown request");
    abort();
}

/* Pages that a load may still write into are not computed into: the request gets others. */
static void slots_renew(struct engine *engine, struct request *request, uint64_t first)
{
    for (uint64_t block = first; block < BLOCKS; block++) {
        if (engine->busy[request->slots[block]] == 0)
            continue;
        request_end(engine, request); /* no memory for others: simply give up */
        return;
    }
}

static void take_verdict(struct engine *engine, uint32_t timeout_ms)
{
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded[2 * REQUESTS];
    size_t count = 0;
    if (ops->load_poll(engine->connector, timeout_ms, &report) != TARN_OK)
        return;
    take_transfers(engine);
    if (ops->verdict(engine->connector, &report, 1, &verdict) != TARN_OK)
        return;
    assert_int_equal(
        ops->verdict_apply(engine->connector, verdict, loaded, LENGTH_OF(loaded), &count), TARN_OK);
    for (size_t i = 0; i < count; i++) {
        struct request *request = request_of(engine, loaded[i].id);
        assert_int_equal(request->state, LOADING);
        assert_true(loaded[i].block_count <= loaded[i].asked_count);
        for (uint64_t block = 0; block < loaded[i].block_count; block++)
            assert_true(slot_is_right(engine, request->slots[block], &request->digests[block]));
        request->computed = loaded[i].block_count * T;
        request->state = READY;
        take_transfers(engine);
        slots_renew(engine, request, loaded[i].block_count);
    }
}

static void take_retired(struct engine *engine)
{
    uint64_t ids[REQUESTS];
    size_t count;
    assert_int_equal(ops->retired(engine->connector, ids, REQUESTS, &count), TARN_OK);
    for (size_t i = 0; i < count; i++) {
        struct request *request = request_of(engine, ids[i]);
        assert_int_equal(request->state, ENDED);
        request_release(engine, request);
    }
}

/* ---- a step ---- */

/* A prompt chunk, or one more token; nothing for a request under load. */
static bool part_make(const struct engine *engine, struct request *request,
                      const tarn_page **page_lists, struct tarn_step_request *out_part)
{
    (void)engine;
    const bool begins_load = request->state == LOADING && !request->load_told;
    if (request->state != READY && !begins_load)
        return false;
    size_t new_tokens = 0;
    request->scheduled = 0;
    if (!begins_load) {
        if (request->computed == request->told_count && request->told_count < TOKENS)
            new_tokens = 1;
        request->scheduled = request->told_count + new_tokens - request->computed;
        if (request->scheduled > 1)
            request->scheduled = 1 + pick((uint32_t)request->scheduled);
    }
    *out_part = (struct tarn_step_request){
        .id = request->id,
        .tokens = request->tokens + request->told_count,
        .token_count = new_tokens,
        .pages = page_lists,
        .block_count = BLOCKS,
        .computed_tokens = request->computed,
        .scheduled_tokens = request->scheduled,
        .load = begins_load,
    };
    request->told_count += new_tokens;
    request->load_told = request->load_told || begins_load;
    return true;
}

static void forward(struct engine *engine, enum tarn_status status)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct request *request = &engine->requests[i];
        if (request->state != READY || request->scheduled == 0)
            continue;
        const size_t end = request->computed + request->scheduled;
        for (size_t block = request->computed / T; block * T < end; block++) {
            const tarn_page slot = request->slots[block];
            if (engine->busy[slot])
                continue; /* complete, and under a save: nothing is left to write */
            pattern(&request->digests[block], engine->memory[0] + slot * PAGE_A, PAGE_A);
            pattern(&request->digests[block], engine->memory[1] + slot * PAGE_B, PAGE_B);
        }
        if (status == TARN_OK)
            request->computed = end;
        request->scheduled = 0;
    }
}

static void engine_step(struct engine *engine)
{
    struct tarn_step_request parts[REQUESTS];
    const tarn_page *page_lists[REQUESTS][GROUPS];
    struct tarn_step step = { sizeof(step), ++engine->step_number, parts, 0, pick(2) };
    struct tarn_bytes metadata;
    for (size_t i = 0; i < REQUESTS; i++) {
        page_lists[i][0] = page_lists[i][1] = engine->requests[i].slots;
        if (part_make(engine, &engine->requests[i], page_lists[i], &parts[step.request_count]))
            step.request_count++;
    }
    assert_int_equal(ops->step(engine->connector, &step, &metadata), TARN_OK);
    if (pick(50) == 0) { /* lost on the way: nothing of it counts, a load least of all */
        for (size_t i = 0; i < REQUESTS; i++) {
            if (engine->requests[i].state == LOADING)
                request_end(engine, &engine->requests[i]);
            engine->requests[i].scheduled = 0;
        }
        return;
    }
    assert_int_equal(ops->load_start(engine->connector, metadata), TARN_OK);
    take_transfers(engine);
    const enum tarn_status status = pick(30) == 0 ? TARN_IO : TARN_OK;
    forward(engine, status);
    assert_int_equal(ops->forward_done(engine->connector, engine->step_number, status, NULL),
                     TARN_OK);
    take_transfers(engine);
}

static void engine_turn(struct engine *engine)
{
    const int which = (int)pick(REQUESTS);
    struct request *request = &engine->requests[which];
    if (engine->device)
        fake_device_fail_copies(engine->device, pick(8) ? SIZE_MAX : pick(20));
    if (request->state == FREE)
        request_start(engine, which);
    else if (request->state != ENDED && pick(8) == 0)
        request_end(engine, request);
    else if (request->state == READY && pick(10) == 0)
        (void)!ops->quiesce(engine->connector, &request->id, 1, 1000);
    engine_step(engine);
    take_verdict(engine, 0);
    take_transfers(engine);
    take_retired(engine);
}

static void engine_end(struct engine *engine)
{
    struct pollfd news = { .fd = ops->poll_fd(engine->connector), .events = POLLIN };
    for (size_t i = 0; i < REQUESTS; i++) {
        if (engine->requests[i].state == READY || engine->requests[i].state == LOADING)
            request_end(engine, &engine->requests[i]);
    }
    for (size_t busy = 1; busy;) {
        take_transfers(engine);
        take_retired(engine);
        busy = 0;
        for (size_t i = 0; i < REQUESTS; i++)
            busy += engine->requests[i].state != FREE;
        if (busy)
            assert_int_equal(poll(&news, 1, 20000), 1);
    }
    for (size_t i = 0; i < SLOTS; i++)
        assert_int_equal(engine->owners[i], NOBODY);
    assert_int_equal(fake_store_leases(engine->store), 0);
    assert_int_equal(ops->close(engine->connector, 20000), TARN_OK);
    fake_device_destroy(engine->device);
    mem_free(engine->memory[0]);
    mem_free(engine->memory[1]);
}

static void run(uint64_t seed)
{
    random_state = seed * 2 + 1;
    for (int i = 0; i < 8; i++)
        (void)pick(2);
    const struct tarn_connector_options options = {
        .size = sizeof(options),
        .transfer_batch_size = 1 + pick(9),
        .save_queue_pages_max = 4 + pick(40),
        .load_bytes_per_step = 1 + pick(400),
        .lookup_deadline_ms = 10000,
        .load_deadline_ms = 2000,
        .verify_tokens = pick(2) ? TARN_SETTING_ON : TARN_SETTING_OFF,
        .staging_buffer_bytes = 1 + pick(400),
    };
    const size_t live = mem_live_count();
    pages = fake_pages_create();
    for (size_t i = 0; i < ENGINES; i++) {
        engine_open(&engines[i], &options);
        fake_store_fail_at_random(engines[i].store, seed + i, pick(3) ? pick(60) : 0);
    }
    for (size_t step = 0; step < STEPS; step++) {
        engine_turn(&engines[pick(ENGINES)]);
        assert_true(fake_pages_all(pages, page_is_right));
    }
    for (size_t i = 0; i < ENGINES; i++)
        engine_end(&engines[i]);
    fake_pages_destroy(pages);
    assert_int_equal(mem_live_count(), live);
}

/* The seed of a run that fails is the last one printed. */
static void no_seed_finds_a_wrong_byte_or_a_lost_page(void **state)
{
    (void)state;
    const bool is_long = getenv("TARN_TEST_LONG") != NULL;
    const char *one = getenv("TARN_TEST_SEED");
    const uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    const uint64_t last = one ? first : is_long ? 2000 : 100;
    metrics_reset();
    for (uint64_t seed = first; seed <= last; seed++) {
        if (seed % 100 == 1 || one)
            print_message("# seeds from %llu\n", (unsigned long long)seed);
        run(seed);
    }
    print_message("# %lld pages saved, %lld skipped, %lld loaded; %lld lookups\n",
                  (long long)metric_get(METRIC_SAVE_PAGES),
                  (long long)metric_get(METRIC_SAVE_SKIPPED),
                  (long long)metric_get(METRIC_LOAD_PAGES), (long long)metric_get(METRIC_LOOKUPS));
    assert_true(metric_get(METRIC_LOAD_PAGES) > 0 || one);
    assert_int_equal(metric_get(METRIC_PAGES_PINNED), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_seed_finds_a_wrong_byte_or_a_lost_page),
    };
    ops = tarn_connector_ops(TARN_ABI_VERSION);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
