/* SPDX-License-Identifier: Apache-2.0 */
#include "key/chain.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cursor.h"

enum tarn_status chain_init(struct chain *chain, const struct tarn_scope *scope,
                            uint32_t tokens_per_block)
{
    struct tarn_digest seed;
    if (tokens_per_block == 0 || tokens_per_block > CHAIN_TOKENS_PER_BLOCK_MAX)
        return TARN_INVALID;
    TRY(scope_digest(scope, &seed));
    *chain = (struct chain){ .seed = seed, .tokens_per_block = tokens_per_block };
    return TARN_OK;
}

void chain_deinit(struct chain *chain)
{
    if (!chain)
        return;
    mem_free(chain->blocks);
    *chain = (struct chain){ 0 };
}

enum tarn_status chain_reserve(struct chain *chain, size_t token_count)
{
    const size_t needed = token_count / chain->tokens_per_block;
    if (needed <= chain->block_capacity)
        return TARN_OK;

    size_t capacity = chain->block_capacity + chain->block_capacity / 2;
    if (capacity < needed)
        capacity = needed;
    struct tarn_digest *blocks = mem_alloc(capacity, sizeof(*blocks));
    if (!blocks)
        return TARN_NO_MEMORY;
    if (chain->block_count)
        memcpy(blocks, chain->blocks, chain->block_count * sizeof(*blocks));
    mem_free(chain->blocks);
    chain->blocks = blocks;
    chain->block_capacity = capacity;
    return TARN_OK;
}

static void block_digest(const struct tarn_digest *parent, const int32_t *tokens,
                         size_t token_count, struct tarn_digest *out_digest)
{
    struct digest_stream stream;
    uint8_t payload[64 * 8];
    digest_init(&stream);
    digest_update(&stream, parent->bytes, DIGEST_BYTES);
    while (token_count > 0) {
        const size_t part = token_count < 64 ? token_count : 64;
        struct writer writer = writer_init(payload, sizeof(payload));
        for (size_t i = 0; i < part; i++)
            writer_uint(&writer, (uint64_t)(int64_t)tokens[i], 8);
        digest_update(&stream, payload, part * 8);
        tokens += part;
        token_count -= part;
    }
    digest_finish(&stream, out_digest);
}

enum tarn_status chain_extend(struct chain *chain, const int32_t *tokens, size_t token_count)
{
    if (token_count < chain->token_count || (token_count && !tokens))
        return TARN_INVALID;
    TRY(chain_reserve(chain, token_count));

    const size_t full_count = token_count / chain->tokens_per_block;
    for (size_t i = chain->block_count; i < full_count; i++) {
        const struct tarn_digest *parent = i ? &chain->blocks[i - 1] : &chain->seed;
        block_digest(parent, tokens + i * chain->tokens_per_block, chain->tokens_per_block,
                     &chain->blocks[i]);
    }
    chain->block_count = full_count;
    chain->token_count = token_count;
    return TARN_OK;
}
