/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h - the memory of one call to a provider: key texts, lists of buffers, and headers that are
 * registered. All of it is taken at the start; a call borrows one batch, and waits for one while
 * others have them all.
 *
 * With a standalone client, objects pass through the batch's area, since its process reaches no
 * other memory: each is header and bytes, copied in before a put, and out after a get. It may still
 * write there after a call was given up, so that what was got is looked at only once it was copied.
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
    uint8_t *area;      /* NULL: the client is embedded */
    size_t area_bytes;
    size_t area_used;
    struct store_item *items[BATCH_OBJECTS_MAX];
    const char *keys[BATCH_OBJECTS_MAX]; /* into key_texts */
    uint8_t *headers[BATCH_OBJECTS_MAX]; /* into header_slots, or before the object's bytes */
    size_t counts[BATCH_OBJECTS_MAX];    /* of an object's buffers */
    int64_t get_results[BATCH_OBJECTS_MAX];
    int results[BATCH_OBJECTS_MAX];
    enum header_fault faults[BATCH_OBJECTS_MAX]; /* of those that were got whole */
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
};

enum { BATCH_POOL_BATCHES = 4 };

/* `has_bytes`: for objects; else for keys alone. On failure batch_pool_deinit() is still due. */
NODISCARD enum tarn_status batch_pool_init(struct batch_pool *pool, const struct client *client,
                                           bool has_bytes);
/* No batch is borrowed. The second one frees memory: the client is stopped. */
void batch_pool_drop(struct batch_pool *pool, const struct client *client);
void batch_pool_deinit(struct batch_pool *pool, const struct client *client);

struct batch *batch_take(struct batch_pool *pool); /* empty */
void batch_clear(struct batch *batch);
void batch_give(struct batch_pool *pool, struct batch *batch);

/* Whether an object of so many bytes fits at all. */
bool batch_is_large_enough(const struct batch *batch, uint64_t object_bytes);

/* Whether an object can be added: there is room, it has the form of the others, and its key is not
 * among them (a provider that is given a key twice in one call serves it once). */
bool batch_has_room(const struct batch *batch, const struct store_item *item);

/* `space` is the text of the key's namespace. */
void batch_add(struct batch *batch, const char *space, struct store_item *item);

/* Between an object's area and its spans. The header is copied out, and what is said of it holds.
 */
void batch_gather(struct batch *batch, size_t index);
void batch_scatter(const struct batch *batch, size_t index, uint8_t out_header[HEADER_BYTES]);

/* After a call that refused every object as if it did not know the area: true: it did not, and the
 * batch has another one now. Objects are gathered again. */
bool batch_area_renew(struct batch *batch, const struct client *client);

/* A key alone. */
void batch_add_key(struct batch *batch, const char *space, const struct store_key *key);

#endif
