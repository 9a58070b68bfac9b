/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/inert.h"

#include "os/clock.h"

enum inert_verdict inert_step(struct inert *inert, const struct inert_counts *counts,
                              uint64_t now_ns)
{
    const bool did_something =
        counts->hits > inert->before.hits || counts->saves > inert->before.saves;
    const int64_t lookups = counts->lookups - inert->before.lookups;
    const int64_t save_failures = counts->save_failures - inert->before.save_failures;
    const bool is_quiet = lookups == 0 && save_failures == 0;
    const bool was_alarmed = inert->is_alarmed;
    if (did_something || is_quiet || inert->start_ns == 0) {
        inert->is_alarmed = was_alarmed && !did_something;
        inert->before = *counts;
        inert->start_ns = now_ns;
        return was_alarmed && did_something ? INERT_NO_MORE : INERT_AS_BEFORE;
    }
    if (was_alarmed || now_ns - inert->start_ns < INERT_AFTER_S * NS_PER_S ||
        (lookups < INERT_LOOKUPS_MIN && save_failures == 0))
        return INERT_AS_BEFORE;
    inert->is_alarmed = true;
    return INERT_NOW;
}
