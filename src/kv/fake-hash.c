/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/fake-hash.h"

uint64_t fake_hash(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

uint64_t fake_scope_hash(const struct tarn_scope *scope)
{
    uint64_t hash = 1;
    for (const char *c = scope && scope->cache_salt ? scope->cache_salt : ""; *c; c++)
        hash = fake_hash(hash, (uint8_t)*c);
    return hash;
}
