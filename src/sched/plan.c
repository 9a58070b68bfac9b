/* SPDX-License-Identifier: Apache-2.0 */
/* Who is admitted, and which tokens run in the next pass. */
#include "kv/broken.h"
#include "obs/metric.h"
#include "sched/state.h"

/* Pages of blocks that a load was to fill and did not: make them fit to be computed into. */
void plan_renew(struct sched *sched)
{
    if (sched->blind)
        return;
    list_for_each (link, &sched->running) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (request->state != REQUEST_SHORT)
            continue;
        const uint32_t good = request->sequence->history / sched->options.page_tokens;
        const uint32_t end = request->offer_block + request->offer_count;
        /* Without room it waits: those that run will finish, and those that wait are behind it. */
        if (kv_sequence_renew(sched->kv, request->sequence, good, end - good) == TARN_OK)
            request->state = REQUEST_RUNNING;
    }
}

static void admit(struct sched *sched, struct request *request)
{
    const uint64_t waited_ns =
        sched->now_ns > request->arrival_ns ? sched->now_ns - request->arrival_ns : 0;
    list_remove(&request->link);
    request_queue(&sched->running, request);
    sched->waiting_count--;
    sched->running_count++;
    request->state = REQUEST_RUNNING;
    request->admitted_ns = sched->now_ns;
    histogram_observe(HISTOGRAM_QUEUE, waited_ns);
    pool_lookup(sched, request);
    if (request->state == REQUEST_RUNNING)
        request_settle(sched, request, 0);
}

static bool is_short_of_room(const struct sched *sched)
{
    list_for_each (link, &sched->running)
        if (LIST_ITEM(link, struct request, link)->state == REQUEST_SHORT)
            return true;
    return false;
}

/* First come, first served: whoever finds no room is waited for by all behind it. */
void plan_admit(struct sched *sched)
{
    if (is_short_of_room(sched))
        return;
    while (sched->running_count < sched->options.batch_size_max && sched->waiting_count) {
        struct request *request = LIST_ITEM(sched->waiting.next, struct request, link);
        if (kv_sequence_start(sched->kv, request->sequence, request->tokens, request->prompt_count,
                              request->prompt_count + request->max_tokens) != TARN_OK)
            return;
        admit(sched, request);
    }
}

static void plan_item(struct sched *sched, struct request *request, uint32_t count)
{
    const uint32_t position = request->sequence->history;
    request->scheduled_count = count;
    sched->batch[sched->item_count] = request;
    sched->items[sched->item_count] = (struct sched_item){
        .id = request->id,
        .tokens = request->tokens + position,
        .token_count = count,
        .position = position,
        .pages = request->sequence->pages,
        .page_count = request->sequence->page_count,
        .want_logits = position + count == request->token_count,
    };
    sched->item_count++;
    sched->batch_tokens += count;
}

/* A chunk ends on a block boundary unless it ends the prompt, or where the cut forces it to. */
static uint32_t chunk_of(const struct sched *sched, const struct request *request, uint32_t budget)
{
    const uint32_t page_tokens = sched->options.page_tokens;
    const uint32_t cut = sched->options.prefill_cut;
    const uint32_t position = request->sequence->history;
    uint32_t end = request->prompt_count;

    if (sched->options.chunk_tokens && end - position > sched->options.chunk_tokens)
        end = position + sched->options.chunk_tokens;
    if (cut > position && cut < end)
        end = cut;
    if (end - position > budget)
        end = position + budget;
    if (end != request->prompt_count && end != cut)
        end -= end % page_tokens;
    return end > position ? end - position : 0;
}

static bool is_computing(const struct request *request)
{
    return request->state == REQUEST_RUNNING ||
           (request->state == REQUEST_LOADING && BROKEN(COMPUTE_WHILE_LOADING));
}

static void plan_generation(struct sched *sched)
{
    list_for_each (link, &sched->running) {
        struct request *request = LIST_ITEM(link, struct request, link);
        const uint32_t history = request->sequence->history;
        const uint32_t end = request->prompt_count + request->max_tokens;
        if (is_computing(request) && history >= request->prompt_count &&
            history < request->token_count && request->token_count < end)
            plan_item(sched, request, 1);
    }
}

static void plan_context(struct sched *sched)
{
    list_for_each (link, &sched->running) {
        struct request *request = LIST_ITEM(link, struct request, link);
        if (!is_computing(request) || request->sequence->history >= request->prompt_count)
            continue;
        uint32_t budget = sched->options.batch_tokens_max - sched->batch_tokens;
        if (BROKEN(OVER_BUDGET))
            budget += sched->options.page_tokens;
        const uint32_t count = chunk_of(sched, request, budget);
        if (count)
            plan_item(sched, request, count);
    }
}

/* Generation first. It takes fewer than batch_size_max tokens while a context request runs, since
 * no more requests than that run at all, so that the oldest context request always finds T. */
void plan_batch(struct sched *sched)
{
    sched->item_count = 0;
    sched->batch_tokens = 0;
    plan_generation(sched);
    plan_context(sched);
}
