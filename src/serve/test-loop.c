/* SPDX-License-Identifier: Apache-2.0 */
/* The loop and the HTTP server's parts over the engine double. */
#include "serve/loop.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "lib/fault.h"
#include "os/block.h"
#include "os/clock.h"
#include "serve/http.h"
#include "serve/listen.h"

enum { JOBS_MAX = 4, WAIT_MS = 20000 };

struct fixture {
    struct engine *engine;
    struct block pages;
    struct sched *sched;
    struct wakeup news;
    struct loop *loop;
};

static void fixture_init(struct fixture *f, const char *token_us, uint32_t stall_ms)
{
    const struct engine_options options = { .ctx_tokens = 1024 };
    assert_int_equal(setenv("TARN_FAKE_TOKEN_US", token_us, 1), 0); /* NOLINT(concurrency-*) */
    *f = (struct fixture){ .news.fd = -1 };
    assert_int_equal(engine_open(&options, &f->engine), TARN_OK);
    const struct engine_info *info = engine_info_of(f->engine);
    assert_int_equal(block_init(&f->pages, 128 * info->page_bytes), TARN_OK);
    const struct sched_options sched_options = { .page_memory = f->pages.base,
                                                 .page_bytes = info->page_bytes,
                                                 .page_count = 128,
                                                 .page_tokens = info->page_tokens,
                                                 .request_tokens_max = info->ctx_tokens,
                                                 .batch_size_max = info->sequences_max,
                                                 .batch_tokens_max = info->batch_tokens_max,
                                                 .waiting_max = JOBS_MAX };
    assert_int_equal(sched_create(&sched_options, &f->sched), TARN_OK);
    assert_int_equal(wakeup_init(&f->news), TARN_OK);
    const struct loop_options loop_options = { .engine = f->engine,
                                               .sched = f->sched,
                                               .jobs_max = JOBS_MAX,
                                               .batch_size_max = info->sequences_max,
                                               .stall_ms = stall_ms,
                                               .news = &f->news };
    assert_int_equal(loop_create(&loop_options, &f->loop), TARN_OK);
}

static void fixture_deinit(struct fixture *f)
{
    loop_stop(f->loop);
    loop_destroy(f->loop);
    assert_int_equal(sched_drain(f->sched, 1000), TARN_OK);
    sched_destroy(f->sched);
    wakeup_deinit(&f->news);
    block_deinit(&f->pages);
    engine_close(f->engine);
}

static struct job *make_job(const struct fixture *f, const char *prompt, uint32_t max_tokens)
{
    static uint64_t last_id;
    struct job *job = NULL;
    struct api_request request = { 0 };
    const struct sampler_params params = { .top_p = 1.0F };
    const uint32_t count = (uint32_t)strlen(prompt);
    int32_t *tokens = mem_alloc(count, sizeof(*tokens));
    assert_non_null(tokens);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (uint8_t)prompt[i];
    assert_int_equal(job_create(&request, tokens, count, &job), TARN_OK);
    job->id = ++last_id;
    job->max_tokens = max_tokens;
    job->arrival_ns = clock_now_ns();
    assert_int_equal(sampler_create(f->engine, &params, &job->sampler), TARN_OK);
    return job;
}

static bool job_is_done(struct job *job)
{
    (void)pthread_mutex_lock(&job->lock);
    const bool is_done = job->is_done;
    (void)pthread_mutex_unlock(&job->lock);
    return is_done;
}

/* Wait for news until the job is done. */
static void job_wait(struct fixture *f, struct job *job)
{
    const uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    while (!job_is_done(job)) {
        assert_true(clock_now_ns() < deadline_ns);
        wakeup_wait(&f->news, deadline_ns);
        wakeup_clear(&f->news);
    }
}

static void a_job_gets_its_text_and_usage(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "0", 0);
    struct job *job = make_job(&f, "echo:hello|", 20);
    assert_int_equal(loop_submit(f.loop, job), TARN_OK);
    assert_int_equal(loop_start(f.loop), TARN_OK);
    job_wait(&f, job);
    assert_false(job->has_failed);
    assert_string_equal(text_chars(&job->ready), "hello");
    assert_int_equal(job->finish, FINISH_STOP);
    assert_int_equal(job->usage.prompt_tokens, 11);
    assert_int_equal(job->usage.completion_tokens, 5);
    assert_int_equal(loop_health_of(f.loop), LOOP_HEALTHY);
    job_release(job);
    fixture_deinit(&f);
}

static void more_jobs_than_may_be_alive_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct job *jobs[JOBS_MAX + 1];
    fixture_init(&f, "0", 0);
    for (size_t i = 0; i < JOBS_MAX; i++) {
        jobs[i] = make_job(&f, "x", 3);
        assert_int_equal(loop_submit(f.loop, jobs[i]), TARN_OK);
    }
    jobs[JOBS_MAX] = make_job(&f, "x", 3);
    assert_int_equal(loop_submit(f.loop, jobs[JOBS_MAX]), TARN_NO_SPACE);
    assert_int_equal(loop_job_count(f.loop), JOBS_MAX);
    assert_int_equal(loop_start(f.loop), TARN_OK);
    for (size_t i = 0; i < JOBS_MAX; i++)
        job_wait(&f, jobs[i]);
    for (size_t i = 0; i < LENGTH_OF(jobs); i++)
        job_release(jobs[i]);
    fixture_deinit(&f);
}

static void a_loop_whose_pass_does_not_end_is_stalled(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "100000", 100); /* a pass over 20 tokens takes 2 s */
    struct job *job = make_job(&f, "twenty tokens of it.", 1);
    assert_int_equal(loop_start(f.loop), TARN_OK);
    assert_int_equal(loop_submit(f.loop, job), TARN_OK);
    const uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    enum loop_health health = LOOP_HEALTHY;
    while (health == LOOP_HEALTHY && !job_is_done(job)) {
        health = loop_health_of(f.loop);
        assert_true(clock_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(health, LOOP_STALLED);
    job_wait(&f, job);
    job_release(job);
    fixture_deinit(&f);
}

static void a_loop_that_stops_fails_the_jobs_that_are_left(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "1000", 0);
    struct job *running = make_job(&f, "x", 1000);
    struct job *late = make_job(&f, "y", 1);
    assert_int_equal(loop_start(f.loop), TARN_OK);
    assert_int_equal(loop_submit(f.loop, running), TARN_OK);
    loop_stop(f.loop);
    assert_true(job_is_done(running) && running->has_failed);
    assert_int_equal(running->error.http_status, 503);
    assert_int_equal(loop_submit(f.loop, late), TARN_NO_SPACE);
    assert_int_equal(loop_job_count(f.loop), 0);
    job_release(running);
    job_release(late);
    fixture_deinit(&f);
}

static struct fixture swept;

static enum tarn_status create_a_loop(void)
{
    struct loop *loop = NULL;
    const struct loop_options options = { .engine = swept.engine,
                                          .sched = swept.sched,
                                          .jobs_max = JOBS_MAX,
                                          .batch_size_max = 16,
                                          .news = &swept.news };
    TRY(loop_create(&options, &loop));
    const enum tarn_status status = loop_start(loop);
    loop_stop(loop);
    loop_destroy(loop);
    return status;
}

static enum tarn_status create_a_job(void)
{
    struct job *job = NULL;
    struct api_request request = { 0 };
    int32_t *tokens = mem_alloc(3, sizeof(*tokens));
    if (!tokens)
        return TARN_NO_MEMORY;
    TRY(job_create(&request, tokens, 3, &job));
    const enum tarn_status status = job_push(job, "text", 4);
    job_release(job);
    return status;
}

static enum tarn_status create_a_server(void)
{
    static atomic_bool is_draining;
    struct http *http = NULL;
    int fd = -1;
    char address[LISTEN_ADDRESS_BYTES];
    TRY(listen_bind("127.0.0.1", 0, &fd));
    assert_int_equal(listen_begin(fd, address), TARN_OK);
    const struct http_options options = { .engine = swept.engine,
                                          .loop = swept.loop,
                                          .model = "m",
                                          .listen_fd = fd,
                                          .news = &swept.news,
                                          .connections_max = 8,
                                          .is_draining = &is_draining };
    enum tarn_status status = http_create(&options, &http);
    if (status != TARN_OK) {
        assert_int_equal(close(fd), 0);
        return status;
    }
    status = http_start(http);
    http_stop(http);
    http_destroy(http);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    fixture_init(&swept, "0", 0);
    assert_true(fault_sweep(create_a_loop) > 4);
    assert_true(fault_sweep(create_a_job) > 2);
    assert_true(fault_sweep(create_a_server) > 2);
    fixture_deinit(&swept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_gets_its_text_and_usage),
        cmocka_unit_test(more_jobs_than_may_be_alive_are_refused),
        cmocka_unit_test(a_loop_whose_pass_does_not_end_is_stalled),
        cmocka_unit_test(a_loop_that_stops_fails_the_jobs_that_are_left),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
