/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - a bounded queue by which threads exchange ownership.
 *
 * Items are copied in and out, first in, first out; what they point to belongs to whoever holds the
 * item. All memory is taken at the start. Any thread may push or pop; a push never waits. The lock
 * inside guards the items and the flag; nothing is called under it.
 */
#ifndef OS_QUEUE_H
#define OS_QUEUE_H

#include <pthread.h>

#include "base/base.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    uint8_t *items; /* ring; NULL: not initialised */
    size_t item_bytes;
    size_t capacity;
    size_t first;
    size_t count;
    bool is_closed;
};

/* Both at least 1. */
NODISCARD enum tarn_status queue_init(struct queue *queue, size_t item_bytes, size_t capacity);
void queue_deinit(struct queue *queue); /* no thread uses it any more; NULL and zeroed are fine */

/* Outcomes: NO_SPACE (full). STALE (closed). */
NODISCARD enum tarn_status queue_push(struct queue *queue, const void *item);
/* All of them, so that who waits finds them together, or none. Outcomes as above. */
NODISCARD enum tarn_status queue_push_all(struct queue *queue, const void *items, size_t count);

/* Take up to item_count items that are there, at least one unless the queue is empty. Outcomes:
 * AGAIN (empty). */
NODISCARD enum tarn_status queue_take(struct queue *queue, void *out_items, size_t item_count,
                                      size_t *out_count);

/* As queue_take(), but waits for an item. Outcomes: STALE (closed, and nothing is left). */
NODISCARD enum tarn_status queue_wait(struct queue *queue, void *out_items, size_t item_count,
                                      size_t *out_count);

/* Refuse further items and wake whoever waits; what is there can still be taken. */
void queue_close(struct queue *queue);

size_t queue_count(struct queue *queue);

#endif
