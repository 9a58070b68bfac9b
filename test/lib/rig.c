/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/rig.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "key/chain.h"
#include "obs/metric.h"

struct fake_pages *pages;
struct rig first;
struct rig second;
int32_t tokens[TOKENS];
struct tarn_digest digests[BLOCKS];
struct tarn_connector_options options;
struct tarn_engine_desc engine;
struct store_traits traits;
struct fake_device *device;
size_t rig_groups = GROUPS;
bool rig_is_single;
uint32_t rig_headroom_bytes;
uint32_t rig_pages_short;
enum tarn_status rig_register_status;

static const struct tarn_kv_format format = {
    .size = sizeof(format),
    .element_type = "f16",
    .order = "layer,kv,token,head,dim",
    .layer_count = 2,
    .head_count = 1,
    .key_head_size = 4,
    .value_head_size = 4,
};

static uint64_t stride_c(const struct rig *rig)
{
    return SIZE_C + rig->headroom_bytes;
}

static uint8_t *page_c(const struct rig *rig, uint64_t slot)
{
    return rig->memory[1] + slot * stride_c(rig) + rig->headroom_bytes;
}

enum tarn_status rig_open(struct rig *rig)
{
    *rig = (struct rig){ .ops = tarn_connector_ops(TARN_ABI_VERSION),
                         .headroom_bytes = rig_headroom_bytes };
    rig->memory[0] = mem_alloc(SLOTS, STRIDE);
    rig->memory[1] = mem_alloc(SLOTS, stride_c(rig));
    rig->store = fake_store_create(pages);
    fake_store_set_traits(rig->store, &traits);
    if (rig_register_status != TARN_OK)
        fake_store_fail(rig->store, FAKE_REGISTER, 1, 1, rig_register_status);
    const uint64_t far = device ? FAKE_DEVICE_BIAS : 0;
    const uint64_t base = (uintptr_t)rig->memory[0] + far;
    const struct tarn_region regions_a[] = { { base, SIZE_A, STRIDE, SLOTS, NULL, 0 },
                                             { base + 28, SIZE_B, STRIDE, SLOTS, NULL, 0 } };
    const struct tarn_region regions_b[] = { { (uintptr_t)page_c(rig, 0) + far, SIZE_C,
                                               stride_c(rig), SLOTS, NULL, 0 } };
    const struct tarn_group groups[] = { { 0, 0, NULL, 0, regions_a, 2 },
                                         { rig_is_single ? 0 : 1, 0, NULL, 0, regions_b, 1 } };
    const struct tarn_layout layout = {
        .size = sizeof(layout),
        .tokens_per_block = T,
        .groups = rig_is_single ? &groups[1] : groups,
        .group_count = rig_is_single ? 1 : rig_groups,
        .headroom_bytes = rig_headroom_bytes,
        .device = device ? fake_device_table(device) : NULL,
    };
    enum tarn_status status = connector_open_with(&options, &engine, rig->store, &rig->connector);
    if (status != TARN_OK) {
        store_close(rig->store);
        return status;
    }
    return rig->ops->register_layout(rig->connector, &layout);
}

void rig_free(struct rig *rig)
{
    mem_free(rig->memory[0]);
    mem_free(rig->memory[1]);
    *rig = (struct rig){ .ops = NULL };
}

static int rigs_make(enum tarn_setting stage)
{
    struct chain chain;
    metrics_reset();
    pages = fake_pages_create();
    traits = (struct store_traits){ .range_bytes_max = 0 };
    rig_groups = GROUPS;
    rig_is_single = false;
    rig_headroom_bytes = 0;
    rig_pages_short = 0;
    rig_register_status = TARN_OK;
    options = (struct tarn_connector_options){
        .size = sizeof(options),
        .lookup_deadline_ms = WAIT_MS, /* however loaded the machine is */
        .stage_through_host = (uint32_t)stage,
    };
    engine = (struct tarn_engine_desc){ .size = sizeof(engine),
                                        .name = "test",
                                        .model_key = "model-0123456789abcdef",
                                        .format = &format,
                                        .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                        .request_count_max = 16,
                                        .request_tokens_max = 1024 };
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 3;
    if (chain_init(&chain, NULL, T) != TARN_OK || chain_extend(&chain, tokens, TOKENS) != TARN_OK)
        return -1;
    memcpy(digests, chain.blocks, sizeof(digests));
    chain_deinit(&chain);
    return rig_open(&first) == TARN_OK && rig_open(&second) == TARN_OK ? 0 : -1;
}

int setup(void **state)
{
    (void)state;
    return rigs_make(TARN_SETTING_UNSET);
}

int setup_staged(void **state)
{
    (void)state;
    return rigs_make(TARN_SETTING_ON);
}

int teardown(void **state)
{
    (void)state;
    const bool closed = tarn_connector_ops(1)->close(first.connector, WAIT_MS) == TARN_OK &&
                        tarn_connector_ops(1)->close(second.connector, WAIT_MS) == TARN_OK;
    rig_free(&first);
    rig_free(&second);
    fake_pages_destroy(pages);
    return closed ? 0 : -1;
}

void reopen(void)
{
    assert_int_equal(teardown(NULL), 0);
    metrics_reset();
    pages = fake_pages_create();
    assert_int_equal(rig_open(&first), TARN_OK);
    assert_int_equal(rig_open(&second), TARN_OK);
}

void page_fill(struct rig *rig, uint64_t slot, uint64_t block)
{
    memset(rig->memory[0] + slot * STRIDE, (int)(1 + block), SIZE_A);
    memset(rig->memory[0] + slot * STRIDE + 28, (int)(101 + block), SIZE_B);
    memset(page_c(rig, slot), (int)(151 + block), SIZE_C);
}

bool page_is(const struct rig *rig, uint64_t slot, uint64_t block)
{
    const uint8_t *a = rig->memory[0] + slot * STRIDE;
    const uint8_t *c = page_c(rig, slot);
    for (size_t i = 0; i < SIZE_A && !rig_is_single; i++)
        if (a[i] != (uint8_t)(1 + block))
            return false;
    for (size_t i = 0; i < SIZE_B && !rig_is_single; i++)
        if (a[28 + i] != (uint8_t)(101 + block))
            return false;
    for (size_t i = 0; i < SIZE_C; i++)
        if (c[i] != (uint8_t)(151 + block))
            return false;
    return true;
}

enum tarn_status lookup(struct rig *rig, uint64_t id, size_t token_count, uint64_t computed,
                        struct tarn_offer *out_offer)
{
    const struct tarn_request request = {
        .size = sizeof(request), .id = id, .tokens = tokens, .token_count = token_count
    };
    return rig->ops->lookup(rig->connector, &request, computed, out_offer);
}

void step(struct rig *rig, struct tarn_step_request part, uint64_t slot)
{
    tarn_page list[BLOCKS];
    const tarn_page *const both[GROUPS] = { list, list };
    struct tarn_bytes metadata;
    for (uint64_t i = 0; i < BLOCKS; i++)
        list[i] = slot + i < SLOTS ? slot + i : TARN_PAGE_NONE;
    part.pages = both;
    part.block_count = BLOCKS;
    const struct tarn_step one = { sizeof(one), ++rig->step_number, &part, 1, rig_pages_short };
    assert_int_equal(rig->ops->step(rig->connector, &one, &metadata), TARN_OK);
    assert_int_equal(rig->ops->load_start(rig->connector, metadata), TARN_OK);
    assert_int_equal(rig->ops->load_start(rig->connector, metadata), TARN_STALE);
}

void forward(struct rig *rig, enum tarn_status status)
{
    assert_int_equal(rig->ops->forward_done(rig->connector, rig->step_number, status, NULL),
                     TARN_OK);
}

void transfers(struct rig *rig)
{
    struct tarn_transfer out[7];
    size_t count = 0;
    do {
        assert_int_equal(rig->ops->transfers(rig->connector, out, LENGTH_OF(out), &count), TARN_OK);
        for (size_t i = 0; i < count; i++) {
            size_t *counts = out[i].phase == TARN_TRANSFER_STARTED ? rig->started : rig->retired;
            counts[out[i].kind]++;
            assert_true(rig->retired[out[i].kind] <= rig->started[out[i].kind]);
        }
    } while (count == LENGTH_OF(out));
}

void settle(struct rig *rig)
{
    struct pollfd news = { .fd = rig->ops->poll_fd(rig->connector), .events = POLLIN };
    for (transfers(rig); rig->started[0] != rig->retired[0] || rig->started[1] != rig->retired[1] ||
                         metric_get(METRIC_SAVE_QUEUE_PAGES) != 0; /* as this rig just set it */
         transfers(rig))
        assert_int_equal(poll(&news, 1, WAIT_MS), 1);
}

struct tarn_loaded verdict(struct rig *rig)
{
    struct tarn_bytes report;
    struct tarn_bytes bytes;
    struct tarn_loaded loaded[16];
    size_t count = 0;
    assert_int_equal(rig->ops->load_poll(rig->connector, WAIT_MS, &report), TARN_OK);
    assert_int_equal(rig->ops->verdict(rig->connector, &report, 1, &bytes), TARN_OK);
    assert_int_equal(rig->ops->verdict_apply(rig->connector, bytes, loaded, 16, &count), TARN_OK);
    assert_int_equal(rig->ops->verdict_apply(rig->connector, bytes, loaded, 16, &count),
                     TARN_STALE);
    assert_int_equal(count, 1);
    return loaded[0];
}

void finish(struct rig *rig, uint64_t id)
{
    uint32_t pending = 0;
    uint64_t ids[4];
    size_t count = 0;
    assert_int_equal(rig->ops->finished(rig->connector, id, &pending), TARN_OK);
    if (!pending)
        return;
    settle(rig);
    assert_int_equal(rig->ops->retired(rig->connector, ids, 4, &count), TARN_OK);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], id);
}

void save_prompt(struct rig *rig, uint64_t id, uint64_t block_count)
{
    struct tarn_offer offer;
    assert_int_equal(lookup(rig, id, block_count * T, 0, &offer), TARN_MISS);
    step(rig, (struct tarn_step_request){ .id = id, .scheduled_tokens = block_count * T }, 0);
    for (uint64_t block = 0; block < block_count; block++)
        page_fill(rig, block, block);
    forward(rig, TARN_OK);
    settle(rig);
    finish(rig, id);
}
