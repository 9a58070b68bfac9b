/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain of tarn.h for tests of kv/ and sched/: quick, and weak on request, so that two
 * different blocks get one digest.
 */
#include "kv/fake-chain.h"

#include <string.h>

#include "base/alloc.h"
#include "kv/fake-hash.h"

struct tarn_chain {
    uint64_t seed;
    uint32_t tokens_per_block;
    size_t token_count;
    size_t block_count;
    size_t block_capacity;
    struct tarn_digest *blocks;
};

static uint64_t weak_bits = 64;

void fake_chain_set_bits(uint32_t bits)
{
    weak_bits = bits;
}

enum tarn_status tarn_chain_create(const struct tarn_scope *scope, uint32_t tokens_per_block,
                                   struct tarn_chain **out_chain)
{
    struct tarn_chain *chain = mem_alloc(1, sizeof(*chain));
    if (!chain)
        return TARN_NO_MEMORY;
    chain->seed = fake_scope_hash(scope);
    chain->tokens_per_block = tokens_per_block;
    *out_chain = chain;
    return TARN_OK;
}

void tarn_chain_destroy(struct tarn_chain *chain)
{
    if (!chain)
        return;
    mem_free(chain->blocks);
    mem_free(chain);
}

static enum tarn_status chain_grow(struct tarn_chain *chain, size_t block_count)
{
    struct tarn_digest *blocks = mem_alloc(block_count * 2, sizeof(*blocks));
    if (!blocks)
        return TARN_NO_MEMORY;
    if (chain->block_count)
        memcpy(blocks, chain->blocks, chain->block_count * sizeof(*blocks));
    mem_free(chain->blocks);
    chain->blocks = blocks;
    chain->block_capacity = block_count * 2;
    return TARN_OK;
}

enum tarn_status tarn_chain_extend(struct tarn_chain *chain, const int32_t *tokens,
                                   size_t token_count)
{
    const size_t end = token_count / chain->tokens_per_block;
    if (token_count < chain->token_count)
        return TARN_INVALID;
    if (end > chain->block_capacity)
        TRY(chain_grow(chain, end));
    for (size_t i = chain->block_count; i < end; i++) {
        uint64_t hash = chain->seed;
        if (i)
            memcpy(&hash, chain->blocks[i - 1].bytes, sizeof(hash));
        for (size_t j = 0; j < chain->tokens_per_block; j++)
            hash = fake_hash(hash, (uint64_t)(int64_t)tokens[i * chain->tokens_per_block + j]);
        if (weak_bits < 64)
            hash &= (UINT64_C(1) << weak_bits) - 1;
        chain->blocks[i] = (struct tarn_digest){ 0 };
        memcpy(chain->blocks[i].bytes, &hash, sizeof(hash));
        /* However weak, scopes stay apart: nothing but the digest knows them. */
        memcpy(chain->blocks[i].bytes + sizeof(hash), &chain->seed, sizeof(chain->seed));
    }
    chain->block_count = end;
    chain->token_count = token_count;
    return TARN_OK;
}

size_t tarn_chain_block_count(const struct tarn_chain *chain)
{
    return chain->block_count;
}

const struct tarn_digest *tarn_chain_digests(const struct tarn_chain *chain)
{
    return chain->block_count ? chain->blocks : NULL;
}
