/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kv/broken.h"
#include "kv/page.h"

struct kv_page *kv_tree_find(const struct kv *kv, const struct tarn_digest *digest,
                             const struct kv_page *parent, const int32_t *tokens)
{
    struct kv_page *page = map_get(&kv->nodes, digest);
    if (!page || BROKEN(MATCH_DIGEST_ONLY))
        return page;
    if (page->parent != parent ||
        memcmp(kv_page_tokens(kv, page), tokens, kv->options.page_tokens * sizeof(*tokens)) != 0)
        return NULL;
    return page;
}

void kv_tree_insert(struct kv *kv, struct kv_page *page, const struct tarn_digest *digest,
                    struct kv_page *parent, const int32_t *tokens)
{
    ASSERT(!page->in_tree && page->busy_count == 0 && list_is_empty(&page->children));
    memcpy(kv_page_tokens(kv, page), tokens, kv->options.page_tokens * sizeof(*tokens));
    page->digest = *digest;
    page->parent = parent;
    page->in_tree = true;
    if (parent)
        list_push_back(&parent->children, &page->sibling);
    /* Room for every page was reserved at the start: this cannot fail. */
    const enum tarn_status status = map_set(&kv->nodes, digest, page);
    ASSERT(status == TARN_OK);
    if (page->transfer_count)
        kv_tree_mark_busy(kv, page, true);
    kv_page_settle(kv, page);
}

static void tree_remove_leaf(struct kv *kv, struct kv_page *page)
{
    ASSERT(page->in_tree && page->owner_count == 0 && list_is_empty(&page->children));
    ASSERT(page->busy_count == 0 || BROKEN(EVICT_UNDER_TRANSFER));
    page->busy_count = 0;
    (void)map_remove(&kv->nodes, &page->digest);
    list_remove(&page->sibling);
    page->parent = NULL;
    page->in_tree = false;
    kv_page_settle(kv, page);
}

void kv_tree_evict(struct kv *kv, struct kv_page *page)
{
    struct kv_page *const top = page;
    for (;;) {
        while (!list_is_empty(&page->children))
            page = LIST_ITEM(page->children.next, struct kv_page, sibling);
        struct kv_page *parent = page->parent;
        tree_remove_leaf(kv, page);
        if (page == top)
            return;
        page = parent;
    }
}

void kv_tree_mark_busy(struct kv *kv, struct kv_page *page, bool busy)
{
    for (; page; page = page->parent) {
        if (busy)
            page->busy_count++;
        else if (page->busy_count || !BROKEN(EVICT_UNDER_TRANSFER))
            page->busy_count--;
        kv_page_settle(kv, page);
    }
}
