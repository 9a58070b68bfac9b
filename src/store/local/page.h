/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - one page's way into the pool and out of it.
 *
 * Put: reserve, write, commit; nothing is visible before the last step. Get: copy, look at the
 * page's state again, and only then trust the copy; its checksum binds the bytes to the key, to the
 * slot and to its generation. Any thread.
 */
#ifndef STORE_LOCAL_PAGE_H
#define STORE_LOCAL_PAGE_H

#include "store/local/index.h"

struct page_io {
    struct page_name name;
    const struct tarn_span *spans;
    uint32_t span_count;
};

/* Outcomes: NO_SPACE, AGAIN (the reservation was taken away: this process was held for dead). IO.
 * *out_was_present: the key was there, nothing was written. */
NODISCARD enum tarn_status page_put(struct pool_view *view, const struct page_io *io,
                                    uint32_t stamp, bool *out_was_present);

/* Outcomes: MISS. CORRUPT: the page's bytes were not those that were put, and it has been
 * quarantined. */
NODISCARD enum tarn_status page_get(struct pool_view *view, const struct page_io *io);

/* Outcomes: MISS, AGAIN (leased). */
NODISCARD enum tarn_status page_remove(struct pool_view *view, const struct page_name *name);

/* Check a committed page's checksum where it lies. Outcomes: MISS (gone meanwhile). CORRUPT. */
NODISCARD enum tarn_status page_verify(const struct pool_view *view, uint32_t slot);

#endif
