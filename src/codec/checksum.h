/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum.h - the 128-bit checksum of a page's bytes: XXH3, fastest form chosen at run time.
 *
 * Guards against accidents, not against someone who chooses the bytes. The same on every machine.
 * State is the caller's; nothing allocates, nothing fails; one thread a state.
 */
#ifndef CODEC_CHECKSUM_H
#define CODEC_CHECKSUM_H

#include "base/base.h"

struct checksum {
    uint64_t low;
    uint64_t high;
};

enum { CHECKSUM_STATE_BYTES = 640 };

struct checksum_state {
    _Alignas(64) unsigned char bytes[CHECKSUM_STATE_BYTES];
};

void checksum_begin(struct checksum_state *state, uint64_t seed);
void checksum_add(struct checksum_state *state, const void *data, size_t size_bytes);
struct checksum checksum_end(const struct checksum_state *state);

static inline bool checksum_equal(struct checksum a, struct checksum b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
