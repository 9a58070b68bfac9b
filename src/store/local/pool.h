/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the local pool as a store: one file of shared memory that every process on a host maps.
 *
 * Opening joins the pool or, if there is none, creates it. Opening one pool twice in a process
 * gives the same store, which counts its users. After fork() a child's copy is dead: every call on
 * it answers MISS or UNSUPPORTED and nothing of the parent's is touched; the child may open its
 * own.
 */
#ifndef STORE_LOCAL_POOL_H
#define STORE_LOCAL_POOL_H

#include "store/store.h"

struct pool_options {
    const char *path;        /* NULL: the user's default pool on this host */
    uint64_t size_bytes;     /* of a pool to create; 0: by the default rule, which is printed */
    uint32_t page_bytes_min; /* of a pool to create: smaller pages waste memory; 0: 16 KiB */
    bool is_read_only;       /* neither create nor write: read without leases */
};

/*
 * Open or create. Every failure has been logged, with what to do: UNSUPPORTED (a file of another
 * format, version or machine, a directory that is not the user's own, or 64 processes use it
 * already), NO_SPACE (not enough memory for a pool), IO, NO_MEMORY, MISS (read only, and no pool
 * there).
 */
NODISCARD enum tarn_status pool_open(const struct pool_options *options, struct store **out_store);

#endif
