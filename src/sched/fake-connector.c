/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/fake-connector.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kv/fake-hash.h"

uint64_t fake_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return fake_hash(*state, 0x2545f4914f6cdd1du);
}

bool fake_chance(uint64_t *state, uint32_t per_mille)
{
    return per_mille && fake_random(state) % 1000 < per_mille;
}

void fake_fault(struct tarn_connector *fake, const char *format, ...)
{
    va_list args;
    if (fake->fault[0])
        return;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyzer misses va_start */
    vsnprintf(fake->fault, sizeof(fake->fault), format, args);
    va_end(args);
}

/* ---- contents ---- */

void fake_text_init(struct fake_text *text, const struct tarn_scope *scope)
{
    text->count = 0;
    text->prefix[0] = fake_hash(fake_scope_hash(scope), 77);
}

void fake_text_add(struct fake_text *text, int32_t token)
{
    ASSERT(text->count < FAKE_TOKENS_MAX);
    text->tokens[text->count] = token;
    text->prefix[text->count + 1] =
        fake_hash(text->prefix[text->count], (uint64_t)(int64_t)token + 1);
    text->count++;
}

struct fake_cell fake_text_cell(const struct fake_text *text, uint32_t position)
{
    const uint64_t hash = text->prefix[position + 1];
    return (struct fake_cell){ .hash = hash, .check = ~hash };
}

/* ---- state ---- */

static bool call_fails(struct tarn_connector *fake, enum fake_call call)
{
    const bool fails = fake_chance(&fake->random, fake->knobs.error[call]);
    fake->error_count += fails;
    return fails;
}

static struct fake_request *find(struct tarn_connector *fake, uint64_t id)
{
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++)
        if (fake->requests[i].known && fake->requests[i].id == id)
            return &fake->requests[i];
    return NULL;
}

static void report(struct tarn_connector *fake, const struct fake_transfer *transfer,
                   enum tarn_transfer_phase phase)
{
    ASSERT(fake->report_count < FAKE_REPORTS_MAX);
    fake->reports[(fake->report_first + fake->report_count) % FAKE_REPORTS_MAX] =
        (struct tarn_transfer){
            .request_id = transfer->id,
            .block = transfer->block,
            .page = (uint64_t)(uintptr_t)transfer->page,
            .kind = transfer->kind,
            .phase = (uint16_t)phase,
        };
    fake->report_count++;
}

/* What a block is called in the store. */
static uint64_t block_key(const struct fake_request *request, uint32_t block)
{
    return request->text.prefix[((size_t)block + 1) * FAKE_T];
}

static size_t object_place(const struct tarn_connector *fake, uint64_t key)
{
    size_t place = key % FAKE_OBJECTS_MAX;
    while (fake->objects[place] && fake->objects[place] != key)
        place = (place + 1) % FAKE_OBJECTS_MAX;
    return place;
}

static bool has_object(const struct tarn_connector *fake, uint64_t key)
{
    return fake->objects[object_place(fake, key)] == key;
}

/* Forget all: simpler than a hole in a table with linear probing, and rare. */
static void lose_objects(struct tarn_connector *fake)
{
    memset(fake->objects, 0, sizeof(fake->objects));
}

static void add_object(struct tarn_connector *fake, uint64_t key, const struct fake_cell *cells)
{
    const size_t place = object_place(fake, key);
    fake->objects[place] = key;
    memcpy(fake->contents[place], cells, sizeof(fake->contents[place]));
    fake->save_count++;
    if (fake->save_count % (FAKE_OBJECTS_MAX / 2) == 0)
        lose_objects(fake);
}

static struct fake_transfer *begin(struct tarn_connector *fake, const struct fake_request *request,
                                   uint32_t block, enum tarn_transfer_kind kind)
{
    size_t i = 0;
    while (i < FAKE_TRANSFERS_MAX && fake->transfers[i].active)
        i++;
    ASSERT(i < FAKE_TRANSFERS_MAX);
    fake->transfers[i] = (struct fake_transfer){
        .active = true,
        .kind = (uint16_t)kind,
        .id = request->id,
        .block = block,
        .page = request->pages[block],
        .end_tick = fake->tick + fake_random(&fake->random) % (fake->knobs.delay_max + 1),
    };
    report(fake, &fake->transfers[i], TARN_TRANSFER_STARTED);
    return &fake->transfers[i];
}

static void begin_save(struct tarn_connector *fake, const struct fake_request *request,
                       uint32_t block)
{
    struct fake_transfer *transfer = begin(fake, request, block, TARN_TRANSFER_SAVE);
    for (uint32_t i = 0; i < FAKE_T; i++)
        transfer->cells[i] = fake_text_cell(&request->text, block * FAKE_T + i);
    if (memcmp(transfer->page, transfer->cells, sizeof(transfer->cells)) != 0)
        fake_fault(fake, "request %" PRIu64 " block %u: a page is saved that does not hold it",
                   request->id, block);
}

static void begin_load(struct tarn_connector *fake, struct fake_request *request, uint32_t block,
                       bool good)
{
    const uint64_t key = block_key(request, block);
    struct fake_transfer *transfer = begin(fake, request, block, TARN_TRANSFER_LOAD);
    if (fake_busy(fake, transfer->page, TARN_TRANSFER_LOAD) > 1 ||
        fake_busy(fake, transfer->page, TARN_TRANSFER_SAVE))
        fake_fault(fake, "a load starts into a page under another transfer");
    memset(transfer->page, FAKE_POISON, FAKE_PAGE_BYTES);
    transfer->fails = !good || !has_object(fake, key);
    if (transfer->fails) {
        transfer->late = fake_chance(&fake->random, fake->knobs.late_load);
        if (transfer->late)
            transfer->end_tick += 1 + fake_random(&fake->random) % (fake->knobs.late_max + 1);
        return;
    }
    memcpy(transfer->cells, fake->contents[object_place(fake, key)], sizeof(transfer->cells));
}

static bool is_poison(const void *page)
{
    const uint8_t *bytes = page;
    for (size_t i = 0; i < FAKE_PAGE_BYTES; i++)
        if (bytes[i] != FAKE_POISON)
            return false;
    return true;
}

static void end_transfer(struct tarn_connector *fake, struct fake_transfer *transfer)
{
    const struct fake_request *request = find(fake, transfer->id);
    ASSERT(request);
    if (transfer->kind == TARN_TRANSFER_SAVE) {
        if (memcmp(transfer->page, transfer->cells, sizeof(transfer->cells)) != 0)
            fake_fault(fake, "request %" PRIu64 " block %u: its page changed under a save",
                       transfer->id, transfer->block);
        add_object(fake, block_key(request, transfer->block), transfer->cells);
    } else {
        if (!is_poison(transfer->page))
            fake_fault(fake, "request %" PRIu64 " block %u: its page was written under a load",
                       transfer->id, transfer->block);
        if (!transfer->fails)
            memcpy(transfer->page, transfer->cells, sizeof(transfer->cells));
    }
    transfer->active = false;
    report(fake, transfer, TARN_TRANSFER_RETIRED);
}

static uint32_t active_count(const struct tarn_connector *fake, uint64_t id)
{
    uint32_t count = 0;
    for (size_t i = 0; i < FAKE_TRANSFERS_MAX; i++)
        count += fake->transfers[i].active && fake->transfers[i].id == id;
    return count;
}

uint32_t fake_busy(const struct tarn_connector *fake, const void *page,
                   enum tarn_transfer_kind kind)
{
    uint32_t count = 0;
    for (size_t i = 0; i < FAKE_TRANSFERS_MAX; i++)
        count += fake->transfers[i].active && fake->transfers[i].page == page &&
                 fake->transfers[i].kind == kind;
    return count;
}

bool fake_is_pending(const struct tarn_connector *fake, uint64_t id)
{
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++)
        if (fake->requests[i].known && fake->requests[i].id == id)
            return fake->requests[i].finished;
    return false;
}

/* A load is over for the verdict when all but the late transfers are. */
static void look_at_load(struct tarn_connector *fake, struct fake_request *request)
{
    for (size_t i = 0; i < FAKE_TRANSFERS_MAX; i++) {
        const struct fake_transfer *transfer = &fake->transfers[i];
        if (transfer->active && transfer->id == request->id &&
            transfer->kind == TARN_TRANSFER_LOAD && !transfer->late)
            return;
    }
    request->load = FAKE_READY;
}

static void look_at_requests(struct tarn_connector *fake)
{
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++) {
        struct fake_request *request = &fake->requests[i];
        if (!request->known)
            continue;
        if (request->load == FAKE_LOADING)
            look_at_load(fake, request);
        if (request->finished && active_count(fake, request->id) == 0) {
            request->known = false;
            ASSERT(fake->retired_count < FAKE_REQUESTS_MAX);
            fake->retired_ids[fake->retired_count++] = request->id;
        }
    }
}

void fake_tick(struct tarn_connector *fake)
{
    fake->tick++;
    for (size_t i = 0; i < FAKE_TRANSFERS_MAX; i++)
        if (fake->transfers[i].active && fake->transfers[i].end_tick <= fake->tick)
            end_transfer(fake, &fake->transfers[i]);
    look_at_requests(fake);
    if (fake_chance(&fake->random, fake->knobs.lose_object))
        lose_objects(fake);
}

void fake_restart(struct tarn_connector *fake)
{
    fake->step_number = 0;
    fake->step_open = false;
    fake->started_step = 0;
    memset(fake->requests, 0, sizeof(fake->requests));
    memset(fake->transfers, 0, sizeof(fake->transfers));
    fake->report_count = 0;
    fake->retired_count = 0;
}

void fake_init(struct tarn_connector *fake, uint64_t seed)
{
    fake_restart(fake);
    lose_objects(fake);
    fake->knobs = (struct fake_knobs){ 0 };
    fake->random = seed;
    fake->tick = 0;
    fake->report_first = 0;
    fake->load_count = 0;
    fake->save_count = 0;
    fake->error_count = 0;
    fake->fault[0] = '\0';
    fake->poll_fd = -1; /* its news come with ticks */
}

/* ---- the table ---- */

static enum tarn_status make_offer(struct tarn_connector *fake, struct fake_request *request,
                                   struct tarn_offer *out_offer)
{
    const uint32_t end = (request->text.count - 1) / FAKE_T;
    uint32_t block = request->computed / FAKE_T;
    request->offer_block = block;
    while (block < end && has_object(fake, block_key(request, block)))
        block++;
    request->offer_count = block - request->offer_block;
    if (fake_chance(&fake->random, fake->knobs.unsound_offer)) {
        static const struct tarn_offer unsound[] = { { 1, FAKE_T }, { 0, 0 }, { 0, 1 } };
        const uint64_t which = fake_random(&fake->random) % 4;
        *out_offer = which < 3 ? unsound[which]
                               : (struct tarn_offer){ request->computed, request->text.count };
        return TARN_OK;
    }
    if (request->offer_count == 0)
        return TARN_MISS;
    request->load = FAKE_OFFERED;
    *out_offer = (struct tarn_offer){
        .first_token = (uint64_t)request->offer_block * FAKE_T,
        .token_count = (uint64_t)request->offer_count * FAKE_T,
    };
    return TARN_OK;
}

static enum tarn_status fake_lookup(struct tarn_connector *fake, const struct tarn_request *asked,
                                    uint64_t computed_tokens, struct tarn_offer *out_offer)
{
    const bool fails = call_fails(fake, FAKE_LOOKUP);
    if (fails && fake_chance(&fake->random, 500))
        return TARN_IO;
    if (find(fake, asked->id))
        fake_fault(fake, "request %" PRIu64 " is looked up twice", asked->id);
    if (computed_tokens % FAKE_T || computed_tokens >= asked->token_count)
        fake_fault(fake, "%" PRIu64 " of %zu tokens are there at a lookup", computed_tokens,
                   asked->token_count);
    size_t i = 0;
    while (i < FAKE_REQUESTS_MAX && fake->requests[i].known)
        i++;
    ASSERT(i < FAKE_REQUESTS_MAX && asked->token_count <= FAKE_TOKENS_MAX);
    struct fake_request *request = &fake->requests[i];
    memset(request, 0, sizeof(*request));
    request->id = asked->id;
    request->known = true;
    request->dummy = asked->flags & TARN_REQUEST_DUMMY;
    request->computed = (uint32_t)computed_tokens;
    request->saved_count = request->computed / FAKE_T;
    fake_text_init(&request->text, asked->scope);
    for (size_t j = 0; j < asked->token_count; j++)
        fake_text_add(&request->text, asked->tokens[j]);
    if (fails)
        return TARN_IO;
    return request->dummy ? TARN_MISS : make_offer(fake, request, out_offer);
}

/* Check and take what changed of a request. */
static void step_learn(struct tarn_connector *fake, struct fake_request *request,
                       const struct tarn_step_request *part)
{
    for (size_t i = 0; i < part->token_count; i++)
        fake_text_add(&request->text, part->tokens[i]);
    if ((part->pages != NULL) != (part->block_count != 0))
        fake_fault(fake, "pages and their count disagree");
    for (uint64_t i = 0; part->pages && i < part->block_count; i++)
        /* NOLINTNEXTLINE(performance-no-int-to-ptr): pages are named by address */
        request->pages[part->first_block + i] = (void *)(uintptr_t)part->pages[0][i];
    if (part->computed_tokens < request->computed)
        fake_fault(fake, "request %" PRIu64 ": its position went back", request->id);
    if (part->computed_tokens + part->scheduled_tokens > request->text.count)
        fake_fault(fake, "request %" PRIu64 " computes tokens that it did not tell", request->id);
    if (request->load != FAKE_NO_LOAD && request->load != FAKE_LOADED && part->scheduled_tokens)
        fake_fault(fake, "request %" PRIu64 " computes before the verdict on its load",
                   request->id);
    request->computed = (uint32_t)part->computed_tokens;
}

static void step_plan(struct tarn_connector *fake, struct fake_request *request,
                      const struct tarn_step_request *part)
{
    request->planned_end = 0;
    if (part->load) {
        if (request->load != FAKE_OFFERED)
            fake_fault(fake, "request %" PRIu64 " loads without an offer", request->id);
        for (uint32_t i = 0; i < request->offer_count; i++)
            if (!request->pages[request->offer_block + i])
                fake_fault(fake, "request %" PRIu64 ": a page is missing in its offer",
                           request->id);
        request->load = FAKE_LOADING;
        return;
    }
    if (!request->dummy)
        request->planned_end =
            (uint32_t)((part->computed_tokens + part->scheduled_tokens) / FAKE_T);
}

static enum tarn_status fake_step(struct tarn_connector *fake, const struct tarn_step *step,
                                  struct tarn_bytes *out_metadata)
{
    if (fake->step_open)
        fake_fault(fake, "a step begins before forward_done() of the last");
    if (step->number != fake->step_number + 1 || step->request_count == 0)
        fake_fault(fake, "step %" PRIu64 " follows step %" PRIu64, step->number, fake->step_number);
    for (size_t i = 0; i < step->request_count; i++) {
        const struct fake_request *request = find(fake, step->requests[i].id);
        if (!request || request->finished)
            fake_fault(fake, "a step names request %" PRIu64 ", which is not known",
                       step->requests[i].id);
    }
    if (fake->fault[0] || call_fails(fake, FAKE_STEP))
        return TARN_IO;
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++)
        fake->requests[i].planned_end = 0;
    for (size_t i = 0; i < step->request_count; i++) {
        struct fake_request *request = find(fake, step->requests[i].id);
        step_learn(fake, request, &step->requests[i]);
        step_plan(fake, request, &step->requests[i]);
    }
    fake->step_number = step->number;
    fake->step_open = true;
    fake->metadata = step->number;
    *out_metadata = (struct tarn_bytes){ &fake->metadata, sizeof(fake->metadata) };
    return TARN_OK;
}

static void load_begin(struct tarn_connector *fake, struct fake_request *request, bool fails)
{
    const bool is_short = fake_chance(&fake->random, fake->knobs.short_load);
    uint32_t good = request->offer_count;
    if (is_short || fails)
        good = (uint32_t)(fake_random(&fake->random) % (request->offer_count + 1));
    if (fake->knobs.good_plus_one)
        good = fake->knobs.good_plus_one - 1;
    request->load_begun = true;
    request->good_count = 0;
    bool unbroken = true;
    for (uint32_t i = 0; i < request->offer_count; i++) {
        const uint32_t block = request->offer_block + i;
        if (fails && i >= good) /* the call fails here: the rest is never started */
            break;
        begin_load(fake, request, block, i < good);
        unbroken = unbroken && has_object(fake, block_key(request, block));
        if (unbroken && i < good)
            request->good_count = i + 1;
    }
}

static enum tarn_status fake_load_start(struct tarn_connector *fake, struct tarn_bytes metadata)
{
    const bool fails = call_fails(fake, FAKE_LOAD_START);
    uint64_t number = 0;
    memcpy(&number, metadata.data, sizeof(number));
    if (metadata.size_bytes != sizeof(number) || number <= fake->started_step)
        fake_fault(fake, "loads of step %" PRIu64 " start twice", number);
    fake->started_step = number;
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++) {
        struct fake_request *request = &fake->requests[i];
        if (request->known && !request->finished && request->load == FAKE_LOADING &&
            !request->load_begun)
            load_begin(fake, request, fails);
    }
    return fails ? TARN_IO : TARN_OK;
}

static size_t count_loads(const struct tarn_connector *fake, enum fake_load load)
{
    size_t count = 0;
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++)
        count += fake->requests[i].known && fake->requests[i].load == load;
    return count;
}

static enum tarn_status fake_load_poll(struct tarn_connector *fake, uint32_t timeout_ms,
                                       struct tarn_bytes *out_report)
{
    (void)timeout_ms;
    if (call_fails(fake, FAKE_LOAD_POLL))
        return TARN_IO;
    if (count_loads(fake, FAKE_READY) == 0)
        return TARN_AGAIN;
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++)
        if (fake->requests[i].known && fake->requests[i].load == FAKE_READY)
            fake->requests[i].load = FAKE_REPORTED;
    *out_report = (struct tarn_bytes){ &fake->tick, sizeof(fake->tick) };
    return TARN_OK;
}

static enum tarn_status fake_verdict(struct tarn_connector *fake, const struct tarn_bytes *reports,
                                     size_t report_count, struct tarn_bytes *out_verdict)
{
    if (report_count != 1 || reports[0].data != &fake->tick)
        fake_fault(fake, "a verdict over reports that are none");
    if (call_fails(fake, FAKE_VERDICT))
        return TARN_IO;
    if (count_loads(fake, FAKE_REPORTED) == 0)
        return TARN_AGAIN;
    *out_verdict = (struct tarn_bytes){ &fake->tick, sizeof(fake->tick) };
    return TARN_OK;
}

static enum tarn_status fake_verdict_apply(struct tarn_connector *fake, struct tarn_bytes verdict,
                                           struct tarn_loaded *out_loaded, size_t capacity,
                                           size_t *out_count)
{
    size_t count = 0;
    if (verdict.data != &fake->tick || capacity < FAKE_REQUESTS_MAX)
        fake_fault(fake, "a verdict that is none is applied");
    if (call_fails(fake, FAKE_VERDICT_APPLY))
        return TARN_IO;
    for (size_t i = 0; i < FAKE_REQUESTS_MAX; i++) {
        struct fake_request *request = &fake->requests[i];
        if (!request->known || request->load != FAKE_REPORTED)
            continue;
        const bool fails =
            fake->knobs.load_failure_fails && request->good_count < request->offer_count;
        request->load = FAKE_LOADED;
        request->computed = (request->offer_block + request->good_count) * FAKE_T;
        request->saved_count = request->offer_block + request->good_count;
        fake->load_count += request->good_count;
        const bool unsound = fake_chance(&fake->random, fake->knobs.unsound_verdict);
        out_loaded[count++] = (struct tarn_loaded){
            .id = request->id,
            .first_block = request->offer_block,
            .block_count = unsound ? request->offer_count + 1 : request->good_count,
            .asked_count = request->offer_count,
            .status = fails ? TARN_IO : TARN_OK,
        };
    }
    *out_count = count;
    return TARN_OK;
}

static void start_saves(struct tarn_connector *fake, struct fake_request *request)
{
    while (request->saved_count < request->planned_end) {
        if (fake_chance(&fake->random, fake->knobs.drop_save))
            return; /* and what follows waits for it */
        if (!has_object(fake, block_key(request, request->saved_count)))
            begin_save(fake, request, request->saved_count);
        request->saved_count++;
    }
}

static enum tarn_status fake_forward_done(struct tarn_connector *fake, uint64_t step_number,
                                          enum tarn_status status, void *event)
{
    if (!fake->step_open || step_number != fake->step_number || event)
        fake_fault(fake, "forward_done() of step %" PRIu64 ", which is not under way", step_number);
    fake->step_open = false;
    const bool fails = call_fails(fake, FAKE_FORWARD_DONE);
    const bool before = fake_chance(&fake->random, 500);
    for (size_t i = 0; i < FAKE_REQUESTS_MAX && status == TARN_OK && !(fails && before); i++)
        if (fake->requests[i].known && !fake->requests[i].finished)
            start_saves(fake, &fake->requests[i]);
    return fails ? TARN_IO : TARN_OK;
}

static enum tarn_status fake_transfers(struct tarn_connector *fake, struct tarn_transfer *out,
                                       size_t capacity, size_t *out_count)
{
    if (call_fails(fake, FAKE_TRANSFERS))
        return TARN_IO;
    size_t count = 0;
    for (; count < capacity && fake->report_count; count++, fake->report_count--) {
        out[count] = fake->reports[fake->report_first];
        fake->report_first = (fake->report_first + 1) % FAKE_REPORTS_MAX;
    }
    *out_count = count;
    return TARN_OK;
}

static enum tarn_status fake_finished(struct tarn_connector *fake, uint64_t id,
                                      uint32_t *out_pending)
{
    struct fake_request *request = find(fake, id);
    if (call_fails(fake, FAKE_FINISHED))
        return TARN_NO_MEMORY;
    if (!request)
        return TARN_INVALID;
    if (request->finished)
        fake_fault(fake, "request %" PRIu64 " is finished twice", id);
    *out_pending = active_count(fake, id) != 0;
    request->finished = true;
    request->load = FAKE_NO_LOAD;
    request->planned_end = 0;
    if (!*out_pending)
        request->known = false;
    return TARN_OK;
}

static enum tarn_status fake_retired(struct tarn_connector *fake, uint64_t *out_ids,
                                     size_t capacity, size_t *out_count)
{
    if (call_fails(fake, FAKE_RETIRED))
        return TARN_IO;
    size_t count = 0;
    while (count < capacity && fake->retired_count)
        out_ids[count++] = fake->retired_ids[--fake->retired_count];
    *out_count = count;
    return TARN_OK;
}

static enum tarn_status fake_quiesce(struct tarn_connector *fake, const uint64_t *ids, size_t count,
                                     uint32_t timeout_ms)
{
    uint32_t left = 1;
    if (call_fails(fake, FAKE_QUIESCE))
        return TARN_IO;
    for (uint32_t i = 0; i <= timeout_ms && left; i++) {
        fake_tick(fake);
        left = 0;
        for (size_t j = 0; j < count; j++)
            left += active_count(fake, ids[j]);
    }
    return left ? TARN_AGAIN : TARN_OK;
}

static int fake_poll_fd(struct tarn_connector *fake)
{
    return fake->poll_fd;
}

const struct tarn_connector_ops *fake_connector_ops(void)
{
    static const struct tarn_connector_ops ops = {
        .size = sizeof(ops),
        .abi_version = TARN_ABI_VERSION,
        .name = "fake",
        .lookup = fake_lookup,
        .step = fake_step,
        .load_start = fake_load_start,
        .load_poll = fake_load_poll,
        .verdict = fake_verdict,
        .verdict_apply = fake_verdict_apply,
        .forward_done = fake_forward_done,
        .transfers = fake_transfers,
        .finished = fake_finished,
        .retired = fake_retired,
        .quiesce = fake_quiesce,
        .poll_fd = fake_poll_fd,
    };
    return &ops;
}
