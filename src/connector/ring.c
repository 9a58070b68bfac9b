/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/ring.h"

#include <string.h>

#include "base/alloc.h"

void ring_init(struct ring *ring, size_t item_bytes)
{
    *ring = (struct ring){ .item_bytes = item_bytes };
}

void ring_deinit(struct ring *ring)
{
    mem_free(ring->items);
    *ring = (struct ring){ .item_bytes = ring->item_bytes };
}

enum tarn_status ring_reserve(struct ring *ring, size_t count)
{
    if (count <= ring->capacity)
        return TARN_OK;
    const size_t capacity = count + count / 2;
    uint8_t *items = mem_alloc(capacity, ring->item_bytes);
    if (!items)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < ring->count; i++)
        memcpy(items + i * ring->item_bytes,
               ring->items + (ring->first + i) % ring->capacity * ring->item_bytes,
               ring->item_bytes);
    mem_free(ring->items);
    ring->items = items;
    ring->capacity = capacity;
    ring->first = 0;
    return TARN_OK;
}

void ring_push(struct ring *ring, const void *item)
{
    ASSERT(ring->count < ring->capacity);
    const size_t place = (ring->first + ring->count) % ring->capacity;
    memcpy(ring->items + place * ring->item_bytes, item, ring->item_bytes);
    ring->count++;
}

void ring_pop(struct ring *ring, void *out_item)
{
    ASSERT(ring->count > 0);
    memcpy(out_item, ring->items + ring->first * ring->item_bytes, ring->item_bytes);
    ring->first = (ring->first + 1) % ring->capacity;
    ring->count--;
}

const void *ring_first(const struct ring *ring)
{
    ASSERT(ring->count > 0);
    return ring->items + ring->first * ring->item_bytes;
}
