/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - from a key to the slot of its page.
 *
 * Buckets of eight words {tag, slot}; a key's word is in one of the four buckets from its own on.
 * The index is a hint: a word may be stale or missing, headers alone say what is where. Insert and
 * remove are one CAS a word.
 */
#ifndef STORE_LOCAL_INDEX_H
#define STORE_LOCAL_INDEX_H

#include "store/local/view.h"

#define INDEX_NO_SLOT UINT32_MAX

/* What a page is: the key, with the namespace as the image numbers it. */
struct page_name {
    uint64_t digest[2];
    uint32_t namespace_id;
    uint32_t depth;
};

struct page_name page_name_make(const struct store_key *key, uint32_t namespace_id);

/* Start loading the key's first bucket. */
void index_prefetch(const struct pool_view *view, const struct page_name *name);

/* The key's committed page: its slot and its ctl as read before its name was compared. The caller
 * looks at ctl again after whatever it does with the page. Outcomes: MISS. */
NODISCARD enum tarn_status index_find(const struct pool_view *view, const struct page_name *name,
                                      uint32_t *out_slot, uint64_t *out_ctl);

/* The slot that the key's first bucket names under its tag, whatever is in it now: what the key's
 * page most likely is in. INDEX_NO_SLOT: it names none. */
uint32_t index_guess(const struct pool_view *view, const struct page_name *name);

/* As index_find(), of one slot (or INDEX_NO_SLOT, which holds no page). */
NODISCARD bool index_holds(const struct pool_view *view, const struct page_name *name,
                           uint32_t slot, uint64_t *out_ctl);

/* Enter a slot that this process owns. A full window evicts its oldest page. Outcomes: NO_SPACE
 * (all of the window is in use). Caller holds put_lock. */
NODISCARD enum tarn_status index_insert(struct pool_view *view, const struct page_name *name,
                                        uint32_t slot);

/* Remove every word of the key that names `slot`. */
void index_remove(struct pool_view *view, const struct page_name *name, uint32_t slot);

/* The name in a header, as it is now: meaningful for its owner, a hint for anybody else. */
struct page_name header_name(const struct pool_header *header);

#endif
