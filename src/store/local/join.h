/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h - one mapped pool file with this process's view of it: opened, made good, joined, left.
 *
 * Counted references: the store holds one, each call and each lease one. The last one leaves and
 * unmaps. A list of all of them lets go of their descriptors in a child after fork.
 */
#ifndef STORE_LOCAL_JOIN_H
#define STORE_LOCAL_JOIN_H

#include "store/local/file.h"
#include "store/local/warm.h"

enum { POOL_NAMES_MAX = 1024 }; /* namespaces that one store interns */

struct pool {
    struct list link; /* in the list of all pools of this process */
    _Atomic uint32_t reference_count;
    _Atomic bool is_dead; /* in a child after fork: nothing of it may be touched */
    struct pool_file file;
    struct pool_view view;
    struct warm warm;
    _Atomic uint64_t looked_ns;           /* when its link count was last looked at */
    _Atomic uint64_t ids[POOL_NAMES_MAX]; /* of the store's names: see names_resolve() */
};

/* Open, sweep if nobody is alive, take a process slot. Everything is logged. */
NODISCARD enum tarn_status pool_join(const struct pool_place *place, struct pool **out_pool);

void pool_hold(struct pool *pool);
void pool_drop(struct pool *pool); /* NULL is fine */

/* The pool behind a store that pool_open() gave, or NULL: for tests and benches, while nobody else
 * uses the store. */
struct pool *pool_behind(struct store *store);

/* For pthread_atfork: pools_lock() before the fork; then one of the others. */
void pools_lock(void);
void pools_unlock(void);
void pools_abandon(void); /* in the child: mark all dead, close their descriptors, unlock */

#endif
