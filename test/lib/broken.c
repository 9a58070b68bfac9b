/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/broken.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Exit status 0: nothing was seen. */
static _Noreturn void look_for(const struct broken_suite *suite, int broken)
{
    const struct rlimit no_core = { 0, 0 };
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would go on in this child */
    (void)signal(SIGSEGV, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr))
        _exit(0);
    for (uint64_t seed = 1; seed <= suite->seeds; seed++) {
        const char *fault = suite->live(broken, seed);
        if (!fault)
            continue;
        print_message("# %s: seed %" PRIu64 ": %s\n", suite->texts[broken], seed, fault);
        (void)fflush(stdout);
        _exit(1);
    }
    _exit(0);
}

void broken_all_are_caught(const struct broken_suite *suite)
{
    for (int broken = 1; broken < suite->count; broken++) {
        (void)fflush(stdout);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            look_for(suite, broken);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            fail_msg("not caught with %" PRIu64 " seeds: %s", suite->seeds, suite->texts[broken]);
        if (WIFSIGNALED(status))
            print_message("# %s: an assertion failed\n", suite->texts[broken]);
    }
}
