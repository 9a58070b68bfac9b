/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/worker.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/clock.h"

#define ABSENT_NS (15 * NS_PER_S)

enum {
    LOAD_DEADLINES = 4, /* a whole load has at most so many */
    SCRATCH_MAX = 256,
    DROP_GRACE_MS = 100, /* for the threads to hand back what they need not do any more */
};

/* ---- rings ---- */

static enum tarn_status ring_reserve(struct worker_ring *ring, size_t count)
{
    if (count <= ring->capacity)
        return TARN_OK;
    const size_t capacity = count + count / 2;
    uint8_t *items = mem_alloc(capacity, ring->item_bytes);
    if (!items)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < ring->count; i++)
        memcpy(items + i * ring->item_bytes,
               ring->items + (ring->first + i) % ring->capacity * ring->item_bytes,
               ring->item_bytes);
    mem_free(ring->items);
    ring->items = items;
    ring->capacity = capacity;
    ring->first = 0;
    return TARN_OK;
}

static void ring_push(struct worker_ring *ring, const void *item)
{
    ASSERT(ring->count < ring->capacity);
    const size_t place = (ring->first + ring->count) % ring->capacity;
    memcpy(ring->items + place * ring->item_bytes, item, ring->item_bytes);
    ring->count++;
}

static void ring_pop(struct worker_ring *ring, void *out_item)
{
    ASSERT(ring->count > 0);
    memcpy(out_item, ring->items + ring->first * ring->item_bytes, ring->item_bytes);
    ring->first = (ring->first + 1) % ring->capacity;
    ring->count--;
}

static void *ring_at(const struct worker_ring *ring, size_t index)
{
    return ring->items + (ring->first + index) % ring->capacity * ring->item_bytes;
}

/* ---- small things ---- */

static uint64_t page_bytes(const struct worker *worker, uint32_t group)
{
    return worker->config.layout->groups[group].page_bytes;
}

static struct wire_shape worker_shape(const struct worker *worker)
{
    return (struct wire_shape){
        .group_count = (uint32_t)worker->config.layout->group_count,
        .extra_bytes = worker->config.extra_bytes,
    };
}

static void gauges_update(const struct worker *worker)
{
    metric_set(METRIC_PAGES_PINNED, (int64_t)worker->started_count);
    metric_set(METRIC_PAGES_ABANDONED, (int64_t)worker->abandoned_count);
    metric_set(METRIC_SAVE_QUEUE_PAGES, (int64_t)worker->saves_in_flight);
}

/* Room was made when the transfer was planned. */
static void transfer_report(struct worker *worker, uint64_t id, uint64_t block, uint32_t group,
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

enum {
    SAVE_STARTED = TARN_TRANSFER_SAVE << 1 | TARN_TRANSFER_STARTED,
    SAVE_RETIRED = TARN_TRANSFER_SAVE << 1 | TARN_TRANSFER_RETIRED,
    LOAD_STARTED = TARN_TRANSFER_LOAD << 1 | TARN_TRANSFER_STARTED,
    LOAD_RETIRED = TARN_TRANSFER_LOAD << 1 | TARN_TRANSFER_RETIRED,
};

static void save_tell(struct worker *worker, const struct save_job *job, enum leader_saved outcome,
                      uint64_t now_ns)
{
    if (worker->config.leader)
        leader_save_ended(worker->config.leader, job->request->id, job->block, outcome, now_ns);
}

/* ---- requests ---- */

static struct transfer_request *request_find(const struct worker *worker, uint64_t id)
{
    return map_get(&worker->requests, &id);
}

static enum tarn_status request_make(struct worker *worker, uint64_t id)
{
    if (request_find(worker, id))
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

static void request_drop_if_idle(struct worker *worker, struct transfer_request *request)
{
    if (!request || request->job_count > 0)
        return;
    (void)map_remove(&worker->requests, &request->id);
    mem_free(request);
}

/* ---- what is stored behind the pages of a block ---- */

/* Cells are kept: after a while none is made any more. */
static enum tarn_status extras_reserve(struct worker *worker, size_t count)
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
static struct save_extra *extra_take(struct worker *worker, const struct wire_block *block)
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

static void extras_free(struct worker *worker)
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
    request_drop_if_idle(worker, job->request);
}

/* Take the planned saves of one request out (of all with `every`), whatever their step. */
static void planned_drop(struct worker *worker, uint64_t id, bool every, uint64_t now_ns)
{
    const size_t count = worker->planned.count;
    for (size_t i = 0; i < count; i++) {
        struct save_job job;
        ring_pop(&worker->planned, &job);
        if (every || job.request->id == id)
            save_drop(worker, &job, METRIC_SAVE_FAILED_FORWARD, now_ns);
        else
            ring_push(&worker->planned, &job);
    }
}

/* ---- loads ---- */

static void load_destroy(struct load *load)
{
    if (!load)
        return;
    mem_free(load->extras);
    mem_free(load->pages);
    mem_free(load);
}

static struct load *load_find(const struct worker *worker, uint64_t id)
{
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (load->id == id && !load->is_judged)
            return load;
    }
    return NULL;
}

/* Nothing of it is in a thread's hands, and nobody will ask for it. */
static void load_free_if_over(struct load *load)
{
    if (!load->is_concluded || load->returned_count < load->pushed_count || !load->is_judged)
        return;
    list_remove(&load->link);
    load_destroy(load);
}

/* Its good prefix is final, and counted in blocks from here on. Pages that no thread has are
 * retired, those it has are abandoned. */
static void load_conclude(struct worker *worker, struct load *load)
{
    const size_t group_count = worker->config.layout->group_count;
    ASSERT(!load->is_concluded);
    load->is_concluded = true;
    atomic_store(&load->is_cancelled, true);
    for (size_t i = load->pushed_count; i < load->page_count; i++) {
        const struct load_page *page = &load->pages[i];
        transfer_report(worker, load->id, page->block, page->group, page->page, LOAD_RETIRED);
    }
    load->page_count = load->pushed_count;
    worker->abandoned_count += load->pushed_count - load->returned_count;
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
    transfer_report(worker, load->id, page->block, page->group, page->page, LOAD_RETIRED);
    if (page->status != TARN_OK && page->status != TARN_STALE) {
        load_count_failure(page->status);
        absent_add(&worker->absent, &page->digest, page->group,
                   page->status == TARN_CORRUPT ? UINT64_MAX : now_ns + ABSENT_NS);
    }
    if (load->is_concluded) {
        worker->abandoned_count--;
        return;
    }
    if (page->status == TARN_OK && load->status == TARN_OK)
        load->good_count++;
    else if (load->status == TARN_OK)
        load->status = page->status == TARN_STALE     ? TARN_IO
                       : page->status == TARN_INVALID ? TARN_MISS
                                                      : page->status;
}

static void load_take(struct worker *worker, const struct load_batch *batch, uint64_t now_ns)
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
        load_conclude(worker, load);
    load_free_if_over(load);
}

/* Hand batches to the load thread, whole blocks together, as far as this step's bytes go. */
static void load_push(struct worker *worker, struct load *load)
{
    const size_t group_count = worker->config.layout->group_count;
    size_t batch_pages = worker->config.batch_pages;
    if (batch_pages > group_count)
        batch_pages -= batch_pages % group_count;
    while (!load->is_concluded && !atomic_load(&load->is_cancelled) &&
           load->pushed_count < load->page_count &&
           worker->batches_in_flight < TRANSFER_BATCHES_MAX) {
        struct load_batch batch = { .load = load, .first = load->pushed_count };
        while (batch.count < batch_pages && batch.first + batch.count < load->page_count) {
            const uint64_t bytes = page_bytes(worker, load->pages[batch.first + batch.count].group);
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
static void loads_grant(struct worker *worker)
{
    uint64_t bytes = worker->config.load_bytes_per_step;
    for (uint32_t i = 0; i < worker->config.layout->group_count; i++) {
        if (bytes < page_bytes(worker, i))
            bytes = page_bytes(worker, i);
    }
    worker->load_granted_bytes = bytes;
}

static void loads_push(struct worker *worker)
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

static void loads_check_deadlines(struct worker *worker, uint64_t now_ns)
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
        load_conclude(worker, load);
        load_free_if_over(load);
    }
}

/* ---- saves ---- */

static void save_count_result(struct worker *worker, const struct save_job *job)
{
    switch ((int)job->status) {
    case TARN_OK:
        if (job->was_present) {
            metric_add(METRIC_SAVE_SKIPPED, 1);
            return;
        }
        metric_add(METRIC_SAVE_PAGES, 1);
        metric_add(METRIC_SAVE_BYTES, (int64_t)page_bytes(worker, job->group));
        return;
    case TARN_STALE:
        metric_add(METRIC_SAVE_FAILED_GAP, 1);
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

static void save_take(struct worker *worker, const struct save_job *job, uint64_t now_ns)
{
    struct transfer_request *request = job->request;
    worker->saves_in_flight--;
    worker->pinned_bytes -= page_bytes(worker, job->group);
    transfer_report(worker, request->id, job->block, job->group, job->page, SAVE_RETIRED);
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
    request_drop_if_idle(worker, request);
}

void worker_collect(struct worker *worker, uint64_t now_ns)
{
    size_t count = 0;
    struct load_batch batch;
    while (queue_take(&worker->transfer.save_out, worker->scratch, SCRATCH_MAX, &count) ==
           TARN_OK) {
        for (size_t i = 0; i < count; i++)
            save_take(worker, &worker->scratch[i], now_ns);
    }
    while (queue_take(&worker->transfer.load_out, &batch, 1, &count) == TARN_OK)
        load_take(worker, &batch, now_ns);
    loads_check_deadlines(worker, now_ns);
    loads_push(worker);
    gauges_update(worker);
}

/* ---- life ---- */

enum tarn_status worker_open(struct worker *worker, const struct worker_config *config)
{
    *worker = (struct worker){ .config = *config };
    map_init(&worker->requests, sizeof(uint64_t));
    list_init(&worker->loads);
    worker->planned.item_bytes = sizeof(struct save_job);
    worker->transfers.item_bytes = sizeof(struct tarn_transfer);
    worker->transfer.store = config->store;
    worker->transfer.layout = config->layout;
    worker->transfer.namespaces = config->namespaces;
    worker->transfer.batch_pages = config->batch_pages;
    worker->transfer.extra_bytes = config->extra_bytes;
    worker->transfer.wakeup = config->wakeup;
    worker->scratch = mem_alloc(SCRATCH_MAX, sizeof(*worker->scratch));
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
    extras_free(worker);
    wire_buffer_deinit(&worker->report);
    mem_free(worker->planned.items);
    mem_free(worker->transfers.items);
    mem_free(worker->scratch);
    *worker = (struct worker){ .abandoned_count = 0 };
}

static void wait_for_threads(struct worker *worker, uint64_t deadline_ns)
{
    wakeup_wait(worker->config.wakeup, deadline_ns);
    wakeup_clear(worker->config.wakeup);
    worker_collect(worker, clock_now_ns());
}

static bool worker_is_idle(const struct worker *worker)
{
    return worker->saves_in_flight == 0 && worker->batches_in_flight == 0;
}

enum tarn_status worker_drain(struct worker *worker, uint64_t deadline_ns)
{
    const uint64_t now_ns = clock_now_ns();
    planned_drop(worker, 0, true, now_ns);
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (!load->is_concluded)
            load_conclude(worker, load);
    }
    worker_collect(worker, now_ns);
    while (!worker_is_idle(worker) && clock_now_ns() < deadline_ns)
        wait_for_threads(worker, deadline_ns);
    if (worker_is_idle(worker))
        return TARN_OK;

    size_t position = 0;
    for (struct transfer_request *request;
         (request = map_next(&worker->requests, &position)) != NULL;)
        transfer_request_cut(request, ++request->generation);
    const uint64_t grace_ns = clock_now_ns() + DROP_GRACE_MS * NS_PER_MS;
    while (!worker_is_idle(worker) && clock_now_ns() < grace_ns)
        wait_for_threads(worker, grace_ns);
    return worker_is_idle(worker) ? TARN_OK : TARN_AGAIN;
}

bool worker_has_news(const struct worker *worker)
{
    if (worker->transfers.count > 0)
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

/* ---- a step ---- */

/* What a step's message asks for, counted and checked before anything is made of it. */
struct step_size {
    size_t load_pages;
    size_t save_pages;
    size_t saves; /* blocks */
};

static enum tarn_status block_check(const struct worker *worker, struct wire_reader *reader)
{
    struct wire_block block;
    wire_next_block(reader, &block);
    for (uint32_t i = 0; i < reader->shape.group_count; i++) {
        if (!layout_has_page(worker->config.layout, i, block.pages[i]))
            return TARN_CORRUPT;
    }
    return TARN_OK;
}

static enum tarn_status metadata_check(const struct worker *worker, struct wire_reader reader,
                                       struct step_size *out_size)
{
    struct step_size size = { 0, 0, 0 };
    uint64_t id;
    uint64_t block;
    for (uint32_t i = 0; i < reader.counts[0]; i++) {
        uint32_t block_count;
        wire_next_load(&reader, &id, &block, &block_count);
        if (block_count == 0 || load_find(worker, id))
            return TARN_CORRUPT;
        for (uint32_t j = 0; j < block_count; j++)
            TRY(block_check(worker, &reader));
        size.load_pages += (size_t)block_count * reader.shape.group_count;
    }
    for (uint32_t i = 0; i < reader.counts[1]; i++) {
        wire_next_save(&reader, &id, &block);
        TRY(block_check(worker, &reader));
        size.save_pages += reader.shape.group_count;
        size.saves++;
    }
    *out_size = size;
    return TARN_OK;
}

static enum tarn_status load_make(struct wire_reader *reader, uint64_t now_ns, struct list *loads)
{
    uint32_t block_count;
    struct load *load = mem_alloc(1, sizeof(*load));
    if (!load)
        return TARN_NO_MEMORY;
    list_init(&load->link);
    list_push_back(loads, &load->link);
    wire_next_load(reader, &load->id, &load->first_block, &block_count);
    load->block_count = block_count;
    load->page_count = (size_t)block_count * reader->shape.group_count;
    load->started_ns = now_ns;
    load->pages = mem_alloc(load->page_count, sizeof(*load->pages));
    const size_t extra_bytes = reader->shape.extra_bytes;
    if (extra_bytes)
        load->extras = mem_alloc(block_count, extra_bytes);
    if (!load->pages || (extra_bytes && !load->extras))
        return TARN_NO_MEMORY;
    struct load_page *next = load->pages;
    for (uint32_t i = 0; i < block_count; i++) {
        struct wire_block block;
        wire_next_block(reader, &block);
        if (extra_bytes)
            memcpy(load->extras + i * extra_bytes, block.extra, extra_bytes);
        for (uint32_t group = 0; group < reader->shape.group_count; group++, next++)
            *next = (struct load_page){ .digest = block.digest,
                                        .page = block.pages[group],
                                        .block = load->first_block + i,
                                        .group = group };
    }
    return TARN_OK;
}

/* All that a step needs to be taken in: on failure nothing is left of it. */
static enum tarn_status step_reserve(struct worker *worker, struct wire_reader reader,
                                     const struct step_size *size, uint64_t now_ns,
                                     struct list *out_loads)
{
    /* Each started page still has to be retired, each planned one to be started as well. */
    TRY(ring_reserve(&worker->transfers,
                     worker->transfers.count + worker->started_count +
                         2 * (worker->planned.count + size->save_pages + size->load_pages)));
    TRY(ring_reserve(&worker->planned, worker->planned.count + size->save_pages));
    TRY(extras_reserve(worker, size->saves));
    for (uint32_t i = 0; i < reader.counts[0]; i++)
        TRY(load_make(&reader, now_ns, out_loads));
    for (uint32_t i = 0; i < reader.counts[1]; i++) {
        struct wire_block block;
        uint64_t id;
        uint64_t index;
        wire_next_save(&reader, &id, &index);
        wire_next_block(&reader, &block);
        TRY(request_make(worker, id));
    }
    return TARN_OK;
}

static void step_undo(struct worker *worker, struct list *loads)
{
    list_for_each (link, loads) {
        list_remove(link);
        load_destroy(LIST_ITEM(link, struct load, link));
    }
    for (bool found = true; found;) {
        size_t position = 0;
        found = false;
        for (struct transfer_request *request;
             !found && (request = map_next(&worker->requests, &position)) != NULL;) {
            found = request->job_count == 0;
            request_drop_if_idle(worker, request);
        }
    }
}

static void loads_begin(struct worker *worker, struct list *loads)
{
    list_for_each (link, loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        list_remove(link);
        list_push_back(&worker->loads, link);
        for (size_t i = 0; i < load->page_count; i++) {
            const struct load_page *page = &load->pages[i];
            transfer_report(worker, load->id, page->block, page->group, page->page, LOAD_STARTED);
        }
    }
}

static void saves_plan(struct worker *worker, struct wire_reader *reader)
{
    for (uint32_t i = 0; i < reader->counts[1]; i++) {
        struct wire_block block;
        struct save_job job = { .step_number = reader->number };
        uint64_t id;
        wire_next_save(reader, &id, &job.block);
        wire_next_block(reader, &block);
        job.request = request_find(worker, id);
        job.digest = block.digest;
        job.extra = extra_take(worker, &block);
        for (job.group = 0; job.group < reader->shape.group_count; job.group++) {
            job.page = block.pages[job.group];
            job.request->job_count++;
            if (job.extra)
                job.extra->user_count++;
            ring_push(&worker->planned, &job);
        }
    }
}

static void loads_skip(struct wire_reader *reader)
{
    for (uint32_t i = 0; i < reader->counts[0]; i++) {
        struct wire_block block;
        uint64_t id;
        uint64_t first;
        uint32_t block_count;
        wire_next_load(reader, &id, &first, &block_count);
        for (uint32_t j = 0; j < block_count; j++)
            wire_next_block(reader, &block);
    }
}

enum tarn_status worker_load_start(struct worker *worker, struct tarn_bytes metadata,
                                   uint64_t now_ns)
{
    struct wire_reader reader;
    struct step_size size;
    TRY(wire_open(metadata, WIRE_METADATA, worker_shape(worker), &reader));
    if (reader.number <= worker->metadata_number)
        return TARN_STALE;
    TRY(metadata_check(worker, reader, &size));
    struct list loads;
    list_init(&loads);
    const enum tarn_status status = step_reserve(worker, reader, &size, now_ns, &loads);
    if (status != TARN_OK) {
        step_undo(worker, &loads);
        return status;
    }
    worker->metadata_number = reader.number;
    loads_skip(&reader);
    saves_plan(worker, &reader);
    loads_begin(worker, &loads);
    loads_grant(worker);
    loads_push(worker);
    gauges_update(worker);
    return TARN_OK;
}

void worker_skip_step(struct worker *worker, uint64_t step_number)
{
    if (worker->metadata_number < step_number)
        worker->metadata_number = step_number;
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
        loads_grant(worker);
        loads_push(worker);
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
        wait_for_threads(worker, due_ns < deadline_ns ? due_ns : deadline_ns);
    }
}

/* Only what a verdict found good counts as loaded. */
static void loaded_count(const struct worker *worker, const struct tarn_loaded *loaded)
{
    for (uint32_t i = 0; i < worker->config.layout->group_count; i++) {
        metric_add(METRIC_LOAD_PAGES, (int64_t)loaded->block_count);
        metric_add(METRIC_LOAD_BYTES, (int64_t)(loaded->block_count * page_bytes(worker, i)));
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
        struct load *load = load_find(worker, loaded->id);
        if (load && load->is_concluded) {
            load->is_judged = true;
            load->is_reported = true;
            load_free_if_over(load);
        }
        loaded_count(worker, loaded);
        if (loaded->block_count < loaded->asked_count) {
            planned_drop(worker, loaded->id, false, clock_now_ns());
            LOG_LIMITED(LOG_WARN,
                        "request %" PRIu64 ": %" PRIu64 " of %" PRIu64 " blocks could be loaded%s",
                        loaded->id, loaded->block_count, loaded->asked_count,
                        loaded->status == TARN_OK ? ", the rest is computed" : "");
        }
    }
    *out_count = reader.counts[0];
    return TARN_OK;
}

/* ---- after the forward pass ---- */

static enum metric save_obstacle(const struct worker *worker, const struct save_job *job,
                                 bool is_forward_good)
{
    if (!is_forward_good || load_find(worker, job->request->id))
        return METRIC_SAVE_FAILED_FORWARD;
    if (job->request->dropped_step == job->step_number)
        return METRIC_SAVE_FAILED_GAP;
    if (worker->saves_in_flight >= worker->config.save_queue_pages_max)
        return METRIC_SAVE_FAILED_QUEUE;
    if (worker->pinned_bytes + page_bytes(worker, job->group) > worker->config.pinned_bytes_max)
        return METRIC_SAVE_FAILED_PINNED;
    return METRIC_COUNT;
}

static void save_start(struct worker *worker, struct save_job *job)
{
    worker->saves_in_flight++;
    worker->pinned_bytes += page_bytes(worker, job->group);
    job->generation = job->request->generation;
    transfer_report(worker, job->request->id, job->block, job->group, job->page, SAVE_STARTED);
}

/* Together, so that the save thread finds whole batches. */
static void saves_push(struct worker *worker, const struct save_job *jobs, size_t count)
{
    const enum tarn_status status = queue_push_all(&worker->transfer.save_in, jobs, count);
    ASSERT(status == TARN_OK); /* as large as save_queue_pages_max */
}

enum tarn_status worker_forward_done(struct worker *worker, uint64_t step_number,
                                     enum tarn_status status, uint64_t now_ns)
{
    if (step_number <= worker->forward_number || step_number > worker->metadata_number)
        return TARN_INVALID;
    worker->forward_number = step_number;
    size_t count = 0;
    while (worker->planned.count > 0) {
        struct save_job job;
        const struct save_job *front = ring_at(&worker->planned, 0);
        if (front->step_number > step_number)
            break;
        ring_pop(&worker->planned, &job);
        const bool is_good = status == TARN_OK && job.step_number == step_number;
        const enum metric obstacle = save_obstacle(worker, &job, is_good);
        if (obstacle == METRIC_COUNT) {
            save_start(worker, &job);
            worker->scratch[count++] = job;
            if (count == SCRATCH_MAX) {
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
    gauges_update(worker);
    return TARN_OK;
}

/* ---- the end of a request ---- */

static void load_stop(struct worker *worker, struct load *load)
{
    atomic_store(&load->is_cancelled, true);
    if (load->status == TARN_OK)
        load->status = TARN_IO;
    if (!load->is_concluded && load->returned_count == load->pushed_count)
        load_conclude(worker, load);
}

void worker_finish(struct worker *worker, uint64_t id, uint64_t now_ns)
{
    planned_drop(worker, id, false, now_ns);
    struct load *load = load_find(worker, id);
    if (!load)
        return;
    if (!load->is_concluded) {
        load_stop(worker, load);
        if (!load->is_concluded)
            load_conclude(worker, load);
    }
    load->is_reported = true;
    load->is_judged = true;
    load_free_if_over(load);
    gauges_update(worker);
}

static bool request_has_transfers(const struct worker *worker, uint64_t id)
{
    const struct transfer_request *request = request_find(worker, id);
    if (request && request->job_count > 0)
        return true;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        if (load->id == id && load->returned_count < load->pushed_count)
            return true;
    }
    return false;
}

enum tarn_status worker_quiesce(struct worker *worker, const uint64_t *ids, size_t count,
                                uint64_t deadline_ns)
{
    for (size_t i = 0; i < count; i++) {
        planned_drop(worker, ids[i], false, clock_now_ns());
        struct transfer_request *request = request_find(worker, ids[i]);
        if (request)
            transfer_request_cut(request, ++request->generation);
        list_for_each (link, &worker->loads) {
            struct load *load = LIST_ITEM(link, struct load, link);
            if (load->id == ids[i])
                load_stop(worker, load);
        }
    }
    for (size_t i = 0; i < count;) {
        if (!request_has_transfers(worker, ids[i])) {
            i++;
            continue;
        }
        if (clock_now_ns() >= deadline_ns)
            return TARN_AGAIN;
        wait_for_threads(worker, deadline_ns);
    }
    return TARN_OK;
}
