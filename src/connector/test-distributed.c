/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of tarn.h over a store beyond this host (a double of Mooncake's library). */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "lib/fake-mooncake.h"
#include "lib/fault.h"
#include "tarn/tarn.h"

enum { PAGE = 3000, LARGE = 300000, THREADS = 4, ROUNDS = 200 };

#define POOL "mooncake://127.0.0.1:1"

static const char *pool_path = POOL;
static struct tarn_pool *pool;
static uint32_t space;

static fake_mooncake_set_fn fake_set;

static uint32_t namespace_of(struct tarn_pool *of, const char *model)
{
    const struct tarn_namespace desc = { .size = sizeof(desc),
                                         .model = model,
                                         .world_size = 1,
                                         .tokens_per_block = 32,
                                         .bytes_per_page = PAGE };
    uint32_t index = UINT32_MAX;
    assert_int_equal(tarn_pool_namespace(of, &desc, &index), TARN_OK);
    return index;
}

static struct tarn_pool *pool_of(uint32_t flags)
{
    const struct tarn_pool_options options = { .size = sizeof(options),
                                               .path = pool_path,
                                               .flags = flags };
    struct tarn_pool *opened = NULL;
    assert_int_equal(tarn_pool_open(&options, &opened), TARN_OK);
    return opened;
}

static int pool_begin(void **state)
{
    (void)state;
    (void)setenv("MOONCAKE_STORE_LIBRARY", getenv("TARN_FAKE_MOONCAKE"), 1);
    pool = pool_of(0);
    void *library = dlopen(getenv("TARN_FAKE_MOONCAKE"), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = library ? dlsym(library, "fake_mooncake_set") : NULL;
    memcpy(&fake_set, (const void *)&found, sizeof(found));
    space = namespace_of(pool, "m");
    return fake_set ? 0 : -1;
}

static int pool_end(void **state)
{
    (void)state;
    tarn_pool_close(pool);
    return 0;
}

static struct tarn_digest digest_of(uint32_t number)
{
    struct tarn_digest digest = { { 0 } };
    memcpy(digest.bytes, &number, sizeof(number));
    return digest;
}

static void page_fill(uint8_t *bytes, size_t size_bytes, uint32_t number)
{
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static enum tarn_status put(struct tarn_pool *to, uint32_t number, size_t size_bytes)
{
    uint8_t *bytes = mem_alloc(1, size_bytes);
    assert_non_null(bytes);
    const struct tarn_span spans[] = { { bytes, 100 }, { bytes + 100, size_bytes - 100 } };
    const struct tarn_digest digest = digest_of(number);
    page_fill(bytes, size_bytes, number);
    const enum tarn_status status = tarn_pool_put(to, space, &digest, 0, spans, 2);
    mem_free(bytes);
    return status;
}

static enum tarn_status get(struct tarn_pool *from, uint32_t number, size_t size_bytes)
{
    uint8_t *bytes = mem_alloc(2, size_bytes);
    assert_non_null(bytes);
    const struct tarn_span spans[] = { { bytes, 7 }, { bytes + 7, size_bytes - 7 } };
    const struct tarn_digest digest = digest_of(number);
    page_fill(bytes + size_bytes, size_bytes, number);
    const enum tarn_status status = tarn_pool_get(from, space, &digest, spans, 2);
    if (status == TARN_OK)
        assert_memory_equal(bytes, bytes + size_bytes, size_bytes);
    mem_free(bytes);
    return status;
}

static void memory_of_the_program_needs_no_registration(void **state)
{
    (void)state;
    const size_t sizes[] = { PAGE, LARGE, 101, PAGE - 1 };
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(get(pool, i, sizes[i]), TARN_MISS);
        assert_int_equal(put(pool, i, sizes[i]), TARN_OK);
        assert_int_equal(get(pool, i, sizes[i]), TARN_OK);
        assert_int_equal(get(pool, i, sizes[i] + 1), TARN_MISS);
    }
    assert_int_equal(get(pool, 1, LARGE), TARN_OK);
}

static void a_lookup_has_a_lease(void **state)
{
    (void)state;
    const struct tarn_digest digests[] = { digest_of(100), digest_of(101), digest_of(102) };
    struct tarn_lease *lease = NULL;
    size_t count = 0;
    assert_int_equal(put(pool, 100, PAGE), TARN_OK);
    assert_int_equal(put(pool, 101, PAGE), TARN_OK);
    assert_int_equal(tarn_pool_lookup(pool, space, digests, 3, &lease, &count), TARN_OK);
    assert_int_equal(count, 2);
    tarn_lease_release(lease);
}

static void who_only_reads_puts_nothing(void **state)
{
    (void)state;
    struct tarn_pool *reader = pool_of(TARN_POOL_READ_ONLY);
    assert_int_equal(namespace_of(reader, "m"), space);
    assert_int_equal(put(pool, 200, PAGE), TARN_OK);
    assert_int_equal(get(reader, 200, PAGE), TARN_OK);
    assert_int_equal(put(reader, 201, PAGE), TARN_UNSUPPORTED);
    tarn_pool_close(reader);
}

/* As the real library does: a get that failed writes afterwards, into a buffer that by then has
 * been used again, or outgrown. What others put then is right. */
static void a_get_that_comes_late_changes_nothing_that_is_put(void **state)
{
    (void)state;
    assert_int_equal(put(pool, 250, PAGE), TARN_OK);
    for (uint32_t round = 0; round < 8; round++) {
        fake_set(FAKE_MOONCAKE_LATE, -800);
        assert_int_equal(get(pool, 250, PAGE), TARN_MISS);
        fake_set(FAKE_MOONCAKE_LATE, 0);
        assert_int_equal(get(pool, 251 + round, PAGE << round), TARN_MISS);
        fake_set(FAKE_MOONCAKE_LAND, 1);
        assert_int_equal(put(pool, 251 + round, PAGE << round), TARN_OK);
        assert_int_equal(get(pool, 251 + round, PAGE << round), TARN_OK);
    }
}

static void *thread_main(void *context)
{
    uint32_t number = *(const uint32_t *)context;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        number = number * 1664525 + 1013904223;
        const uint32_t page = 1000 + (number >> 20) % 16;
        const enum tarn_status status =
            number >> 31 ? put(pool, page, PAGE + page) : get(pool, page, PAGE + page);
        assert_true(status == TARN_OK || status == TARN_MISS);
    }
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint32_t seeds[THREADS] = { 1, 2, 3, 4 };
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &seeds[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void a_standalone_client_goes_the_same_ways(void **state)
{
    static const char client[] =
        "{\"master_server_address\": \"127.0.0.1:1\", \"client\": \"standalone\", "
        "\"client_address\": \"127.0.0.1:2\"}";
    char path[] = "mooncake:/tmp/tarn-test-XXXXXX";
    const int fd = mkstemp(strchr(path, '/'));
    assert_int_equal(write(fd, client, sizeof(client) - 1), sizeof(client) - 1);
    (void)close(fd);
    tarn_pool_close(pool);
    pool_path = path;
    pool = pool_of(0);
    assert_int_equal(namespace_of(pool, "m"), space);
    assert_int_equal(put(pool, 400, LARGE), TARN_OK);
    assert_int_equal(get(pool, 400, LARGE), TARN_OK);
    who_only_reads_puts_nothing(state);
    threads_share_a_pool(state);
    tarn_pool_close(pool);
    (void)unlink(strchr(path, '/'));
    pool_path = POOL;
    pool = pool_of(0);
    assert_int_equal(namespace_of(pool, "m"), space);
}

static enum tarn_status pool_life(void)
{
    static uint8_t bytes[PAGE];
    const struct tarn_pool_options options = { .size = sizeof(options), .path = POOL };
    const struct tarn_namespace desc = { .size = sizeof(desc),
                                         .model = "m",
                                         .world_size = 1,
                                         .tokens_per_block = 32,
                                         .bytes_per_page = PAGE };
    const struct tarn_span span = { bytes, PAGE };
    const struct tarn_digest digest = digest_of(300);
    struct tarn_pool *opened = NULL;
    uint32_t index = 0;
    TRY(tarn_pool_open(&options, &opened));
    enum tarn_status status = tarn_pool_namespace(opened, &desc, &index);
    if (status == TARN_OK)
        status = tarn_pool_put(opened, index, &digest, 0, &span, 1);
    if (status == TARN_OK)
        status = tarn_pool_get(opened, index, &digest, &span, 1);
    tarn_pool_close(opened);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(fault_sweep(pool_life) > 4);
}

static void what_names_no_pool_is_refused(void **state)
{
    (void)state;
    struct tarn_pool *opened = NULL;
    struct tarn_pool_options options = { .size = sizeof(options), .path = "mooncake://nobody" };
    assert_int_equal(tarn_pool_open(&options, &opened), TARN_INVALID);
    options.path = "mooncake:/nowhere/mooncake.json";
    assert_int_equal(tarn_pool_open(&options, &opened), TARN_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_program_needs_no_registration),
        cmocka_unit_test(a_lookup_has_a_lease),
        cmocka_unit_test(who_only_reads_puts_nothing),
        cmocka_unit_test(a_get_that_comes_late_changes_nothing_that_is_put),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(a_standalone_client_goes_the_same_ways),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(what_names_no_pool_is_refused),
    };
    return cmocka_run_group_tests_name("distributed pool", tests, pool_begin, pool_end);
}
