/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: batches to the load thread and back, deadlines, reports and verdicts. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/log.h"
#include "connector/worker-parts.h"
#include "obs/metric.h"
#include "os/clock.h"

#define ABSENT_NS (15 * NS_PER_S)

enum { LOAD_DEADLINES = 4 }; /* a whole load has at most so many */

void load_destroy(struct load *load)
{
    if (!load)
        return;
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
    for (size_t i = held; i < load->page_count; i++) {
        const struct load_page *page = &load->pages[i];
        worker_report_transfer(worker, load->id, page->block, page->group, page->page,
                               LOAD_RETIRED);
    }
    load->page_count = load->pushed_count;
    worker->abandoned_count += held - load->returned_count;
    load->good_count /= group_count;
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
        worker_report_transfer(worker, load->id, page->block, page->group, page->page,
                               LOAD_RETIRED);
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

/* When the load is late at the earliest. */
static uint64_t load_due_ns(const struct worker *worker, const struct load *load)
{
    const uint64_t deadline_ns = worker->config.load_deadline_ns;
    const uint64_t returned_ns = atomic_load(&worker->transfer.load_returned_ns);
    const uint64_t progress_ns = returned_ns > load->started_ns ? returned_ns : load->started_ns;
    const uint64_t whole_ns = load->started_ns + LOAD_DEADLINES * deadline_ns;
    return progress_ns + deadline_ns < whole_ns ? progress_ns + deadline_ns : whole_ns;
}

void worker_loads_check_deadlines(struct worker *worker, uint64_t now_ns)
{
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (load->is_concluded || now_ns < load_due_ns(worker, load))
            continue;
        if (load->status == TARN_OK)
            load->status = TARN_IO;
        metric_add(METRIC_LOAD_FAILED_DEADLINE, (int64_t)(load->page_count - load->returned_count));
        LOG_LIMITED(LOG_WARN,
                    "the load of request %" PRIu64 " passed its deadline with %zu of %zu pages",
                    load->id, load->good_count, load->page_count);
        worker_load_conclude(worker, load);
        load_free_if_over(load);
    }
}

void worker_load_stop(struct worker *worker, struct load *load)
{
    atomic_store(&load->is_cancelled, true);
    if (load->status == TARN_OK)
        load->status = TARN_IO;
    if (!load->is_concluded && (load->is_staged || load->returned_count == load->pushed_count))
        worker_load_conclude(worker, load);
}

/* ---- reports and verdicts ---- */

static size_t loads_to_report(const struct worker *worker)
{
    size_t count = 0;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        count += load->is_concluded && !load->is_reported;
    }
    return count;
}

static enum tarn_status report_write(struct worker *worker, size_t item_count,
                                     struct tarn_bytes *out_report)
{
    TRY(wire_buffer_reserve(&worker->report, wire_header_bytes() + wire_items_bytes(item_count)));
    struct wire_writer writer = wire_begin(&worker->report, WIRE_NO_BLOCKS);
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (!load->is_concluded || load->is_reported)
            continue;
        const struct tarn_loaded item = {
            .id = load->id,
            .first_block = load->first_block,
            .block_count = load->good_count,
            .asked_count = load->block_count,
            .status = load->status,
        };
        load->is_reported = true;
        wire_add_item(&writer, &item);
    }
    wire_end(&writer, WIRE_REPORT, ++worker->report_number, worker->config.rank);
    *out_report = wire_buffer_bytes(&worker->report);
    return TARN_OK;
}

/* The engine waits and no step comes: the bytes of a step are for the taking again. */
static void loads_grant_if_starved(struct worker *worker)
{
    if (worker->batches_in_flight == 0 && !list_is_empty(&worker->loads)) {
        worker_loads_grant(worker);
        worker_loads_push(worker);
    }
}

static uint64_t loads_due_ns(const struct worker *worker)
{
    uint64_t due_ns = UINT64_MAX;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        const uint64_t load_ns = load->is_concluded ? UINT64_MAX : load_due_ns(worker, load);
        due_ns = load_ns < due_ns ? load_ns : due_ns;
    }
    return due_ns;
}

enum tarn_status worker_load_poll(struct worker *worker, uint64_t deadline_ns,
                                  struct tarn_bytes *out_report)
{
    for (;;) {
        const size_t count = loads_to_report(worker);
        if (count > 0)
            return report_write(worker, count, out_report);
        loads_grant_if_starved(worker);
        const uint64_t due_ns = loads_due_ns(worker);
        if (clock_now_ns() >= deadline_ns || due_ns == UINT64_MAX)
            return TARN_AGAIN;
        worker_wait(worker, due_ns < deadline_ns ? due_ns : deadline_ns);
    }
}

/* Only what a verdict found good counts as loaded. */
static void loaded_count(const struct worker *worker, const struct tarn_loaded *loaded)
{
    for (uint32_t i = 0; i < worker->config.layout->group_count; i++) {
        metric_add(METRIC_LOAD_PAGES, (int64_t)loaded->block_count);
        metric_add(METRIC_LOAD_BYTES,
                   (int64_t)(loaded->block_count * worker_page_bytes(worker, i)));
    }
}

enum tarn_status worker_verdict_apply(struct worker *worker, struct tarn_bytes verdict,
                                      struct tarn_loaded *out_loaded, size_t capacity,
                                      size_t *out_count)
{
    struct wire_reader reader;
    TRY(wire_open(verdict, WIRE_VERDICT, WIRE_NO_BLOCKS, &reader));
    if (reader.number <= worker->verdict_number)
        return TARN_STALE;
    if (reader.counts[0] > capacity)
        return TARN_INVALID;
    worker->verdict_number = reader.number;
    for (uint32_t i = 0; i < reader.counts[0]; i++) {
        struct tarn_loaded *loaded = &out_loaded[i];
        wire_next_item(&reader, loaded);
        struct load *load = worker_load_find(worker, loaded->id);
        if (load && load->is_concluded) {
            load->is_judged = true;
            load->is_reported = true;
            load_free_if_over(load);
        }
        loaded_count(worker, loaded);
        if (loaded->block_count < loaded->asked_count) {
            worker_planned_drop(worker, loaded->id, false, clock_now_ns());
            LOG_LIMITED(LOG_WARN,
                        "request %" PRIu64 ": %" PRIu64 " of %" PRIu64 " blocks could be loaded%s",
                        loaded->id, loaded->block_count, loaded->asked_count,
                        loaded->status == TARN_OK ? ", the rest is computed" : "");
        }
    }
    *out_count = reader.counts[0];
    return TARN_OK;
}
