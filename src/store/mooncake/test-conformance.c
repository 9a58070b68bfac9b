/* SPDX-License-Identifier: Apache-2.0 */
/* The store over the double: what is Tarn's own of it, in every flavour of the build. */
#include "lib/conformance.h"
#include "lib/fake-pool.h"

static struct store *pool_make(void)
{
    return fake_pool_open("TARN_FAKE_MOONCAKE");
}

int main(void)
{
    const struct conformance subject = {
        .name = "mooncake, in place",
        .open = pool_make,
        .object_bytes_max = 4 << 20,
        .rounds = 2000,
    };
    return conformance_run(&subject);
}
