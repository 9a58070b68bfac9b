/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation of ranks is worth what it catches: each fault of broken.h, built in, must be seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "connector/broken.h"
#include "connector/rank-simulation.h"
#include "lib/broken.h"

enum { SEEDS = 3000 };

enum broken broken_now;

static const char *const texts[] = { "nothing",
#define X(name, text) text,
                                     BROKEN_LIST(X)
#undef X
};

static const char *live(int broken, uint64_t seed)
{
    static struct rank_simulation_counts counts;
    broken_now = (enum broken)broken;
    return simulate_ranks(seed, &counts);
}

static void each_fault_of_ranks_that_is_built_in_is_caught(void **state)
{
    (void)state;
    const struct broken_suite suite = {
        .texts = texts, .count = BROKEN_COUNT, .seeds = SEEDS, .live = live
    };
    broken_all_are_caught(&suite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_of_ranks_that_is_built_in_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
