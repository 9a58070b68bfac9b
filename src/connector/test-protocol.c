/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of lives of an engine of several ranks: see rank-simulation.h. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "connector/rank-simulation.h"

/* The seed of a run that fails is printed; TARN_TEST_SEED runs one. */
static void no_order_of_messages_breaks_a_promise(void **state)
{
    (void)state;
    struct rank_simulation_counts counts = { 0 };
    const char *one = getenv("TARN_TEST_SEED");            /* NOLINT(concurrency-mt-unsafe) */
    const char *is_long = getenv("TARN_TEST_LONG");        /* NOLINT(concurrency-mt-unsafe) */
    const char *sanitized = getenv("TARN_TEST_SANITIZED"); /* NOLINT(concurrency-mt-unsafe) */
    const uint64_t lives = is_long ? 50000 : sanitized && sanitized[0] == '1' ? 600 : 3000;
    const uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    const uint64_t last = one ? first : lives;
    for (uint64_t seed = first; seed <= last; seed++) {
        const char *fault = simulate_ranks(seed, &counts);
        if (fault)
            fail_msg("seed %" PRIu64 ": %s", seed, fault);
    }
    print_message("# %" PRIu64 " messages, %" PRIu64 " of them twice, %" PRIu64
                  " times too early; %" PRIu64 " loads, %" PRIu64 " of them short; %" PRIu64
                  " forward passes; %" PRIu64 " lost ranks\n",
                  counts.messages, counts.repeated, counts.early, counts.loads, counts.short_loads,
                  counts.forwards, counts.ends);
    assert_true(one || (counts.repeated > 0 && counts.early > 0 && counts.short_loads > 0 &&
                        counts.short_loads < counts.loads && counts.ends > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_messages_breaks_a_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
