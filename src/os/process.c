/* SPDX-License-Identifier: Apache-2.0 */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"

enum { POLL_MS = 10, EXEC_FAILED = 127 };

static void pause_ms(uint64_t ms)
{
    const struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
                                    .tv_nsec = (long)(ms % 1000 * NS_PER_MS) };
    (void)nanosleep(&pause, NULL);
}

struct start {
    const char *program;
    char *const *arguments;
    char *const *environment;
    int output_fd;
    int error_fd; /* takes errno when the program cannot be run; closed by running it */
    pid_t parent;
};

static void signals_reset(void)
{
    const struct sigaction fresh = { .sa_handler = SIG_DFL };
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &fresh, NULL);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* In the child: only what may be called after fork() in a process with threads. */
_Noreturn static void child_run(const struct start *start)
{
    int error = 0;
    const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setpgid(0, 0) != 0 || null_fd < 0 ||
        dup2(null_fd, STDIN_FILENO) < 0 || dup2(start->output_fd, STDOUT_FILENO) < 0 ||
        dup2(start->output_fd, STDERR_FILENO) < 0) {
        error = errno;
    } else if (getppid() != start->parent) {
        _exit(EXEC_FAILED); /* the parent ended before the child could be bound to it */
    } else {
        signals_reset();
        (void)execve(start->program, start->arguments, start->environment);
        error = errno;
    }
    const ssize_t written = write(start->error_fd, &error, sizeof(error));
    (void)written;
    _exit(EXEC_FAILED);
}

/* errno of the child's exec; 0: it runs. */
static int exec_error(int fd)
{
    int error = 0;
    ssize_t got;
    do
        got = read(fd, &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

static void reap(struct process *process)
{
    while (waitpid(process->pid, &process->wait_status, 0) < 0 && errno == EINTR)
        ;
    process->pid = 0;
}

enum tarn_status process_start(const char *program, char *const *arguments,
                               char *const *environment, int output_fd, struct process *out_process)
{
    int pipe_fds[2];
    struct process process = { 0 };
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        log_error("cannot start %s: %s", program, strerrordesc_np(errno));
        return TARN_IO;
    }
    const struct start start = {
        program, arguments, environment, output_fd, pipe_fds[1], getpid()
    };
    process.pid = fork();
    if (process.pid == 0)
        child_run(&start);
    int error = errno;
    (void)close(pipe_fds[1]);
    if (process.pid > 0) {
        error = exec_error(pipe_fds[0]);
        if (error != 0)
            reap(&process);
    }
    (void)close(pipe_fds[0]);
    if (process.pid <= 0) {
        log_error("cannot start %s: %s", program, strerrordesc_np(error));
        return TARN_IO;
    }
    *out_process = process;
    return TARN_OK;
}

bool process_has_ended(struct process *process)
{
    if (process->pid == 0)
        return true;
    const pid_t pid = waitpid(process->pid, &process->wait_status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR))
        return false;
    process->pid = 0;
    return true;
}

bool process_stop(struct process *process, uint64_t grace_ms)
{
    const uint64_t deadline_ns = clock_now_ns() + grace_ms * NS_PER_MS;
    const pid_t group = process->pid;
    if (process_has_ended(process))
        return true;
    (void)kill(group, SIGTERM);
    while (!process_has_ended(process)) {
        if (clock_now_ns() >= deadline_ns) {
            (void)kill(-group, SIGKILL);
            reap(process);
            return false;
        }
        pause_ms(POLL_MS);
    }
    return true;
}

void process_print_end(const struct process *process, char *out)
{
    if (WIFSIGNALED(process->wait_status))
        (void)snprintf(out, PROCESS_END_BYTES, "signal %d (%s)", WTERMSIG(process->wait_status),
                       sigdescr_np(WTERMSIG(process->wait_status)));
    else
        (void)snprintf(out, PROCESS_END_BYTES, "exit status %d", WEXITSTATUS(process->wait_status));
}

const char *process_variable(char *const *environment, const char *name)
{
    const size_t name_bytes = strlen(name);
    for (; *environment; environment++)
        if (strncmp(*environment, name, name_bytes) == 0 && (*environment)[name_bytes] == '=' &&
            (*environment)[name_bytes + 1])
            return *environment + name_bytes + 1;
    return NULL;
}

static bool environment_has(char *const *environment, const char *entry)
{
    const size_t name_bytes = strcspn(entry, "=") + 1;
    for (; *environment; environment++)
        if (strncmp(*environment, entry, name_bytes) == 0)
            return true;
    return false;
}

enum tarn_status process_environment(char *const *base, const char *const *defaults,
                                     char ***out_environment)
{
    size_t count = 1;
    for (char *const *entry = base; *entry; entry++)
        count++;
    for (const char *const *entry = defaults; *entry; entry++)
        count++;
    char **environment = mem_alloc(count, sizeof(*environment));
    if (!environment)
        return TARN_NO_MEMORY;
    size_t at = 0;
    for (char *const *entry = base; *entry; entry++)
        environment[at++] = *entry;
    for (const char *const *entry = defaults; *entry; entry++)
        if (!environment_has(base, *entry))
            memcpy(&environment[at++], entry, sizeof(*entry)); /* execve() writes to none of them */
    *out_environment = environment;
    return TARN_OK;
}

static bool is_program(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0;
}

enum tarn_status process_find(const char *name, const char *path, char *out_path, size_t out_bytes)
{
    if (strchr(name, '/')) {
        if (!is_program(name) || snprintf(out_path, out_bytes, "%s", name) >= (int)out_bytes)
            return TARN_MISS;
        return TARN_OK;
    }
    while (path) {
        const int folder_bytes = (int)strcspn(path, ":");
        const int length = snprintf(out_path, out_bytes, "%.*s/%s", folder_bytes ? folder_bytes : 1,
                                    folder_bytes ? path : ".", name);
        if (length > 0 && length < (int)out_bytes && is_program(out_path))
            return TARN_OK;
        path = path[folder_bytes] ? path + folder_bytes + 1 : NULL;
    }
    return TARN_MISS;
}
