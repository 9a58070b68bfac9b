/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - one direction's staging pool: slots of host memory, registered once with the store,
 * and the copies between them and pages.
 *
 * A slot belongs to the one thread of its direction. What is in a slot is the object's value: the
 * same bytes as in place. After copies, staging_wait() comes before a slot is used again, handed to
 * the store, or a page counted as loaded.
 */
#ifndef CONNECTOR_STAGING_H
#define CONNECTOR_STAGING_H

#include "connector/device.h"
#include "layout/slots.h"
#include "os/block.h"
#include "store/store.h"

struct staging {
    struct store *store; /* borrowed, as the next two */
    const struct layout *layout;
    const struct device *device;
    struct slots slots;
    enum tarn_copy_direction direction;
    struct block block;
    size_t registered_count;
    struct tarn_span *spans; /* of one page */
};

/* `staging` has its first five members set. Fails as store_register(), or with NO_MEMORY; nothing
 * is left then. */
NODISCARD enum tarn_status staging_open(struct staging *staging);
/* No call uses a slot. Zeroed is fine. */
void staging_close(struct staging *staging);

bool staging_is_open(const struct staging *staging);

/* What a store gets or puts: the page and what is stored behind it, headroom before. */
struct tarn_span staging_span(const struct staging *staging, size_t slot, uint32_t group);
/* What is stored behind a page. */
uint8_t *staging_extra(const struct staging *staging, size_t slot, uint32_t group);

/* Begin to copy a page, which exists, from its regions to the slot, or back. IO: logged. */
NODISCARD enum tarn_status staging_gather(const struct staging *staging, size_t slot,
                                          uint32_t group, tarn_page page);
NODISCARD enum tarn_status staging_scatter(const struct staging *staging, size_t slot,
                                           uint32_t group, tarn_page page);
/* Until all copies of this direction are done. IO: none of them counts. */
NODISCARD enum tarn_status staging_wait(const struct staging *staging);

#endif
