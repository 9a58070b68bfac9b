/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - a queue of one thread that grows only where it is told to. */
#ifndef CONNECTOR_RING_H
#define CONNECTOR_RING_H

#include "base/base.h"

struct ring {
    uint8_t *items;
    size_t item_bytes;
    size_t capacity;
    size_t first;
    size_t count;
};

void ring_init(struct ring *ring, size_t item_bytes);
void ring_deinit(struct ring *ring); /* zeroed is fine */

/* Make room for `count` items in all. */
NODISCARD enum tarn_status ring_reserve(struct ring *ring, size_t count);

/* There is room; there is an item. */
void ring_push(struct ring *ring, const void *item);
void ring_pop(struct ring *ring, void *out_item);
const void *ring_first(const struct ring *ring);

#endif
