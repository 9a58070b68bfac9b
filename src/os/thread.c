/* SPDX-License-Identifier: Apache-2.0 */
#include "os/thread.h"

#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

struct thread_start {
    void (*run)(void *context);
    void *context;
};

static void *thread_main(void *arg)
{
    const struct thread_start start = *(struct thread_start *)arg;
    mem_free(arg);
    start.run(start.context);
    return NULL;
}

enum tarn_status thread_start(struct thread *thread, const char *name, void (*run)(void *context),
                              void *context)
{
    struct thread_start *start = mem_alloc(1, sizeof(*start));
    if (!start)
        return TARN_NO_MEMORY;
    *start = (struct thread_start){ .run = run, .context = context };

    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread->id, NULL, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        mem_free(start);
        log_error("cannot start the thread %s: error %d (see ulimit -u)", name, error);
        return TARN_IO;
    }
    (void)pthread_setname_np(thread->id, name);
    thread->is_started = true;
    return TARN_OK;
}

void thread_join(struct thread *thread)
{
    if (!thread->is_started)
        return;
    const int error = pthread_join(thread->id, NULL);
    ASSERT(error == 0);
    thread->is_started = false;
}
