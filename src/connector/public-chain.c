/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of tarn.h, and the digests and fingerprints that go with it. */
#include "base/alloc.h"
#include "connector/abi.h"
#include "key/chain.h"
#include "layout/fingerprint.h"

struct tarn_chain {
    struct chain chain;
};

enum tarn_status tarn_digest_of(const void *data, size_t size_bytes, struct tarn_digest *out_digest)
{
    struct digest_stream stream;
    if (!data && size_bytes)
        return TARN_INVALID;
    digest_init(&stream);
    digest_update(&stream, data, size_bytes);
    digest_finish(&stream, out_digest);
    return TARN_OK;
}

enum tarn_status tarn_kv_format_fingerprint(const struct tarn_kv_format *format,
                                            uint64_t *out_fingerprint)
{
    struct tarn_kv_format known;
    TRY(abi_copy(&known, sizeof(known), format));
    return fingerprint_of_format(&known, out_fingerprint);
}

enum tarn_status tarn_chain_create(const struct tarn_scope *scope, uint32_t tokens_per_block,
                                   struct tarn_chain **out_chain)
{
    struct tarn_scope known;
    if (scope)
        TRY(abi_copy(&known, sizeof(known), scope));
    struct tarn_chain *chain = mem_alloc(1, sizeof(*chain));
    if (!chain)
        return TARN_NO_MEMORY;
    const enum tarn_status status =
        chain_init(&chain->chain, scope ? &known : NULL, tokens_per_block);
    if (status != TARN_OK) {
        mem_free(chain);
        return status;
    }
    *out_chain = chain;
    return TARN_OK;
}

void tarn_chain_destroy(struct tarn_chain *chain)
{
    if (!chain)
        return;
    chain_deinit(&chain->chain);
    mem_free(chain);
}

enum tarn_status tarn_chain_extend(struct tarn_chain *chain, const int32_t *tokens,
                                   size_t token_count)
{
    return chain_extend(&chain->chain, tokens, token_count);
}

size_t tarn_chain_block_count(const struct tarn_chain *chain)
{
    return chain->chain.block_count;
}

const struct tarn_digest *tarn_chain_digests(const struct tarn_chain *chain)
{
    return chain->chain.block_count ? chain->chain.blocks : NULL;
}
