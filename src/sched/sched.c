/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/sched.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kv/broken.h"
#include "obs/metric.h"
#include "sched/state.h"

enum { ANSWERS_MIN = 1024 }; /* request_count_max of an engine that did not say */

#define REFUSE_IF(condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) {                                                                           \
            log_error(__VA_ARGS__);                                                                \
            return TARN_UNSUPPORTED;                                                               \
        }                                                                                          \
    } while (0)

static uint64_t blocks_of(const struct sched_options *options)
{
    return ((uint64_t)options->request_tokens_max + options->page_tokens - 1) /
           options->page_tokens;
}

static enum tarn_status options_check(const struct sched_options *o)
{
    REFUSE_IF(!o->page_tokens || !o->request_tokens_max || !o->batch_size_max || !o->waiting_max,
              "page tokens, context, batch size and queue length must not be 0");
    REFUSE_IF(o->page_bytes == 0 || o->page_bytes % 64 || (uintptr_t)o->page_memory % 64 ||
                  !o->page_memory,
              "KV pages must be aligned to 64 bytes, and a multiple of them long; they are %" PRIu64
              " bytes at %p",
              o->page_bytes, o->page_memory);
    REFUSE_IF(o->page_stride_bytes % 64 ||
                  (o->page_stride_bytes && o->page_stride_bytes < o->page_bytes),
              "a page stride of %" PRIu64 " bytes must be 0 or a multiple of 64, and not below the "
              "page's %" PRIu64,
              o->page_stride_bytes, o->page_bytes);
    REFUSE_IF((uint64_t)o->batch_size_max + o->page_tokens > o->batch_tokens_max,
              "--max-batch-tokens %" PRIu32 " is too small: a token for each of --max-batch-size "
              "%" PRIu32 " requests and one block of %" PRIu32 " are %" PRIu64,
              o->batch_tokens_max, o->batch_size_max, o->page_tokens,
              (uint64_t)o->batch_size_max + o->page_tokens);
    REFUSE_IF(blocks_of(o) > o->page_count,
              "the KV memory is too small: one request of the context's %" PRIu32
              " tokens needs %" PRIu64 " pages of %" PRIu32 " tokens, and there are %" PRIu32
              "; give more with --kv-size or ask for less with --ctx",
              o->request_tokens_max, blocks_of(o), o->page_tokens, o->page_count);
    REFUSE_IF(o->chunk_tokens % o->page_tokens,
              "a prefill chunk of %" PRIu32 " tokens is not a multiple of the page's %" PRIu32,
              o->chunk_tokens, o->page_tokens);
    return o->ops ? pool_check_ops(o->ops) : TARN_OK;
}

uint32_t sched_request_count_max(const struct sched_options *options)
{
    return options->waiting_max + 2 * options->batch_size_max;
}

static bool sched_alloc(struct sched *sched)
{
    const struct sched_options *o = &sched->options;
    const size_t batch = o->batch_size_max;
    sched->requests = mem_alloc(sched->request_max, sizeof(*sched->requests));
    sched->tokens =
        mem_alloc(sched->request_max, (size_t)o->request_tokens_max * sizeof(*sched->tokens));
    sched->items = mem_alloc(batch, sizeof(*sched->items));
    sched->batch = mem_alloc(batch, sizeof(struct request *));
    sched->ended = mem_alloc(sched->ended_max, sizeof(*sched->ended));
    if (!sched->requests || !sched->tokens || !sched->items || !sched->batch || !sched->ended)
        return false;
    if (!o->ops)
        return true;
    sched->step_requests = mem_alloc(batch, sizeof(*sched->step_requests));
    sched->step_members = mem_alloc(batch, sizeof(struct request *));
    sched->step_groups = mem_alloc(batch, sizeof(const tarn_page *));
    sched->step_pages = mem_alloc(batch, sched->blocks_max * sizeof(*sched->step_pages));
    sched->transfers = mem_alloc(SCHED_TRANSFERS_BATCH, sizeof(*sched->transfers));
    sched->loaded = mem_alloc(sched->answers_max, sizeof(*sched->loaded));
    sched->ids = mem_alloc(sched->answers_max, sizeof(*sched->ids));
    return sched->step_requests && sched->step_members && sched->step_groups && sched->step_pages &&
           sched->transfers && sched->loaded && sched->ids;
}

static enum tarn_status sched_init(struct sched *sched)
{
    const struct sched_options *o = &sched->options;
    const struct kv_options kv_options = {
        .memory = o->page_memory,
        .page_bytes = o->page_bytes,
        .page_stride_bytes = o->page_stride_bytes,
        .page_count = o->page_count,
        .page_tokens = o->page_tokens,
        .sequence_max = sched->request_max,
        .sequence_tokens_max = o->request_tokens_max,
    };
    TRY(kv_create(&kv_options, &sched->kv));
    if (!sched_alloc(sched))
        return TARN_NO_MEMORY;
    TRY(map_reserve(&sched->by_id, sched->request_max));
    for (uint32_t i = 0; i < sched->request_max; i++) {
        sched->requests[i].tokens = sched->tokens + (size_t)i * o->request_tokens_max;
        list_push_back(&sched->free, &sched->requests[i].link);
    }
    return TARN_OK;
}

enum tarn_status sched_create(const struct sched_options *options, struct sched **out_sched)
{
    TRY(options_check(options));
    struct sched *sched = mem_alloc(1, sizeof(*sched));
    if (!sched)
        return TARN_NO_MEMORY;
    sched->options = *options;
    sched->request_max = sched_request_count_max(options);
    sched->blocks_max = (uint32_t)blocks_of(options);
    sched->ended_max = sched->request_max;
    sched->answers_max = sched->request_max > ANSWERS_MIN ? sched->request_max : ANSWERS_MIN;
    map_init(&sched->by_id, sizeof(uint64_t));
    list_init(&sched->free);
    list_init(&sched->waiting);
    list_init(&sched->running);
    list_init(&sched->draining);
    const enum tarn_status status = sched_init(sched);
    if (status != TARN_OK) {
        sched_destroy(sched);
        return status;
    }
    sched_update_gauges(sched);
    *out_sched = sched;
    return TARN_OK;
}

void sched_destroy(struct sched *sched)
{
    if (!sched)
        return;
    kv_destroy(sched->kv);
    map_deinit(&sched->by_id);
    mem_free(sched->requests);
    mem_free(sched->tokens);
    mem_free(sched->items);
    mem_free(sched->batch);
    mem_free(sched->ended);
    mem_free(sched->step_requests);
    mem_free(sched->step_members);
    mem_free(sched->step_groups);
    mem_free(sched->step_pages);
    mem_free(sched->transfers);
    mem_free(sched->loaded);
    mem_free(sched->ids);
    mem_free(sched);
}

static uint32_t pages_pinned(const struct sched *sched)
{
    struct kv_counts counts;
    kv_counts(sched->kv, &counts);
    return counts.pinned;
}

bool sched_is_idle(const struct sched *sched)
{
    return sched->waiting_count == 0 && sched->running_count == 0 && sched->draining_count == 0 &&
           pages_pinned(sched) == 0;
}

/* Why nothing runs: a request that computes lacks only its next token. */
static enum sched_wait wait_of(const struct sched *sched)
{
    uint32_t computing_count = 0;
    list_for_each (link, &sched->running) {
        const struct request *request = LIST_ITEM(link, struct request, link);
        computing_count += request->state == REQUEST_RUNNING;
    }
    if (computing_count && computing_count == sched->running_count)
        return SCHED_WAIT_CALLER;
    return sched_is_idle(sched) ? SCHED_WAIT_IDLE : SCHED_WAIT_TRANSFER;
}

enum tarn_status sched_pass(struct sched *sched, uint64_t now_ns, struct sched_batch *out_batch)
{
    ASSERT(!sched->in_pass);
    ASSERT(sched->ended_count == 0);
    sched->now_ns = now_ns;
    pool_news(sched);
    plan_renew(sched);
    plan_admit(sched);
    plan_batch(sched);
    pool_step(sched);
    *out_batch = (struct sched_batch){
        .items = sched->items,
        .item_count = sched->item_count,
        .token_count = sched->batch_tokens,
    };
    if (sched->item_count == 0) {
        pool_forward_done(sched, TARN_OK); /* of a step that only starts loads */
        out_batch->wait = wait_of(sched);
        sched_update_gauges(sched);
        return TARN_AGAIN;
    }
    sched->in_pass = true;
    metric_add(METRIC_PASSES, 1);
    sched_update_gauges(sched);
    return TARN_OK;
}

/* One request's part of a pass that is over. */
static void item_done(struct sched *sched, struct request *request, enum tarn_status status)
{
    const uint32_t history = request->sequence->history + request->scheduled_count;
    request->scheduled_count = 0;
    if (status == TARN_OK || BROKEN(COMMIT_FAILED_PASS)) {
        if (request->sequence->history < request->prompt_count && history >= request->prompt_count)
            histogram_observe(HISTOGRAM_PREFILL, sched->now_ns - request->admitted_ns);
        kv_sequence_advance(sched->kv, request->sequence, history);
        request_commit(sched, request);
        request->awaits_token = history == request->token_count;
    }
    if (request->ending) {
        request->ending = false;
        request_end(sched, request, request->ending_outcome);
    } else if (status != TARN_OK) {
        request_fail(sched, request, status);
    }
}

void sched_pass_done(struct sched *sched, enum tarn_status status, uint64_t now_ns)
{
    ASSERT(sched->in_pass);
    sched->in_pass = false;
    sched->now_ns = now_ns;
    pool_forward_done(sched, status);
    for (uint32_t i = 0; i < sched->item_count; i++)
        item_done(sched, sched->batch[i], status);
    sched_update_gauges(sched);
}

int sched_poll_fd(const struct sched *sched)
{
    const struct tarn_connector_ops *ops = sched->options.ops;
    return ops && ops->poll_fd ? ops->poll_fd(sched->options.connector) : -1;
}

static void cancel_all(struct sched *sched, struct list *list)
{
    list_for_each (link, list)
        request_end(sched, LIST_ITEM(link, struct request, link), SCHED_CANCELLED);
}

enum tarn_status sched_drain(struct sched *sched, uint32_t timeout_ms)
{
    ASSERT(!sched->in_pass);
    cancel_all(sched, &sched->waiting);
    cancel_all(sched, &sched->running);
    pool_news(sched);
    pool_settle(sched, timeout_ms);
    pool_quiesce(sched, timeout_ms);
    pool_news(sched);
    sched_update_gauges(sched);
    return sched_is_idle(sched) ? TARN_OK : TARN_AGAIN;
}
