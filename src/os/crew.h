/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.h - threads that take part in a row of work: what one core would do at the speed of its
 * memory, several do faster.
 *
 * Any thread may ask, and several at once. Who asks does its share, so that nobody waits for work
 * that is not its own, and a crew without a thread is one that is slower.
 */
#ifndef OS_CREW_H
#define OS_CREW_H

#include "os/thread.h"

enum { CREW_THREADS_MAX = 3 };

struct crew_job;

struct crew {
    struct thread threads[CREW_THREADS_MAX];
    size_t thread_count;
    pthread_mutex_t lock; /* guards what follows, and all jobs; innermost */
    pthread_cond_t asked;
    pthread_cond_t done;
    struct crew_job *first; /* one that has something left to take */
    bool is_closed;
};

/* A thread for each core but one that this process may run on, if the system gives them (else it is
 * logged). `name`: as thread_start(). */
void crew_open(struct crew *crew, const char *name);
/* Nobody asks any more. */
void crew_close(struct crew *crew);

/* Call work(context, index) once for each index below `count`, in any order and thread; returns
 * once all have returned. The work must not ask the crew, and should not block. */
void crew_run(struct crew *crew, size_t count, void (*work)(void *context, size_t index),
              void *context);

#endif
