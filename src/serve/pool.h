/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the server's pool: opened before the model is loaded, so that what is wrong with it is
 * said at once; then a connector on it, which is told where the pages are.
 *
 * A pool or a module that the user named and that cannot be had is a failure; the implicit default
 * pool is done without, said once, and the inert gauge is set.
 */
#ifndef SERVE_POOL_H
#define SERVE_POOL_H

#include "base/base.h"
#include "config/option.h"
#include "engine/engine.h"
#include "serve/connector.h"

struct serve_pool {
    const struct tarn_connector_ops *ops; /* NULL: there is no pool to be had */
    struct pool_option choice;            /* POOL_NONE also when the default one cannot be had */
    struct tarn_pool *held;               /* from serve_pool_prepare() to serve_pool_open() */
    bool is_module;                       /* the user named the connector */
    struct tarn_connector *connector;     /* NULL: none */
};

/* What a connector is opened with; texts borrow from `options` and `choice`. */
void serve_pool_options(const struct options *options, const struct pool_option *choice,
                        struct tarn_connector_options *out_options);

/* Open or create the pool that the options ask for, and hold it; another connector than Tarn's own
 * is left to open its own. `connector` must stay as long as the pool. OK also without one: see
 * above. Else as tarn_pool_open(); logged. */
NODISCARD enum tarn_status serve_pool_prepare(const struct options *options,
                                              const struct serve_connector *connector,
                                              struct serve_pool *out_pool);

/* Open a connector on the pool that was prepared. `memory` holds the engine's pages and must stay
 * until serve_pool_close() said OK. OK with pool->connector NULL: no pool. Else as the connector's
 * open(); logged. */
NODISCARD enum tarn_status serve_pool_open(struct serve_pool *pool, const struct options *options,
                                           const struct engine *engine, struct tarn_span memory);

/* In every state. Outcomes: AGAIN when a transfer does not end within timeout_ms: the memory must
 * stay. */
NODISCARD enum tarn_status serve_pool_close(struct serve_pool *pool, uint32_t timeout_ms);

#endif
