/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - a thread with a name, joined by its owner. */
#ifndef OS_THREAD_H
#define OS_THREAD_H

#include <pthread.h>

#include "base/base.h"

/* Zeroed is a thread that was not started. Stays where it is until it is joined. */
struct thread {
    pthread_t id;
    bool is_started;
    void (*run)(void *context);
    void *context;
};

/* `name`: at most 15 characters, as tools show it. `run` is called once, in the new thread; all
 * signals but those of faults are blocked there. IO: the system has no more threads to give
 * (logged). */
NODISCARD enum tarn_status thread_start(struct thread *thread, const char *name,
                                        void (*run)(void *context), void *context);

/* Cores that this process may run on; 1 if the system does not say. */
uint32_t thread_cores(void);

/* Threads of this process, whoever started them; 0: the system does not say. */
size_t thread_count(void);

/* Wait for the thread to return from `run`. Not started, and joined already, is fine. */
void thread_join(struct thread *thread);

#endif
