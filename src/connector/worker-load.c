/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: batches to the load thread and back, and their deadlines. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "connector/worker-parts.h"
#include "obs/metric.h"
#include "os/clock.h"

enum { LOAD_DEADLINES = 4 }; /* a whole load has at most so many */

void load_destroy(struct load *load)
{
    if (!load)
        return;
    store_lease_release(load->lease);
    mem_free(load->extras);
    mem_free(load->pages);
    mem_free(load);
}

struct load *worker_load_find(const struct worker *worker, uint64_t id)
{
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (load->id == id && !load->is_judged)
            return load;
    }
    return NULL;
}

/* Nothing of it is in a thread's hands, and nobody will ask for it. */
void load_free_if_over(struct load *load)
{
    if (!load->is_concluded || load->returned_count < load->pushed_count || !load->is_judged)
        return;
    list_remove(&load->link);
    load_destroy(load);
}

static void page_retire(struct worker *worker, const struct load *load,
                        const struct load_page *page)
{
    const struct wire_release release = {
        .id = load->id,
        .step_number = load->step_number,
        .block = page->block,
        .group = page->group,
        .kind = TARN_TRANSFER_LOAD,
    };
    worker_report_transfer(worker, load->id, page->block, page->group, page->page, LOAD_RETIRED);
    worker_tell_release(worker, &release);
}

/* Its good prefix is final, and counted in blocks from here on. Pages that no thread can touch are
 * retired; those that one has are abandoned. */
void worker_load_conclude(struct worker *worker, struct load *load)
{
    const size_t group_count = worker->config.layout->group_count;
    size_t held = load->pushed_count;
    ASSERT(!load->is_concluded);
    load->is_concluded = true;
    atomic_store(&load->is_cancelled, true);
    if (load->is_staged && load->returned_count < load->pushed_count && load_close_scatter(load)) {
        load->is_released = true;
        held = load->returned_count;
    }
    for (size_t i = held; i < load->page_count; i++)
        page_retire(worker, load, &load->pages[i]);
    load->page_count = load->pushed_count;
    worker->abandoned_count += held - load->returned_count;
    load->good_count /= group_count;
    store_lease_release(TAKE(load->lease));
}

static void load_count_failure(enum tarn_status status)
{
    if (status == TARN_INVALID) {
        metric_add(METRIC_LOAD_FAILED_TOKENS, 1);
        return;
    }
    metric_add(status == TARN_CORRUPT                        ? METRIC_LOAD_FAILED_CORRUPT
               : status == TARN_MISS || status == TARN_AGAIN ? METRIC_LOAD_FAILED_MISS
                                                             : METRIC_LOAD_FAILED_STORE,
               1);
}

static void load_take_page(struct worker *worker, struct load *load, const struct load_page *page,
                           uint64_t now_ns)
{
    if (!load->is_released)
        page_retire(worker, load, page);
    if (page->status != TARN_OK && page->status != TARN_STALE) {
        load_count_failure(page->status);
        absent_add(&worker->absent, &page->digest, page->group,
                   page->status == TARN_CORRUPT ? UINT64_MAX : now_ns + ABSENT_NS);
    }
    if (load->is_concluded) {
        worker->abandoned_count -= !load->is_released;
        return;
    }
    if (page->status == TARN_OK && load->status == TARN_OK)
        load->good_count++;
    else if (load->status == TARN_OK)
        load->status = page->status == TARN_STALE     ? TARN_IO
                       : page->status == TARN_INVALID ? TARN_MISS
                                                      : page->status;
}

void worker_load_take(struct worker *worker, const struct load_batch *batch, uint64_t now_ns)
{
    struct load *load = batch->load;
    worker->batches_in_flight--;
    /* That it came after its deadline was heard at the deadline. */
    if (!load->is_concluded || batch->answer == ANSWER_BAD)
        worker_hear_answer(worker, batch->answer, true, now_ns);
    for (size_t i = 0; i < batch->count; i++)
        load_take_page(worker, load, &load->pages[batch->first + i], now_ns);
    load->returned_count += batch->count;
    if (load->status != TARN_OK)
        atomic_store(&load->is_cancelled, true);
    const bool has_all = load->returned_count == load->page_count;
    const bool has_failed = load->status != TARN_OK && load->returned_count == load->pushed_count;
    if (!load->is_concluded && (has_all || has_failed))
        worker_load_conclude(worker, load);
    load_free_if_over(load);
}

/* Hand batches to the load thread, whole blocks together, as far as this step's bytes go. */
static void load_push(struct worker *worker, struct load *load)
{
    const size_t group_count = worker->config.layout->group_count;
    size_t batch_pages = worker->config.placement->batch_pages[TARN_TRANSFER_LOAD];
    if (batch_pages > group_count)
        batch_pages -= batch_pages % group_count;
    while (!load->is_concluded && !atomic_load(&load->is_cancelled) &&
           load->pushed_count < load->page_count &&
           worker->batches_in_flight < TRANSFER_BATCHES_MAX) {
        struct load_batch batch = { .load = load, .first = load->pushed_count };
        while (batch.count < batch_pages && batch.first + batch.count < load->page_count) {
            const uint64_t bytes =
                worker_page_bytes(worker, load->pages[batch.first + batch.count].group);
            if (bytes > worker->load_granted_bytes)
                break;
            worker->load_granted_bytes -= bytes;
            batch.count++;
        }
        if (batch.count == 0)
            return;
        const enum tarn_status status = queue_push(&worker->transfer.load_in, &batch);
        ASSERT(status == TARN_OK);
        load->pushed_count += batch.count;
        worker->batches_in_flight++;
    }
}

/* A step's bytes; at least one page, so that a load always goes on. */
void worker_loads_grant(struct worker *worker)
{
    uint64_t bytes = worker->config.load_bytes_per_step;
    for (uint32_t i = 0; i < worker->config.layout->group_count; i++) {
        if (bytes < worker_page_bytes(worker, i))
            bytes = worker_page_bytes(worker, i);
    }
    worker->load_granted_bytes = bytes;
}

void worker_loads_push(struct worker *worker)
{
    list_for_each (link, &worker->loads) {
        load_push(worker, LIST_ITEM(link, struct load, link));
    }
}

uint64_t worker_load_due_ns(const struct worker *worker, const struct load *load)
{
    const uint64_t deadline_ns = worker->config.load_deadline_ns;
    const uint64_t returned_ns = atomic_load(&worker->transfer.load_returned_ns);
    const uint64_t progress_ns = returned_ns > load->started_ns ? returned_ns : load->started_ns;
    const uint64_t whole_ns = load->started_ns + LOAD_DEADLINES * deadline_ns;
    return progress_ns + deadline_ns < whole_ns ? progress_ns + deadline_ns : whole_ns;
}

void worker_loads_check_deadlines(struct worker *worker, uint64_t now_ns)
{
    bool is_late = false;
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (load->is_concluded || now_ns < worker_load_due_ns(worker, load))
            continue;
        if (load->status == TARN_OK)
            load->status = TARN_IO;
        metric_add(METRIC_LOAD_FAILED_DEADLINE, (int64_t)(load->page_count - load->returned_count));
        LOG_LIMITED(LOG_WARN,
                    "the load of request %" PRIu64 " passed its deadline with %zu of %zu page%s",
                    load->id, load->good_count, load->page_count, text_plural(load->page_count));
        worker_load_conclude(worker, load);
        load->is_late = true;
        load_free_if_over(load);
        is_late = true;
    }
    if (is_late) /* one call that does not return makes all of them late */
        worker_hear_answer(worker, ANSWER_BAD, true, now_ns);
}

bool worker_load_is_out(const struct worker *worker)
{
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        if (load->is_late && load->returned_count < load->pushed_count)
            return true;
    }
    return false;
}

void worker_load_stop(struct worker *worker, struct load *load)
{
    atomic_store(&load->is_cancelled, true);
    if (load->status == TARN_OK)
        load->status = TARN_IO;
    if (!load->is_concluded && (load->is_staged || load->returned_count == load->pushed_count))
        worker_load_conclude(worker, load);
}
