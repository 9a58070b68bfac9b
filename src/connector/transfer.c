/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/transfer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"

void transfer_request_cut(struct transfer_request *request, uint32_t generation)
{
    uint32_t cut = atomic_load(&request->saves_cut);
    while (cut < generation && !atomic_compare_exchange_weak(&request->saves_cut, &cut, generation))
        ;
}

/* Room for the spans of one page and for what is stored behind it. */
static size_t spans_per_page(const struct transfer *transfer)
{
    return transfer->layout->region_count_max + 1;
}

/* A page to get or put. */
struct page {
    const struct tarn_digest *digest;
    uint64_t block;
    tarn_page page;
    uint32_t group;
    uint8_t *extra; /* extra_bytes of them, if there are any */
};

static uint32_t batch_of(const struct transfer *transfer, enum tarn_transfer_kind kind)
{
    return transfer->placement->batch_pages[kind];
}

static struct store_key key_of(const struct transfer *transfer, const struct page *page)
{
    return (struct store_key){
        .digest = *page->digest,
        .namespace_index = transfer->namespaces[page->group],
        .depth = page->block > UINT32_MAX ? UINT32_MAX : (uint32_t)page->block,
    };
}

static void item_in_place(const struct transfer *transfer, const struct page *page,
                          struct tarn_span *spans, struct store_item *item)
{
    size_t span_count = transfer->layout->groups[page->group].region_count;
    const enum tarn_status status =
        layout_page_spans(transfer->layout, page->group, page->page, spans);
    ASSERT(status == TARN_OK); /* checked before the job was made */
    if (transfer->extra_bytes)
        spans[span_count++] = (struct tarn_span){ page->extra, transfer->extra_bytes };
    *item = (struct store_item){
        .key = key_of(transfer, page),
        .spans = spans,
        .span_count = (uint32_t)span_count,
        .status = TARN_IO,
        .has_headroom = transfer->placement->has_headroom,
    };
}

static void item_staged(const struct transfer *transfer, const struct staging *staging, size_t slot,
                        const struct page *page, struct tarn_span *span, struct store_item *item)
{
    *span = staging_span(staging, slot, page->group);
    *item = (struct store_item){
        .key = key_of(transfer, page),
        .spans = span,
        .span_count = 1,
        .status = TARN_IO,
        .has_headroom = staging->slots.headroom_bytes > 0,
    };
}

/* The call got nowhere if nothing of it did. */
static enum answer answer_of(enum tarn_status status, const struct store_item *items, size_t count)
{
    for (size_t i = 0; i < count && status == TARN_OK; i++) {
        if (items[i].status != TARN_IO)
            return ANSWER_GOOD;
    }
    return status >= 0 && status != TARN_OK ? ANSWER_NONE : ANSWER_BAD;
}

/* ---- saves ---- */

/* What follows in this chain would lie behind a gap. */
static void save_fail(struct save_job *job, enum tarn_status status)
{
    job->status = status;
    transfer_request_cut(job->request, job->generation + 1);
}

/* Whether the step's forward pass is over and good. */
static bool save_event_is_good(struct transfer *transfer, const struct save_job *job)
{
    if (transfer->event_step != job->step_number) {
        transfer->event_step = job->step_number;
        transfer->event_status = device_event_wait(transfer->device, job->event);
    }
    return transfer->event_status == TARN_OK;
}

static bool save_is_staged(const struct transfer *transfer, const struct save_job *job)
{
    if (placement_stages(transfer->placement, TARN_TRANSFER_SAVE, job->group, job->page))
        return true;
    return job->copy_first && placement_can_stage(transfer->placement, TARN_TRANSFER_SAVE);
}

/* Job i's page to slot i. */
static void save_gather(struct transfer *transfer, struct save_job *job, size_t slot)
{
    const struct staging *staging = &transfer->placement->pools[TARN_TRANSFER_SAVE];
    const enum tarn_status status = staging_gather(staging, slot, job->group, job->page);
    if (status != TARN_OK) {
        save_fail(job, status);
        return;
    }
    if (transfer->extra_bytes)
        memcpy(staging_extra(staging, slot, job->group), job->extra->bytes, transfer->extra_bytes);
    job->is_copied = true;
}

/* OK for the jobs that are to be put; those to be staged are in their slots. */
static void saves_prepare(struct transfer *transfer, struct save_job *jobs, size_t count)
{
    bool has_copies = false;
    for (size_t i = 0; i < count; i++) {
        struct save_job *job = &jobs[i];
        job->status = TARN_STALE;
        job->answer = ANSWER_NONE;
        job->is_over = true;
        if (job->generation < atomic_load(&job->request->saves_cut))
            continue;
        if (!save_event_is_good(transfer, job)) {
            job->is_forward_bad = true;
            save_fail(job, TARN_STALE);
            continue;
        }
        job->status = TARN_OK;
        if (save_is_staged(transfer, job)) {
            save_gather(transfer, job, i);
            has_copies = true;
        }
    }
    if (!has_copies || staging_wait(&transfer->placement->pools[TARN_TRANSFER_SAVE]) == TARN_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].is_copied)
            continue;
        jobs[i].is_copied = false;
        save_fail(&jobs[i], TARN_IO);
    }
}

/* Their pages are free before the store has seen their bytes. */
static void saves_tell_copied(struct transfer *transfer, const struct save_job *jobs, size_t count)
{
    bool has_copies = false;
    for (size_t i = 0; i < count; i++) {
        struct save_job copied = jobs[i];
        if (!copied.is_copied)
            continue;
        copied.is_over = false;
        const enum tarn_status status = queue_push(&transfer->save_out, &copied);
        ASSERT(status == TARN_OK); /* twice as large as the number of jobs in flight */
        has_copies = true;
    }
    if (has_copies)
        wakeup_signal(transfer->wakeup);
}

/* The items of those jobs that are OK. Returns how many. */
static size_t save_items_make(struct transfer *transfer, const struct save_job *jobs, size_t count)
{
    const struct staging *staging = &transfer->placement->pools[TARN_TRANSFER_SAVE];
    size_t tried = 0;
    for (size_t i = 0; i < count; i++) {
        const struct save_job *job = &jobs[i];
        const struct page page = { &job->digest, job->block, job->page, job->group,
                                   job->extra ? job->extra->bytes : NULL };
        struct tarn_span *spans = transfer->save_spans + tried * spans_per_page(transfer);
        if (job->status != TARN_OK)
            continue;
        if (job->is_copied)
            item_staged(transfer, staging, i, &page, spans, &transfer->save_items[tried++]);
        else
            item_in_place(transfer, &page, spans, &transfer->save_items[tried++]);
    }
    return tried;
}

static void save_put(struct transfer *transfer, struct save_job *jobs, size_t count)
{
    saves_prepare(transfer, jobs, count);
    saves_tell_copied(transfer, jobs, count);
    const size_t tried = save_items_make(transfer, jobs, count);
    if (tried == 0)
        return;
    const enum tarn_status status = store_put(transfer->store, transfer->save_items, tried);
    enum answer answer = answer_of(status, transfer->save_items, tried);
    for (size_t i = 0, next = 0; i < count; i++) {
        struct save_job *job = &jobs[i];
        if (job->status != TARN_OK)
            continue;
        const struct store_item *item = &transfer->save_items[next++];
        job->answer = answer;
        answer = ANSWER_NONE; /* once a call */
        job->was_present = item->was_present;
        job->status = status == TARN_OK ? item->status : status;
        if (job->status != TARN_OK)
            save_fail(job, job->status == TARN_STALE ? TARN_IO : job->status);
    }
}

/* A thread works on the device that the pages lie on, not on its own first one. */
static void thread_begin(struct transfer *transfer)
{
    const enum tarn_status adopted = device_adopt(transfer->device);
    const enum tarn_status status = queue_push(&transfer->started, &adopted);
    ASSERT(status == TARN_OK);
}

static void save_main(void *context)
{
    struct transfer *transfer = context;
    const size_t batch = batch_of(transfer, TARN_TRANSFER_SAVE);
    size_t count = 0;
    thread_begin(transfer);
    while (queue_wait(&transfer->save_in, transfer->save_jobs, batch, &count) == TARN_OK) {
        save_put(transfer, transfer->save_jobs, count);
        for (size_t i = 0; i < count; i++) {
            const enum tarn_status status =
                queue_push(&transfer->save_out, &transfer->save_jobs[i]);
            ASSERT(status == TARN_OK); /* twice as large as the number of jobs in flight */
        }
        wakeup_signal(transfer->wakeup);
    }
}

/* ---- loads ---- */

static bool load_scatter_begin(struct load *load)
{
    uint32_t open = SCATTER_OPEN;
    return atomic_compare_exchange_strong(&load->scatter, &open, SCATTER_BUSY);
}

static void load_scatter_end(struct load *load)
{
    atomic_store(&load->scatter, SCATTER_OPEN);
}

bool load_close_scatter(struct load *load)
{
    uint32_t open = SCATTER_OPEN;
    return atomic_compare_exchange_strong(&load->scatter, &open, SCATTER_CLOSED);
}

static void load_drop(struct load_page *pages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pages[i].status = TARN_STALE;
}

/* The status of a page that the store has answered for. */
static enum tarn_status load_judge(struct transfer *transfer, const struct store_item *item,
                                   const uint8_t *expected, const uint8_t *found)
{
    enum tarn_status status = item->status == TARN_STALE ? TARN_MISS : item->status;
    ASSERT(transfer->extra_bytes == 0 || (expected && found));
    /* Its bytes are wrong: nobody shall find it again. Gone already is as good. */
    if (status == TARN_CORRUPT) {
        const enum tarn_status removed = store_remove(transfer->store, &item->key);
        if (removed == TARN_OK || removed == TARN_MISS)
            LOG_LIMITED(LOG_WARN, "a page failed its checksum and was removed from the pool");
        else
            LOG_LIMITED(LOG_WARN, "a page failed its checksum and stays in the pool for now: %s",
                        tarn_strerror(removed));
    }
    if (status == TARN_OK && transfer->extra_bytes &&
        memcmp(expected, found, transfer->extra_bytes) != 0) {
        LOG_LIMITED(LOG_ERROR, "a page has the digest of our tokens, but was stored for others");
        status = TARN_INVALID;
    }
    return status;
}

/* Verified pages from their slots to where they belong, in block order up to the first failure. */
static void load_scatter(struct transfer *transfer, struct load_page *pages, size_t count)
{
    const struct staging *staging = &transfer->placement->pools[TARN_TRANSFER_LOAD];
    size_t good = 0;
    for (; good < count && pages[good].status == TARN_OK; good++) {
        if (pages[good].is_staged)
            pages[good].status =
                staging_scatter(staging, good, pages[good].group, pages[good].page);
        if (pages[good].status != TARN_OK)
            break;
    }
    const enum tarn_status waited = staging_wait(staging);
    for (size_t i = 0; i < count; i++) {
        if (!pages[i].is_staged || pages[i].status != TARN_OK)
            continue;
        pages[i].status = i < good ? waited : TARN_STALE;
        if (pages[i].status == TARN_OK && !store_holds(transfer->store, &transfer->load_items[i]))
            pages[i].status = TARN_IO; /* the slot was written to under the copy */
    }
}

static void load_scatter_if_wanted(struct transfer *transfer, struct load *load,
                                   struct load_page *pages, size_t count)
{
    bool has_staged = false;
    for (size_t i = 0; i < count; i++)
        has_staged = has_staged || pages[i].is_staged;
    if (!has_staged)
        return;
    if (load_scatter_begin(load)) {
        load_scatter(transfer, pages, count);
        load_scatter_end(load);
        return;
    }
    for (size_t i = 0; i < count; i++) { /* given up, and its pages may be others' by now */
        if (pages[i].is_staged && pages[i].status == TARN_OK)
            pages[i].status = TARN_STALE;
    }
}

static void load_items_make(struct transfer *transfer, struct load_page *pages, size_t count)
{
    const struct staging *staging = &transfer->placement->pools[TARN_TRANSFER_LOAD];
    for (size_t i = 0; i < count; i++) {
        const struct page page = { &pages[i].digest, pages[i].block, pages[i].page, pages[i].group,
                                   transfer->load_extras + i * transfer->extra_bytes };
        struct tarn_span *spans = transfer->load_spans + i * spans_per_page(transfer);
        pages[i].is_staged = placement_stages(transfer->placement, TARN_TRANSFER_LOAD,
                                              pages[i].group, pages[i].page);
        if (pages[i].is_staged)
            item_staged(transfer, staging, i, &page, spans, &transfer->load_items[i]);
        else
            item_in_place(transfer, &page, spans, &transfer->load_items[i]);
    }
}

static enum answer load_get(struct transfer *transfer, struct load *load, struct load_page *pages,
                            size_t count)
{
    const struct staging *staging = &transfer->placement->pools[TARN_TRANSFER_LOAD];
    const size_t extra_bytes = transfer->extra_bytes;
    load_items_make(transfer, pages, count);
    const enum tarn_status status = store_get(transfer->store, transfer->load_items, count);
    const enum answer answer = answer_of(status, transfer->load_items, count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *expected =
            load->extras ? load->extras + (pages[i].block - load->first_block) * extra_bytes : NULL;
        const uint8_t *found = pages[i].is_staged ? staging_extra(staging, i, pages[i].group)
                                                  : transfer->load_extras + i * extra_bytes;
        if (status != TARN_OK)
            transfer->load_items[i].status = status;
        pages[i].status = load_judge(transfer, &transfer->load_items[i], expected, found);
    }
    load_scatter_if_wanted(transfer, load, pages, count);
    for (size_t i = 0; i < count; i++) {
        if (pages[i].status != TARN_OK)
            atomic_store(&load->is_cancelled, true); /* what is behind it would not be used */
    }
    return answer;
}

static void load_main(void *context)
{
    struct transfer *transfer = context;
    struct load_batch batch;
    size_t count = 0;
    thread_begin(transfer);
    while (queue_wait(&transfer->load_in, &batch, 1, &count) == TARN_OK) {
        if (atomic_load(&batch.load->is_cancelled)) {
            load_drop(batch.load->pages + batch.first, batch.count);
        } else {
            batch.answer =
                load_get(transfer, batch.load, batch.load->pages + batch.first, batch.count);
            atomic_store(&transfer->load_returned_ns, clock_now_ns());
        }
        const enum tarn_status status = queue_push(&transfer->load_out, &batch);
        ASSERT(status == TARN_OK); /* has room for one more than load_in */
        wakeup_signal(transfer->wakeup);
    }
}

/* ---- life ---- */

static enum tarn_status threads_start(struct transfer *transfer)
{
    enum tarn_status adopted[2] = { TARN_OK, TARN_OK };
    size_t count = 0;
    TRY(queue_init(&transfer->started, sizeof(enum tarn_status), 2));
    TRY(thread_start(&transfer->save_thread, "tarn-save", save_main, transfer));
    TRY(queue_wait(&transfer->started, &adopted[0], 1, &count));
    TRY(thread_start(&transfer->load_thread, "tarn-load", load_main, transfer));
    TRY(queue_wait(&transfer->started, &adopted[1], 1, &count));
    return adopted[0] != TARN_OK ? adopted[0] : adopted[1];
}

enum tarn_status transfer_open(struct transfer *transfer, size_t save_count)
{
    const size_t saves = batch_of(transfer, TARN_TRANSFER_SAVE);
    const size_t loads = batch_of(transfer, TARN_TRANSFER_LOAD);
    TRY(queue_init(&transfer->save_in, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->save_out, sizeof(struct save_job), 2 * save_count));
    TRY(queue_init(&transfer->load_in, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    TRY(queue_init(&transfer->load_out, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    transfer->save_jobs = mem_alloc(saves, sizeof(*transfer->save_jobs));
    transfer->save_items = mem_alloc(saves, sizeof(*transfer->save_items));
    transfer->save_spans =
        mem_alloc(saves * spans_per_page(transfer), sizeof(*transfer->save_spans));
    transfer->load_items = mem_alloc(loads, sizeof(*transfer->load_items));
    transfer->load_spans =
        mem_alloc(loads * spans_per_page(transfer), sizeof(*transfer->load_spans));
    transfer->load_extras = mem_alloc(loads, transfer->extra_bytes ? transfer->extra_bytes : 1);
    if (!transfer->load_extras || !transfer->save_jobs || !transfer->save_items ||
        !transfer->save_spans || !transfer->load_items || !transfer->load_spans)
        return TARN_NO_MEMORY;
    return threads_start(transfer);
}

void transfer_close(struct transfer *transfer)
{
    if (transfer->save_thread.is_started)
        queue_close(&transfer->save_in);
    if (transfer->load_thread.is_started)
        queue_close(&transfer->load_in);
    thread_join(&transfer->save_thread);
    thread_join(&transfer->load_thread);
    queue_deinit(&transfer->save_in);
    queue_deinit(&transfer->save_out);
    queue_deinit(&transfer->load_in);
    queue_deinit(&transfer->load_out);
    queue_deinit(&transfer->started);
    mem_free(transfer->save_jobs);
    mem_free(transfer->save_items);
    mem_free(transfer->save_spans);
    mem_free(transfer->load_items);
    mem_free(transfer->load_spans);
    mem_free(transfer->load_extras);
    *transfer = (struct transfer){ .store = NULL };
}
