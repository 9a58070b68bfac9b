/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncake.h - a Mooncake pool as a store: objects in the memory of many hosts, found through a
 * master.
 *
 * An object's key is the text of key/namespace.h, its bytes a header (header.h) and the page. Spans
 * lie in memory that the store was told of. Calls block until the master and the hosts that hold
 * the objects answered, or their time-outs passed; while a call runs it may write its spans. A get
 * brings exactly what was put, or is a MISS, with the reason counted; IO is that the master could
 * not be asked. A lease is the master's, 10 s from the lookup on, and nothing that a release ends.
 * After fork() a child's copy is dead: all calls answer INVALID.
 */
#ifndef STORE_MOONCAKE_MOONCAKE_H
#define STORE_MOONCAKE_MOONCAKE_H

#include "store/mooncake/options.h"
#include "store/store.h"

/* As client_open(). May block for master_timeout. */
NODISCARD enum tarn_status mooncake_open(const struct mooncake_options *options,
                                         struct store **out_store);

/* The client (client.h) behind a store that mooncake_open() gave: for benches. */
struct client;
const struct client *mooncake_behind(struct store *store);

#endif
