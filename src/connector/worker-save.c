/* SPDX-License-Identifier: Apache-2.0 */
/* Saves: planned by a step, started after its forward pass, and what came of them. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "connector/worker-parts.h"
#include "obs/metric.h"

static void save_release(struct worker *worker, const struct save_job *job,
                         enum leader_saved outcome)
{
    const struct wire_release release = {
        .id = job->request->id,
        .step_number = job->step_number,
        .block = job->block,
        .group = job->group,
        .kind = TARN_TRANSFER_SAVE,
        .outcome = (uint16_t)outcome,
    };
    worker_tell_release(worker, &release);
}

static void save_tell(struct worker *worker, const struct save_job *job, enum leader_saved outcome,
                      uint64_t now_ns)
{
    if (worker->config.leader)
        leader_save_ended(worker->config.leader, job->request->id, job->block, outcome, now_ns);
    save_release(worker, job, outcome);
}

struct transfer_request *worker_request_find(const struct worker *worker, uint64_t id)
{
    return map_get(&worker->requests, &id);
}

enum tarn_status worker_request_make(struct worker *worker, uint64_t id)
{
    if (worker_request_find(worker, id))
        return TARN_OK;
    struct transfer_request *request = mem_alloc(1, sizeof(*request));
    if (!request)
        return TARN_NO_MEMORY;
    request->id = id;
    const enum tarn_status status = map_set(&worker->requests, &id, request);
    if (status != TARN_OK)
        mem_free(request);
    return status;
}

void worker_request_drop_if_idle(struct worker *worker, struct transfer_request *request)
{
    if (!request || request->job_count > 0)
        return;
    (void)map_remove(&worker->requests, &request->id);
    mem_free(request);
}

/* ---- what is stored behind the pages of a block ---- */

/* Cells are kept: after a while none is made any more. */
enum tarn_status worker_extras_reserve(struct worker *worker, size_t count)
{
    if (worker->config.extra_bytes == 0)
        return TARN_OK;
    for (; worker->extra_free_count < count; worker->extra_free_count++) {
        struct save_extra *extra = mem_alloc(1, sizeof(*extra) + worker->config.extra_bytes);
        if (!extra)
            return TARN_NO_MEMORY;
        extra->next = worker->extras_free;
        worker->extras_free = extra;
    }
    return TARN_OK;
}

/* Room was reserved. NULL: nothing is stored. */
struct save_extra *worker_extra_take(struct worker *worker, const struct wire_block *block)
{
    struct save_extra *extra = worker->extras_free;
    if (worker->config.extra_bytes == 0)
        return NULL;
    ASSERT(extra && extra->user_count == 0);
    worker->extras_free = extra->next;
    worker->extra_free_count--;
    memcpy(extra->bytes, block->extra, worker->config.extra_bytes);
    return extra;
}

static void extra_give_back(struct worker *worker, struct save_extra *extra)
{
    if (!extra || --extra->user_count > 0)
        return;
    extra->next = worker->extras_free;
    worker->extras_free = extra;
    worker->extra_free_count++;
}

void worker_extras_free(struct worker *worker)
{
    while (worker->extras_free) {
        struct save_extra *extra = worker->extras_free;
        worker->extras_free = extra->next;
        mem_free(extra);
    }
}

/* A planned save that will not be started. */
static void save_drop(struct worker *worker, struct save_job *job, enum metric why, uint64_t now_ns)
{
    metric_add(why, 1);
    save_tell(worker, job, LEADER_SAVE_DROPPED, now_ns);
    if (worker->config.leader)
        leader_page_released(worker->config.leader, job->request->id);
    extra_give_back(worker, job->extra);
    job->request->job_count--;
    worker_request_drop_if_idle(worker, job->request);
}

void worker_planned_drop(struct worker *worker, const uint64_t *id, uint64_t step_max,
                         uint64_t now_ns)
{
    const size_t count = worker->planned.count;
    for (size_t i = 0; i < count; i++) {
        struct save_job job;
        ring_pop(&worker->planned, &job);
        if ((!id || job.request->id == *id) && job.step_number <= step_max)
            save_drop(worker, &job, METRIC_SAVE_FAILED_FORWARD, now_ns);
        else
            ring_push(&worker->planned, &job);
    }
}

static void save_count_result(struct worker *worker, const struct save_job *job)
{
    switch ((int)job->status) {
    case TARN_OK:
        if (job->was_present) {
            metric_add(METRIC_SAVE_SKIPPED, 1);
            return;
        }
        metric_add(METRIC_SAVE_PAGES, 1);
        metric_add(METRIC_SAVE_BYTES, (int64_t)worker_page_bytes(worker, job->group));
        return;
    case TARN_STALE:
        metric_add(job->is_forward_bad ? METRIC_SAVE_FAILED_FORWARD : METRIC_SAVE_FAILED_GAP, 1);
        return;
    case TARN_NO_SPACE:
        metric_add(METRIC_SAVE_FAILED_FULL, 1);
        LOG_LIMITED(LOG_WARN, "the pool is full: pages are not saved");
        return;
    default:
        metric_add(METRIC_SAVE_FAILED_STORE, 1);
        LOG_LIMITED(LOG_WARN, "a page could not be saved: %s", tarn_strerror(job->status));
        return;
    }
}

static void save_page_release(struct worker *worker, const struct save_job *job)
{
    worker->pinned_bytes -= worker_page_bytes(worker, job->group);
    worker_report_transfer(worker, job->request->id, job->block, job->group, job->page,
                           SAVE_RETIRED);
}

void worker_save_take(struct worker *worker, const struct save_job *job, uint64_t now_ns)
{
    struct transfer_request *request = job->request;
    if (!job->is_over) {
        save_page_release(worker, job);
        save_release(worker, job, LEADER_SAVE_COPIED);
        request->copied_count++;
        return;
    }
    worker->saves_in_flight--;
    worker_hear_answer(worker, job->answer, false, now_ns);
    if (job->is_copied)
        request->copied_count--;
    else
        save_page_release(worker, job);
    save_count_result(worker, job);
    if (job->status == TARN_OK && !job->was_present)
        absent_remove(&worker->absent, &job->digest, job->group);
    if (job->status != TARN_OK)
        request->generation = atomic_load(&request->saves_cut);
    save_tell(worker, job,
              job->status == TARN_OK      ? LEADER_SAVED
              : job->status == TARN_STALE ? LEADER_SAVE_DROPPED
                                          : LEADER_SAVE_FAILED,
              now_ns);
    extra_give_back(worker, job->extra);
    request->job_count--;
    worker_request_drop_if_idle(worker, request);
}

/* ---- after the forward pass ---- */

static enum metric save_obstacle(const struct worker *worker, const struct save_job *job,
                                 bool is_forward_good)
{
    if (!is_forward_good || worker_load_find(worker, job->request->id))
        return METRIC_SAVE_FAILED_FORWARD;
    if (job->request->dropped_step == job->step_number)
        return METRIC_SAVE_FAILED_GAP;
    if (worker->saves_in_flight >= worker->config.save_queue_pages_max)
        return METRIC_SAVE_FAILED_QUEUE;
    if (worker->pinned_bytes + worker_page_bytes(worker, job->group) >
        worker->config.pinned_bytes_max)
        return METRIC_SAVE_FAILED_PINNED;
    return METRIC_COUNT;
}

/* Free pages are few, or saves hold half of what they may. */
static bool pages_are_short(const struct worker *worker)
{
    return worker->pages_short || worker->pinned_bytes > worker->config.pinned_bytes_max / 2;
}

static void save_start(struct worker *worker, struct save_job *job, void *event)
{
    job->event = event;
    job->copy_first = pages_are_short(worker);
    worker->saves_in_flight++;
    worker->pinned_bytes += worker_page_bytes(worker, job->group);
    job->generation = job->request->generation;
    worker_report_transfer(worker, job->request->id, job->block, job->group, job->page,
                           SAVE_STARTED);
}

/* Together, so that the save thread finds whole batches. */
static void saves_push(struct worker *worker, const struct save_job *jobs, size_t count)
{
    if (count == 0)
        return;
    const enum tarn_status status = queue_push_all(&worker->transfer.save_in, jobs, count);
    ASSERT(status == TARN_OK); /* as large as save_queue_pages_max */
}

enum tarn_status worker_forward_done(struct worker *worker, uint64_t step_number,
                                     enum tarn_status status, void *event, uint64_t now_ns)
{
    if (worker->failure != TARN_OK)
        return worker->failure;
    if (step_number <= worker->forward_number || step_number > worker->metadata_number)
        return TARN_INVALID;
    worker->forward_number = step_number;
    size_t count = 0;
    while (worker->planned.count > 0) {
        struct save_job job;
        const struct save_job *front = ring_first(&worker->planned);
        if (front->step_number > step_number)
            break;
        ring_pop(&worker->planned, &job);
        const bool is_good = status == TARN_OK && job.step_number == step_number;
        const enum metric obstacle = save_obstacle(worker, &job, is_good);
        if (obstacle == METRIC_COUNT) {
            save_start(worker, &job, event);
            worker->scratch[count++] = job;
            if (count == WORKER_SCRATCH_MAX) {
                saves_push(worker, worker->scratch, count);
                count = 0;
            }
            continue;
        }
        /* What follows in this chain would lie behind a gap. */
        job.request->dropped_step = job.step_number;
        save_drop(worker, &job, obstacle, now_ns);
    }
    saves_push(worker, worker->scratch, count);
    worker_gauges_update(worker);
    return TARN_OK;
}
