/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/batch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/mooncake/result.h"

enum tarn_status batch_pool_init(struct batch_pool *pool, const struct client *client,
                                 bool has_headers)
{
    char text[64];
    const size_t slot_count = (size_t)BATCH_POOL_BATCHES * BATCH_OBJECTS_MAX;
    *pool = (struct batch_pool){ .first = NULL };
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->freed, NULL);
    if (has_headers) {
        pool->header_slots = mem_alloc(slot_count, HEADER_BYTES);
        if (!pool->header_slots)
            return TARN_NO_MEMORY;
        const int result = client->provider.functions.register_buffer(
            client->handle, pool->header_slots, slot_count * HEADER_BYTES);
        if (result != 0) {
            log_error("mooncake: memory for headers cannot be registered: %s",
                      result_print(result, text, sizeof(text)));
            return TARN_IO;
        }
        pool->is_registered = true;
    }
    for (size_t i = 0; i < BATCH_POOL_BATCHES; i++) {
        struct batch *batch = mem_alloc(1, sizeof(*batch));
        if (!batch)
            return TARN_NO_MEMORY;
        if (has_headers)
            batch->header_slots = pool->header_slots + i * BATCH_OBJECTS_MAX;
        batch->next = pool->first;
        pool->first = batch;
    }
    return TARN_OK;
}

void batch_pool_unregister(struct batch_pool *pool, const struct client *client)
{
    if (pool->is_registered)
        (void)client->provider.functions.unregister_buffer(client->handle, pool->header_slots);
    pool->is_registered = false;
}

void batch_pool_deinit(struct batch_pool *pool)
{
    while (pool->first) {
        struct batch *batch = pool->first;
        pool->first = batch->next;
        mem_free(batch);
    }
    mem_free(pool->header_slots);
    (void)pthread_cond_destroy(&pool->freed);
    (void)pthread_mutex_destroy(&pool->lock);
}

struct batch *batch_take(struct batch_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->first)
        (void)pthread_cond_wait(&pool->freed, &pool->lock);
    struct batch *batch = pool->first;
    pool->first = batch->next;
    (void)pthread_mutex_unlock(&pool->lock);
    batch->count = 0;
    batch->span_count = 0;
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

bool batch_has_room(const struct batch *batch, const struct store_item *item)
{
    if (batch->count == 0)
        return true;
    return batch->count < BATCH_OBJECTS_MAX &&
           batch->span_count + item->span_count + 1 <= BATCH_SPANS_MAX &&
           batch->is_contiguous == item_is_contiguous(item) && !key_is_among(batch, &item->key);
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
    batch->is_contiguous = item_is_contiguous(item);
    batch_add_key(batch, space, &item->key);
    batch->items[index] = item;
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
