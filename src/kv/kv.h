/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.h - the KV-cache manager: which page holds which tokens, and who may use it.
 *
 * A page holds the keys and values of one block of T tokens. Pages are named by address; their
 * memory is the caller's and its contents are not read here. A sequence is one request's view: a
 * page a block, where 0 <= committed <= history <= capacity always holds (tokens: in the tree and
 * matchable; keys and values present; room). Blocks are immutable once committed and are shared by
 * sequences that agree on them and on everything before them.
 *
 * A page under a transfer (kv_transfer()) is not freed, rebased away, evicted or handed out,
 * whoever lets go of it; it is released when its last transfer retires.
 *
 * All memory is taken in kv_create(), but for a sequence's digest chain. One thread.
 */
#ifndef KV_KV_H
#define KV_KV_H

#include "base/base.h"
#include "base/list.h"

enum { KV_PRIORITY_MAX = 100, KV_PRIORITY_DEFAULT = 35 };

struct kv;

struct kv_options {
    void *memory; /* page i at memory + i * page_stride_bytes */
    uint64_t page_bytes;
    uint64_t page_stride_bytes; /* at least page_bytes; 0: page_bytes */
    uint32_t page_count;
    uint32_t page_tokens; /* T */
    uint32_t sequence_max;
    uint32_t sequence_tokens_max; /* largest capacity */
};

/* All sizes above zero but the stride. Fails with NO_MEMORY. */
NODISCARD enum tarn_status kv_create(const struct kv_options *options, struct kv **out_kv);
void kv_destroy(struct kv *kv); /* open sequences included; NULL is fine */

/* Read freely; changed by the functions below alone. */
struct kv_sequence {
    struct list link;
    struct tarn_chain *chain;
    void **pages;             /* addresses: page i covers tokens [i*T, (i+1)*T) */
    uint32_t page_count;      /* capacity in blocks */
    uint32_t history;         /* leading tokens whose keys and values are there */
    uint32_t committed_count; /* leading blocks that are in the tree */
    uint32_t changed_block;   /* first block whose page differs from when kv_sequence_told() was
                                 called; page_count: none */
    uint32_t priority;        /* of its pages when nobody uses them: 0 goes first, 100 last */
    bool is_unshared;         /* matches nothing, and is not matched */
};

/* `scope` NULL is the common scope. Outcomes: NO_SPACE (sequence_max are open). NO_MEMORY, INVALID
 * (a scope that is not one). */
NODISCARD enum tarn_status kv_sequence_open(struct kv *kv, const struct tarn_scope *scope,
                                            uint32_t priority, struct kv_sequence **out_sequence);

/* Before it starts: its tokens do not say all that its pages depend on. */
void kv_sequence_unshare(struct kv_sequence *sequence);

/* Hash a prompt, so that kv_sequence_start() with it cannot fail for memory. NO_MEMORY. */
NODISCARD enum tarn_status kv_sequence_hash(struct kv *kv, struct kv_sequence *sequence,
                                            const int32_t *tokens, uint32_t token_count);

/*
 * Give a new sequence the longest run of committed blocks that begins its prompt, whole blocks,
 * never with the prompt's last token, and fresh pages for the rest of capacity_tokens. What it
 * got from the tree is its history. Outcomes: NO_SPACE, and nothing changed. NO_MEMORY.
 */
NODISCARD enum tarn_status kv_sequence_start(struct kv *kv, struct kv_sequence *sequence,
                                             const int32_t *tokens, uint32_t token_count,
                                             uint32_t capacity_tokens);

/* Change the capacity; what has history stays. Outcomes: NO_SPACE, and nothing changed. */
NODISCARD enum tarn_status kv_sequence_resize(struct kv *kv, struct kv_sequence *sequence,
                                              uint32_t capacity_tokens);

/* The keys and values up to `history`, within the capacity, are there now. */
void kv_sequence_advance(struct kv *kv, struct kv_sequence *sequence, uint32_t history);

/*
 * Make blocks past the history fit to be computed into, after a load that did not fill them: a page
 * under a transfer is exchanged for a fresh one, any other that a load may have written is zeroed.
 * Outcomes: NO_SPACE, and nothing changed.
 */
NODISCARD enum tarn_status kv_sequence_renew(struct kv *kv, struct kv_sequence *sequence,
                                             uint32_t first_block, uint32_t block_count);

/*
 * Enter the full blocks of the history into the tree. `tokens`: all that are known, at least the
 * history. A block that is there already is rebased: the sequence takes the tree's page and lets go
 * of its own. Stops, and a later call goes on, at one whose own page is under a transfer.
 * NO_MEMORY: what was not entered is not matchable, nothing else.
 */
NODISCARD enum tarn_status kv_sequence_commit(struct kv *kv, struct kv_sequence *sequence,
                                              const int32_t *tokens, uint32_t token_count);

/* The connector has been told all pages. */
void kv_sequence_told(struct kv_sequence *sequence);

/* Let go of all pages: committed ones stay matchable until someone needs the room. */
void kv_sequence_close(struct kv *kv, struct kv_sequence *sequence);

/* A transfer started on, or retired from, a page named by address. INVALID: no page of ours, a page
 * nobody has (it is pinned all the same), or one that was not started. */
NODISCARD enum tarn_status kv_transfer(struct kv *kv, const struct tarn_transfer *transfer);

enum kv_page_state {
    KV_FREE,
    KV_LOCKED,    /* a sequence has it */
    KV_DROPPABLE, /* in the tree, no sequence has it */
    KV_HELD,      /* of a suspended sequence; none yet */
    KV_RETIRING,  /* nobody has it and it is not in the tree, but a transfer still does */
    KV_PAGE_STATE_COUNT
};

struct kv_counts {
    uint32_t pages[KV_PAGE_STATE_COUNT]; /* add up to the pages there are */
    uint32_t pinned;                     /* under a transfer, in any state but FREE */
    uint32_t evictable; /* droppable, and no page under a transfer needs them as its prefix */
};

void kv_counts(const struct kv *kv, struct kv_counts *out_counts);

/* For tests: the state of a page by address, and its transfers. */
enum kv_page_state kv_page_state_of(const struct kv *kv, const void *page);
uint32_t kv_page_transfers_of(const struct kv *kv, const void *page);

/* For tests: walk everything. NULL, or what does not hold. */
const char *kv_check(const struct kv *kv);

#endif
