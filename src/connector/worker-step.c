/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a step in: all of it is checked and reserved before anything begins. */
#include <string.h>

#include "base/alloc.h"
#include "connector/broken.h"
#include "connector/worker-parts.h"

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

/* A load of the request that has no verdict. With several ranks the leader may have ended it and
 * used its id again, and then all pages of it were let go of; who said so may come later. */
static bool load_is_in_the_way(const struct worker *worker, uint64_t id)
{
    const struct load *load = worker_load_find(worker, id);
    return load && (worker->config.rank_count == 1 || !load->is_concluded ||
                    load->returned_count < load->pushed_count);
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
        if (block_count == 0 || load_is_in_the_way(worker, id))
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

static enum tarn_status load_make(const struct worker *worker, struct wire_reader *reader,
                                  uint64_t now_ns, struct list *loads)
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
    load->step_number = reader->head.number;
    load->started_ns = now_ns;
    load->is_staged = worker->config.placement->stages_all[TARN_TRANSFER_LOAD];
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
    /* Two of a save: that its page is free, and what came of it. */
    if (worker->config.rank_count > 1)
        TRY(ring_reserve(&worker->releases,
                         worker->releases.count + worker->started_count + worker->saves_in_flight +
                             2 * (worker->planned.count + size->save_pages) + size->load_pages));
    TRY(worker_extras_reserve(worker, size->saves));
    for (uint32_t i = 0; i < reader.counts[0]; i++)
        TRY(load_make(worker, &reader, now_ns, out_loads));
    for (uint32_t i = 0; i < reader.counts[1]; i++) {
        struct wire_block block;
        uint64_t id;
        uint64_t index;
        wire_next_save(&reader, &id, &index);
        wire_next_block(&reader, &block);
        TRY(worker_request_make(worker, id));
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
            worker_request_drop_if_idle(worker, request);
        }
    }
}

static void loads_begin(struct worker *worker, struct list *loads, uint64_t now_ns)
{
    list_for_each (link, loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (worker_load_find(worker, load->id))
            worker_finish(worker, load->id, load->step_number - 1, now_ns);
        list_remove(link);
        list_push_back(&worker->loads, link);
        worker_load_lease(worker, load);
        for (size_t i = 0; i < load->page_count; i++) {
            const struct load_page *page = &load->pages[i];
            worker_report_transfer(worker, load->id, page->block, page->group, page->page,
                                   LOAD_STARTED);
        }
    }
}

static void saves_plan(struct worker *worker, struct wire_reader *reader)
{
    for (uint32_t i = 0; i < reader->counts[1]; i++) {
        struct wire_block block;
        struct save_job job = { .step_number = reader->head.number };
        uint64_t id;
        wire_next_save(reader, &id, &job.block);
        wire_next_block(reader, &block);
        job.request = worker_request_find(worker, id);
        job.digest = block.digest;
        job.extra = worker_extra_take(worker, &block);
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

/* STALE: taken in before. AGAIN: what was sent before it has not been taken in yet. */
static enum tarn_status step_is_due(const struct worker *worker, const struct wire_head *head)
{
    if (worker->failure != TARN_OK)
        return worker->failure;
    if (head->rank != 0)
        return TARN_CORRUPT;
    if (head->number <= worker->metadata_number && !BROKEN(TAKE_STEP_TWICE))
        return TARN_STALE;
    if (worker->config.rank_count == 1)
        return TARN_OK;
    if (head->previous > worker->metadata_number && !BROKEN(TAKE_STEP_EARLY))
        return TARN_AGAIN;
    if (!wire_window_has_all(&worker->verdicts, head->verdict) && !BROKEN(RUN_BEFORE_VERDICT))
        return TARN_AGAIN;
    return TARN_OK;
}

enum tarn_status worker_load_start(struct worker *worker, struct tarn_bytes metadata,
                                   uint64_t now_ns)
{
    struct wire_reader reader;
    struct step_size size;
    TRY(wire_open(metadata, WIRE_METADATA, worker_shape(worker), &reader));
    TRY(step_is_due(worker, &reader.head));
    TRY(metadata_check(worker, reader, &size));
    struct list loads;
    list_init(&loads);
    const enum tarn_status status = step_reserve(worker, reader, &size, now_ns, &loads);
    if (status != TARN_OK) {
        step_undo(worker, &loads);
        return status;
    }
    worker->metadata_number = reader.head.number;
    loads_skip(&reader);
    saves_plan(worker, &reader);
    loads_begin(worker, &loads, now_ns);
    worker_loads_grant(worker);
    worker_loads_push(worker);
    worker_gauges_update(worker);
    return TARN_OK;
}

void worker_skip_step(struct worker *worker, uint64_t step_number)
{
    if (worker->metadata_number < step_number)
        worker->metadata_number = step_number;
}
