/* SPDX-License-Identifier: Apache-2.0 */
#include "os/crew.h"

struct crew_job {
    struct crew_job *next;
    void (*work)(void *context, size_t index);
    void *context;
    size_t count;
    size_t taken;
    size_t done;
};

/* Under the lock, as all that follows. */
static void job_remove(struct crew *crew, const struct crew_job *job)
{
    struct crew_job **at = &crew->first;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
}

/* One index of a job that has one left; the lock is not held meanwhile. */
static void job_advance(struct crew *crew, struct crew_job *job)
{
    const size_t index = job->taken++;
    if (job->taken == job->count)
        job_remove(crew, job);
    (void)pthread_mutex_unlock(&crew->lock);
    job->work(job->context, index);
    (void)pthread_mutex_lock(&crew->lock);
    if (++job->done == job->count)
        (void)pthread_cond_broadcast(&crew->done);
}

static void crew_main(void *context)
{
    struct crew *crew = context;
    (void)pthread_mutex_lock(&crew->lock);
    while (crew->first || !crew->is_closed) {
        if (crew->first)
            job_advance(crew, crew->first);
        else
            (void)pthread_cond_wait(&crew->asked, &crew->lock);
    }
    (void)pthread_mutex_unlock(&crew->lock);
}

void crew_open(struct crew *crew, const char *name)
{
    const size_t wanted = thread_cores() - 1;
    *crew = (struct crew){ .first = NULL };
    (void)pthread_mutex_init(&crew->lock, NULL);
    (void)pthread_cond_init(&crew->asked, NULL);
    (void)pthread_cond_init(&crew->done, NULL);
    while (crew->thread_count < wanted && crew->thread_count < CREW_THREADS_MAX &&
           thread_start(&crew->threads[crew->thread_count], name, crew_main, crew) == TARN_OK)
        crew->thread_count++;
}

void crew_close(struct crew *crew)
{
    (void)pthread_mutex_lock(&crew->lock);
    crew->is_closed = true;
    (void)pthread_cond_broadcast(&crew->asked);
    (void)pthread_mutex_unlock(&crew->lock);
    for (size_t i = 0; i < crew->thread_count; i++)
        thread_join(&crew->threads[i]);
    (void)pthread_cond_destroy(&crew->done);
    (void)pthread_cond_destroy(&crew->asked);
    (void)pthread_mutex_destroy(&crew->lock);
}

void crew_run(struct crew *crew, size_t count, void (*work)(void *context, size_t index),
              void *context)
{
    struct crew_job job = { .work = work, .context = context, .count = count };
    if (count == 0)
        return;
    (void)pthread_mutex_lock(&crew->lock);
    job.next = crew->first;
    crew->first = &job;
    (void)pthread_cond_broadcast(&crew->asked);
    while (job.taken < count)
        job_advance(crew, &job);
    while (job.done < count)
        (void)pthread_cond_wait(&crew->done, &crew->lock);
    (void)pthread_mutex_unlock(&crew->lock);
}
