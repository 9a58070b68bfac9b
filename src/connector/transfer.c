/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/transfer.h"

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"

void transfer_request_cut(struct transfer_request *request, uint32_t generation)
{
    uint32_t cut = atomic_load(&request->saves_cut);
    while (cut < generation && !atomic_compare_exchange_weak(&request->saves_cut, &cut, generation))
        ;
}

static struct store_key page_key(const struct transfer *transfer, const struct tarn_digest *digest,
                                 uint32_t group, uint64_t block)
{
    return (struct store_key){
        .digest = *digest,
        .namespace_index = transfer->namespaces[group],
        .depth = block > UINT32_MAX ? UINT32_MAX : (uint32_t)block,
    };
}

static void item_make(const struct transfer *transfer, struct store_item *item,
                      struct tarn_span *spans, struct store_key key, tarn_page page, uint32_t group)
{
    const enum tarn_status status = layout_page_spans(transfer->layout, group, page, spans);
    ASSERT(status == TARN_OK); /* checked before the job was made */
    *item = (struct store_item){
        .key = key,
        .spans = spans,
        .span_count = (uint32_t)transfer->layout->groups[group].region_count,
        .status = TARN_IO,
    };
}

static void save_put(struct transfer *transfer, struct save_job *jobs, size_t count)
{
    size_t tried = 0;
    for (size_t i = 0; i < count; i++) {
        struct save_job *job = &jobs[i];
        job->status = TARN_STALE;
        if (job->generation < atomic_load(&job->request->saves_cut))
            continue;
        item_make(transfer, &transfer->save_items[tried],
                  transfer->save_spans + tried * transfer->layout->region_count_max,
                  page_key(transfer, &job->digest, job->group, job->block), job->page, job->group);
        job->status = TARN_OK; /* tried */
        tried++;
    }
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

static void load_get(struct transfer *transfer, struct load_page *pages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        item_make(transfer, &transfer->load_items[i],
                  transfer->load_spans + i * transfer->layout->region_count_max,
                  page_key(transfer, &pages[i].digest, pages[i].group, pages[i].block),
                  pages[i].page, pages[i].group);
    const enum tarn_status status = store_get(transfer->store, transfer->load_items, count);
    for (size_t i = 0; i < count; i++) {
        const struct store_item *item = &transfer->load_items[i];
        pages[i].status = status == TARN_OK ? item->status : status;
        if (pages[i].status == TARN_STALE)
            pages[i].status = TARN_MISS;
        /* Its bytes are wrong: nobody shall find it again. Gone already is as good. */
        if (pages[i].status == TARN_CORRUPT) {
            const enum tarn_status removed = store_remove(transfer->store, &item->key);
            LOG_LIMITED(LOG_WARN, "a page failed its checksum and was removed from the pool (%s)",
                        tarn_strerror(removed));
        }
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
            load_get(transfer, batch.load->pages + batch.first, batch.count);
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
    const size_t span_count = batch * transfer->layout->region_count_max;
    TRY(queue_init(&transfer->save_in, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->save_out, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->load_in, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    TRY(queue_init(&transfer->load_out, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    transfer->save_jobs = mem_alloc(batch, sizeof(*transfer->save_jobs));
    transfer->save_items = mem_alloc(batch, sizeof(*transfer->save_items));
    transfer->save_spans = mem_alloc(span_count, sizeof(*transfer->save_spans));
    transfer->load_items = mem_alloc(batch, sizeof(*transfer->load_items));
    transfer->load_spans = mem_alloc(span_count, sizeof(*transfer->load_spans));
    if (!transfer->save_jobs || !transfer->save_items || !transfer->save_spans ||
        !transfer->load_items || !transfer->load_spans)
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
    *transfer = (struct transfer){ .store = NULL };
}
