/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "sched/simulation.h"

/* TARN_TEST_SEED=N runs that seed alone. */
static void thousands_of_random_mixes_keep_every_promise(void **state)
{
    (void)state;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    const char *seed = getenv("TARN_TEST_SEED");
    const uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
    const uint64_t count = seed ? 1 : getenv("TARN_TEST_LONG") ? 100000 : 5000;
    struct simulation_counts counts = { 0 };
    log_set_level(LOG_ERROR); /* the connector's many failures are meant */
    for (uint64_t i = first; i < first + count; i++) {
        const char *fault = simulate(i, &counts);
        if (fault)
            fail_msg("seed %" PRIu64 ": %s", i, fault);
    }
    print_message("# %" PRIu64 " mixes, %" PRIu64 " requests, %" PRIu64
                  " passes; prompt tokens: %" PRIu64 " device, %" PRIu64 " pool, %" PRIu64
                  " computed; %" PRIu64 " calls of the connector failed\n",
                  count, counts.requests, counts.passes, counts.device_tokens, counts.pool_tokens,
                  counts.computed_tokens, counts.failed_calls);
    if (seed)
        return;
    assert_true(counts.device_tokens > counts.requests);
    assert_true(counts.pool_tokens > counts.requests);
    assert_true(counts.failed_calls > count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_of_random_mixes_keep_every_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
