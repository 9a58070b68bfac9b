/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asker.h - a thread that asks questions which may take longer than who asks wants to wait.
 *
 * One question at a time. One that is not answered in time is given up: what it uses stays the
 * thread's until it comes back, its answer is then discarded, and until then nothing else can be
 * asked. All functions are called by one thread, the loop.
 */
#ifndef CONNECTOR_ASKER_H
#define CONNECTOR_ASKER_H

#include "os/thread.h"

struct question {
    void (*ask)(void *context);     /* in the thread; may block */
    void (*discard)(void *context); /* in the thread, after an ask() that was given up; or NULL */
    void *context;
};

enum asker_state { ASKER_IDLE, ASKER_ASKED, ASKER_ANSWERED };

struct asker {
    struct thread thread;
    pthread_mutex_t lock; /* guards what follows; nothing is called under it */
    pthread_cond_t changed;
    struct question question;
    enum asker_state state;
    bool is_given_up;
    bool is_closed;
    bool is_open; /* the loop's */
};

/* IO: no thread (logged). */
NODISCARD enum tarn_status asker_open(struct asker *asker, const char *name);
/* Waits for a question that is out: asker_wait_idle() first. Zeroed is fine. */
void asker_close(struct asker *asker);

/* Whether a question is out that was given up or begun. */
bool asker_is_busy(struct asker *asker);

/* Ask, and wait until deadline_ns. OK: ask() has returned, the context is the caller's again.
 * Outcomes: AGAIN, nothing was asked because another question is out; STALE, given up. */
NODISCARD enum tarn_status asker_ask(struct asker *asker, const struct question *question,
                                     uint64_t deadline_ns);

/* Begin to ask, without waiting; asker_take() says when it is over. Outcomes: AGAIN, as above. */
NODISCARD enum tarn_status asker_begin(struct asker *asker, const struct question *question);
/* True once for each question begun: it has been answered. */
bool asker_take(struct asker *asker);

/* Outcomes: AGAIN, a question is still out at deadline_ns. */
NODISCARD enum tarn_status asker_wait_idle(struct asker *asker, uint64_t deadline_ns);

#endif
