/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inert.h - an eye on a pool that silently does nothing.
 *
 * Looks at the process's counters: a pool that has been asked for INERT_AFTER_S and gave nothing
 * and took nothing, or whose saves failed for as long, is inert. The time counts from the first
 * question, so that the first requests after a pause may take long. Pure; one thread. The connector
 * alone says what comes of it, and sets tarn_pool_inert.
 */
#ifndef CONNECTOR_INERT_H
#define CONNECTOR_INERT_H

#include "base/base.h"

enum { INERT_AFTER_S = 60, INERT_LOOKUPS_MIN = 8 };

struct inert_counts {
    int64_t lookups;       /* that asked the pool */
    int64_t hits;          /* blocks */
    int64_t saves;         /* pages saved, or not saved since they were there */
    int64_t save_failures; /* pages */
};

struct inert {
    struct inert_counts before; /* when it last did something, or was last quiet */
    uint64_t start_ns;          /* of `before`; 0: not started */
    bool is_alarmed;
};

enum inert_verdict { INERT_AS_BEFORE, INERT_NOW, INERT_NO_MORE };

/* Call now and then with the present counts. */
enum inert_verdict inert_step(struct inert *inert, const struct inert_counts *counts,
                              uint64_t now_ns);

#endif
