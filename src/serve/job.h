/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - one generation, between the HTTP thread that wants it and the loop that computes it.
 *
 * The HTTP thread makes it and fills in the first part, then submits it; from then on that part is
 * read-only. The loop's part is the loop's alone. Text and result pass through the third part,
 * under the lock. Each side holds a reference; the last one to let go frees it. The sampler and
 * the engine must outlive it.
 */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/text.h"
#include "engine/sampler.h"
#include "sched/sched.h"
#include "serve/answer.h"
#include "serve/api.h"
#include "serve/output.h"

enum { JOB_TEXT_BYTES_MAX = 64 << 20 };

struct job {
    /* Set before it is submitted. */
    uint64_t id;
    struct api_request request; /* owned: stop strings and salt lie in it */
    int32_t *tokens;            /* owned: the prompt */
    uint32_t token_count;
    uint32_t max_tokens; /* resolved: at least 1 */
    uint64_t arrival_ns;
    struct sampler *sampler; /* owned */

    /* The loop's. */
    struct output output;
    struct sched_sources sources;
    uint64_t first_token_ns; /* 0: none yet */
    uint64_t last_token_ns;
    uint32_t generated_count;
    struct tarn_scope scope;

    /* Shared. */
    pthread_mutex_t lock; /* guards what follows, but for the atomics */
    struct text ready;    /* text that was not taken yet */
    bool is_done;         /* no text follows: finish and usage, or error, are final */
    bool has_failed;
    bool news; /* since the HTTP thread last looked */
    enum answer_finish finish;
    struct answer_usage usage;
    struct api_error error;
    atomic_bool is_cancelled; /* the client is gone: set by the HTTP thread */
    atomic_uint references;
};

/* Takes ownership of *request and of `tokens`, also on failure. One reference, the caller's. */
NODISCARD enum tarn_status job_create(struct api_request *request, int32_t *tokens,
                                      uint32_t token_count, struct job **out_job);
void job_hold(struct job *job);
void job_release(struct job *job); /* NULL is fine */

/* The loop: text was added to, or the job is done. Each marks news. */
NODISCARD enum tarn_status job_push(struct job *job, const char *bytes, size_t length_bytes);
void job_finish(struct job *job, enum answer_finish finish);
/* A job that is done already stays as it is. */
PRINTF_LIKE(3, 4) void job_fail(struct job *job, uint32_t http_status, const char *format, ...);

#endif
