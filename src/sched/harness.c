/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kv/fake-chain.h"
#include "obs/metric.h"

struct harness harness;

void harness_init(bool with_pool)
{
    memset(&harness, 0, sizeof(harness));
    metrics_reset();
    fake_chain_set_bits(64);
    fake_init(&harness.fake, 1);
    harness.options = (struct sched_options){
        .page_memory = harness.memory,
        .page_bytes = FAKE_PAGE_BYTES,
        .page_count = HARNESS_PAGES,
        .page_tokens = FAKE_T,
        .request_tokens_max = 64,
        .batch_size_max = 3,
        .batch_tokens_max = 16,
        .waiting_max = 8,
        .ops = with_pool ? fake_connector_ops() : NULL,
        .connector = with_pool ? &harness.fake : NULL,
    };
}

void harness_start(void)
{
    assert_int_equal(sched_create(&harness.options, &harness.sched), TARN_OK);
}

void harness_restart(void)
{
    harness_stop();
    fake_restart(&harness.fake);
    memset(harness.memory, 0, sizeof(harness.memory));
    harness_start();
}

static void harness_check(void)
{
    const char *fault = kv_check(harness.sched->kv);
    if (fault)
        fail_msg("%s", fault);
    if (harness.fake.fault[0])
        fail_msg("%s", harness.fake.fault);
}

void harness_stop(void)
{
    harness_check();
    assert_int_equal(sched_drain(harness.sched, 1000), TARN_OK);
    assert_true(sched_is_idle(harness.sched));
    sched_destroy(harness.sched);
    harness.sched = NULL;
}

enum tarn_status harness_try_submit(uint64_t id, uint32_t count, uint32_t max_tokens,
                                    uint32_t flags)
{
    struct fake_text *text = &harness.texts[id];
    fake_text_init(text, NULL);
    for (uint32_t i = 0; i < count; i++)
        fake_text_add(text, harness.first_token + (int32_t)i);
    const struct sched_request request = {
        .id = id,
        .tokens = text->tokens,
        .token_count = count,
        .max_tokens = max_tokens,
        .flags = flags,
        .arrival_ns = harness.now_ns,
    };
    return sched_submit(harness.sched, &request);
}

void harness_submit(uint64_t id, uint32_t count, uint32_t max_tokens)
{
    assert_int_equal(harness_try_submit(id, count, max_tokens, 0), TARN_OK);
}

static struct fake_cell *cell_of(const struct sched_item *item, uint32_t position)
{
    struct fake_cell *cells = item->pages[position / FAKE_T];
    return &cells[position % FAKE_T];
}

static void forward(void)
{
    for (uint32_t i = 0; i < harness.batch.item_count; i++) {
        const struct sched_item *item = &harness.batch.items[i];
        const struct fake_text *text = &harness.texts[item->id];
        const uint32_t end = item->position + item->token_count;
        assert_true(end <= text->count && end <= item->page_count * FAKE_T);
        assert_memory_equal(item->tokens, text->tokens + item->position,
                            item->token_count * sizeof(*item->tokens));
        for (uint32_t j = 0; j < end; j++) {
            const struct fake_cell cell = fake_text_cell(text, j);
            if (j < item->position)
                assert_memory_equal(cell_of(item, j), &cell, sizeof(cell));
            else
                *cell_of(item, j) = cell;
        }
    }
}

enum tarn_status harness_pass(void)
{
    harness.now_ns += 1000;
    fake_tick(&harness.fake);
    const enum tarn_status status = sched_pass(harness.sched, harness.now_ns, &harness.batch);
    harness_check();
    memcpy(harness.items, harness.batch.items, harness.batch.item_count * sizeof(*harness.items));
    if (status == TARN_OK) {
        forward();
        sched_pass_done(harness.sched, TARN_OK, harness.now_ns);
        harness_check();
    }
    return status;
}

void harness_prefill(uint64_t id)
{
    for (int i = 0; i < 200; i++) {
        (void)harness_pass();
        const struct sched_item *item = harness_item(id);
        if (item && item->want_logits)
            return;
    }
    fail_msg("request %d is never computed", (int)id);
}

void harness_append(void)
{
    for (uint32_t i = 0; i < harness.batch.item_count; i++) {
        const struct sched_item *item = &harness.items[i];
        if (!item->want_logits)
            continue;
        fake_text_add(&harness.texts[item->id], 7);
        assert_int_equal(sched_append(harness.sched, item->id, 7), TARN_OK);
    }
}

void harness_finish(uint64_t id, uint32_t count)
{
    harness_prefill(id);
    for (uint32_t i = 1; i < count; i++) {
        harness_append();
        assert_int_equal(harness_pass(), TARN_OK);
    }
    sched_end(harness.sched, id, SCHED_OK);
}

void harness_settle(void)
{
    for (int i = 0; i < 200; i++)
        if (harness_pass() == TARN_AGAIN && harness.batch.wait == SCHED_WAIT_IDLE)
            return;
    fail_msg("the scheduler does not become idle");
}

const struct request *harness_request(uint64_t id)
{
    return map_get(&harness.sched->by_id, &id);
}

struct sched_sources harness_sources(uint64_t id)
{
    struct sched_sources sources = { 0 };
    assert_int_equal(sched_sources(harness.sched, id, &sources), TARN_OK);
    assert_int_equal(sources.device + sources.tier + sources.pool + sources.computed,
                     sources.requested);
    return sources;
}

const struct sched_item *harness_item(uint64_t id)
{
    for (uint32_t i = 0; i < harness.batch.item_count; i++)
        if (harness.items[i].id == id)
            return &harness.items[i];
    return NULL;
}

uint32_t harness_pages(enum kv_page_state state)
{
    struct kv_counts counts;
    kv_counts(harness.sched->kv, &counts);
    return counts.pages[state];
}

uint32_t harness_pinned(void)
{
    struct kv_counts counts;
    kv_counts(harness.sched->kv, &counts);
    return counts.pinned;
}
