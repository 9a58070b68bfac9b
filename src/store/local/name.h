/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.h - namespaces: the keys' text up to the digest, interned as 32 bits.
 *
 * An id never comes to mean another text. Two processes that intern one text at the same moment may
 * make two entries; both then settle on the one that a search meets first, and the other ages
 * out with its pages. Any thread.
 */
#ifndef STORE_LOCAL_NAME_H
#define STORE_LOCAL_NAME_H

#include "store/local/view.h"

/* The id of a text. Outcomes: MISS. */
NODISCARD enum tarn_status name_find(const struct pool_view *view, const char *text,
                                     uint32_t *out_id);

/* The id of a text, entered if need be. Outcomes: NO_SPACE (4 096 namespaces have pages). */
NODISCARD enum tarn_status name_intern(struct pool_view *view, const char *text, uint32_t *out_id);

/* Copy the text of an id, with its NUL. Outcomes: MISS. */
NODISCARD enum tarn_status name_read(const struct pool_view *view, uint32_t id,
                                     char out_text[STORE_NAMESPACE_BYTES_MAX + 1]);

/* Changes whenever an id found earlier may no longer be the one to use. */
static inline uint64_t names_epoch(const struct pool_view *view)
{
    return shm_load(&view->live->names_epoch);
}

/* Free the entries that dead owners left unfinished. */
void names_sweep(struct pool_view *view, uint64_t dead);

#endif
