/* SPDX-License-Identifier: Apache-2.0 */
/* leader_verdict(): what the ranks report of loads and of pages, and what follows for all of them.
 */
#include <inttypes.h>

#include "base/log.h"
#include "connector/broken.h"
#include "connector/leader.h"

static bool has_several_ranks(const struct leader *leader)
{
    return leader->config.rank_count > 1;
}

/* ---- a load ---- */

/* What this process treats as absent is said by the worker here; what failed elsewhere, by us. */
static void block_avoid(struct leader *leader, const struct leader_request *request,
                        uint64_t now_ns)
{
    const struct tarn_digest *digest =
        &request->chain.blocks[request->offer_first + request->good_count];
    if (!has_several_ranks(leader) || request->worst_rank == 0 || !leader->config.absent)
        return;
    for (uint32_t group = 0; group < leader->config.layout->group_count; group++)
        absent_add(leader->config.absent, digest, group, now_ns + ABSENT_NS);
}

/* Where the request goes on from. */
static void load_settle(struct leader *leader, struct leader_request *request, uint64_t now_ns)
{
    const uint64_t good_end = request->offer_first + request->good_count;
    const uint64_t good_token = good_end * leader->config.layout->tokens_per_block;
    if (request->good_count < request->offer_count) {
        request->computed = request->computed_before_load;
        request->scheduled = 0;
        request->saved_blocks = request->saved_before_load;
        block_avoid(leader, request, now_ns);
    }
    if (request->good_count && request->computed < good_token)
        request->computed = good_token;
    if (request->good_count && request->saved_blocks < good_end)
        request->saved_blocks = good_end;
}

/* One rank's word on a load; the last one ends it, and `verdict` gets an item. */
static void leader_take_report(struct leader *leader, uint32_t rank, const struct wire_item *item,
                               uint64_t now_ns, struct wire_writer *verdict)
{
    const struct tarn_loaded *loaded = &item->loaded;
    struct leader_request *request = leader_find(leader, loaded->id);
    if (!request || request->is_finished || request->state != LEADER_LOADING ||
        item->step_number != request->load_step || loaded->first_block != request->offer_first ||
        loaded->asked_count != request->offer_count)
        return;
    if (BROKEN(VERDICT_BY_MAXIMUM) && request->ranks_reported == 0)
        request->good_count = 0;
    if (BROKEN(VERDICT_BY_MAXIMUM) ? loaded->block_count > request->good_count
                                   : loaded->block_count < request->good_count) {
        request->good_count = loaded->block_count;
        request->load_status = loaded->status;
        request->worst_rank = rank;
    }
    request->ranks_reported |= UINT64_C(1) << rank;
    if (__builtin_popcountll(request->ranks_reported) < (int)leader->config.rank_count &&
        !BROKEN(VERDICT_BY_FIRST_RANK))
        return;

    const bool is_short = request->good_count < request->offer_count;
    const bool is_fatal = is_short && leader->config.fail_short;
    const struct wire_item result = {
        .loaded = { .id = loaded->id,
                    .first_block = loaded->first_block,
                    .block_count = request->good_count,
                    .asked_count = loaded->asked_count,
                    .status = is_fatal ? request->load_status : TARN_OK },
        .step_number = item->step_number,
    };
    load_settle(leader, request, now_ns);
    leader_drop_offer(request);
    wire_add_item(verdict, &result);
}

/* ---- pages ---- */

void leader_release(struct leader *leader, uint32_t rank, const struct wire_release *release,
                    uint64_t now_ns)
{
    const struct hold_key key = {
        .id = release->id,
        .step_number = release->step_number,
        .block = release->block,
        .group = release->group,
        .kind = release->kind,
    };
    const bool has_outcome =
        release->kind == TARN_TRANSFER_SAVE && release->outcome <= LEADER_SAVE_FAILED;
    if (release->step_number > leader->step_number)
        return;
    if (has_outcome)
        leader_save_ended(leader, release->id, release->block, (enum leader_saved)release->outcome,
                          now_ns);
    if (holds_release(&leader->holds, rank, &key) == HOLD_UNTOLD)
        leader_page_released(leader, release->id);
}

void leader_forward(struct leader *leader, uint64_t step_number)
{
    holds_forward(&leader->holds, step_number);
}

size_t leader_transfers(struct leader *leader, struct tarn_transfer *out, size_t capacity)
{
    const size_t count = holds_take(&leader->holds, out, capacity);
    for (size_t i = 0; i < count; i++) {
        if (out[i].phase == TARN_TRANSFER_RETIRED)
            leader_page_released(leader, out[i].request_id);
    }
    return count;
}

/* ---- the end of all ranks ---- */

void leader_fail(struct leader *leader, enum tarn_status status)
{
    uint64_t id;
    if (leader->failure != TARN_OK)
        return;
    leader->failure = status < TARN_OK ? status : TARN_IO;
    leader->verdict_number++;
    list_for_each (link, &leader->loading)
        leader_drop_offer(LIST_ITEM(link, struct leader_request, loading));
    while (holds_release_others(&leader->holds, 0, &id))
        leader_page_released(leader, id);
}

struct tarn_bytes leader_failure_verdict(struct leader *leader)
{
    struct wire_buffer buffer = { .data = leader->failure_bytes,
                                  .capacity_bytes = sizeof(leader->failure_bytes) };
    const struct wire_head head = {
        .kind = WIRE_VERDICT,
        .number = leader->verdict_number,
        .status = BROKEN(KEEP_FAILURE) ? TARN_OK : leader->failure,
    };
    struct wire_writer verdict = wire_begin(&buffer, leader_list_shape(leader));
    wire_end(&verdict, &head);
    return wire_buffer_bytes(&buffer);
}

/* Whoever has not reported on a load in time is lost; loads are in the order of their steps. */
static void leader_check_ranks(struct leader *leader, uint64_t now_ns)
{
    if (!has_several_ranks(leader) || list_is_empty(&leader->loading))
        return;
    const struct leader_request *request =
        LIST_ITEM(leader->loading.next, struct leader_request, loading);
    if (now_ns < request->load_due_ns || BROKEN(WAIT_FOR_LOST_RANK))
        return;
    const uint32_t rank = (uint32_t)__builtin_ctzll(~request->ranks_reported);
    log_error("rank %" PRIu32 " did not report on the load of request %" PRIu64
              " in time: it counts as lost, and the engine's ranks end",
              rank, request->id);
    leader_fail(leader, TARN_IO);
}

bool leader_has_news(const struct leader *leader)
{
    return !list_is_empty(&leader->ended) || leader->farewells.count > 0 ||
           leader->holds.transfers.count > 0;
}

/* ---- verdicts ---- */

static enum tarn_status leader_check_report(const struct leader *leader, struct tarn_bytes bytes,
                                            struct wire_reader *out_reader)
{
    struct wire_reader check;
    TRY(wire_open(bytes, WIRE_REPORT, leader_list_shape(leader), &check));
    if (check.head.rank >= leader->config.rank_count)
        return TARN_CORRUPT;
    if (wire_window_is_stale(&leader->reports[check.head.rank], check.head.number))
        return TARN_STALE;
    *out_reader = check;
    return TARN_OK;
}

static enum tarn_status verdict_reserve(struct leader *leader, const struct tarn_bytes *reports,
                                        size_t report_count)
{
    struct wire_reader reader;
    size_t item_count = 0;
    for (size_t i = 0; i < report_count; i++) {
        if (reports[i].size_bytes == 0)
            continue;
        TRY(leader_check_report(leader, reports[i], &reader));
        item_count += reader.counts[0];
    }
    const enum tarn_status status =
        wire_buffer_reserve(&leader->verdict, WIRE_HEADER_BYTES + wire_items_bytes(item_count) +
                                                  wire_ended_bytes(leader->farewells.count));
    if (status != TARN_OK && has_several_ranks(leader)) {
        log_error("no memory for a verdict: the engine's ranks end");
        leader_fail(leader, status);
        return TARN_OK;
    }
    return status;
}

static void leader_read_report(struct leader *leader, struct wire_reader *reader, uint64_t now_ns,
                               struct wire_writer *verdict)
{
    const uint32_t rank = reader->head.rank;
    wire_window_take(&leader->reports[rank], reader->head.number);
    for (uint32_t i = 0; i < reader->counts[0]; i++) {
        struct wire_item item;
        wire_next_item(reader, &item);
        leader_take_report(leader, rank, &item, now_ns, verdict);
    }
    for (uint32_t i = 0; i < reader->counts[1]; i++) {
        struct wire_release release;
        wire_next_release(reader, &release);
        leader_release(leader, rank, &release, now_ns);
    }
    if (reader->head.status < TARN_OK && has_several_ranks(leader)) {
        log_error("rank %" PRIu32 " cannot go on (%s): the engine's ranks end", rank,
                  tarn_strerror(reader->head.status));
        leader_fail(leader, reader->head.status);
    }
}

static void farewells_write(struct leader *leader, struct wire_writer *verdict)
{
    while (leader->farewells.count > 0) {
        struct wire_ended ended;
        ring_pop(&leader->farewells, &ended);
        wire_add_ended(verdict, &ended);
    }
}

enum tarn_status leader_verdict(struct leader *leader, const struct tarn_bytes *reports,
                                size_t report_count, uint64_t now_ns,
                                struct tarn_bytes *out_verdict)
{
    if (leader->failure == TARN_OK)
        TRY(verdict_reserve(leader, reports, report_count));
    if (leader->failure != TARN_OK) {
        *out_verdict = leader_failure_verdict(leader);
        return TARN_OK;
    }
    struct wire_writer verdict = wire_begin(&leader->verdict, leader_list_shape(leader));
    for (size_t i = 0; i < report_count && leader->failure == TARN_OK; i++) {
        struct wire_reader reader;
        if (reports[i].size_bytes && leader_check_report(leader, reports[i], &reader) == TARN_OK)
            leader_read_report(leader, &reader, now_ns, &verdict); /* else the same one twice */
    }
    leader_check_ranks(leader, now_ns);
    if (leader->failure != TARN_OK) {
        *out_verdict = leader_failure_verdict(leader);
        return TARN_OK;
    }
    if (BROKEN(NO_FAREWELL))
        leader->farewells.count = 0;
    farewells_write(leader, &verdict);
    if (verdict.counts[0] + verdict.counts[1] == 0)
        return TARN_AGAIN;
    const struct wire_head head = { .kind = WIRE_VERDICT,
                                    .number = ++leader->verdict_number,
                                    .previous = leader->step_number };
    wire_end(&verdict, &head);
    *out_verdict = wire_buffer_bytes(&leader->verdict);
    return TARN_OK;
}
