/* SPDX-License-Identifier: Apache-2.0 */
/* The connector as an engine sees it: through the table, over a store that does what a test says.
 */
#include "lib/rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fault.h"
#include "obs/metric.h"

static void what_one_engine_saved_another_loads(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 10);
    assert_int_equal(fake_pages_count(pages), 20);
    assert_int_equal(first.started[TARN_TRANSFER_SAVE], 20);
    assert_int_equal(metric_get(METRIC_SAVE_PAGES), 20);
    assert_int_equal(metric_get(METRIC_SAVE_BYTES), 10 * (SIZE_A + SIZE_B + SIZE_C));

    assert_int_equal(lookup(&second, 7, 45, 8, &offer), TARN_OK);
    assert_int_equal(offer.first_token, 8);
    assert_int_equal(offer.token_count, 32);
    assert_int_equal(fake_store_leases(second.store), 1);
    step(&second, (struct tarn_step_request){ .id = 7, .computed_tokens = 8, .load = 1 }, 20);
    transfers(&second);
    assert_int_equal(second.started[TARN_TRANSFER_LOAD], 16);
    const struct tarn_loaded loaded = verdict(&second);
    assert_int_equal(loaded.id, 7);
    assert_int_equal(loaded.first_block, 2);
    assert_int_equal(loaded.block_count, 8);
    assert_int_equal(loaded.asked_count, 8);
    assert_int_equal(loaded.status, TARN_OK);
    assert_int_equal(fake_store_leases(second.store), 0);
    for (uint64_t block = 2; block < 10; block++)
        assert_true(page_is(&second, 20 + block, block));
    settle(&second);
    assert_int_equal(metric_get(METRIC_LOAD_PAGES), 16);
    assert_int_equal(metric_get(METRIC_LOOKUP_BLOCKS_HIT), 8);
    finish(&second, 7);
}

static void a_hit_needs_all_groups(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 10);
    fake_pages_drop(pages, &digests[4], "/lg1/");
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 4 * T);
    assert_int_equal(second.ops->cancel(second.connector, 1, 0, 100), TARN_OK);
    fake_pages_drop(pages, &digests[0], "/lg0/");
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_MISS);
}

/* What lies behind a gap is not offered, and not even asked for. */
static void the_first_gap_ends_a_lookup(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.transfer_batch_size = 4; /* two blocks a batch */
    reopen();
    save_prompt(&first, 1, 10);
    fake_pages_drop(pages, &digests[5], "");
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 5 * T);
    assert_int_equal(fake_store_batches(second.store, FAKE_LOOKUP), 3);
    assert_int_equal(fake_store_leases(second.store), 3);
}

static void pages_that_exist_are_skipped(void **state)
{
    (void)state;
    save_prompt(&first, 1, 10);
    struct tarn_offer offer;
    /* The second engine computes the same prompt, before it could know. */
    fake_store_fail(second.store, FAKE_LOOKUP, 0, 0, TARN_IO);
    assert_int_equal(lookup(&second, 1, 48, 0, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_PROBE_FAILED), 1);
    step(&second, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 48 }, 0);
    forward(&second, TARN_OK);
    settle(&second);
    assert_int_equal(metric_get(METRIC_SAVE_SKIPPED), 20);
    assert_int_equal(metric_get(METRIC_SAVE_PAGES), 20 + 4);
    finish(&second, 1);
}

static void a_late_answer_to_a_lookup_is_a_miss(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.lookup_deadline_ms = 1;
    reopen();
    save_prompt(&first, 1, 10);
    fake_store_slow_lookup(second.store, 20);
    /* The first engine's own lookup may have been late too, on a busy machine. */
    const int64_t before = metric_get(METRIC_PROBE_LATE);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_PROBE_LATE), before + 1);
    assert_int_equal(fake_store_leases(second.store), 0);
}

/* Warm-up is counted apart, each reason not to ask has its counter. */
static void what_is_not_asked_is_counted_by_reason(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct tarn_request request = { .size = sizeof(request), .tokens = tokens, .token_count = 40 };
    const struct {
        uint32_t flag;
        enum metric metric;
    } rows[] = { { TARN_REQUEST_DUMMY, METRIC_DECLINED_DUMMY },
                 { TARN_REQUEST_GENERATION_ONLY, METRIC_DECLINED_GENERATION_ONLY },
                 { TARN_REQUEST_MEDIA_UNNAMED, METRIC_DECLINED_MULTIMODAL } };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        request.id = i;
        request.flags = rows[i].flag;
        assert_int_equal(first.ops->lookup(first.connector, &request, 0, &offer), TARN_MISS);
        assert_int_equal(metric_get(rows[i].metric), 1);
    }
    assert_int_equal(lookup(&first, 10, 4, 0, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_DECLINED_NO_FULL_BLOCK), 1);
    assert_int_equal(lookup(&first, 11, 40, 36, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_DECLINED_LOCAL), 1);
    assert_int_equal(lookup(&first, 12, 40, 6, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_DECLINED_OFF_BOUNDARY), 1);
    assert_int_equal(metric_get(METRIC_LOOKUPS), 0);
    assert_int_equal(fake_store_calls(first.store, FAKE_LOOKUP), 0);

    options.role = TARN_ROLE_PRODUCER;
    reopen();
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_DECLINED_ROLE), 1);
}

/* Every page has its own result; what follows a failure is not used. */
static void a_load_that_fails_at_page_k_leaves_exactly_k_blocks(void **state)
{
    (void)state;
    struct tarn_offer offer;
    const enum tarn_status causes[] = { TARN_MISS, TARN_IO, TARN_CORRUPT };
    for (uint64_t k = 0; k < 6; k++) {
        for (size_t cause = 0; cause < LENGTH_OF(causes); cause++) {
            reopen();
            save_prompt(&first, 1, 6);
            assert_int_equal(lookup(&second, 1, 25, 0, &offer), TARN_OK);
            /* the second group's page of block k */
            fake_store_fail(second.store, FAKE_GET, 2 * k + 1, 2 * k + 1, causes[cause]);
            step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
            const struct tarn_loaded loaded = verdict(&second);
            assert_int_equal(loaded.block_count, k);
            assert_int_equal(loaded.asked_count, 6);
            for (uint64_t block = 0; block < k; block++)
                assert_true(page_is(&second, 20 + block, block));
            assert_int_equal(metric_get(METRIC_LOAD_PAGES), 2 * k);
            settle(&second);
            finish(&second, 1);
        }
    }
}

static void a_short_load_discards_the_saves_of_its_step(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 6);
    const size_t puts = fake_store_calls(second.store, FAKE_PUT);
    assert_int_equal(lookup(&second, 1, 40, 0, &offer), TARN_OK);
    fake_store_fail(second.store, FAKE_GET, 4, 4, TARN_MISS);
    /* An engine that cannot wait schedules behind the offer in the same step. */
    step(&second,
         (struct tarn_step_request){
             .id = 1, .computed_tokens = 24, .scheduled_tokens = 16, .load = 1 },
         20);
    assert_int_equal(verdict(&second).block_count, 2);
    forward(&second, TARN_OK);
    settle(&second);
    assert_int_equal(fake_store_calls(second.store, FAKE_PUT), puts);
    assert_int_equal(second.started[TARN_TRANSFER_SAVE], 0);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_FORWARD), 8);
    /* Recomputed from the good prefix, the rest is saved. */
    step(&second,
         (struct tarn_step_request){ .id = 1, .computed_tokens = 8, .scheduled_tokens = 32 }, 20);
    for (uint64_t block = 2; block < 10; block++)
        page_fill(&second, 20 + block, block);
    forward(&second, TARN_OK);
    settle(&second);
    assert_int_equal(fake_pages_count(pages), 20);
    finish(&second, 1);
}

static void saves_wait_for_the_verdict(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 6);
    assert_int_equal(lookup(&second, 1, 40, 0, &offer), TARN_OK);
    step(&second,
         (struct tarn_step_request){
             .id = 1, .computed_tokens = 24, .scheduled_tokens = 16, .load = 1 },
         20);
    forward(&second, TARN_OK); /* before anybody knows what was loaded */
    settle(&second);
    assert_int_equal(second.started[TARN_TRANSFER_SAVE], 0);
    assert_int_equal(verdict(&second).block_count, 6);
    finish(&second, 1);
}

static void a_forward_pass_that_failed_saves_nothing(void **state)
{
    (void)state;
    struct tarn_offer offer;
    int on_a_device = 0;
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 20 }, 0);
    forward(&first, TARN_IO);
    assert_int_equal(first.ops->forward_done(first.connector, first.step_number, TARN_OK, NULL),
                     TARN_INVALID);
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 0);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_FORWARD), 10);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 20 }, 0);
    assert_int_equal(
        first.ops->forward_done(first.connector, first.step_number, TARN_OK, &on_a_device),
        TARN_OK); /* an event that this connector cannot wait for */
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 0);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 20 }, 0);
    forward(&first, TARN_OK);
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 10);
    finish(&first, 1);
}

/* A page is reported started before it is read, and retired only
 * after; until then the engine must leave it alone. */
static void a_page_under_a_save_is_reported_until_it_is_written(void **state)
{
    (void)state;
    struct tarn_offer offer;
    uint32_t pending = 0;
    uint64_t ids[2];
    size_t count = 1;
    options.stage_through_host = TARN_SETTING_OFF; /* a copy would free the page */
    reopen();
    fake_store_hold(first.store, FAKE_PUT, true);
    assert_int_equal(lookup(&first, 1, 8, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }, 0);
    page_fill(&first, 0, 0);
    page_fill(&first, 1, 1);
    forward(&first, TARN_OK);
    assert_true(fake_store_is_held(first.store, FAKE_PUT));
    transfers(&first);
    assert_int_equal(first.started[TARN_TRANSFER_SAVE], 4);
    assert_int_equal(first.retired[TARN_TRANSFER_SAVE], 0);
    assert_int_equal(metric_get(METRIC_PAGES_PINNED), 4);
    assert_int_equal(first.ops->finished(first.connector, 1, &pending), TARN_OK);
    assert_int_equal(pending, 1);
    assert_int_equal(first.ops->retired(first.connector, ids, 2, &count), TARN_OK);
    assert_int_equal(count, 0);
    const uint64_t id = 1;
    assert_int_equal(first.ops->quiesce(first.connector, &id, 1, 1), TARN_AGAIN);
    fake_store_hold(first.store, FAKE_PUT, false);
    assert_int_equal(first.ops->quiesce(first.connector, &id, 1, WAIT_MS), TARN_OK);
    assert_int_equal(first.ops->retired(first.connector, ids, 2, &count), TARN_OK);
    assert_int_equal(count, 0); /* after the drain: the reports come first */
    settle(&first);
    assert_int_equal(first.ops->retired(first.connector, ids, 2, &count), TARN_OK);
    assert_int_equal(count, 1);
    assert_int_equal(first.ops->retired(first.connector, ids, 2, &count), TARN_OK);
    assert_int_equal(count, 0); /* once */
    assert_int_equal(metric_get(METRIC_PAGES_PINNED), 0);
    assert_int_equal(fake_pages_count(pages), 4);
}

/* A load that outlives its deadline ends short; its pages stay the call's. */
static void a_load_past_its_deadline_keeps_its_pages_until_it_returns(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.load_deadline_ms = 30;
    options.transfer_batch_size = 4;
    options.stage_through_host = TARN_SETTING_OFF; /* the call writes into the pages themselves */
    reopen();
    save_prompt(&first, 1, 10);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    fake_store_hold(second.store, FAKE_GET, true);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    const struct tarn_loaded loaded = verdict(&second);
    assert_int_equal(loaded.block_count, 0);
    assert_int_equal(loaded.asked_count, 10);
    transfers(&second);
    assert_int_equal(second.started[TARN_TRANSFER_LOAD], 20);
    assert_in_range(second.retired[TARN_TRANSFER_LOAD], 0, 16); /* four are in the call */
    assert_true(metric_get(METRIC_PAGES_ABANDONED) >= 4);
    assert_true(metric_get(METRIC_LOAD_FAILED_DEADLINE) > 0);
    /* It is computed instead, in other pages, and its end does not wait for the call. */
    step(&second, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 4 }, 40);
    forward(&second, TARN_OK);
    fake_store_hold(second.store, FAKE_GET, false);
    settle(&second);
    assert_int_equal(metric_get(METRIC_PAGES_ABANDONED), 0);
    assert_int_equal(metric_get(METRIC_LOAD_PAGES), 0);
    finish(&second, 1);
}

static void a_request_that_ends_under_its_load_lets_go_of_everything(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct tarn_bytes report;
    uint32_t pending = 0;
    uint64_t ids[2];
    size_t count = 0;
    save_prompt(&first, 1, 10);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    fake_store_hold(second.store, FAKE_GET, true);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_true(fake_store_is_held(second.store, FAKE_GET));
    assert_int_equal(second.ops->finished(second.connector, 1, &pending), TARN_OK);
    assert_int_equal(pending, 1);
    assert_int_equal(fake_store_leases(second.store), 0);
    fake_store_hold(second.store, FAKE_GET, false);
    settle(&second);
    assert_int_equal(second.ops->load_poll(second.connector, 0, &report), TARN_AGAIN);
    assert_int_equal(second.ops->retired(second.connector, ids, 2, &count), TARN_OK);
    assert_int_equal(count, 1);
    assert_int_equal(metric_get(METRIC_LOAD_PAGES), 0);
}

/* A page that failed verification is removed, treated as absent, and saved again. */
static void a_damaged_page_is_removed_and_saved_again(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 6);
    fake_pages_damage(pages, &digests[3]);
    assert_int_equal(lookup(&second, 1, 25, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 24);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_int_equal(verdict(&second).block_count, 3);
    assert_int_equal(metric_get(METRIC_LOAD_FAILED_CORRUPT), 2); /* both groups */
    settle(&second);
    assert_int_equal(fake_pages_of(pages, &digests[3]), 0);
    step(&second,
         (struct tarn_step_request){ .id = 1, .computed_tokens = 12, .scheduled_tokens = 12 }, 20);
    for (uint64_t block = 3; block < 6; block++)
        page_fill(&second, 20 + block, block);
    forward(&second, TARN_OK);
    settle(&second);
    finish(&second, 1);
    assert_int_equal(fake_pages_of(pages, &digests[3]), 2);
    assert_int_equal(lookup(&second, 2, 25, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 24);
}

/* The digest is 128 bits of BLAKE2b; who does not trust that compares the tokens themselves. */
static void a_page_stored_for_other_tokens_is_not_used_when_they_are_compared(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.verify_tokens = TARN_SETTING_ON;
    reopen();
    save_prompt(&first, 1, 6);
    assert_int_equal(lookup(&second, 1, 25, 0, &offer), TARN_OK);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_int_equal(verdict(&second).block_count, 6);
    for (uint64_t block = 0; block < 6; block++)
        assert_true(page_is(&second, 20 + block, block));
    settle(&second);
    finish(&second, 1);

    fake_pages_forge(pages, &digests[2]);
    assert_int_equal(lookup(&second, 2, 25, 0, &offer), TARN_OK);
    step(&second, (struct tarn_step_request){ .id = 2, .load = 1 }, 20);
    assert_int_equal(verdict(&second).block_count, 2);
    assert_int_equal(metric_get(METRIC_LOAD_FAILED_TOKENS), 2);
    settle(&second);
    finish(&second, 2);
    assert_int_equal(fake_pages_of(pages, &digests[2]), 2); /* it may be right for others */
    assert_int_equal(lookup(&second, 3, 25, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 8);
}

static void a_key_whose_get_failed_is_absent_for_a_while(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 6);
    assert_int_equal(lookup(&second, 1, 25, 0, &offer), TARN_OK);
    fake_store_fail(second.store, FAKE_GET, 8, 8, TARN_IO); /* block 4, though it is there */
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_int_equal(verdict(&second).block_count, 4);
    settle(&second);
    finish(&second, 1);
    assert_int_equal(lookup(&second, 2, 25, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, 16);
    assert_int_equal(lookup(&first, 3, 25, 0, &offer), TARN_OK); /* another process asks on */
    assert_int_equal(offer.token_count, 24);
}

/* The queue is bounded; what does not fit is dropped, counted, and saved later. */
static void saves_past_a_limit_are_dropped_and_made_up_for(void **state)
{
    (void)state;
    struct tarn_offer offer;
    for (int round = 0; round < 2; round++) {
        options.save_queue_pages_max = round == 0 ? 6 : 0;
        options.pinned_bytes_max = round == 1 ? 3 * (SIZE_A + SIZE_B + SIZE_C) : 0;
        reopen();
        fake_store_hold(first.store, FAKE_PUT, true);
        assert_int_equal(lookup(&first, 1, 48, 0, &offer), TARN_MISS);
        step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 40 }, 0);
        forward(&first, TARN_OK);
        transfers(&first);
        assert_int_equal(first.started[TARN_TRANSFER_SAVE], 6);
        assert_int_equal(
            metric_get(round == 0 ? METRIC_SAVE_FAILED_QUEUE : METRIC_SAVE_FAILED_PINNED), 1);
        assert_int_equal(metric_get(METRIC_SAVE_FAILED_GAP), 13);
        fake_store_hold(first.store, FAKE_PUT, false);
        settle(&first);
        assert_int_equal(fake_pages_count(pages), 6);
        for (uint64_t t = 40; t < 48; t++) { /* each step makes up for three blocks */
            step(&first,
                 (struct tarn_step_request){ .id = 1, .computed_tokens = t, .scheduled_tokens = 1 },
                 0);
            forward(&first, TARN_OK);
            settle(&first);
        }
        assert_int_equal(fake_pages_count(pages), 24);
        finish(&first, 1);
    }
}

static void after_a_failed_save_the_rest_of_the_chain_waits(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.transfer_batch_size = 2; /* a block */
    reopen();
    fake_store_fail(first.store, FAKE_PUT, 4, 4, TARN_NO_SPACE); /* block 2, group 0 */
    fake_store_hold(first.store, FAKE_PUT, true);
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 40 }, 0);
    forward(&first, TARN_OK);
    fake_store_hold(first.store, FAKE_PUT, false);
    settle(&first);
    assert_int_equal(fake_pages_of(pages, &digests[1]), 2);
    for (size_t block = 3; block < 10; block++)
        assert_int_equal(fake_pages_of(pages, &digests[block]), 0);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_FULL), 1);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_GAP), 14);
    finish(&first, 1);
}

static void a_step_loads_no_more_than_its_bytes_and_the_rest_follows(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.load_bytes_per_step = 2 * (SIZE_A + SIZE_B + SIZE_C); /* two blocks */
    reopen();
    save_prompt(&first, 1, 10);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    fake_store_hold(second.store, FAKE_GET, true);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_true(fake_store_is_held(second.store, FAKE_GET));
    assert_int_equal(fake_store_calls(second.store, FAKE_GET), 4);
    fake_store_hold(second.store, FAKE_GET, false);
    assert_int_equal(verdict(&second).block_count, 10);
    assert_int_equal(fake_store_batches(second.store, FAKE_GET), 5);
    for (uint64_t block = 0; block < 10; block++)
        assert_true(page_is(&second, 20 + block, block));
    settle(&second);
    finish(&second, 1);
}

static void quiesce_drops_what_was_not_begun(void **state)
{
    (void)state;
    struct tarn_offer offer;
    const uint64_t id = 1;
    options.transfer_batch_size = 2;
    reopen();
    fake_store_hold(first.store, FAKE_PUT, true);
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 40 }, 0);
    forward(&first, TARN_OK);
    assert_true(fake_store_is_held(first.store, FAKE_PUT));
    assert_int_equal(first.ops->quiesce(first.connector, &id, 1, 0), TARN_AGAIN);
    fake_store_hold(first.store, FAKE_PUT, false);
    assert_int_equal(first.ops->quiesce(first.connector, &id, 1, WAIT_MS), TARN_OK);
    assert_int_equal(fake_pages_count(pages), 2);
    settle(&first);
    finish(&first, 1);
    assert_int_equal(first.ops->reset(first.connector, 1), TARN_OK);
}

static void close_waits_for_a_transfer_and_may_be_called_again(void **state)
{
    (void)state;
    struct tarn_offer offer;
    fake_store_hold(first.store, FAKE_PUT, true);
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 40 }, 0);
    forward(&first, TARN_OK);
    assert_true(fake_store_is_held(first.store, FAKE_PUT));
    assert_int_equal(first.ops->close(first.connector, 1), TARN_AGAIN);
    fake_store_hold(first.store, FAKE_PUT, false);
    assert_int_equal(first.ops->close(first.connector, WAIT_MS), TARN_OK);
    assert_int_equal(first.ops->close(first.connector, WAIT_MS), TARN_OK);
    assert_int_equal(first.ops->close(NULL, 0), TARN_OK);
    assert_int_equal(lookup(&first, 1, 40, 0, &offer), TARN_INVALID); /* closed, not crashed */
    assert_int_equal(first.ops->poll_fd(first.connector), -1);
}

static void close_with_an_offer_and_a_load_gives_everything_back(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 10);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    assert_int_equal(lookup(&second, 2, 41, 0, &offer), TARN_OK);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 0);
    assert_int_equal(second.ops->close(second.connector, WAIT_MS), TARN_OK); /* leases: the store's
                                                                                close asserts */
}

static void a_second_registration_is_refused(void **state)
{
    (void)state;
    const struct tarn_region region = { (uintptr_t)first.memory[0], 8, 8, 4, NULL, 0 };
    const struct tarn_group group = { 0, 0, NULL, 0, &region, 1 };
    const struct tarn_layout layout = { sizeof(layout), T, TARN_PAGES_BY_SLOT, &group, 1, NULL, 0,
                                        NULL,           0 };
    assert_int_equal(first.ops->register_layout(first.connector, &layout), TARN_INVALID);
}

static void calls_before_registration_are_refused(void **state)
{
    (void)state;
    struct tarn_connector *connector;
    struct tarn_bytes bytes;
    struct tarn_offer offer;
    struct store *store = fake_store_create(pages);
    size_t count;
    assert_int_equal(connector_open_with(NULL, &engine, store, &connector), TARN_OK);
    const struct tarn_request request = { .size = sizeof(request) };
    const struct tarn_step none = { .size = sizeof(none), .number = 1 };
    assert_int_equal(first.ops->lookup(connector, &request, 0, &offer), TARN_INVALID);
    assert_int_equal(first.ops->step(connector, &none, &bytes), TARN_INVALID);
    assert_int_equal(first.ops->load_poll(connector, 0, &bytes), TARN_INVALID);
    assert_int_equal(first.ops->transfers(connector, NULL, 0, &count), TARN_INVALID);
    assert_int_equal(first.ops->close(connector, 0), TARN_OK);
}

static void a_metadata_message_from_elsewhere_is_refused(void **state)
{
    (void)state;
    const uint8_t junk[64] = { 1, 2, 3 };
    const struct tarn_bytes bytes = { junk, sizeof(junk) };
    const struct tarn_bytes nothing = { NULL, 0 };
    struct tarn_loaded loaded;
    struct tarn_bytes out;
    size_t count;
    assert_int_equal(first.ops->load_start(first.connector, bytes), TARN_CORRUPT);
    assert_int_equal(first.ops->load_start(first.connector, nothing), TARN_CORRUPT);
    assert_int_equal(first.ops->verdict_apply(first.connector, bytes, &loaded, 1, &count),
                     TARN_CORRUPT);
    assert_int_equal(first.ops->verdict(first.connector, &bytes, 1, &out), TARN_CORRUPT);
    assert_int_equal(first.ops->verdict(first.connector, &nothing, 1, &out), TARN_AGAIN);
}

static void handles_are_limited_and_say_so(void **state)
{
    (void)state;
    struct tarn_connector *many[CONNECTORS_MAX];
    struct store *store = fake_store_create(pages);
    size_t count = 0;
    enum tarn_status status = TARN_OK;
    while (status == TARN_OK && count < CONNECTORS_MAX) {
        store = count ? fake_store_create(pages) : store;
        status = connector_open_with(NULL, &engine, store, &many[count]);
        count += status == TARN_OK;
    }
    assert_int_equal(status, TARN_UNSUPPORTED);
    assert_int_equal(count, CONNECTORS_MAX - 2);
    store_close(store);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(first.ops->close(many[i], 0), TARN_OK);
}

static void another_abi_version_is_not_spoken(void **state)
{
    (void)state;
    assert_null(tarn_connector_ops(TARN_ABI_VERSION + 1));
    assert_null(tarn_connector_ops(0));
}

static enum tarn_status sweep_rig(void)
{
    struct tarn_offer offer;
    struct tarn_connector *connector;
    struct store *store = fake_store_create(pages);
    enum tarn_status status = connector_open_with(&options, &engine, store, &connector);
    if (status != TARN_OK) {
        store_close(store);
        return status;
    }
    const struct tarn_region region = { (uintptr_t)first.memory[0], 40, 40, 60, NULL, 0 };
    const struct tarn_group group = { 0, 0, NULL, 0, &region, 1 };
    const struct tarn_layout layout = { sizeof(layout), T, TARN_PAGES_BY_SLOT, &group, 1, NULL, 0,
                                        NULL,           0 };
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = tokens, .token_count = 40
    };
    tarn_page list[10] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    const tarn_page *const one[] = { list };
    const struct tarn_step_request part = {
        .id = 1, .pages = one, .block_count = 10, .scheduled_tokens = 40
    };
    const struct tarn_step step_one = { sizeof(step_one), 1, &part, 1, 0 };
    struct tarn_bytes metadata;
    uint32_t pending;
    status = first.ops->register_layout(connector, &layout);
    if (status == TARN_OK) {
        status = first.ops->lookup(connector, &request, 0, &offer);
        status = status == TARN_MISS || status == TARN_OK ? TARN_OK : status;
    }
    if (status == TARN_OK)
        status = first.ops->step(connector, &step_one, &metadata);
    if (status == TARN_OK)
        status = first.ops->load_start(connector, metadata);
    if (status == TARN_OK)
        status = first.ops->forward_done(connector, 1, TARN_OK, NULL);
    if (status == TARN_OK)
        status = first.ops->finished(connector, 1, &pending);
    const enum tarn_status closed = first.ops->close(connector, WAIT_MS);
    assert_int_equal(closed, TARN_OK);
    return status;
}

static enum tarn_status sweep_load(void)
{
    struct tarn_offer offer;
    struct tarn_bytes bytes;
    struct tarn_bytes report;
    struct tarn_loaded loaded[16];
    size_t count;
    uint32_t pending;
    tarn_page list[6] = { 20, 21, 22, 23, 24, 25 };
    const tarn_page *const both[] = { list, list };
    const struct tarn_step_request part = { .id = 1, .pages = both, .block_count = 6, .load = 1 };
    const struct tarn_step one = { sizeof(one), ++second.step_number, &part, 1, 0 };
    enum tarn_status status = lookup(&second, 1, 25, 0, &offer);
    if (status == TARN_OK)
        status = second.ops->step(second.connector, &one, &bytes);
    if (status == TARN_OK)
        status = second.ops->load_start(second.connector, bytes);
    if (status == TARN_OK)
        status = second.ops->load_poll(second.connector, WAIT_MS, &report);
    if (status == TARN_OK)
        status = second.ops->verdict(second.connector, &report, 1, &bytes);
    if (status == TARN_OK)
        status = second.ops->verdict_apply(second.connector, bytes, loaded, 16, &count);
    if (second.ops->finished(second.connector, 1, &pending) == TARN_OK && pending) {
        uint64_t ids[2];
        settle(&second);
        if (second.ops->retired(second.connector, ids, 2, &count) != TARN_OK || count != 1) {
            /* planned by step(), but never started: nothing will retire it */
            fail_msg("a request is stuck after a failed allocation");
        }
    }
    return status;
}

static void open_to_close_survives_failed_allocations(void **state)
{
    (void)state;
    assert_in_range(fault_sweep(sweep_rig), 20, 80);
    options.verify_tokens = TARN_SETTING_ON;
    assert_in_range(fault_sweep(sweep_rig), 30, 100);
}

static void a_load_survives_failed_allocations(void **state)
{
    (void)state;
    save_prompt(&first, 1, 6);
    assert_int_equal(sweep_load(), TARN_OK); /* buffers that have grown stay */
    assert_in_range(fault_sweep(sweep_load), 5, 40);
}

/* A step whose metadata nobody took in plans nothing that could not be undone. */
static void a_step_that_was_never_begun_is_taken_back(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct tarn_bytes metadata;
    uint32_t pending = 7;
    tarn_page list[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    const tarn_page *const both[] = { list, list };
    struct tarn_step_request part = {
        .id = 1, .pages = both, .block_count = 12, .scheduled_tokens = 40
    };
    struct tarn_step one = { sizeof(one), ++first.step_number, &part, 1, 0 };
    assert_int_equal(lookup(&first, 1, 48, 0, &offer), TARN_MISS);
    assert_int_equal(first.ops->step(first.connector, &one, &metadata), TARN_OK);
    one.number = ++first.step_number;
    part.computed_tokens = 40;
    part.scheduled_tokens = 8;
    assert_int_equal(first.ops->step(first.connector, &one, &metadata), TARN_OK);
    assert_int_equal(first.ops->load_start(first.connector, metadata), TARN_OK);
    forward(&first, TARN_OK);
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 24); /* both steps' blocks, each once */
    one.number = ++first.step_number;
    part.computed_tokens = 48;
    part.scheduled_tokens = 4;
    part.tokens = tokens + 48;
    part.token_count = 4;
    part.block_count = 0;
    assert_int_equal(first.ops->step(first.connector, &one, &metadata), TARN_OK);
    assert_int_equal(first.ops->finished(first.connector, 1, &pending), TARN_OK);
    assert_int_equal(pending, 0);
    assert_int_equal(first.ops->load_start(first.connector, metadata), TARN_STALE);
}

/* Whatever holds of pages that move in place holds of pages that pass through slots. */
#define RIG_CASE(name, title, set)                                                                 \
    {                                                                                              \
        title, name, set, teardown, NULL                                                           \
    }
#define RIG_TEST(name) RIG_CASE(name, #name, setup), RIG_CASE(name, #name " (staged)", setup_staged)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(what_one_engine_saved_another_loads),
        RIG_TEST(a_hit_needs_all_groups),
        RIG_TEST(the_first_gap_ends_a_lookup),
        RIG_TEST(pages_that_exist_are_skipped),
        RIG_TEST(a_late_answer_to_a_lookup_is_a_miss),
        RIG_TEST(what_is_not_asked_is_counted_by_reason),
        RIG_TEST(a_load_that_fails_at_page_k_leaves_exactly_k_blocks),
        RIG_TEST(a_short_load_discards_the_saves_of_its_step),
        RIG_TEST(saves_wait_for_the_verdict),
        RIG_TEST(a_forward_pass_that_failed_saves_nothing),
        RIG_TEST(a_page_under_a_save_is_reported_until_it_is_written),
        RIG_TEST(a_load_past_its_deadline_keeps_its_pages_until_it_returns),
        RIG_TEST(a_request_that_ends_under_its_load_lets_go_of_everything),
        RIG_TEST(a_damaged_page_is_removed_and_saved_again),
        RIG_TEST(a_page_stored_for_other_tokens_is_not_used_when_they_are_compared),
        RIG_TEST(a_key_whose_get_failed_is_absent_for_a_while),
        RIG_TEST(saves_past_a_limit_are_dropped_and_made_up_for),
        RIG_TEST(after_a_failed_save_the_rest_of_the_chain_waits),
        RIG_TEST(a_step_loads_no_more_than_its_bytes_and_the_rest_follows),
        RIG_TEST(quiesce_drops_what_was_not_begun),
        RIG_TEST(close_waits_for_a_transfer_and_may_be_called_again),
        RIG_TEST(close_with_an_offer_and_a_load_gives_everything_back),
        RIG_TEST(a_second_registration_is_refused),
        RIG_TEST(calls_before_registration_are_refused),
        RIG_TEST(a_metadata_message_from_elsewhere_is_refused),
        RIG_TEST(handles_are_limited_and_say_so),
        RIG_TEST(another_abi_version_is_not_spoken),
        RIG_TEST(open_to_close_survives_failed_allocations),
        RIG_TEST(a_load_survives_failed_allocations),
        RIG_TEST(a_step_that_was_never_begun_is_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
