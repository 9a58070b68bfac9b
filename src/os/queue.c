/* SPDX-License-Identifier: Apache-2.0 */
#include "os/queue.h"

#include <string.h>

#include "base/alloc.h"

enum tarn_status queue_init(struct queue *queue, size_t item_bytes, size_t capacity)
{
    ASSERT(item_bytes > 0 && capacity > 0);
    *queue = (struct queue){ .item_bytes = item_bytes, .capacity = capacity };
    queue->items = mem_alloc(capacity, item_bytes);
    if (!queue->items)
        return TARN_NO_MEMORY;
    ASSERT(pthread_mutex_init(&queue->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&queue->filled, NULL) == 0);
    return TARN_OK;
}

void queue_deinit(struct queue *queue)
{
    if (!queue || !queue->items)
        return;
    pthread_cond_destroy(&queue->filled);
    pthread_mutex_destroy(&queue->lock);
    mem_free(queue->items);
    *queue = (struct queue){ 0 };
}

enum tarn_status queue_push_all(struct queue *queue, const void *items, size_t count)
{
    enum tarn_status status = TARN_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->is_closed) {
        status = TARN_STALE;
    } else if (count > queue->capacity - queue->count) {
        status = TARN_NO_SPACE;
    } else {
        for (size_t i = 0; i < count; i++) {
            const size_t place = (queue->first + queue->count) % queue->capacity;
            memcpy(queue->items + place * queue->item_bytes,
                   (const uint8_t *)items + i * queue->item_bytes, queue->item_bytes);
            queue->count++;
        }
        pthread_cond_broadcast(&queue->filled);
    }
    pthread_mutex_unlock(&queue->lock);
    return status;
}

enum tarn_status queue_push(struct queue *queue, const void *item)
{
    return queue_push_all(queue, item, 1);
}

/* With the lock held. */
static size_t queue_move_out(struct queue *queue, void *out_items, size_t item_count)
{
    const size_t taken = queue->count < item_count ? queue->count : item_count;
    for (size_t i = 0; i < taken; i++) {
        memcpy((uint8_t *)out_items + i * queue->item_bytes,
               queue->items + queue->first * queue->item_bytes, queue->item_bytes);
        queue->first = (queue->first + 1) % queue->capacity;
    }
    queue->count -= taken;
    return taken;
}

enum tarn_status queue_take(struct queue *queue, void *out_items, size_t item_count,
                            size_t *out_count)
{
    pthread_mutex_lock(&queue->lock);
    const size_t taken = queue_move_out(queue, out_items, item_count);
    pthread_mutex_unlock(&queue->lock);
    if (taken == 0)
        return TARN_AGAIN;
    *out_count = taken;
    return TARN_OK;
}

enum tarn_status queue_wait(struct queue *queue, void *out_items, size_t item_count,
                            size_t *out_count)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->is_closed)
        pthread_cond_wait(&queue->filled, &queue->lock);
    const size_t taken = queue_move_out(queue, out_items, item_count);
    pthread_mutex_unlock(&queue->lock);
    if (taken == 0)
        return TARN_STALE;
    *out_count = taken;
    return TARN_OK;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_closed = true;
    pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

size_t queue_count(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const size_t count = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return count;
}
