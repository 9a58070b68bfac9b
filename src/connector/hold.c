/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/hold.h"

#include "base/alloc.h"
#include "connector/broken.h"

_Static_assert(sizeof(struct hold_key) == MAP_KEY_BYTES_MAX, "a key without gaps");

void holds_init(struct holds *holds, uint32_t rank_count)
{
    *holds = (struct holds){ .every_rank = UINT64_MAX >> (64 - rank_count) };
    map_init(&holds->map, sizeof(struct hold_key));
    list_init(&holds->waiting);
    list_init(&holds->started);
    list_init(&holds->unused);
    ring_init(&holds->transfers, sizeof(struct tarn_transfer));
}

static void list_free(struct list *list)
{
    if (!list->next)
        return;
    list_for_each (link, list)
        mem_free(LIST_ITEM(link, struct hold, link));
}

void holds_deinit(struct holds *holds)
{
    list_free(&holds->waiting);
    list_free(&holds->started);
    list_free(&holds->unused);
    map_deinit(&holds->map);
    ring_deinit(&holds->transfers);
    *holds = (struct holds){ .unused_count = 0 };
}

enum tarn_status holds_reserve(struct holds *holds, size_t count)
{
    const size_t total = holds->map.count + count;
    for (; holds->unused_count < count; holds->unused_count++) {
        struct hold *hold = mem_alloc(1, sizeof(*hold));
        if (!hold)
            return TARN_NO_MEMORY;
        list_push_back(&holds->unused, &hold->link);
    }
    TRY(map_reserve(&holds->map, total));
    return ring_reserve(&holds->transfers, holds->transfers.count + 2 * total);
}

static void hold_tell(struct holds *holds, const struct hold *hold, enum tarn_transfer_phase phase)
{
    const struct tarn_transfer transfer = {
        .request_id = hold->key.id,
        .block = hold->key.block,
        .page = hold->page,
        .group = hold->key.group,
        .kind = (uint16_t)hold->key.kind,
        .phase = (uint16_t)phase,
    };
    ring_push(&holds->transfers, &transfer);
}

static void hold_start(struct holds *holds, struct hold *hold)
{
    hold->is_started = true;
    list_push_back(&holds->started, &hold->link);
    hold_tell(holds, hold, TARN_TRANSFER_STARTED);
}

void holds_add(struct holds *holds, const struct hold_key *key, tarn_page page)
{
    ASSERT(holds->unused_count > 0 && !map_get(&holds->map, key));
    struct hold *hold = LIST_ITEM(holds->unused.next, struct hold, link);
    list_remove(&hold->link);
    holds->unused_count--;
    *hold = (struct hold){ .key = *key, .page = page, .ranks = holds->every_rank };
    const enum tarn_status status = map_set(&holds->map, key, hold);
    ASSERT(status == TARN_OK); /* reserved */
    if (key->kind == TARN_TRANSFER_LOAD)
        hold_start(holds, hold);
    else
        list_push_back(&holds->waiting, &hold->link);
}

void holds_forward(struct holds *holds, uint64_t step_number)
{
    list_for_each (link, &holds->waiting) {
        struct hold *hold = LIST_ITEM(link, struct hold, link);
        if (hold->key.step_number > step_number)
            return;
        list_remove(link);
        hold_start(holds, hold);
    }
}

static enum hold_end hold_drop(struct holds *holds, struct hold *hold, uint64_t ranks)
{
    hold->ranks &= ~ranks;
    if (hold->ranks)
        return HOLD_HELD;
    const bool is_started = hold->is_started;
    if (is_started)
        hold_tell(holds, hold, TARN_TRANSFER_RETIRED);
    (void)map_remove(&holds->map, &hold->key);
    list_remove(&hold->link);
    list_push_back(&holds->unused, &hold->link);
    holds->unused_count++;
    return is_started ? HOLD_TOLD : HOLD_UNTOLD;
}

enum hold_end holds_release(struct holds *holds, uint32_t rank, const struct hold_key *key)
{
    struct hold *hold = map_get(&holds->map, key);
    const uint64_t bit = UINT64_C(1) << rank;
    if (!hold || !(hold->ranks & bit))
        return HOLD_UNKNOWN;
    return hold_drop(holds, hold, BROKEN(RETIRE_BY_FIRST_RANK) ? UINT64_MAX : bit);
}

bool holds_release_others(struct holds *holds, uint32_t rank, uint64_t *out_id)
{
    const uint64_t others = ~(UINT64_C(1) << rank);
    list_for_each (link, &holds->started)
        (void)hold_drop(holds, LIST_ITEM(link, struct hold, link), others);
    list_for_each (link, &holds->waiting) {
        struct hold *hold = LIST_ITEM(link, struct hold, link);
        const uint64_t id = hold->key.id;
        if (hold_drop(holds, hold, others) == HOLD_UNTOLD) {
            *out_id = id;
            return true;
        }
    }
    return false;
}

size_t holds_take(struct holds *holds, struct tarn_transfer *out, size_t capacity)
{
    size_t count = 0;
    for (; count < capacity && holds->transfers.count > 0; count++)
        ring_pop(&holds->transfers, &out[count]);
    return count;
}
