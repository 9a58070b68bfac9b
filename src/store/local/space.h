/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.h - room for a page: a free slot, a new chunk, or the slot of a page that is evicted.
 *
 * There are no free lists in the image: a process looks from its own private place onwards, and
 * evicts the oldest of the pages it has sampled. Every call is bounded. Caller holds put_lock.
 */
#ifndef STORE_LOCAL_SPACE_H
#define STORE_LOCAL_SPACE_H

#include "store/local/view.h"

/* Reserve a slot of the class: on OK *out_ctl is its RESERVED word, and nobody else changes the
 * slot while this process lives. Outcomes: NO_SPACE. */
NODISCARD enum tarn_status space_reserve(struct pool_view *view, const struct page_class *page,
                                         uint32_t *out_slot, uint64_t *out_ctl);

/* Give a reserved slot back. */
void space_free(struct pool_view *view, uint32_t slot, uint64_t reserved_ctl);

/* Evict a committed page; false if it is leased or no longer as `ctl` says. */
bool space_evict(struct pool_view *view, uint32_t slot, uint64_t ctl);

/* Read what eviction goes by; false if the slot holds no committed page. */
bool candidate_read(const struct pool_view *view, uint32_t slot, struct candidate *out_candidate);

#endif
