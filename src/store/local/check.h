/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - a full walk over an image: what is in it, and whether it is sound.
 *
 * Changes nothing and may run on a pool in use: what looks wrong is looked at again, and counts
 * only if its words stayed as they were. Nothing found here needs a repair by hand: leavings of
 * dead processes are taken back by the living, unreachable pages age out.
 */
#ifndef STORE_LOCAL_CHECK_H
#define STORE_LOCAL_CHECK_H

#include "store/local/view.h"

enum { CHECK_CLASSES_MAX = 64 };

struct check_class {
    uint32_t units; /* page size in POOL_UNIT_BYTES; 0: unused row */
    uint32_t chunk_count;
    uint64_t slot_count;
    uint64_t page_count; /* committed */
    uint64_t bytes;      /* of committed pages */
};

struct check_name {
    uint64_t page_count;
    uint64_t bytes;
};

struct pool_check {
    uint64_t slots[PAGE_STATE_COUNT]; /* in chunks */
    uint64_t frames[FRAME_STATE_COUNT];
    uint64_t bytes;             /* of committed pages */
    uint64_t pinned_count;      /* slots with a pin of a living process */
    uint64_t left_count;        /* slots that a dead process still holds */
    uint64_t nameless_count;    /* committed, but their namespace is gone: they age out */
    uint64_t unreachable_count; /* committed, but not in the index: likewise */
    uint64_t verified_count;
    uint64_t corrupt_count;
    struct check_class classes[CHECK_CLASSES_MAX];
    struct check_name names[POOL_NAMESPACES];
    uint32_t fault_count; /* things that must not be, whatever happened to any process */
    char first_fault[128];
};

/* Walk. `alive`: bit p says that a living process holds slot p. With `verify` every committed
 * page's checksum is checked too, and a bad one is a fault. */
void image_check(const struct pool_view *view, uint64_t alive, bool verify,
                 struct pool_check *out_check);

#endif
