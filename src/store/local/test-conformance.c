/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/conformance.h"
#include "store/local/pool.h"

static char folder[64] = "/dev/shm/tarn-test-XXXXXX";
static char path[96];

static struct store *pool_make(void)
{
    const struct pool_options options = { .path = path, .size_bytes = UINT64_C(512) << 20 };
    struct store *store = NULL;
    return pool_open(&options, &store) == TARN_OK ? store : NULL;
}

int main(void)
{
    const struct conformance subject = {
        .name = "local",
        .open = pool_make,
        .object_bytes_max = 32 << 20,
        .rounds = 2000,
    };
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(path, sizeof(path), "%s/a.pool", folder);
    const int failed = conformance_run(&subject);
    (void)unlink(path);
    return rmdir(folder) == 0 ? failed : 1;
}
