/* SPDX-License-Identifier: Apache-2.0 */
/* fake-pool.h - a Mooncake pool over a double of the library, for tests. */
#ifndef TEST_FAKE_POOL_H
#define TEST_FAKE_POOL_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fake-mooncake.h"
#include "store/mooncake/mooncake.h"

/* Options for the double that the environment variable names. */
static inline struct mooncake_options fake_pool_options(const char *variable)
{
    struct mooncake_options options;
    mooncake_options_init(&options);
    (void)snprintf(options.master_server_address, sizeof(options.master_server_address),
                   "127.0.0.1:1");
    (void)snprintf(options.library, sizeof(options.library), "%s", getenv(variable));
    options.master_timeout_ms = 200;
    return options;
}

/* The same, of a standalone client. */
static inline struct mooncake_options fake_standalone_options(const char *variable)
{
    struct mooncake_options options = fake_pool_options(variable);
    options.client = MOONCAKE_STANDALONE;
    (void)snprintf(options.client_address, sizeof(options.client_address), "127.0.0.1:50052");
    return options;
}

static inline struct store *fake_pool_open(const char *variable)
{
    const struct mooncake_options options = fake_pool_options(variable);
    struct store *store = NULL;
    return mooncake_open(&options, &store) == TARN_OK ? store : NULL;
}

#endif
