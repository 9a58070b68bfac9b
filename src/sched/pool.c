/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that is said to, and heard from, the connector.
 *
 * A call that fails costs its requests the pool, not their answer: they are finished towards the
 * connector, keep computing, and take no further part in steps. Nothing that the connector says is
 * trusted beyond what was asked.
 */
#include <inttypes.h>
#include <poll.h>

#include "base/log.h"
#include "kv/broken.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "sched/state.h"

enum { SETTLE_POLL_MS = 50 };

enum tarn_status pool_check_ops(const struct tarn_connector_ops *ops)
{
    const struct {
        const char *name;
        bool offered;
    } needed[] = {
        { "lookup", ops->lookup },
        { "step", ops->step },
        { "load_start", ops->load_start },
        { "load_poll", ops->load_poll },
        { "verdict", ops->verdict },
        { "verdict_apply", ops->verdict_apply },
        { "forward_done", ops->forward_done },
        { "transfers", ops->transfers },
        { "finished", ops->finished },
        { "retired", ops->retired },
    };
    for (size_t i = 0; i < LENGTH_OF(needed); i++) {
        if (needed[i].offered)
            continue;
        log_error("connector %s does not offer %s(), which this engine needs", ops->name,
                  needed[i].name);
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

static void pool_failed(const char *call, enum tarn_status status)
{
    metric_add(METRIC_CONNECTOR_FAILED, 1);
    LOG_LIMITED(LOG_WARN, "the connector's %s() failed: %s; its requests go on without the pool",
                call, tarn_strerror(status));
}

/* Take the reports of transfers, all there are. */
static void pool_transfers(struct sched *sched)
{
    const struct tarn_connector_ops *ops = sched->options.ops;
    size_t count = 0;
    do {
        const enum tarn_status status = ops->transfers(sched->options.connector, sched->transfers,
                                                       SCHED_TRANSFERS_BATCH, &count);
        sched->blind = status != TARN_OK;
        if (status != TARN_OK) {
            pool_failed("transfers", status);
            return;
        }
        for (size_t i = 0; i < count; i++)
            if (kv_transfer(sched->kv, &sched->transfers[i]) != TARN_OK)
                pool_failed("transfers", TARN_INVALID);
    } while (count == SCHED_TRANSFERS_BATCH);
}

void pool_finish(struct sched *sched, struct request *request)
{
    uint32_t pending = 0;
    const enum tarn_status status =
        sched->options.ops->finished(sched->options.connector, request->id, &pending);
    if (status == TARN_OK)
        request->bond = pending ? BOND_PENDING : BOND_NONE;
    else if (status == TARN_INVALID) /* it does not know the request */
        request->bond = BOND_NONE;
    else
        request->bond = BOND_UNFINISHED;
    if (status != TARN_OK)
        pool_failed("finished", status);
}

/* The request does without the pool from here on. */
static void pool_let_go(struct sched *sched, struct request *request)
{
    if (request->bond == BOND_KNOWN)
        pool_finish(sched, request);
    if (request->state != REQUEST_LOADING)
        return;
    if (!request->settled)
        request_settle(sched, request, 0);
    /* Until the connector has let go of the pages, nothing can be computed into them. */
    request->state = request->bond == BOND_NONE ? REQUEST_SHORT : REQUEST_ABANDONED;
}

/* The connector has let go of a request. */
static void pool_retire(struct sched *sched, struct request *request)
{
    request->bond = BOND_NONE;
    if (request->state == REQUEST_DRAINING)
        request_release(sched, request);
    else if (request->state == REQUEST_ABANDONED)
        request->state = REQUEST_SHORT;
}

static void pool_retired(struct sched *sched)
{
    size_t count = 0;
    do {
        const enum tarn_status status = sched->options.ops->retired(
            sched->options.connector, sched->ids, sched->answers_max, &count);
        if (status != TARN_OK) {
            pool_failed("retired", status);
            return;
        }
        for (size_t i = 0; i < count; i++) {
            struct request *request = map_get(&sched->by_id, &sched->ids[i]);
            if (request && request->bond == BOND_PENDING)
                pool_retire(sched, request);
        }
    } while (count == sched->answers_max);
}

static void pool_finish_again(struct sched *sched, struct list *list)
{
    list_for_each (link, list) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request->bond != BOND_UNFINISHED)
            continue;
        pool_finish(sched, request);
        if (request->bond == BOND_NONE)
            pool_retire(sched, request);
    }
}

static bool offer_is_sound(const struct sched *sched, const struct request *request,
                           const struct tarn_offer *offer)
{
    const uint64_t room = request->prompt_count - 1 - request->sequence->history;
    return offer->first_token == request->sequence->history && offer->token_count > 0 &&
           offer->token_count % sched->options.page_tokens == 0 && offer->token_count <= room;
}

void pool_lookup(struct sched *sched, struct request *request)
{
    if (!sched->options.ops)
        return;
    struct tarn_offer offer = { 0 };
    const struct tarn_request asked = {
        .size = sizeof(asked),
        .id = request->id,
        .tokens = request->tokens,
        .token_count = request->prompt_count,
        .scope = request->scope,
        .flags = request->flags,
    };
    enum tarn_status status = sched->options.ops->lookup(sched->options.connector, &asked,
                                                         request->sequence->history, &offer);
    request->bond = BOND_KNOWN;
    request->told_tokens = request->prompt_count;
    if (status == TARN_OK && !offer_is_sound(sched, request, &offer))
        status = TARN_INVALID;
    if (status == TARN_OK) {
        request->offer_block = (uint32_t)offer.first_token / sched->options.page_tokens;
        request->offer_count = (uint32_t)offer.token_count / sched->options.page_tokens;
        request->state = REQUEST_LOADING;
    } else if (status != TARN_MISS) {
        pool_failed("lookup", status);
        pool_let_go(sched, request);
    }
}

static void pool_let_loads_go(struct sched *sched)
{
    list_for_each (link, &sched->running) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request->state == REQUEST_LOADING && request->load_started)
            pool_let_go(sched, request);
    }
}

/* The verdict on one request's load: its position comes from here. */
static void pool_apply(struct sched *sched, const struct tarn_loaded *loaded)
{
    struct request *request = request_find(sched, loaded->id);
    if (!request || request->state != REQUEST_LOADING || !request->load_started)
        return;
    if (loaded->status != TARN_OK) {
        request_fail(sched, request, loaded->status);
        return;
    }
    if (loaded->first_block != request->offer_block || loaded->block_count > request->offer_count) {
        pool_failed("verdict_apply", TARN_INVALID);
        pool_let_go(sched, request);
        return;
    }
    const uint32_t page_tokens = sched->options.page_tokens;
    const uint32_t good =
        BROKEN(TRUST_OFFER) ? request->offer_count : (uint32_t)loaded->block_count;
    kv_sequence_advance(sched->kv, request->sequence, (request->offer_block + good) * page_tokens);
    request_settle(sched, request, good * page_tokens);
    histogram_observe(HISTOGRAM_LOAD, sched->now_ns - request->admitted_ns);
    request_commit(sched, request);
    request->state = good == request->offer_count ? REQUEST_RUNNING : REQUEST_SHORT;
}

/* Outcomes: AGAIN, no verdict. *out_count items in sched->loaded. */
static enum tarn_status pool_verdict(struct sched *sched, size_t *out_count)
{
    const struct tarn_connector_ops *ops = sched->options.ops;
    struct tarn_connector *connector = sched->options.connector;
    struct tarn_bytes report = { 0 };
    struct tarn_bytes verdict = { 0 };
    const char *call = "load_poll";
    enum tarn_status status = ops->load_poll(connector, 0, &report);
    /* Before a verdict is read, so that what it releases is known to be under a transfer or not. */
    pool_transfers(sched);
    if (status == TARN_OK) {
        call = "verdict";
        status = ops->verdict(connector, &report, 1, &verdict);
    }
    if (status == TARN_OK) {
        call = "verdict_apply";
        status =
            ops->verdict_apply(connector, verdict, sched->loaded, sched->answers_max, out_count);
    }
    if (status != TARN_OK && status != TARN_AGAIN) {
        pool_failed(call, status);
        pool_let_loads_go(sched);
    }
    return status;
}

void pool_news(struct sched *sched)
{
    if (!sched->options.ops)
        return;
    size_t count = 0;
    if (pool_verdict(sched, &count) == TARN_OK)
        for (size_t i = 0; i < count && i < sched->answers_max; i++)
            pool_apply(sched, &sched->loaded[i]);
    pool_finish_again(sched, &sched->running);
    pool_finish_again(sched, &sched->draining);
    pool_retired(sched);
}

static void step_add(struct sched *sched, struct request *request, bool load)
{
    const struct kv_sequence *sequence = request->sequence;
    const bool told_once = BROKEN(TOLD_ONCE) && sequence->changed_block != 0;
    const uint32_t first = told_once ? sequence->page_count : sequence->changed_block;
    tarn_page *pages = sched->step_pages + (size_t)sched->step_count * sched->blocks_max;
    for (uint32_t i = first; i < sequence->page_count; i++)
        pages[i - first] = (uint64_t)(uintptr_t)sequence->pages[i];
    sched->step_groups[sched->step_count] = pages;
    sched->step_members[sched->step_count] = request;
    sched->step_requests[sched->step_count] = (struct tarn_step_request){
        .id = request->id,
        .tokens = request->tokens + request->told_tokens,
        .token_count = request->token_count - request->told_tokens,
        .pages = first < sequence->page_count ? &sched->step_groups[sched->step_count] : NULL,
        .first_block = first,
        .block_count = sequence->page_count - first,
        .computed_tokens = sequence->history,
        .scheduled_tokens = request->scheduled_count,
        .load = load,
    };
    sched->step_count++;
}

static void step_collect(struct sched *sched)
{
    sched->step_count = 0;
    for (uint32_t i = 0; i < sched->item_count; i++)
        if (sched->batch[i]->bond == BOND_KNOWN)
            step_add(sched, sched->batch[i], false);
    list_for_each (link, &sched->running) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request->state == REQUEST_LOADING && !request->load_started)
            step_add(sched, request, true);
    }
}

static void step_start_loads(struct sched *sched, struct tarn_bytes metadata)
{
    const enum tarn_status status =
        sched->options.ops->load_start(sched->options.connector, metadata);
    for (uint32_t i = 0; i < sched->step_count; i++) {
        if (!sched->step_requests[i].load)
            continue;
        struct request *request = sched->step_members[i];
        request->load_started = true;
        if (BROKEN(COMMIT_BEFORE_VERDICT)) {
            const uint32_t end = request->offer_block + request->offer_count;
            kv_sequence_advance(sched->kv, request->sequence, end * sched->options.page_tokens);
            request_commit(sched, request);
        }
    }
    if (status == TARN_OK)
        return;
    pool_failed("load_start", status);
    for (uint32_t i = 0; i < sched->step_count; i++)
        if (sched->step_requests[i].load)
            pool_let_go(sched, sched->step_members[i]);
}

/* Less than an eighth of the pages could be had for a request. */
static bool pages_are_short(const struct sched *sched)
{
    struct kv_counts counts;
    uint64_t all = 0;
    kv_counts(sched->kv, &counts);
    for (int state = 0; state < KV_PAGE_STATE_COUNT; state++)
        all += counts.pages[state];
    return UINT64_C(8) * ((uint64_t)counts.pages[KV_FREE] + counts.evictable) < all;
}

void pool_step(struct sched *sched)
{
    if (!sched->options.ops)
        return;
    step_collect(sched);
    if (sched->step_count == 0)
        return;
    struct tarn_bytes metadata = { 0 };
    const struct tarn_step step = {
        .size = sizeof(step),
        .number = sched->step_number + 1,
        .requests = sched->step_requests,
        .request_count = sched->step_count,
        .pages_short = pages_are_short(sched),
    };
    const enum tarn_status status =
        sched->options.ops->step(sched->options.connector, &step, &metadata);
    if (status != TARN_OK) {
        pool_failed("step", status);
        for (uint32_t i = 0; i < sched->step_count; i++)
            pool_let_go(sched, sched->step_members[i]);
        return;
    }
    sched->step_number++;
    sched->step_open = true;
    for (uint32_t i = 0; i < sched->step_count; i++) {
        sched->step_members[i]->told_tokens = sched->step_members[i]->token_count;
        kv_sequence_told(sched->step_members[i]->sequence);
    }
    step_start_loads(sched, metadata);
    pool_transfers(sched);
}

void pool_forward_done(struct sched *sched, enum tarn_status status)
{
    if (!sched->step_open)
        return;
    sched->step_open = false;
    const enum tarn_status done = sched->options.ops->forward_done(
        sched->options.connector, sched->step_number, status, NULL);
    if (done != TARN_OK) {
        pool_failed("forward_done", done);
        for (uint32_t i = 0; i < sched->step_count; i++)
            if (sched->step_members[i]->bond == BOND_KNOWN && !sched->step_requests[i].load)
                pool_let_go(sched, sched->step_members[i]);
    }
    pool_transfers(sched);
}

void pool_settle(struct sched *sched, uint32_t timeout_ms)
{
    const uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    struct pollfd news = { .fd = sched_poll_fd(sched), .events = POLLIN };
    while (news.fd >= 0 && !sched_is_idle(sched)) {
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= deadline_ns)
            return;
        const uint64_t left_ms = (deadline_ns - now_ns) / NS_PER_MS + 1;
        (void)poll(&news, 1, (int)(left_ms < SETTLE_POLL_MS ? left_ms : SETTLE_POLL_MS));
        if (news.revents & (POLLERR | POLLNVAL))
            return;
        pool_news(sched);
    }
}

void pool_quiesce(struct sched *sched, uint32_t timeout_ms)
{
    const struct tarn_connector_ops *ops = sched->options.ops;
    size_t count = 0;
    if (!ops || !ops->quiesce)
        return;
    list_for_each (link, &sched->draining) {
        const struct request *request = LIST_ITEM(link, struct request, link);
        if (request->bond == BOND_PENDING && count < sched->answers_max)
            sched->ids[count++] = request->id;
    }
    if (count == 0)
        return;
    const enum tarn_status status =
        ops->quiesce(sched->options.connector, sched->ids, count, timeout_ms);
    if (status != TARN_OK && status != TARN_AGAIN)
        pool_failed("quiesce", status);
}
