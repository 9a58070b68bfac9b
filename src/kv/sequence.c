/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/broken.h"
#include "kv/page.h"

static uint32_t blocks_of(const struct kv *kv, uint32_t tokens)
{
    return tokens / kv->options.page_tokens + (tokens % kv->options.page_tokens != 0);
}

static struct kv_page *sequence_page(const struct kv *kv, const struct kv_sequence *sequence,
                                     uint32_t block)
{
    return kv_page_at(kv, (uint64_t)(uintptr_t)sequence->pages[block]);
}

static void sequence_set_page(struct kv *kv, struct kv_sequence *sequence, uint32_t block,
                              struct kv_page *page)
{
    sequence->pages[block] = kv_page_address(kv, page);
    if (block < sequence->changed_block)
        sequence->changed_block = block;
}

enum tarn_status kv_sequence_open(struct kv *kv, const struct tarn_scope *scope, uint32_t priority,
                                  struct kv_sequence **out_sequence)
{
    ASSERT(priority <= KV_PRIORITY_MAX);
    if (list_is_empty(&kv->idle_sequences))
        return TARN_NO_SPACE;
    struct kv_sequence *sequence = LIST_ITEM(kv->idle_sequences.next, struct kv_sequence, link);
    TRY(tarn_chain_create(scope, kv->options.page_tokens, &sequence->chain));
    sequence->page_count = 0;
    sequence->history = 0;
    sequence->committed_count = 0;
    sequence->changed_block = 0;
    sequence->priority = priority;
    sequence->is_unshared = false;
    list_remove(&sequence->link);
    list_push_back(&kv->open_sequences, &sequence->link);
    *out_sequence = sequence;
    return TARN_OK;
}

void kv_sequence_unshare(struct kv_sequence *sequence)
{
    ASSERT(sequence->page_count == 0);
    sequence->is_unshared = true;
}

enum tarn_status kv_sequence_hash(struct kv *kv, struct kv_sequence *sequence,
                                  const int32_t *tokens, uint32_t token_count)
{
    (void)kv;
    return tarn_chain_extend(sequence->chain, tokens, token_count);
}

/* Walk the tree along the prompt: the next page, or NULL where it ends. */
static struct kv_page *match_next(const struct kv *kv, const struct kv_sequence *sequence,
                                  const int32_t *tokens, uint32_t block,
                                  const struct kv_page *parent)
{
    const struct tarn_digest *digests = tarn_chain_digests(sequence->chain);
    return kv_tree_find(kv, &digests[block], parent,
                        tokens + (size_t)block * kv->options.page_tokens);
}

enum tarn_status kv_sequence_start(struct kv *kv, struct kv_sequence *sequence,
                                   const int32_t *tokens, uint32_t token_count,
                                   uint32_t capacity_tokens)
{
    const uint32_t block_count = blocks_of(kv, capacity_tokens);
    const uint32_t last = BROKEN(MATCH_LAST_TOKEN) ? token_count : token_count - 1;
    const uint32_t match_max = sequence->is_unshared ? 0 : last / kv->options.page_tokens;
    ASSERT(sequence->page_count == 0 && token_count > 0 && capacity_tokens >= token_count);
    ASSERT(capacity_tokens <= kv->options.sequence_tokens_max);
    TRY(tarn_chain_extend(sequence->chain, tokens, token_count));

    /* Owning the match takes its pages from those that can be evicted: count first. */
    uint32_t match_count = 0;
    uint32_t evictable = kv->counts.evictable;
    for (struct kv_page *page = NULL; match_count < match_max; match_count++) {
        page = match_next(kv, sequence, tokens, match_count, page);
        if (!page)
            break;
        evictable -= page->evictable;
    }
    if (block_count - match_count > kv->counts.pages[KV_FREE] + evictable)
        return TARN_NO_SPACE;

    struct kv_page *page = NULL;
    for (uint32_t i = 0; i < match_count; i++) {
        page = match_next(kv, sequence, tokens, i, page);
        kv_page_own(kv, page);
        if (page->priority < sequence->priority)
            page->priority = (uint8_t)sequence->priority;
        sequence_set_page(kv, sequence, i, page);
    }
    sequence->page_count = match_count;
    sequence->committed_count = match_count;
    sequence->history = match_count * kv->options.page_tokens;
    return kv_sequence_resize(kv, sequence, capacity_tokens);
}

enum tarn_status kv_sequence_resize(struct kv *kv, struct kv_sequence *sequence,
                                    uint32_t capacity_tokens)
{
    const uint32_t block_count = blocks_of(kv, capacity_tokens);
    ASSERT(capacity_tokens >= sequence->history);
    ASSERT(capacity_tokens <= kv->options.sequence_tokens_max);
    if (block_count > sequence->page_count)
        TRY(kv_page_make_room(kv, block_count - sequence->page_count));
    while (sequence->page_count > block_count) {
        sequence->page_count--;
        kv_page_release(kv, sequence_page(kv, sequence, sequence->page_count));
    }
    while (sequence->page_count < block_count) {
        sequence_set_page(kv, sequence, sequence->page_count, kv_page_take(kv));
        sequence->page_count++;
    }
    if (sequence->changed_block > sequence->page_count)
        sequence->changed_block = sequence->page_count;
    return TARN_OK;
}

void kv_sequence_advance(struct kv *kv, struct kv_sequence *sequence, uint32_t history)
{
    ASSERT(history >= sequence->history && blocks_of(kv, history) <= sequence->page_count);
    for (uint32_t i = sequence->history / kv->options.page_tokens; i < blocks_of(kv, history); i++)
        sequence_page(kv, sequence, i)->unverified = false;
    sequence->history = history;
}

enum tarn_status kv_sequence_renew(struct kv *kv, struct kv_sequence *sequence,
                                   uint32_t first_block, uint32_t block_count)
{
    const uint32_t end = first_block + block_count;
    ASSERT(first_block >= blocks_of(kv, sequence->history) && end <= sequence->page_count);
    uint32_t exchange_count = 0;
    for (uint32_t i = first_block; i < end; i++)
        exchange_count += sequence_page(kv, sequence, i)->transfer_count != 0;
    if (BROKEN(KEEP_LATE_PAGE))
        exchange_count = 0;
    TRY(kv_page_make_room(kv, exchange_count));

    for (uint32_t i = first_block; i < end; i++) {
        struct kv_page *page = sequence_page(kv, sequence, i);
        if (page->transfer_count && exchange_count) {
            sequence_set_page(kv, sequence, i, kv_page_take(kv));
            kv_page_release(kv, page);
        } else {
            kv_page_scrub(kv, page);
        }
    }
    return TARN_OK;
}

/* Take the tree's page of a block in place of the own one. */
static void sequence_rebase(struct kv *kv, struct kv_sequence *sequence, uint32_t block,
                            struct kv_page *page)
{
    struct kv_page *own = sequence_page(kv, sequence, block);
    kv_page_own(kv, page);
    sequence_set_page(kv, sequence, block, page);
    kv_page_release(kv, own);
}

enum tarn_status kv_sequence_commit(struct kv *kv, struct kv_sequence *sequence,
                                    const int32_t *tokens, uint32_t token_count)
{
    const uint32_t page_tokens = kv->options.page_tokens;
    const uint32_t end = sequence->history / page_tokens;
    ASSERT(token_count >= sequence->history);
    if (sequence->committed_count == end || sequence->is_unshared)
        return TARN_OK;
    TRY(tarn_chain_extend(sequence->chain, tokens, token_count));

    const struct tarn_digest *digests = tarn_chain_digests(sequence->chain);
    for (uint32_t i = sequence->committed_count; i < end; i++) {
        const int32_t *block_tokens = tokens + (size_t)i * page_tokens;
        struct kv_page *own = sequence_page(kv, sequence, i);
        struct kv_page *parent = i ? sequence_page(kv, sequence, i - 1) : NULL;
        struct kv_page *found = kv_tree_find(kv, &digests[i], parent, block_tokens);
        if (found) {
            if (own->transfer_count && !BROKEN(REBASE_UNDER_TRANSFER))
                return TARN_OK;
            sequence_rebase(kv, sequence, i, found);
        } else if (map_get(&kv->nodes, &digests[i])) {
            return TARN_OK; /* two blocks with one digest: the later one is never shared */
        } else {
            own->priority = (uint8_t)sequence->priority;
            kv_tree_insert(kv, own, &digests[i], parent, block_tokens);
        }
        sequence->committed_count = i + 1;
    }
    return TARN_OK;
}

void kv_sequence_told(struct kv_sequence *sequence)
{
    sequence->changed_block = sequence->page_count;
}

void kv_sequence_close(struct kv *kv, struct kv_sequence *sequence)
{
    /* Deepest first, so that what is evicted first are the ends of chains. */
    while (sequence->page_count) {
        sequence->page_count--;
        kv_page_release(kv, sequence_page(kv, sequence, sequence->page_count));
    }
    tarn_chain_destroy(sequence->chain);
    sequence->chain = NULL;
    list_remove(&sequence->link);
    list_push_front(&kv->idle_sequences, &sequence->link);
}
