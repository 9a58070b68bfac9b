/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/frame.h"

#include "store/local/policy.h"
#include "store/local/space.h"

/* Give up a claimed head and the tails that name it. Idempotent: also run after a dead owner. */
static void claim_undo(struct pool_view *view, uint32_t head, uint64_t claimed)
{
    const uint64_t tail = frame_make_tail(head);
    for (uint32_t i = 1; i < POOL_CHUNK_FRAMES_MAX && head + i < view->geometry.frame_count; i++) {
        if (shm_load(&view->frames[head + i]) == tail)
            (void)shm_cas(&view->frames[head + i], tail, 0);
    }
    (void)shm_cas(&view->frames[head], claimed, 0);
}

static bool claim_at(struct pool_view *view, const struct page_class *page, uint32_t head)
{
    const uint64_t claimed = frame_make(FRAME_CLAIMED, view->process, page->frames, page->units);
    if (!shm_cas(&view->frames[head], 0, claimed))
        return false;
    for (uint32_t i = 1; i < page->frames; i++) {
        if (!shm_cas(&view->frames[head + i], 0, frame_make_tail(head))) {
            claim_undo(view, head, claimed);
            return false;
        }
    }
    return true;
}

/* A slot of a claimed chunk, which nobody else reserves for good: it has no ACTIVE word yet. */
static bool first_reserve(struct pool_view *view, const struct page_class *page, uint32_t head,
                          uint32_t *out_slot, uint64_t *out_ctl)
{
    const uint32_t first = head * view->geometry.frame_slots;
    for (uint32_t slot = first; slot < first + page->pages; slot++) {
        const uint64_t ctl = shm_load(&view->headers[slot].ctl);
        const uint64_t reserved = ctl_make(PAGE_RESERVED, view->process, ctl_generation(ctl) + 1);
        if (ctl_state(ctl) != PAGE_FREE || !shm_cas(&view->headers[slot].ctl, ctl, reserved))
            continue;
        *out_slot = slot;
        *out_ctl = reserved;
        return true;
    }
    return false;
}

/* Give a claimed chunk its memory, take a slot, and let others see it. */
static enum tarn_status chunk_open(struct pool_view *view, const struct page_class *page,
                                   uint32_t head, uint32_t *out_slot, uint64_t *out_ctl)
{
    const uint64_t claimed = frame_make(FRAME_CLAIMED, view->process, page->frames, page->units);
    const uint64_t active = frame_make(FRAME_ACTIVE, 0, page->frames, page->units);
    uint32_t slot;
    uint64_t ctl;
    enum tarn_status status =
        view->env.populate(view->env.context, (uint64_t)head * POOL_FRAME_BYTES,
                           (uint64_t)page->frames * POOL_FRAME_BYTES);
    if (status == TARN_OK && !first_reserve(view, page, head, &slot, &ctl))
        status = TARN_NO_SPACE; /* only in a damaged image */
    if (status != TARN_OK) {
        claim_undo(view, head, claimed);
        return status;
    }
    if (!shm_cas(&view->frames[head], claimed, active)) {
        space_free(view, slot, ctl);
        return TARN_NO_SPACE; /* likewise */
    }
    *out_slot = slot;
    *out_ctl = ctl;
    return TARN_OK;
}

enum tarn_status frame_claim(struct pool_view *view, const struct page_class *page,
                             uint32_t *out_head, uint32_t *out_slot, uint64_t *out_ctl)
{
    const uint32_t frame_count = view->geometry.frame_count;
    uint32_t run = 0;
    for (uint32_t frame = 0; frame < frame_count; frame++) {
        run = shm_load(&view->frames[frame]) == 0 ? run + 1 : 0;
        if (run < page->frames)
            continue;
        const uint32_t head = frame + 1 - page->frames;
        run = 0;
        if (!claim_at(view, page, head))
            continue;
        TRY(chunk_open(view, page, head, out_slot, out_ctl));
        *out_head = head;
        return TARN_OK;
    }
    return TARN_NO_SPACE;
}

/* Head and word of the chunk that a frame belongs to; false if it belongs to none that is ACTIVE.
 */
static bool chunk_at(const struct pool_view *view, uint32_t frame, uint32_t *out_head,
                     uint64_t *out_word)
{
    uint32_t head = frame;
    uint64_t word = shm_load(&view->frames[frame]);
    if (frame_state(word) == FRAME_TAIL) {
        head = frame_head(word);
        if (head >= frame)
            return false;
        word = shm_load(&view->frames[head]);
    }
    const uint32_t frames = frame_frames(word);
    if (frame_state(word) != FRAME_ACTIVE || frames == 0 || frames > POOL_CHUNK_FRAMES_MAX ||
        frames <= frame - head || frames > view->geometry.frame_count - head)
        return false;
    *out_head = head;
    *out_word = word;
    return true;
}

/* Evict all pages of a chunk and free its frames; false, and ACTIVE again, if one cannot go. */
static bool chunk_drain(struct pool_view *view, uint32_t head, uint64_t word)
{
    const uint32_t frames = frame_frames(word);
    const uint32_t units = frame_units(word);
    const uint64_t draining = frame_make(FRAME_DRAINING, view->process, frames, units);
    if (!shm_cas(&view->frames[head], word, draining))
        return false;
    const uint32_t first = head * view->geometry.frame_slots;
    const uint32_t pages = chunk_pages(&view->geometry, units, frames);
    for (uint32_t i = 0; i < pages; i++) {
        const uint64_t ctl = shm_load(&view->headers[first + i].ctl);
        const bool is_free = ctl_state(ctl) == PAGE_FREE || (ctl_state(ctl) == PAGE_COMMITTED &&
                                                             space_evict(view, first + i, ctl));
        if (!is_free) {
            (void)shm_cas(&view->frames[head], draining, word);
            return false;
        }
    }
    const uint64_t claimed = frame_make(FRAME_CLAIMED, view->process, frames, units);
    if (!shm_cas(&view->frames[head], draining, claimed))
        return false;
    claim_undo(view, head, claimed);
    return true;
}

/* A page of the chunk, to judge its age by; false if the one that was sampled is not committed. */
static bool chunk_sample(struct pool_view *view, uint32_t head, uint64_t word,
                         struct candidate *out_page)
{
    const uint32_t pages = chunk_pages(&view->geometry, frame_units(word), frame_frames(word));
    if (pages == 0)
        return false;
    const uint32_t slot = head * view->geometry.frame_slots + view_random(view, pages);
    return candidate_read(view, slot, out_page);
}

/* The head of the chunk of another class to empty first; false if none was met. */
static bool drain_choose(struct pool_view *view, const struct page_class *page, uint32_t *out_head)
{
    enum { SAMPLES = 16 };
    struct candidate oldest = { 0 };
    bool found = false;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t head;
        uint64_t word;
        struct candidate other;
        if (!chunk_at(view, view_random(view, view->geometry.frame_count), &head, &word) ||
            frame_units(word) == page->units)
            continue;
        if (!chunk_sample(view, head, word, &other)) {
            *out_head = head; /* probably an empty one: nothing is lost with it */
            return true;
        }
        if (found && !policy_goes_before(&other, &oldest))
            continue;
        oldest = other;
        *out_head = head;
        found = true;
    }
    return found;
}

bool frame_drain(struct pool_view *view, const struct page_class *page)
{
    const uint32_t frame_count = view->geometry.frame_count;
    uint32_t first;
    if (!drain_choose(view, page, &first))
        return false;
    if (first > frame_count - page->frames)
        first = frame_count - page->frames;
    for (uint32_t frame = first; frame < first + page->frames; frame++) {
        uint32_t head;
        uint64_t word;
        if (shm_load(&view->frames[frame]) == 0)
            continue;
        if (!chunk_at(view, frame, &head, &word) || frame_units(word) == page->units ||
            !chunk_drain(view, head, word))
            return false;
    }
    return true;
}

void frames_sweep(struct pool_view *view, uint64_t dead)
{
    for (uint32_t frame = 0; frame < view->geometry.frame_count; frame++) {
        const uint64_t word = shm_load(&view->frames[frame]);
        if ((frame_state(word) != FRAME_CLAIMED && frame_state(word) != FRAME_DRAINING) ||
            frame_owner(word) >= POOL_PROCESSES || !(dead >> frame_owner(word) & 1))
            continue;
        if (frame_state(word) == FRAME_CLAIMED)
            claim_undo(view, frame, word);
        else
            (void)shm_cas(&view->frames[frame], word,
                          frame_make(FRAME_ACTIVE, 0, frame_frames(word), frame_units(word)));
    }
}
