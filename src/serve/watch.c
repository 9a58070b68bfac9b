/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/watch.h"

#include "os/clock.h"

enum watch_verdict watch_step(struct watch *watch, const struct watch_counts *counts,
                              uint64_t now_ns)
{
    const bool did_something =
        counts->hits > watch->before.hits || counts->saves > watch->before.saves;
    const int64_t lookups = counts->lookups - watch->before.lookups;
    const int64_t save_failures = counts->save_failures - watch->before.save_failures;
    const bool is_over = now_ns - watch->start_ns >= WATCH_WINDOW_S * NS_PER_S;
    if (watch->start_ns > 0 && !did_something && !is_over)
        return WATCH_AS_BEFORE;

    enum watch_verdict verdict = WATCH_AS_BEFORE;
    if (did_something && watch->is_alarmed)
        verdict = WATCH_WORKS_AGAIN;
    else if (watch->start_ns > 0 && !did_something && !watch->is_alarmed &&
             (lookups >= WATCH_LOOKUPS_MIN || save_failures > 0))
        verdict = WATCH_INERT;
    if (verdict != WATCH_AS_BEFORE)
        watch->is_alarmed = verdict == WATCH_INERT;
    watch->before = *counts;
    watch->start_ns = now_ns;
    return verdict;
}
