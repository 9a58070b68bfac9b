/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/watch.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "os/clock.h"

static enum watch_verdict step(struct watch *watch, uint64_t now_s, struct watch_counts counts)
{
    return watch_step(watch, &counts, now_s * NS_PER_S);
}

static void an_idle_server_raises_no_alarm(void **state)
{
    (void)state;
    struct watch watch = { 0 };
    for (uint64_t now_s = 1; now_s < 1000; now_s += 5)
        assert_int_equal(step(&watch, now_s, (struct watch_counts){ 0 }), WATCH_AS_BEFORE);
}

static void lookups_without_hits_and_saves_raise_it_once(void **state)
{
    (void)state;
    struct watch watch = { 0 };
    int alarm_count = 0;
    for (uint64_t now_s = 1; now_s < 500; now_s += 5)
        alarm_count +=
            step(&watch, now_s, (struct watch_counts){ .lookups = (int64_t)now_s }) == WATCH_INERT;
    assert_int_equal(alarm_count, 1);
    assert_true(watch.is_alarmed);
}

static void a_few_lookups_are_no_reason(void **state)
{
    (void)state;
    struct watch watch = { 0 };
    for (uint64_t now_s = 1; now_s < 500; now_s += 5)
        assert_int_equal(
            step(&watch, now_s, (struct watch_counts){ .lookups = now_s > 20 ? 7 : 0 }),
            WATCH_AS_BEFORE);
}

static void saves_or_hits_in_every_window_keep_it_quiet(void **state)
{
    (void)state;
    struct watch watch = { 0 };
    for (uint64_t now_s = 1; now_s < 500; now_s += 5) {
        const struct watch_counts counts = { .lookups = (int64_t)now_s,
                                             .hits = (int64_t)now_s / 100,
                                             .saves = (int64_t)now_s / 50,
                                             .save_failures = (int64_t)now_s };
        assert_int_equal(step(&watch, now_s, counts), WATCH_AS_BEFORE);
    }
}

static void saves_that_all_fail_raise_it_and_one_that_works_ends_it(void **state)
{
    (void)state;
    struct watch watch = { 0 };
    assert_int_equal(step(&watch, 1, (struct watch_counts){ 0 }), WATCH_AS_BEFORE);
    assert_int_equal(step(&watch, 30, (struct watch_counts){ .save_failures = 3 }),
                     WATCH_AS_BEFORE);
    assert_int_equal(step(&watch, 61, (struct watch_counts){ .save_failures = 3 }), WATCH_INERT);
    assert_int_equal(step(&watch, 65, (struct watch_counts){ .save_failures = 9 }),
                     WATCH_AS_BEFORE);
    assert_int_equal(step(&watch, 70, (struct watch_counts){ .save_failures = 9, .saves = 1 }),
                     WATCH_WORKS_AGAIN);
    assert_false(watch.is_alarmed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_server_raises_no_alarm),
        cmocka_unit_test(lookups_without_hits_and_saves_raise_it_once),
        cmocka_unit_test(a_few_lookups_are_no_reason),
        cmocka_unit_test(saves_or_hits_in_every_window_keep_it_quiet),
        cmocka_unit_test(saves_that_all_fail_raise_it_and_one_that_works_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
