/* SPDX-License-Identifier: Apache-2.0 */
/* The same without multi-buffer calls: every page is one buffer with headroom. */
#include "lib/conformance.h"
#include "lib/fake-pool.h"

static struct store *pool_make(void)
{
    return fake_pool_open("TARN_FAKE_MOONCAKE_STAGED");
}

int main(void)
{
    const struct conformance subject = {
        .name = "mooncake, staged",
        .open = pool_make,
        .object_bytes_max = 4 << 20,
        .rounds = 2000,
    };
    return conformance_run(&subject);
}
