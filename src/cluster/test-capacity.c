/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/capacity.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void a_pool_is_ranks_times_segment_and_what_is_donated(void **state)
{
    (void)state;
    const struct capacity_input input = { .rank_count = 4,
                                          .segment_bytes = 8 * GIB,
                                          .buffer_bytes = GIB,
                                          .staging_bytes = GIB,
                                          .donation_bytes = 16 * GIB,
                                          .others_bytes = 100 * GIB,
                                          .available_bytes = 128 * GIB,
                                          .block_bytes = MIB,
                                          .block_tokens = 32 };
    const struct capacity capacity = capacity_compute(&input);
    assert_int_equal(capacity.pool_bytes, 148 * GIB);
    assert_int_equal(capacity.token_count, UINT64_C(148) * 1024 / 4 * 32);
    assert_int_equal(capacity.taken_bytes, 40 * GIB + 16 * GIB + 64 * MIB);
    assert_int_equal(capacity.reserve_bytes, 8 * GIB);
    assert_int_equal(capacity.left_bytes, 128 * GIB - 56 * GIB - 64 * MIB - 8 * GIB);
    assert_true(capacity.fits);
}

static void a_donation_is_charged_once_and_only_if_there_is_one(void **state)
{
    (void)state;
    struct capacity_input input = { .rank_count = 2, .available_bytes = 16 * GIB };
    assert_int_equal(capacity_compute(&input).taken_bytes, 0);
    input.donation_bytes = GIB;
    const uint64_t two_ranks = capacity_compute(&input).taken_bytes;
    input.rank_count = 8;
    assert_int_equal(capacity_compute(&input).taken_bytes, two_ranks);
    assert_int_equal(two_ranks, GIB + 64 * MIB);
}

static void what_is_more_than_available_less_a_reserve_does_not_fit(void **state)
{
    (void)state;
    struct capacity_input input = { .rank_count = 1, .available_bytes = GIB };
    input.segment_bytes = 768 * MIB;
    assert_true(capacity_compute(&input).fits); /* the reserve is at least 256 MiB */
    assert_int_equal(capacity_compute(&input).left_bytes, 0);
    input.segment_bytes++;
    assert_false(capacity_compute(&input).fits);
    assert_int_equal(capacity_compute(&input).left_bytes, 0);
    input.available_bytes = 0; /* not known: nothing can be said against it */
    assert_true(capacity_compute(&input).fits);
}

static void sums_that_overflow_stay_at_their_maximum(void **state)
{
    (void)state;
    const struct capacity_input input = { .rank_count = UINT32_MAX,
                                          .segment_bytes = UINT64_MAX,
                                          .buffer_bytes = UINT64_MAX,
                                          .donation_bytes = UINT64_MAX,
                                          .others_bytes = UINT64_MAX,
                                          .available_bytes = UINT64_MAX,
                                          .block_bytes = 1,
                                          .block_tokens = 1 };
    const struct capacity capacity = capacity_compute(&input);
    assert_int_equal(capacity.pool_bytes, UINT64_MAX);
    assert_int_equal(capacity.taken_bytes, UINT64_MAX);
    assert_int_equal(capacity.token_count, UINT64_MAX / UINT32_MAX);
    assert_true(capacity.reserve_bytes > 0);
}

static void tokens_are_not_known_without_a_block(void **state)
{
    (void)state;
    const struct capacity_input input = { .rank_count = 1, .segment_bytes = GIB };
    assert_int_equal(capacity_compute(&input).token_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_ranks_times_segment_and_what_is_donated),
        cmocka_unit_test(a_donation_is_charged_once_and_only_if_there_is_one),
        cmocka_unit_test(what_is_more_than_available_less_a_reserve_does_not_fit),
        cmocka_unit_test(sums_that_overflow_stay_at_their_maximum),
        cmocka_unit_test(tokens_are_not_known_without_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
