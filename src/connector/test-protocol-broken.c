/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation of ranks is worth what it catches: each fault of broken.h, built in, must be seen.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "connector/broken.h"
#include "connector/rank-simulation.h"

enum { SEEDS = 3000 };

enum broken broken_now;

static const char *const texts[] = { "nothing",
#define X(name, text) text,
                                     BROKEN_LIST(X)
#undef X
};

/* In a child: a fault may also be caught by an assertion. Exit code 0: nothing was seen. */
static _Noreturn void look_for(enum broken broken)
{
    struct rank_simulation_counts counts = { 0 };
    const struct rlimit no_core = { 0, 0 };
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would go on in this child */
    (void)signal(SIGSEGV, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr))
        _exit(0);
    broken_now = broken;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *fault = simulate_ranks(seed, &counts);
        if (!fault)
            continue;
        print_message("# %s: seed %" PRIu64 ": %s\n", texts[broken], seed, fault);
        fflush(stdout);
        _exit(1);
    }
    _exit(0);
}

static void each_fault_of_ranks_that_is_built_in_is_caught(void **state)
{
    (void)state;
    for (int broken = 1; broken < BROKEN_COUNT; broken++) {
        fflush(stdout);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            look_for((enum broken)broken);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            fail_msg("not caught in %d lives: %s", SEEDS, texts[broken]);
        if (WIFSIGNALED(status))
            print_message("# %s: an assertion failed\n", texts[broken]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_of_ranks_that_is_built_in_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
