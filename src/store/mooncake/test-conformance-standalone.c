/* SPDX-License-Identifier: Apache-2.0 */
/* The same with a standalone client: pages are copied through memory shared with its process. */
#include "lib/conformance.h"
#include "lib/fake-pool.h"

static struct store *pool_make(void)
{
    const struct mooncake_options options = fake_standalone_options("TARN_FAKE_MOONCAKE");
    struct store *store = NULL;
    return mooncake_open(&options, &store) == TARN_OK ? store : NULL;
}

int main(void)
{
    const struct conformance subject = {
        .name = "mooncake, standalone",
        .open = pool_make,
        .object_bytes_max = 4 << 20,
        .rounds = 2000,
    };
    return conformance_run(&subject);
}
