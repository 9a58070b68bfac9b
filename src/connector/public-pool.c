/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of tarn.h: a store, as a program sees it that keeps its own books. */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "connector/abi.h"
#include "connector/pool-copy.h"
#include "key/namespace.h"
#include "store/local/pool.h"
#include "store/mooncake/mooncake.h"

struct tarn_pool {
    struct store *store;
    struct pool_copy copy;
    bool is_read_only; /* where the store itself does not know */
    pid_t process;     /* after fork() the handle is dead */
};

static bool pool_is_usable(const struct tarn_pool *pool)
{
    return pool && pool->process == getpid();
}

/* A pool over many hosts, or one of this host. */
static enum tarn_status pool_store_open(const struct tarn_pool_options *options, bool is_read_only,
                                        struct store **out_store)
{
    struct mooncake_options distributed;
    const struct pool_options local = {
        .path = options->path,
        .size_bytes = options->size_bytes,
        .is_read_only = is_read_only,
    };
    if (!mooncake_pool_is(options->path))
        return pool_open(&local, out_store);
    TRY(mooncake_options_read(options->path, &distributed));
    distributed.is_consumer = is_read_only;
    if (is_read_only)
        distributed.global_segment_bytes = 0;
    return mooncake_open(&distributed, out_store);
}

enum tarn_status tarn_pool_open(const struct tarn_pool_options *options,
                                struct tarn_pool **out_pool)
{
    static const struct tarn_pool_options defaults = { .size = sizeof(defaults) };
    struct tarn_pool_options known;
    TRY(abi_copy(&known, sizeof(known), options ? options : &defaults));
    if (known.flags & ~(uint32_t)TARN_POOL_READ_ONLY)
        return TARN_UNSUPPORTED;
    struct tarn_pool *pool = mem_alloc(1, sizeof(*pool));
    if (!pool)
        return TARN_NO_MEMORY;
    pool->is_read_only = (known.flags & TARN_POOL_READ_ONLY) != 0;
    const enum tarn_status status = pool_store_open(&known, pool->is_read_only, &pool->store);
    if (status != TARN_OK) {
        mem_free(pool);
        return status;
    }
    pool_copy_init(&pool->copy);
    pool->process = getpid();
    *out_pool = pool;
    return TARN_OK;
}

void tarn_pool_close(struct tarn_pool *pool)
{
    if (!pool)
        return;
    store_stop(pool->store);
    pool_copy_deinit(&pool->copy, pool->store);
    store_close(pool->store);
    mem_free(pool);
}

static enum tarn_status field_copy(char out_field[NAMESPACE_FIELD_BYTES_MAX + 1], const char *text)
{
    const int length = snprintf(out_field, NAMESPACE_FIELD_BYTES_MAX + 1, "%s", text);
    return length > 0 && length <= NAMESPACE_FIELD_BYTES_MAX ? TARN_OK : TARN_INVALID;
}

enum tarn_status tarn_pool_namespace(struct tarn_pool *pool, const struct tarn_namespace *desc,
                                     uint32_t *out_index)
{
    struct tarn_namespace known;
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    if (!pool_is_usable(pool))
        return TARN_INVALID;
    TRY(abi_copy(&known, sizeof(known), desc));
    struct key_namespace space = {
        .world = known.world_size,
        .rank = known.rank,
        .group = known.group,
        .tokens_per_block = known.tokens_per_block,
        .page_bytes = known.bytes_per_page,
        .layout = known.layout,
    };
    TRY(field_copy(space.prefix, known.prefix ? known.prefix : "tarn"));
    TRY(field_copy(space.model, known.model ? known.model : ""));
    TRY(namespace_print(&space, text));
    return store_namespace(pool->store, text, out_index);
}

enum tarn_status tarn_pool_lookup(struct tarn_pool *pool, uint32_t namespace_index,
                                  const struct tarn_digest *digests, size_t count,
                                  struct tarn_lease **out_lease, size_t *out_count)
{
    struct store_lease *lease = NULL;
    if (!pool_is_usable(pool) || (count && !digests))
        return TARN_INVALID;
    if (count == 0)
        return TARN_MISS;
    struct store_key *keys = mem_alloc(count, sizeof(*keys));
    if (!keys)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct store_key){ .digest = digests[i],
                                      .namespace_index = namespace_index,
                                      .depth = (uint32_t)i };
    const enum tarn_status status = store_lookup(pool->store, keys, count, &lease, out_count);
    mem_free(keys);
    if (status == TARN_OK)
        *out_lease = (struct tarn_lease *)(void *)lease;
    return status;
}

void tarn_lease_release(struct tarn_lease *lease)
{
    store_lease_release((struct store_lease *)(void *)lease);
}

static bool spans_are_sound(const struct tarn_span *spans, size_t span_count)
{
    if (!spans || span_count == 0 || span_count > STORE_SPANS_MAX)
        return false;
    for (size_t i = 0; i < span_count; i++) {
        if (!spans[i].base || spans[i].size_bytes == 0)
            return false;
    }
    return true;
}

enum tarn_status tarn_pool_get(struct tarn_pool *pool, uint32_t namespace_index,
                               const struct tarn_digest *digest, const struct tarn_span *spans,
                               size_t span_count)
{
    if (!pool_is_usable(pool) || !digest || !spans_are_sound(spans, span_count))
        return TARN_INVALID;
    struct store_item item = {
        .key = { .digest = *digest, .namespace_index = namespace_index },
        .spans = spans,
        .span_count = (uint32_t)span_count,
        .status = TARN_IO,
    };
    if (store_traits(pool->store)->must_register)
        return pool_copy_get(&pool->copy, pool->store, &item);
    TRY(store_get(pool->store, &item, 1));
    return item.status;
}

enum tarn_status tarn_pool_put(struct tarn_pool *pool, uint32_t namespace_index,
                               const struct tarn_digest *digest, uint32_t block_index,
                               const struct tarn_span *spans, size_t span_count)
{
    if (!pool_is_usable(pool) || !digest || !spans_are_sound(spans, span_count))
        return TARN_INVALID;
    struct store_item item = {
        .key = { .digest = *digest, .namespace_index = namespace_index, .depth = block_index },
        .spans = spans,
        .span_count = (uint32_t)span_count,
        .status = TARN_IO,
    };
    if (store_traits(pool->store)->is_beyond_host && pool->is_read_only)
        return TARN_UNSUPPORTED;
    if (store_traits(pool->store)->must_register)
        return pool_copy_put(&pool->copy, pool->store, &item);
    TRY(store_put(pool->store, &item, 1));
    return item.status;
}
