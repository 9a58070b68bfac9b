/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/batch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/mooncake/result.h"

enum { AREA_ALIGN_BYTES = 64, SLOT_COUNT = BATCH_POOL_BATCHES * BATCH_OBJECTS_MAX };

_Static_assert(2 * BATCH_POOL_BATCHES == CLIENT_AREAS, "one for each batch that gets or puts");

enum tarn_status batch_pool_init(struct batch_pool *pool, const struct client *client,
                                 bool has_bytes)
{
    const bool has_areas = has_bytes && client->area_bytes > 0;
    *pool = (struct batch_pool){ .first = NULL };
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->freed, NULL);
    if (has_bytes && !has_areas) {
        void *slots = NULL;
        TRY(client_memory_take(client, (size_t)SLOT_COUNT * HEADER_BYTES, &slots));
        pool->header_slots = slots;
    }
    for (size_t i = 0; i < BATCH_POOL_BATCHES; i++) {
        struct batch *batch = mem_alloc(1, sizeof(*batch));
        if (!batch)
            return TARN_NO_MEMORY;
        batch->next = pool->first;
        pool->first = batch;
        if (pool->header_slots)
            batch->header_slots = pool->header_slots + i * BATCH_OBJECTS_MAX;
        if (!has_areas)
            continue;
        batch->area_bytes = (size_t)client->area_bytes;
        void *area = NULL;
        TRY(client_memory_take(client, batch->area_bytes, &area));
        batch->area = area;
    }
    return TARN_OK;
}

void batch_pool_drop(struct batch_pool *pool, const struct client *client)
{
    for (const struct batch *batch = pool->first; batch; batch = batch->next)
        client_memory_drop(client, batch->area, batch->area_bytes);
    client_memory_drop(client, pool->header_slots, (size_t)SLOT_COUNT * HEADER_BYTES);
}

void batch_pool_deinit(struct batch_pool *pool, const struct client *client)
{
    while (pool->first) {
        struct batch *batch = pool->first;
        pool->first = batch->next;
        client_memory_free(client, batch->area);
        mem_free(batch);
    }
    client_memory_free(client, pool->header_slots);
    (void)pthread_cond_destroy(&pool->freed);
    (void)pthread_mutex_destroy(&pool->lock);
}

void batch_clear(struct batch *batch)
{
    batch->count = 0;
    batch->span_count = 0;
    batch->area_used = 0;
}

struct batch *batch_take(struct batch_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->first)
        (void)pthread_cond_wait(&pool->freed, &pool->lock);
    struct batch *batch = pool->first;
    pool->first = batch->next;
    (void)pthread_mutex_unlock(&pool->lock);
    batch_clear(batch);
    return batch;
}

void batch_give(struct batch_pool *pool, struct batch *batch)
{
    (void)pthread_mutex_lock(&pool->lock);
    batch->next = pool->first;
    pool->first = batch;
    (void)pthread_cond_signal(&pool->freed);
    (void)pthread_mutex_unlock(&pool->lock);
}

static bool item_is_contiguous(const struct store_item *item)
{
    return item->has_headroom && item->span_count == 1;
}

static bool key_is_among(const struct batch *batch, const struct store_key *key)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct store_key *other = &batch->items[i]->key;
        if (other->namespace_index == key->namespace_index &&
            digest_equal(&other->digest, &key->digest))
            return true;
    }
    return false;
}

bool batch_is_large_enough(const struct batch *batch, uint64_t object_bytes)
{
    return !batch->area ||
           (batch->area_bytes >= HEADER_BYTES && object_bytes <= batch->area_bytes - HEADER_BYTES);
}

/* From where the next object begins. */
static uint64_t area_left(const struct batch *batch)
{
    return batch->area_used < batch->area_bytes ? batch->area_bytes - batch->area_used : 0;
}

bool batch_has_room(const struct batch *batch, const struct store_item *item)
{
    if (batch->count == 0)
        return true;
    if (batch->count == BATCH_OBJECTS_MAX || key_is_among(batch, &item->key))
        return false;
    if (batch->area)
        return store_item_bytes(item) + HEADER_BYTES <= area_left(batch);
    return batch->span_count + item->span_count + 1 <= BATCH_SPANS_MAX &&
           batch->is_contiguous == item_is_contiguous(item);
}

static void buffer_add(struct batch *batch, void *base, uint64_t size_bytes)
{
    batch->buffers[batch->span_count] = base;
    batch->sizes[batch->span_count] = size_bytes;
    batch->span_count++;
}

void batch_add_key(struct batch *batch, const char *space, const struct store_key *key)
{
    char *text = batch->key_texts[batch->count];
    const size_t space_bytes = strlen(space);
    ASSERT(batch->count < BATCH_OBJECTS_MAX && space_bytes <= STORE_NAMESPACE_BYTES_MAX);
    memcpy(text, space, space_bytes); /* NOLINT(bugprone-not-null-terminated-result): it goes on */
    text[space_bytes] = '/';
    digest_to_hex(&key->digest, text + space_bytes + 1);
    batch->keys[batch->count++] = text;
}

void batch_add(struct batch *batch, const char *space, struct store_item *item)
{
    const size_t index = batch->count;
    batch->is_contiguous = batch->area || item_is_contiguous(item);
    batch_add_key(batch, space, &item->key);
    batch->items[index] = item;
    if (batch->area) {
        const uint64_t bytes = store_item_bytes(item) + HEADER_BYTES;
        ASSERT(bytes <= area_left(batch));
        batch->headers[index] = batch->area + batch->area_used;
        batch->counts[index] = 1;
        buffer_add(batch, batch->headers[index], bytes);
        batch->area_used += (bytes + AREA_ALIGN_BYTES - 1) / AREA_ALIGN_BYTES * AREA_ALIGN_BYTES;
        return;
    }
    if (batch->is_contiguous) {
        batch->headers[index] = (uint8_t *)item->spans[0].base - HEADER_BYTES;
        batch->counts[index] = 1;
        buffer_add(batch, batch->headers[index], item->spans[0].size_bytes + HEADER_BYTES);
        return;
    }
    batch->headers[index] = batch->header_slots[index];
    batch->counts[index] = item->span_count + (size_t)1;
    buffer_add(batch, batch->headers[index], HEADER_BYTES);
    for (uint32_t i = 0; i < item->span_count; i++)
        buffer_add(batch, item->spans[i].base, item->spans[i].size_bytes);
}

/* ---- areas ---- */

void batch_gather(struct batch *batch, size_t index)
{
    const struct store_item *item = batch->items[index];
    uint8_t *at = batch->headers[index] + HEADER_BYTES;
    for (uint32_t i = 0; i < item->span_count; i++) {
        memcpy(at, item->spans[i].base, item->spans[i].size_bytes);
        at += item->spans[i].size_bytes;
    }
}

void batch_scatter(const struct batch *batch, size_t index, uint8_t out_header[HEADER_BYTES])
{
    const struct store_item *item = batch->items[index];
    const uint8_t *at = batch->headers[index] + HEADER_BYTES;
    memcpy(out_header, batch->headers[index], HEADER_BYTES);
    for (uint32_t i = 0; i < item->span_count; i++) {
        memcpy(item->spans[i].base, at, item->spans[i].size_bytes);
        at += item->spans[i].size_bytes;
    }
}

bool batch_area_renew(struct batch *batch, const struct client *client)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    uint8_t *old = batch->area;
    const int known = functions->unregister_buffer(client->handle, old);
    if (known == 0 && functions->register_buffer(client->handle, old, batch->area_bytes) == 0)
        return false; /* what it refused was the objects */
    if (known != 0 && known != MOONCAKE_INVALID)
        return false; /* it does not answer */
    void *taken = NULL;
    if (client_memory_take(client, batch->area_bytes, &taken) != TARN_OK)
        return false;
    uint8_t *area = taken;
    LOG_LIMITED(LOG_WARN,
                "mooncake: the mooncake_client has forgotten this process's memory, as it "
                "does with one that says nothing for about 10 s: it was given new memory");
    for (size_t i = 0; i < batch->count; i++) {
        batch->headers[i] = area + (batch->headers[i] - old);
        batch->buffers[i] = batch->headers[i];
    }
    client_memory_drop(client, old, batch->area_bytes);
    batch->area = area;
    return true;
}
