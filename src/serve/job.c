/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/job.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

static void job_destroy(struct job *job)
{
    sampler_destroy(job->sampler);
    output_deinit(&job->output);
    text_deinit(&job->ready);
    api_request_deinit(&job->request);
    mem_free(job->tokens);
    (void)pthread_mutex_destroy(&job->lock);
    mem_free(job);
}

enum tarn_status job_create(struct api_request *request, int32_t *tokens, uint32_t token_count,
                            struct job **out_job)
{
    struct job *job = mem_alloc(1, sizeof(*job));
    if (!job) {
        api_request_deinit(request);
        mem_free(tokens);
        return TARN_NO_MEMORY;
    }
    job->request = *request;
    *request = (struct api_request){ 0 };
    job->tokens = tokens;
    job->token_count = token_count;
    output_init(&job->output, job->request.stops, job->request.stop_count);
    text_init(&job->ready, JOB_TEXT_BYTES_MAX);
    (void)pthread_mutex_init(&job->lock, NULL);
    atomic_init(&job->references, 1);
    *out_job = job;
    return TARN_OK;
}

void job_hold(struct job *job)
{
    atomic_fetch_add(&job->references, 1);
}

void job_release(struct job *job)
{
    if (job && atomic_fetch_sub(&job->references, 1) == 1)
        job_destroy(job);
}

enum tarn_status job_push(struct job *job, const char *bytes, size_t length_bytes)
{
    (void)pthread_mutex_lock(&job->lock);
    const enum tarn_status status = output_push(&job->output, bytes, length_bytes, &job->ready);
    job->news = true;
    (void)pthread_mutex_unlock(&job->lock);
    return status;
}

void job_finish(struct job *job, enum answer_finish finish)
{
    (void)pthread_mutex_lock(&job->lock);
    if (!job->output.stopped && output_finish(&job->output, &job->ready) != TARN_OK) {
        job->has_failed = true;
        api_error_set(&job->error, 500, NULL, "out of memory");
    }
    job->finish = finish;
    job->usage = (struct answer_usage){
        .prompt_tokens = job->token_count,
        .cached_tokens = job->sources.device + job->sources.tier + job->sources.pool,
        .completion_tokens = job->generated_count,
    };
    job->is_done = true;
    job->news = true;
    (void)pthread_mutex_unlock(&job->lock);
}

void job_fail(struct job *job, uint32_t http_status, const char *format, ...)
{
    char reason[API_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    (void)pthread_mutex_lock(&job->lock);
    if (!job->is_done) {
        api_error_set(&job->error, http_status, NULL, "%s", reason);
        job->has_failed = true;
        job->is_done = true;
        job->news = true;
    }
    (void)pthread_mutex_unlock(&job->lock);
}
