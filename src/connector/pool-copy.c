/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/pool-copy.h"

#include <string.h>

#include "base/alloc.h"

void pool_copy_init(struct pool_copy *copy)
{
    *copy = (struct pool_copy){ .size_bytes = 0 };
    (void)pthread_mutex_init(&copy->lock, NULL);
}

static void buffer_drop(struct pool_copy *copy, struct store *store)
{
    if (!copy->buffer)
        return;
    store_unregister(store, copy->buffer);
    mem_free(copy->buffer);
    copy->buffer = NULL;
    copy->size_bytes = 0;
}

void pool_copy_deinit(struct pool_copy *copy, struct store *store)
{
    buffer_drop(copy, store);
    (void)pthread_mutex_destroy(&copy->lock);
}

static uint64_t item_bytes(const struct store_item *item)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < item->span_count; i++)
        bytes += item->spans[i].size_bytes;
    return bytes;
}

static enum tarn_status buffer_reserve(struct pool_copy *copy, struct store *store,
                                       uint64_t size_bytes)
{
    if (size_bytes <= copy->size_bytes)
        return TARN_OK;
    buffer_drop(copy, store);
    copy->buffer = mem_alloc(1, size_bytes);
    if (!copy->buffer)
        return TARN_NO_MEMORY;
    const enum tarn_status status = store_register(store, copy->buffer, size_bytes);
    if (status != TARN_OK) {
        mem_free(TAKE(copy->buffer));
        return status;
    }
    copy->size_bytes = size_bytes;
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
                                  struct store_item *item, bool is_put)
{
    const uint32_t headroom = store_traits(store)->headroom_bytes;
    const uint64_t bytes = item_bytes(item);
    TRY(buffer_reserve(copy, store, headroom + bytes));
    const struct tarn_span span = { copy->buffer + headroom, bytes };
    struct store_item whole = {
        .key = item->key, .spans = &span, .span_count = 1, .status = TARN_IO, .has_headroom = true
    };
    if (is_put)
        bytes_copy(item, span.base, true);
    TRY(is_put ? store_put(store, &whole, 1) : store_get(store, &whole, 1));
    if (!is_put && whole.status == TARN_OK)
        bytes_copy(item, span.base, false);
    item->was_present = whole.was_present;
    return whole.status;
}

enum tarn_status pool_copy_put(struct pool_copy *copy, struct store *store, struct store_item *item)
{
    (void)pthread_mutex_lock(&copy->lock);
    item->status = item_move(copy, store, item, true);
    (void)pthread_mutex_unlock(&copy->lock);
    return item->status;
}

enum tarn_status pool_copy_get(struct pool_copy *copy, struct store *store, struct store_item *item)
{
    (void)pthread_mutex_lock(&copy->lock);
    item->status = item_move(copy, store, item, false);
    (void)pthread_mutex_unlock(&copy->lock);
    return item->status;
}
