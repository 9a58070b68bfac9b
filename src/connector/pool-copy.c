/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/pool-copy.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"

struct pool_buffer {
    struct pool_buffer *next; /* outgrown before it */
    uint64_t size_bytes;
    alignas(max_align_t) uint8_t bytes[]; /* registered */
};

void pool_copy_init(struct pool_copy *copy)
{
    *copy = (struct pool_copy){ .buffers = { NULL } };
    (void)pthread_mutex_init(&copy->lock, NULL);
}

void pool_copy_deinit(struct pool_copy *copy, struct store *store)
{
    for (int kind = 0; kind < POOL_COPY_KINDS; kind++) {
        while (copy->buffers[kind]) {
            struct pool_buffer *buffer = copy->buffers[kind];
            copy->buffers[kind] = buffer->next;
            store_unregister(store, buffer->bytes);
            mem_free(buffer);
        }
    }
    (void)pthread_mutex_destroy(&copy->lock);
}

/* One that is outgrown stays: a get that failed may still write to it. Each is twice as large as
 * the one before. */
static enum tarn_status buffer_reserve(struct pool_copy *copy, struct store *store,
                                       enum pool_copy_kind kind, uint64_t size_bytes)
{
    struct pool_buffer *current = copy->buffers[kind];
    if (current && size_bytes <= current->size_bytes)
        return TARN_OK;
    if (current && size_bytes < 2 * current->size_bytes)
        size_bytes = 2 * current->size_bytes;
    struct pool_buffer *buffer = mem_alloc(1, sizeof(*buffer) + size_bytes);
    if (!buffer)
        return TARN_NO_MEMORY;
    const enum tarn_status status = store_register(store, buffer->bytes, size_bytes);
    if (status != TARN_OK) {
        mem_free(buffer);
        return status;
    }
    buffer->size_bytes = size_bytes;
    buffer->next = current;
    copy->buffers[kind] = buffer;
    return TARN_OK;
}

/* Between the item's spans and the buffer's bytes behind the headroom. */
static void bytes_copy(const struct store_item *item, uint8_t *bytes, bool to_buffer)
{
    for (uint32_t i = 0; i < item->span_count; i++) {
        const struct tarn_span *span = &item->spans[i];
        memcpy(to_buffer ? bytes : span->base, to_buffer ? span->base : bytes, span->size_bytes);
        bytes += span->size_bytes;
    }
}

/* With the lock. */
static enum tarn_status item_move(struct pool_copy *copy, struct store *store,
                                  struct store_item *item, enum pool_copy_kind kind)
{
    const uint32_t headroom = store_traits(store)->headroom_bytes;
    const uint64_t bytes = store_item_bytes(item);
    const bool is_put = kind == POOL_COPY_PUT;
    TRY(buffer_reserve(copy, store, kind, headroom + bytes));
    const struct tarn_span span = { copy->buffers[kind]->bytes + headroom, bytes };
    struct store_item whole = {
        .key = item->key, .spans = &span, .span_count = 1, .status = TARN_IO, .has_headroom = true
    };
    if (is_put)
        bytes_copy(item, span.base, true);
    TRY(is_put ? store_put(store, &whole, 1) : store_get(store, &whole, 1));
    item->was_present = whole.was_present;
    if (is_put || whole.status != TARN_OK)
        return whole.status;
    bytes_copy(item, span.base, false);
    return store_holds(store, &whole) ? TARN_OK : TARN_MISS;
}

enum tarn_status pool_copy_put(struct pool_copy *copy, struct store *store, struct store_item *item)
{
    (void)pthread_mutex_lock(&copy->lock);
    item->status = item_move(copy, store, item, POOL_COPY_PUT);
    (void)pthread_mutex_unlock(&copy->lock);
    return item->status;
}

enum tarn_status pool_copy_get(struct pool_copy *copy, struct store *store, struct store_item *item)
{
    (void)pthread_mutex_lock(&copy->lock);
    item->status = item_move(copy, store, item, POOL_COPY_GET);
    (void)pthread_mutex_unlock(&copy->lock);
    return item->status;
}
