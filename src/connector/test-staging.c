/* SPDX-License-Identifier: Apache-2.0 */
/* Pages through staging slots, on devices, and to stores that ask for it. */
#include "lib/rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "connector/device.h"
#include "obs/metric.h"

enum { HOME = 5 }; /* the device that the pages lie on */

static char log_lines[1 << 16];

static void keep_line(void *context, enum log_level level, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)context;
    (void)level;
    pthread_mutex_lock(&lock);
    const size_t used = strlen(log_lines);
    (void)snprintf(log_lines + used, sizeof(log_lines) - used, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

static int setup_log(void **state)
{
    memset(log_lines, 0, sizeof(log_lines));
    log_set_sink(keep_line, NULL);
    return setup(state);
}

static int teardown_log(void **state)
{
    const int result = teardown(state);
    fake_device_destroy(device);
    device = NULL;
    log_set_sink(NULL, NULL);
    return result;
}

static void said(const char *text)
{
    if (!strstr(log_lines, text))
        fail_msg("not said: %s\nbut: %s", text, log_lines);
}

static const struct store_traits remote = { .is_beyond_host = true,
                                            .must_register = true,
                                            .headroom_bytes = 64 };

/* One engine's load of all that was saved, at slot 20: how many blocks came. */
static uint64_t load_blocks(struct rig *rig, uint64_t id, uint64_t block_count)
{
    struct tarn_offer offer;
    assert_int_equal(lookup(rig, id, block_count * T + 1, 0, &offer), TARN_OK);
    assert_int_equal(offer.token_count, block_count * T);
    step(rig, (struct tarn_step_request){ .id = id, .load = 1 }, 20);
    const uint64_t good = verdict(rig).block_count;
    settle(rig);
    return good;
}

/* ---- both ways are one ---- */

static void a_page_saved_one_way_loads_the_other_way(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(teardown(NULL), 0);
        pages = fake_pages_create();
        options.stage_through_host = round == 0 ? TARN_SETTING_OFF : TARN_SETTING_ON;
        assert_int_equal(rig_open(&first), TARN_OK);
        traits = (struct store_traits){ .is_beyond_host = true,
                                        .must_register = true,
                                        .is_contiguous_only = round == 0,
                                        .headroom_bytes = 64 };
        options.stage_through_host = round == 0 ? TARN_SETTING_ON : TARN_SETTING_OFF;
        assert_int_equal(rig_open(&second), TARN_OK);
        save_prompt(&first, 1, 8);
        assert_int_equal(load_blocks(&second, 2, 8), 8);
        for (uint64_t block = 0; block < 8; block++)
            assert_true(page_is(&second, 20 + block, block));
        finish(&second, 2);
        traits = (struct store_traits){ .range_bytes_max = 0 };
    }
}

/* How many of memory[1]'s first slots the store has written its header before. */
static size_t headers_written(const struct rig *rig)
{
    size_t count = 0;
    while (rig->memory[1][count * (SIZE_C + rig->headroom_bytes)] == 0xdd)
        count++;
    return count;
}

/* Saved from where they lie, each as one buffer with the store's header in front; the same bytes
 * under the same key as without room for it. */
static void a_page_with_headroom_moves_in_place_as_one_buffer(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(teardown(NULL), 0);
        memset(log_lines, 0, sizeof(log_lines));
        pages = fake_pages_create();
        traits = remote;
        traits.is_contiguous_only = round == 0; /* which is not staged for that alone now */
        rig_is_single = true;
        rig_headroom_bytes = 64;
        assert_int_equal(rig_open(&first), TARN_OK);
        said("the pool's store was told of the pages' memory: 1 range");
        if (strstr(log_lines, "saves are staged"))
            fail_msg("%s", log_lines);
        rig_headroom_bytes = round == 0 ? 64 : 0;
        assert_int_equal(rig_open(&second), TARN_OK);
        save_prompt(&first, 1, 8);
        assert_int_equal(fake_pages_count(pages), 8);
        assert_int_equal(headers_written(&first), 8);
        assert_int_equal(load_blocks(&second, 2, 8), 8); /* through slots: none is written late */
        for (uint64_t block = 0; block < 8; block++)
            assert_true(page_is(&second, 20 + block, block));
        finish(&second, 2);
        traits = (struct store_traits){ .range_bytes_max = 0 };
    }
}

/* Too little of it, pages that are stored with something behind them: as if there were none. */
static void headroom_that_is_of_no_use_is_left_alone(void **state)
{
    (void)state;
    rig_is_single = true;
    rig_headroom_bytes = 32;
    traits = remote;
    reopen();
    said("the layout's headroom_bytes is 32, below the 64 that this store's header takes: pages "
         "move as if there were none");
    save_prompt(&first, 1, 8);
    assert_int_equal(headers_written(&first), 0);
    assert_int_equal(load_blocks(&second, 2, 8), 8);
    finish(&second, 2);

    rig_headroom_bytes = 64;
    options.verify_tokens = TARN_SETTING_ON;
    traits = (struct store_traits){ .is_beyond_host = true, .headroom_bytes = 64 };
    reopen();
    save_prompt(&first, 1, 8);
    assert_int_equal(headers_written(&first), 0);
    assert_int_equal(load_blocks(&second, 2, 8), 8);
    finish(&second, 2);
}

/* Five pages through two slots. */
static void a_narrow_pool_makes_batches_of_two_two_and_one(void **state)
{
    (void)state;
    const size_t sizes[] = { 2, 2, 1 };
    options.stage_through_host = TARN_SETTING_ON;
    options.staging_buffer_bytes = 2 * 64;
    rig_groups = 1;
    reopen();
    said("staging_buffer of 128 bytes holds 2 pages of up to 64 bytes: batches of loads are "
         "narrowed from 64 pages to that");
    said("batches of saves are narrowed from 64 pages to that");
    save_prompt(&first, 1, 5);
    assert_int_equal(load_blocks(&second, 2, 5), 5);
    assert_int_equal(fake_store_batches(first.store, FAKE_PUT), 3);
    assert_int_equal(fake_store_batches(second.store, FAKE_GET), 3);
    for (size_t i = 0; i < LENGTH_OF(sizes); i++) {
        assert_int_equal(fake_store_batch(first.store, FAKE_PUT, i), sizes[i]);
        assert_int_equal(fake_store_batch(second.store, FAKE_GET, i), sizes[i]);
    }
    finish(&second, 2);
}

/* Row 11 and 12: what follows a failed page is in the slots, but goes nowhere. */
static void a_failed_load_is_never_scattered_past_its_failure(void **state)
{
    (void)state;
    struct tarn_offer offer;
    const enum tarn_status causes[] = { TARN_MISS, TARN_IO, TARN_CORRUPT };
    options.stage_through_host = TARN_SETTING_ON;
    for (size_t i = 0; i < LENGTH_OF(causes); i++) {
        for (uint32_t batch = 2; batch <= 64; batch += 31) { /* one batch, several, all in one */
            options.transfer_batch_size = batch;
            reopen();
            save_prompt(&first, 1, 10);
            for (uint64_t slot = 20; slot < 30; slot++)
                page_fill(&second, slot, 77);
            assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
            /* the second group's page of block 4 */
            fake_store_fail(second.store, FAKE_GET, 9, 9, causes[i]);
            step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
            assert_int_equal(verdict(&second).block_count, 4);
            settle(&second);
            for (uint64_t block = 0; block < 4; block++)
                assert_true(page_is(&second, 20 + block, block));
            for (uint64_t block = 5; block < 10; block++)
                assert_true(page_is(&second, 20 + block, 77));
            finish(&second, 1);
        }
    }
}

/* ---- late transfers ---- */

/* Row 16. The call can write into slots alone: at the deadline the pages are free at once, are used
 * for something else, and what comes late goes nowhere. */
static void a_staged_load_that_returns_late_leaves_its_pages_alone(void **state)
{
    (void)state;
    struct tarn_offer offer;
    traits = remote;
    options.load_deadline_ms = 30;
    reopen();
    save_prompt(&first, 1, 10);
    assert_int_equal(lookup(&second, 1, 41, 0, &offer), TARN_OK);
    fake_store_hold(second.store, FAKE_GET, true);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_true(fake_store_is_held(second.store, FAKE_GET));
    const struct tarn_loaded loaded = verdict(&second);
    assert_int_equal(loaded.block_count, 0);
    assert_int_equal(loaded.asked_count, 10);
    transfers(&second);
    assert_int_equal(second.started[TARN_TRANSFER_LOAD], 20);
    assert_int_equal(second.retired[TARN_TRANSFER_LOAD], 20); /* the call is still out */
    assert_int_equal(metric_get(METRIC_PAGES_ABANDONED), 0);
    for (uint64_t slot = 20; slot < 30; slot++)
        page_fill(&second, slot, 77);
    fake_store_hold(second.store, FAKE_GET, false);
    finish(&second, 1);
    assert_int_equal(second.ops->close(second.connector, WAIT_MS), TARN_OK); /* it came back */
    for (uint64_t slot = 20; slot < 30; slot++)
        assert_true(page_is(&second, slot, 77));
    assert_int_equal(metric_get(METRIC_LOAD_PAGES), 0);
}

/* A store that may write late into memory of a call that has returned and failed: whether a slot is
 * still what was verified is asked after it was copied, and loads are staged whatever was set. */
static void a_page_whose_slot_was_written_late_is_not_loaded(void **state)
{
    (void)state;
    traits = remote;
    traits.writes_late = true;
    options.stage_through_host = TARN_SETTING_OFF;
    reopen();
    said("stage_through_host is off, but loads are staged all the same");
    save_prompt(&first, 1, 10);
    fake_store_write_late(second.store, 9); /* the second group's page of block 4 */
    assert_int_equal(load_blocks(&second, 1, 10), 4);
    assert_int_equal(metric_get(METRIC_LOAD_FAILED_STORE), 1);
    finish(&second, 1);
}

/* Slots stay until the call that may write into them has returned. */
static void close_waits_for_a_call_that_may_write_into_a_slot(void **state)
{
    (void)state;
    struct tarn_offer offer;
    traits = remote;
    options.load_deadline_ms = 30;
    reopen();
    save_prompt(&first, 1, 4);
    assert_int_equal(lookup(&second, 1, 17, 0, &offer), TARN_OK);
    fake_store_hold(second.store, FAKE_GET, true);
    step(&second, (struct tarn_step_request){ .id = 1, .load = 1 }, 20);
    assert_int_equal(verdict(&second).block_count, 0);
    assert_int_equal(second.ops->close(second.connector, 1), TARN_AGAIN);
    assert_true(fake_store_registered(second.store) > 0);
    fake_store_hold(second.store, FAKE_GET, false);
    assert_int_equal(second.ops->close(second.connector, WAIT_MS), TARN_OK);
}

/* ---- saves that are copied first ---- */

static void when_pages_are_short_a_save_pins_them_for_a_copy_only(void **state)
{
    (void)state;
    for (uint32_t is_short = 0; is_short < 2; is_short++) {
        struct tarn_offer offer;
        uint32_t pending = 7;
        uint64_t ids[2];
        size_t count = 0;
        const uint64_t id = 1;
        traits = remote;
        reopen();
        fake_store_hold(first.store, FAKE_PUT, true);
        assert_int_equal(lookup(&first, 1, 16, 0, &offer), TARN_MISS);
        rig_pages_short = is_short;
        step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 16 }, 0);
        for (uint64_t block = 0; block < 4; block++)
            page_fill(&first, block, block);
        forward(&first, TARN_OK);
        assert_true(fake_store_is_held(first.store, FAKE_PUT));
        transfers(&first);
        assert_int_equal(first.started[TARN_TRANSFER_SAVE], 8);
        assert_int_equal(first.retired[TARN_TRANSFER_SAVE], is_short ? 8 : 0);
        if (is_short) { /* the pages are others', and the request is over */
            for (uint64_t block = 0; block < 4; block++)
                page_fill(&first, block, 77);
            assert_int_equal(first.ops->quiesce(first.connector, &id, 1, 0), TARN_OK);
            assert_int_equal(first.ops->finished(first.connector, 1, &pending), TARN_OK);
            assert_int_equal(pending, 0);
        }
        fake_store_hold(first.store, FAKE_PUT, false);
        settle(&first);
        assert_int_equal(fake_pages_count(pages), 8);
        assert_int_equal(metric_get(METRIC_SAVE_PAGES), 8);
        if (!is_short)
            finish(&first, 1);
        assert_int_equal(first.ops->retired(first.connector, ids, 2, &count), TARN_OK);
        assert_int_equal(count, 0);
        assert_int_equal(load_blocks(&second, 2, 4), 4);
        for (uint64_t block = 0; block < 4; block++)
            assert_true(page_is(&second, 20 + block, block));
        finish(&second, 2);
    }
}

/* ---- registration ---- */

static void page_memory_is_registered_once_in_ranges_of_the_stores_size(void **state)
{
    (void)state;
    traits = (struct store_traits){ .must_register = true, .range_bytes_max = 1000 };
    options.stage_through_host = TARN_SETTING_OFF;
    options.pinned_bytes_max = 1 << 20;
    reopen();
    /* Group 0: 63 * 40 + 36 bytes, its regions interleave; group 1: 64 * 48; in 1 000 bytes each.
     * And what lies across two ranges goes through 64 slots of 64 bytes for each direction. */
    assert_int_equal(fake_store_registered(first.store), 3 + 4 + 5 + 5);
    save_prompt(&first, 1, 40);
    assert_int_equal(fake_pages_count(pages), 80);
    struct tarn_offer offer;
    assert_int_equal(lookup(&second, 2, 40 * T, 0, &offer), TARN_OK);
    step(&second, (struct tarn_step_request){ .id = 2, .load = 1 }, 0);
    assert_int_equal(verdict(&second).block_count, 39);
    settle(&second);
    for (uint64_t block = 0; block < 39; block++)
        assert_true(page_is(&second, block, block));
    finish(&second, 2);
}

/* Row 29. */
static void memory_that_cannot_be_registered_is_staged_and_that_is_said(void **state)
{
    (void)state;
    traits = (struct store_traits){ .must_register = true, .range_bytes_max = 4096 };
    rig_register_status = TARN_NO_SPACE; /* the second range */
    reopen();
    said("the store took 1 of 2 ranges of the pages' memory (pool is full and nothing can be "
         "evicted): all pages are staged through host memory instead");
    assert_int_equal(fake_store_registered(first.store), 2); /* the slots' */
    save_prompt(&first, 1, 8);
    assert_int_equal(load_blocks(&second, 2, 8), 8);
    finish(&second, 2);

    options.stage_through_host = TARN_SETTING_OFF;
    struct rig third;
    assert_int_equal(rig_open(&third), TARN_UNSUPPORTED);
    said("and stage_through_host is off: set it to auto");
    assert_int_equal(third.ops->close(third.connector, 0), TARN_OK);
    rig_free(&third);
}

static void off_is_refused_where_pages_cannot_move_in_place(void **state)
{
    (void)state;
    struct rig third;
    const struct {
        bool on_device;
        struct store_traits traits;
        uint32_t verify_tokens;
        const char *why;
    } rows[] = {
        { true, { .range_bytes_max = 0 }, 0, "the CPU cannot read the pages' memory" },
        { false, { .is_contiguous_only = true }, 0, "the store moves one buffer a page" },
        { false, { .must_register = true }, TARN_SETTING_ON, "verify_tokens stores more than" },
    };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        device = rows[i].on_device ? fake_device_create(HOME) : NULL;
        traits = rows[i].traits;
        options.verify_tokens = rows[i].verify_tokens;
        options.stage_through_host = TARN_SETTING_OFF;
        assert_int_equal(rig_open(&third), TARN_UNSUPPORTED);
        said("stage_through_host is off, but pages cannot be moved in place: ");
        said(rows[i].why);
        assert_int_equal(third.ops->close(third.connector, 0), TARN_OK);
        options.stage_through_host = TARN_SETTING_UNSET;
        rig_free(&third);
        assert_int_equal(rig_open(&third), TARN_OK);
        assert_int_equal(third.ops->close(third.connector, 0), TARN_OK);
        rig_free(&third);
        fake_device_destroy(TAKE(device));
    }
}

static void pools_are_for_the_directions_that_the_role_uses(void **state)
{
    (void)state;
    const struct {
        uint32_t role;
        size_t registered; /* with the canary's memory, of whoever saves */
    } rows[] = { { TARN_ROLE_BOTH, 3 }, { TARN_ROLE_PRODUCER, 2 }, { TARN_ROLE_CONSUMER, 1 } };
    options.stage_through_host = TARN_SETTING_ON;
    traits = remote;
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        options.role = rows[i].role;
        reopen();
        assert_int_equal(fake_store_registered(first.store), rows[i].registered);
    }
}

/* ---- devices ---- */

static void reopen_on_device(void)
{
    device = fake_device_create(HOME);
    reopen();
}

/* Row 30: a new thread's current device is 0. The double ends the test if a copy is begun there. */
static void transfer_threads_adopt_the_device_captured_at_registration(void **state)
{
    (void)state;
    reopen_on_device();
    save_prompt(&first, 1, 8);
    assert_int_equal(load_blocks(&second, 2, 8), 8);
    for (uint64_t block = 0; block < 8; block++)
        assert_true(page_is(&second, 20 + block, block));
    finish(&second, 2);
    assert_int_equal(fake_device_copies(device), 2 * 8 * 3); /* three regions a block */
}

static void a_device_that_no_thread_can_adopt_is_refused(void **state)
{
    (void)state;
    struct rig third;
    device = fake_device_create(HOME);
    fake_device_fail_set(device, true);
    assert_int_equal(rig_open(&third), TARN_IO);
    said("a transfer thread cannot work on fake device 5");
    assert_int_equal(third.ops->close(third.connector, 0), TARN_OK);
    rig_free(&third);
}

static void a_device_without_a_function_is_refused(void **state)
{
    (void)state;
    struct tarn_device table;
    struct device captured;
    device = fake_device_create(HOME);
    table = *fake_device_table(device);
    table.event_wait = NULL;
    assert_int_equal(device_init(&captured, &table), TARN_INVALID);
    said("the layout's device fake device lacks a function");
    assert_int_equal(device_init(&captured, NULL), TARN_OK);
    assert_true(device_is_host(&captured) && device_has_cpu_access(&captured));
}

/* Saves wait for the event of their step, however late. */
static void saves_wait_for_an_event_that_completes_late(void **state)
{
    (void)state;
    struct tarn_offer offer;
    reopen_on_device();
    struct fake_event *event = fake_event_create(device);
    fake_event_record(event);
    assert_int_equal(lookup(&first, 1, 16, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 16 }, 0);
    assert_int_equal(first.ops->forward_done(first.connector, first.step_number, TARN_OK, event),
                     TARN_OK);
    assert_true(fake_event_is_awaited(event));
    assert_int_equal(fake_device_copies(device), 0);
    for (uint64_t block = 0; block < 4; block++) /* the pass itself comes late */
        page_fill(&first, block, block);
    fake_event_complete(event, TARN_OK);
    settle(&first);
    finish(&first, 1);
    assert_int_equal(load_blocks(&second, 2, 4), 4);
    for (uint64_t block = 0; block < 4; block++)
        assert_true(page_is(&second, 20 + block, block));
    finish(&second, 2);
}

static void an_event_that_failed_or_never_was_retires_its_saves_unwritten(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct tarn_offer offer;
        reopen_on_device();
        struct fake_event *event = fake_event_create(device);
        if (round == 0)
            fake_event_complete(event, TARN_IO);
        assert_int_equal(lookup(&first, 1, 16, 0, &offer), TARN_MISS);
        step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 16 }, 0);
        assert_int_equal(
            first.ops->forward_done(first.connector, first.step_number, TARN_OK, event), TARN_OK);
        settle(&first);
        assert_int_equal(first.started[TARN_TRANSFER_SAVE], 8);
        assert_int_equal(fake_pages_count(pages), 0);
        assert_int_equal(metric_get(METRIC_SAVE_FAILED_FORWARD), 1);
        assert_int_equal(metric_get(METRIC_SAVE_FAILED_GAP), 7);
        said("the event of a forward pass failed");
        finish(&first, 1);
        assert_int_equal(teardown(NULL), 0);
        fake_device_destroy(TAKE(device));
        assert_int_equal(setup(NULL), 0);
    }
}

/* A copy that fails costs its page, and says all there is to know of it. */
static void a_copy_that_fails_says_which_it_was(void **state)
{
    (void)state;
    struct tarn_offer offer;
    reopen_on_device();
    fake_device_fail_copies(device, 4); /* of block 1: group 0's second region */
    assert_int_equal(lookup(&first, 1, 16, 0, &offer), TARN_MISS);
    step(&first, (struct tarn_step_request){ .id = 1, .scheduled_tokens = 16 }, 0);
    forward(&first, TARN_OK);
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 2);
    assert_int_equal(metric_get(METRIC_SAVE_FAILED_STORE), 1);
    said("fake device: a copy device to host failed: input/output error (destination 0x");
    said(", source 0x4000");
    said(" 8 bytes, stream 0x");
    said("current device 5, pages on 5)");
    finish(&first, 1);
    fake_device_fail_copies(device, SIZE_MAX);
    fake_pages_drop(pages, &digests[0], "");
    save_prompt(&second, 2, 4);

    fake_device_fail_copies(device, 7); /* of block 2, its second region */
    assert_int_equal(load_blocks(&second, 3, 4), 2);
    for (uint64_t block = 0; block < 2; block++)
        assert_true(page_is(&second, 20 + block, block));
    finish(&second, 3);
}

static void copies_that_cannot_be_waited_for_count_as_failed(void **state)
{
    (void)state;
    struct tarn_offer offer;
    reopen_on_device();
    save_prompt(&second, 1, 4);
    fake_device_fail_synchronise(device, true);
    assert_int_equal(lookup(&first, 1, 32, 16, &offer), TARN_MISS);
    step(&first,
         (struct tarn_step_request){ .id = 1, .computed_tokens = 16, .scheduled_tokens = 16 }, 0);
    forward(&first, TARN_OK);
    settle(&first);
    assert_int_equal(fake_pages_count(pages), 8);
    said("copies device to host failed");
    assert_int_equal(load_blocks(&first, 2, 4), 0);
    finish(&first, 1);
    finish(&first, 2);
}

#define STAGING_TEST(name) cmocka_unit_test_setup_teardown(name, setup_log, teardown_log)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGING_TEST(a_page_saved_one_way_loads_the_other_way),
        STAGING_TEST(a_page_with_headroom_moves_in_place_as_one_buffer),
        STAGING_TEST(headroom_that_is_of_no_use_is_left_alone),
        STAGING_TEST(a_narrow_pool_makes_batches_of_two_two_and_one),
        STAGING_TEST(a_failed_load_is_never_scattered_past_its_failure),
        STAGING_TEST(a_staged_load_that_returns_late_leaves_its_pages_alone),
        STAGING_TEST(a_page_whose_slot_was_written_late_is_not_loaded),
        STAGING_TEST(close_waits_for_a_call_that_may_write_into_a_slot),
        STAGING_TEST(when_pages_are_short_a_save_pins_them_for_a_copy_only),
        STAGING_TEST(page_memory_is_registered_once_in_ranges_of_the_stores_size),
        STAGING_TEST(memory_that_cannot_be_registered_is_staged_and_that_is_said),
        STAGING_TEST(off_is_refused_where_pages_cannot_move_in_place),
        STAGING_TEST(pools_are_for_the_directions_that_the_role_uses),
        STAGING_TEST(transfer_threads_adopt_the_device_captured_at_registration),
        STAGING_TEST(a_device_that_no_thread_can_adopt_is_refused),
        STAGING_TEST(a_device_without_a_function_is_refused),
        STAGING_TEST(saves_wait_for_an_event_that_completes_late),
        STAGING_TEST(an_event_that_failed_or_never_was_retires_its_saves_unwritten),
        STAGING_TEST(a_copy_that_fails_says_which_it_was),
        STAGING_TEST(copies_that_cannot_be_waited_for_count_as_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
