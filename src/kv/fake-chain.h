/* SPDX-License-Identifier: Apache-2.0 */
/* fake-chain.h - for tests: implements the chain of tarn.h over a hash that is quick and, on
 * request, weak. Linked in place of key/. */
#ifndef KV_FAKE_CHAIN_H
#define KV_FAKE_CHAIN_H

#include "base/base.h"

/* Digests have this many bits, so that few bits give different blocks one digest. 64: as good as
 * none. For chains that are extended from now on. */
void fake_chain_set_bits(uint32_t bits);

#endif
