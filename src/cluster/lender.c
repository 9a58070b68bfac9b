/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/lender.h"

#include <inttypes.h>

#include "base/log.h"
#include "config/value.h"
#include "os/clock.h"

enum { SIZE_BYTES = 32 };

enum tarn_status lender_open(const struct mooncake_options *options, struct lender *out_lender)
{
    struct mooncake_options lending = *options;
    char size[SIZE_BYTES];
    const uint64_t start_ns = clock_now_ns();
    lending.is_donor = true;
    lending.client = MOONCAKE_EMBEDDED; /* a standalone client's engines lend nothing */
    value_print_size(lending.global_segment_bytes, size, sizeof(size));
    struct lender lender = { .size_bytes = lending.global_segment_bytes };
    const enum tarn_status status = client_open(&lending, &lender.client);
    const double seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    if (status != TARN_OK) {
        log_error("lending %" PRIu64 " bytes (%s) to the master at %s failed with status %d (%s) "
                  "after %.1f s: no memory was lent",
                  lending.global_segment_bytes, size, lending.master_server_address, (int)status,
                  tarn_strerror(status), seconds);
        return status;
    }
    log_info("lending %" PRIu64 " bytes (%s) to the master at %s as %s, after %.1f s",
             lender.size_bytes, size, lending.master_server_address, lender.client.hostname,
             seconds);
    *out_lender = lender;
    return TARN_OK;
}

bool lender_is_healthy(const struct lender *lender)
{
    return lender->client.handle &&
           lender->client.provider.functions.health_check(lender->client.handle) == 0;
}

void lender_close(struct lender *lender)
{
    if (lender->size_bytes == 0)
        return;
    client_close(&lender->client);
    lender->size_bytes = 0;
}
