/* SPDX-License-Identifier: Apache-2.0 */
#include "os/thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/log.h"

static void *thread_main(void *arg)
{
    const struct thread *thread = arg;
    thread->run(thread->context);
    return NULL;
}

enum tarn_status thread_start(struct thread *thread, const char *name, void (*run)(void *context),
                              void *context)
{
    sigset_t all;
    sigset_t before;
    thread->run = run;
    thread->context = context;
    sigfillset(&all);
    /* Raised by what a thread itself does: blocked, they would end the process past any handler. */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread->id, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        log_error("cannot start the thread %s: error %d (see ulimit -u)", name, error);
        return TARN_IO;
    }
    (void)pthread_setname_np(thread->id, name);
    thread->is_started = true;
    return TARN_OK;
}

uint32_t thread_cores(void)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? (uint32_t)CPU_COUNT(&cores) : 1;
}

size_t thread_count(void)
{
    struct stat tasks;
    /* One entry a thread, and a folder's links are its folders and itself twice. */
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? tasks.st_nlink - 2 : 0;
}

void thread_join(struct thread *thread)
{
    if (!thread->is_started)
        return;
    const int error = pthread_join(thread->id, NULL);
    ASSERT(error == 0);
    thread->is_started = false;
}
