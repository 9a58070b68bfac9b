/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pace.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t STEP_NS = 10000000;

/* Run steps for a while on a machine that gives the process `processors`; returns how many of the
 * steps used `threads`. */
static uint32_t run(struct pace *pace, uint64_t *now_ns, uint32_t steps, double processors,
                    uint32_t threads)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t used = pace_begin(pace, *now_ns);
        assert_in_range(used, 1, pace->threads_max);
        const double busy = used < processors ? used : processors;
        *now_ns += STEP_NS;
        pace_end(pace, *now_ns, STEP_NS, (uint64_t)(busy * (double)STEP_NS));
        count += used == threads;
    }
    return count;
}

static void all_threads_are_used_while_nobody_else_computes(void **state)
{
    (void)state;
    struct pace pace;
    uint64_t now_ns = 0;
    pace_init(&pace, 4);
    assert_int_equal(run(&pace, &now_ns, 1000, 4, 4), 1000);
}

static void a_busy_neighbour_takes_one_thread_and_tries_grow_rare(void **state)
{
    (void)state;
    struct pace pace;
    uint64_t now_ns = 0;
    pace_init(&pace, 2);
    assert_in_range(run(&pace, &now_ns, 3000, 1.2, 1), 2985, 2999);
    assert_int_equal(pace.threads, 1);
}

static void all_threads_come_back_when_the_neighbour_is_gone(void **state)
{
    (void)state;
    struct pace pace;
    uint64_t now_ns = 0;
    pace_init(&pace, 2);
    (void)run(&pace, &now_ns, 3000, 1.2, 1);
    (void)run(&pace, &now_ns, 900, 2, 2); /* longer than the longest wait between tries */
    assert_int_equal(pace.threads, 2);
    assert_int_equal(run(&pace, &now_ns, 500, 2, 2), 500);
}

static void one_thread_is_never_given_up(void **state)
{
    (void)state;
    struct pace pace;
    uint64_t now_ns = 0;
    pace_init(&pace, 1);
    assert_int_equal(run(&pace, &now_ns, 1000, 0.1, 1), 1000);
}

static void short_steps_are_judged_together(void **state)
{
    (void)state;
    struct pace pace;
    pace_init(&pace, 2);
    for (uint64_t now_ns = 0; now_ns < 4900000; now_ns += 100000) {
        assert_int_equal(pace_begin(&pace, now_ns), 2);
        pace_end(&pace, now_ns, 100000, 100000);
    }
    assert_int_equal(pace.threads, 2);
    pace_end(&pace, 5000000, 100000, 100000);
    assert_int_equal(pace.threads, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_threads_are_used_while_nobody_else_computes),
        cmocka_unit_test(a_busy_neighbour_takes_one_thread_and_tries_grow_rare),
        cmocka_unit_test(all_threads_come_back_when_the_neighbour_is_gone),
        cmocka_unit_test(one_thread_is_never_given_up),
        cmocka_unit_test(short_steps_are_judged_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
