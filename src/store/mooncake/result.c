/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/result.h"

#include <stdio.h>

static const struct {
    int code;
    const char *text;
    enum metric get_metric;
} results[] = {
    { MOONCAKE_FAILED, "failed", METRIC_STORE_GET_OTHER },
    { MOONCAKE_BUFFER_OVERFLOW, "buffer overflow", METRIC_STORE_GET_LENGTH },
    { MOONCAKE_NO_SPACE, "no space", METRIC_STORE_GET_OTHER },
    { MOONCAKE_INVALID, "invalid parameters", METRIC_STORE_GET_LENGTH },
    { MOONCAKE_NOT_READY, "not ready", METRIC_STORE_GET_NOT_READY },
    { MOONCAKE_NOT_FOUND, "not found", METRIC_STORE_GET_NOT_FOUND },
    { MOONCAKE_EXISTS, "exists", METRIC_STORE_GET_OTHER },
    { MOONCAKE_LEASED, "leased", METRIC_STORE_GET_OTHER },
    { MOONCAKE_LEASE_EXPIRED, "lease expired", METRIC_STORE_GET_LEASE_EXPIRED },
    { MOONCAKE_TRANSFER_FAILED, "transfer failed", METRIC_STORE_GET_TRANSFER },
    { MOONCAKE_CHECKSUM, "checksum of Mooncake's own", METRIC_STORE_GET_CORRUPT },
    { MOONCAKE_RPC_FAILED, "RPC failed", METRIC_STORE_GET_RPC },
    { MOONCAKE_RPC_TIMEOUT, "RPC timed out", METRIC_STORE_GET_RPC },
    { MOONCAKE_UNAVAILABLE, "unavailable in this status", METRIC_STORE_GET_RPC },
};

const char *result_print(int64_t result, char *out, size_t out_bytes)
{
    const char *text = "an error of Mooncake's";
    for (size_t i = 0; i < LENGTH_OF(results); i++) {
        if (results[i].code == result)
            text = results[i].text;
    }
    (void)snprintf(out, out_bytes, "%s (%lld)", text, (long long)result);
    return out;
}

bool result_is_rpc(int64_t result)
{
    return result == MOONCAKE_RPC_FAILED || result == MOONCAKE_RPC_TIMEOUT ||
           result == MOONCAKE_UNAVAILABLE;
}

enum tarn_status result_of_get(int64_t result, enum metric *out_metric)
{
    *out_metric = METRIC_STORE_GET_OTHER;
    for (size_t i = 0; i < LENGTH_OF(results); i++) {
        if (results[i].code == result)
            *out_metric = results[i].get_metric;
    }
    return result_is_rpc(result) ? TARN_IO : TARN_MISS;
}

enum tarn_status result_of_put(int result, enum metric *out_metric)
{
    *out_metric = METRIC_COUNT;
    if (result >= 0 || result == MOONCAKE_EXISTS)
        return TARN_OK;
    if (result == MOONCAKE_NO_SPACE) {
        *out_metric = METRIC_STORE_PUT_NO_SPACE;
        return TARN_NO_SPACE;
    }
    if (result == MOONCAKE_NOT_READY || result == MOONCAKE_LEASED ||
        result == MOONCAKE_LEASE_EXPIRED) {
        *out_metric = METRIC_STORE_PUT_BUSY;
        return TARN_AGAIN;
    }
    *out_metric = result == MOONCAKE_TRANSFER_FAILED ? METRIC_STORE_PUT_TRANSFER
                  : result_is_rpc(result)            ? METRIC_STORE_PUT_RPC
                                                     : METRIC_STORE_PUT_OTHER;
    return TARN_IO;
}
