/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canary.h - a page that nobody wants, to see whether a store works: put, exists, get, compare,
 * remove. A store that only answers whether a page exists may lose every page that is put.
 *
 * canary_try() may block as long as the store does; it is called by one thread at a time.
 */
#ifndef CONNECTOR_CANARY_H
#define CONNECTOR_CANARY_H

#include "os/block.h"
#include "store/store.h"

struct canary {
    struct store *store;
    struct block block;    /* registered with the store */
    size_t page_offset[2]; /* put and got, each with room for a header before it */
    uint32_t namespace_index;
    uint32_t number; /* of tries, so that each has a key of its own */
    bool puts;       /* without, it only asks whether one exists */
    /* What came of it. */
    const char *failed_step; /* NULL: it works */
    enum tarn_status status; /* of that step */
};

enum { CANARY_BYTES = 64 }; /* of its page */

/* `namespace_index`: of pages that nobody else puts, if it puts. Fails as store_register(), or with
 * NO_MEMORY. */
NODISCARD enum tarn_status canary_open(struct canary *canary, struct store *store,
                                       uint32_t namespace_index, bool puts);
void canary_close(struct canary *canary); /* zeroed is fine */

/* Sets failed_step and status. A store that is full works. */
void canary_try(struct canary *canary);

#endif
