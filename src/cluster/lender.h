/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lender.h - memory of this process lent to a distributed pool: a client with a segment, that puts
 * and gets nothing. Lending is capacity, not a role. One thread at a time.
 */
#ifndef CLUSTER_LENDER_H
#define CLUSTER_LENDER_H

#include "base/base.h"
#include "store/mooncake/client.h"

struct lender {
    struct client client;
    uint64_t size_bytes; /* 0: nothing is lent */
};

/* Join the master and lend options->global_segment_bytes. A failure is logged with its status, the
 * seconds it took, and that no memory was lent. */
NODISCARD enum tarn_status lender_open(const struct mooncake_options *options,
                                       struct lender *out_lender);

/* Whether the master still knows it; not logged. */
bool lender_is_healthy(const struct lender *lender);

/* The blocks that lie there are lost to the pool. Zeroed is fine. */
void lender_close(struct lender *lender);

#endif
