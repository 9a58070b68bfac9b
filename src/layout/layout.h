/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where the bytes of an engine's pages are.
 *
 * A page is (group, page): for each region of the group a run of bytes. By slot, a region's run is
 * at base + stride * slot; by address, at page address + base. A page's value is its runs in region
 * order: the same bytes whether they move in place or through a buffer. Regions differ in size and
 * may interleave. A layout is a checked, private copy of what the engine said: constant from create
 * to destroy, so any thread may read it. Addresses are integers here and never followed.
 */
#ifndef LAYOUT_LAYOUT_H
#define LAYOUT_LAYOUT_H

#include "base/text.h"
#include "layout/range.h"

enum {
    LAYOUT_REASON_BYTES = 256,
    LAYOUT_GROUPS_MAX = 64,
    LAYOUT_REGIONS_MAX = 1023, /* of one group */
    LAYOUT_BUFFERS_MAX = 65536,
    LAYOUT_MEMORY_MAX = 4096,
    LAYOUT_TOKENS_PER_BLOCK_MAX = 1 << 16,
};

struct layout_region {
    uint64_t base; /* address of slot 0, or offset in the page */
    uint64_t size_bytes;
    uint64_t stride_bytes;
};

struct layout_group {
    uint64_t page_bytes; /* of a page's value: the sum of its regions' sizes */
    uint64_t slot_count; /* by slot only */
    uint64_t fingerprint;
    const struct layout_region *regions;
    size_t region_count;
    size_t layer_count;
    uint32_t window_tokens; /* 0: none */
};

struct layout {
    uint32_t tokens_per_block;
    enum tarn_page_form form;
    uint32_t headroom_bytes; /* before each page, in the ranges with it */
    size_t group_count;
    size_t region_count_max; /* over the groups: how many spans a page has at most */
    struct layout_group *groups;
    struct layout_region *regions;
    struct range *ranges; /* what to register: see layout_create() */
    size_t range_count;
    uint64_t memory_bytes; /* of all pages together */
};

/*
 * Check `desc` and copy it. INVALID: refused; `out_reason` then says why, in one sentence.
 *
 * `ranges` is the memory that the pages lie in, disjoint and ascending: the spans of all regions,
 * merged where they overlap or touch. Where the engine named its allocations, spans are merged
 * inside one allocation only, and must lie in one; by address, the ranges are the allocations.
 * A page's headroom belongs to its span.
 *
 * `format_fingerprint` (fingerprint.h) goes into every group's fingerprint.
 */
NODISCARD enum tarn_status layout_create(const struct tarn_layout *desc,
                                         uint64_t format_fingerprint,
                                         char out_reason[LAYOUT_REASON_BYTES],
                                         struct layout **out_layout);
void layout_destroy(struct layout *layout); /* NULL is fine */

/*
 * The spans of a page in region order: out_spans has room for region_count of the group, and gets
 * that many. INVALID: no such group, TARN_PAGE_NONE, a slot out of range, an address whose page
 * does not lie in the registered memory with its headroom.
 */
NODISCARD enum tarn_status layout_page_spans(const struct layout *layout, uint32_t group,
                                             tarn_page page, struct tarn_span *out_spans);

/* Whether such a page exists: layout_page_spans() would return OK. */
bool layout_has_page(const struct layout *layout, uint32_t group, tarn_page page);

/* Whether each run of the page, headroom included, lies in one of `ranges`, as split for
 * registration. A page for which this is false straddles a split and has to be staged. */
bool layout_page_is_whole(const struct layout *layout, uint32_t group, tarn_page page,
                          const struct range *ranges, size_t range_count);

/* "tokens_per_block=T, lg0(layers=N, regions=R, bytes/page=B, slots=S, window=none), ..." */
NODISCARD enum tarn_status layout_print(const struct layout *layout, struct text *text);

#endif
