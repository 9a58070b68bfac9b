/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/rank-simulation.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "connector/rank-machine.h"
#include "key/chain.h"
#include "os/clock.h"

enum { T = 4, BLOCKS = 6, TOKENS = T * BLOCKS, REQUESTS = 5, RECORDS = 512, MESSAGES_MAX = 512 };
enum { STEMS = 4, EVENTS = 500, DRAIN_EVENTS = 6000, OVERTAKES_MAX = 40, NOBODY = -1 };
enum { DEADLINE_MS = 1000, RANK_DEADLINES = 5 };
enum { CALM_STEP_MS = 4, ENDING_STEP_MS = 40 };

#define HOLDS(condition, text)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            machine_say_fault(text);                                                               \
    } while (0)

/* The load of a request, as seen from outside. */
struct record {
    uint64_t asked_count;
    uint64_t good_count; /* once some rank knows it */
    bool is_judged;
    bool has_ended; /* its request */
    bool is_applied[MACHINE_RANKS];
    tarn_page slots[BLOCKS];
    struct tarn_digest digests[BLOCKS];
};

enum state { FREE, READY, LOADING, ENDED };

struct request {
    enum state state;
    int32_t tokens[TOKENS];
    struct tarn_digest digests[BLOCKS];
    tarn_page slots[BLOCKS];
    size_t prompt_count;
    size_t told_count;
    size_t computed;
    size_t scheduled;
    uint64_t offer_count; /* blocks */
    int record;           /* NOBODY: it never had a load */
    bool load_told;
};

/* What the engine tells its ranks beside the connector's metadata: what they compute. */
struct work {
    uint64_t id;
    size_t first;
    size_t end; /* tokens */
    int record; /* of its load, if it had one */
    bool begins_load;
    tarn_page slots[BLOCKS];
    struct tarn_digest digests[BLOCKS];
};

struct plan {
    uint64_t step_number;
    size_t work_count;
    struct work work[REQUESTS];
};

enum word { METADATA, VERDICT, REPORT };

struct message {
    enum word word;
    uint32_t from;
    uint32_t to;
    uint64_t sent; /* in the order of sending */
    uint32_t overtaken;
    bool came_before;
    uint8_t *bytes;
    size_t size_bytes;
    struct plan plan; /* of METADATA */
};

struct rank {
    struct tarn_connector *connector;
    struct plan plan; /* taken in, its forward pass is due */
    bool has_plan;
    bool is_lost;
    enum tarn_status failure; /* what it was told */
    int loads[REQUESTS + 1];  /* record of the load that it took in last, by id */
    uint64_t load_ns[REQUESTS + 1];
};

static const struct tarn_connector_ops *ops;
static struct rank_simulation_counts *counts;
static struct rank ranks[MACHINE_RANKS];
static uint32_t rank_count;
static struct request requests[REQUESTS];
static struct record records[RECORDS];
static size_t record_count;
static uint64_t owners[MACHINE_SLOTS]; /* id; 0: nobody */
static unsigned busy[MACHINE_SLOTS];   /* as the leader's transfers() say */
static struct message *messages[MESSAGES_MAX];
static size_t message_count;
static uint64_t sent_count;
static uint64_t step_number;
static bool is_ending;   /* a rank was lost */
static bool is_told;     /* by the engine, which saw it */
static bool is_draining; /* nothing new begins */
static uint64_t lost_ns;

static struct rank *leader(void)
{
    return &ranks[0];
}

static bool rank_lives(uint32_t rank)
{
    return !ranks[rank].is_lost && ranks[rank].failure == TARN_OK;
}

/* The ranks end together: what happens to pages then concerns nobody. */
static bool has_failed(void)
{
    for (uint32_t i = 0; i < rank_count; i++) {
        if (!rank_lives(i))
            return true;
    }
    return false;
}

static bool may_touch(uint32_t rank, uint64_t id, tarn_page slot)
{
    (void)rank;
    return has_failed() || owners[slot] == id;
}

static void rank_fails(uint32_t rank, enum tarn_status status)
{
    HOLDS(is_ending, "the ranks end, and none was lost");
    HOLDS(status < TARN_OK, "an end that is no failure");
    ranks[rank].failure = status;
}

/* ---- the transport ---- */

static void message_send(enum word word, uint32_t from, uint32_t to, struct tarn_bytes bytes,
                         const struct plan *plan)
{
    if (ranks[to].is_lost)
        return;
    struct message *message = mem_alloc(1, sizeof(*message));
    uint8_t *copy = mem_alloc(bytes.size_bytes, 1);
    ASSERT(message && copy && message_count < MESSAGES_MAX);
    memcpy(copy, bytes.data, bytes.size_bytes);
    *message = (struct message){ .word = word,
                                 .from = from,
                                 .to = to,
                                 .sent = sent_count++,
                                 .bytes = copy,
                                 .size_bytes = bytes.size_bytes };
    if (plan)
        message->plan = *plan;
    messages[message_count++] = message;
    counts->messages++;
}

static void message_to_all(enum word word, struct tarn_bytes bytes, const struct plan *plan)
{
    for (uint32_t i = 1; i < rank_count; i++)
        message_send(word, 0, i, bytes, plan);
}

static void message_remove(struct message *message)
{
    size_t at = 0;
    while (messages[at] != message)
        at++;
    messages[at] = messages[--message_count];
    mem_free(message->bytes);
    mem_free(message);
}

static bool same_way(const struct message *a, const struct message *b)
{
    return a->from == b->from && a->to == b->to;
}

/* Often the oldest on some way, else any; but one that was overtaken too often, or what was sent
 * before it, comes first. */
static struct message *message_pick(void)
{
    struct message *picked = messages[machine_pick((uint32_t)message_count)];
    bool is_oldest = machine_pick(4) != 0;
    for (size_t i = 0; i < message_count; i++) {
        if (messages[i]->overtaken < OVERTAKES_MAX)
            continue;
        picked = messages[i];
        is_oldest = true;
    }
    for (size_t i = 0; i < message_count && is_oldest; i++) {
        if (same_way(messages[i], picked) && messages[i]->sent < picked->sent)
            picked = messages[i];
    }
    return picked;
}

static void message_overtakes(const struct message *message)
{
    for (size_t i = 0; i < message_count; i++) {
        if (same_way(messages[i], message) && messages[i]->sent < message->sent)
            messages[i]->overtaken++;
    }
}

/* ---- what the leader's engine keeps ---- */

static void request_release(struct request *request)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        const tarn_page slot = request->slots[i];
        if (slot == TARN_PAGE_NONE)
            continue;
        HOLDS(busy[slot] == 0, "a page is given back while the leader says that it is in use");
        for (uint32_t rank = 0; rank < rank_count && !has_failed(); rank++)
            HOLDS(!machine_is_busy(rank, slot), "a page is given back that a rank still touches");
        owners[slot] = 0;
    }
    request->state = FREE;
}

static void request_end(struct request *request)
{
    uint32_t pending;
    const uint64_t id = (uint64_t)(request - requests) + 1;
    if (request->record != NOBODY)
        records[request->record].has_ended = true;
    const enum tarn_status status = ops->finished(leader()->connector, id, &pending);
    HOLDS(status == TARN_OK, "a request cannot end");
    request->state = ENDED;
    if (status == TARN_OK && !pending)
        request_release(request);
}

static void transfers_take(uint32_t rank)
{
    struct tarn_transfer out[7];
    size_t count;
    do {
        if (ops->transfers(ranks[rank].connector, out, 7, &count) != TARN_OK)
            machine_say_fault("transfers() failed");
        for (size_t i = 0; i < count && rank == 0; i++) {
            const tarn_page slot = out[i].page;
            HOLDS(owners[slot] == out[i].request_id, "a transfer of a page that is another's");
            if (out[i].phase == TARN_TRANSFER_STARTED)
                busy[slot]++;
            else if (busy[slot] > 0)
                busy[slot]--;
            else
                machine_say_fault("a page is retired more often than started");
        }
    } while (count == 7);
}

static void retired_take(void)
{
    uint64_t ids[REQUESTS];
    size_t count;
    if (ops->retired(leader()->connector, ids, REQUESTS, &count) != TARN_OK)
        machine_say_fault("retired() failed");
    for (size_t i = 0; i < count; i++) {
        struct request *request = &requests[ids[i] - 1];
        HOLDS(request->state == ENDED, "a request is retired that did not end");
        request_release(request);
    }
}

/* ---- verdicts ---- */

static void record_judge(uint32_t rank, struct record *record, const struct tarn_loaded *loaded)
{
    HOLDS(!record->is_applied[rank], "a second verdict on a load");
    HOLDS(!record->is_judged || record->good_count == loaded->block_count,
          "ranks have different verdicts");
    HOLDS(loaded->asked_count == record->asked_count && loaded->first_block == 0 &&
              loaded->block_count <= loaded->asked_count,
          "a verdict on another load");
    record->is_judged = true;
    record->is_applied[rank] = true;
    record->good_count = loaded->block_count;
    for (uint64_t block = 0; block < loaded->block_count && block < BLOCKS; block++)
        HOLDS(record->has_ended ||
                  machine_is_right(rank, record->slots[block], &record->digests[block]),
              "a verdict calls a page good that is not");
}

/* Where the request goes on from, which the verdict alone says. */
static void request_judge(struct request *request, const struct tarn_loaded *loaded)
{
    HOLDS(request->state == LOADING && request->load_told, "a verdict without a load");
    request->computed = loaded->block_count * T;
    request->state = READY;
    counts->loads++;
    counts->short_loads += loaded->block_count < loaded->asked_count;
}

static enum tarn_status verdict_apply(uint32_t rank, struct tarn_bytes verdict)
{
    struct tarn_loaded loaded[2 * REQUESTS];
    size_t count = 0;
    const enum tarn_status status =
        ops->verdict_apply(ranks[rank].connector, verdict, loaded, LENGTH_OF(loaded), &count);
    for (size_t i = 0; status == TARN_OK && i < count; i++) {
        const int at = ranks[rank].loads[loaded[i].id];
        HOLDS(at != NOBODY, "a verdict on a load that was not begun here");
        if (at != NOBODY)
            record_judge(rank, &records[at], &loaded[i]);
        if (rank == 0)
            request_judge(&requests[loaded[i].id - 1], &loaded[i]);
    }
    return status;
}

/* Give the leader a report (or none), and all ranks its verdict. */
static enum tarn_status leader_judge(const struct tarn_bytes *report)
{
    struct tarn_bytes verdict;
    const enum tarn_status status =
        ops->verdict(leader()->connector, report, report ? 1 : 0, &verdict);
    if (status != TARN_OK)
        return status;
    message_to_all(VERDICT, verdict, NULL);
    const enum tarn_status applied = verdict_apply(0, verdict);
    if (applied < TARN_OK)
        rank_fails(0, applied);
    else
        HOLDS(applied == TARN_OK, "the leader's own verdict is refused");
    return TARN_OK;
}

/* Whoever must have heard of a loss by now, has. */
static void deadlines_check(uint32_t rank)
{
    const uint64_t limit_ms = (uint64_t)(RANK_DEADLINES + (rank ? 1 : 0)) * DEADLINE_MS;
    for (uint64_t id = 1; id <= REQUESTS && rank_lives(rank); id++) {
        const int at = ranks[rank].loads[id];
        if (at == NOBODY || records[at].is_applied[rank] || records[at].has_ended)
            continue;
        HOLDS(machine_now_ns < ranks[rank].load_ns[id] + limit_ms * NS_PER_MS,
              "a rank waits past the deadline");
    }
}

static void rank_poll(uint32_t rank)
{
    struct tarn_bytes report;
    const enum tarn_status status = ops->load_poll(ranks[rank].connector, 0, &report);
    transfers_take(rank);
    if (status == TARN_OK && rank == 0)
        (void)!leader_judge(&report);
    else if (status == TARN_OK)
        message_send(REPORT, rank, 0, report, NULL);
    else if (status < TARN_OK && ranks[rank].failure == TARN_OK)
        rank_fails(rank, status);
    if (rank == 0) {
        if (rank_lives(0))
            (void)!leader_judge(NULL);
        transfers_take(0);
        retired_take();
    }
    deadlines_check(rank);
}

/* ---- steps ---- */

static void work_do(uint32_t rank, const struct work *work)
{
    const size_t first_block = work->first / T;
    if (work->record != NOBODY)
        HOLDS(records[work->record].is_applied[rank], "a rank computes before the verdict");
    for (size_t block = 0; block < first_block; block++)
        HOLDS(machine_is_right(rank, work->slots[block], &work->digests[block]),
              "a rank computes on a page that is not right");
    for (size_t block = first_block; block * T < work->end; block++) {
        HOLDS(!machine_is_busy(rank, work->slots[block]),
              "a rank computes into a page that a transfer may touch");
        machine_compute(rank, work->slots[block], &work->digests[block]);
    }
}

static void rank_forward(uint32_t rank)
{
    struct rank *self = &ranks[rank];
    if (!self->has_plan)
        return;
    self->has_plan = false;
    for (size_t i = 0; i < self->plan.work_count; i++) {
        if (self->plan.work[i].end > self->plan.work[i].first)
            work_do(rank, &self->plan.work[i]);
    }
    /* What is told to have failed is not saved, and is planned again. */
    const enum tarn_status told = machine_pick(30) == 0 ? TARN_IO : TARN_OK;
    const enum tarn_status status =
        ops->forward_done(self->connector, self->plan.step_number, told, NULL);
    if (status < TARN_OK && self->failure == TARN_OK)
        rank_fails(rank, status);
    counts->forwards++;
    transfers_take(rank);
}

/* Take the metadata of a step in; what it says is OK to compute. */
static enum tarn_status step_take(uint32_t rank, struct tarn_bytes metadata,
                                  const struct plan *plan)
{
    struct rank *self = &ranks[rank];
    rank_forward(rank); /* passes are in order */
    const enum tarn_status status = ops->load_start(self->connector, metadata);
    if (status != TARN_OK)
        return status;
    self->plan = *plan;
    self->has_plan = true;
    for (size_t i = 0; i < plan->work_count; i++) {
        if (!plan->work[i].begins_load)
            continue;
        self->loads[plan->work[i].id] = plan->work[i].record;
        self->load_ns[plan->work[i].id] = machine_now_ns;
    }
    transfers_take(rank);
    return TARN_OK;
}

static bool is_free_from(const struct request *request, size_t block)
{
    for (; block < BLOCKS; block++) {
        if (busy[request->slots[block]])
            return false;
    }
    return true;
}

static int record_make(const struct request *request)
{
    if (record_count == RECORDS)
        return NOBODY;
    struct record *record = &records[record_count];
    *record = (struct record){ .asked_count = request->offer_count };
    memcpy(record->slots, request->slots, sizeof(record->slots));
    memcpy(record->digests, request->digests, sizeof(record->digests));
    return (int)record_count++;
}

/* A request's part of a step, and the work that comes with it. */
static bool part_make(struct request *request, const tarn_page **page_lists,
                      struct tarn_step_request *out_part, struct work *out_work)
{
    const bool begins_load = request->state == LOADING && !request->load_told;
    size_t new_tokens = 0;
    if (!begins_load && (request->state != READY || !is_free_from(request, request->computed / T)))
        return false;
    request->scheduled = 0;
    if (begins_load) {
        request->record = record_make(request);
        request->load_told = true;
    } else {
        new_tokens = request->computed == request->told_count && request->told_count < TOKENS;
        request->scheduled = request->told_count + new_tokens - request->computed;
        if (request->scheduled > 1)
            request->scheduled = 1 + machine_pick((uint32_t)request->scheduled);
    }
    *out_part = (struct tarn_step_request){
        .id = (uint64_t)(request - requests) + 1,
        .tokens = request->tokens + request->told_count,
        .token_count = new_tokens,
        .pages = page_lists,
        .block_count = BLOCKS,
        .computed_tokens = request->computed,
        .scheduled_tokens = request->scheduled,
        .load = begins_load,
    };
    *out_work = (struct work){ .id = out_part->id,
                               .first = request->computed,
                               .end = request->computed + request->scheduled,
                               .record = request->record,
                               .begins_load = begins_load };
    memcpy(out_work->slots, request->slots, sizeof(out_work->slots));
    memcpy(out_work->digests, request->digests, sizeof(out_work->digests));
    request->told_count += new_tokens;
    request->computed += request->scheduled;
    return true;
}

static void leader_step(void)
{
    struct tarn_step_request parts[REQUESTS];
    const tarn_page *page_lists[REQUESTS][MACHINE_GROUPS];
    struct plan plan = { .step_number = step_number + 1 };
    struct tarn_bytes metadata;
    rank_forward(0);
    if (!rank_lives(0))
        return;
    for (size_t i = 0; i < REQUESTS; i++) {
        page_lists[i][0] = page_lists[i][1] = requests[i].slots;
        if (machine_pick(3) && part_make(&requests[i], page_lists[i], &parts[plan.work_count],
                                         &plan.work[plan.work_count]))
            plan.work_count++;
    }
    const struct tarn_step step = { .size = sizeof(step),
                                    .number = ++step_number,
                                    .requests = parts,
                                    .request_count = plan.work_count };
    HOLDS(ops->step(leader()->connector, &step, &metadata) == TARN_OK, "a step is refused");
    if (machine_fault())
        return;
    message_to_all(METADATA, metadata, &plan);
    HOLDS(step_take(0, metadata, &plan) == TARN_OK, "the leader's own step is refused");
}

/* ---- requests ---- */

static bool slots_take(struct request *request, uint64_t id)
{
    size_t taken = 0;
    for (tarn_page slot = 0; slot < MACHINE_SLOTS && taken < BLOCKS; slot++) {
        if (owners[slot] == 0) {
            owners[slot] = id;
            request->slots[taken++] = slot;
        }
    }
    return taken == BLOCKS;
}

static void digests_make(const int32_t *tokens, struct tarn_digest out_digests[BLOCKS])
{
    struct chain chain;
    enum tarn_status status = chain_init(&chain, NULL, T);
    if (status == TARN_OK)
        status = chain_extend(&chain, tokens, TOKENS);
    ASSERT(status == TARN_OK);
    memcpy(out_digests, chain.blocks, BLOCKS * sizeof(*out_digests));
    chain_deinit(&chain);
}

/* What earlier engines left in the pool: some of what prompts begin with. */
static void pool_fill(void)
{
    for (int32_t stem = 0; stem < STEMS; stem++) {
        int32_t tokens[TOKENS];
        struct tarn_digest digests[BLOCKS];
        for (int32_t i = 0; i < TOKENS; i++)
            tokens[i] = stem * 1000 + i;
        digests_make(tokens, digests);
        for (size_t block = machine_pick(BLOCKS); block-- > 0;)
            machine_pool_fill(&digests[block]);
    }
}

static void request_fill(struct request *request)
{
    const uint32_t stem = machine_pick(STEMS);
    const uint32_t shared = machine_pick(TOKENS);
    const uint32_t tail = machine_pick(3);
    *request = (struct request){ .state = READY, .record = NOBODY };
    request->prompt_count = T + 1 + machine_pick(TOKENS - T - 4);
    request->told_count = request->prompt_count;
    for (uint32_t i = 0; i < TOKENS; i++) {
        request->tokens[i] = (int32_t)(i < shared ? stem * 1000 + i : 5000 + tail * 1000 + i);
        request->slots[i / T] = TARN_PAGE_NONE;
    }
    digests_make(request->tokens, request->digests);
}

static void request_start(struct request *request)
{
    const uint64_t id = (uint64_t)(request - requests) + 1;
    struct tarn_offer offer;
    request_fill(request);
    if (!slots_take(request, id)) {
        request_release(request);
        return;
    }
    const struct tarn_request asked = { .size = sizeof(asked),
                                        .id = id,
                                        .tokens = request->tokens,
                                        .token_count = request->prompt_count };
    const enum tarn_status status = ops->lookup(leader()->connector, &asked, 0, &offer);
    HOLDS(status == TARN_OK || status == TARN_MISS, "a lookup failed");
    if (status != TARN_OK)
        return;
    request->state = LOADING;
    request->offer_count = offer.token_count / T;
    for (uint64_t block = 0; block < request->offer_count; block++)
        HOLDS(machine_pool_has(&request->digests[block], rank_count),
              "an offer of what not every rank has");
}

static void request_turn(void)
{
    struct request *request = &requests[machine_pick(REQUESTS)];
    if (!rank_lives(0) || request->state == ENDED)
        return;
    if (request->state == FREE && !is_draining && record_count < RECORDS)
        request_start(request);
    else if (request->state != FREE && (is_draining || machine_pick(6) == 0))
        request_end(request);
}

/* ---- events ---- */

static enum tarn_status message_take(const struct message *message)
{
    const struct tarn_bytes bytes = { message->bytes, message->size_bytes };
    if (message->word == METADATA)
        return step_take(message->to, bytes, &message->plan);
    if (message->word == VERDICT)
        return verdict_apply(message->to, bytes);
    const enum tarn_status status = leader_judge(&bytes);
    return status == TARN_AGAIN ? TARN_OK : status; /* taken in, with no verdict yet */
}

static void message_deliver(void)
{
    if (message_count == 0)
        return;
    struct message *message = message_pick();
    if (!rank_lives(message->to)) {
        message_remove(message);
        return;
    }
    const enum tarn_status status = message_take(message);
    if (status == TARN_AGAIN) {
        counts->early++;
        HOLDS(!message->came_before, "a message is early that came before");
        return;
    }
    if (status == TARN_OK)
        HOLDS(!message->came_before || !rank_lives(message->to), "a message is taken twice");
    if (status == TARN_STALE)
        HOLDS(message->came_before, "a message is stale that did not come before");
    if (status < TARN_OK && ranks[message->to].failure == TARN_OK)
        rank_fails(message->to, status);
    message_overtakes(message);
    if (status == TARN_OK && !message->came_before && machine_pick(8) == 0) {
        message->came_before = true;
        counts->repeated++;
        return;
    }
    message_remove(message);
}

static void pool_turn(void)
{
    const struct request *request = &requests[machine_pick(REQUESTS)];
    if (request->state != FREE && machine_pick(4) == 0)
        machine_pool_lose(&request->digests[machine_pick(BLOCKS)], machine_pick(rank_count),
                          machine_pick(MACHINE_GROUPS));
}

static void turn(void)
{
    const uint32_t rank = machine_pick(rank_count);
    const uint32_t step_ms = is_ending ? ENDING_STEP_MS : CALM_STEP_MS;
    if (!is_draining || is_ending)
        machine_now_ns += machine_pick(step_ms + 1) * NS_PER_MS;
    switch (machine_pick(12)) {
    case 0:
        request_turn();
        return;
    case 1:
        if (!is_draining && rank_lives(0))
            leader_step();
        return;
    case 2:
        pool_turn();
        return;
    case 3:
    case 4:
        if (!ranks[rank].is_lost)
            (void)machine_load(rank);
        return;
    case 5:
    case 6:
        if (!ranks[rank].is_lost)
            (void)machine_save(rank);
        return;
    case 7:
        if (rank_lives(rank))
            rank_forward(rank);
        return;
    case 8:
    case 9:
        if (rank_lives(rank))
            rank_poll(rank);
        return;
    default:
        message_deliver();
        return;
    }
}

/* ---- losses ---- */

/* The engine saw that a rank is gone. */
static void loss_tell(void)
{
    struct tarn_bytes message;
    is_told = true;
    for (uint32_t i = 0; i < rank_count; i++) {
        if (!rank_lives(i))
            continue;
        HOLDS(ops->end_ranks(ranks[i].connector, TARN_IO, &message) == TARN_OK,
              "an end that cannot be said");
        if (i != 0) {
            message_send(REPORT, i, 0, message, NULL);
            continue;
        }
        message_to_all(VERDICT, message, NULL);
        rank_fails(0, verdict_apply(0, message));
        return; /* the verdict tells the others */
    }
}

static void loss_happen(uint32_t rank)
{
    is_ending = true;
    lost_ns = machine_now_ns;
    ranks[rank].is_lost = true;
    counts->ends++;
    for (size_t i = message_count; i-- > 0;) {
        if (messages[i]->to == rank)
            message_remove(messages[i]);
    }
    if (machine_pick(3) == 0)
        loss_tell();
}

static bool all_have_ended(void)
{
    for (uint32_t i = 0; i < rank_count; i++) {
        if (rank_lives(i))
            return false;
    }
    return true;
}

/* Every rank that is left is told, by a deadline when there is a load, else by whoever saw it. */
static void loss_spread(void)
{
    for (size_t i = 0; i < DRAIN_EVENTS && !all_have_ended() && !machine_fault(); i++) {
        turn();
        if (!is_told && machine_now_ns > lost_ns + 4 * RANK_DEADLINES * DEADLINE_MS * NS_PER_MS)
            loss_tell();
    }
    HOLDS(all_have_ended(), "a rank is not told of the end");
}

/* ---- the end ---- */

static bool requests_are_over(void)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        if (requests[i].state != FREE)
            return false;
    }
    return true;
}

/* Without new work, everything ends. */
static void drain(void)
{
    is_draining = true;
    for (size_t i = 0; i < REQUESTS && !ranks[0].is_lost; i++) {
        if (requests[i].state == READY || requests[i].state == LOADING)
            request_end(&requests[i]);
    }
    for (size_t i = 0; i < DRAIN_EVENTS && !machine_fault(); i++) {
        turn();
        if (!ranks[0].is_lost && ranks[0].failure != TARN_OK) {
            transfers_take(0);
            retired_take();
        }
        if (ranks[0].is_lost || (requests_are_over() && (is_ending || message_count == 0)))
            return;
    }
    HOLDS(false, "a request does not end");
}

/* With nothing under way nobody is missed, however long it takes. */
static void rest(void)
{
    if (is_ending)
        return;
    machine_now_ns += 20 * RANK_DEADLINES * DEADLINE_MS * NS_PER_MS;
    for (uint32_t i = 0; i < rank_count; i++)
        rank_poll(i);
    HOLDS(!has_failed(), "the ranks end at rest");
}

static void engine_close(void)
{
    for (uint32_t i = 0; i < rank_count; i++) {
        do {
            while (machine_load(i) || machine_save(i))
                ;
            transfers_take(i);
        } while (machine_load(i) || machine_save(i));
        HOLDS(ops->close(ranks[i].connector, 0) == TARN_OK, "a rank cannot close");
    }
    while (message_count > 0)
        message_remove(messages[0]);
    HOLDS(machine_lease_count() == 0, "a lease is left");
}

static void engine_open(void)
{
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
    };
    const struct tarn_connector_options options = {
        .size = sizeof(options),
        .transfer_batch_size = 1 + machine_pick(5),
        .save_queue_pages_max = 4 + machine_pick(30),
        .load_deadline_ms = DEADLINE_MS,
        .load_failure = TARN_LOAD_RECOMPUTE,
    };
    struct tarn_engine_desc desc = { .size = sizeof(desc),
                                     .model_key = "m",
                                     .format = &format,
                                     .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                     .world_size = rank_count,
                                     .tensor_parallel_size = rank_count,
                                     .request_count_max = 2 * REQUESTS,
                                     .request_tokens_max = TOKENS };
    for (uint32_t i = 0; i < rank_count; i++) {
        struct tarn_layout layout;
        desc.rank = i;
        ranks[i] = (struct rank){ .is_lost = false };
        for (size_t id = 0; id <= REQUESTS; id++)
            ranks[i].loads[id] = NOBODY;
        enum tarn_status status =
            connector_open_with(&options, &desc, machine_store(i), &ranks[i].connector);
        ASSERT(status == TARN_OK);
        machine_layout(i, &layout);
        status = ops->register_layout(ranks[i].connector, &layout);
        ASSERT(status == TARN_OK);
    }
}

static void world_reset(void)
{
    memset(requests, 0, sizeof(requests));
    memset(owners, 0, sizeof(owners));
    memset(busy, 0, sizeof(busy));
    record_count = 0;
    message_count = 0;
    sent_count = 0;
    step_number = 0;
    is_ending = is_told = is_draining = false;
}

static void ignore_line(void *context, int level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

const char *simulate_ranks(uint64_t seed, struct rank_simulation_counts *out_counts)
{
    const size_t live = mem_live_count();
    const bool loses = seed % 2 == 0;
    ops = tarn_connector_ops(TARN_ABI_VERSION);
    counts = out_counts;
    if (!getenv("TARN_TEST_SEED")) /* NOLINT(concurrency-mt-unsafe) */
        tarn_log_to(ignore_line, NULL);
    machine_init(seed, may_touch);
    world_reset();
    rank_count = 2 + machine_pick(MACHINE_RANKS - 1);
    engine_open();
    pool_fill();
    const size_t loss = loses ? 100 + machine_pick(EVENTS - 100) : SIZE_MAX;
    for (size_t i = 0; i < EVENTS && !machine_fault(); i++) {
        turn();
        if (i == loss)
            loss_happen(machine_pick(4) == 0 ? 0 : machine_pick(rank_count));
        if (is_ending)
            break;
    }
    if (is_ending)
        loss_spread();
    if (!machine_fault())
        drain();
    if (!machine_fault())
        rest();
    if (!machine_fault())
        engine_close();
    if (!machine_fault()) {
        machine_deinit();
        HOLDS(mem_live_count() == live, "memory is left");
    }
    return machine_fault();
}
