/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result.h - what Mooncake's codes mean, and what they are to a store. Source: ErrorCode of
 * mooncake-store/include/types.h, Mooncake 0.3.13. Pure.
 */
#ifndef STORE_MOONCAKE_RESULT_H
#define STORE_MOONCAKE_RESULT_H

#include "obs/metric.h"

enum mooncake_result {
    MOONCAKE_OK = 0,
    MOONCAKE_FAILED = -1, /* without a code: a standalone client's question that was not answered */
    MOONCAKE_BUFFER_OVERFLOW = -10,
    MOONCAKE_NO_SPACE = -200,
    MOONCAKE_INVALID = -600,
    MOONCAKE_NOT_READY = -703, /* a put has begun and not ended */
    MOONCAKE_NOT_FOUND = -704,
    MOONCAKE_EXISTS = -705,
    MOONCAKE_LEASED = -706,
    MOONCAKE_LEASE_EXPIRED = -707, /* while it was read: what was read may be anything */
    MOONCAKE_TRANSFER_FAILED = -800,
    MOONCAKE_CHECKSUM = -801,
    MOONCAKE_RPC_FAILED = -900,
    MOONCAKE_RPC_TIMEOUT = -901,
    MOONCAKE_UNAVAILABLE = -1010,
};

/* "RPC failed (-900)": a text for a message, into `out`; returns it. */
const char *result_print(int64_t result, char *out, size_t out_bytes);

/* The master could not be asked: nothing is known of the key. */
bool result_is_rpc(int64_t result);

/* Of a get that failed: MISS; IO (the master could not be asked). And what counts it. */
enum tarn_status result_of_get(int64_t result, enum metric *out_metric);

/* Of a put: OK, NO_SPACE, AGAIN (another's put or removal is under way), IO. METRIC_COUNT: nothing
 * to count. */
enum tarn_status result_of_put(int result, enum metric *out_metric);

#endif
