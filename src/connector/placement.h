/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - how the pages of each direction get to the store: in place, from memory that the
 * store was told of, or through staging slots. Decided once, when pages are registered.
 *
 * Always staged: memory that the CPU cannot read; a store that moves one buffer an object, unless
 * the layout has headroom for its header; pages that are stored with something behind them, or that
 * lie across two registrations, for a store that moves registered memory alone. By default also:
 * loads from a store beyond this host, whose calls cannot be cancelled, so that only a slot is ever
 * written late; and everything, when the store cannot register the pages' memory. Saves to a store
 * beyond this host can be staged page by page. Either way the store holds the same bytes. Constant
 * while open, so any thread may read it.
 */
#ifndef CONNECTOR_PLACEMENT_H
#define CONNECTOR_PLACEMENT_H

#include "connector/staging.h"

enum { PLACEMENT_DIRECTIONS = 2 }; /* by enum tarn_transfer_kind */

struct placement_config {
    struct store *store; /* borrowed, as the next two */
    const struct layout *layout;
    const struct device *device;
    enum tarn_setting stage;
    uint64_t staging_bytes; /* a direction */
    uint32_t batch_pages;
    uint32_t extra_bytes;               /* stored behind each page */
    bool is_used[PLACEMENT_DIRECTIONS]; /* by the role */
};

struct placement {
    struct placement_config config;
    struct staging pools[PLACEMENT_DIRECTIONS]; /* not open: none is needed */
    bool stages_all[PLACEMENT_DIRECTIONS];
    bool has_headroom; /* a page in place is one span, with room for the store's header before it */
    uint32_t batch_pages[PLACEMENT_DIRECTIONS]; /* at most the configured */
    struct range *ranges;                       /* of page memory, as registered */
    size_t range_count;
    size_t registered_count;
    bool is_split; /* a page may lie across two ranges */
};

/* Says what was decided. UNSUPPORTED, INVALID: refused, and said why; else as store_register() and
 * NO_MEMORY. Nothing is left on failure. */
NODISCARD enum tarn_status placement_open(struct placement *placement,
                                          const struct placement_config *config);
/* Unregisters; no call is using the memory. Zeroed is fine. */
void placement_close(struct placement *placement);

/* Whether a page has to pass through a slot. */
bool placement_stages(const struct placement *placement, enum tarn_transfer_kind kind,
                      uint32_t group, tarn_page page);
/* Whether it may. */
bool placement_can_stage(const struct placement *placement, enum tarn_transfer_kind kind);

#endif
