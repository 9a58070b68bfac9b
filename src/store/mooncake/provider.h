/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider.h - the table of Mooncake's functions, and where it comes from: libmooncake_store.so, or
 * the bridge to the wheel, libtarn_mooncake_py.so, which brings CPython into the process.
 *
 * Neither is linked. What was opened stays in memory until the process ends: its threads may not be
 * pulled from under it.
 */
#ifndef STORE_MOONCAKE_PROVIDER_H
#define STORE_MOONCAKE_PROVIDER_H

#include "base/base.h"
#include "store/mooncake/function-list.h"

enum { PROVIDER_PATH_BYTES_MAX = 4096 };

/* An optional function that is not there is NULL. */
struct mooncake_functions {
#define X(name, result, parameters, since) result(*name) parameters;
    MOONCAKE_REQUIRED(X) MOONCAKE_OPTIONAL(X)
#undef X
};

struct provider {
    void *library;
    struct mooncake_functions functions;
    bool is_bridge;
    char path[PROVIDER_PATH_BYTES_MAX]; /* as it was opened */
};

/*
 * `library`, unless it is NULL or empty; else what the environment variable MOONCAKE_STORE_LIBRARY
 * names; else libmooncake_store.so where the system looks for libraries; else, if there is none,
 * the bridge. A library that was named and is not there is not replaced by another. `wheel`: a
 * folder that holds the Python package `mooncake`; NULL or empty: where Python looks, then where
 * Tarn was built with one. UNSUPPORTED: logged, with what is missing and what to do.
 */
NODISCARD enum tarn_status provider_open(const char *library, const char *wheel,
                                         struct provider *out_provider);

#endif
