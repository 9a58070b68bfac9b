/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-copy.h - single objects to and from a store that reaches registered memory alone: through
 * buffers that are registered, one object at a time. Puts and gets have buffers of their own, since
 * a store may still write where a get has failed (writes_late of store.h).
 *
 * For programs that hand memory of their own to the pool of tarn.h; a connector registers its
 * pages. Any thread. The lock inside guards the buffers and is held during the store's call.
 */
#ifndef CONNECTOR_POOL_COPY_H
#define CONNECTOR_POOL_COPY_H

#include <pthread.h>

#include "store/store.h"

enum pool_copy_kind { POOL_COPY_PUT, POOL_COPY_GET, POOL_COPY_KINDS };

struct pool_copy {
    pthread_mutex_t lock;
    struct pool_buffer *buffers[POOL_COPY_KINDS]; /* NULL: none yet */
};

void pool_copy_init(struct pool_copy *copy);
/* The store is stopped. */
void pool_copy_deinit(struct pool_copy *copy, struct store *store);

/* As store_put() and store_get() of one item, whose status is the answer. NO_MEMORY, NO_SPACE (of
 * the registration): there is no buffer of its size. */
NODISCARD enum tarn_status pool_copy_put(struct pool_copy *copy, struct store *store,
                                         struct store_item *item);
NODISCARD enum tarn_status pool_copy_get(struct pool_copy *copy, struct store *store,
                                         struct store_item *item);

#endif
