/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - one interface to a store of immutable objects: the pages of a KV cache, named by what
 * they mean (namespace and block digest).
 *
 * A store may always answer MISS; it never answers with other bytes than were put under a key. All
 * functions of one open store may be called from several threads at once; store_close comes last.
 * An item's status is its own: a batch as a whole fails only if nothing of it was tried.
 * Keys, items and spans are borrowed for the length of a call.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/base.h"
#include "key/namespace.h"

enum {
    STORE_NAMESPACE_BYTES_MAX = NAMESPACE_TEXT_BYTES_MAX, /* of a namespace's text */
    STORE_SPANS_MAX = 1024,                               /* of one object */
};

struct store_key {
    struct tarn_digest digest; /* of the block */
    uint32_t namespace_index;  /* from store_namespace() of the same store */
    uint32_t depth;            /* index of the block in its chain: its tail is evicted first */
};

/* What a store asks of whoever uses it; constant while it is open. */
struct store_traits {
    bool is_beyond_host; /* its calls cross a network and may block until a time-out of its own */
    bool must_register;  /* spans lie in memory that store_register() was told of */
    bool is_contiguous_only; /* an item has one span, with headroom before it */
    uint32_t
        headroom_bytes; /* before the first span of an item that has it; 0: none is ever needed */
    uint64_t range_bytes_max; /* of one registration; 0: no limit */
    bool writes_late; /* memory of a get that failed may be written to until store_stop(), though
                         the call has returned: it is nobody's to compute in or to free before */
};

/*
 * An object to get or put: its bytes are the spans, one after the other. A put only reads them.
 * With has_headroom the traits' headroom_bytes right before the first span are registered memory
 * that the call may write: the store then moves its header and a single span as one buffer.
 */
struct store_item {
    struct store_key key;
    const struct tarn_span *spans;
    uint32_t span_count;     /* 1 to STORE_SPANS_MAX */
    enum tarn_status status; /* set by the call */
    bool was_present;        /* set by a put that wrote nothing because the key is there */
    bool has_headroom;
};

static inline uint64_t store_item_bytes(const struct store_item *item)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < item->span_count; i++)
        bytes += item->spans[i].size_bytes;
    return bytes;
}

struct store_stat {
    uint64_t capacity_bytes; /* for pages */
    uint64_t used_bytes;     /* by committed pages; an estimate */
    uint64_t lease_count;    /* that this process holds */
    bool is_inert;           /* the store went away or was switched off: everything is a miss */
};

struct store;
struct store_lease;

struct store_ops {
    const char *name;
    enum tarn_status (*register_memory)(struct store *store, void *base, size_t size);
    void (*unregister_memory)(struct store *store, void *base);
    enum tarn_status (*intern)(struct store *store, const char *text, uint32_t *out_index);
    enum tarn_status (*exists)(struct store *store, const struct store_key *keys, size_t count,
                               bool *out_present);
    enum tarn_status (*lookup)(struct store *store, const struct store_key *keys, size_t count,
                               struct store_lease **out_lease, size_t *out_count);
    void (*lease_release)(struct store_lease *lease);
    enum tarn_status (*get)(struct store *store, struct store_item *items, size_t count);
    bool (*holds)(struct store *store, const struct store_item *item);
    enum tarn_status (*put)(struct store *store, struct store_item *items, size_t count);
    enum tarn_status (*remove)(struct store *store, const struct store_key *key);
    void (*stat)(struct store *store, struct store_stat *out_stat);
    void (*stop)(struct store *store);
    void (*close)(struct store *store);
};

/* An open store. Implementations embed it as their first member. */
struct store {
    const struct store_ops *ops;
    struct store_traits traits; /* all zero: none of them */
};

/* A promise that a run of objects stays. Implementations embed it as their first member. */
struct store_lease {
    struct store *store;
};

static inline const struct store_traits *store_traits(const struct store *store)
{
    return &store->traits;
}

/* Tell the store of memory that spans will lie in: at most range_bytes_max, told once, until it is
 * unregistered or the store is closed. Outcomes: NO_SPACE (a limit of the system; the log names
 * it), INVALID (told already), IO. A store without must_register takes it as told. */
NODISCARD static inline enum tarn_status store_register(struct store *store, void *base,
                                                        size_t size)
{
    if (!store->ops->register_memory)
        return TARN_OK;
    return store->ops->register_memory(store, base, size);
}

/* No call may be using the memory. */
static inline void store_unregister(struct store *store, void *base)
{
    if (store->ops->unregister_memory)
        store->ops->unregister_memory(store, base);
}

/* The index of a namespace: the keys' text up to the digest, at most STORE_NAMESPACE_BYTES_MAX
 * bytes and not empty. The same text gives the same index; indexes hold until the store is closed
 * and mean nothing outside it. May allocate: call it at start. Outcomes: NO_SPACE (table full). */
NODISCARD static inline enum tarn_status store_namespace(struct store *store, const char *text,
                                                         uint32_t *out_index)
{
    return store->ops->intern(store, text, out_index);
}

/* Set out_present[i] to whether keys[i] is there now; no lease, so it may be gone a moment later.
 */
NODISCARD static inline enum tarn_status store_exists(struct store *store,
                                                      const struct store_key *keys, size_t count,
                                                      bool *out_present)
{
    return store->ops->exists(store, keys, count, out_present);
}

/*
 * Take a lease on the leading run of `keys` that is present; *out_count says how long the run is.
 * The caller owns the lease and releases it on every path. A lease older than 10 s may be
 * ignored by others: what was evicted then reads as a miss, never as other bytes.
 * Outcomes: MISS (not even the first key is there: no lease), AGAIN (too many leases are held).
 */
NODISCARD static inline enum tarn_status store_lookup(struct store *store,
                                                      const struct store_key *keys, size_t count,
                                                      struct store_lease **out_lease,
                                                      size_t *out_count)
{
    return store->ops->lookup(store, keys, count, out_lease, out_count);
}

/* Takes ownership; NULL is fine. */
static inline void store_lease_release(struct store_lease *lease)
{
    if (lease)
        lease->store->ops->lease_release(lease);
}

/*
 * Copy objects into their spans. Each item's status: OK (exactly the bytes that were put), MISS
 * (not there, or of another length than the spans together), CORRUPT (there, but its checksum
 * failed; the store has put it away), IO (the store could not be asked), AGAIN. Spans of an item
 * that is not OK hold anything.
 */
NODISCARD static inline enum tarn_status store_get(struct store *store, struct store_item *items,
                                                   size_t count)
{
    return store->ops->get(store, items, count);
}

/*
 * Whether the memory of an item with has_headroom that store_get() called OK holds it still. With
 * writes_late a get that failed before may write into memory that is used again: who has copied an
 * item away asks this afterwards, and has copied it right only if it does.
 */
NODISCARD static inline bool store_holds(struct store *store, const struct store_item *item)
{
    return !store->traits.writes_late || store->ops->holds(store, item);
}

/*
 * Put objects. Each item's status: OK (committed, or was_present), NO_SPACE (full, and nothing can
 * be evicted; or larger than the store takes), AGAIN, IO. Nothing of an object is visible before it
 * is committed, and nothing at all of one whose status is not OK.
 */
NODISCARD static inline enum tarn_status store_put(struct store *store, struct store_item *items,
                                                   size_t count)
{
    return store->ops->put(store, items, count);
}

/* Forget an object. Outcomes: MISS (not there), AGAIN (a lease holds it). */
NODISCARD static inline enum tarn_status store_remove(struct store *store,
                                                      const struct store_key *key)
{
    return store->ops->remove(store, key);
}

static inline void store_stat(struct store *store, struct store_stat *out_stat)
{
    store->ops->stat(store, out_stat);
}

/* All calls must have returned, and only lease_release, unregister and close follow. From here on
 * the store touches no memory but its own. NULL is fine. */
static inline void store_stop(struct store *store)
{
    if (store && store->ops->stop)
        store->ops->stop(store);
}

/* All leases must have been released and all calls returned. NULL is fine. */
static inline void store_close(struct store *store)
{
    if (store)
        store->ops->close(store);
}

#endif
