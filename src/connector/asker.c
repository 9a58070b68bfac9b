/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/asker.h"

#include "os/clock.h"

static void asker_main(void *context)
{
    struct asker *asker = context;
    pthread_mutex_lock(&asker->lock);
    for (;;) {
        while (asker->state != ASKER_ASKED && !asker->is_closed)
            pthread_cond_wait(&asker->changed, &asker->lock);
        if (asker->state != ASKER_ASKED)
            break;
        const struct question question = asker->question;
        pthread_mutex_unlock(&asker->lock);
        question.ask(question.context);
        pthread_mutex_lock(&asker->lock);
        if (asker->is_given_up) {
            pthread_mutex_unlock(&asker->lock);
            if (question.discard)
                question.discard(question.context);
            pthread_mutex_lock(&asker->lock);
        }
        asker->state = asker->is_given_up ? ASKER_IDLE : ASKER_ANSWERED;
        asker->is_given_up = false;
        pthread_cond_broadcast(&asker->changed);
    }
    pthread_mutex_unlock(&asker->lock);
}

enum tarn_status asker_open(struct asker *asker, const char *name)
{
    pthread_condattr_t monotonic;
    *asker = (struct asker){ .state = ASKER_IDLE };
    ASSERT(pthread_mutex_init(&asker->lock, NULL) == 0);
    ASSERT(pthread_condattr_init(&monotonic) == 0);
    ASSERT(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&asker->changed, &monotonic) == 0);
    pthread_condattr_destroy(&monotonic);
    asker->is_open = true;
    const enum tarn_status status = thread_start(&asker->thread, name, asker_main, asker);
    if (status != TARN_OK)
        asker_close(asker);
    return status;
}

void asker_close(struct asker *asker)
{
    if (!asker->is_open)
        return;
    pthread_mutex_lock(&asker->lock);
    asker->is_closed = true;
    pthread_cond_broadcast(&asker->changed);
    pthread_mutex_unlock(&asker->lock);
    thread_join(&asker->thread);
    pthread_cond_destroy(&asker->changed);
    pthread_mutex_destroy(&asker->lock);
    *asker = (struct asker){ .is_open = false };
}

bool asker_is_busy(struct asker *asker)
{
    pthread_mutex_lock(&asker->lock);
    const bool is_busy = asker->state != ASKER_IDLE;
    pthread_mutex_unlock(&asker->lock);
    return is_busy;
}

enum tarn_status asker_begin(struct asker *asker, const struct question *question)
{
    enum tarn_status status = TARN_AGAIN;
    pthread_mutex_lock(&asker->lock);
    if (asker->state == ASKER_IDLE) {
        asker->state = ASKER_ASKED;
        asker->question = *question;
        pthread_cond_broadcast(&asker->changed);
        status = TARN_OK;
    }
    pthread_mutex_unlock(&asker->lock);
    return status;
}

/* With the lock held, until the thread has changed the state or the deadline has passed. */
static void asker_wait(struct asker *asker, uint64_t deadline_ns)
{
    const struct timespec until = { .tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                    .tv_nsec = (long)(deadline_ns % NS_PER_S) };
    int error = 0;
    while (asker->state == ASKER_ASKED && error == 0)
        error = pthread_cond_timedwait(&asker->changed, &asker->lock, &until);
}

enum tarn_status asker_ask(struct asker *asker, const struct question *question,
                           uint64_t deadline_ns)
{
    TRY(asker_begin(asker, question));
    pthread_mutex_lock(&asker->lock);
    asker_wait(asker, deadline_ns);
    const bool is_answered = asker->state == ASKER_ANSWERED;
    if (is_answered)
        asker->state = ASKER_IDLE;
    else
        asker->is_given_up = true;
    pthread_mutex_unlock(&asker->lock);
    return is_answered ? TARN_OK : TARN_STALE;
}

bool asker_take(struct asker *asker)
{
    pthread_mutex_lock(&asker->lock);
    const bool is_answered = asker->state == ASKER_ANSWERED;
    if (is_answered)
        asker->state = ASKER_IDLE;
    pthread_mutex_unlock(&asker->lock);
    return is_answered;
}

enum tarn_status asker_wait_idle(struct asker *asker, uint64_t deadline_ns)
{
    if (!asker->is_open)
        return TARN_OK;
    pthread_mutex_lock(&asker->lock);
    asker_wait(asker, deadline_ns);
    const bool is_out = asker->state == ASKER_ASKED;
    pthread_mutex_unlock(&asker->lock);
    return is_out ? TARN_AGAIN : TARN_OK;
}
