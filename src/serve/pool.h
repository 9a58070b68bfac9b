/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the server's connector: opened as the options say, told where the pages are.
 *
 * A pool that the user named and that cannot be had is a failure; the implicit default pool is
 * done without, said once, and the inert gauge is set.
 */
#ifndef SERVE_POOL_H
#define SERVE_POOL_H

#include "base/base.h"
#include "config/option.h"
#include "engine/engine.h"

struct serve_pool {
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector; /* NULL: none */
};

/* `memory` holds the engine's pages and must stay until serve_pool_close() said OK. OK with
 * out_pool->connector NULL: no pool. Else as the connector's open(); logged. */
NODISCARD enum tarn_status serve_pool_open(const struct options *options,
                                           const struct engine *engine, struct tarn_span memory,
                                           const struct tarn_connector_ops *ops,
                                           struct serve_pool *out_pool);

/* Outcomes: AGAIN when a transfer does not end within timeout_ms: the memory must stay. */
NODISCARD enum tarn_status serve_pool_close(struct serve_pool *pool, uint32_t timeout_ms);

#endif
