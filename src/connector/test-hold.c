/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/hold.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fault.h"

enum { RANKS = 3 };

static struct holds holds;

static int setup(void **state)
{
    (void)state;
    holds_init(&holds, RANKS);
    return holds_reserve(&holds, 8) == TARN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    holds_deinit(&holds);
    return 0;
}

static struct hold_key key_of(uint64_t step, uint64_t block, enum tarn_transfer_kind kind)
{
    return (struct hold_key){ .id = 7, .step_number = step, .block = block, .kind = kind };
}

static void says(uint64_t block, tarn_page page, enum tarn_transfer_phase phase)
{
    struct tarn_transfer out;
    assert_int_equal(holds_take(&holds, &out, 1), 1);
    assert_int_equal(out.request_id, 7);
    assert_int_equal(out.block, block);
    assert_int_equal(out.page, page);
    assert_int_equal(out.phase, phase);
}

static void says_nothing(void)
{
    struct tarn_transfer out;
    assert_int_equal(holds_take(&holds, &out, 1), 0);
}

static void a_page_is_retired_when_the_last_rank_lets_go(void **state)
{
    (void)state;
    const struct hold_key key = key_of(1, 4, TARN_TRANSFER_LOAD);
    holds_add(&holds, &key, 40);
    says(4, 40, TARN_TRANSFER_STARTED);
    assert_int_equal(holds_release(&holds, 2, &key), HOLD_HELD);
    assert_int_equal(holds_release(&holds, 0, &key), HOLD_HELD);
    assert_int_equal(holds_release(&holds, 0, &key), HOLD_UNKNOWN); /* said twice */
    says_nothing();
    assert_int_equal(holds_release(&holds, 1, &key), HOLD_TOLD);
    says(4, 40, TARN_TRANSFER_RETIRED);
    assert_int_equal(holds_release(&holds, 1, &key), HOLD_UNKNOWN);
    says_nothing();
}

static void a_save_is_started_by_the_forward_pass_of_its_step(void **state)
{
    (void)state;
    const struct hold_key first = key_of(3, 0, TARN_TRANSFER_SAVE);
    const struct hold_key second = key_of(4, 1, TARN_TRANSFER_SAVE);
    holds_add(&holds, &first, 10);
    holds_add(&holds, &second, 11);
    says_nothing();
    holds_forward(&holds, 3);
    says(0, 10, TARN_TRANSFER_STARTED);
    says_nothing();
    for (uint32_t rank = 0; rank < RANKS; rank++) /* dropped by all, before it began */
        assert_int_equal(holds_release(&holds, rank, &second),
                         rank + 1 < RANKS ? HOLD_HELD : HOLD_UNTOLD);
    holds_forward(&holds, 4);
    says_nothing();
}

/* One that another rank begins although this one dropped it is started here all the same. */
static void a_save_that_one_rank_dropped_waits_for_the_others(void **state)
{
    (void)state;
    const struct hold_key key = key_of(3, 0, TARN_TRANSFER_SAVE);
    holds_add(&holds, &key, 10);
    assert_int_equal(holds_release(&holds, 0, &key), HOLD_HELD);
    holds_forward(&holds, 3);
    says(0, 10, TARN_TRANSFER_STARTED);
    assert_int_equal(holds_release(&holds, 1, &key), HOLD_HELD);
    assert_int_equal(holds_release(&holds, 2, &key), HOLD_TOLD);
    says(0, 10, TARN_TRANSFER_RETIRED);
}

static void the_same_block_in_two_steps_is_two_holds(void **state)
{
    (void)state;
    const struct hold_key first = key_of(3, 0, TARN_TRANSFER_SAVE);
    const struct hold_key again = key_of(4, 0, TARN_TRANSFER_SAVE);
    holds_add(&holds, &first, 10);
    holds_add(&holds, &again, 10);
    holds_forward(&holds, 4);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        (void)holds_release(&holds, rank, &again);
    says(0, 10, TARN_TRANSFER_STARTED);
    says(0, 10, TARN_TRANSFER_STARTED);
    says(0, 10, TARN_TRANSFER_RETIRED);
    says_nothing();
}

static void what_lost_ranks_held_is_let_go_of(void **state)
{
    (void)state;
    const struct hold_key started = key_of(1, 0, TARN_TRANSFER_LOAD);
    const struct hold_key ours = key_of(1, 1, TARN_TRANSFER_LOAD);
    const struct hold_key waiting = key_of(1, 2, TARN_TRANSFER_SAVE);
    uint64_t id = 0;
    holds_add(&holds, &started, 10);
    holds_add(&holds, &ours, 11);
    holds_add(&holds, &waiting, 12);
    assert_int_equal(holds_release(&holds, 0, &started), HOLD_HELD);
    assert_int_equal(holds_release(&holds, 0, &waiting), HOLD_HELD);
    assert_true(holds_release_others(&holds, 0, &id));
    assert_int_equal(id, 7);
    assert_false(holds_release_others(&holds, 0, &id));
    says(0, 10, TARN_TRANSFER_STARTED);
    says(1, 11, TARN_TRANSFER_STARTED);
    says(0, 10, TARN_TRANSFER_RETIRED);
    says_nothing(); /* what this rank still touches is not free */
    assert_int_equal(holds_release(&holds, 0, &ours), HOLD_TOLD);
    says(1, 11, TARN_TRANSFER_RETIRED);
}

static enum tarn_status reserve_and_add(void)
{
    struct holds made;
    holds_init(&made, RANKS);
    const enum tarn_status status = holds_reserve(&made, 2);
    if (status == TARN_OK) {
        const struct hold_key key = key_of(1, 4, TARN_TRANSFER_LOAD);
        holds_add(&made, &key, 40);
    }
    holds_deinit(&made);
    return status;
}

static void holds_survive_failed_allocations(void **state)
{
    (void)state;
    assert_true(fault_sweep(reserve_and_add) >= 4);
}

#define HOLD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOLD_TEST(a_page_is_retired_when_the_last_rank_lets_go),
        HOLD_TEST(a_save_is_started_by_the_forward_pass_of_its_step),
        HOLD_TEST(a_save_that_one_rank_dropped_waits_for_the_others),
        HOLD_TEST(the_same_block_in_two_steps_is_two_holds),
        HOLD_TEST(what_lost_ranks_held_is_let_go_of),
        HOLD_TEST(holds_survive_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
