/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/simulation.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/fake-chain.h"
#include "obs/metric.h"
#include "sched/fake-connector.h"
#include "sched/state.h"

enum {
    PAGES_MAX = 40,
    REQUESTS_MAX = 40,
    FAMILIES = 3,
    SALTS = 2,
    TICKS_MAX = 6000, /* of one life: it ends long before, or never */
};

/* What the simulation knows of a request. */
struct subject {
    uint64_t id;
    bool submitted;
    bool ended;
    bool cancel_soon;
    uint32_t flags;
    uint32_t prompt_count;
    uint32_t max_tokens;
    uint32_t answer_count; /* it stops here */
    uint64_t arrival_ns;
    uint32_t computed_count; /* prompt tokens that a forward pass ran */
    bool has_sources;
    struct sched_sources sources;
    struct tarn_scope scope;
    struct fake_text text;
    uint32_t page_count; /* its pages when last looked at */
    void *pages[FAKE_BLOCKS_MAX];
};

static struct world {
    uint64_t random;
    struct tarn_connector fake;
    struct sched_options options;
    struct sched *sched;
    _Alignas(64) uint8_t memory[PAGES_MAX][FAKE_PAGE_BYTES];
    struct subject subjects[REQUESTS_MAX];
    uint32_t subject_count;
    uint32_t submitted_count;
    uint64_t next_id;
    int32_t family[FAMILIES][FAKE_TOKENS_MAX];
    uint32_t forward_failure; /* per 1000 */
    uint32_t memory_failure;  /* per 1000 allocations of the scheduler */
    uint32_t cancel;          /* per 1000, a request and tick */
    bool has_pool;
    struct simulation_counts counts;
} world;

#define FAULT(...) fake_fault(&world.fake, __VA_ARGS__)

static const char *const salts[SALTS] = { "", "tenant" };

static uint32_t pick(uint32_t from, uint32_t to)
{
    return from + (uint32_t)(fake_random(&world.random) % (to - from + 1));
}

static bool chance(uint32_t per_mille)
{
    return fake_chance(&world.random, per_mille);
}

/* ---- setting ---- */

static bool memory_fails(void)
{
    return fake_chance(&world.random, world.memory_failure);
}

static void set_options(void)
{
    const uint32_t batch_size = pick(1, 4);
    const uint32_t page_count = pick(8, PAGES_MAX);
    const uint32_t ctx_max =
        page_count * FAKE_T < FAKE_TOKENS_MAX ? page_count * FAKE_T : FAKE_TOKENS_MAX;
    world.options = (struct sched_options){
        .page_memory = world.memory,
        .page_bytes = FAKE_PAGE_BYTES,
        .page_count = page_count,
        .page_tokens = FAKE_T,
        .request_tokens_max = pick(16, ctx_max),
        .batch_size_max = batch_size,
        .batch_tokens_max = batch_size + FAKE_T + pick(0, 30),
        .waiting_max = pick(1, 12),
        .prefill_cut = chance(300) ? pick(1, 40) : 0,
        .chunk_tokens = chance(300) ? pick(1, 4) * FAKE_T : 0,
        .ops = world.has_pool ? fake_connector_ops() : NULL,
        .connector = world.has_pool ? &world.fake : NULL,
    };
}

static void set_knobs(void)
{
    struct fake_knobs *knobs = &world.fake.knobs;
    knobs->delay_max = chance(300) ? 0 : pick(1, 12);
    knobs->late_max = pick(5, 60);
    knobs->short_load = chance(500) ? 0 : pick(50, 600);
    knobs->late_load = chance(500) ? 0 : 500;
    knobs->drop_save = chance(600) ? 0 : pick(20, 300);
    knobs->lose_object = chance(600) ? 0 : pick(5, 50);
    knobs->unsound_offer = chance(900) ? 0 : 100;
    knobs->unsound_verdict = chance(900) ? 0 : 100;
    knobs->load_failure_fails = chance(100);
    const uint32_t error = chance(600) ? 0 : pick(5, 60);
    for (size_t i = 0; i < LENGTH_OF(knobs->error); i++)
        knobs->error[i] = chance(500) ? error : 0;
}

/* A prompt: the beginning of a family's text, then tokens of its own. */
static void write_subject(struct subject *subject)
{
    const uint32_t ctx = world.options.request_tokens_max;
    const uint32_t own_count = pick(0, 5);
    *subject = (struct subject){
        .id = world.next_id++,
        .max_tokens = pick(1, 10),
        .flags = chance(50)   ? TARN_REQUEST_DUMMY
                 : chance(30) ? TARN_REQUEST_MEDIA_UNNAMED
                              : 0,
        .cancel_soon = chance(world.cancel),
    };
    const uint32_t room = ctx - subject->max_tokens;
    const uint32_t family = pick(0, FAMILIES - 1);
    const uint32_t shared_count = pick(1, room);
    subject->scope =
        (struct tarn_scope){ .size = sizeof(subject->scope), .cache_salt = salts[pick(0, 1)] };
    if (chance(700))
        subject->scope.cache_salt = "";
    subject->answer_count = chance(700) ? subject->max_tokens : pick(1, subject->max_tokens);
    fake_text_init(&subject->text, &subject->scope);
    for (uint32_t i = 0; i < shared_count; i++)
        fake_text_add(&subject->text, world.family[family][i]);
    for (uint32_t i = 0; i < own_count && subject->text.count < room; i++)
        fake_text_add(&subject->text, (int32_t)pick(0, 3));
    subject->prompt_count = subject->text.count;
}

static void set_world(uint64_t seed)
{
    memset(&world.subjects, 0, sizeof(world.subjects));
    memset(world.memory, 0, sizeof(world.memory));
    world.random = seed;
    world.counts = (struct simulation_counts){ 0 };
    world.submitted_count = 0;
    world.next_id = 1;
    world.has_pool = !chance(100);
    world.forward_failure = chance(800) ? 0 : 20;
    world.memory_failure = chance(700) ? 0 : 200;
    world.cancel = chance(500) ? 0 : pick(50, 400);
    fake_init(&world.fake, seed ^ 0x5bd1e995);
    fake_chain_set_bits(chance(100) ? pick(1, 5) : 64);
    set_options();
    set_knobs();
    for (uint32_t i = 0; i < FAMILIES; i++)
        for (uint32_t j = 0; j < FAKE_TOKENS_MAX; j++)
            world.family[i][j] = (int32_t)pick(0, 3);
    world.subject_count = pick(1, 25);
    for (uint32_t i = 0; i < world.subject_count; i++)
        write_subject(&world.subjects[i]);
}

/* Ids count the subjects from 1. */
static struct subject *subject_of(uint64_t id)
{
    ASSERT(id >= 1 && id <= world.subject_count);
    return &world.subjects[id - 1];
}

/* ---- the forward pass ---- */

static const struct fake_cell *cell_at(const struct sched_item *item, uint32_t position)
{
    const struct fake_cell *cells = item->pages[position / FAKE_T];
    return &cells[position % FAKE_T];
}

/* Every position before `end` holds what a cold run would have put there. */
static void check_reads(const struct sched_item *item, const struct subject *subject, uint32_t end)
{
    for (uint32_t i = 0; i < end; i++) {
        const struct fake_cell cell = fake_text_cell(&subject->text, i);
        if (memcmp(cell_at(item, i), &cell, sizeof(cell)) != 0)
            FAULT("request %" PRIu64 " reads a wrong page at position %u of %u", item->id, i, end);
    }
}

/* What lies behind the last position of a page is masked, but must be finite. */
static void check_rest(const struct sched_item *item)
{
    static const struct fake_cell poison = { UINT64_MAX, UINT64_MAX };
    const uint32_t end = item->position + item->token_count;
    for (uint32_t i = end; i % FAKE_T; i++)
        if (memcmp(cell_at(item, i), &poison, sizeof(poison)) == 0)
            FAULT("request %" PRIu64 " computes beside garbage at %u", item->id, i);
}

static void check_item(const struct sched_item *item, const struct subject *subject)
{
    const uint32_t end = item->position + item->token_count;
    const uint32_t cut = world.options.prefill_cut;
    const uint32_t chunk = world.options.chunk_tokens;
    if (item->token_count == 0 || end > subject->text.count ||
        (uint64_t)item->page_count * FAKE_T < end)
        FAULT("request %" PRIu64 " runs [%u, %u) of %u", item->id, item->position, end,
              subject->text.count);
    if (memcmp(item->tokens, subject->text.tokens + item->position,
               item->token_count * sizeof(*item->tokens)) != 0)
        FAULT("request %" PRIu64 " runs other tokens than its own", item->id);
    if (item->want_logits != (end == subject->text.count))
        FAULT("request %" PRIu64 ": logits are wanted in the wrong place", item->id);
    if (end < subject->prompt_count && end % FAKE_T && end != cut)
        FAULT("request %" PRIu64 ": a chunk ends at %u, inside a block", item->id, end);
    if (item->position < cut && end > cut && item->position < subject->prompt_count)
        FAULT("request %" PRIu64 ": a chunk crosses the cut at %u", item->id, cut);
    if (chunk && item->token_count > chunk)
        FAULT("request %" PRIu64 ": a chunk of %u", item->id, item->token_count);
}

static void check_writes(const struct sched_item *item)
{
    const uint32_t end = item->position + item->token_count;
    for (uint32_t i = item->position; i < end; i++) {
        const void *page = item->pages[i / FAKE_T];
        if (fake_busy(&world.fake, page, TARN_TRANSFER_SAVE) ||
            fake_busy(&world.fake, page, TARN_TRANSFER_LOAD))
            FAULT("request %" PRIu64 " writes a page under a transfer", item->id);
    }
}

static void write_item(struct sched_item const *item, struct subject *subject)
{
    const uint32_t end = item->position + item->token_count;
    for (uint32_t i = item->position; i < end; i++) {
        struct fake_cell *cells = item->pages[i / FAKE_T];
        cells[i % FAKE_T] = fake_text_cell(&subject->text, i);
        subject->computed_count += i < subject->prompt_count;
    }
}

static void check_budgets(const struct sched_batch *batch)
{
    uint32_t token_count = 0;
    for (uint32_t i = 0; i < batch->item_count; i++)
        token_count += batch->items[i].token_count;
    if (token_count != batch->token_count || token_count > world.options.batch_tokens_max ||
        batch->item_count > world.options.batch_size_max)
        FAULT("a pass of %u requests and %u tokens is over the budget", batch->item_count,
              token_count);
}

static enum tarn_status forward(const struct sched_batch *batch)
{
    check_budgets(batch);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct subject *subject = subject_of(batch->items[i].id);
        if (subject->ended) {
            FAULT("request %" PRIu64 " runs and is over", batch->items[i].id);
            return TARN_IO;
        }
        check_item(&batch->items[i], subject);
        check_writes(&batch->items[i]);
        check_reads(&batch->items[i], subject, batch->items[i].position);
    }
    if (world.fake.fault[0])
        return TARN_IO;
    for (uint32_t i = 0; i < batch->item_count; i++)
        write_item(&batch->items[i], subject_of(batch->items[i].id));
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_item *item = &batch->items[i];
        check_reads(item, subject_of(item->id), item->position + item->token_count);
        check_rest(item);
    }
    if (!chance(world.forward_failure))
        return TARN_OK;
    /* What a pass that failed has written is worth nothing. */
    for (uint32_t i = 0; i < batch->item_count; i++)
        for (uint32_t j = 0; j < batch->items[i].token_count; j++) {
            const uint32_t position = batch->items[i].position + j;
            struct fake_cell *cells = batch->items[i].pages[position / FAKE_T];
            memset(&cells[position % FAKE_T], 0, sizeof(*cells));
        }
    return TARN_IO;
}

/* ---- what must always hold ---- */

static void check_sources(struct subject *subject)
{
    const struct sched_sources *s = &subject->sources;
    if (s->requested != subject->prompt_count ||
        s->device + s->tier + s->pool + s->computed != s->requested)
        FAULT("request %" PRIu64 ": device %u, tier %u, pool %u and computed %u are not %u",
              subject->id, s->device, s->tier, s->pool, s->computed, s->requested);
    if (s->computed == 0)
        FAULT("request %" PRIu64 ": nothing of its prompt is computed", subject->id);
}

/* A request's pages: not free, and not exchanged under a save. */
static void check_pages(const struct request *request, struct subject *subject)
{
    const struct kv_sequence *sequence = request->sequence;
    for (uint32_t i = 0; i < sequence->page_count; i++) {
        if (kv_page_state_of(world.sched->kv, sequence->pages[i]) != KV_LOCKED)
            FAULT("request %" PRIu64 " has a page that is not locked", subject->id);
        if (i < subject->page_count && subject->pages[i] != sequence->pages[i] &&
            fake_busy(&world.fake, subject->pages[i], TARN_TRANSFER_SAVE))
            FAULT("request %" PRIu64 " block %u is rebased under a save", subject->id, i);
        subject->pages[i] = sequence->pages[i];
    }
    subject->page_count = sequence->page_count;
}

static void check_transfers(void)
{
    for (size_t i = 0; i < FAKE_TRANSFERS_MAX; i++) {
        const struct fake_transfer *transfer = &world.fake.transfers[i];
        if (transfer->active && kv_page_state_of(world.sched->kv, transfer->page) == KV_FREE)
            FAULT("a page is free under a transfer of request %" PRIu64, transfer->id);
    }
}

static void check_subjects(void)
{
    uint64_t running_last = 0;
    uint64_t waiting_first = UINT64_MAX;
    for (uint32_t i = 0; i < world.subject_count; i++) {
        struct subject *subject = &world.subjects[i];
        const struct request *request = map_get(&world.sched->by_id, &subject->id);
        if (subject->submitted && !subject->ended && !request)
            FAULT("request %" PRIu64 " is lost", subject->id);
        if (world.has_pool && !request && fake_is_pending(&world.fake, subject->id))
            FAULT("request %" PRIu64 " gave its pages up before it was retired", subject->id);
        if (!request)
            continue;
        check_pages(request, subject);
        if (request->state == REQUEST_WAITING && request->arrival_ns < waiting_first)
            waiting_first = request->arrival_ns;
        if (request->state != REQUEST_WAITING && request->state != REQUEST_DRAINING &&
            request->arrival_ns > running_last)
            running_last = request->arrival_ns;
        if (sched_sources(world.sched, subject->id, &subject->sources) == TARN_OK) {
            subject->has_sources = true;
            check_sources(subject);
        }
    }
    if (running_last > waiting_first)
        FAULT("a request overtook one that waits");
}

static void check_all(void)
{
    const char *fault = kv_check(world.sched->kv);
    if (fault)
        FAULT("%s", fault);
    check_transfers();
    check_subjects();
}

/* ---- a life ---- */

static void end_subject(struct subject *subject, bool whole_prompt)
{
    subject->ended = true;
    if (whole_prompt && subject->has_sources &&
        subject->computed_count != subject->sources.computed)
        FAULT("request %" PRIu64 " computed %u prompt tokens and says %u", subject->id,
              subject->computed_count, subject->sources.computed);
    if (subject->has_sources && !(subject->flags & TARN_REQUEST_DUMMY)) {
        world.counts.device_tokens += subject->sources.device;
        world.counts.pool_tokens += subject->sources.pool;
        world.counts.computed_tokens += subject->sources.computed;
    }
}

static void submit_some(uint64_t now_ns)
{
    while (world.submitted_count < world.subject_count && chance(400)) {
        struct subject *subject = &world.subjects[world.submitted_count];
        subject->arrival_ns = now_ns;
        const struct sched_request request = {
            .id = subject->id,
            .tokens = subject->text.tokens,
            .token_count = subject->prompt_count,
            .max_tokens = subject->max_tokens,
            .scope = &subject->scope,
            .flags = subject->flags,
            .arrival_ns = now_ns,
        };
        mem_set_fault(memory_fails);
        const enum tarn_status status = sched_submit(world.sched, &request);
        mem_set_fault(NULL);
        if (status == TARN_NO_SPACE || status == TARN_NO_MEMORY)
            return;
        if (status != TARN_OK)
            FAULT("request %" PRIu64 " is refused: %s", subject->id, sched_reason(world.sched));
        subject->submitted = true;
        world.submitted_count++;
    }
}

static void cancel_some(void)
{
    for (uint32_t i = 0; i < world.subject_count; i++) {
        struct subject *subject = &world.subjects[i];
        if (!subject->submitted || subject->ended || !subject->cancel_soon || !chance(100))
            continue;
        end_subject(subject, false);
        sched_cancel(world.sched, subject->id);
    }
}

static void sample(const struct sched_item *item)
{
    struct subject *subject = subject_of(item->id);
    if (!item->want_logits || subject->ended)
        return;
    const uint32_t answered = subject->text.count - subject->prompt_count;
    const int32_t token = (int32_t)(subject->text.prefix[subject->text.count] % 4);
    check_subjects();
    if (answered == subject->answer_count) {
        end_subject(subject, true);
        sched_end(world.sched, subject->id, SCHED_OK);
        return;
    }
    fake_text_add(&subject->text, token);
    if (sched_append(world.sched, subject->id, token) != TARN_OK)
        FAULT("request %" PRIu64 " cannot take its token", subject->id);
    if (answered + 1 == subject->max_tokens) {
        end_subject(subject, true);
        sched_end(world.sched, subject->id, SCHED_OK);
    }
}

static void take_ended(void)
{
    struct sched_ended ended;
    while (sched_take_ended(world.sched, &ended)) {
        struct subject *subject = subject_of(ended.id);
        if (subject->ended || ended.status == TARN_OK)
            FAULT("request %" PRIu64 " is ended again", ended.id);
        end_subject(subject, false);
    }
}

static void run_pass(uint64_t now_ns)
{
    struct sched_batch batch;
    mem_set_fault(memory_fails);
    const enum tarn_status status = sched_pass(world.sched, now_ns, &batch);
    mem_set_fault(NULL);
    take_ended();
    check_all();
    if (status == TARN_AGAIN) {
        if (batch.item_count || batch.wait == SCHED_WAIT_NONE || batch.wait == SCHED_WAIT_CALLER)
            FAULT("nothing runs, and the scheduler waits for %d", (int)batch.wait);
        if ((batch.wait == SCHED_WAIT_IDLE) != sched_is_idle(world.sched))
            FAULT("the scheduler is idle, or not, and says otherwise");
        return;
    }
    struct sched_item items[8];
    memcpy(items, batch.items, batch.item_count * sizeof(*items));
    const enum tarn_status done = forward(&batch);
    if (chance(world.cancel / 10)) { /* someone hangs up during the pass */
        struct subject *subject = subject_of(items[0].id);
        end_subject(subject, false);
        sched_cancel(world.sched, subject->id);
    }
    if (world.fake.fault[0])
        return;
    mem_set_fault(memory_fails);
    sched_pass_done(world.sched, done, now_ns);
    mem_set_fault(NULL);
    world.counts.passes++;
    take_ended();
    check_all();
    for (uint32_t i = 0; i < batch.item_count && done == TARN_OK; i++)
        sample(&items[i]);
    check_all();
}

static bool all_ended(void)
{
    for (uint32_t i = 0; i < world.subject_count; i++)
        if (!world.subjects[i].ended)
            return false;
    return true;
}

/* The engine starts anew with an empty memory; the pool has what it had. */
static void restart(void)
{
    for (int i = 0; i < 1000 && sched_drain(world.sched, 20) != TARN_OK; i++)
        fake_tick(&world.fake);
    for (uint32_t i = 0; i < world.subject_count; i++)
        if (world.subjects[i].submitted && !world.subjects[i].ended)
            end_subject(&world.subjects[i], false);
    if (!sched_is_idle(world.sched))
        FAULT("the scheduler does not become idle");
    sched_destroy(world.sched);
    fake_restart(&world.fake);
    memset(world.memory, 0, sizeof(world.memory));
    if (sched_create(&world.options, &world.sched) != TARN_OK)
        FAULT("the scheduler cannot be created");
}

static void live(void)
{
    const bool restarts = chance(200);
    uint64_t tick = 0;
    while (!all_ended() && !world.fake.fault[0]) {
        if (++tick > TICKS_MAX)
            FAULT("after %" PRIu64 " turns a request is not over", tick);
        fake_tick(&world.fake);
        submit_some(tick * 1000);
        cancel_some();
        run_pass(tick * 1000);
        if (restarts && chance(20) && !world.fake.fault[0])
            restart();
    }
}

static void check_end(void)
{
    struct kv_counts counts;
    kv_counts(world.sched->kv, &counts);
    if (counts.pages[KV_LOCKED] || counts.pages[KV_RETIRING] || counts.pinned)
        FAULT("in the end %u pages are locked, %u retiring, %u pinned", counts.pages[KV_LOCKED],
              counts.pages[KV_RETIRING], counts.pinned);
    const int64_t sum =
        metric_get(METRIC_PROMPT_TOKENS_DEVICE) + metric_get(METRIC_PROMPT_TOKENS_TIER) +
        metric_get(METRIC_PROMPT_TOKENS_POOL) + metric_get(METRIC_PROMPT_TOKENS_COMPUTED);
    if (sum != metric_get(METRIC_PROMPT_TOKENS_REQUESTED))
        FAULT("the metrics' sources do not add up");
    if (metric_get(METRIC_PROMPT_TOKENS_DEVICE) != (int64_t)world.counts.device_tokens ||
        metric_get(METRIC_PROMPT_TOKENS_POOL) != (int64_t)world.counts.pool_tokens)
        FAULT("the metrics count other tokens than the requests");
    const int64_t outcomes =
        metric_get(METRIC_REQUESTS_OK) + metric_get(METRIC_REQUESTS_CANCELLED) +
        metric_get(METRIC_REQUESTS_FAILED) + metric_get(METRIC_REQUESTS_WARMUP);
    if (outcomes != world.subject_count)
        FAULT("%" PRId64 " outcomes of %u requests", outcomes, world.subject_count);
    if (metric_get(METRIC_REQUESTS_RUNNING) || metric_get(METRIC_REQUESTS_WAITING) ||
        metric_get(METRIC_PAGES_LOCKED))
        FAULT("the gauges do not return to zero");
}

const char *simulate(uint64_t seed, struct simulation_counts *counts)
{
    metrics_reset();
    set_world(seed);
    if (sched_create(&world.options, &world.sched) != TARN_OK)
        return "the scheduler cannot be created";
    live();
    if (!world.fake.fault[0]) {
        restart();
        check_end();
    }
    /* A fault may have left a pass open: nothing more is asked of the scheduler. */
    sched_destroy(world.sched);
    counts->passes += world.counts.passes;
    counts->requests += world.subject_count;
    counts->device_tokens += world.counts.device_tokens;
    counts->pool_tokens += world.counts.pool_tokens;
    counts->computed_tokens += world.counts.computed_tokens;
    counts->failed_calls += world.fake.error_count;
    return world.fake.fault[0] ? world.fake.fault : NULL;
}
