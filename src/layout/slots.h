/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - geometry of a staging pool: host memory in equal slots, through which pages pass that a
 * store cannot move in place.
 *
 * A slot holds one page of any group, as one run of bytes: the store's header, the page's regions
 * in order, then what is stored behind the page. Pure; offsets are from the start of the pool.
 */
#ifndef LAYOUT_SLOTS_H
#define LAYOUT_SLOTS_H

#include "layout/layout.h"

enum { SLOTS_ALIGN_BYTES = 64 }; /* each slot begins on such a boundary */

struct slots {
    uint64_t slot_bytes; /* from slot to slot */
    size_t count;        /* at least 1 */
    uint32_t headroom_bytes;
    uint32_t extra_bytes;
    size_t range_slots; /* slots of one registration: none is ever cut in two */
};

struct slots_wish {
    size_t batch_pages;       /* more slots are of no use; at least 1 */
    uint64_t budget_bytes;    /* memory that all slots together may take */
    uint32_t headroom_bytes;  /* of the store's header, before each page */
    uint32_t extra_bytes;     /* behind each page */
    uint64_t range_bytes_max; /* of one registration; 0: no limit */
};

/*
 * slot = header + largest page over the groups + what is stored behind it, rounded up to
 * SLOTS_ALIGN_BYTES; count = max(1, min(batch, budget / slot)): a budget below one slot still gives
 * one, and count < batch means that batches are narrowed to it.
 * INVALID, with a sentence in `out_reason`: no budget, a slot that a registration cannot hold, a
 * pool larger than the address space.
 */
NODISCARD enum tarn_status slots_plan(const struct layout *layout, const struct slots_wish *wish,
                                      char out_reason[LAYOUT_REASON_BYTES],
                                      struct slots *out_slots);

uint64_t slots_bytes(const struct slots *slots); /* of the pool */

/* Where the page in slot `index` begins, right behind its header. */
uint64_t slots_page_offset(const struct slots *slots, size_t index);

/* The pool as registrations of whole slots: how many, and the nth. */
size_t slots_range_count(const struct slots *slots);
struct range slots_range(const struct slots *slots, size_t index);

#endif
