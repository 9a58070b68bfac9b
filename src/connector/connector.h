/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.h - Tarn's own connector, the preset `tarn`: one rank, leader and worker in one handle.
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
