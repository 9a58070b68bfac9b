/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h - the memory of one call to a provider: key texts, lists of buffers, and headers that are
 * registered. All of it is taken at the start; a call borrows one batch, and waits for one while
 * others have them all.
 */
#ifndef STORE_MOONCAKE_BATCH_H
#define STORE_MOONCAKE_BATCH_H

#include <pthread.h>

#include "codec/digest.h"
#include "store/mooncake/client.h"
#include "store/mooncake/header.h"
#include "store/store.h"

enum {
    BATCH_OBJECTS_MAX = 256,
    BATCH_SPANS_MAX = 16384, /* headers included; room for any one object */
    BATCH_KEY_BYTES = STORE_NAMESPACE_BYTES_MAX + 1 + DIGEST_HEX_BYTES,
};

struct batch {
    struct batch *next; /* a free one's */
    size_t count;
    size_t span_count;
    bool is_contiguous; /* each object is one buffer, its header in front */
    struct store_item *items[BATCH_OBJECTS_MAX];
    const char *keys[BATCH_OBJECTS_MAX]; /* into key_texts */
    uint8_t *headers[BATCH_OBJECTS_MAX]; /* into header_slots, or before the object's bytes */
    size_t counts[BATCH_OBJECTS_MAX];    /* of an object's buffers */
    int64_t get_results[BATCH_OBJECTS_MAX];
    int results[BATCH_OBJECTS_MAX];
    void *buffers[BATCH_SPANS_MAX];
    size_t sizes[BATCH_SPANS_MAX];
    uint8_t (*header_slots)[HEADER_BYTES];
    char key_texts[BATCH_OBJECTS_MAX][BATCH_KEY_BYTES];
};

/* Batches of one kind of call. */
struct batch_pool {
    pthread_mutex_t lock; /* guards first; innermost */
    pthread_cond_t freed;
    struct batch *first;
    uint8_t (*header_slots)[HEADER_BYTES]; /* of all batches; NULL: they have none */
    bool is_registered;
};

enum { BATCH_POOL_BATCHES = 4 };

/* On failure batch_pool_deinit() is still due. */
NODISCARD enum tarn_status batch_pool_init(struct batch_pool *pool, const struct client *client,
                                           bool has_headers);
/* No batch is borrowed. The second one frees memory: the client is stopped. */
void batch_pool_unregister(struct batch_pool *pool, const struct client *client);
void batch_pool_deinit(struct batch_pool *pool);

struct batch *batch_take(struct batch_pool *pool); /* empty */
void batch_give(struct batch_pool *pool, struct batch *batch);

/* Whether an object can be added: there is room, it has the form of the others, and its key is not
 * among them (a provider that is given a key twice in one call serves it once). */
bool batch_has_room(const struct batch *batch, const struct store_item *item);

/* `space` is the text of the key's namespace. */
void batch_add(struct batch *batch, const char *space, struct store_item *item);

/* A key alone. */
void batch_add_key(struct batch *batch, const char *space, const struct store_key *key);

#endif
