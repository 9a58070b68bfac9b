/* SPDX-License-Identifier: Apache-2.0 */
/* leader_step(): check all of a step and reserve memory for it; only then change anything. */
#include <string.h>

#include "base/alloc.h"
#include "connector/leader.h"

static uint32_t groups_of(const struct leader *leader)
{
    return (uint32_t)leader->config.layout->group_count;
}

static uint64_t blocks_of(const struct leader *leader, uint64_t tokens)
{
    return tokens / leader->config.layout->tokens_per_block;
}

static bool request_may_save(const struct leader *leader, const struct leader_request *request)
{
    return leader->config.saves &&
           !(request->flags & (TARN_REQUEST_DUMMY | TARN_REQUEST_MEDIA_UNNAMED));
}

/* Blocks whose every token will have been computed when the step's forward pass ends. */
static uint64_t blocks_complete(const struct leader *leader, const struct leader_request *request,
                                const struct tarn_step_request *part)
{
    uint64_t end = part->computed_tokens + part->scheduled_tokens;
    if (!leader->config.save_generated && end > request->prompt_count)
        end = request->prompt_count;
    return blocks_of(leader, end);
}

static enum tarn_status pages_check(const struct leader *leader,
                                    const struct tarn_step_request *part)
{
    const uint64_t blocks_max = blocks_of(leader, leader->config.request_tokens_max) + 1;
    if (part->block_count == 0)
        return TARN_OK;
    if (!part->pages || part->first_block > blocks_max ||
        part->block_count > blocks_max - part->first_block)
        return TARN_INVALID;
    for (uint32_t group = 0; group < groups_of(leader); group++) {
        if (!part->pages[group])
            return TARN_INVALID;
        for (uint64_t i = 0; i < part->block_count; i++) {
            const tarn_page page = part->pages[group][i];
            if (page != TARN_PAGE_NONE && !layout_has_page(leader->config.layout, group, page))
                return TARN_INVALID;
        }
    }
    return TARN_OK;
}

/* The page of a block, as it will be once `part` is taken in. */
static tarn_page page_of(const struct leader *leader, const struct leader_request *request,
                         const struct tarn_step_request *part, uint64_t block, uint32_t group)
{
    if (block >= part->first_block && block - part->first_block < part->block_count)
        return part->pages[group][block - part->first_block];
    if (block >= request->page_blocks)
        return TARN_PAGE_NONE;
    return request->pages[block * groups_of(leader) + group];
}

static enum tarn_status load_check(const struct leader *leader,
                                   const struct leader_request *request,
                                   const struct tarn_step_request *part)
{
    if (request->state != LEADER_OFFERED)
        return TARN_INVALID;
    for (uint64_t i = 0; i < request->offer_count; i++) {
        for (uint32_t group = 0; group < groups_of(leader); group++) {
            if (page_of(leader, request, part, request->offer_first + i, group) == TARN_PAGE_NONE)
                return TARN_INVALID;
        }
    }
    return TARN_OK;
}

static enum tarn_status part_check(const struct leader *leader,
                                   const struct leader_request *request,
                                   const struct tarn_step_request *part)
{
    if (!request || request->is_finished || request->attempt == leader->attempt)
        return TARN_INVALID;
    if (part->token_count && !part->tokens)
        return TARN_INVALID;
    if (part->token_count > leader->config.request_tokens_max - request->token_count)
        return TARN_INVALID;
    const uint64_t token_count = request->token_count + part->token_count;
    if (part->computed_tokens > token_count ||
        part->scheduled_tokens > token_count - part->computed_tokens)
        return TARN_INVALID;
    if (part->computed_tokens < request->computed)
        return TARN_INVALID;
    if (request->state == LEADER_LOADING && (part->scheduled_tokens || part->load))
        return TARN_INVALID;
    TRY(pages_check(leader, part));
    return part->load ? load_check(leader, request, part) : TARN_OK;
}

static enum tarn_status tokens_reserve(struct leader_request *request, size_t token_count)
{
    if (token_count <= request->token_capacity)
        return TARN_OK;
    const size_t capacity = token_count + token_count / 2;
    int32_t *tokens = mem_alloc(capacity, sizeof(*tokens));
    if (!tokens)
        return TARN_NO_MEMORY;
    if (request->token_count)
        memcpy(tokens, request->tokens, request->token_count * sizeof(*tokens));
    mem_free(request->tokens);
    request->tokens = tokens;
    request->token_capacity = capacity;
    return TARN_OK;
}

static enum tarn_status pages_reserve(const struct leader *leader, struct leader_request *request,
                                      uint64_t block_count)
{
    const uint32_t group_count = groups_of(leader);
    if (block_count <= request->page_blocks)
        return TARN_OK;
    const size_t capacity = (size_t)(block_count + block_count / 2);
    tarn_page *pages = mem_alloc(capacity * group_count, sizeof(*pages));
    if (!pages)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < capacity * group_count; i++)
        pages[i] = i < request->page_blocks * group_count ? request->pages[i] : TARN_PAGE_NONE;
    mem_free(request->pages);
    request->pages = pages;
    request->page_blocks = capacity;
    return TARN_OK;
}

struct step_size {
    size_t message_bytes;
    size_t block_count; /* to be loaded or saved */
};

/* Room for everything that part_apply() will do, so that it cannot fail. */
static enum tarn_status part_reserve(struct leader *leader, struct leader_request *request,
                                     const struct tarn_step_request *part, struct step_size *size)
{
    TRY(tokens_reserve(request, request->token_count + part->token_count));
    TRY(chain_reserve(&request->chain, request->token_count + part->token_count));
    TRY(pages_reserve(leader, request,
                      part->block_count ? part->first_block + part->block_count : 0));
    if (part->load) {
        size->message_bytes += wire_load_bytes(leader_shape(leader), request->offer_count);
        size->block_count += request->offer_count;
    }
    const uint64_t complete = blocks_complete(leader, request, part);
    if (complete > request->saved_blocks) {
        const uint64_t save_count = complete - request->saved_blocks;
        size->message_bytes += wire_save_bytes(leader_shape(leader), save_count);
        size->block_count += save_count;
    }
    return TARN_OK;
}

static void part_apply(struct leader *leader, struct leader_request *request,
                       const struct tarn_step_request *part)
{
    const uint32_t group_count = groups_of(leader);
    if (part->token_count)
        memcpy(request->tokens + request->token_count, part->tokens,
               part->token_count * sizeof(*part->tokens));
    request->token_count += part->token_count;
    const enum tarn_status extended =
        chain_extend(&request->chain, request->tokens, request->token_count);
    ASSERT(extended == TARN_OK);
    for (uint64_t i = 0; i < part->block_count; i++) {
        for (uint32_t group = 0; group < group_count; group++)
            request->pages[(part->first_block + i) * group_count + group] = part->pages[group][i];
    }
    request->has_stepped = true;
    if (request->state == LEADER_LOADING)
        return;
    request->computed_before_load = request->computed;
    request->saved_before_load = request->saved_blocks;
    /* What is complete beyond what we saw scheduled came from the device itself. */
    const uint64_t supplied = blocks_of(leader, part->computed_tokens);
    if (part->computed_tokens > request->computed + request->scheduled &&
        request->saved_blocks < supplied)
        request->saved_blocks = supplied;
    if (request->state == LEADER_OFFERED && !part->load && part->scheduled_tokens)
        leader_drop_offer(request);
    request->computed = part->computed_tokens;
    request->scheduled = part->scheduled_tokens;
}

static void block_write(const struct leader *leader, const struct leader_request *request,
                        uint64_t block, struct wire_writer *writer)
{
    const uint32_t tokens_per_block = leader->config.layout->tokens_per_block;
    const struct chain *chain = &request->chain;
    wire_add_block(writer, &chain->blocks[block], &request->pages[block * groups_of(leader)]);
    wire_add_extra(writer, block ? &chain->blocks[block - 1] : &chain->seed,
                   request->tokens + block * tokens_per_block, tokens_per_block);
}

/* Until every rank has let go of its page of the block. */
static void block_hold(struct leader *leader, const struct leader_request *request, uint64_t block,
                       enum tarn_transfer_kind kind)
{
    const uint32_t group_count = groups_of(leader);
    struct hold_key key = {
        .id = request->id, .step_number = leader->step_number, .block = block, .kind = kind
    };
    if (leader->config.rank_count == 1)
        return;
    for (key.group = 0; key.group < group_count; key.group++)
        holds_add(&leader->holds, &key, request->pages[block * group_count + key.group]);
}

static void load_write(struct leader *leader, struct leader_request *request, uint64_t now_ns,
                       struct wire_writer *writer)
{
    const uint32_t group_count = groups_of(leader);
    const uint64_t end = request->offer_first + request->offer_count;
    wire_add_load(writer, request->id, request->offer_first, (uint32_t)request->offer_count);
    for (uint64_t block = request->offer_first; block < end; block++) {
        block_write(leader, request, block, writer);
        block_hold(leader, request, block, TARN_TRANSFER_LOAD);
    }
    request->state = LEADER_LOADING;
    list_push_back(&leader->loading, &request->loading);
    request->load_step = leader->step_number;
    request->load_due_ns = now_ns + leader->config.rank_deadline_ns;
    request->ranks_reported = 0;
    request->good_count = request->offer_count;
    request->load_status = TARN_OK;
    request->transfer_count += request->offer_count * group_count;
    if (request->saved_blocks < end)
        request->saved_blocks = end;
}

static bool block_is_whole(const struct leader *leader, const struct leader_request *request,
                           uint64_t block)
{
    if (block >= request->page_blocks)
        return false;
    for (uint32_t group = 0; group < groups_of(leader); group++) {
        if (request->pages[block * groups_of(leader) + group] == TARN_PAGE_NONE)
            return false;
    }
    return true;
}

/* In order, up to the first block that lacks a page: what is behind a gap would not be found. */
static void saves_write(struct leader *leader, struct leader_request *request,
                        const struct tarn_step_request *part, struct wire_writer *writer)
{
    const uint64_t complete = blocks_complete(leader, request, part);
    if (!request_may_save(leader, request) || part->scheduled_tokens == 0)
        return;
    while (request->saved_blocks < complete &&
           block_is_whole(leader, request, request->saved_blocks)) {
        const uint64_t block = request->saved_blocks++;
        wire_add_save(writer, request->id, block);
        block_write(leader, request, block, writer);
        block_hold(leader, request, block, TARN_TRANSFER_SAVE);
        request->transfer_count += groups_of(leader);
    }
}

static enum tarn_status step_check(struct leader *leader, const struct tarn_step *step)
{
    struct step_size size = { .message_bytes = WIRE_HEADER_BYTES };
    if (leader->failure != TARN_OK)
        return leader->failure;
    if (step->number <= leader->step_number || (step->request_count && !step->requests))
        return TARN_INVALID;
    leader->attempt++;
    for (size_t i = 0; i < step->request_count; i++) {
        const struct tarn_step_request *part = &step->requests[i];
        struct leader_request *request = leader_find(leader, part->id);
        TRY(part_check(leader, request, part));
        request->attempt = leader->attempt;
        TRY(part_reserve(leader, request, part, &size));
    }
    if (leader->config.rank_count > 1)
        TRY(holds_reserve(&leader->holds, size.block_count * groups_of(leader)));
    return wire_buffer_reserve(&leader->metadata, size.message_bytes);
}

enum tarn_status leader_step(struct leader *leader, const struct tarn_step *step, uint64_t now_ns,
                             struct tarn_bytes *out_metadata)
{
    TRY(step_check(leader, step));
    const struct wire_head head = {
        .kind = WIRE_METADATA,
        .number = step->number,
        .previous = leader->step_number,
        .verdict = leader->verdict_number,
    };
    struct wire_writer writer = wire_begin(&leader->metadata, leader_shape(leader));
    leader->step_number = step->number;
    for (size_t i = 0; i < step->request_count; i++) {
        struct leader_request *request = leader_find(leader, step->requests[i].id);
        part_apply(leader, request, &step->requests[i]);
        if (step->requests[i].load)
            load_write(leader, request, now_ns, &writer);
    }
    for (size_t i = 0; i < step->request_count && now_ns >= leader->save_resume_ns; i++)
        saves_write(leader, leader_find(leader, step->requests[i].id), &step->requests[i], &writer);
    wire_end(&writer, &head);
    *out_metadata = wire_buffer_bytes(&leader->metadata);
    return TARN_OK;
}

static void load_lose(struct leader *leader, struct wire_reader *reader)
{
    struct wire_block block;
    uint64_t id;
    uint64_t first_block;
    uint32_t block_count;
    wire_next_load(reader, &id, &first_block, &block_count);
    for (uint32_t i = 0; i < block_count; i++)
        wire_next_block(reader, &block);
    struct leader_request *request = leader_find(leader, id);
    if (!request)
        return;
    request->transfer_count -= (uint64_t)block_count * groups_of(leader);
    request->computed = request->computed_before_load;
    request->scheduled = 0;
    request->saved_blocks = request->saved_before_load;
    leader_drop_offer(request);
}

static void save_lose(struct leader *leader, struct wire_reader *reader)
{
    struct wire_block wire;
    uint64_t id;
    uint64_t block;
    wire_next_save(reader, &id, &block);
    wire_next_block(reader, &wire);
    struct leader_request *request = leader_find(leader, id);
    if (!request)
        return;
    request->transfer_count -= groups_of(leader);
    if (block < request->saved_blocks)
        request->saved_blocks = block;
}

void leader_step_lose(struct leader *leader)
{
    struct wire_reader reader;
    ASSERT(leader->config.rank_count == 1);
    if (leader->accepted_number >= leader->step_number)
        return;
    const enum tarn_status opened = wire_open(wire_buffer_bytes(&leader->metadata), WIRE_METADATA,
                                              leader_shape(leader), &reader);
    ASSERT(opened == TARN_OK); /* our own, of the last step */
    for (uint32_t i = 0; i < reader.counts[0]; i++)
        load_lose(leader, &reader);
    for (uint32_t i = 0; i < reader.counts[1]; i++)
        save_lose(leader, &reader);
    leader->accepted_number = leader->step_number;
}
