/* SPDX-License-Identifier: Apache-2.0 */
/* test-leader.h - what the tests of the leader share: one leader, and steps, reports and verdicts
 * in a line each. */
#ifndef CONNECTOR_TEST_LEADER_H
#define CONNECTOR_TEST_LEADER_H

#include "connector/leader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"
#include "os/clock.h"

/* Blocks of 4 tokens, two layer groups, 64 slots each; slot of block b: 10 + b, and 30 + b. */
enum { T = 4, GROUPS = 2, TOKENS = 200, SLOTS = 64 };

static struct layout *layout;
static struct leader leader;
static struct leader_config config;
static int32_t tokens[TOKENS];
static uint64_t step_number;
static uint64_t now_ns;
static size_t leases_held;

static inline void lease_release(struct store_lease *lease)
{
    (void)lease;
    leases_held--;
}

static const struct store_ops lease_ops = { .lease_release = lease_release };
static struct store lease_store = { .ops = &lease_ops };
static struct store_lease one_lease = { .store = &lease_store };

static inline int setup(void **state)
{
    (void)state;
    static const struct tarn_region regions[GROUPS] = { { 4096, 64, 64, SLOTS, NULL, 0 },
                                                        { 65536, 32, 32, SLOTS, NULL, 0 } };
    const struct tarn_group groups[GROUPS] = { { 0, 0, NULL, 0, &regions[0], 1 },
                                               { 1, 0, NULL, 0, &regions[1], 1 } };
    const struct tarn_layout desc = { sizeof(desc), T, TARN_PAGES_BY_SLOT, groups, GROUPS, NULL, 0,
                                      NULL,         0 };
    char reason[LAYOUT_REASON_BYTES];
    if (layout_create(&desc, 1, reason, &layout) != TARN_OK)
        return -1;
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = i;
    config = (struct leader_config){ .layout = layout,
                                     .rank_deadline_ns = 10 * NS_PER_S,
                                     .rank_count = 1,
                                     .request_count_max = 8,
                                     .request_tokens_max = TOKENS,
                                     .loads = true,
                                     .saves = true,
                                     .save_generated = true };
    leader_init(&leader, &config);
    step_number = 0;
    now_ns = 1000 * NS_PER_S;
    leases_held = 0;
    return 0;
}

static inline void restart(void)
{
    leader_deinit(&leader);
    leader_init(&leader, &config);
    step_number = 0;
}

static inline int teardown(void **state)
{
    (void)state;
    leader_deinit(&leader);
    layout_destroy(layout);
    return leases_held == 0 ? 0 : -1;
}

static inline struct tarn_request request_of(uint64_t id, size_t token_count)
{
    return (struct tarn_request){
        .size = sizeof(struct tarn_request), .id = id, .tokens = tokens, .token_count = token_count
    };
}

/* Ask for a prompt; `found` blocks of what was asked for are there. */
static inline enum tarn_status ask(uint64_t id, size_t token_count, uint64_t computed,
                                   uint64_t found, struct tarn_offer *out_offer)
{
    const struct tarn_request request = request_of(id, token_count);
    struct store_lease *lease = &one_lease;
    struct leader_probe probe;
    enum leader_decline decline;
    const enum tarn_status status = leader_ask(&leader, &request, computed, &probe, &decline);
    if (status != TARN_OK)
        return status;
    if (found > probe.block_count)
        found = probe.block_count;
    leases_held++;
    return leader_offer(&leader, &probe, found, &lease, 1, out_offer);
}

static inline enum leader_decline declined(const struct tarn_request *request, uint64_t computed)
{
    struct leader_probe probe;
    enum leader_decline decline = LEADER_DECLINE_NONE;
    assert_int_equal(leader_ask(&leader, request, computed, &probe, &decline), TARN_MISS);
    return decline;
}

static const tarn_page slots[GROUPS][40] = {
    { 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29 },
    { 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49 },
};
static const tarn_page *const pages[GROUPS] = { slots[0], slots[1] };

/* A step of one request; the pages of all 20 blocks are told with the first. */
static inline enum tarn_status step(struct tarn_step_request part, struct wire_reader *out_reader)
{
    const struct tarn_step one = {
        .size = sizeof(one), .number = step_number + 1, .requests = &part, .request_count = 1
    };
    struct tarn_bytes metadata;
    TRY(leader_step(&leader, &one, now_ns, &metadata));
    step_number++;
    assert_int_equal(wire_open(metadata, WIRE_METADATA, leader_shape(&leader), out_reader),
                     TARN_OK);
    assert_int_equal(out_reader->head.number, step_number);
    return TARN_OK;
}

static inline struct tarn_step_request with_pages(struct tarn_step_request part)
{
    part.pages = pages;
    part.block_count = 20;
    return part;
}

/* The step saves exactly blocks [first, end) of request `id`. */
static inline void saves(struct wire_reader reader, uint64_t id, uint64_t first, uint64_t end)
{
    assert_int_equal(reader.counts[0], 0);
    assert_int_equal(reader.counts[1], end - first);
    for (uint64_t block = first; block < end; block++) {
        uint64_t found_id;
        uint64_t found;
        struct wire_block wire;
        wire_next_save(&reader, &found_id, &found);
        wire_next_block(&reader, &wire);
        assert_int_equal(found_id, id);
        assert_int_equal(found, block);
        assert_int_equal(wire.pages[0], 10 + block);
        assert_int_equal(wire.pages[1], 30 + block);
    }
}

/* A worker's report on a load, and what the leader makes of it. */
static inline enum tarn_status judge(uint64_t number, uint32_t rank,
                                     const struct tarn_loaded *report,
                                     struct tarn_loaded *out_loaded)
{
    struct wire_buffer buffer = { .data = NULL };
    struct tarn_bytes verdict;
    struct wire_reader reader;
    assert_int_equal(wire_buffer_reserve(&buffer, 1000), TARN_OK);
    const struct leader_request *request = leader_find(&leader, report->id);
    struct wire_item item = { *report, request ? request->load_step : 0 };
    struct wire_writer writer = wire_begin(&buffer, leader_list_shape(&leader));
    wire_add_item(&writer, &item);
    wire_end(&writer, &(struct wire_head){ .kind = WIRE_REPORT, .rank = rank, .number = number });
    const struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
    const enum tarn_status status = leader_verdict(&leader, &bytes, 1, now_ns, &verdict);
    if (status == TARN_OK) {
        assert_int_equal(wire_open(verdict, WIRE_VERDICT, leader_list_shape(&leader), &reader),
                         TARN_OK);
        assert_int_equal(reader.head.status, TARN_OK);
        assert_int_equal(reader.counts[0], 1);
        wire_next_item(&reader, &item);
        *out_loaded = item.loaded;
    }
    wire_buffer_deinit(&buffer);
    return status;
}

static inline void pages_are_released(uint64_t id, size_t count)
{
    for (size_t i = 0; i < count; i++)
        leader_page_released(&leader, id);
}

#define LEADER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
