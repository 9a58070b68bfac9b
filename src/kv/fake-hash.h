/* SPDX-License-Identifier: Apache-2.0 */
/* fake-hash.h - for tests: a quick 64-bit hash to chain over what must not be mixed up. */
#ifndef KV_FAKE_HASH_H
#define KV_FAKE_HASH_H

#include "base/base.h"

uint64_t fake_hash(uint64_t hash, uint64_t value);
uint64_t fake_scope_hash(const struct tarn_scope *scope);

#endif
