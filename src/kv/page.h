/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - inside kv/: pages, their states, and the tree that they form.
 *
 * A page in the tree is a node of it: its place is fixed by its digest, which stands for its tokens
 * and all before them. A page is owned by the sequences that list it; whoever owns a node owns the
 * nodes above it, so a node that nobody owns has a subtree that nobody owns. busy_count counts the
 * pages of a node's subtree, itself included, that are under a transfer: only where it is zero may
 * the subtree be evicted.
 *
 * Every change of a page ends with kv_page_settle(), which alone moves pages between lists and
 * keeps the counts.
 */
#ifndef KV_PAGE_H
#define KV_PAGE_H

#include "base/list.h"
#include "base/map.h"
#include "kv/kv.h"

struct kv_page {
    struct list link; /* FREE: in kv.free; evictable: in kv.buckets[priority] */
    struct list children;
    struct list sibling;    /* in parent->children */
    struct kv_page *parent; /* NULL: first block of a chain, or not in the tree */
    struct tarn_digest digest;
    uint32_t owner_count;
    uint32_t transfer_count;
    uint32_t busy_count;
    uint8_t priority;
    bool in_tree;
    bool unverified; /* a load may have written it and no verdict said that it is good */
    bool evictable;
    enum kv_page_state state;
};

struct kv {
    struct kv_options options;
    struct kv_page *pages;
    int32_t *tokens;                          /* of nodes: page_tokens a page */
    struct map nodes;                         /* digest -> page in the tree */
    struct list free;                         /* last freed first */
    struct list buckets[KV_PRIORITY_MAX + 1]; /* evictable pages, least recently used first */
    struct kv_counts counts;
    struct kv_sequence *sequences;
    void **page_tables;
    struct list idle_sequences;
    struct list open_sequences;
};

/* The page at an address, or NULL. */
struct kv_page *kv_page_at(const struct kv *kv, uint64_t address);
void *kv_page_address(const struct kv *kv, const struct kv_page *page);
int32_t *kv_page_tokens(const struct kv *kv, const struct kv_page *page);

void kv_page_settle(struct kv *kv, struct kv_page *page);

/* Own a page more, or less; the last release of a node makes it the most recently used one. */
void kv_page_own(struct kv *kv, struct kv_page *page);
void kv_page_release(struct kv *kv, struct kv_page *page);

/* Evict until `count` pages are free. Outcomes: NO_SPACE, and nothing changed. */
NODISCARD enum tarn_status kv_page_make_room(struct kv *kv, uint32_t count);
/* A free page, owned once by the caller; there is one. */
struct kv_page *kv_page_take(struct kv *kv);
/* Zero a page that a load may have written. */
void kv_page_scrub(struct kv *kv, struct kv_page *page);

/* The node of a digest if its parent and tokens are these, else NULL. */
struct kv_page *kv_tree_find(const struct kv *kv, const struct tarn_digest *digest,
                             const struct kv_page *parent, const int32_t *tokens);
/* Enter a page that is not in the tree; no node has its digest. */
void kv_tree_insert(struct kv *kv, struct kv_page *page, const struct tarn_digest *digest,
                    struct kv_page *parent, const int32_t *tokens);
/* Take a node and all below it, none of them owned or under a transfer, out of the tree. */
void kv_tree_evict(struct kv *kv, struct kv_page *page);
/* A node came under its first transfer, or lost its last one. */
void kv_tree_mark_busy(struct kv *kv, struct kv_page *page, bool busy);

#endif
