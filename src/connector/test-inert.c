/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/inert.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "os/clock.h"

static enum inert_verdict step(struct inert *inert, uint64_t now_s, struct inert_counts counts)
{
    return inert_step(inert, &counts, now_s * NS_PER_S);
}

static void an_idle_pool_raises_no_alarm(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    for (uint64_t now_s = 1; now_s < 1000; now_s += 5)
        assert_int_equal(step(&inert, now_s, (struct inert_counts){ 0 }), INERT_AS_BEFORE);
}

static void lookups_without_hits_and_saves_raise_it_once(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    int alarm_count = 0;
    for (uint64_t now_s = 1; now_s < 500; now_s += 5)
        alarm_count +=
            step(&inert, now_s, (struct inert_counts){ .lookups = (int64_t)now_s }) == INERT_NOW;
    assert_int_equal(alarm_count, 1);
    assert_true(inert.is_alarmed);
}

static void a_few_lookups_are_no_reason(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    for (uint64_t now_s = 1; now_s < 500; now_s += 5)
        assert_int_equal(
            step(&inert, now_s, (struct inert_counts){ .lookups = now_s > 20 ? 7 : 0 }),
            INERT_AS_BEFORE);
}

static void saves_or_hits_in_every_window_keep_it_quiet(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    for (uint64_t now_s = 1; now_s < 500; now_s += 5) {
        const struct inert_counts counts = { .lookups = (int64_t)now_s,
                                             .hits = (int64_t)now_s / 100,
                                             .saves = (int64_t)now_s / 50,
                                             .save_failures = (int64_t)now_s };
        assert_int_equal(step(&inert, now_s, counts), INERT_AS_BEFORE);
    }
}

static void saves_that_all_fail_raise_it_and_one_that_works_ends_it(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    assert_int_equal(step(&inert, 1, (struct inert_counts){ 0 }), INERT_AS_BEFORE);
    assert_int_equal(step(&inert, 30, (struct inert_counts){ .save_failures = 3 }),
                     INERT_AS_BEFORE);
    assert_int_equal(step(&inert, 61, (struct inert_counts){ .save_failures = 3 }), INERT_NOW);
    assert_int_equal(step(&inert, 65, (struct inert_counts){ .save_failures = 9 }),
                     INERT_AS_BEFORE);
    assert_int_equal(step(&inert, 70, (struct inert_counts){ .save_failures = 9, .saves = 1 }),
                     INERT_NO_MORE);
    assert_false(inert.is_alarmed);
}

static void a_few_lookups_a_minute_raise_it_in_the_end(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    int alarm_count = 0;
    for (uint64_t now_s = 1; now_s < 500; now_s += 5)
        alarm_count += step(&inert, now_s,
                            (struct inert_counts){ .lookups = (int64_t)now_s / 30 }) == INERT_NOW;
    assert_int_equal(alarm_count, 1);
}

static void the_first_requests_after_a_pause_have_their_minute(void **state)
{
    (void)state;
    struct inert inert = { 0 };
    for (uint64_t now_s = 1; now_s <= 100; now_s++)
        assert_int_equal(step(&inert, now_s, (struct inert_counts){ 0 }), INERT_AS_BEFORE);
    for (uint64_t now_s = 101; now_s < 160; now_s++)
        assert_int_equal(step(&inert, now_s, (struct inert_counts){ .lookups = 16 }),
                         INERT_AS_BEFORE);
    assert_int_equal(step(&inert, 160, (struct inert_counts){ .lookups = 16, .saves = 1 }),
                     INERT_AS_BEFORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_pool_raises_no_alarm),
        cmocka_unit_test(lookups_without_hits_and_saves_raise_it_once),
        cmocka_unit_test(a_few_lookups_are_no_reason),
        cmocka_unit_test(saves_or_hits_in_every_window_keep_it_quiet),
        cmocka_unit_test(a_few_lookups_a_minute_raise_it_in_the_end),
        cmocka_unit_test(the_first_requests_after_a_pause_have_their_minute),
        cmocka_unit_test(saves_that_all_fail_raise_it_and_one_that_works_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
