/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kv/fake-chain.h"
#include "kv/page.h"
#include "lib/fault.h"

enum { T = 4, PAGE_BYTES = 64, STRIDE_BYTES = 192, PAGES = 16, SEQUENCES = 6, TOKENS_MAX = 64 };

static _Alignas(64) uint8_t memory[PAGES][STRIDE_BYTES];
static struct kv *kv;
static int32_t ascending[TOKENS_MAX]; /* 1, 2, 3 ... */

static enum tarn_status create(void)
{
    const struct kv_options options = {
        .memory = memory,
        .page_bytes = PAGE_BYTES,
        .page_stride_bytes = STRIDE_BYTES,
        .page_count = PAGES,
        .page_tokens = T,
        .sequence_max = SEQUENCES,
        .sequence_tokens_max = TOKENS_MAX,
    };
    return kv_create(&options, &kv);
}

static int set_up(void **state)
{
    (void)state;
    memset(memory, 0, sizeof(memory));
    for (int i = 0; i < TOKENS_MAX; i++)
        ascending[i] = i + 1;
    assert_int_equal(create(), TARN_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(kv_check(kv));
    kv_destroy(kv);
    fake_chain_set_bits(64);
    return 0;
}

static struct kv_sequence *open_in(const char *salt, uint32_t priority)
{
    const struct tarn_scope scope = { .size = sizeof(scope), .cache_salt = salt };
    struct kv_sequence *sequence = NULL;
    assert_int_equal(kv_sequence_open(kv, &scope, priority, &sequence), TARN_OK);
    return sequence;
}

static struct kv_sequence *start(const int32_t *tokens, uint32_t count, uint32_t capacity)
{
    struct kv_sequence *sequence = open_in("", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, sequence, tokens, count, capacity), TARN_OK);
    assert_null(kv_check(kv));
    return sequence;
}

/* Compute all of a prompt and commit it. */
static void fill(struct kv_sequence *sequence, const int32_t *tokens, uint32_t count)
{
    kv_sequence_advance(kv, sequence, count);
    assert_int_equal(kv_sequence_commit(kv, sequence, tokens, count), TARN_OK);
    assert_null(kv_check(kv));
}

/* Leave `count` ascending tokens in the tree, owned by nobody. */
static void leave(uint32_t count, const char *salt, uint32_t priority)
{
    struct kv_sequence *sequence = open_in(salt, priority);
    assert_int_equal(kv_sequence_start(kv, sequence, ascending, count, count), TARN_OK);
    fill(sequence, ascending, count);
    kv_sequence_close(kv, sequence);
    assert_null(kv_check(kv));
}

static enum tarn_status transfer_at(uintptr_t page, enum tarn_transfer_kind kind,
                                    enum tarn_transfer_phase phase)
{
    const struct tarn_transfer report = {
        .page = page,
        .kind = (uint16_t)kind,
        .phase = (uint16_t)phase,
    };
    const enum tarn_status status = kv_transfer(kv, &report);
    assert_null(kv_check(kv));
    return status;
}

static enum tarn_status transfer(const void *page, enum tarn_transfer_kind kind,
                                 enum tarn_transfer_phase phase)
{
    return transfer_at((uintptr_t)page, kind, phase);
}

static void save_starts(const void *page)
{
    assert_int_equal(transfer(page, TARN_TRANSFER_SAVE, TARN_TRANSFER_STARTED), TARN_OK);
}

static void save_retires(const void *page)
{
    assert_int_equal(transfer(page, TARN_TRANSFER_SAVE, TARN_TRANSFER_RETIRED), TARN_OK);
}

static uint32_t count_of(enum kv_page_state page_state)
{
    struct kv_counts counts;
    kv_counts(kv, &counts);
    return counts.pages[page_state];
}

static void a_prompt_matches_what_was_committed_before_in_whole_blocks(void **state)
{
    (void)state;
    leave(11, "", KV_PRIORITY_DEFAULT);
    assert_int_equal(count_of(KV_DROPPABLE), 2);
    struct kv_sequence *sequence = start(ascending, 20, 24);
    assert_int_equal(sequence->history, 8);
    assert_int_equal(sequence->committed_count, 2);
    assert_int_equal(sequence->page_count, 6);
    assert_int_equal(count_of(KV_LOCKED), 6);
    kv_sequence_close(kv, sequence);
}

static void a_match_never_covers_the_last_token_of_a_prompt(void **state)
{
    (void)state;
    leave(12, "", KV_PRIORITY_DEFAULT);
    for (uint32_t count = 1; count <= 13; count++) {
        struct kv_sequence *sequence = start(ascending, count, count);
        assert_int_equal(sequence->history, (count - 1) / T * T);
        kv_sequence_close(kv, sequence);
    }
}

static void other_scopes_and_other_tokens_match_nothing(void **state)
{
    (void)state;
    leave(12, "one tenant", KV_PRIORITY_DEFAULT);
    struct kv_sequence *sequence = start(ascending, 12, 12);
    assert_int_equal(sequence->history, 0);
    kv_sequence_close(kv, sequence);

    int32_t tokens[12];
    memcpy(tokens, ascending, sizeof(tokens));
    tokens[5] = 99;
    sequence = open_in("one tenant", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, sequence, tokens, 12, 12), TARN_OK);
    assert_int_equal(sequence->history, 4);
    kv_sequence_close(kv, sequence);
}

static void blocks_of_one_digest_are_told_apart_by_their_tokens(void **state)
{
    (void)state;
    fake_chain_set_bits(0); /* all blocks collide */
    leave(9, "", KV_PRIORITY_DEFAULT);
    assert_int_equal(count_of(KV_DROPPABLE), 1);
    const int32_t other[] = { 7, 7, 7, 7, 7 };
    struct kv_sequence *sequence = start(other, 5, 5);
    assert_int_equal(sequence->history, 0);
    fill(sequence, other, 5);
    assert_int_equal(sequence->committed_count, 0);
    kv_sequence_close(kv, sequence);
    assert_int_equal(count_of(KV_DROPPABLE), 1);
}

static void reserved_and_uncommitted_blocks_match_nobody(void **state)
{
    (void)state;
    struct kv_sequence *first = start(ascending, 9, 9);
    struct kv_sequence *second = start(ascending, 9, 9);
    assert_int_equal(second->history, 0);
    kv_sequence_advance(kv, first, 9); /* computed, not committed */
    struct kv_sequence *third = start(ascending, 9, 9);
    assert_int_equal(third->history, 0);
    kv_sequence_close(kv, first);
    kv_sequence_close(kv, second);
    kv_sequence_close(kv, third);
    assert_int_equal(count_of(KV_FREE), PAGES);
}

static void a_block_that_another_committed_first_is_rebased(void **state)
{
    (void)state;
    struct kv_sequence *first = start(ascending, 9, 9);
    struct kv_sequence *second = start(ascending, 9, 9);
    kv_sequence_told(second);
    fill(first, ascending, 9);
    void *own = second->pages[0];
    fill(second, ascending, 9);
    assert_ptr_equal(second->pages[0], first->pages[0]);
    assert_ptr_equal(second->pages[1], first->pages[1]);
    assert_ptr_not_equal(second->pages[2], first->pages[2]);
    assert_int_equal(second->changed_block, 0);
    assert_int_equal(kv_page_state_of(kv, own), KV_FREE);
    assert_int_equal(count_of(KV_LOCKED), 4);
    kv_sequence_close(kv, first);
    kv_sequence_close(kv, second);
    assert_int_equal(count_of(KV_DROPPABLE), 2);
}

static void a_page_under_a_save_is_neither_reused_nor_rebased(void **state)
{
    (void)state;
    struct kv_sequence *first = start(ascending, 9, 9);
    struct kv_sequence *second = start(ascending, 9, 9);
    void *own = second->pages[0];
    void *tail = second->pages[2];
    save_starts(own);
    save_starts(tail);
    fill(first, ascending, 9);
    fill(second, ascending, 9);
    assert_ptr_equal(second->pages[0], own); /* not rebased: it waits */
    assert_int_equal(second->committed_count, 0);
    save_retires(own);
    fill(second, ascending, 9);
    assert_ptr_equal(second->pages[0], first->pages[0]);
    assert_int_equal(second->committed_count, 2);

    kv_sequence_close(kv, second);
    kv_sequence_close(kv, first);
    assert_int_equal(kv_page_state_of(kv, tail), KV_RETIRING); /* not reused either */
    struct kv_sequence *all = open_in("another", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, all, ascending, 4, PAGES * T), TARN_NO_SPACE);
    assert_int_equal(kv_sequence_start(kv, all, ascending, 4, (PAGES - 1) * T), TARN_OK);
    for (uint32_t i = 0; i < all->page_count; i++)
        assert_ptr_not_equal(all->pages[i], tail);
    save_retires(tail);
    assert_int_equal(kv_page_state_of(kv, tail), KV_FREE);
    kv_sequence_close(kv, all);
}

static void a_pinned_page_protects_its_prefix_from_eviction(void **state)
{
    (void)state;
    struct kv_sequence *sequence = start(ascending, 13, 13);
    void *middle = sequence->pages[1];
    void *last = sequence->pages[2];
    fill(sequence, ascending, 13);
    save_starts(middle);
    kv_sequence_close(kv, sequence);

    struct kv_counts counts;
    kv_counts(kv, &counts);
    assert_int_equal(counts.pages[KV_DROPPABLE], 3);
    assert_int_equal(counts.evictable, 1); /* what follows the pinned page, not what precedes it */
    struct kv_sequence *other = open_in("other", KV_PRIORITY_DEFAULT);
    const uint32_t room = (PAGES - 2) * T;
    assert_int_equal(kv_sequence_start(kv, other, ascending, 4, room + 1), TARN_NO_SPACE);
    assert_int_equal(kv_sequence_start(kv, other, ascending, 4, room), TARN_OK);
    assert_int_equal(kv_page_state_of(kv, last), KV_LOCKED);
    assert_int_equal(kv_page_state_of(kv, middle), KV_DROPPABLE);
    kv_sequence_close(kv, other);
    save_retires(middle);
    kv_counts(kv, &counts);
    assert_int_equal(counts.evictable, 2);
}

static void no_room_changes_nothing(void **state)
{
    (void)state;
    leave(12, "", KV_PRIORITY_DEFAULT);
    struct kv_sequence *big = open_in("big", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, big, ascending, 4, 8 * T), TARN_OK);
    struct kv_counts before;
    struct kv_counts after;
    kv_counts(kv, &before);

    /* The match itself is evictable, but not for the request that matches it. */
    struct kv_sequence *sequence = open_in("", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, sequence, ascending, 13, 9 * T), TARN_NO_SPACE);
    kv_counts(kv, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(kv_sequence_start(kv, sequence, ascending, 13, 8 * T), TARN_OK);
    assert_int_equal(sequence->history, 12);

    kv_counts(kv, &before);
    assert_int_equal(kv_sequence_resize(kv, sequence, 9 * T), TARN_NO_SPACE);
    kv_counts(kv, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(kv_sequence_resize(kv, sequence, 13), TARN_OK);
    assert_int_equal(sequence->page_count, 4);
    assert_int_equal(count_of(KV_FREE), 4);
    kv_sequence_close(kv, sequence);
    kv_sequence_close(kv, big);
}

static void eviction_takes_the_least_recently_used_end_of_a_chain_first(void **state)
{
    (void)state;
    leave(16, "old", KV_PRIORITY_DEFAULT);
    leave(16, "new", KV_PRIORITY_DEFAULT);
    struct kv_sequence *other = open_in("other", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, other, ascending, 4, 10 * T), TARN_OK);
    kv_sequence_close(kv, other);
    struct kv_sequence *old = open_in("old", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, old, ascending, 17, 17), TARN_OK);
    assert_int_equal(old->history, 2 * T); /* its last two blocks went */
    struct kv_sequence *young = open_in("new", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, young, ascending, 17, 17), TARN_OK);
    assert_int_equal(young->history, 4 * T);
    kv_sequence_close(kv, old);
    kv_sequence_close(kv, young);
}

static void eviction_goes_by_priority_first(void **state)
{
    (void)state;
    leave(16, "dear", 80);
    leave(16, "cheap", 10);
    struct kv_sequence *other = open_in("other", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, other, ascending, 4, 12 * T), TARN_OK);
    kv_sequence_close(kv, other);
    struct kv_sequence *dear = open_in("dear", 0);
    assert_int_equal(kv_sequence_start(kv, dear, ascending, 17, 17), TARN_OK);
    assert_int_equal(dear->history, 4 * T);
    kv_sequence_close(kv, dear);
    struct kv_sequence *cheap = open_in("cheap", 0);
    assert_int_equal(kv_sequence_start(kv, cheap, ascending, 17, 17), TARN_OK);
    assert_int_equal(cheap->history, 0);
    kv_sequence_close(kv, cheap);
}

static void a_page_is_as_dear_as_the_dearest_who_used_it(void **state)
{
    (void)state;
    leave(16, "", 10);
    struct kv_sequence *dear = open_in("", 90);
    assert_int_equal(kv_sequence_start(kv, dear, ascending, 17, 20), TARN_OK);
    assert_int_equal(kv_sequence_resize(kv, dear, 17), TARN_OK);
    kv_sequence_told(dear);
    assert_int_equal(kv_sequence_resize(kv, dear, 16), TARN_OK);
    assert_int_equal(dear->changed_block, 4);
    kv_sequence_close(kv, dear);
    leave(16, "other", KV_PRIORITY_DEFAULT);
    struct kv_sequence *big = open_in("big", KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_sequence_start(kv, big, ascending, 4, 12 * T), TARN_OK);
    struct kv_sequence *again = open_in("", 0);
    assert_int_equal(kv_sequence_start(kv, again, ascending, 16, 16), TARN_OK);
    assert_int_equal(again->history, 12);
    kv_sequence_close(kv, big);
    kv_sequence_close(kv, again);
}

static void evicting_a_block_takes_what_follows_it(void **state)
{
    (void)state;
    int32_t branch[16];
    memcpy(branch, ascending, sizeof(branch));
    branch[9] = 99;
    leave(16, "", KV_PRIORITY_DEFAULT);
    struct kv_sequence *other = start(branch, 16, 16);
    fill(other, branch, 16);
    assert_int_equal(other->history, 16);
    void *second = other->pages[1];
    kv_sequence_close(kv, other);
    assert_int_equal(count_of(KV_DROPPABLE), 6);
    kv_tree_evict(kv, kv_page_at(kv, (uint64_t)(uintptr_t)second));
    assert_null(kv_check(kv));
    assert_int_equal(count_of(KV_DROPPABLE), 1);
    other = start(ascending, 16, 16);
    assert_int_equal(other->history, T);
    kv_sequence_close(kv, other);
}

static void a_block_that_a_late_load_still_writes_gets_another_page(void **state)
{
    (void)state;
    struct kv_sequence *sequence = start(ascending, 12, 12);
    void *good = sequence->pages[0];
    void *bad = sequence->pages[1];
    void *late = sequence->pages[2];
    void *const pages[] = { good, bad, late };
    for (size_t i = 0; i < LENGTH_OF(pages); i++) {
        assert_int_equal(transfer(pages[i], TARN_TRANSFER_LOAD, TARN_TRANSFER_STARTED), TARN_OK);
        memset(pages[i], 0xff, PAGE_BYTES);
    }
    assert_int_equal(transfer(good, TARN_TRANSFER_LOAD, TARN_TRANSFER_RETIRED), TARN_OK);
    assert_int_equal(transfer(bad, TARN_TRANSFER_LOAD, TARN_TRANSFER_RETIRED), TARN_OK);
    kv_sequence_told(sequence);
    kv_sequence_advance(kv, sequence, T);
    assert_int_equal(kv_sequence_renew(kv, sequence, 1, 2), TARN_OK);
    assert_null(kv_check(kv));
    assert_ptr_equal(sequence->pages[1], bad);
    assert_ptr_not_equal(sequence->pages[2], late);
    assert_int_equal(sequence->changed_block, 2);
    assert_int_equal(((uint8_t *)good)[0], 0xff); /* verified: untouched */
    assert_int_equal(((uint8_t *)bad)[0], 0);     /* whatever it was, it is finite now */
    assert_int_equal(((uint8_t *)late)[0], 0xff); /* not ours to write */
    assert_int_equal(kv_page_state_of(kv, late), KV_RETIRING);
    assert_int_equal(transfer(late, TARN_TRANSFER_LOAD, TARN_TRANSFER_RETIRED), TARN_OK);
    assert_int_equal(kv_page_state_of(kv, late), KV_FREE);

    /* The next to get it finds it clean. */
    assert_int_equal(kv_sequence_resize(kv, sequence, 4 * T), TARN_OK);
    assert_ptr_equal(sequence->pages[3], late);
    assert_int_equal(((uint8_t *)late)[0], 0);
    kv_sequence_close(kv, sequence);
}

static void strange_reports_of_transfers_are_refused(void **state)
{
    (void)state;
    struct kv_sequence *sequence = start(ascending, 4, 4);
    const void *page = sequence->pages[0];
    const uintptr_t base = (uintptr_t)memory;
    const uintptr_t strange[] = {
        base + 1, base + PAGE_BYTES, base - PAGE_BYTES, base - STRIDE_BYTES, base + sizeof(memory),
        0
    };
    for (size_t i = 0; i < LENGTH_OF(strange); i++)
        assert_int_equal(transfer_at(strange[i], TARN_TRANSFER_SAVE, TARN_TRANSFER_STARTED),
                         TARN_INVALID);
    assert_int_equal(transfer(page, TARN_TRANSFER_SAVE, TARN_TRANSFER_RETIRED), TARN_INVALID);
    assert_int_equal(transfer(page, TARN_TRANSFER_SAVE, 2), TARN_INVALID);
    kv_sequence_close(kv, sequence);
    /* A transfer on a free page is wrong, but the page is kept out of use while it lasts. */
    assert_int_equal(transfer(page, TARN_TRANSFER_LOAD, TARN_TRANSFER_STARTED), TARN_INVALID);
    assert_int_equal(kv_page_state_of(kv, page), KV_RETIRING);
    assert_int_equal(transfer(page, TARN_TRANSFER_LOAD, TARN_TRANSFER_RETIRED), TARN_OK);
    assert_int_equal(kv_page_state_of(kv, page), KV_FREE);
}

static void sequences_are_limited(void **state)
{
    (void)state;
    struct kv_sequence *sequence = NULL;
    for (int i = 0; i < SEQUENCES; i++)
        assert_int_equal(kv_sequence_open(kv, NULL, 0, &sequence), TARN_OK);
    assert_int_equal(kv_sequence_open(kv, NULL, 0, &sequence), TARN_NO_SPACE);
    kv_sequence_close(kv, sequence);
    assert_int_equal(kv_sequence_open(kv, NULL, 0, &sequence), TARN_OK);
}

static enum tarn_status live_a_little(void)
{
    struct kv_sequence *sequence = NULL;
    TRY(create());
    enum tarn_status status = kv_sequence_open(kv, NULL, 0, &sequence);
    if (status == TARN_OK)
        status = kv_sequence_hash(kv, sequence, ascending, 9);
    if (status == TARN_OK)
        status = kv_sequence_start(kv, sequence, ascending, 9, 40);
    if (status == TARN_OK) {
        kv_sequence_advance(kv, sequence, 40);
        status = kv_sequence_commit(kv, sequence, ascending, 40);
        assert_null(kv_check(kv));
    }
    kv_destroy(kv);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(live_a_little) >= 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_prompt_matches_what_was_committed_before_in_whole_blocks),
        TEST(a_match_never_covers_the_last_token_of_a_prompt),
        TEST(other_scopes_and_other_tokens_match_nothing),
        TEST(blocks_of_one_digest_are_told_apart_by_their_tokens),
        TEST(reserved_and_uncommitted_blocks_match_nobody),
        TEST(a_block_that_another_committed_first_is_rebased),
        TEST(a_page_under_a_save_is_neither_reused_nor_rebased),
        TEST(a_pinned_page_protects_its_prefix_from_eviction),
        TEST(no_room_changes_nothing),
        TEST(eviction_takes_the_least_recently_used_end_of_a_chain_first),
        TEST(eviction_goes_by_priority_first),
        TEST(a_page_is_as_dear_as_the_dearest_who_used_it),
        TEST(evicting_a_block_takes_what_follows_it),
        TEST(a_block_that_a_late_load_still_writes_gets_another_page),
        TEST(strange_reports_of_transfers_are_refused),
        TEST(sequences_are_limited),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
