/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/leader.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"

#define SAVE_PAUSE_MIN_NS (100 * NS_PER_MS)
#define SAVE_PAUSE_MAX_NS (5 * NS_PER_S)

void leader_init(struct leader *leader, const struct leader_config *config)
{
    ASSERT(config->rank_count >= 1 && config->rank_count <= LEADER_RANKS_MAX);
    *leader = (struct leader){ .config = *config };
    map_init(&leader->requests, sizeof(uint64_t));
    list_init(&leader->ended);
    list_init(&leader->loading);
    holds_init(&leader->holds, config->rank_count);
    ring_init(&leader->farewells, sizeof(struct wire_ended));
}

void leader_drop_offer(struct leader_request *request)
{
    for (size_t i = 0; i < request->lease_count; i++)
        store_lease_release(request->leases[i]);
    request->lease_count = 0;
    request->offer_count = 0;
    request->state = LEADER_IDLE;
    list_remove(&request->loading);
}

struct wire_shape leader_shape(const struct leader *leader)
{
    const struct layout *layout = leader->config.layout;
    return (struct wire_shape){
        .group_count = (uint32_t)layout->group_count,
        .extra_bytes =
            leader->config.verify_tokens ? wire_extra_bytes(layout->tokens_per_block) : 0,
        .identity = leader->config.identity,
    };
}

struct wire_shape leader_list_shape(const struct leader *leader)
{
    return (struct wire_shape){ .identity = leader->config.identity };
}

static void request_destroy(struct leader_request *request)
{
    if (!request)
        return;
    leader_drop_offer(request);
    chain_deinit(&request->chain);
    mem_free(request->tokens);
    mem_free(request->pages);
    mem_free(request);
}

static void request_destroy_at(struct leader_request **request)
{
    request_destroy(*request);
}

void leader_deinit(struct leader *leader)
{
    size_t position = 0;
    for (void *request; (request = map_next(&leader->requests, &position)) != NULL;)
        request_destroy(request);
    map_deinit(&leader->requests);
    holds_deinit(&leader->holds);
    ring_deinit(&leader->farewells);
    wire_buffer_deinit(&leader->metadata);
    wire_buffer_deinit(&leader->verdict);
    *leader = (struct leader){ 0 };
}

struct leader_request *leader_find(const struct leader *leader, uint64_t id)
{
    return map_get(&leader->requests, &id);
}

static void leader_forget(struct leader *leader, struct leader_request *request)
{
    (void)map_remove(&leader->requests, &request->id);
    if (!request->is_finished)
        leader->live_count--;
    request_destroy(request);
}

/* Keep the tokens of `request`, and hash them. */
static enum tarn_status request_fill(struct leader_request *made,
                                     const struct tarn_request *request)
{
    const size_t count = request->token_count;
    made->tokens = mem_alloc(count ? count : 1, sizeof(*made->tokens));
    if (!made->tokens)
        return TARN_NO_MEMORY;
    if (count)
        memcpy(made->tokens, request->tokens, count * sizeof(*made->tokens));
    made->token_count = count;
    made->token_capacity = count ? count : 1;
    return chain_extend(&made->chain, made->tokens, count);
}

static enum tarn_status request_create(struct leader *leader, const struct tarn_request *request,
                                       struct leader_request **out_request)
{
    if (leader->live_count >= leader->config.request_count_max)
        return TARN_INVALID;
    CLEANUP(request_destroy_at)
    struct leader_request *made = mem_alloc(1, sizeof(*made));
    if (!made)
        return TARN_NO_MEMORY;
    made->id = request->id;
    list_init(&made->link);
    list_init(&made->loading);
    TRY(chain_init(&made->chain, request->scope, leader->config.layout->tokens_per_block));
    TRY(request_fill(made, request));
    /* Each request takes its farewell at most once. */
    TRY(ring_reserve(&leader->farewells, leader->farewells.count + leader->requests.count + 1));
    TRY(map_set(&leader->requests, &made->id, made));
    leader->live_count++;
    *out_request = TAKE(made);
    return TARN_OK;
}

/* Whether the request, as it is told now, is the one that is known: same scope, and its tokens. */
static bool request_is_same(const struct leader_request *known, const struct tarn_request *request,
                            const struct tarn_digest *seed)
{
    return digest_equal(&known->chain.seed, seed) && request->token_count == known->token_count &&
           (known->token_count == 0 || memcmp(known->tokens, request->tokens,
                                              known->token_count * sizeof(*known->tokens)) == 0);
}

static enum tarn_status leader_admit(struct leader *leader, const struct tarn_request *request,
                                     struct leader_request **out_request)
{
    struct leader_request *known = leader_find(leader, request->id);
    if (known) {
        struct tarn_digest seed;
        if (known->is_finished || known->state == LEADER_LOADING)
            return TARN_INVALID;
        TRY(scope_digest(request->scope, &seed));
        if (request_is_same(known, request, &seed)) {
            *out_request = known;
            return TARN_OK;
        }
        if (known->has_stepped)
            return TARN_INVALID;
        leader_forget(leader, known);
    }
    return request_create(leader, request, out_request);
}

static enum leader_decline leader_declines(const struct leader *leader,
                                           const struct leader_request *request, uint64_t computed)
{
    const uint32_t tokens_per_block = leader->config.layout->tokens_per_block;
    if (!leader->config.loads)
        return LEADER_DECLINE_ROLE;
    if (request->flags & TARN_REQUEST_DUMMY)
        return LEADER_DECLINE_DUMMY;
    if (request->flags & TARN_REQUEST_GENERATION_ONLY)
        return LEADER_DECLINE_GENERATION_ONLY;
    if (request->flags & TARN_REQUEST_MEDIA_UNNAMED)
        return LEADER_DECLINE_MEDIA;
    if (request->token_count <= tokens_per_block)
        return LEADER_DECLINE_NO_FULL_BLOCK;
    if (computed / tokens_per_block >= (request->token_count - 1) / tokens_per_block)
        return LEADER_DECLINE_LOCAL;
    if (computed % tokens_per_block != 0 && !leader->config.can_rewind)
        return LEADER_DECLINE_OFF_BOUNDARY;
    return LEADER_DECLINE_NONE;
}

enum tarn_status leader_ask(struct leader *leader, const struct tarn_request *request,
                            uint64_t computed_tokens, struct leader_probe *out_probe,
                            enum leader_decline *out_decline)
{
    const uint32_t tokens_per_block = leader->config.layout->tokens_per_block;
    struct leader_request *known;
    if (leader->failure != TARN_OK)
        return leader->failure;
    if (request->token_count > leader->config.request_tokens_max ||
        (request->token_count && !request->tokens) || computed_tokens > request->token_count)
        return TARN_INVALID;
    TRY(leader_admit(leader, request, &known));
    leader_drop_offer(known);
    known->flags = request->flags;
    if (!known->has_stepped) {
        known->prompt_count = request->token_count;
        known->saved_blocks = computed_tokens / tokens_per_block;
    }
    const enum leader_decline decline = leader_declines(leader, known, computed_tokens);
    *out_decline = decline;
    if (decline != LEADER_DECLINE_NONE)
        return TARN_MISS;
    const uint64_t first = computed_tokens / tokens_per_block;
    *out_probe = (struct leader_probe){
        .id = known->id,
        .first_block = first,
        .block_count = (known->token_count - 1) / tokens_per_block - first,
        .digests = known->chain.blocks + first,
    };
    return TARN_OK;
}

enum tarn_status leader_offer(struct leader *leader, const struct leader_probe *probe,
                              uint64_t block_count, struct store_lease *const *leases,
                              size_t lease_count, struct tarn_offer *out_offer)
{
    struct leader_request *request = leader_find(leader, probe->id);
    ASSERT(request && request->state == LEADER_IDLE && request->lease_count == 0);
    ASSERT(lease_count <= LEADER_LEASES_MAX && block_count <= probe->block_count);
    for (size_t i = 0; i < lease_count; i++)
        request->leases[request->lease_count++] = leases[i];
    if (block_count == 0) {
        leader_drop_offer(request);
        return TARN_MISS;
    }
    const uint32_t tokens_per_block = leader->config.layout->tokens_per_block;
    request->state = LEADER_OFFERED;
    request->offer_first = probe->first_block;
    request->offer_count = block_count;
    *out_offer = (struct tarn_offer){
        .first_token = probe->first_block * tokens_per_block,
        .token_count = block_count * tokens_per_block,
    };
    return TARN_OK;
}

enum tarn_status leader_cancel(struct leader *leader, uint64_t id, uint64_t start, uint64_t end)
{
    const uint32_t tokens_per_block = leader->config.layout->tokens_per_block;
    struct leader_request *request = leader_find(leader, id);
    if (!request || request->is_finished || request->state == LEADER_LOADING || start > end)
        return TARN_INVALID;
    const uint64_t first = request->offer_first * tokens_per_block;
    const uint64_t last = (request->offer_first + request->offer_count) * tokens_per_block;
    if (request->state != LEADER_OFFERED || start == end || end <= first || start >= last)
        return TARN_OK; /* nothing of it is offered */
    if (start <= first && end >= last) {
        leader_drop_offer(request);
        return TARN_OK;
    }
    if (end >= last) {
        request->offer_count = start / tokens_per_block - request->offer_first;
        if (request->offer_count == 0)
            leader_drop_offer(request);
        return TARN_OK;
    }
    if (start > first || end % tokens_per_block != 0)
        return TARN_INVALID; /* a hole; a head off a boundary */
    request->offer_count -= end / tokens_per_block - request->offer_first;
    request->offer_first = end / tokens_per_block;
    return TARN_OK;
}

enum tarn_status leader_finished(struct leader *leader, uint64_t id, uint32_t *out_pending)
{
    struct leader_request *request = leader_find(leader, id);
    if (!request || request->is_finished)
        return TARN_INVALID;
    const struct wire_ended farewell = { .id = id, .step_number = leader->step_number };
    if (leader->config.rank_count > 1 &&
        (request->state == LEADER_LOADING || request->transfer_count))
        ring_push(&leader->farewells, &farewell);
    leader_drop_offer(request);
    *out_pending = request->transfer_count != 0;
    if (request->transfer_count == 0) {
        leader_forget(leader, request);
        return TARN_OK;
    }
    request->is_finished = true;
    leader->live_count--;
    return TARN_OK;
}

size_t leader_retired(struct leader *leader, uint64_t *out_ids, size_t capacity)
{
    size_t count = 0;
    list_for_each (link, &leader->ended) {
        if (count == capacity)
            break;
        struct leader_request *request = LIST_ITEM(link, struct leader_request, link);
        out_ids[count++] = request->id;
        list_remove(link);
        leader_forget(leader, request);
    }
    return count;
}

enum tarn_status leader_reset(struct leader *leader, uint64_t id)
{
    struct leader_request *request = leader_find(leader, id);
    if (!request)
        return TARN_OK;
    if (request->is_finished || request->transfer_count != 0)
        return TARN_INVALID;
    leader_forget(leader, request);
    return TARN_OK;
}

void leader_save_ended(struct leader *leader, uint64_t id, uint64_t block,
                       enum leader_saved outcome, uint64_t now_ns)
{
    if (outcome == LEADER_SAVED)
        leader->save_pause_ns = 0;
    if (outcome == LEADER_SAVE_FAILED && now_ns >= leader->save_resume_ns) {
        leader->save_pause_ns = 2 * leader->save_pause_ns;
        if (leader->save_pause_ns < SAVE_PAUSE_MIN_NS)
            leader->save_pause_ns = SAVE_PAUSE_MIN_NS;
        if (leader->save_pause_ns > SAVE_PAUSE_MAX_NS)
            leader->save_pause_ns = SAVE_PAUSE_MAX_NS;
        leader->save_resume_ns = now_ns + leader->save_pause_ns;
    }
    struct leader_request *request = leader_find(leader, id);
    if (request && outcome != LEADER_SAVED && block < request->saved_blocks)
        request->saved_blocks = block;
}

void leader_pause_saves(struct leader *leader, uint64_t until_ns)
{
    if (leader->save_resume_ns < until_ns)
        leader->save_resume_ns = until_ns;
}

void leader_page_released(struct leader *leader, uint64_t id)
{
    struct leader_request *request = leader_find(leader, id);
    if (!request)
        return;
    ASSERT(request->transfer_count > 0);
    request->transfer_count--;
    if (request->is_finished && request->transfer_count == 0)
        list_push_back(&leader->ended, &request->link);
}
