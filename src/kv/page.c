/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/page.h"

#include <string.h>

#include "kv/broken.h"

struct kv_page *kv_page_at(const struct kv *kv, uint64_t address)
{
    const uint64_t base = (uint64_t)(uintptr_t)kv->options.memory;
    const uint64_t offset = address - base;
    if (address < base || offset % kv->options.page_stride_bytes != 0)
        return NULL;
    const uint64_t index = offset / kv->options.page_stride_bytes;
    return index < kv->options.page_count ? &kv->pages[index] : NULL;
}

void *kv_page_address(const struct kv *kv, const struct kv_page *page)
{
    return (char *)kv->options.memory +
           (uint64_t)(page - kv->pages) * kv->options.page_stride_bytes;
}

int32_t *kv_page_tokens(const struct kv *kv, const struct kv_page *page)
{
    return kv->tokens + (size_t)(page - kv->pages) * kv->options.page_tokens;
}

static enum kv_page_state page_state(const struct kv_page *page)
{
    if (page->owner_count)
        return KV_LOCKED;
    if (page->in_tree)
        return KV_DROPPABLE;
    if (page->transfer_count && !BROKEN(FREE_UNDER_TRANSFER))
        return KV_RETIRING;
    return KV_FREE;
}

void kv_page_settle(struct kv *kv, struct kv_page *page)
{
    const enum kv_page_state state = page_state(page);
    const bool evictable =
        state == KV_DROPPABLE && (page->busy_count == 0 || BROKEN(EVICT_UNDER_TRANSFER));

    if (state == page->state && evictable == page->evictable)
        return;
    list_remove(&page->link);
    kv->counts.pages[page->state]--;
    kv->counts.pages[state]++;
    kv->counts.evictable -= page->evictable;
    kv->counts.evictable += evictable;
    page->state = state;
    page->evictable = evictable;
    if (state == KV_FREE)
        list_push_front(&kv->free, &page->link);
    else if (evictable)
        list_push_back(&kv->buckets[page->priority], &page->link);
}

void kv_page_own(struct kv *kv, struct kv_page *page)
{
    page->owner_count++;
    kv_page_settle(kv, page);
}

void kv_page_release(struct kv *kv, struct kv_page *page)
{
    ASSERT(page->owner_count > 0);
    page->owner_count--;
    kv_page_settle(kv, page);
}

static struct kv_page *page_to_evict(struct kv *kv)
{
    for (size_t i = 0; i < LENGTH_OF(kv->buckets); i++)
        if (!list_is_empty(&kv->buckets[i]))
            return LIST_ITEM(kv->buckets[i].next, struct kv_page, link);
    return NULL;
}

enum tarn_status kv_page_make_room(struct kv *kv, uint32_t count)
{
    if (count > kv->counts.pages[KV_FREE] + kv->counts.evictable)
        return TARN_NO_SPACE;
    while (kv->counts.pages[KV_FREE] < count) {
        struct kv_page *page = page_to_evict(kv);
        ASSERT(page);
        kv_tree_evict(kv, page);
    }
    return TARN_OK;
}

void kv_page_scrub(struct kv *kv, struct kv_page *page)
{
    if (page->unverified && !BROKEN(KEEP_GARBAGE))
        memset(kv_page_address(kv, page), 0, kv->options.page_bytes);
    page->unverified = false;
}

struct kv_page *kv_page_take(struct kv *kv)
{
    ASSERT(!list_is_empty(&kv->free));
    struct kv_page *page = LIST_ITEM(kv->free.next, struct kv_page, link);
    kv_page_own(kv, page);
    kv_page_scrub(kv, page);
    return page;
}

static enum tarn_status transfer_started(struct kv *kv, struct kv_page *page, uint16_t kind)
{
    const bool stray = page->state == KV_FREE;
    page->transfer_count++;
    if (kind == TARN_TRANSFER_LOAD)
        page->unverified = true;
    if (page->transfer_count == 1) {
        kv->counts.pinned++;
        if (page->in_tree)
            kv_tree_mark_busy(kv, page, true);
    }
    kv_page_settle(kv, page);
    return stray ? TARN_INVALID : TARN_OK;
}

static enum tarn_status transfer_retired(struct kv *kv, struct kv_page *page)
{
    if (page->transfer_count == 0)
        return TARN_INVALID;
    page->transfer_count--;
    if (page->transfer_count == 0) {
        kv->counts.pinned--;
        if (page->in_tree)
            kv_tree_mark_busy(kv, page, false);
    }
    kv_page_settle(kv, page);
    return TARN_OK;
}

enum tarn_status kv_transfer(struct kv *kv, const struct tarn_transfer *transfer)
{
    struct kv_page *page = kv_page_at(kv, transfer->page);
    if (!page)
        return TARN_INVALID;
    if (transfer->phase == TARN_TRANSFER_STARTED)
        return transfer_started(kv, page, transfer->kind);
    if (transfer->phase == TARN_TRANSFER_RETIRED)
        return transfer_retired(kv, page);
    return TARN_INVALID;
}
