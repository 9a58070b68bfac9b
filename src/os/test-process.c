/* SPDX-License-Identifier: Apache-2.0 */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"

static void start_shell(const char *script, int fd, struct process *out_process)
{
    char name[] = "sh";
    char flag[] = "-c";
    char text[256];
    char *arguments[] = { name, flag, text, NULL };
    char *environment[] = { NULL };
    (void)snprintf(text, sizeof(text), "%s", script);
    assert_int_equal(process_start("/bin/sh", arguments, environment, fd, out_process), TARN_OK);
}

static void wait_for_end(struct process *process)
{
    const struct timespec pause = { .tv_nsec = 5000000 };
    for (int i = 0; i < 4000 && !process_has_ended(process); i++)
        (void)nanosleep(&pause, NULL);
    assert_true(process_has_ended(process));
}

static void how_a_child_ended_is_known(void **state)
{
    (void)state;
    struct process process;
    char end[PROCESS_END_BYTES];
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    start_shell("exit 3", fd, &process);
    wait_for_end(&process);
    process_print_end(&process, end);
    assert_string_equal(end, "exit status 3");
    start_shell("kill -9 $$", fd, &process);
    wait_for_end(&process);
    process_print_end(&process, end);
    assert_string_equal(end, "signal 9 (Killed)");
    (void)close(fd);
}

static void a_child_that_asks_for_no_end_is_killed_with_its_group(void **state)
{
    (void)state;
    struct process process;
    char line[32] = "";
    int pipe_fds[2];
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    start_shell("exec sleep 100", fd, &process);
    assert_true(process_stop(&process, 10000)); /* SIGTERM is enough, also where we block it */
    assert_true(process_stop(&process, 0));     /* again is harmless */
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    start_shell("trap '' TERM; sleep 100 & echo $!; while :; do sleep 0.05; done", pipe_fds[1],
                &process);
    assert_true(read(pipe_fds[0], line, sizeof(line) - 1) > 0); /* the trap is set */
    assert_false(process_stop(&process, 100));
    assert_true(process_has_ended(&process));
    (void)close(pipe_fds[1]);
    /* Nobody has the other end any more: the group is gone. */
    ssize_t got;
    do
        got = read(pipe_fds[0], line, sizeof(line));
    while (got > 0 || (got < 0 && errno == EINTR));
    assert_int_equal(got, 0);
    (void)close(pipe_fds[0]);
    (void)close(fd);
}

static void a_child_has_fresh_signals_and_its_environment_block(void **state)
{
    (void)state;
    struct process process;
    char a[] = "A=1";
    char v[] = "GLOG_v=7";
    char *base[] = { a, v, NULL };
    static const char *const defaults[] = { "GLOG_v=1", "GLOG_logtostderr=1", NULL };
    char **environment = NULL;
    int pipe_fds[2];
    char output[256] = "";
    char name[] = "env";
    char *arguments[] = { name, NULL };
    sigset_t all;
    sigset_t before;
    assert_int_equal(process_environment(base, defaults, &environment), TARN_OK);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    assert_int_equal(process_start("/usr/bin/env", arguments, environment, pipe_fds[1], &process),
                     TARN_OK);
    wait_for_end(&process);
    start_shell("kill -TERM $$; echo blocked", pipe_fds[1], &process);
    wait_for_end(&process);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(pipe_fds[1]);
    assert_true(read(pipe_fds[0], output, sizeof(output) - 1) > 0);
    assert_string_equal(output, "A=1\nGLOG_v=7\nGLOG_logtostderr=1\n");
    (void)close(pipe_fds[0]);
    mem_free(environment);
}

static void what_cannot_be_run_is_an_error(void **state)
{
    (void)state;
    struct process process;
    char name[] = "x";
    char *arguments[] = { name, NULL };
    char *environment[] = { NULL };
    assert_int_equal(process_start("/nowhere/x", arguments, environment, STDERR_FILENO, &process),
                     TARN_IO);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* and nothing is left of it */
    assert_int_equal(errno, ECHILD);
}

static void a_program_is_found_as_a_shell_finds_it(void **state)
{
    (void)state;
    char path[64];
    assert_int_equal(process_find("sh", "/nowhere:/bin", path, sizeof(path)), TARN_OK);
    assert_string_equal(path, "/bin/sh");
    assert_int_equal(process_find("/bin/sh", NULL, path, sizeof(path)), TARN_OK);
    assert_int_equal(process_find("sh", "/nowhere", path, sizeof(path)), TARN_MISS);
    assert_int_equal(process_find("sh", NULL, path, sizeof(path)), TARN_MISS);
    assert_int_equal(process_find("/bin", NULL, path, sizeof(path)), TARN_MISS);
    assert_int_equal(process_find("sh", "/bin", path, 3), TARN_MISS);
}

static void a_variable_is_its_whole_name_and_not_empty(void **state)
{
    (void)state;
    char longer[] = "NAMES=x", empty[] = "EMPTY=", ours[] = "NAME=a=b";
    char *const environment[] = { longer, empty, ours, NULL };
    assert_string_equal(process_variable(environment, "NAME"), "a=b");
    assert_null(process_variable(environment, "EMPTY"));
    assert_null(process_variable(environment, "NAM"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variable_is_its_whole_name_and_not_empty),
        cmocka_unit_test(how_a_child_ended_is_known),
        cmocka_unit_test(a_child_that_asks_for_no_end_is_killed_with_its_group),
        cmocka_unit_test(a_child_has_fresh_signals_and_its_environment_block),
        cmocka_unit_test(what_cannot_be_run_is_an_error),
        cmocka_unit_test(a_program_is_found_as_a_shell_finds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
