/* SPDX-License-Identifier: Apache-2.0 */
/* A store that does not answer: what it costs, and how it is asked again. */
#include "lib/rig.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "connector/canary.h"
#include "obs/metric.h"
#include "os/clock.h"

static const struct store_traits remote = { .is_beyond_host = true,
                                            .must_register = true,
                                            .headroom_bytes = 64 };

static int setup_remote(void **state)
{
    if (setup(state) != 0)
        return -1;
    traits = remote;
    reopen();
    return 0;
}

/* Look up until it is a hit; false after 25 s. */
static bool becomes_hit(struct rig *rig, uint64_t id, size_t token_count)
{
    struct tarn_offer offer;
    const uint64_t end_ns = clock_now_ns() + 25 * NS_PER_S;
    while (clock_now_ns() < end_ns) {
        if (lookup(rig, id, token_count, 0, &offer) == TARN_OK)
            return true;
        poll(NULL, 0, 10);
    }
    return false;
}

/* A probe is given up at its deadline; its late answer is discarded, with its lease. */
static void a_probe_that_does_not_return_is_given_up(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.lookup_deadline_ms = 500;
    reopen();
    save_prompt(&first, 1, 8);
    fake_store_hold(second.store, FAKE_LOOKUP, true);
    assert_int_equal(lookup(&second, 1, 33, 0, &offer), TARN_MISS); /* and returns */
    assert_int_equal(metric_get(METRIC_PROBE_LATE), 1);
    assert_true(fake_store_is_held(second.store, FAKE_LOOKUP));
    /* While it is out nothing else is asked, and nothing waits. */
    assert_int_equal(lookup(&second, 2, 33, 0, &offer), TARN_MISS);
    assert_int_equal(metric_get(METRIC_PROBE_LATE), 2);
    assert_int_equal(fake_store_batches(second.store, FAKE_LOOKUP), 1);
    assert_int_equal(second.ops->close(second.connector, 1), TARN_AGAIN);
    fake_store_hold(second.store, FAKE_LOOKUP, false);
    assert_true(becomes_hit(&second, 1, 33));
    assert_int_equal(fake_store_leases(second.store), 1); /* of the answer that was in time */
}

static void a_store_that_fails_three_times_is_left_alone_until_a_canary_comes_back(void **state)
{
    (void)state;
    struct tarn_offer offer;
    save_prompt(&first, 1, 8);
    fake_store_fail(second.store, FAKE_LOOKUP, 0, SIZE_MAX, TARN_IO);
    fake_store_fail(second.store, FAKE_PUT, 0, SIZE_MAX, TARN_IO); /* the canary, too */
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
        assert_int_equal(lookup(&second, id, 33, 0, &offer), TARN_MISS);
    }
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 1);
    assert_int_equal(metric_get(METRIC_STORE_OUTAGES), 1);
    assert_int_equal(metric_get(METRIC_PROBE_FAILED), 3);
    const size_t asked = fake_store_batches(second.store, FAKE_LOOKUP);
    assert_int_equal(lookup(&second, 4, 33, 0, &offer), TARN_MISS);
    assert_true(metric_get(METRIC_DECLINED_STORE_DOWN) >= 1);
    assert_int_equal(fake_store_batches(second.store, FAKE_LOOKUP), asked);

    /* It computes, and plans no saves that would wait for the store. */
    const size_t puts = fake_store_calls(second.store, FAKE_PUT);
    step(&second, (struct tarn_step_request){ .id = 4, .scheduled_tokens = 33 }, 0);
    forward(&second, TARN_OK);
    settle(&second);
    assert_int_equal(second.started[TARN_TRANSFER_SAVE], 0);
    assert_in_range(fake_store_calls(second.store, FAKE_PUT), puts, puts + 1);

    /* Lookups would work; puts do not, which the canary finds. */
    fake_store_fail(second.store, FAKE_LOOKUP, 0, 0, TARN_OK);
    while (fake_store_calls(second.store, FAKE_PUT) == 0) {
        assert_int_equal(lookup(&second, 5, 33, 0, &offer), TARN_MISS);
        poll(NULL, 0, 10);
    }
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 1);
    fake_store_fail(second.store, FAKE_PUT, 0, 0, TARN_OK);
    assert_true(becomes_hit(&second, 6, 33));
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
    assert_int_equal(metric_get(METRIC_STORE_OUTAGES), 1);
    assert_int_equal(fake_pages_count(pages), 16); /* the canary's page was removed */
}

/* Nothing can be loaded while the call is out: one request waits for its deadline, and no other
 * one does; nor is a canary sent that would say all is well. */
static void a_load_that_does_not_return_takes_the_store_down_until_it_does(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.load_deadline_ms = 200;
    reopen();
    save_prompt(&first, 1, 4);
    fake_store_hold(second.store, FAKE_GET, true);
    assert_int_equal(lookup(&second, 1, 17, 0, &offer), TARN_OK);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
    assert_int_equal(verdict(&second).block_count, 0);
    transfers(&second);
    assert_int_equal(metric_get(METRIC_LOAD_FAILED_DEADLINE), 8);
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 1);
    const size_t puts = fake_store_calls(second.store, FAKE_PUT);
    const uint64_t end_ns = clock_now_ns() + 3 * NS_PER_S / 2; /* longer than the first pause */
    while (clock_now_ns() < end_ns) {
        assert_int_equal(lookup(&second, 2, 17, 0, &offer), TARN_MISS);
        poll(NULL, 0, 10);
    }
    assert_int_equal(fake_store_calls(second.store, FAKE_PUT), puts);
    assert_int_equal(metric_get(METRIC_STORE_OUTAGES), 1);
    fake_store_hold(second.store, FAKE_GET, false);
    assert_true(becomes_hit(&second, 5, 17)); /* the canary is put and got */
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
}

/* Pressure is not an outage: saves back off, and the store is asked on. */
static void a_full_store_is_not_down(void **state)
{
    (void)state;
    struct tarn_offer offer;
    fake_store_fail(first.store, FAKE_PUT, 0, SIZE_MAX, TARN_NO_SPACE);
    for (uint64_t id = 1; id <= 4; id++) {
        assert_int_equal(lookup(&first, id, 16, 0, &offer), TARN_MISS);
        step(&first, (struct tarn_step_request){ .id = id, .scheduled_tokens = 16 }, 0);
        forward(&first, TARN_OK);
        settle(&first);
        finish(&first, id);
    }
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_FULL), 8); /* of one request: then a pause */
    assert_int_equal(fake_store_batches(first.store, FAKE_PUT), 1);
}

/* A call of many pages that fails is one failure; three take the store down, and what waits behind
 * them is dropped, not tried. */
static void puts_that_fail_count_once_a_call(void **state)
{
    (void)state;
    struct tarn_offer offer;
    options.transfer_batch_size = 2; /* a block */
    reopen();
    fake_store_fail(first.store, FAKE_PUT, 0, SIZE_MAX, TARN_IO);
    fake_store_hold(first.store, FAKE_PUT, true);
    for (uint64_t id = 1; id <= 8; id++) { /* chains of their own: each is tried */
        assert_int_equal(lookup(&first, id, 4, 0, &offer), TARN_MISS);
        step(&first, (struct tarn_step_request){ .id = id, .scheduled_tokens = 4 }, 4 * id);
        forward(&first, TARN_OK);
    }
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 0);
    fake_store_hold(first.store, FAKE_PUT, false);
    settle(&first);
    assert_int_equal(metric_get(METRIC_STORE_DOWN), 1);
    assert_int_equal(metric_get(METRIC_STORE_OUTAGES), 1);
    for (uint64_t id = 1; id <= 8; id++)
        finish(&first, id);
}

static void the_canary_says_which_step_failed(void **state)
{
    (void)state;
    struct canary canary;
    const struct {
        enum fake_call call;
        enum tarn_status status;
        const char *step;
    } rows[] = { { FAKE_PUT, TARN_IO, "put" },
                 { FAKE_GET, TARN_IO, "get" },
                 { FAKE_GET, TARN_CORRUPT, "get" } };
    assert_int_equal(canary_open(&canary, first.store, 0, true), TARN_OK);
    canary_try(&canary);
    assert_null(canary.failed_step);
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        fake_store_fail(first.store, rows[i].call, 0, 0, rows[i].status);
        canary_try(&canary);
        assert_string_equal(canary.failed_step, rows[i].step);
        assert_int_equal(canary.status, rows[i].status);
    }
    fake_store_fail(first.store, FAKE_PUT, 0, 0, TARN_NO_SPACE);
    canary_try(&canary);
    assert_null(canary.failed_step); /* full, but there */
    canary_close(&canary);
    assert_int_equal(canary_open(&canary, first.store, 0, false), TARN_OK);
    const size_t puts = fake_store_calls(first.store, FAKE_PUT);
    canary_try(&canary);
    assert_null(canary.failed_step);
    assert_int_equal(fake_store_calls(first.store, FAKE_PUT), puts);
    canary_close(&canary);
}

#define OUTAGE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_remote, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OUTAGE_TEST(a_probe_that_does_not_return_is_given_up),
        OUTAGE_TEST(a_store_that_fails_three_times_is_left_alone_until_a_canary_comes_back),
        OUTAGE_TEST(a_load_that_does_not_return_takes_the_store_down_until_it_does),
        OUTAGE_TEST(a_full_store_is_not_down),
        OUTAGE_TEST(puts_that_fail_count_once_a_call),
        OUTAGE_TEST(the_canary_says_which_step_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
