/* SPDX-License-Identifier: Apache-2.0 */
#include "os/queue.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fault.h"
#include "os/clock.h"
#include "os/thread.h"
#include "os/wakeup.h"

static void items_come_out_in_order_and_no_more_fit_than_the_capacity(void **state)
{
    (void)state;
    struct queue queue;
    uint32_t out[4];
    size_t count = 0;
    assert_int_equal(queue_init(&queue, sizeof(uint32_t), 3), TARN_OK);
    assert_int_equal(queue_take(&queue, out, 4, &count), TARN_AGAIN);
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(queue_push(&queue, &i), TARN_OK);
        assert_int_equal(queue_push(&queue, &round), TARN_NO_SPACE);
        assert_int_equal(queue_count(&queue), 3);
        assert_int_equal(queue_take(&queue, out, 2, &count), TARN_OK);
        assert_int_equal(count, 2);
        assert_int_equal(out[1], 1);
        assert_int_equal(queue_wait(&queue, out, 4, &count), TARN_OK);
        assert_int_equal(count, 1);
        assert_int_equal(out[0], 2);
    }
    queue_deinit(&queue);
    queue_deinit(NULL);
}

static void several_items_go_in_together_or_not_at_all(void **state)
{
    (void)state;
    struct queue queue;
    const uint32_t in[] = { 1, 2, 3 };
    uint32_t out[4];
    size_t count = 0;
    assert_int_equal(queue_init(&queue, sizeof(uint32_t), 4), TARN_OK);
    for (int round = 0; round < 5; round++) {
        assert_int_equal(queue_push_all(&queue, in, 3), TARN_OK);
        assert_int_equal(queue_push_all(&queue, in, 2), TARN_NO_SPACE);
        assert_int_equal(queue_take(&queue, out, 4, &count), TARN_OK);
        assert_int_equal(count, 3);
        assert_memory_equal(out, in, sizeof(in));
    }
    queue_deinit(&queue);
}

static void a_closed_queue_gives_what_it_has_and_takes_nothing(void **state)
{
    (void)state;
    struct queue queue;
    uint32_t item = 7;
    size_t count = 0;
    assert_int_equal(queue_init(&queue, sizeof(item), 3), TARN_OK);
    assert_int_equal(queue_push(&queue, &item), TARN_OK);
    queue_close(&queue);
    assert_int_equal(queue_push(&queue, &item), TARN_STALE);
    assert_int_equal(queue_wait(&queue, &item, 1, &count), TARN_OK);
    assert_int_equal(queue_wait(&queue, &item, 1, &count), TARN_STALE);
    queue_deinit(&queue);
}

struct adder {
    struct queue in;
    struct queue out;
    struct wakeup wakeup;
};

static void add_until_closed(void *context)
{
    struct adder *adder = context;
    uint64_t items[8];
    uint64_t sum = 0;
    size_t count = 0;
    while (queue_wait(&adder->in, items, 8, &count) == TARN_OK) {
        for (size_t i = 0; i < count; i++)
            sum += items[i];
    }
    const enum tarn_status status = queue_push(&adder->out, &sum);
    ASSERT(status == TARN_OK);
    wakeup_signal(&adder->wakeup);
}

static void two_threads_exchange_items(void **state)
{
    (void)state;
    struct adder adder;
    struct thread thread = { 0 };
    uint64_t sum = 0;
    size_t count = 0;
    assert_int_equal(queue_init(&adder.in, sizeof(uint64_t), 16), TARN_OK);
    assert_int_equal(queue_init(&adder.out, sizeof(uint64_t), 1), TARN_OK);
    assert_int_equal(wakeup_init(&adder.wakeup), TARN_OK);
    assert_int_equal(thread_start(&thread, "adder", add_until_closed, &adder), TARN_OK);
    for (uint64_t i = 1; i <= 10000; i++) {
        while (queue_push(&adder.in, &i) == TARN_NO_SPACE)
            ;
    }
    queue_close(&adder.in);
    wakeup_wait(&adder.wakeup, UINT64_MAX);
    assert_int_equal(queue_take(&adder.out, &sum, 1, &count), TARN_OK);
    assert_int_equal(sum, 10000 * 10001 / 2);
    thread_join(&thread);
    thread_join(&thread);
    queue_deinit(&adder.in);
    queue_deinit(&adder.out);
    wakeup_deinit(&adder.wakeup);
}

static void a_wakeup_polls_readable_from_signal_to_clear(void **state)
{
    (void)state;
    struct wakeup wakeup;
    assert_int_equal(wakeup_init(&wakeup), TARN_OK);
    struct pollfd poll_fd = { .fd = wakeup.fd, .events = POLLIN };
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    wakeup_signal(&wakeup);
    wakeup_signal(&wakeup);
    assert_int_equal(poll(&poll_fd, 1, 0), 1);
    wakeup_wait(&wakeup, UINT64_MAX);
    wakeup_clear(&wakeup);
    wakeup_clear(&wakeup);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    wakeup_wait(&wakeup, clock_now_ns() + NS_PER_MS);
    wakeup_deinit(&wakeup);
}

static enum tarn_status make_a_queue(void)
{
    struct queue queue;
    TRY(queue_init(&queue, 8, 8));
    queue_deinit(&queue);
    return TARN_OK;
}

static void queues_survive_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(make_a_queue), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_order_and_no_more_fit_than_the_capacity),
        cmocka_unit_test(several_items_go_in_together_or_not_at_all),
        cmocka_unit_test(a_closed_queue_gives_what_it_has_and_takes_nothing),
        cmocka_unit_test(two_threads_exchange_items),
        cmocka_unit_test(a_wakeup_polls_readable_from_signal_to_clear),
        cmocka_unit_test(queues_survive_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
