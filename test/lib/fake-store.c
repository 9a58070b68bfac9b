/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake-store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGES_MAX = 4096, NAMESPACES_MAX = 64, TEXT_MAX = 512, RANGES_MAX = 64, BATCHES_MAX = 64 };

struct fake_page {
    bool is_used;
    bool is_damaged;
    uint32_t namespace_index;
    struct tarn_digest digest;
    uint8_t *bytes;
    uint64_t size_bytes;
};

struct fake_pages {
    pthread_mutex_t lock;
    char namespaces[NAMESPACES_MAX][TEXT_MAX];
    uint32_t namespace_count;
    struct fake_page pages[PAGES_MAX];
};

struct fake_store {
    struct store store;
    struct fake_pages *pages;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t items[FAKE_CALLS];
    size_t batches[FAKE_CALLS];
    size_t batch_items[FAKE_CALLS][BATCHES_MAX];
    size_t fail_first[FAKE_CALLS];
    size_t fail_end[FAKE_CALLS];
    enum tarn_status fail_status[FAKE_CALLS];
    bool is_held[FAKE_CALLS];
    size_t waiting[FAKE_CALLS];
    size_t holds_left; /* items that are held still, before one that is not */
    uint32_t lookup_ms;
    uint32_t random_permille;
    uint64_t random;
    size_t lease_count;
    struct tarn_span ranges[RANGES_MAX]; /* registered */
    size_t range_count;
};

struct fake_pages *fake_pages_create(void)
{
    struct fake_pages *pages = calloc(1, sizeof(*pages));
    ASSERT(pages);
    pthread_mutex_init(&pages->lock, NULL);
    return pages;
}

void fake_pages_destroy(struct fake_pages *pages)
{
    for (size_t i = 0; i < PAGES_MAX; i++)
        free(pages->pages[i].bytes);
    pthread_mutex_destroy(&pages->lock);
    free(pages);
}

size_t fake_pages_count(struct fake_pages *pages)
{
    size_t count = 0;
    pthread_mutex_lock(&pages->lock);
    for (size_t i = 0; i < PAGES_MAX; i++)
        count += pages->pages[i].is_used;
    pthread_mutex_unlock(&pages->lock);
    return count;
}

static struct fake_page *page_find(struct fake_pages *pages, const struct tarn_digest *digest,
                                   uint32_t namespace_index)
{
    for (size_t i = 0; i < PAGES_MAX; i++) {
        struct fake_page *page = &pages->pages[i];
        if (page->is_used && page->namespace_index == namespace_index &&
            memcmp(&page->digest, digest, sizeof(*digest)) == 0)
            return page;
    }
    return NULL;
}

static void page_drop(struct fake_page *page)
{
    free(page->bytes);
    *page = (struct fake_page){ .is_used = false };
}

size_t fake_pages_of(struct fake_pages *pages, const struct tarn_digest *digest)
{
    size_t count = 0;
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->namespace_count; i++)
        count += page_find(pages, digest, i) != NULL;
    pthread_mutex_unlock(&pages->lock);
    return count;
}

void fake_pages_drop(struct fake_pages *pages, const struct tarn_digest *digest,
                     const char *namespace_part)
{
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->namespace_count; i++) {
        struct fake_page *page = page_find(pages, digest, i);
        if (page && strstr(pages->namespaces[i], namespace_part))
            page_drop(page);
    }
    pthread_mutex_unlock(&pages->lock);
}

void fake_pages_forge(struct fake_pages *pages, const struct tarn_digest *digest)
{
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->namespace_count; i++) {
        const struct fake_page *page = page_find(pages, digest, i);
        if (page)
            page->bytes[page->size_bytes - 1] ^= 1;
    }
    pthread_mutex_unlock(&pages->lock);
}

void fake_pages_damage(struct fake_pages *pages, const struct tarn_digest *digest)
{
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->namespace_count; i++) {
        struct fake_page *page = page_find(pages, digest, i);
        if (page)
            page->is_damaged = true;
    }
    pthread_mutex_unlock(&pages->lock);
}

bool fake_pages_all(struct fake_pages *pages,
                    bool (*is_right)(const struct tarn_digest *digest, const uint8_t *bytes,
                                     uint64_t size_bytes))
{
    bool all = true;
    pthread_mutex_lock(&pages->lock);
    for (size_t i = 0; i < PAGES_MAX && all; i++) {
        const struct fake_page *page = &pages->pages[i];
        all = !page->is_used || is_right(&page->digest, page->bytes, page->size_bytes);
    }
    pthread_mutex_unlock(&pages->lock);
    return all;
}

static struct fake_store *fake_of(struct store *store)
{
    return (struct fake_store *)(void *)store;
}

/* Count a call, and wait in it while it is held. Returns the number of its first item. */
static size_t call_enter(struct fake_store *fake, enum fake_call call, size_t item_count)
{
    pthread_mutex_lock(&fake->lock);
    const size_t first = fake->items[call];
    fake->items[call] += item_count;
    if (fake->batches[call] < BATCHES_MAX)
        fake->batch_items[call][fake->batches[call]] = item_count;
    fake->batches[call]++;
    fake->waiting[call]++;
    pthread_cond_broadcast(&fake->changed);
    while (fake->is_held[call])
        pthread_cond_wait(&fake->changed, &fake->lock);
    fake->waiting[call]--;
    pthread_mutex_unlock(&fake->lock);
    return first;
}

static const enum tarn_status random_statuses[FAKE_CALLS][3] = {
    [FAKE_LOOKUP] = { TARN_IO, TARN_AGAIN, TARN_MISS },
    [FAKE_GET] = { TARN_IO, TARN_CORRUPT, TARN_MISS },
    [FAKE_PUT] = { TARN_IO, TARN_NO_SPACE, TARN_AGAIN },
    [FAKE_REGISTER] = { TARN_OK, TARN_OK, TARN_OK },
};

/* With the lock held. xorshift64*; 0 stays 0: nothing fails. */
static uint64_t random_next(struct fake_store *fake)
{
    fake->random ^= fake->random >> 12;
    fake->random ^= fake->random << 25;
    fake->random ^= fake->random >> 27;
    return (fake->random * UINT64_C(0x2545f4914f6cdd1d)) >> 32;
}

/* What the test wants of an item; OK: nothing special. */
static enum tarn_status item_fault(struct fake_store *fake, enum fake_call call, size_t item)
{
    pthread_mutex_lock(&fake->lock);
    const bool fails = item >= fake->fail_first[call] && item < fake->fail_end[call];
    enum tarn_status status = fails ? fake->fail_status[call] : TARN_OK;
    if (random_next(fake) % 1000 < fake->random_permille)
        status = random_statuses[call][random_next(fake) % 3];
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static enum tarn_status fake_intern(struct store *store, const char *text, uint32_t *out_index)
{
    struct fake_pages *pages = fake_of(store)->pages;
    pthread_mutex_lock(&pages->lock);
    uint32_t index = 0;
    while (index < pages->namespace_count && strcmp(pages->namespaces[index], text) != 0)
        index++;
    ASSERT(index < NAMESPACES_MAX && strlen(text) < TEXT_MAX);
    if (index == pages->namespace_count)
        memcpy(pages->namespaces[pages->namespace_count++], text, strlen(text) + 1);
    pthread_mutex_unlock(&pages->lock);
    *out_index = index;
    return TARN_OK;
}

static enum tarn_status fake_exists(struct store *store, const struct store_key *keys, size_t count,
                                    bool *out_present)
{
    struct fake_pages *pages = fake_of(store)->pages;
    pthread_mutex_lock(&pages->lock);
    for (size_t i = 0; i < count; i++)
        out_present[i] = page_find(pages, &keys[i].digest, keys[i].namespace_index) != NULL;
    pthread_mutex_unlock(&pages->lock);
    return TARN_OK;
}

static enum tarn_status fake_lookup(struct store *store, const struct store_key *keys, size_t count,
                                    struct store_lease **out_lease, size_t *out_count)
{
    struct fake_store *fake = fake_of(store);
    const size_t first = call_enter(fake, FAKE_LOOKUP, count);
    size_t found = 0;
    const struct timespec pause = { .tv_nsec = (long)fake->lookup_ms * 1000000 };
    if (fake->lookup_ms)
        nanosleep(&pause, NULL);
    const enum tarn_status fault = item_fault(fake, FAKE_LOOKUP, first);
    if (fault != TARN_OK)
        return fault;
    pthread_mutex_lock(&fake->pages->lock);
    while (found < count &&
           page_find(fake->pages, &keys[found].digest, keys[found].namespace_index))
        found++;
    pthread_mutex_unlock(&fake->pages->lock);
    if (found == 0)
        return TARN_MISS;
    struct store_lease *lease = calloc(1, sizeof(*lease));
    ASSERT(lease);
    lease->store = store;
    pthread_mutex_lock(&fake->lock);
    fake->lease_count++;
    pthread_mutex_unlock(&fake->lock);
    *out_lease = lease;
    *out_count = found;
    return TARN_OK;
}

static void fake_lease_release(struct store_lease *lease)
{
    struct fake_store *fake = fake_of(lease->store);
    pthread_mutex_lock(&fake->lock);
    fake->lease_count--;
    pthread_mutex_unlock(&fake->lock);
    free(lease);
}

/* ---- what the traits ask for ---- */

static enum tarn_status fake_register(struct store *store, void *base, size_t size)
{
    struct fake_store *fake = fake_of(store);
    const size_t nth = call_enter(fake, FAKE_REGISTER, 1);
    const enum tarn_status fault = item_fault(fake, FAKE_REGISTER, nth);
    if (fault != TARN_OK)
        return fault;
    ASSERT(!store->traits.range_bytes_max || size <= store->traits.range_bytes_max);
    pthread_mutex_lock(&fake->lock);
    for (size_t i = 0; i < fake->range_count; i++)
        ASSERT(fake->ranges[i].base != base);
    ASSERT(fake->range_count < RANGES_MAX);
    fake->ranges[fake->range_count++] = (struct tarn_span){ base, size };
    pthread_mutex_unlock(&fake->lock);
    return TARN_OK;
}

static void fake_unregister(struct store *store, void *base)
{
    struct fake_store *fake = fake_of(store);
    size_t found = 0;
    pthread_mutex_lock(&fake->lock);
    while (found < fake->range_count && fake->ranges[found].base != base)
        found++;
    ASSERT(found < fake->range_count);
    fake->ranges[found] = fake->ranges[--fake->range_count];
    pthread_mutex_unlock(&fake->lock);
}

static bool is_registered(struct fake_store *fake, const uint8_t *base, uint64_t size_bytes)
{
    bool found = false;
    pthread_mutex_lock(&fake->lock);
    for (size_t i = 0; i < fake->range_count; i++) {
        const uint8_t *start = fake->ranges[i].base;
        found = found || (base >= start && base + size_bytes <= start + fake->ranges[i].size_bytes);
    }
    pthread_mutex_unlock(&fake->lock);
    return found;
}

static void item_check(struct store *store, const struct store_item *item)
{
    const struct store_traits *traits = &store->traits;
    struct fake_store *fake = fake_of(store);
    const uint32_t headroom = item->has_headroom ? traits->headroom_bytes : 0;
    uint8_t *start = (uint8_t *)item->spans[0].base - headroom;
    ASSERT(!traits->is_contiguous_only || item->span_count == 1);
    ASSERT(!traits->is_contiguous_only || item->has_headroom == (traits->headroom_bytes > 0));
    if (traits->must_register) {
        ASSERT(is_registered(fake, start, headroom + item->spans[0].size_bytes));
        for (uint32_t i = 1; i < item->span_count; i++)
            ASSERT(is_registered(fake, item->spans[i].base, item->spans[i].size_bytes));
    }
    memset(start, 0xdd, headroom);
}

static uint64_t item_bytes(const struct store_item *item)
{
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < item->span_count; i++)
        size_bytes += item->spans[i].size_bytes;
    return size_bytes;
}

static enum tarn_status item_get(struct fake_pages *pages, const struct store_item *item)
{
    const struct fake_page *page = page_find(pages, &item->key.digest, item->key.namespace_index);
    if (!page || page->size_bytes != item_bytes(item))
        return TARN_MISS;
    uint64_t at = 0;
    for (uint32_t i = 0; i < item->span_count; i++) {
        memcpy(item->spans[i].base, page->bytes + at, item->spans[i].size_bytes);
        at += item->spans[i].size_bytes;
    }
    return page->is_damaged ? TARN_CORRUPT : TARN_OK;
}

static enum tarn_status fake_get(struct store *store, struct store_item *items, size_t count)
{
    struct fake_store *fake = fake_of(store);
    const size_t first = call_enter(fake, FAKE_GET, count);
    for (size_t i = 0; i < count; i++) {
        item_check(store, &items[i]);
        items[i].status = item_fault(fake, FAKE_GET, first + i);
        if (items[i].status != TARN_OK) {
            /* A failed get may leave anything behind. */
            for (uint32_t j = 0; j < items[i].span_count; j++)
                memset(items[i].spans[j].base, 0xee, items[i].spans[j].size_bytes);
            continue;
        }
        pthread_mutex_lock(&fake->pages->lock);
        items[i].status = item_get(fake->pages, &items[i]);
        pthread_mutex_unlock(&fake->pages->lock);
    }
    return TARN_OK;
}

static void item_put(struct fake_pages *pages, struct store_item *item)
{
    if (page_find(pages, &item->key.digest, item->key.namespace_index)) {
        item->was_present = true;
        return;
    }
    struct fake_page *page = pages->pages;
    while (page->is_used)
        page++;
    ASSERT(page < pages->pages + PAGES_MAX);
    page->is_used = true;
    page->namespace_index = item->key.namespace_index;
    page->digest = item->key.digest;
    page->size_bytes = item_bytes(item);
    page->bytes = malloc(page->size_bytes + 1);
    ASSERT(page->bytes);
    uint64_t at = 0;
    for (uint32_t i = 0; i < item->span_count; i++) {
        memcpy(page->bytes + at, item->spans[i].base, item->spans[i].size_bytes);
        at += item->spans[i].size_bytes;
    }
}

static enum tarn_status fake_put(struct store *store, struct store_item *items, size_t count)
{
    struct fake_store *fake = fake_of(store);
    const size_t first = call_enter(fake, FAKE_PUT, count);
    for (size_t i = 0; i < count; i++) {
        item_check(store, &items[i]);
        items[i].was_present = false;
        items[i].status = item_fault(fake, FAKE_PUT, first + i);
        if (items[i].status != TARN_OK)
            continue;
        pthread_mutex_lock(&fake->pages->lock);
        item_put(fake->pages, &items[i]);
        pthread_mutex_unlock(&fake->pages->lock);
    }
    return TARN_OK;
}

static enum tarn_status fake_remove(struct store *store, const struct store_key *key)
{
    struct fake_pages *pages = fake_of(store)->pages;
    pthread_mutex_lock(&pages->lock);
    struct fake_page *page = page_find(pages, &key->digest, key->namespace_index);
    if (page)
        page_drop(page);
    pthread_mutex_unlock(&pages->lock);
    return page ? TARN_OK : TARN_MISS;
}

static void fake_stat(struct store *store, struct store_stat *out_stat)
{
    *out_stat = (struct store_stat){ .lease_count = fake_store_leases(store) };
}

static void fake_close(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    ASSERT(fake->lease_count == 0 && fake->range_count == 0);
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

static bool fake_holds(struct store *store, const struct store_item *item)
{
    struct fake_store *fake = fake_of(store);
    (void)item;
    pthread_mutex_lock(&fake->lock);
    const bool holds = fake->holds_left != 0;
    if (fake->holds_left != SIZE_MAX)
        fake->holds_left = holds ? fake->holds_left - 1 : SIZE_MAX;
    pthread_mutex_unlock(&fake->lock);
    return holds;
}

struct store *fake_store_create(struct fake_pages *pages)
{
    static const struct store_ops ops = {
        .name = "fake",
        .register_memory = fake_register,
        .unregister_memory = fake_unregister,
        .intern = fake_intern,
        .exists = fake_exists,
        .lookup = fake_lookup,
        .lease_release = fake_lease_release,
        .get = fake_get,
        .holds = fake_holds,
        .put = fake_put,
        .remove = fake_remove,
        .stat = fake_stat,
        .close = fake_close,
    };
    struct fake_store *fake = calloc(1, sizeof(*fake));
    ASSERT(fake);
    fake->store.ops = &ops;
    fake->pages = pages;
    fake->holds_left = SIZE_MAX;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    return &fake->store;
}

static size_t read_count(struct store *store, const size_t *count)
{
    struct fake_store *fake = fake_of(store);
    pthread_mutex_lock(&fake->lock);
    const size_t value = *count;
    pthread_mutex_unlock(&fake->lock);
    return value;
}

void fake_store_set_traits(struct store *store, const struct store_traits *traits)
{
    store->traits = *traits;
}

size_t fake_store_registered(struct store *store)
{
    return read_count(store, &fake_of(store)->range_count);
}

void fake_store_fail(struct store *store, enum fake_call call, size_t first, size_t last,
                     enum tarn_status status)
{
    struct fake_store *fake = fake_of(store);
    pthread_mutex_lock(&fake->lock);
    fake->fail_first[call] = fake->items[call] + first;
    fake->fail_end[call] = last == SIZE_MAX ? SIZE_MAX : fake->items[call] + last + 1;
    fake->fail_status[call] = status;
    pthread_mutex_unlock(&fake->lock);
}

void fake_store_fail_at_random(struct store *store, uint64_t seed, uint32_t permille)
{
    struct fake_store *fake = fake_of(store);
    pthread_mutex_lock(&fake->lock);
    fake->random = seed * 2 + 1;
    fake->random_permille = permille;
    pthread_mutex_unlock(&fake->lock);
}

void fake_store_hold(struct store *store, enum fake_call call, bool hold)
{
    struct fake_store *fake = fake_of(store);
    pthread_mutex_lock(&fake->lock);
    fake->is_held[call] = hold;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

bool fake_store_is_held(struct store *store, enum fake_call call)
{
    struct fake_store *fake = fake_of(store);
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&fake->lock);
    while (fake->waiting[call] == 0 && error == 0)
        error = pthread_cond_timedwait(&fake->changed, &fake->lock, &until);
    pthread_mutex_unlock(&fake->lock);
    return error == 0;
}

void fake_store_write_late(struct store *store, size_t nth)
{
    struct fake_store *fake = fake_of(store);
    pthread_mutex_lock(&fake->lock);
    fake->holds_left = nth;
    pthread_mutex_unlock(&fake->lock);
}

void fake_store_slow_lookup(struct store *store, uint32_t ms)
{
    fake_of(store)->lookup_ms = ms;
}

size_t fake_store_calls(struct store *store, enum fake_call call)
{
    return read_count(store, &fake_of(store)->items[call]);
}

size_t fake_store_batches(struct store *store, enum fake_call call)
{
    return read_count(store, &fake_of(store)->batches[call]);
}

size_t fake_store_batch(struct store *store, enum fake_call call, size_t nth)
{
    ASSERT(nth < BATCHES_MAX);
    return read_count(store, &fake_of(store)->batch_items[call][nth]);
}

size_t fake_store_leases(struct store *store)
{
    return read_count(store, &fake_of(store)->lease_count);
}
