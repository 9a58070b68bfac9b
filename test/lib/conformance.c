/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/conformance.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    HEADROOM = 64,
    PAGE_BYTES = 20000,
    BATCH = 300, /* more than fits in one call of some stores */
    SPANS_MAX = 61,
    THREADS = 4,
    THREAD_PAGES = 24,
    SLOW_OBJECT_BYTES = 2 << 20, /* at most, under sanitizers */
};

static const struct conformance *subject;
static struct store *store;
static uint8_t *memory; /* registered: a half to put from, a half to get into */
static uint64_t half_bytes;

/* ---- pages ---- */

enum form { IN_PLACE, SCATTERED, STAGED, FORMS }; /* one span; many; one with headroom */

/* A key, and the bytes that belong to it. */
struct page {
    struct store_key key;
    uint64_t size_bytes;
    uint64_t seed;
};

static struct page page_of(uint32_t space, uint32_t number, uint64_t size_bytes)
{
    struct page page = { .size_bytes = size_bytes, .seed = number * UINT64_C(77) + space };
    const uint64_t words[2] = { (number + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15), number };
    memcpy(page.key.digest.bytes, words, sizeof(words));
    page.key.namespace_index = space;
    page.key.depth = number;
    return page;
}

static void bytes_make(const struct page *page, uint8_t *bytes)
{
    uint64_t value = page->seed * UINT64_C(2654435761) + 1;
    for (uint64_t i = 0; i < page->size_bytes; i += sizeof(value)) {
        const uint64_t left = page->size_bytes - i;
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(bytes + i, &value, left < sizeof(value) ? left : sizeof(value));
    }
}

static bool bytes_are(const struct page *page, const uint8_t *bytes)
{
    uint64_t value = page->seed * UINT64_C(2654435761) + 1;
    for (uint64_t i = 0; i < page->size_bytes; i += sizeof(value)) {
        const uint64_t left = page->size_bytes - i;
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (memcmp(bytes + i, &value, left < sizeof(value) ? left : sizeof(value)) != 0)
            return false;
    }
    return true;
}

/* Where an item's bytes lie, and its spans. */
struct target {
    struct tarn_span spans[SPANS_MAX];
    uint8_t *bytes;
};

static enum form form_usable(enum form form)
{
    return store_traits(store)->is_contiguous_only ? STAGED : form;
}

/* An item over `bytes`, with HEADROOM before it. Scattered, its spans are of different lengths, the
 * later ones of one byte. */
static struct store_item item_over(const struct page *page, enum form form, uint8_t *bytes,
                                   struct target *target)
{
    struct store_item item = { .key = page->key, .spans = target->spans, .status = TARN_IO };
    uint64_t at = 0;
    form = form_usable(form);
    item.has_headroom = form == STAGED;
    target->bytes = bytes;
    while (form == SCATTERED && item.span_count + 1 < SPANS_MAX && page->size_bytes - at > 1) {
        const uint64_t size_bytes = (page->size_bytes - at) / 3 + 1;
        target->spans[item.span_count++] = (struct tarn_span){ bytes + at, size_bytes };
        at += size_bytes;
    }
    if (at < page->size_bytes)
        target->spans[item.span_count++] = (struct tarn_span){ bytes + at, page->size_bytes - at };
    return item;
}

static uint8_t *half(int index)
{
    return memory + (uint64_t)index * half_bytes + HEADROOM;
}

static enum tarn_status put_as(const struct page *page, enum form form, bool *out_was_present)
{
    struct target target;
    struct store_item item = item_over(page, form, half(0), &target);
    bytes_make(page, half(0));
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    if (out_was_present)
        *out_was_present = item.was_present;
    return item.status;
}

/* Every byte is compared. */
static enum tarn_status get_as(const struct page *page, enum form form)
{
    struct target target;
    struct store_item item = item_over(page, form, half(1), &target);
    memset(half(1), 0xa5, page->size_bytes);
    assert_int_equal(store_get(store, &item, 1), TARN_OK);
    if (item.status == TARN_OK)
        assert_true(bytes_are(page, half(1)));
    return item.status;
}

static uint32_t space_of(const char *text)
{
    uint32_t index = UINT32_MAX;
    assert_int_equal(store_namespace(store, text, &index), TARN_OK);
    return index;
}

static bool is_there(const struct store_key *key)
{
    bool present = false;
    assert_int_equal(store_exists(store, key, 1, &present), TARN_OK);
    return present;
}

/* ---- cases ---- */

static void a_page_comes_back_as_it_was_put(void **state)
{
    (void)state;
    bool was_present = true;
    const struct page page = page_of(space_of("conform/first"), 1, PAGE_BYTES);
    assert_int_equal(get_as(&page, IN_PLACE), TARN_MISS);
    assert_false(is_there(&page.key));
    assert_int_equal(put_as(&page, IN_PLACE, &was_present), TARN_OK);
    assert_false(was_present);
    assert_true(is_there(&page.key));
    assert_int_equal(get_as(&page, IN_PLACE), TARN_OK);
}

static void what_is_not_there_is_a_miss(void **state)
{
    (void)state;
    struct store_lease *lease = NULL;
    size_t count = 0;
    const struct page page = page_of(space_of("conform/absent"), 1, PAGE_BYTES);
    assert_int_equal(get_as(&page, IN_PLACE), TARN_MISS);
    assert_int_equal(store_lookup(store, &page.key, 1, &lease, &count), TARN_MISS);
    assert_int_equal(store_remove(store, &page.key), TARN_MISS);
}

static void an_object_never_changes(void **state)
{
    (void)state;
    bool was_present = false;
    const uint32_t space = space_of("conform/immutable");
    const struct page page = page_of(space, 1, PAGE_BYTES);
    struct page other = page;
    other.seed++;
    assert_int_equal(put_as(&page, IN_PLACE, NULL), TARN_OK);
    assert_int_equal(put_as(&other, IN_PLACE, &was_present), TARN_OK);
    assert_true(was_present);
    assert_int_equal(get_as(&page, IN_PLACE), TARN_OK);
    other.size_bytes = PAGE_BYTES / 2;
    was_present = false;
    assert_int_equal(put_as(&other, STAGED, &was_present), TARN_OK);
    assert_true(was_present);
    assert_int_equal(get_as(&page, SCATTERED), TARN_OK);
}

static void another_length_is_a_miss(void **state)
{
    (void)state;
    const struct page page = page_of(space_of("conform/length"), 1, PAGE_BYTES);
    const uint64_t others[] = {
        1, PAGE_BYTES - 64, PAGE_BYTES - 1, PAGE_BYTES + 1, PAGE_BYTES + 64, 2 * PAGE_BYTES
    };
    assert_int_equal(put_as(&page, IN_PLACE, NULL), TARN_OK);
    for (size_t i = 0; i < LENGTH_OF(others); i++) {
        struct page other = page;
        other.size_bytes = others[i];
        for (enum form form = IN_PLACE; form < FORMS; form++)
            assert_int_equal(get_as(&other, form), TARN_MISS);
    }
    assert_int_equal(get_as(&page, IN_PLACE), TARN_OK);
}

static void pages_of_several_regions_are_interchangeable_in_place_and_staged(void **state)
{
    (void)state;
    const uint32_t space = space_of("conform/forms");
    for (enum form put_form = IN_PLACE; put_form < FORMS; put_form++) {
        const struct page page = page_of(space, (uint32_t)put_form, PAGE_BYTES + 1);
        assert_int_equal(put_as(&page, put_form, NULL), TARN_OK);
        for (enum form form = IN_PLACE; form < FORMS; form++)
            assert_int_equal(get_as(&page, form), TARN_OK);
    }
}

static void all_sizes_come_back(void **state)
{
    (void)state;
    const uint32_t space = space_of("conform/sizes");
    const uint64_t sizes[] = {
        1,       2, 63, 64, 65, 4095, 4096, 4097, 100000, (1 << 20) + 1, 16 << 20, (32 << 20) - 1,
        64 << 20
    };
    for (size_t i = 0; i < LENGTH_OF(sizes); i++) {
        const struct page page = page_of(space, (uint32_t)i, sizes[i]);
        if (sizes[i] > subject->object_bytes_max)
            continue;
        assert_int_equal(put_as(&page, i % 2 ? IN_PLACE : SCATTERED, NULL), TARN_OK);
        assert_int_equal(get_as(&page, SCATTERED), TARN_OK);
        assert_int_equal(get_as(&page, STAGED), TARN_OK);
        const enum tarn_status removed = store_remove(store, &page.key);
        assert_true(removed == TARN_OK || removed == TARN_AGAIN); /* a lease may hold it */
    }
}

static void keys_with_odd_bytes_do_not_mix(void **state)
{
    (void)state;
    static char longest[STORE_NAMESPACE_BYTES_MAX + 1];
    static const char *const texts[] = {
        "conform/odd/a b",       "conform/odd/a%20b",    "conform/odd/\"q\"",
        "conform/odd/'q'",       "conform/odd/\\n",      "conform/odd/\xc3\xa9\xe2\x82\xac",
        "conform/odd/\xff\xfe",  "conform/odd/\xff",     "conform/odd/{a:1}[.*]^$",
        "conform/odd/%2F%00%0A", "conform/odd/model:v1", "conform/odd/w1r0/lg0/t32b1-0",
        "conform/odd/A",         "conform/odd/a",        "conform/odd//",
    };
    memset(longest, 'x', sizeof(longest) - 1);
    for (size_t i = 0; i <= LENGTH_OF(texts); i++) {
        const char *text = i < LENGTH_OF(texts) ? texts[i] : longest;
        struct page page = page_of(space_of(text), 1, 500);
        page.seed = i;
        assert_int_equal(get_as(&page, IN_PLACE), TARN_MISS);
        assert_int_equal(put_as(&page, IN_PLACE, NULL), TARN_OK);
    }
    for (size_t i = 0; i <= LENGTH_OF(texts); i++) {
        struct page page = page_of(space_of(i < LENGTH_OF(texts) ? texts[i] : longest), 1, 500);
        page.seed = i;
        assert_int_equal(get_as(&page, STAGED), TARN_OK);
    }
}

static void senseless_names_and_spans_are_refused(void **state)
{
    (void)state;
    static char text[STORE_NAMESPACE_BYTES_MAX + 2];
    uint32_t index = 0;
    struct page page = page_of(space_of("conform/refused"), 1, PAGE_BYTES);
    assert_int_equal(store_namespace(store, "", &index), TARN_INVALID);
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(store_namespace(store, text, &index), TARN_INVALID);
    page.key.namespace_index = 4000000;
    assert_int_not_equal(put_as(&page, IN_PLACE, NULL), TARN_OK);
    assert_int_not_equal(get_as(&page, IN_PLACE), TARN_OK);
}

/* ---- batches ---- */

struct batch {
    struct page pages[BATCH];
    struct target targets[BATCH];
    struct store_item items[BATCH];
};

static struct batch batch;

/* Forms change from item to item, which no store may mind. */
static void batch_make(uint32_t space, int side, enum form form)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint64_t size_bytes = 300 + i;
        uint8_t *bytes = half(side) + (uint64_t)i * 1024;
        batch.pages[i] = page_of(space, i, size_bytes);
        batch.items[i] = item_over(&batch.pages[i], form == FORMS ? (enum form)(i % FORMS) : form,
                                   bytes, &batch.targets[i]);
    }
}

static void batch_put_all(uint32_t space, enum form form)
{
    batch_make(space, 0, form);
    for (uint32_t i = 0; i < BATCH; i++)
        bytes_make(&batch.pages[i], batch.targets[i].bytes);
    assert_int_equal(store_put(store, batch.items, BATCH), TARN_OK);
}

static void every_item_of_a_batch_has_its_own_result(void **state)
{
    (void)state;
    const uint32_t space = space_of("conform/mixed");
    batch_make(space, 0, FORMS);
    for (uint32_t i = 0; i < BATCH; i++) {
        bytes_make(&batch.pages[i], batch.targets[i].bytes);
        if (i % 3 == 0)
            assert_int_equal(store_put(store, &batch.items[i], 1), TARN_OK);
    }
    batch_make(space, 1, FORMS);
    batch.items[4].key.namespace_index = 4000000; /* absent, and without meaning */
    struct tarn_span *longer = &batch.targets[9].spans[batch.items[9].span_count - 1];
    longer->size_bytes++; /* there, of another length */
    assert_int_equal(store_get(store, batch.items, BATCH), TARN_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        const bool good = i % 3 == 0 && i != 9;
        assert_int_equal(batch.items[i].status == TARN_OK, good);
        assert_true(i == 4 || good || batch.items[i].status == TARN_MISS);
        assert_true(!good || bytes_are(&batch.pages[i], batch.targets[i].bytes));
    }
    batch_put_all(space, FORMS);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.items[i].status, TARN_OK);
        assert_int_equal(batch.items[i].was_present, i % 3 == 0);
    }
    batch_make(space, 1, SCATTERED);
    assert_int_equal(store_get(store, batch.items, BATCH), TARN_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.items[i].status, TARN_OK);
        assert_true(bytes_are(&batch.pages[i], batch.targets[i].bytes));
    }
}

static void a_key_twice_in_a_batch_is_served_twice(void **state)
{
    (void)state;
    const struct page page = page_of(space_of("conform/twice"), 1, PAGE_BYTES);
    struct target targets[2];
    struct store_item items[2];
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < 2; i++) {
            uint8_t *bytes = half(side) + (uint64_t)i * 2 * PAGE_BYTES;
            items[i] = item_over(&page, IN_PLACE, bytes, &targets[i]);
            if (side == 0)
                bytes_make(&page, bytes);
            else
                memset(bytes, 0, PAGE_BYTES);
        }
        assert_int_equal(side == 0 ? store_put(store, items, 2) : store_get(store, items, 2),
                         TARN_OK);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(items[i].status, TARN_OK);
            assert_true(bytes_are(&page, targets[i].bytes));
        }
    }
}

static void a_lookup_finds_the_leading_run(void **state)
{
    (void)state;
    const uint32_t space = space_of("conform/run");
    static struct store_key keys[2 * BATCH];
    static bool present[2 * BATCH];
    struct store_lease *lease = NULL;
    struct store_stat stat;
    size_t count = 0;
    batch_put_all(space, IN_PLACE);
    for (uint32_t i = 0; i < BATCH; i++)
        assert_int_equal(batch.items[i].status, TARN_OK);
    for (uint32_t i = 0; i < 2 * BATCH; i++)
        keys[i] = page_of(space, i, 1).key;
    assert_int_equal(store_exists(store, keys, 2 * BATCH, present), TARN_OK);
    for (uint32_t i = 0; i < 2 * BATCH; i++)
        assert_int_equal(present[i], i < BATCH);
    assert_int_equal(store_lookup(store, keys, 2 * BATCH, &lease, &count), TARN_OK);
    assert_int_equal(count, BATCH);
    store_stat(store, &stat);
    assert_int_equal(stat.lease_count, 1);
    store_lease_release(lease);
    store_stat(store, &stat);
    assert_int_equal(stat.lease_count, 0);
    keys[17] = page_of(space, 3 * BATCH, 1).key;
    assert_int_equal(store_lookup(store, keys, BATCH, &lease, &count), TARN_OK);
    assert_int_equal(count, 17);
    store_lease_release(lease);
    assert_int_equal(store_lookup(store, keys + 17, 2, &lease, &count), TARN_MISS);
}

/* ---- several at once ---- */

struct client {
    pthread_t thread;
    uint32_t number;
    uint32_t space;
    uint32_t wrong_count;
    uint32_t got_count;
};

/* All put and get the same few pages, in an order of their own. */
static void *client_main(void *context)
{
    struct client *client = context;
    const uint64_t part = (half_bytes - HEADROOM) / THREADS / 64 * 64;
    uint64_t random = client->number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t i = 0; i < subject->rounds; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t number = (uint32_t)(random >> 33) % THREAD_PAGES;
        const struct page page = page_of(client->space, number, 1000 + number * 997);
        const bool puts = (random >> 60) % 2;
        struct target target;
        uint8_t *bytes = half(puts ? 0 : 1) + client->number * part + HEADROOM;
        struct store_item item =
            item_over(&page, (enum form)((random >> 50) % FORMS), bytes, &target);
        if (puts)
            bytes_make(&page, bytes);
        const enum tarn_status status =
            puts ? store_put(store, &item, 1) : store_get(store, &item, 1);
        const bool is_good = status == TARN_OK && item.status == TARN_OK;
        client->got_count += is_good && !puts;
        client->wrong_count += puts      ? !is_good && item.status != TARN_AGAIN
                               : is_good ? !bytes_are(&page, bytes)
                                         : item.status != TARN_MISS;
    }
    return NULL;
}

static void clients_at_once_never_see_other_bytes(void **state)
{
    (void)state;
    struct client clients[THREADS];
    uint32_t got_count = 0;
    const uint32_t space = space_of("conform/at-once");
    for (uint32_t i = 0; i < THREADS; i++) {
        clients[i] = (struct client){ .number = i, .space = space };
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(clients[i].wrong_count, 0);
        got_count += clients[i].got_count;
    }
    assert_true(got_count > 0);
}

static void memory_is_registered_once_and_may_be_registered_again(void **state)
{
    (void)state;
    if (!store_traits(store)->must_register)
        return;
    assert_int_equal(store_register(store, memory, 2 * half_bytes), TARN_INVALID);
    store_unregister(store, memory);
    assert_int_equal(store_register(store, memory, 2 * half_bytes), TARN_OK);
    const struct page page = page_of(space_of("conform/registered"), 1, PAGE_BYTES);
    assert_int_equal(put_as(&page, IN_PLACE, NULL), TARN_OK);
    assert_int_equal(get_as(&page, IN_PLACE), TARN_OK);
}

/* ---- the group ---- */

static int group_begin(void **state)
{
    (void)state;
    half_bytes = (subject->object_bytes_max + 2 * HEADROOM + (1 << 20)) & ~UINT64_C(4095);
    memory = mmap(NULL, 2 * half_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    store = subject->open();
    return store && store_register(store, memory, 2 * half_bytes) == TARN_OK ? 0 : -1;
}

static int group_end(void **state)
{
    (void)state;
    if (store)
        store_unregister(store, memory);
    store_close(store);
    return munmap(memory, 2 * half_bytes);
}

int conformance_run(const struct conformance *conformance)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_comes_back_as_it_was_put),
        cmocka_unit_test(what_is_not_there_is_a_miss),
        cmocka_unit_test(an_object_never_changes),
        cmocka_unit_test(another_length_is_a_miss),
        cmocka_unit_test(pages_of_several_regions_are_interchangeable_in_place_and_staged),
        cmocka_unit_test(all_sizes_come_back),
        cmocka_unit_test(keys_with_odd_bytes_do_not_mix),
        cmocka_unit_test(senseless_names_and_spans_are_refused),
        cmocka_unit_test(every_item_of_a_batch_has_its_own_result),
        cmocka_unit_test(a_key_twice_in_a_batch_is_served_twice),
        cmocka_unit_test(a_lookup_finds_the_leading_run),
        cmocka_unit_test(clients_at_once_never_see_other_bytes),
        cmocka_unit_test(memory_is_registered_once_and_may_be_registered_again),
    };
    static struct conformance smaller;
    const char *is_slow = getenv("TARN_TEST_SANITIZED"); /* NOLINT(concurrency-mt-unsafe) */
    subject = conformance;
    if (is_slow && strcmp(is_slow, "1") == 0) {
        smaller = *conformance;
        smaller.rounds = conformance->rounds / 10;
        smaller.object_bytes_max = SLOW_OBJECT_BYTES;
        subject = &smaller;
    }
    return cmocka_run_group_tests_name(conformance->name, tests, group_begin, group_end);
}
