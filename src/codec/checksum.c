/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/checksum.h"

#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3_state_t */
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* XXH3_128bits_update becomes the variant for this processor */
#endif

_Static_assert(sizeof(XXH3_state_t) <= CHECKSUM_STATE_BYTES, "XXH3's state has grown");

static XXH3_state_t *checksum_state(struct checksum_state *state)
{
    return (XXH3_state_t *)(void *)state->bytes;
}

void checksum_begin(struct checksum_state *state, uint64_t seed)
{
    XXH3_state_t *xxh = checksum_state(state);
    XXH3_INITSTATE(xxh);
    (void)XXH3_128bits_reset_withSeed(xxh, seed);
}

void checksum_add(struct checksum_state *state, const void *data, size_t size_bytes)
{
    (void)XXH3_128bits_update(checksum_state(state), data, size_bytes);
}

struct checksum checksum_end(const struct checksum_state *state)
{
    const XXH128_hash_t hash = XXH3_128bits_digest((const XXH3_state_t *)(const void *)state);
    return (struct checksum){ .low = hash.low64, .high = hash.high64 };
}
