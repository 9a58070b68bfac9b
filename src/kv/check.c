/* SPDX-License-Identifier: Apache-2.0 */
/* What must always hold of a KV-cache manager, for tests to ask after every step. */
#include <string.h>

#include "kv/page.h"

enum kv_page_state kv_page_state_of(const struct kv *kv, const void *page)
{
    return kv_page_at(kv, (uint64_t)(uintptr_t)page)->state;
}

uint32_t kv_page_transfers_of(const struct kv *kv, const void *page)
{
    return kv_page_at(kv, (uint64_t)(uintptr_t)page)->transfer_count;
}

/* How many open sequences list the page. */
static uint32_t check_owners(const struct kv *kv, const struct kv_page *page)
{
    const void *address = kv_page_address(kv, page);
    uint32_t count = 0;
    for (struct list *link = kv->open_sequences.next; link != &kv->open_sequences;
         link = link->next) {
        const struct kv_sequence *sequence = LIST_ITEM(link, struct kv_sequence, link);
        for (uint32_t i = 0; i < sequence->page_count; i++)
            count += sequence->pages[i] == address;
    }
    return count;
}

static const char *check_node(const struct kv *kv, const struct kv_page *page)
{
    uint32_t busy_count = page->transfer_count != 0;
    for (struct list *link = page->children.next; link != &page->children; link = link->next) {
        const struct kv_page *child = LIST_ITEM(link, struct kv_page, sibling);
        if (child->parent != page || !child->in_tree)
            return "a child does not know its parent";
        if (child->owner_count > page->owner_count)
            return "a child has more owners than its parent";
        busy_count += child->busy_count;
    }
    if (busy_count != page->busy_count)
        return "a subtree's transfers are miscounted";
    if (map_get(&kv->nodes, &page->digest) != page)
        return "a node is not found by its digest";
    if (page->parent && (!page->parent->in_tree || !list_is_linked(&page->sibling)))
        return "a node's parent is not in the tree";
    return NULL;
}

static const char *check_page(const struct kv *kv, const struct kv_page *page)
{
    if (page->owner_count != check_owners(kv, page))
        return "a page's owners are miscounted";
    if (page->state == KV_FREE && (page->owner_count || page->transfer_count || page->in_tree))
        return "a free page is referenced";
    if ((page->state == KV_LOCKED) != (page->owner_count != 0))
        return "a page is locked without an owner, or owned but not locked";
    if (page->evictable && (page->owner_count || page->busy_count || !page->in_tree))
        return "a page in use may be evicted";
    if (list_is_linked(&page->link) != (page->state == KV_FREE || page->evictable))
        return "a page is in a list that its state does not name";
    if (page->in_tree)
        return check_node(kv, page);
    if (page->parent || page->busy_count || !list_is_empty(&page->children))
        return "a page out of the tree has relatives";
    return NULL;
}

static const char *check_sequence(const struct kv *kv, const struct kv_sequence *sequence)
{
    const uint32_t page_tokens = kv->options.page_tokens;
    if ((uint64_t)sequence->committed_count * page_tokens > sequence->history)
        return "a sequence committed more than its history";
    if (sequence->history > (uint64_t)sequence->page_count * page_tokens)
        return "a sequence's history is larger than its capacity";
    const struct kv_page *parent = NULL;
    for (uint32_t i = 0; i < sequence->page_count; i++) {
        const struct kv_page *page = kv_page_at(kv, (uint64_t)(uintptr_t)sequence->pages[i]);
        if (i < sequence->committed_count && (!page->in_tree || page->parent != parent))
            return "a sequence's committed blocks are no path of the tree";
        if (i >= sequence->committed_count && (page->in_tree || page->owner_count != 1))
            return "a block that is not committed is shared";
        parent = page;
    }
    return NULL;
}

static const char *check_counts(const struct kv *kv)
{
    struct kv_counts counts = { 0 };
    size_t node_count = 0;
    for (uint32_t i = 0; i < kv->options.page_count; i++) {
        const struct kv_page *page = &kv->pages[i];
        counts.pages[page->state]++;
        counts.pinned += page->transfer_count != 0;
        counts.evictable += page->evictable;
        node_count += page->in_tree;
    }
    if (memcmp(&counts, &kv->counts, sizeof(counts)) != 0)
        return "the counts of pages are wrong";
    return node_count == kv->nodes.count ? NULL : "the tree has another number of nodes";
}

const char *kv_check(const struct kv *kv)
{
    const char *fault = check_counts(kv);
    for (uint32_t i = 0; i < kv->options.page_count && !fault; i++)
        fault = check_page(kv, &kv->pages[i]);
    for (struct list *link = kv->open_sequences.next; link != &kv->open_sequences && !fault;
         link = link->next)
        fault = check_sequence(kv, LIST_ITEM(link, struct kv_sequence, link));
    return fault;
}
