/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler by itself: no pool. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "lib/fault.h"
#include "obs/metric.h"
#include "sched/harness.h"

static char last_line[512];

static void keep_line(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)snprintf(last_line, sizeof(last_line), "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    log_set_sink(keep_line, NULL);
    harness_init(false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (harness.sched) {
        harness_stop();
        assert_int_equal(metric_get(METRIC_REQUESTS_RUNNING), 0);
        assert_int_equal(metric_get(METRIC_REQUESTS_WAITING), 0);
        assert_int_equal(metric_get(METRIC_PAGES_LOCKED), 0);
    }
    log_set_sink(NULL, NULL);
    return 0;
}

static void refused(const struct sched_options *options, const char *why)
{
    struct sched *sched = NULL;
    last_line[0] = '\0';
    assert_int_equal(sched_create(options, &sched), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, why));
}

static void a_configuration_that_cannot_work_is_refused_with_the_arithmetic(void **state)
{
    (void)state;
    struct sched_options options = harness.options;
    options.batch_tokens_max = 6; /* 3 + 4 are needed */
    refused(&options, "--max-batch-tokens 6 is too small");
    options.batch_tokens_max = 7;
    assert_int_equal(sched_create(&options, &harness.sched), TARN_OK);

    options = harness.options;
    options.page_count = 15;
    refused(&options, "needs 16 pages of 4 tokens, and there are 15");
    options = harness.options;
    options.chunk_tokens = 6;
    refused(&options, "not a multiple");
    options = harness.options;
    options.page_bytes = 63;
    refused(&options, "aligned");
    options = harness.options;
    options.page_memory = harness.memory[0] + 1;
    refused(&options, "aligned");
    options = harness.options;
    options.page_stride_bytes = options.page_bytes + 1;
    refused(&options, "multiple of 64");
    options = harness.options;
    options.page_bytes = 128;
    options.page_stride_bytes = 64;
    refused(&options, "not below the page's 128");
    options = harness.options;
    options.waiting_max = 0;
    refused(&options, "must not be 0");

    struct tarn_connector_ops ops = *fake_connector_ops();
    ops.retired = NULL;
    options = harness.options;
    options.ops = &ops;
    refused(&options, "does not offer retired()");
}

static void a_request_that_can_never_run_is_refused_with_the_numbers(void **state)
{
    (void)state;
    harness_start();
    assert_int_equal(harness_try_submit(1, 60, 5, 0), TARN_INVALID);
    assert_string_equal(sched_reason(harness.sched),
                        "60 tokens of prompt and 5 of answer are 65, more than the context of 64");
    assert_int_equal(harness_try_submit(1, 60, UINT32_MAX, 0), TARN_INVALID);
    assert_int_equal(harness_try_submit(1, 0, 5, 0), TARN_INVALID);
    assert_int_equal(harness_try_submit(1, 5, 0, 0), TARN_INVALID);
    harness_submit(1, 60, 4);
    assert_int_equal(harness_try_submit(1, 5, 5, 0), TARN_INVALID);
    assert_string_equal(sched_reason(harness.sched), "request 1 is there already");
    for (uint64_t id = 2; id < 9; id++)
        harness_submit(id, 5, 5);
    assert_int_equal(harness_try_submit(9, 5, 5, 0), TARN_NO_SPACE);
    assert_string_equal(sched_reason(harness.sched), "8 requests wait already, the limit is 8");
    assert_int_equal(metric_get(METRIC_REQUESTS_REFUSED), 6);
    assert_int_equal(metric_get(METRIC_REQUESTS_WAITING), 8);
}

static void generation_goes_first_and_the_oldest_prompt_gets_the_rest(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 5, 8);
    harness_prefill(1);
    harness_append();
    harness.first_token = 100; /* they share nothing */
    harness_submit(2, 30, 4);
    harness.first_token = 200;
    harness_submit(3, 10, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness.batch.item_count, 2);
    assert_int_equal(harness.items[0].id, 1);
    assert_int_equal(harness.items[0].token_count, 1);
    assert_int_equal(harness.items[1].id, 2);
    assert_int_equal(harness.items[1].token_count, 12); /* 15 are left: whole blocks */
    assert_int_equal(harness.batch.token_count, 13);
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(2)->position, 12);
    assert_int_equal(harness_item(2)->token_count, 12);
    assert_null(harness_item(3)); /* 3 tokens are left: no whole block */
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(2)->token_count, 6); /* ends the prompt */
    assert_true(harness_item(2)->want_logits);
    assert_int_equal(harness_item(3)->token_count, 8);
    assert_false(harness_item(3)->want_logits);
}

static void a_cut_ends_a_chunk_in_every_prompt(void **state)
{
    (void)state;
    harness.options.prefill_cut = 10;
    harness_start();
    harness_submit(1, 22, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(1)->token_count, 10);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(1)->position, 10);
    assert_int_equal(harness_item(1)->token_count, 12);
    sched_end(harness.sched, 1, SCHED_OK);
    harness_submit(2, 9, 4); /* shorter than the cut */
    assert_int_equal(harness_pass(), TARN_OK);
    assert_true(harness_item(2)->want_logits);
}

static void chunks_can_be_forced_to_a_size(void **state)
{
    (void)state;
    harness.options.chunk_tokens = 8;
    harness_start();
    harness_submit(1, 21, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(1)->token_count, 8);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(1)->token_count, 8);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_item(1)->token_count, 5);
}

/* Lesson 20: only the prompt was reserved, not the rest. */
static void prompt_and_answer_are_reserved_before_anything_runs(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 8, 56);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_pages(KV_LOCKED), 16);
    assert_int_equal(harness_item(1)->page_count, 16);
}

static void a_request_that_finds_no_room_waits_and_nobody_overtakes_it(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 20, 40); /* 15 pages of 24 */
    harness_prefill(1);
    harness.first_token = 100; /* they share nothing */
    harness_submit(2, 30, 20); /* 13 pages */
    harness_submit(3, 3, 1);   /* 1 page, which there is */
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    assert_null(harness_item(2));
    assert_null(harness_item(3));
    assert_int_equal(metric_get(METRIC_REQUESTS_WAITING), 2);
    assert_int_equal(metric_get(METRIC_REQUESTS_RUNNING), 1);
    sched_end(harness.sched, 1, SCHED_OK);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_non_null(harness_item(2));
    assert_int_equal(metric_get(METRIC_REQUESTS_WAITING), 0);
}

static void requests_are_served_by_arrival_not_by_submission(void **state)
{
    (void)state;
    harness.options.batch_size_max = 1;
    harness_start();
    harness.now_ns = 5000;
    harness_submit(1, 5, 2);
    harness.now_ns = 4000;
    harness_submit(2, 5, 2);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_non_null(harness_item(2));
}

/* Lesson 17: aborted requests stranded pages. */
static void a_cancelled_request_leaves_nothing_in_any_state(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 30, 4);
    sched_cancel(harness.sched, 1); /* queued */
    assert_null(harness_request(1));

    harness_submit(2, 30, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    sched_cancel(harness.sched, 2); /* prefilling */
    assert_null(harness_request(2));
    assert_int_equal(harness_pages(KV_LOCKED), 0);

    harness_submit(3, 6, 4);
    harness_prefill(3);
    harness_append();
    sched_cancel(harness.sched, 3); /* generating */
    assert_null(harness_request(3));
    assert_int_equal(harness_pages(KV_LOCKED), 0);

    harness_submit(4, 30, 4);
    assert_int_equal(sched_pass(harness.sched, 1, &harness.batch), TARN_OK);
    sched_cancel(harness.sched, 4); /* in a pass: leaves when it is over */
    assert_int_equal(sched_append(harness.sched, 4, 1), TARN_MISS);
    assert_non_null(harness_request(4));
    sched_pass_done(harness.sched, TARN_OK, 2);
    assert_null(harness_request(4));
    assert_int_equal(harness_pages(KV_LOCKED), 0);
    sched_cancel(harness.sched, 99); /* nobody */
    assert_int_equal(metric_get(METRIC_REQUESTS_CANCELLED), 4);
}

/* Lesson 23: reuse counted twice or not at all. */
static void every_prompt_token_is_attributed_once(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 21, 4);
    struct sched_sources sources;
    assert_int_equal(sched_sources(harness.sched, 1, &sources), TARN_AGAIN);
    harness_finish(1, 3);
    assert_int_equal(sched_sources(harness.sched, 1, &sources), TARN_MISS);
    harness_submit(2, 21, 4);
    harness_prefill(2);
    sources = harness_sources(2);
    assert_int_equal(sources.device, 20);
    assert_int_equal(sources.pool, 0);
    assert_int_equal(sources.computed, 1);
    assert_int_equal(harness_item(2)->position, 20);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_DEVICE), 20);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_COMPUTED), 22);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_REQUESTED), 42);
    assert_int_equal(metric_get(METRIC_GENERATED_TOKENS), 2);
}

static void a_match_never_covers_the_last_token_of_a_prompt(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 20, 8);
    harness_finish(1, 8);
    harness_submit(2, 20, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_sources(2).device, 16);
    assert_int_equal(harness_item(2)->token_count, 4);
}

static void answers_are_matched_as_well_as_prompts(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 6, 20);
    harness_finish(1, 20); /* tokens 6, 7, 8 ... of its text are all 7 */
    struct fake_text *text = &harness.texts[2];
    *text = harness.texts[1];
    const struct sched_request follow_up = {
        .id = 2, .tokens = text->tokens, .token_count = text->count, .max_tokens = 4
    };
    assert_int_equal(sched_submit(harness.sched, &follow_up), TARN_OK);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_sources(2).device, 24);
}

/* Lesson 25: warm-up requests made the hit rate look like zero. */
static void warm_up_requests_are_counted_apart(void **state)
{
    (void)state;
    harness_start();
    assert_int_equal(harness_try_submit(1, 21, 4, TARN_REQUEST_DUMMY), TARN_OK);
    harness_finish(1, 4);
    assert_int_equal(metric_get(METRIC_REQUESTS_WARMUP), 1);
    assert_int_equal(metric_get(METRIC_REQUESTS_OK), 0);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_REQUESTED), 0);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_COMPUTED), 0);
    assert_int_equal(metric_get(METRIC_GENERATED_TOKENS), 0);
}

static void unnamed_media_are_never_shared(void **state)
{
    (void)state;
    harness_start();
    for (uint64_t id = 1; id <= 2; id++) {
        assert_int_equal(harness_try_submit(id, 21, 4, TARN_REQUEST_MEDIA_UNNAMED), TARN_OK);
        assert_int_equal(harness_pass(), TARN_OK);
        assert_int_equal(harness_sources(id).device, 0);
        harness_finish(id, 2);
    }
    assert_int_equal(harness_pages(KV_FREE), HARNESS_PAGES);
}

static void a_forward_pass_that_fails_ends_its_requests(void **state)
{
    (void)state;
    struct sched_ended ended;
    harness_start();
    harness_submit(1, 30, 4);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(sched_pass(harness.sched, 1, &harness.batch), TARN_OK);
    sched_pass_done(harness.sched, TARN_NO_MEMORY, 2);
    assert_true(sched_take_ended(harness.sched, &ended));
    assert_int_equal(ended.id, 1);
    assert_int_equal(ended.status, TARN_NO_MEMORY);
    assert_false(sched_take_ended(harness.sched, &ended));
    assert_null(harness_request(1));
    assert_int_equal(harness_pages(KV_DROPPABLE), 4); /* what the first pass computed */
    assert_int_equal(metric_get(METRIC_REQUESTS_FAILED), 1);
}

static void a_token_is_taken_once_and_only_when_it_is_due(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 20, 2);
    assert_int_equal(sched_append(harness.sched, 1, 7), TARN_INVALID);
    harness_prefill(1);
    assert_int_equal(harness_pass(), TARN_AGAIN);
    assert_int_equal(harness.batch.wait, SCHED_WAIT_CALLER);
    assert_int_equal(sched_append(harness.sched, 1, 7), TARN_OK);
    fake_text_add(&harness.texts[1], 7);
    assert_int_equal(sched_append(harness.sched, 1, 7), TARN_INVALID);
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(sched_append(harness.sched, 1, 7), TARN_OK);
    assert_int_equal(harness_pass(), TARN_AGAIN); /* its answer is complete */
    assert_int_equal(sched_append(harness.sched, 1, 7), TARN_INVALID);
    sched_end(harness.sched, 1, SCHED_OK);
    assert_int_equal(harness_pass(), TARN_AGAIN);
    assert_int_equal(harness.batch.wait, SCHED_WAIT_IDLE);
    assert_int_equal(metric_get(METRIC_REQUESTS_OK), 1);
}

static enum tarn_status run_a_request(void)
{
    harness_init(true);
    TRY(sched_create(&harness.options, &harness.sched));
    enum tarn_status status = harness_try_submit(1, 9, 4, 0);
    if (status == TARN_OK)
        (void)harness_pass(); /* a failure here costs sharing, not the request */
    const bool shared =
        harness_pages(KV_LOCKED) == 0 || harness_request(1)->sequence->committed_count;
    sched_destroy(harness.sched);
    harness.sched = NULL;
    return status == TARN_OK && !shared ? TARN_NO_MEMORY : status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(run_a_request) >= 20);
}

static bool always(void)
{
    return true;
}

static void without_memory_for_digests_an_answer_goes_on_unshared(void **state)
{
    (void)state;
    harness_start();
    harness_submit(1, 9, 30);
    harness_prefill(1);
    mem_set_fault(always);
    for (int i = 0; i < 20; i++) {
        harness_append();
        assert_int_equal(harness_pass(), TARN_OK);
    }
    mem_set_fault(NULL);
    const uint32_t committed = harness_request(1)->sequence->committed_count;
    assert_true(committed < 29 / FAKE_T);
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_request(1)->sequence->committed_count, 30 / FAKE_T);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_configuration_that_cannot_work_is_refused_with_the_arithmetic),
        TEST(a_request_that_can_never_run_is_refused_with_the_numbers),
        TEST(generation_goes_first_and_the_oldest_prompt_gets_the_rest),
        TEST(a_cut_ends_a_chunk_in_every_prompt),
        TEST(chunks_can_be_forced_to_a_size),
        TEST(prompt_and_answer_are_reserved_before_anything_runs),
        TEST(a_request_that_finds_no_room_waits_and_nobody_overtakes_it),
        TEST(requests_are_served_by_arrival_not_by_submission),
        TEST(a_cancelled_request_leaves_nothing_in_any_state),
        TEST(every_prompt_token_is_attributed_once),
        TEST(a_match_never_covers_the_last_token_of_a_prompt),
        TEST(answers_are_matched_as_well_as_prompts),
        TEST(warm_up_requests_are_counted_apart),
        TEST(unnamed_media_are_never_shared),
        TEST(a_forward_pass_that_fails_ends_its_requests),
        TEST(a_token_is_taken_once_and_only_when_it_is_due),
        TEST(without_memory_for_digests_an_answer_goes_on_unshared),
        TEST(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
