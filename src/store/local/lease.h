/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - copy leases: promises that a run of pages stays while it is copied.
 *
 * A page is pinned by one bit a process; how many leases of the process hold it is counted here, in
 * private memory. The process slot shows when the oldest lease was taken: past LEASE_NS_MAX
 * anybody may evict in spite of it, and its holder finds out by looking at the page's state after
 * copying. All memory is taken at leases_init(). Any thread.
 */
#ifndef STORE_LOCAL_LEASE_H
#define STORE_LOCAL_LEASE_H

#include "store/local/index.h"

enum {
    LEASE_BLOCK_PAGES = 60,
#ifdef POOL_SIMULATE
    LEASE_CELLS = 8,
#else
    LEASE_CELLS = 2048, /* for leases and their blocks: about 120 000 pages leased at once */
#endif
};

#define LEASE_NS_MAX UINT64_C(10000000000)

struct lease_block {
    struct list link; /* in its lease */
    uint32_t count;
    uint32_t slots[LEASE_BLOCK_PAGES];
};

struct pool_lease {
    struct store_lease base;
    struct pool_view *view;
    struct list link;   /* in view->leases */
    struct list blocks; /* struct lease_block, the first page first */
    uint64_t taken_ns;
    uint32_t page_count;
};

NODISCARD enum tarn_status leases_init(struct pool_view *view);

/* Start an empty lease. Outcomes: AGAIN (all lease memory is in use). */
NODISCARD enum tarn_status lease_begin(struct pool_view *view, struct pool_lease **out_lease);

/* Add pages by name, in order, up to the first that is not there or, with lease memory used up,
 * as far as it goes; *out_count is how many were added. */
void lease_extend(struct pool_lease *lease, const struct page_name *names, uint32_t count,
                  uint32_t stamp, uint32_t *out_count);

void lease_release(struct pool_lease *lease);

/* Pin one page for the moment; false if it is no longer as `ctl` says. */
bool page_pin(struct pool_view *view, uint32_t slot, uint64_t ctl);
void page_unpin(struct pool_view *view, uint32_t slot);

/* Bit of this view's process slot in pins; 0 for a view without one. */
uint64_t view_pin_bit(const struct pool_view *view);

/* Whether any of `pins` protects a page now. */
bool pins_hold(const struct pool_view *view, uint64_t pins, bool is_attached);

#endif
