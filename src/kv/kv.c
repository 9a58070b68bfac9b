/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/kv.h"

#include "base/alloc.h"
#include "kv/page.h"

static void kv_init_pages(struct kv *kv)
{
    list_init(&kv->free);
    for (size_t i = 0; i < LENGTH_OF(kv->buckets); i++)
        list_init(&kv->buckets[i]);
    for (uint32_t i = 0; i < kv->options.page_count; i++) {
        list_init(&kv->pages[i].children);
        list_init(&kv->pages[i].sibling);
        list_push_back(&kv->free, &kv->pages[i].link);
    }
    kv->counts.pages[KV_FREE] = kv->options.page_count;
}

static void kv_init_sequences(struct kv *kv, size_t blocks_max)
{
    list_init(&kv->idle_sequences);
    list_init(&kv->open_sequences);
    for (uint32_t i = 0; i < kv->options.sequence_max; i++) {
        kv->sequences[i].pages = kv->page_tables + i * blocks_max;
        list_push_back(&kv->idle_sequences, &kv->sequences[i].link);
    }
}

static void kv_free(struct kv *kv)
{
    map_deinit(&kv->nodes);
    mem_free(kv->page_tables);
    mem_free(kv->sequences);
    mem_free(kv->tokens);
    mem_free(kv->pages);
    mem_free(kv);
}

enum tarn_status kv_create(const struct kv_options *options, struct kv **out_kv)
{
    ASSERT(options->page_bytes && options->page_count && options->page_tokens);
    ASSERT(!options->page_stride_bytes || options->page_stride_bytes >= options->page_bytes);
    ASSERT(options->sequence_max && options->sequence_tokens_max);
    const size_t blocks_max = (size_t)options->sequence_tokens_max / options->page_tokens + 1;
    struct kv *kv = mem_alloc(1, sizeof(*kv));
    if (!kv)
        return TARN_NO_MEMORY;
    kv->options = *options;
    if (!kv->options.page_stride_bytes)
        kv->options.page_stride_bytes = options->page_bytes;
    map_init(&kv->nodes, sizeof(struct tarn_digest));
    kv->pages = mem_alloc(options->page_count, sizeof(*kv->pages));
    kv->tokens = mem_alloc(options->page_count, options->page_tokens * sizeof(*kv->tokens));
    kv->sequences = mem_alloc(options->sequence_max, sizeof(*kv->sequences));
    kv->page_tables = mem_alloc(options->sequence_max, blocks_max * sizeof(*kv->page_tables));
    if (!kv->pages || !kv->tokens || !kv->sequences || !kv->page_tables ||
        map_reserve(&kv->nodes, options->page_count) != TARN_OK) {
        kv_free(kv);
        return TARN_NO_MEMORY;
    }
    kv_init_pages(kv);
    kv_init_sequences(kv, blocks_max);
    *out_kv = kv;
    return TARN_OK;
}

void kv_destroy(struct kv *kv)
{
    if (!kv)
        return;
    list_for_each (link, &kv->open_sequences)
        kv_sequence_close(kv, LIST_ITEM(link, struct kv_sequence, link));
    kv_free(kv);
}

void kv_counts(const struct kv *kv, struct kv_counts *out_counts)
{
    *out_counts = kv->counts;
}
