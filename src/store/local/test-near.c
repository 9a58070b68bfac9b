/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/clock.h"
#include "store/local/join.h"
#include "store/local/warm.h"

enum { PAGE_BYTES = 300001, POOL_MIB = 64, MANY = 1000, WAIT_S = 60 };

static char directory[64];
static char pool_path[96];
static uint8_t page[PAGE_BYTES];
static uint8_t copy[PAGE_BYTES];
static enum tarn_status (*real_write)(void *context, uint64_t offset, const struct tarn_span *spans,
                                      uint32_t count);
static uint32_t write_count;

static int directory_make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/dev/shm/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(pool_path, sizeof(pool_path), "%s/a.pool", directory);
    return 0;
}

static int directory_remove(void **state)
{
    (void)state;
    (void)unlink(pool_path);
    return rmdir(directory);
}

static struct store *pool_start(uint32_t *out_space)
{
    const struct pool_options options = { .path = pool_path, .size_bytes = POOL_MIB << 20 };
    struct store *store = NULL;
    assert_int_equal(pool_open(&options, &store), TARN_OK);
    assert_int_equal(store_namespace(store, "n", out_space), TARN_OK);
    return store;
}

static enum tarn_status counted_write(void *context, uint64_t offset, const struct tarn_span *spans,
                                      uint32_t count)
{
    write_count++;
    return real_write(context, offset, spans, count);
}

static void writes_count(struct store *store)
{
    struct pool_env *env = &pool_behind(store)->view.env;
    real_write = env->write;
    env->write = counted_write;
    write_count = 0;
}

static struct store_key key_of(uint32_t space, uint32_t number)
{
    struct store_key key = { .namespace_index = space, .depth = number };
    const uint64_t words[2] = { (number + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15), number };
    memcpy(key.digest.bytes, words, sizeof(words));
    return key;
}

static void page_make(uint8_t *bytes, uint32_t number)
{
    for (uint32_t i = 0; i < PAGE_BYTES; i += sizeof(uint64_t)) { /* bytes would be slow here */
        const uint64_t word = (i + UINT64_C(1)) * (number + 3) * UINT64_C(0x9e3779b97f4a7c15);
        const size_t left_bytes = PAGE_BYTES - i;
        memcpy(bytes + i, &word, left_bytes < sizeof(word) ? left_bytes : sizeof(word));
    }
}

/* Out of two pieces, neither of which is aligned. */
static enum tarn_status put(struct store *store, struct store_key key)
{
    page_make(page, key.depth);
    const struct tarn_span spans[] = { { page, 77777 }, { page + 77777, PAGE_BYTES - 77777 } };
    struct store_item item = { .key = key, .spans = spans, .span_count = 2 };
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    return item.status;
}

static enum tarn_status get(struct store *store, struct store_key key)
{
    const struct tarn_span span = { copy, PAGE_BYTES };
    struct store_item item = { .key = key, .spans = &span, .span_count = 1 };
    assert_int_equal(store_get(store, &item, 1), TARN_OK);
    if (item.status == TARN_OK) {
        page_make(page, key.depth);
        assert_memory_equal(copy, page, PAGE_BYTES);
    }
    return item.status;
}

static void pages_put(struct store *store, uint32_t space, uint32_t first)
{
    for (uint32_t i = first; i < first + MANY; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
}

static void over_used_memory_a_page_is_copied_in_place_and_comes_back(void **state)
{
    (void)state;
    uint32_t space;
    uint32_t found_count = 0;
    struct store *store = pool_start(&space);
    pages_put(store, space, 0); /* five times what fits: every slot was used */
    writes_count(store);
    pages_put(store, space, MANY);
    assert_int_equal(write_count, 0);
    for (uint32_t i = MANY; i < 2 * MANY; i++)
        found_count += get(store, key_of(space, i)) == TARN_OK;
    assert_in_range(found_count, 150, MANY - 1);
    store_close(store);
}

static void into_fresh_memory_a_page_is_written_by_the_kernel(void **state)
{
    (void)state;
    uint32_t space;
    struct store *store = pool_start(&space);
    writes_count(store);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
        assert_int_equal(get(store, key_of(space, i)), TARN_OK);
        assert_true(write_count > i);
    }
    store_close(store);
}

static bool open_nothing(void *context, uint64_t offset, uint64_t size_bytes)
{
    (void)context;
    (void)offset;
    (void)size_bytes;
    return false;
}

static void where_the_window_cannot_be_opened_the_kernel_writes(void **state)
{
    (void)state;
    uint32_t space;
    struct store *store = pool_start(&space);
    pool_behind(store)->view.env.window_open = open_nothing;
    pages_put(store, space, 0);
    writes_count(store);
    pages_put(store, space, MANY);
    assert_true(write_count >= MANY);
    assert_int_equal(get(store, key_of(space, 2 * MANY - 1)), TARN_OK);
    store_close(store);
}

static bool not_intact(void *context)
{
    (void)context;
    return false;
}

static void what_was_copied_into_a_broken_window_is_not_committed(void **state)
{
    (void)state;
    uint32_t space;
    bool is_present = true;
    struct store *store = pool_start(&space);
    pages_put(store, space, 0);
    struct pool_env *env = &pool_behind(store)->view.env;
    const struct pool_env before = *env;
    const struct store_key key = key_of(space, 2 * MANY);
    env->is_intact = not_intact;
    assert_int_equal(put(store, key), TARN_IO);
    env->is_intact = before.is_intact;
    assert_int_equal(store_exists(store, &key, 1, &is_present), TARN_OK);
    assert_false(is_present);
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(get(store, key), TARN_OK);
    store_close(store);
}

static uint64_t marks_count(const struct pool_view *view, _Atomic uint64_t *marks)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i <= view->geometry.frame_count / 64; i++)
        count += (uint64_t)__builtin_popcountll(atomic_load(&marks[i]));
    return count;
}

static uint64_t frames_used(const struct pool_view *view)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < view->geometry.frame_count; i++)
        count += shm_load(&view->frames[i]) != 0;
    return count;
}

static void flag_wait(_Atomic bool *flag)
{
    const uint64_t start_ns = clock_now_ns();
    const struct timespec pause = { .tv_nsec = (long)NS_PER_MS };
    while (!atomic_load(flag)) {
        assert_true(clock_now_ns() - start_ns < WAIT_S * NS_PER_S);
        (void)nanosleep(&pause, NULL);
    }
}

static void the_first_slot_used_again_opens_all_that_is_in_use(void **state)
{
    (void)state;
    uint32_t space;
    struct store *store = pool_start(&space);
    pages_put(store, space, 0);
    store_close(store);
    store = pool_start(&space);
    struct pool *pool = pool_behind(store);
    assert_int_equal(marks_count(&pool->view, pool->view.opened), 0);
    assert_int_equal(put(store, key_of(space, 2 * MANY)), TARN_OK);
    flag_wait(&pool->warm.has_opened);
    assert_int_equal(marks_count(&pool->view, pool->view.opened), frames_used(&pool->view));
    assert_int_equal(get(store, key_of(space, 2 * MANY)), TARN_OK);
    store_close(store);
}

static void what_is_in_use_is_mapped_soon_after_opening_without_a_read(void **state)
{
    (void)state;
    uint32_t space;
    struct store *store = pool_start(&space);
    for (uint32_t i = 0; i < 60; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
    store_close(store);
    store = pool_start(&space);
    struct pool *pool = pool_behind(store);
    flag_wait(&pool->warm.has_read);
    assert_true(frames_used(&pool->view) >= 9);
    assert_true(frames_used(&pool->view) < pool->view.geometry.frame_count);
    assert_int_equal(marks_count(&pool->view, pool->view.touched), frames_used(&pool->view));
    assert_int_equal(marks_count(&pool->view, pool->view.opened), 0);
    store_close(store);
}

static void a_pool_may_be_closed_while_it_is_being_mapped(void **state)
{
    (void)state;
    uint32_t space;
    struct store *store = pool_start(&space);
    pages_put(store, space, 0);
    store_close(store);
    for (uint32_t i = 0; i < 20; i++)
        store_close(pool_start(&space));
}

#define NEAR_TEST(function)                                                                        \
    cmocka_unit_test_setup_teardown(function, directory_make, directory_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NEAR_TEST(over_used_memory_a_page_is_copied_in_place_and_comes_back),
        NEAR_TEST(into_fresh_memory_a_page_is_written_by_the_kernel),
        NEAR_TEST(where_the_window_cannot_be_opened_the_kernel_writes),
        NEAR_TEST(what_was_copied_into_a_broken_window_is_not_committed),
        NEAR_TEST(what_is_in_use_is_mapped_soon_after_opening_without_a_read),
        NEAR_TEST(the_first_slot_used_again_opens_all_that_is_in_use),
        NEAR_TEST(a_pool_may_be_closed_while_it_is_being_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
