/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - an eye on a pool that silently does nothing.
 *
 * Looks at the process's counters over windows of WATCH_WINDOW_S: a pool that was asked and gave
 * nothing and took nothing, or whose saves all failed, is inert. Pure; one thread.
 */
#ifndef SERVE_WATCH_H
#define SERVE_WATCH_H

#include "base/base.h"

enum { WATCH_WINDOW_S = 60, WATCH_LOOKUPS_MIN = 8 };

struct watch_counts {
    int64_t lookups;       /* that asked the pool */
    int64_t hits;          /* blocks */
    int64_t saves;         /* pages saved, or not saved since they were there */
    int64_t save_failures; /* pages */
};

struct watch {
    struct watch_counts before; /* at the window's start */
    uint64_t start_ns;          /* 0: not started */
    bool is_alarmed;
};

enum watch_verdict { WATCH_AS_BEFORE, WATCH_INERT, WATCH_WORKS_AGAIN };

/* Call now and then with the present counts. */
enum watch_verdict watch_step(struct watch *watch, const struct watch_counts *counts,
                              uint64_t now_ns);

#endif
