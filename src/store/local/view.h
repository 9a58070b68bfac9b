/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - one process's view of a pool image: where its words are, and what this process alone
 * remembers about them.
 *
 * A view knows nothing of files and locks: the world reaches it through struct pool_env, which the
 * real pool (pool.c) and the simulator each fill. Nothing private here is ever needed to repair
 * the image after this process's death. Locks order threads of this process only, and are never
 * held across I/O: lease_lock, then put_lock, then reclaim_lock.
 */
#ifndef STORE_LOCAL_VIEW_H
#define STORE_LOCAL_VIEW_H

#include <pthread.h>

#include "base/list.h"
#include "store/local/format.h"

/* Orders threads of this process; no part of the image. */
struct view_lock {
#ifdef POOL_SIMULATE
    bool is_held;
#else
    pthread_mutex_t mutex;
#endif
};

static inline void view_lock_init(struct view_lock *lock)
{
#ifdef POOL_SIMULATE
    lock->is_held = false;
#else
    (void)pthread_mutex_init(&lock->mutex, NULL);
#endif
}

static inline void view_lock_deinit(struct view_lock *lock)
{
#ifdef POOL_SIMULATE
    lock->is_held = false;
#else
    (void)pthread_mutex_destroy(&lock->mutex);
#endif
}

static inline void view_lock(struct view_lock *lock)
{
#ifdef POOL_SIMULATE
    while (lock->is_held)
        simulator_wait(); /* for another thread of the same simulated process */
    lock->is_held = true;
#else
    (void)pthread_mutex_lock(&lock->mutex);
#endif
}

static inline void view_unlock(struct view_lock *lock)
{
#ifdef POOL_SIMULATE
    lock->is_held = false;
#else
    (void)pthread_mutex_unlock(&lock->mutex);
#endif
}

/* What a view needs of the world. */
struct pool_env {
    uint64_t (*now_ns)(void *context);
    /* Take the byte of a process slot: true only if no living process holds it, and then it is
     * ours until released. */
    bool (*process_take)(void *context, uint32_t process);
    void (*process_release)(void *context, uint32_t process);
    /* Write page data. IO, NO_SPACE. */
    enum tarn_status (*write)(void *context, uint64_t offset, const struct tarn_span *spans,
                              uint32_t count);
    /* Give [offset, offset + size) of page data its memory. IO, NO_SPACE. */
    enum tarn_status (*populate)(void *context, uint64_t offset, uint64_t size_bytes);
    /* Page data, mapped for writing; NULL: it is written through write() alone. Bytes of a frame
     * may be written there once window_open() said true for it: no fault can fail then. */
    uint8_t *window;
    bool (*window_open)(void *context, uint64_t offset, uint64_t size_bytes);
    /* Page data at [offset, offset + size) is about to be read. NULL: nothing to do. */
    void (*touch)(void *context, uint64_t offset, uint64_t size_bytes);
    /* Whether the image is still there, after reading or writing it. NULL: always. */
    bool (*is_intact)(void *context);
    void *context;
};

struct candidate {
    uint32_t slot;
    uint32_t stamp;
    uint32_t depth;
    uint64_t ctl;
};

enum {
    VIEW_CLASSES = 8,      /* page classes that one process puts at a time */
    VIEW_CANDIDATES = 64,  /* for eviction, a class */
    VIEW_NO_PROCESS = 127, /* of a view without a process slot: it must not change the image */
};

/* Where this process looks for room for pages of one class. Guarded by put_lock. */
struct space_class {
    struct page_class page; /* units 0: unused */
    uint64_t used_tick;     /* private; the least recently used one makes way */
    uint32_t frame;         /* the next place to look for a free slot */
    uint32_t page_index;    /* in the chunk at `frame` */
    uint32_t *chunks;       /* heads of the class's chunks, as last seen */
    uint32_t chunk_count;
    uint32_t candidate_count;
    struct candidate candidates[VIEW_CANDIDATES];
};

struct pool_view {
    struct pool_geometry geometry;
    struct pool_live *live;
    struct pool_process *processes;
    shm_word *frames;
    shm_word *name_states;
    struct pool_name *name_texts;
    struct pool_header *headers;
    struct pool_bucket *buckets;
    const uint8_t *data; /* mapped read-only; NULL in a view that reads no pages */

    struct pool_env env;
    uint32_t process;             /* own slot or VIEW_NO_PROCESS */
    bool verify;                  /* checksums on get; off in benches alone */
    _Atomic uint32_t owner_count; /* calls under way that may own words of the image */
    _Atomic uint64_t *touched;    /* a bit a frame that this process has read from: near.h */
    _Atomic uint64_t *opened;     /* likewise: that it may write to in the window */
    _Atomic bool has_opened;      /* any of them */

    struct view_lock lease_lock; /* guards the next five */
    uint16_t *pin_counts;        /* leases of this process on each slot; 0: its bit is clear */
    struct list leases;          /* struct pool_lease, oldest first */
    struct list lease_cells;     /* free ones */
    void *lease_memory;
    uint32_t lease_count;

    struct view_lock put_lock; /* guards the next five */
    struct space_class classes[VIEW_CLASSES];
    uint32_t *chunk_memory;
    uint64_t use_tick;
    uint64_t random;
    uint32_t claim_pause; /* tries left out before looking for empty frames again */

    struct view_lock reclaim_lock; /* guards the next two, and the taking of others' bytes */
    uint64_t reclaim_ns;           /* when the dead were last looked for */
    uint64_t names_swept_ns;       /* when namespaces were last swept */

    _Atomic uint32_t quarantine_count; /* in the minute that began at quarantine_ns */
    _Atomic uint64_t quarantine_ns;
    _Atomic bool is_off; /* too many of this process's reads were bad: it may be its own memory */
};

/* Lay a view over an image of geometry->data_offset bytes of metadata and its page data. Allocates
 * all that the view will ever need. */
NODISCARD enum tarn_status view_init(struct pool_view *view, const struct pool_geometry *geometry,
                                     void *metadata, const void *data, const struct pool_env *env);
void view_deinit(struct pool_view *view); /* private memory only; zeroed is fine */

/* Start the view's pseudo-random numbers elsewhere. */
void view_seed(struct pool_view *view, uint64_t seed);

/* A pseudo-random number below `limit` (> 0). Caller holds put_lock. */
uint32_t view_random(struct pool_view *view, uint32_t limit);

/* Around every call that may own words of the image: a process that leaves with one unfinished has
 * its slot swept like a dead one's. */
static inline void view_own(struct pool_view *view)
{
    atomic_fetch_add(&view->owner_count, 1);
}

static inline void view_disown(struct pool_view *view)
{
    atomic_fetch_sub(&view->owner_count, 1);
}

static inline uint64_t view_now_ns(const struct pool_view *view)
{
    return view->env.now_ns(view->env.context);
}

/* The time of the next use, the same for everything that one call touches. */
uint32_t view_tick(struct pool_view *view);

/* Where a page of `length_bytes` in `slot` lies in the page data. MISS if the image does not say
 * so: the slot is in no chunk, or the page does not fit there. */
NODISCARD enum tarn_status view_page_offset(const struct pool_view *view, uint32_t slot,
                                            uint32_t length_bytes, uint64_t *out_offset);

#endif
