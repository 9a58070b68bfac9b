/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.h - Tarn's own connector, the preset `tarn`: one handle a rank, with a worker in it,
 * and on rank 0 the leader.
 *
 * With one rank the worker tells the leader by function calls what becomes of each page. With
 * several, the messages of wire.h go between them, through the engine's transport; the leader asks
 * the store for the pages of every rank, whose namespaces differ from its own by the rank alone,
 * and on rank 0 the engine hears of transfers from the leader, for all ranks.
 *
 * The table that tarn_connector_ops() returns is in connector.c; this header is for tests, which
 * put a store of their own beneath it.
 */
#ifndef CONNECTOR_CONNECTOR_H
#define CONNECTOR_CONNECTOR_H

#include "store/store.h"

/* Handles that one process has open at once. A handle is never freed, so that closing twice, or
 * calling a closed one, is harmless. */
enum { CONNECTORS_MAX = 64 };

/* As the table's open(), over `store`, which is taken over on OK. */
NODISCARD enum tarn_status connector_open_with(const struct tarn_connector_options *options,
                                               const struct tarn_engine_desc *engine,
                                               struct store *store,
                                               struct tarn_connector **out_connector);

#endif
