/* SPDX-License-Identifier: Apache-2.0 */
/* The store over the wheel and a real master, which test/test-mooncake.py starts. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/conformance.h"
#include "store/mooncake/mooncake.h"

static struct store *pool_make(void)
{
    struct mooncake_options options;
    struct store *store = NULL;
    const char *pool = getenv("TARN_MOONCAKE_POOL");
    if (!pool || mooncake_options_read(pool, &options) != TARN_OK)
        return NULL;
    options.global_segment_bytes = UINT64_C(512) << 20;
    options.local_buffer_bytes =
        (options.client == MOONCAKE_STANDALONE ? UINT64_C(1024) : UINT64_C(16)) << 20;
    return mooncake_open(&options, &store) == TARN_OK ? store : NULL;
}

int main(void)
{
    const struct conformance subject = {
        .name = "mooncake, the real one",
        .open = pool_make,
        .object_bytes_max = 64 << 20,
        .rounds = 500,
    };
    return conformance_run(&subject);
}
