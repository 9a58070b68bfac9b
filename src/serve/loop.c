/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/loop.h"

#include <poll.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "os/queue.h"
#include "os/thread.h"

enum { TRANSFER_WAIT_MS = 50, IDLE_WAIT_MS = 1000 };

static const char CLIENT_GONE[] = "cancelled: the client is gone";
static const char SERVER_STOPS[] = "cancelled: the server stops";

struct loop {
    struct loop_options options;
    struct thread thread;
    struct wakeup wake;
    struct queue incoming; /* struct job *; closed when the thread ends */
    atomic_bool is_stopping;
    atomic_bool is_dead;
    atomic_uint job_count;        /* submitted and not over */
    _Atomic uint64_t progress_ns; /* when there last was no work, or a batch was finished */
    atomic_bool has_cancelled;

    /* The thread's own. */
    struct job **taken; /* jobs_max places */
    struct map jobs;    /* id -> struct job, those the scheduler knows */
    struct engine_sequence *sequences;
    const struct sched_batch *running; /* NULL between passes */
    uint64_t *wanting;                 /* ids of the batch's items that want logits, in order */
    bool has_news;
};

enum tarn_status loop_create(const struct loop_options *options, struct loop **out_loop)
{
    struct loop *loop = mem_alloc(1, sizeof(*loop));
    if (!loop)
        return TARN_NO_MEMORY;
    loop->options = *options;
    loop->wake.fd = -1;
    map_init(&loop->jobs, sizeof(uint64_t));
    loop->taken = mem_alloc(options->jobs_max, sizeof(void *));
    loop->sequences = mem_alloc(options->batch_size_max, sizeof(*loop->sequences));
    loop->wanting = mem_alloc(options->batch_size_max, sizeof(*loop->wanting));
    enum tarn_status status = TARN_NO_MEMORY;
    if (loop->taken && loop->sequences && loop->wanting)
        status = map_reserve(&loop->jobs, options->jobs_max);
    if (status == TARN_OK)
        status = queue_init(&loop->incoming, sizeof(struct job *), options->jobs_max);
    if (status == TARN_OK)
        status = wakeup_init(&loop->wake);
    if (status != TARN_OK) {
        loop_destroy(loop);
        return status;
    }
    *out_loop = loop;
    return TARN_OK;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    ASSERT(!loop->thread.is_started);
    if (loop->wake.fd >= 0)
        wakeup_deinit(&loop->wake);
    queue_deinit(&loop->incoming);
    map_deinit(&loop->jobs);
    mem_free((void *)loop->taken);
    mem_free(loop->sequences);
    mem_free(loop->wanting);
    mem_free(loop);
}

enum tarn_status loop_submit(struct loop *loop, struct job *job)
{
    const uint32_t before = atomic_fetch_add(&loop->job_count, 1);
    if (before == 0)
        atomic_store(&loop->progress_ns, clock_now_ns());
    job_hold(job);
    if (before >= loop->options.jobs_max || queue_push(&loop->incoming, &job) != TARN_OK) {
        atomic_fetch_sub(&loop->job_count, 1);
        job_release(job);
        return TARN_NO_SPACE;
    }
    wakeup_signal(&loop->wake);
    return TARN_OK;
}

void loop_wake(struct loop *loop)
{
    atomic_store(&loop->has_cancelled, true);
    wakeup_signal(&loop->wake);
}

uint32_t loop_job_count(const struct loop *loop)
{
    return atomic_load(&loop->job_count);
}

enum loop_health loop_health_of(const struct loop *loop)
{
    if (atomic_load(&loop->is_dead))
        return LOOP_DEAD;
    const uint64_t progress_ns = atomic_load(&loop->progress_ns);
    const uint64_t now_ns = clock_now_ns();
    const bool has_work = atomic_load(&loop->job_count) > 0;
    const uint32_t stall_ms = loop->options.stall_ms ? loop->options.stall_ms : LOOP_STALL_MS;
    if (has_work && now_ns > progress_ns + stall_ms * NS_PER_MS)
        return LOOP_STALLED;
    return LOOP_HEALTHY;
}

/* One line a request, whatever became of it. */
static void job_log(const struct job *job, const char *outcome)
{
    const uint64_t now_ns = clock_now_ns();
    char first[32] = "none";
    if (job->first_token_ns > 0)
        (void)snprintf(first, sizeof(first), "%.1f ms",
                       (double)(job->first_token_ns - job->arrival_ns) / (double)NS_PER_MS);
    log_info("request %llu: prompt %u = device %u + pool %u + computed %u, first token %s, "
             "generated %u, %.1f ms in all, %s",
             (unsigned long long)job->id, job->token_count, job->sources.device + job->sources.tier,
             job->sources.pool, job->sources.computed, first, job->generated_count,
             (double)(now_ns - job->arrival_ns) / (double)NS_PER_MS, outcome);
}

/* The job is over: its result is set. Drop the loop's reference. */
static void job_leave(struct loop *loop, struct job *job, const char *outcome)
{
    job_log(job, outcome);
    loop->has_news = true;
    atomic_fetch_sub(&loop->job_count, 1);
    job_release(job);
}

static void job_take_out(struct loop *loop, struct job *job, const char *outcome)
{
    (void)map_remove(&loop->jobs, &job->id);
    job_leave(loop, job, outcome);
}

static void job_submit(struct loop *loop, struct job *job)
{
    const struct tarn_scope scope = { .size = sizeof(scope),
                                      .cache_salt = job->request.cache_salt };
    job->scope = scope;
    const struct sched_request request = {
        .id = job->id,
        .tokens = job->tokens,
        .token_count = job->token_count,
        .max_tokens = job->max_tokens,
        .scope = job->request.cache_salt ? &job->scope : NULL,
        .arrival_ns = job->arrival_ns,
    };
    if (atomic_load(&job->is_cancelled)) {
        job_leave(loop, job, "cancelled before it was queued");
        return;
    }
    enum tarn_status status = sched_submit(loop->options.sched, &request);
    if (status == TARN_OK && map_set(&loop->jobs, &job->id, job) != TARN_OK) {
        sched_end(loop->options.sched, job->id, SCHED_FAILED);
        status = TARN_NO_MEMORY;
    }
    if (status == TARN_OK)
        return;
    if (status == TARN_INVALID)
        job_fail(job, 400, "%s", sched_reason(loop->options.sched));
    else if (status == TARN_NO_SPACE)
        job_fail(job, 503, "too many requests wait; try again later");
    else
        job_fail(job, 500, "the request could not be queued: %s", tarn_strerror(status));
    job_leave(loop, job, "refused");
}

static void incoming_take(struct loop *loop)
{
    size_t count = 0;
    if (queue_take(&loop->incoming, (void *)loop->taken, loop->options.jobs_max, &count) != TARN_OK)
        return;
    for (size_t i = 0; i < count; i++)
        job_submit(loop, loop->taken[i]);
}

/* Collect first: a walk does not survive removals. */
static void cancelled_drop(struct loop *loop, bool all, const char *outcome)
{
    uint32_t count = 0;
    size_t position = 0;
    for (struct job *job; (job = map_next(&loop->jobs, &position));)
        if (all || atomic_load(&job->is_cancelled))
            loop->taken[count++] = job;
    for (uint32_t i = 0; i < count; i++) {
        struct job *job = loop->taken[i];
        if (sched_sources(loop->options.sched, job->id, &job->sources) != TARN_OK)
            job->sources = (struct sched_sources){ 0 }; /* it was not admitted yet */
        sched_cancel(loop->options.sched, job->id);
        job_fail(job, 503, "the request was %s", outcome);
        job_take_out(loop, job, outcome);
    }
}

static void first_token_note(struct loop *loop, struct job *job, uint64_t now_ns)
{
    if (job->first_token_ns == 0) {
        job->first_token_ns = now_ns;
        histogram_observe(HISTOGRAM_TIME_TO_FIRST_TOKEN, now_ns - job->arrival_ns);
        if (sched_sources(loop->options.sched, job->id, &job->sources) != TARN_OK)
            log_warn("request %llu: its prompt's sources are not known",
                     (unsigned long long)job->id);
    } else {
        histogram_observe(HISTOGRAM_TIME_PER_OUTPUT_TOKEN, now_ns - job->last_token_ns);
    }
    job->last_token_ns = now_ns;
}

static void job_complete(struct loop *loop, struct job *job, enum answer_finish finish)
{
    sched_end(loop->options.sched, job->id, SCHED_OK);
    histogram_observe(HISTOGRAM_END_TO_END, clock_now_ns() - job->arrival_ns);
    job_finish(job, finish);
    job_take_out(loop, job, finish == FINISH_LENGTH ? "ok, length" : "ok, stop");
}

static void job_abort(struct loop *loop, struct job *job, enum tarn_status status)
{
    sched_end(loop->options.sched, job->id, SCHED_FAILED);
    job_fail(job, 500, "the request failed: %s", tarn_strerror(status));
    job_take_out(loop, job, "failed");
}

/* The next token of a job: sample, tell the scheduler, hand on its text. */
static void job_advance(struct loop *loop, struct job *job, const float *logits)
{
    char piece[ENGINE_PIECE_BYTES_MAX];
    size_t piece_bytes = 0;
    const int32_t token = sampler_sample(job->sampler, logits);
    first_token_note(loop, job, clock_now_ns());
    if (engine_token_is_end(loop->options.engine, token)) {
        job_complete(loop, job, FINISH_STOP);
        return;
    }
    enum tarn_status status = sched_append(loop->options.sched, job->id, token);
    if (status == TARN_OK)
        status = engine_token_piece(loop->options.engine, token, false, piece, &piece_bytes);
    if (status == TARN_OK)
        status = job_push(job, piece, piece_bytes);
    if (status != TARN_OK) {
        job_abort(loop, job, status);
        return;
    }
    job->generated_count++;
    loop->has_news = true;
    if (job->output.stopped)
        job_complete(loop, job, FINISH_STOP);
    else if (job->generated_count == job->max_tokens)
        job_complete(loop, job, FINISH_LENGTH);
}

static void ended_take(struct loop *loop)
{
    struct sched_ended ended;
    while (sched_take_ended(loop->options.sched, &ended)) {
        struct job *job = map_get(&loop->jobs, &ended.id);
        if (!job)
            continue;
        job_fail(job, 500, "the request failed: %s", tarn_strerror(ended.status));
        job_take_out(loop, job, "failed");
    }
}

/* Nobody waits for the pass under way any more: all its clients hung up, or the loop must end. */
static bool pass_is_useless(void *context)
{
    const struct loop *loop = context;
    if (atomic_load(&loop->is_stopping))
        return true;
    if (!loop->running || !atomic_load(&loop->has_cancelled))
        return false;
    for (uint32_t i = 0; i < loop->running->item_count; i++) {
        const struct job *job = map_get(&loop->jobs, &loop->running->items[i].id);
        if (job && !atomic_load(&job->is_cancelled))
            return false;
    }
    return true;
}

static void batch_run(struct loop *loop, const struct sched_batch *batch)
{
    uint32_t wanting_count = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_item *item = &batch->items[i];
        loop->sequences[i] = (struct engine_sequence){
            .tokens = item->tokens,
            .token_count = item->token_count,
            .position = item->position,
            .pages = item->pages,
            .page_count = item->page_count,
            .output_count = item->want_logits,
        };
        if (item->want_logits)
            loop->wanting[wanting_count++] = item->id;
    }
    loop->running = batch;
    const enum tarn_status status =
        engine_forward(loop->options.engine, loop->sequences, batch->item_count);
    loop->running = NULL;
    const bool is_stopping = atomic_load(&loop->is_stopping);
    if (status == TARN_AGAIN)
        cancelled_drop(loop, is_stopping, is_stopping ? SERVER_STOPS : CLIENT_GONE);
    sched_pass_done(loop->options.sched, status, clock_now_ns());
    atomic_store(&loop->progress_ns, clock_now_ns());
    for (uint32_t i = 0; status == TARN_OK && i < wanting_count; i++) {
        struct job *job = map_get(&loop->jobs, &loop->wanting[i]);
        if (job)
            job_advance(loop, job, engine_logits(loop->options.engine, i));
    }
}

static void loop_sleep(struct loop *loop, enum sched_wait wait)
{
    struct pollfd fds[2] = {
        { .fd = loop->wake.fd, .events = POLLIN },
        { .fd = sched_poll_fd(loop->options.sched), .events = POLLIN },
    };
    const int timeout_ms = wait == SCHED_WAIT_IDLE ? IDLE_WAIT_MS : TRANSFER_WAIT_MS;
    (void)poll(fds, LENGTH_OF(fds), timeout_ms); /* whatever it says, the next turn looks */
}

/* A pass that fails is a broken scheduler: nothing it says can be trusted. */
static void loop_break(struct loop *loop, enum tarn_status status)
{
    log_error("the scheduler failed: %s; the loop ends, /health says so", tarn_strerror(status));
    atomic_store(&loop->is_dead, true);
}

static void loop_turn(struct loop *loop)
{
    struct sched_batch batch;
    wakeup_clear(&loop->wake);
    incoming_take(loop);
    if (atomic_exchange(&loop->has_cancelled, false))
        cancelled_drop(loop, false, CLIENT_GONE);
    const enum tarn_status status = sched_pass(loop->options.sched, clock_now_ns(), &batch);
    if (status == TARN_OK)
        batch_run(loop, &batch);
    ended_take(loop);
    if (atomic_load(&loop->job_count) == 0)
        atomic_store(&loop->progress_ns, clock_now_ns());
    if (loop->has_news)
        wakeup_signal(loop->options.news);
    loop->has_news = false;
    if (status == TARN_AGAIN)
        loop_sleep(loop, batch.wait);
    else if (status != TARN_OK)
        loop_break(loop, status);
}

static void loop_main(void *context)
{
    struct loop *loop = context;
    engine_set_stop(loop->options.engine, pass_is_useless, loop);
    while (!atomic_load(&loop->is_stopping) && !atomic_load(&loop->is_dead))
        loop_turn(loop);
    queue_close(&loop->incoming);
    incoming_take(loop);
    cancelled_drop(loop, true, SERVER_STOPS);
    wakeup_signal(loop->options.news);
}

enum tarn_status loop_start(struct loop *loop)
{
    atomic_store(&loop->progress_ns, clock_now_ns());
    return thread_start(&loop->thread, "tarn-loop", loop_main, loop);
}

void loop_stop(struct loop *loop)
{
    atomic_store(&loop->is_stopping, true);
    wakeup_signal(&loop->wake);
    thread_join(&loop->thread);
}
