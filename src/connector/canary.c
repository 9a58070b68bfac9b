/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/canary.h"

#include <string.h>
#include <unistd.h>

#include "codec/digest.h"
#include "os/clock.h"

static uint8_t *page_of(const struct canary *canary, int which)
{
    return (uint8_t *)canary->block.base + canary->page_offset[which];
}

enum tarn_status canary_open(struct canary *canary, struct store *store, uint32_t namespace_index,
                             bool puts)
{
    *canary = (struct canary){ .store = store, .namespace_index = namespace_index, .puts = puts };
    if (!puts)
        return TARN_OK;
    const size_t headroom = (store_traits(store)->headroom_bytes + 63) / 64 * 64;
    const size_t size = 2 * (headroom + CANARY_BYTES);
    canary->page_offset[0] = headroom;
    canary->page_offset[1] = 2 * headroom + CANARY_BYTES;
    TRY(block_init(&canary->block, size));
    const enum tarn_status status = store_register(store, canary->block.base, size);
    if (status != TARN_OK)
        block_deinit(&canary->block);
    return status;
}

void canary_close(struct canary *canary)
{
    if (canary->block.base)
        store_unregister(canary->store, canary->block.base);
    block_deinit(&canary->block);
}

/* A key that nothing else has, and bytes that go with it. */
static struct store_key canary_make(struct canary *canary)
{
    struct digest_stream stream;
    struct store_key key = { .namespace_index = canary->namespace_index };
    const struct {
        uint64_t now_ns;
        uint64_t process;
        uint64_t number;
        uint64_t place;
    } seed = { clock_now_ns(), (uint64_t)getpid(), ++canary->number, (uintptr_t)canary };
    digest_init(&stream);
    digest_update(&stream, &seed, sizeof(seed));
    digest_finish(&stream, &key.digest);
    if (canary->puts) {
        for (size_t i = 0; i < CANARY_BYTES; i++)
            page_of(canary, 0)[i] = (uint8_t)(key.digest.bytes[i % 16] + i / 16);
        memset(page_of(canary, 1), 0, CANARY_BYTES);
    }
    return key;
}

/* False: this step failed. */
static bool step(struct canary *canary, const char *name, enum tarn_status status)
{
    if (status == TARN_OK)
        return true;
    canary->failed_step = name;
    canary->status = status;
    return false;
}

static enum tarn_status move(struct canary *canary, const struct store_key *key, int which,
                             enum tarn_status (*call)(struct store *, struct store_item *, size_t))
{
    const struct tarn_span span = { page_of(canary, which), CANARY_BYTES };
    struct store_item item = {
        .key = *key,
        .spans = &span,
        .span_count = 1,
        .status = TARN_IO,
        .has_headroom = store_traits(canary->store)->headroom_bytes > 0,
    };
    const enum tarn_status status = call(canary->store, &item, 1);
    return status == TARN_OK ? item.status : status;
}

void canary_try(struct canary *canary)
{
    const struct store_key key = canary_make(canary);
    bool exists = false;
    canary->failed_step = NULL;
    canary->status = TARN_OK;
    if (canary->puts) {
        const enum tarn_status put = move(canary, &key, 0, store_put);
        if (put == TARN_NO_SPACE) /* it has looked at it, and refused */
            return;
        if (!step(canary, "put", put))
            return;
    }
    if (!step(canary, "exists", store_exists(canary->store, &key, 1, &exists)) || !canary->puts)
        return;
    if (!step(canary, "exists", exists ? TARN_OK : TARN_MISS) ||
        !step(canary, "get", move(canary, &key, 1, store_get)))
        return;
    (void)step(canary, "compare",
               memcmp(page_of(canary, 0), page_of(canary, 1), CANARY_BYTES) == 0 ? TARN_OK
                                                                                 : TARN_CORRUPT);
    const enum tarn_status removed = store_remove(canary->store, &key);
    (void)removed; /* if not, it is evicted one day */
}
