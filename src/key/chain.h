/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.h - one digest per full block of a token sequence, each binding everything before it.
 *
 * h[0] = digest(seed || payload 0), h[i] = digest(h[i-1] || payload i); a payload is the block's
 * token ids, each 8 bytes, little endian, signed. Only full blocks have a digest. A chain belongs
 * to one thread. It is extended as its sequence grows and keeps no tokens: it cannot notice that an
 * earlier token has changed, so a sequence that is edited needs a new chain.
 */
#ifndef KEY_CHAIN_H
#define KEY_CHAIN_H

#include "key/scope.h"

enum { CHAIN_TOKENS_PER_BLOCK_MAX = 1 << 16 };

struct chain {
    struct tarn_digest seed;
    struct tarn_digest *blocks;
    size_t block_count;
    size_t block_capacity;
    size_t token_count; /* of the list last given, its unfinished block included */
    uint32_t tokens_per_block;
};

/* tokens_per_block: 1 to CHAIN_TOKENS_PER_BLOCK_MAX, otherwise INVALID; a bad scope is INVALID as
 * scope_digest() says. Allocates nothing. */
NODISCARD enum tarn_status chain_init(struct chain *chain, const struct tarn_scope *scope,
                                      uint32_t tokens_per_block);
void chain_deinit(struct chain *chain); /* NULL and zeroed are fine */

/* Make room for the blocks of `token_count` tokens, so that extending up to there cannot fail for
 * memory. */
NODISCARD enum tarn_status chain_reserve(struct chain *chain, size_t token_count);

/*
 * Bring the chain to `tokens`, the complete sequence: its beginning is what earlier calls were
 * given. Hashes only blocks that became full since. A list shorter than an earlier one is INVALID.
 * On failure the chain is as it was.
 */
NODISCARD enum tarn_status chain_extend(struct chain *chain, const int32_t *tokens,
                                        size_t token_count);

#endif
