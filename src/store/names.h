/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - the namespaces that a store has interned: texts, by index.
 *
 * Texts are added by one thread at a time; any thread may read meanwhile. An index and its text
 * hold until names_deinit(). Zeroed is empty.
 */
#ifndef STORE_NAMES_H
#define STORE_NAMES_H

#include "base/base.h"

enum { NAMES_MAX = 4096 };

struct names {
    _Atomic uint32_t count;
    char *texts[NAMES_MAX]; /* those below count do not change */
};

/* The index of a text, added if it is new. Outcomes: NO_SPACE (`limit` are there, at most
 * NAMES_MAX). */
NODISCARD enum tarn_status names_add(struct names *names, const char *text, uint32_t limit,
                                     uint32_t *out_index);

/* NULL: no such index. */
const char *names_get(const struct names *names, uint32_t index);

void names_deinit(struct names *names);

#endif
