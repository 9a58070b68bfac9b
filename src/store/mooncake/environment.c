/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "os/thread.h"

enum { VALUE_BYTES = 16, TIMEOUT_MS_MIN = 10 };

struct variable {
    const char *name;
    char value[VALUE_BYTES];
    bool is_told; /* it matters enough to be told of */
};

void mooncake_environment_prepare(uint32_t deadline_ms)
{
    struct variable variables[] = {
        { "MC_RPC_TIMEOUT_MS", "", true },
        { "MC_RPC_CONNECT_TIMEOUT_MS", "", true },
        { "MC_TCP_PROGRESS_TIMEOUT_SEC", "", false },
        { "MC_TCP_STATUS_TIMEOUT_SEC", "", false },
        { "MC_TCP_SLICE_SIZE", "61440", false }, /* with headers below the 64 KiB of a packet */
        { "MC_STORE_CLIENT_SETUP_RETRIES", "2", false },
        { "GLOG_minloglevel", "1", false },
    };
    const uint32_t half_ms = deadline_ms / 2 > TIMEOUT_MS_MIN ? deadline_ms / 2 : TIMEOUT_MS_MIN;
    const uint32_t whole_s = deadline_ms / 1000 + (deadline_ms % 1000 != 0 || deadline_ms == 0);
    const bool is_single = thread_count() == 1;
    (void)snprintf(variables[0].value, VALUE_BYTES, "%" PRIu32, half_ms);
    (void)snprintf(variables[1].value, VALUE_BYTES, "%" PRIu32, half_ms);
    (void)snprintf(variables[2].value, VALUE_BYTES, "%" PRIu32, whole_s);
    (void)snprintf(variables[3].value, VALUE_BYTES, "%" PRIu32, whole_s);
    for (size_t i = 0; i < LENGTH_OF(variables); i++) {
        const struct variable *variable = &variables[i];
        if (getenv(variable->name)) /* NOLINT(concurrency-mt-unsafe): nobody sets it meanwhile */
            continue;
        if (is_single)
            (void)setenv(variable->name, variable->value, 0); /* NOLINT(concurrency-mt-unsafe) */
        else if (variable->is_told)
            log_warn("mooncake: %s is not set, so that a call may wait 30 s for a lost master: "
                     "start the process with %s=%s in its environment",
                     variable->name, variable->name, variable->value);
    }
}
