/* SPDX-License-Identifier: Apache-2.0 */
/* A request's life: submitted, settled, ended, released. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "kv/broken.h"
#include "obs/metric.h"
#include "sched/state.h"

static bool request_is_dummy(const struct request *request)
{
    return request->flags & TARN_REQUEST_DUMMY;
}

struct request *request_find(const struct sched *sched, uint64_t id)
{
    struct request *request = map_get(&sched->by_id, &id);
    if (!request || request->state == REQUEST_DRAINING || request->ending)
        return NULL;
    return request;
}

void request_queue(struct list *list, struct request *request)
{
    struct list *where = list;
    while (where->prev != list &&
           LIST_ITEM(where->prev, struct request, link)->arrival_ns > request->arrival_ns)
        where = where->prev;
    list_insert_before(where, &request->link);
}

PRINTF_LIKE(2, 3)
static enum tarn_status refuse(struct sched *sched, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyzer misses va_start */
    vsnprintf(sched->reason, sizeof(sched->reason), format, args);
    va_end(args);
    return TARN_INVALID;
}

static enum tarn_status request_check(struct sched *sched, const struct sched_request *request)
{
    const uint64_t needed = (uint64_t)request->token_count + request->max_tokens;
    if (request->token_count == 0)
        return refuse(sched, "the prompt is empty");
    if (request->max_tokens == 0)
        return refuse(sched, "max_tokens is 0; ask for at least 1");
    if (needed > sched->options.request_tokens_max)
        return refuse(sched,
                      "%" PRIu32 " token%s of prompt and %" PRIu32 " of answer are %" PRIu64
                      ", more than the context of %" PRIu32,
                      request->token_count, text_plural(request->token_count), request->max_tokens,
                      needed, sched->options.request_tokens_max);
    if (map_get(&sched->by_id, &request->id))
        return refuse(sched, "request %" PRIu64 " is there already", request->id);
    return TARN_OK;
}

static enum tarn_status request_init(struct sched *sched, struct request *slot,
                                     const struct sched_request *request)
{
    struct kv_sequence *sequence = NULL;
    TRY(kv_sequence_open(sched->kv, request->scope, KV_PRIORITY_DEFAULT, &sequence));
    if (request->flags & TARN_REQUEST_MEDIA_UNNAMED)
        kv_sequence_unshare(sequence);
    const enum tarn_status status =
        kv_sequence_hash(sched->kv, sequence, request->tokens, request->token_count);
    if (status != TARN_OK) {
        kv_sequence_close(sched->kv, sequence);
        return status;
    }
    int32_t *tokens = slot->tokens;
    memcpy(tokens, request->tokens, request->token_count * sizeof(*tokens));
    list_remove(&slot->link);
    *slot = (struct request){
        .id = request->id,
        .tokens = tokens,
        .prompt_count = request->token_count,
        .token_count = request->token_count,
        .max_tokens = request->max_tokens,
        .flags = request->flags,
        .scope = request->scope,
        .sequence = sequence,
        .state = REQUEST_WAITING,
        .arrival_ns = request->arrival_ns,
    };
    return TARN_OK;
}

static enum tarn_status submit(struct sched *sched, const struct sched_request *request)
{
    TRY(request_check(sched, request));
    if (sched->waiting_count == sched->options.waiting_max || list_is_empty(&sched->free)) {
        const uint32_t waiting = sched->waiting_count;
        (void)refuse(sched, "%" PRIu32 " request%s already, the limit is %" PRIu32, waiting,
                     waiting == 1 ? " waits" : "s wait", sched->options.waiting_max);
        return TARN_NO_SPACE;
    }
    struct request *slot = LIST_ITEM(sched->free.next, struct request, link);
    const enum tarn_status status = request_init(sched, slot, request);
    if (status != TARN_OK) {
        (void)refuse(sched, "%s", tarn_strerror(status));
        return status;
    }
    /* Room for every slot was reserved at the start: this cannot fail. */
    const enum tarn_status set = map_set(&sched->by_id, &slot->id, slot);
    ASSERT(set == TARN_OK);
    request_queue(&sched->waiting, slot);
    sched->waiting_count++;
    return TARN_OK;
}

enum tarn_status sched_submit(struct sched *sched, const struct sched_request *request)
{
    sched->reason[0] = '\0';
    const enum tarn_status status = submit(sched, request);
    if (status != TARN_OK && !(request->flags & TARN_REQUEST_DUMMY))
        metric_add(METRIC_REQUESTS_REFUSED, 1);
    sched_update_gauges(sched);
    return status;
}

const char *sched_reason(const struct sched *sched)
{
    return sched->reason;
}

void request_settle(struct sched *sched, struct request *request, uint32_t pool_tokens)
{
    const uint32_t device = request->sequence->history - pool_tokens;
    (void)sched;
    ASSERT(!request->settled);
    request->settled = true;
    request->sources = (struct sched_sources){
        .device = device,
        .pool = pool_tokens,
        .computed = request->prompt_count - device - (BROKEN(COUNT_TWICE) ? 0 : pool_tokens),
        .requested = request->prompt_count,
    };
    if (request_is_dummy(request))
        return;
    metric_add(METRIC_PROMPT_TOKENS_DEVICE, device);
    metric_add(METRIC_PROMPT_TOKENS_POOL, pool_tokens);
    metric_add(METRIC_PROMPT_TOKENS_COMPUTED, request->sources.computed);
    metric_add(METRIC_PROMPT_TOKENS_REQUESTED, request->prompt_count);
}

void request_commit(struct sched *sched, struct request *request)
{
    if (sched->blind)
        return;
    if (kv_sequence_commit(sched->kv, request->sequence, request->tokens, request->token_count) !=
        TARN_OK)
        LOG_LIMITED(LOG_WARN, "out of memory: new blocks are not shared for now");
}

static void request_count(const struct request *request, enum sched_outcome outcome)
{
    static const enum metric metrics[] = {
        [SCHED_OK] = METRIC_REQUESTS_OK,
        [SCHED_CANCELLED] = METRIC_REQUESTS_CANCELLED,
        [SCHED_FAILED] = METRIC_REQUESTS_FAILED,
    };
    metric_add(request_is_dummy(request) ? METRIC_REQUESTS_WARMUP : metrics[outcome], 1);
}

void request_release(struct sched *sched, struct request *request)
{
    /* A block whose page was under a save could not be entered before. */
    if (request->sequence->page_count)
        request_commit(sched, request);
    kv_sequence_close(sched->kv, request->sequence);
    if (request->state == REQUEST_DRAINING)
        sched->draining_count--;
    (void)map_remove(&sched->by_id, &request->id);
    list_remove(&request->link);
    request->state = REQUEST_FREE;
    list_push_front(&sched->free, &request->link);
}

void request_end(struct sched *sched, struct request *request, enum sched_outcome outcome)
{
    if (request->scheduled_count) {
        request->ending = true;
        request->ending_outcome = outcome;
        return;
    }
    request_count(request, outcome);
    if (request->state == REQUEST_WAITING) {
        sched->waiting_count--;
        request_release(sched, request);
        return;
    }
    sched->running_count--;
    sched->draining_count++;
    list_remove(&request->link);
    list_push_back(&sched->draining, &request->link);
    request->state = REQUEST_DRAINING;
    if (request->bond == BOND_KNOWN)
        pool_finish(sched, request);
    if (request->bond == BOND_NONE || BROKEN(CLOSE_BEFORE_RETIRED))
        request_release(sched, request);
}

void request_fail(struct sched *sched, struct request *request, enum tarn_status status)
{
    ASSERT(sched->ended_count < sched->ended_max);
    const uint32_t place = (sched->ended_first + sched->ended_count) % sched->ended_max;
    sched->ended[place] = (struct sched_ended){ .id = request->id, .status = status };
    sched->ended_count++;
    request_end(sched, request, SCHED_FAILED);
}

bool sched_take_ended(struct sched *sched, struct sched_ended *out_ended)
{
    if (sched->ended_count == 0)
        return false;
    *out_ended = sched->ended[sched->ended_first];
    sched->ended_first = (sched->ended_first + 1) % sched->ended_max;
    sched->ended_count--;
    return true;
}

enum tarn_status sched_append(struct sched *sched, uint64_t id, int32_t token)
{
    struct request *request = request_find(sched, id);
    if (!request)
        return TARN_MISS;
    if (!request->awaits_token ||
        request->token_count - request->prompt_count == request->max_tokens)
        return TARN_INVALID;
    request->awaits_token = false;
    request->tokens[request->token_count] = token;
    request->token_count++;
    if (!request_is_dummy(request))
        metric_add(METRIC_GENERATED_TOKENS, 1);
    return TARN_OK;
}

void sched_end(struct sched *sched, uint64_t id, enum sched_outcome outcome)
{
    struct request *request = request_find(sched, id);
    if (request)
        request_end(sched, request, outcome);
    sched_update_gauges(sched);
}

void sched_cancel(struct sched *sched, uint64_t id)
{
    sched_end(sched, id, SCHED_CANCELLED);
}

enum tarn_status sched_sources(const struct sched *sched, uint64_t id,
                               struct sched_sources *out_sources)
{
    const struct request *request = request_find(sched, id);
    if (!request)
        return TARN_MISS;
    if (!request->settled)
        return TARN_AGAIN;
    *out_sources = request->sources;
    return TARN_OK;
}

void sched_update_gauges(const struct sched *sched)
{
    struct kv_counts counts;
    kv_counts(sched->kv, &counts);
    metric_set(METRIC_REQUESTS_RUNNING, sched->running_count);
    metric_set(METRIC_REQUESTS_WAITING, sched->waiting_count);
    metric_set(METRIC_PAGES_TOTAL, sched->options.page_count);
    metric_set(METRIC_PAGES_FREE, counts.pages[KV_FREE]);
    metric_set(METRIC_PAGES_LOCKED, counts.pages[KV_LOCKED]);
    metric_set(METRIC_PAGES_DROPPABLE, counts.pages[KV_DROPPABLE]);
}
