/* SPDX-License-Identifier: Apache-2.0 */
/* When a store is asked, by a clock that the test moves. */
#include "connector/health.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void three_failures_in_a_row_take_it_down(void **state)
{
    (void)state;
    struct health health = { .failure_count = 0 };
    for (int i = 0; i < 20; i++) { /* two, and one that is answered */
        assert_false(health_bad(&health, false, 0));
        assert_false(health_bad(&health, false, 0));
        assert_true(health_is_up(&health));
        health_good(&health, false);
    }
    assert_false(health_bad(&health, false, 0));
    assert_false(health_bad(&health, false, 0));
    assert_true(health_bad(&health, false, 7));
    assert_false(health_is_up(&health));
    assert_int_equal(health.down_ns, 7);
    assert_false(health_bad(&health, false, 8)); /* it is down already */
}

static void a_store_that_cannot_be_asked_is_down_at_once(void **state)
{
    (void)state;
    struct health health = { .failure_count = 0 };
    assert_true(health_stop(&health, 7));
    assert_false(health_stop(&health, 8));
    assert_int_equal(health.down_ns, 7);
    assert_false(health_wants_canary(&health, 7 + NS_PER_S - 1));
    assert_true(health_wants_canary(&health, 7 + NS_PER_S));
    assert_false(health_stop(&health, 9 * NS_PER_S));
    assert_true(health_canary_done(&health, true, 9 * NS_PER_S));
}

static void the_pause_is_one_second_and_doubles_to_thirty(void **state)
{
    (void)state;
    const uint64_t pauses_s[] = { 1, 2, 4, 8, 16, 30, 30, 30 };
    struct health health = { .failure_count = 0 };
    uint64_t now_ns = 1000 * NS_PER_S;
    for (int round = 0; round < 2; round++) { /* an outage begins with a second again */
        for (int i = 0; i < HEALTH_FAILURES_MAX; i++)
            (void)health_bad(&health, false, now_ns);
        for (size_t i = 0; i < LENGTH_OF(pauses_s); i++) {
            assert_false(health_wants_canary(&health, now_ns + pauses_s[i] * NS_PER_S - 1));
            now_ns += pauses_s[i] * NS_PER_S;
            assert_true(health_wants_canary(&health, now_ns));
            assert_false(health_wants_canary(&health, now_ns)); /* one is out */
            assert_false(health_is_up(&health));
            if (i + 1 < LENGTH_OF(pauses_s))
                assert_false(health_canary_done(&health, false, now_ns));
        }
        assert_true(health_canary_done(&health, true, now_ns));
        assert_true(health_is_up(&health));
    }
}

static void only_a_canary_reopens_it(void **state)
{
    (void)state;
    struct health health = { .failure_count = 0 };
    for (int i = 0; i < HEALTH_FAILURES_MAX; i++)
        (void)health_bad(&health, false, 0);
    health_good(&health, false); /* of a call that was begun before */
    assert_false(health_is_up(&health));
    assert_true(health_wants_canary(&health, 5 * NS_PER_S));
    health_good(&health, false);
    assert_false(health_is_up(&health));
    /* The pause counts from when the canary came back, not from when it was sent. */
    assert_false(health_canary_done(&health, false, 9 * NS_PER_S));
    assert_false(health_wants_canary(&health, 11 * NS_PER_S - 1));
    assert_true(health_wants_canary(&health, 11 * NS_PER_S));
    assert_true(health_canary_done(&health, true, 11 * NS_PER_S));
    /* And three more are needed. */
    assert_false(health_bad(&health, false, 12 * NS_PER_S));
    assert_false(health_bad(&health, false, 12 * NS_PER_S));
    assert_true(health_bad(&health, false, 12 * NS_PER_S));
}

/* A store whose directory answers and whose pages never come costs every request a deadline. */
static void three_loads_take_it_down_whatever_was_answered_in_between(void **state)
{
    (void)state;
    struct health health = { .failure_count = 0 };
    for (int i = 0; i < 20; i++) {
        assert_false(health_bad(&health, true, 0));
        health_good(&health, false);
        assert_false(health_bad(&health, true, 0));
        health_good(&health, true);
    }
    for (int i = 0; i < 2; i++) {
        assert_false(health_bad(&health, true, 0));
        health_good(&health, false);
    }
    assert_true(health_bad(&health, true, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_failures_in_a_row_take_it_down),
        cmocka_unit_test(a_store_that_cannot_be_asked_is_down_at_once),
        cmocka_unit_test(the_pause_is_one_second_and_doubles_to_thirty),
        cmocka_unit_test(three_loads_take_it_down_whatever_was_answered_in_between),
        cmocka_unit_test(only_a_canary_reopens_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
