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

static void item_make(const struct transfer *transfer, const struct page *page,
                      struct tarn_span *spans, struct store_item *item)
{
    size_t span_count = transfer->layout->groups[page->group].region_count;
    const enum tarn_status status =
        layout_page_spans(transfer->layout, page->group, page->page, spans);
    ASSERT(status == TARN_OK); /* checked before the job was made */
    if (transfer->extra_bytes)
        spans[span_count++] = (struct tarn_span){ page->extra, transfer->extra_bytes };
    *item = (struct store_item){
        .key = { .digest = *page->digest,
                 .namespace_index = transfer->namespaces[page->group],
                 .depth = page->block > UINT32_MAX ? UINT32_MAX : (uint32_t)page->block },
        .spans = spans,
        .span_count = (uint32_t)span_count,
        .status = TARN_IO,
    };
}

/* The items of those jobs that are still wanted; the others get STALE. Returns how many. */
static size_t save_items_make(struct transfer *transfer, struct save_job *jobs, size_t count)
{
    size_t tried = 0;
    for (size_t i = 0; i < count; i++) {
        struct save_job *job = &jobs[i];
        const struct page page = { &job->digest, job->block, job->page, job->group,
                                   job->extra ? job->extra->bytes : NULL };
        job->status = TARN_STALE;
        if (job->generation < atomic_load(&job->request->saves_cut))
            continue;
        item_make(transfer, &page, transfer->save_spans + tried * spans_per_page(transfer),
                  &transfer->save_items[tried]);
        job->status = TARN_OK; /* tried */
        tried++;
    }
    return tried;
}

static void save_put(struct transfer *transfer, struct save_job *jobs, size_t count)
{
    const size_t tried = save_items_make(transfer, jobs, count);
    if (tried == 0)
        return;
    const enum tarn_status status = store_put(transfer->store, transfer->save_items, tried);
    for (size_t i = 0, next = 0; i < count; i++) {
        struct save_job *job = &jobs[i];
        if (job->status == TARN_STALE)
            continue;
        const struct store_item *item = &transfer->save_items[next++];
        job->status = status == TARN_OK ? item->status : status;
        job->was_present = item->was_present;
        if (job->status == TARN_STALE)
            job->status = TARN_IO;
        /* What follows in this chain would lie behind a gap. */
        if (job->status != TARN_OK)
            transfer_request_cut(job->request, job->generation + 1);
    }
}

static void save_main(void *context)
{
    struct transfer *transfer = context;
    size_t count = 0;
    while (queue_wait(&transfer->save_in, transfer->save_jobs, transfer->batch_pages, &count) ==
           TARN_OK) {
        save_put(transfer, transfer->save_jobs, count);
        for (size_t i = 0; i < count; i++) {
            const enum tarn_status status =
                queue_push(&transfer->save_out, &transfer->save_jobs[i]);
            ASSERT(status == TARN_OK); /* as large as the number of jobs in flight */
        }
        wakeup_signal(transfer->wakeup);
    }
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
    /* Its bytes are wrong: nobody shall find it again. Gone already is as good. */
    if (status == TARN_CORRUPT) {
        const enum tarn_status removed = store_remove(transfer->store, &item->key);
        LOG_LIMITED(LOG_WARN, "a page failed its checksum and was removed from the pool (%s)",
                    tarn_strerror(removed));
    }
    if (status == TARN_OK && transfer->extra_bytes &&
        memcmp(expected, found, transfer->extra_bytes) != 0) {
        LOG_LIMITED(LOG_ERROR, "a page has the digest of our tokens, but was stored for others");
        status = TARN_INVALID;
    }
    return status;
}

static void load_get(struct transfer *transfer, const struct load *load, struct load_page *pages,
                     size_t count)
{
    const size_t extra_bytes = transfer->extra_bytes;
    for (size_t i = 0; i < count; i++) {
        const struct page page = { &pages[i].digest, pages[i].block, pages[i].page, pages[i].group,
                                   transfer->load_extras + i * extra_bytes };
        item_make(transfer, &page, transfer->load_spans + i * spans_per_page(transfer),
                  &transfer->load_items[i]);
    }
    const enum tarn_status status = store_get(transfer->store, transfer->load_items, count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *expected =
            load->extras ? load->extras + (pages[i].block - load->first_block) * extra_bytes : NULL;
        if (status != TARN_OK)
            transfer->load_items[i].status = status;
        pages[i].status = load_judge(transfer, &transfer->load_items[i], expected,
                                     transfer->load_extras + i * extra_bytes);
    }
}

static void load_main(void *context)
{
    struct transfer *transfer = context;
    struct load_batch batch;
    size_t count = 0;
    while (queue_wait(&transfer->load_in, &batch, 1, &count) == TARN_OK) {
        if (atomic_load(&batch.load->is_cancelled)) {
            load_drop(batch.load->pages + batch.first, batch.count);
        } else {
            load_get(transfer, batch.load, batch.load->pages + batch.first, batch.count);
            atomic_store(&transfer->load_returned_ns, clock_now_ns());
        }
        const enum tarn_status status = queue_push(&transfer->load_out, &batch);
        ASSERT(status == TARN_OK); /* has room for one more than load_in */
        wakeup_signal(transfer->wakeup);
    }
}

enum tarn_status transfer_open(struct transfer *transfer, size_t save_count)
{
    const size_t batch = transfer->batch_pages;
    const size_t span_count = batch * spans_per_page(transfer);
    TRY(queue_init(&transfer->save_in, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->save_out, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->load_in, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    TRY(queue_init(&transfer->load_out, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    transfer->save_jobs = mem_alloc(batch, sizeof(*transfer->save_jobs));
    transfer->save_items = mem_alloc(batch, sizeof(*transfer->save_items));
    transfer->save_spans = mem_alloc(span_count, sizeof(*transfer->save_spans));
    transfer->load_items = mem_alloc(batch, sizeof(*transfer->load_items));
    transfer->load_spans = mem_alloc(span_count, sizeof(*transfer->load_spans));
    transfer->load_extras = mem_alloc(batch, transfer->extra_bytes ? transfer->extra_bytes : 1);
    if (!transfer->load_extras || !transfer->save_jobs || !transfer->save_items ||
        !transfer->save_spans || !transfer->load_items || !transfer->load_spans)
        return TARN_NO_MEMORY;
    TRY(thread_start(&transfer->save_thread, "tarn-save", save_main, transfer));
    return thread_start(&transfer->load_thread, "tarn-load", load_main, transfer);
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
    mem_free(transfer->save_jobs);
    mem_free(transfer->save_items);
    mem_free(transfer->save_spans);
    mem_free(transfer->load_items);
    mem_free(transfer->load_spans);
    mem_free(transfer->load_extras);
    *transfer = (struct transfer){ .store = NULL };
}
