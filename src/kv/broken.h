/* SPDX-License-Identifier: Apache-2.0 */
/* broken.h - the faults that the simulation must catch, each one line of kv/ or sched/ left out. */
#ifndef KV_BROKEN_H
#define KV_BROKEN_H

#define BROKEN_LIST(X)                                                                             \
    X(REBASE_UNDER_TRANSFER, "a page under a save is rebased away")                                \
    X(FREE_UNDER_TRANSFER, "a page is freed while a transfer has it")                              \
    X(EVICT_UNDER_TRANSFER, "a page under a save is evicted, or a prefix of it")                   \
    X(MATCH_LAST_TOKEN, "a match covers the prompt's last token")                                  \
    X(MATCH_DIGEST_ONLY, "a match does not compare tokens")                                        \
    X(KEEP_LATE_PAGE, "a page that a late load still writes is computed into")                     \
    X(KEEP_GARBAGE, "what a failed load left in a page is not zeroed")                             \
    X(COMMIT_BEFORE_VERDICT, "loaded blocks enter the tree when the load starts")                  \
    X(TRUST_OFFER, "the position comes from the offer, not from the verdict")                      \
    X(COMPUTE_WHILE_LOADING, "a request under load is scheduled")                                  \
    X(CLOSE_BEFORE_RETIRED, "pages are let go before retired() names the request")                 \
    X(COMMIT_FAILED_PASS, "a forward pass that failed counts as done")                             \
    X(TOLD_ONCE, "pages that changed are not told to the connector again")                         \
    X(OVER_BUDGET, "context takes a block more than the budget has")                               \
    X(COUNT_TWICE, "prompt tokens from the pool are counted as computed, too")

#include "base/broken.h"

#endif
