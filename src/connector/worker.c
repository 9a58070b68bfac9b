/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/worker.h"

#include "base/alloc.h"
#include "connector/worker-parts.h"
#include "obs/metric.h"
#include "os/clock.h"

enum { DROP_GRACE_MS = 100 }; /* for the threads to hand back what they need not do any more */

uint64_t worker_page_bytes(const struct worker *worker, uint32_t group)
{
    return worker->config.layout->groups[group].page_bytes;
}

struct wire_shape worker_shape(const struct worker *worker)
{
    return (struct wire_shape){
        .group_count = (uint32_t)worker->config.layout->group_count,
        .extra_bytes = worker->config.extra_bytes,
        .identity = worker->config.identity,
    };
}

void worker_gauges_update(const struct worker *worker)
{
    metric_set(METRIC_PAGES_PINNED, (int64_t)worker->started_count);
    metric_set(METRIC_PAGES_ABANDONED, (int64_t)worker->abandoned_count);
    metric_set(METRIC_SAVE_QUEUE_PAGES, (int64_t)worker->saves_in_flight);
}

/* Room was made when the transfer was planned. */
void worker_report_transfer(struct worker *worker, uint64_t id, uint64_t block, uint32_t group,
                            tarn_page page, uint32_t kind_and_phase)
{
    const struct tarn_transfer report = {
        .request_id = id,
        .block = block,
        .page = page,
        .group = group,
        .kind = (uint16_t)(kind_and_phase >> 1),
        .phase = (uint16_t)(kind_and_phase & 1),
    };
    ring_push(&worker->transfers, &report);
    if (report.phase == TARN_TRANSFER_STARTED)
        worker->started_count++;
    else
        worker->started_count--;
}

void worker_collect(struct worker *worker, uint64_t now_ns)
{
    size_t count = 0;
    struct load_batch batch;
    while (queue_take(&worker->transfer.save_out, worker->scratch, WORKER_SCRATCH_MAX, &count) ==
           TARN_OK) {
        for (size_t i = 0; i < count; i++)
            worker_save_take(worker, &worker->scratch[i], now_ns);
    }
    while (queue_take(&worker->transfer.load_out, &batch, 1, &count) == TARN_OK)
        worker_load_take(worker, &batch, now_ns);
    worker_loads_check_deadlines(worker, now_ns);
    worker_loads_push(worker);
    worker_gauges_update(worker);
}

enum tarn_status worker_open(struct worker *worker, const struct worker_config *config)
{
    *worker = (struct worker){ .config = *config };
    map_init(&worker->requests, sizeof(uint64_t));
    list_init(&worker->loads);
    ring_init(&worker->planned, sizeof(struct save_job));
    ring_init(&worker->transfers, sizeof(struct tarn_transfer));
    ring_init(&worker->releases, sizeof(struct wire_release));
    worker->transfer.store = config->store;
    worker->transfer.layout = config->layout;
    worker->transfer.namespaces = config->namespaces;
    worker->transfer.placement = config->placement;
    worker->transfer.device = config->device;
    worker->transfer.extra_bytes = config->extra_bytes;
    worker->transfer.wakeup = config->wakeup;
    worker->scratch = mem_alloc(WORKER_SCRATCH_MAX, sizeof(*worker->scratch));
    if (!worker->scratch)
        return TARN_NO_MEMORY;
    TRY(absent_init(&worker->absent));
    TRY(ring_reserve(&worker->planned, config->save_queue_pages_max));
    TRY(ring_reserve(&worker->transfers, 2 * (size_t)config->save_queue_pages_max));
    return transfer_open(&worker->transfer, config->save_queue_pages_max);
}

void worker_close(struct worker *worker)
{
    size_t position = 0;
    ASSERT(worker->saves_in_flight == 0 && worker->batches_in_flight == 0);
    transfer_close(&worker->transfer);
    if (worker->loads.next) {
        list_for_each (link, &worker->loads) {
            list_remove(link);
            load_destroy(LIST_ITEM(link, struct load, link));
        }
    }
    for (void *request; (request = map_next(&worker->requests, &position)) != NULL;)
        mem_free(request);
    map_deinit(&worker->requests);
    absent_deinit(&worker->absent);
    worker_extras_free(worker);
    wire_buffer_deinit(&worker->report);
    ring_deinit(&worker->planned);
    ring_deinit(&worker->transfers);
    ring_deinit(&worker->releases);
    mem_free(worker->scratch);
    *worker = (struct worker){ .abandoned_count = 0 };
}

void worker_wait(struct worker *worker, uint64_t deadline_ns)
{
    wakeup_wait(worker->config.wakeup, deadline_ns);
    wakeup_clear(worker->config.wakeup);
    worker_collect(worker, clock_now_ns());
}

static bool worker_is_idle(const struct worker *worker)
{
    return worker->saves_in_flight == 0 && worker->batches_in_flight == 0;
}

void worker_saves_cut(struct worker *worker)
{
    size_t position = 0;
    for (struct transfer_request *request;
         (request = map_next(&worker->requests, &position)) != NULL;)
        transfer_request_cut(request, ++request->generation);
}

/* Once a call: what it says of the store. */
void worker_hear_answer(struct worker *worker, enum answer answer, bool is_load, uint64_t now_ns)
{
    if (answer == ANSWER_GOOD)
        watch_good(worker->config.watch, is_load);
    if (answer == ANSWER_BAD)
        watch_bad(worker->config.watch, is_load, now_ns);
}

enum tarn_status worker_drain(struct worker *worker, uint64_t deadline_ns)
{
    const uint64_t now_ns = clock_now_ns();
    worker_planned_drop(worker, NULL, UINT64_MAX, now_ns);
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (!load->is_concluded)
            worker_load_conclude(worker, load);
    }
    worker_collect(worker, now_ns);
    while (!worker_is_idle(worker) && clock_now_ns() < deadline_ns)
        worker_wait(worker, deadline_ns);
    if (worker_is_idle(worker))
        return TARN_OK;

    worker_saves_cut(worker);
    const uint64_t grace_ns = clock_now_ns() + DROP_GRACE_MS * NS_PER_MS;
    while (!worker_is_idle(worker) && clock_now_ns() < grace_ns)
        worker_wait(worker, grace_ns);
    return worker_is_idle(worker) ? TARN_OK : TARN_AGAIN;
}

bool worker_has_news(const struct worker *worker)
{
    if (worker->transfers.count > 0 || worker->must_tell_failure)
        return true;
    if (worker->releases.count > 0 && worker->failure == TARN_OK)
        return true;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        if (load->is_concluded && !load->is_reported)
            return true;
    }
    return false;
}

size_t worker_transfers(struct worker *worker, struct tarn_transfer *out, size_t capacity)
{
    size_t count = 0;
    for (; count < capacity && worker->transfers.count > 0; count++) {
        ring_pop(&worker->transfers, &out[count]);
        if (out[count].phase == TARN_TRANSFER_RETIRED && worker->config.leader)
            leader_page_released(worker->config.leader, out[count].request_id);
    }
    return count;
}

static void load_finish(struct worker *worker, struct load *load)
{
    if (!load->is_concluded) {
        worker_load_stop(worker, load);
        if (!load->is_concluded)
            worker_load_conclude(worker, load);
    }
    load->is_reported = true;
    load->is_judged = true;
    load_free_if_over(load);
}

void worker_finish(struct worker *worker, uint64_t id, uint64_t step_max, uint64_t now_ns)
{
    worker_planned_drop(worker, &id, step_max, now_ns);
    struct load *load = worker_load_find(worker, id);
    if (!load || load->step_number > step_max)
        return;
    load_finish(worker, load);
    worker_gauges_update(worker);
}

void worker_fail(struct worker *worker, enum tarn_status status, bool must_tell, uint64_t now_ns)
{
    if (worker->failure != TARN_OK)
        return;
    worker->failure = status < TARN_OK ? status : TARN_IO;
    worker->must_tell_failure = must_tell;
    worker_planned_drop(worker, NULL, UINT64_MAX, now_ns);
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (!load->is_judged)
            load_finish(worker, load);
    }
    worker_gauges_update(worker);
}

static bool request_has_transfers(const struct worker *worker, uint64_t id)
{
    const struct transfer_request *request = worker_request_find(worker, id);
    if (request && request->job_count > request->copied_count)
        return true;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        if (load->id == id && load->returned_count < load->pushed_count && !load->is_released)
            return true;
    }
    return false;
}

enum tarn_status worker_quiesce(struct worker *worker, const uint64_t *ids, size_t count,
                                uint64_t deadline_ns)
{
    for (size_t i = 0; i < count; i++) {
        worker_planned_drop(worker, &ids[i], UINT64_MAX, clock_now_ns());
        struct transfer_request *request = worker_request_find(worker, ids[i]);
        if (request)
            transfer_request_cut(request, ++request->generation);
        list_for_each (link, &worker->loads) {
            struct load *load = LIST_ITEM(link, struct load, link);
            if (load->id == ids[i])
                worker_load_stop(worker, load);
        }
    }
    for (size_t i = 0; i < count;) {
        if (!request_has_transfers(worker, ids[i])) {
            i++;
            continue;
        }
        if (clock_now_ns() >= deadline_ns)
            return TARN_AGAIN;
        worker_wait(worker, deadline_ns);
    }
    return TARN_OK;
}
