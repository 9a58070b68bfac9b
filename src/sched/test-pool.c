/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler and a connector: what is asked, when, and what comes of every answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "obs/metric.h"
#include "sched/harness.h"

static int set_up(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR); /* failures of the connector are meant here */
    harness_init(true);
    harness_start();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    memset(&harness.fake.knobs, 0, sizeof(harness.fake.knobs));
    harness_stop();
    assert_int_equal(metric_get(METRIC_REQUESTS_RUNNING), 0);
    assert_int_equal(metric_get(METRIC_PAGES_LOCKED), 0);
    return 0;
}

static void fail_always(enum fake_call call)
{
    harness.fake.knobs.error[call] = 1000;
}

/* Leave the blocks of `count` ascending tokens in the pool, and an engine that has none of them. */
static void fill_pool(uint32_t count)
{
    harness_submit(31, count, 1);
    harness_finish(31, 1);
    harness_settle();
    assert_int_equal(harness.fake.save_count, count / FAKE_T);
    harness_restart();
    metrics_reset();
}

static void what_one_engine_computed_another_loads(void **state)
{
    (void)state;
    fill_pool(30);
    harness_submit(1, 30, 4);
    harness_prefill(1);
    assert_int_equal(harness_item(1)->position, 28);
    const struct sched_sources sources = harness_sources(1);
    assert_int_equal(sources.device, 0);
    assert_int_equal(sources.pool, 28);
    assert_int_equal(sources.computed, 2);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_POOL), 28);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_REQUESTED), 30);
}

static void the_local_prefix_is_skipped_and_the_rest_is_asked_for(void **state)
{
    (void)state;
    fill_pool(30);
    harness_submit(1, 13, 1);
    harness_finish(1, 1);
    harness_submit(2, 30, 1);
    harness_prefill(2);
    const struct sched_sources sources = harness_sources(2);
    assert_int_equal(sources.device, 12);
    assert_int_equal(sources.pool, 16);
    assert_int_equal(sources.computed, 2);
}

static void the_whole_prompt_is_never_taken_from_the_pool(void **state)
{
    (void)state;
    fill_pool(32);
    harness_submit(1, 32, 1);
    harness_prefill(1);
    assert_int_equal(harness_sources(1).pool, 28);
    assert_int_equal(harness_item(1)->token_count, 4);
}

static void others_run_while_a_request_loads(void **state)
{
    (void)state;
    fill_pool(30);
    assert_int_equal(harness_try_submit(1, 8, 20, TARN_REQUEST_DUMMY), TARN_OK);
    harness_prefill(1);
    harness.fake.knobs.delay_max = 20;
    harness_submit(2, 30, 4);
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    int passes = 0;
    while (harness_request(2)->state == REQUEST_LOADING) {
        assert_non_null(harness_item(1));
        assert_null(harness_item(2));
        harness_append();
        assert_int_equal(harness_pass(), TARN_OK);
        passes++;
    }
    assert_in_range(passes, 2, 20);
    assert_int_equal(harness_item(2)->position, 28);
}

/* Everything is reserved before a load starts: prompt and answer, not the offer alone. */
static void pages_for_all_are_reserved_before_a_load_starts(void **state)
{
    (void)state;
    fill_pool(30);
    harness.fake.knobs.delay_max = 20;
    harness_submit(1, 30, 30);
    assert_int_equal(harness_pass(), TARN_AGAIN);
    assert_int_equal(harness.batch.wait, SCHED_WAIT_TRANSFER);
    assert_int_equal(harness_request(1)->state, REQUEST_LOADING);
    assert_int_equal(harness_pages(KV_LOCKED), 15);
}

static void without_room_the_pool_is_not_asked(void **state)
{
    (void)state;
    fill_pool(30);
    assert_int_equal(harness_try_submit(1, 8, 52, TARN_REQUEST_DUMMY), TARN_OK);
    harness_prefill(1); /* 15 of 24 pages */
    fail_always(FAKE_LOOKUP);
    harness_submit(2, 30, 30); /* 15 pages, 2 of which it would match */
    harness_append();
    assert_int_equal(harness_pass(), TARN_OK);
    assert_int_equal(harness_request(2)->state, REQUEST_WAITING);
    assert_int_equal(harness.fake.error_count, 0); /* not one lookup */
}

static void loaded_blocks_match_nobody_before_the_verdict(void **state)
{
    (void)state;
    fill_pool(30);
    harness.fake.knobs.delay_max = 30;
    harness_submit(1, 30, 4);
    (void)harness_pass();
    assert_int_equal(harness_request(1)->state, REQUEST_LOADING);
    assert_int_equal(harness_request(1)->sequence->committed_count, 0);
    assert_int_equal(harness_try_submit(2, 30, 4, TARN_REQUEST_DUMMY), TARN_OK);
    (void)harness_pass();
    assert_int_equal(harness_sources(2).device, 0);
    harness_prefill(1);
    assert_int_equal(harness_request(1)->sequence->committed_count, 7);
}

static void a_load_that_fails_at_page_k_leaves_exactly_k_blocks(void **state)
{
    (void)state;
    for (uint32_t k = 0; k <= 7; k++) {
        fill_pool(30);
        harness.fake.knobs.good_plus_one = k + 1;
        harness_submit(1, 30, 4);
        while (harness_pass() == TARN_AGAIN)
            assert_int_equal(harness.batch.wait, SCHED_WAIT_TRANSFER);
        assert_int_equal(harness.fake.load_count, k);
        assert_int_equal(harness_item(1)->position, k * FAKE_T);
        assert_int_equal(harness_sources(1).pool, k * FAKE_T);
        assert_int_equal(harness_sources(1).computed, 30 - k * FAKE_T);
        sched_cancel(harness.sched, 1);
        harness_stop();
        fake_init(&harness.fake, 1);
        harness_start();
    }
}

static void a_load_that_must_not_fail_ends_its_request(void **state)
{
    (void)state;
    struct sched_ended ended;
    fill_pool(30);
    harness.fake.knobs.good_plus_one = 4;
    harness.fake.knobs.load_failure_fails = true;
    harness_submit(1, 30, 4);
    harness_settle();
    assert_true(sched_take_ended(harness.sched, &ended));
    assert_int_equal(ended.id, 1);
    assert_int_equal(ended.status, TARN_IO);
    assert_int_equal(metric_get(METRIC_REQUESTS_FAILED), 1);
    assert_int_equal(harness_pages(KV_FREE), HARNESS_PAGES);
}

/* Lesson 16 in small: what a late load still writes is not computed into, and nobody waits. */
static void a_late_load_keeps_its_page_and_the_request_gets_another(void **state)
{
    (void)state;
    fill_pool(30);
    harness.fake.knobs.good_plus_one = 4;
    harness.fake.knobs.late_load = 1000;
    harness.fake.knobs.late_max = 100;
    harness_submit(1, 30, 4);
    harness_finish(1, 4);
    assert_true(harness_pinned() > 0); /* still late, and the answer is there */
    assert_int_equal(harness_request(1)->state, REQUEST_DRAINING);
    harness_settle();
    assert_null(harness_request(1));
    assert_int_equal(harness_pages(KV_LOCKED) + harness_pages(KV_RETIRING), 0);
}

/* Lesson 7: pages were reused while a background save still read them. */
static void pages_of_an_ended_request_stay_until_its_saves_retire(void **state)
{
    (void)state;
    harness.fake.knobs.delay_max = 150;
    harness_submit(1, 30, 30); /* 15 pages */
    harness_finish(1, 2);
    assert_int_equal(harness_request(1)->state, REQUEST_DRAINING);
    assert_int_equal(harness_pages(KV_LOCKED), 15);
    /* 11 pages that match nothing: 9 are free. */
    assert_int_equal(harness_try_submit(2, 40, 4, TARN_REQUEST_MEDIA_UNNAMED), TARN_OK);
    assert_int_equal(harness_pass(), TARN_AGAIN);
    assert_int_equal(harness.batch.wait, SCHED_WAIT_TRANSFER);
    harness.fake.knobs.delay_max = 0;
    harness_finish(2, 2);
    assert_null(harness_request(1));
}

static void two_requests_of_one_prompt_share_pages_once_their_saves_have_retired(void **state)
{
    (void)state;
    harness.fake.knobs.delay_max = 10;
    harness_submit(1, 10, 30);
    harness_submit(2, 10, 30);
    harness_prefill(2);
    for (int i = 0; i < 29; i++) {
        harness_append();
        assert_int_equal(harness_pass(), TARN_OK);
    }
    /* Both computed the first blocks; the pages of one of them are gone by now. */
    const struct kv_sequence *one = harness_request(1)->sequence;
    const struct kv_sequence *two = harness_request(2)->sequence;
    assert_ptr_equal(one->pages[0], two->pages[0]);
    assert_true(two->committed_count > 1);
}

/* Lesson 35: decode blocks never reached the store. */
static void generated_blocks_are_saved_too(void **state)
{
    (void)state;
    harness_submit(1, 6, 20);
    harness_finish(1, 20);
    harness_settle();
    assert_int_equal(harness.fake.save_count, 25 / FAKE_T); /* the last token is never computed */
}

static void warm_up_requests_are_neither_loaded_nor_saved(void **state)
{
    (void)state;
    fill_pool(30);
    const uint64_t save_count = harness.fake.save_count;
    assert_int_equal(harness_try_submit(1, 30, 4, TARN_REQUEST_DUMMY), TARN_OK);
    harness_finish(1, 4);
    harness_settle();
    assert_int_equal(harness.fake.load_count, 0);
    assert_int_equal(harness.fake.save_count, save_count);
}

static void a_request_under_load_can_be_cancelled(void **state)
{
    (void)state;
    fill_pool(30);
    harness.fake.knobs.delay_max = 50;
    harness_submit(1, 30, 4);
    (void)harness_pass();
    assert_int_equal(harness_request(1)->state, REQUEST_LOADING);
    sched_cancel(harness.sched, 1);
    assert_int_equal(harness_request(1)->state, REQUEST_DRAINING);
    assert_int_equal(harness_pages(KV_LOCKED), 9);
    harness_settle();
    assert_null(harness_request(1));
    assert_int_equal(harness_pages(KV_FREE), HARNESS_PAGES);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_REQUESTED), 0); /* no verdict, no sources */
}

static void saves_of_a_pass_that_failed_are_dropped(void **state)
{
    (void)state;
    harness_submit(1, 12, 4);
    assert_int_equal(sched_pass(harness.sched, 1, &harness.batch), TARN_OK);
    sched_pass_done(harness.sched, TARN_IO, 2);
    struct sched_ended ended;
    assert_true(sched_take_ended(harness.sched, &ended));
    harness_settle();
    assert_int_equal(harness.fake.save_count, 0);
    assert_int_equal(harness_pages(KV_FREE), HARNESS_PAGES);
}

/* Whatever call fails, always or from the middle of a request on: the answer is right. */
static void a_connector_that_fails_costs_the_pool_and_not_the_answer(void **state)
{
    (void)state;
    for (int call = 0; call <= FAKE_RETIRED; call++) {
        fill_pool(30);
        fail_always((enum fake_call)call);
        harness_submit(1, 30, 8);
        int turns = 0;
        while (harness.batch.item_count == 0 || !harness.items[0].want_logits) {
            (void)harness_pass();
            if (++turns == 50) /* reports that never come: it waits for them */
                memset(&harness.fake.knobs, 0, sizeof(harness.fake.knobs));
            assert_true(turns < 100);
        }
        assert_int_equal(harness_sources(1).requested, 30);
        for (int i = 0; i < 7; i++) {
            harness_append();
            assert_int_equal(harness_pass(), TARN_OK);
        }
        sched_end(harness.sched, 1, SCHED_OK);
        memset(&harness.fake.knobs, 0, sizeof(harness.fake.knobs));
        harness_settle();
        assert_int_equal(metric_get(METRIC_REQUESTS_OK), 1);
        assert_true(metric_get(METRIC_CONNECTOR_FAILED) > 0);
        fake_init(&harness.fake, 1);
        harness_restart();
    }
}

static void an_offer_that_cannot_be_is_refused(void **state)
{
    (void)state;
    harness.fake.knobs.unsound_offer = 1000;
    for (uint64_t id = 1; id < 12; id++) {
        harness_submit(id, 9, 4);
        harness_finish(id, 2);
        assert_int_equal(metric_get(METRIC_CONNECTOR_FAILED), id);
    }
    assert_int_equal(harness.fake.load_count, 0);
}

static void a_verdict_that_cannot_be_is_not_believed(void **state)
{
    (void)state;
    fill_pool(30);
    harness.fake.knobs.unsound_verdict = 1000;
    harness_submit(1, 30, 4);
    harness_finish(1, 4);
    assert_int_equal(metric_get(METRIC_CONNECTOR_FAILED), 1);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_COMPUTED), 30);
}

static void the_connectors_descriptor_is_handed_on(void **state)
{
    (void)state;
    harness.fake.poll_fd = 42;
    assert_int_equal(sched_poll_fd(harness.sched), 42);
}

static void draining_cancels_and_waits_for_transfers_within_its_bound(void **state)
{
    (void)state;
    harness.fake.knobs.delay_max = 200;
    harness_submit(1, 30, 4);
    harness_prefill(1);
    harness_submit(2, 30, 4);
    assert_int_equal(sched_drain(harness.sched, 0), TARN_AGAIN);
    assert_false(sched_is_idle(harness.sched));
    assert_int_equal(metric_get(METRIC_REQUESTS_WAITING), 0);
    assert_int_equal(metric_get(METRIC_REQUESTS_RUNNING), 0);
    fail_always(FAKE_QUIESCE);
    assert_int_equal(sched_drain(harness.sched, 400), TARN_AGAIN);
    harness.fake.knobs.error[FAKE_QUIESCE] = 0;
    assert_int_equal(sched_drain(harness.sched, 400), TARN_OK);
    assert_true(sched_is_idle(harness.sched));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_one_engine_computed_another_loads),
        TEST(the_local_prefix_is_skipped_and_the_rest_is_asked_for),
        TEST(the_whole_prompt_is_never_taken_from_the_pool),
        TEST(others_run_while_a_request_loads),
        TEST(pages_for_all_are_reserved_before_a_load_starts),
        TEST(without_room_the_pool_is_not_asked),
        TEST(loaded_blocks_match_nobody_before_the_verdict),
        TEST(a_load_that_fails_at_page_k_leaves_exactly_k_blocks),
        TEST(a_load_that_must_not_fail_ends_its_request),
        TEST(a_late_load_keeps_its_page_and_the_request_gets_another),
        TEST(pages_of_an_ended_request_stay_until_its_saves_retire),
        TEST(two_requests_of_one_prompt_share_pages_once_their_saves_have_retired),
        TEST(generated_blocks_are_saved_too),
        TEST(warm_up_requests_are_neither_loaded_nor_saved),
        TEST(a_request_under_load_can_be_cancelled),
        TEST(saves_of_a_pass_that_failed_are_dropped),
        TEST(a_connector_that_fails_costs_the_pool_and_not_the_answer),
        TEST(an_offer_that_cannot_be_is_refused),
        TEST(a_verdict_that_cannot_be_is_not_believed),
        TEST(the_connectors_descriptor_is_handed_on),
        TEST(draining_cancels_and_waits_for_transfers_within_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
