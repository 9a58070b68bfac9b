/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-copy.h - single objects to and from a store that reaches registered memory alone: through a
 * buffer that is registered, one object at a time.
 *
 * For programs that hand memory of their own to the pool of tarn.h; a connector registers its
 * pages. Any thread. The lock inside guards the buffer and is held during the store's call.
 */
#ifndef CONNECTOR_POOL_COPY_H
#define CONNECTOR_POOL_COPY_H

#include <pthread.h>

#include "store/store.h"

struct pool_copy {
    pthread_mutex_t lock;
    uint8_t *buffer; /* NULL: none yet */
    uint64_t size_bytes;
};

void pool_copy_init(struct pool_copy *copy);
void pool_copy_deinit(struct pool_copy *copy, struct store *store);

/* As store_put() and store_get() of one item, whose status is the answer. NO_MEMORY, NO_SPACE (of
 * the registration): there is no buffer of its size. */
NODISCARD enum tarn_status pool_copy_put(struct pool_copy *copy, struct store *store,
                                         struct store_item *item);
NODISCARD enum tarn_status pool_copy_get(struct pool_copy *copy, struct store *store,
                                         struct store_item *item);

#endif
