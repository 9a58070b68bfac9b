/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warm.h - the thread that puts what is in use of a pool into this process's page table before it
 * is needed there: for reads after the pool was opened, for the window of puts (near.h) when the
 * first slot is used again, which is when the pool is full.
 *
 * It walks the frames once for each. It works at most a fifth of the time, in steps of one frame:
 * the kernel holds the process's memory map meanwhile, and a thread of low priority that others
 * keep from running would keep it from all of them. What it has not reached is mapped at its first
 * use. After the first walk it reads back, and says, how much of it lies in huge pages.
 */
#ifndef STORE_LOCAL_WARM_H
#define STORE_LOCAL_WARM_H

#include <semaphore.h>

#include "os/thread.h"
#include "store/local/view.h"

/* Zeroed: not started. Stays where it is until it was stopped. */
struct warm {
    struct thread thread;
    struct pool_view *view;
    sem_t wake;
    _Atomic bool is_wanted; /* the second walk */
    _Atomic bool is_stopping;
    _Atomic bool has_read; /* the first walk is over */
    _Atomic bool has_opened;
};

/* A pool works without it as well: a system that has no thread to give is logged, and that is all.
 */
void warm_start(struct warm *warm, struct pool_view *view);

/* Have the frames in use opened for puts. Any thread, any number of times; not started is fine. */
void warm_open(struct warm *warm);

/* Returns within a millisecond or so. Not started is fine. */
void warm_stop(struct warm *warm);

#endif
