/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/memory.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct engine_info info = { .ctx_tokens = 1000,
                                         .page_tokens = 32,
                                         .page_bytes = 4096 };

static void the_default_holds_a_batch_of_requests_of_half_the_context(void **state)
{
    (void)state;
    const struct memory_plan plan = memory_plan_make(&info, 0, 4, 0);
    assert_int_equal(plan.page_count, 4 * 16); /* 500 tokens are 16 pages */
    assert_false(plan.is_limited);
}

static void the_default_holds_at_least_one_request_of_the_whole_context(void **state)
{
    (void)state;
    assert_int_equal(memory_plan_make(&info, 0, 1, 0).page_count, 32);
}

static void the_default_stays_within_a_quarter_of_the_memory_available(void **state)
{
    (void)state;
    const struct memory_plan plan = memory_plan_make(&info, 0, 4, 4 * 40 * 4096 + 5);
    assert_int_equal(plan.page_count, 40);
    assert_true(plan.is_limited);
}

static void a_size_that_was_given_is_taken_in_whole_pages(void **state)
{
    (void)state;
    const struct memory_plan plan = memory_plan_make(&info, 10 * 4096 + 4095, 4, 4096);
    assert_int_equal(plan.page_count, 10);
    assert_false(plan.is_limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_holds_a_batch_of_requests_of_half_the_context),
        cmocka_unit_test(the_default_holds_at_least_one_request_of_the_whole_context),
        cmocka_unit_test(the_default_stays_within_a_quarter_of_the_memory_available),
        cmocka_unit_test(a_size_that_was_given_is_taken_in_whole_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
