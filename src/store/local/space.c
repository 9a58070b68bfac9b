/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/space.h"

#include "obs/metric.h"
#include "store/local/frame.h"
#include "store/local/index.h"
#include "store/local/lease.h"
#include "store/local/policy.h"
#include "store/local/process.h"

enum {
    SCAN_STEPS = 64,   /* headers and frames looked at for a free slot */
    SAMPLES = 16,      /* pages sampled for an eviction */
    SAMPLE_ROUNDS = 4, /* of samples, before looking at slots one by one */
    WALK_STEPS = 1024, /* slots looked at one by one as the last resort */
    CLAIM_PAUSE = 16,  /* reservations between two looks for empty frames */
    DRAIN_TRIES = 4,
};

static const uint64_t RECLAIM_INTERVAL_NS = 10000000;

bool candidate_read(const struct pool_view *view, uint32_t slot, struct candidate *out_candidate)
{
    const struct pool_header *header = &view->headers[slot];
    const uint64_t ctl = shm_load(&header->ctl);
    if (ctl_state(ctl) != PAGE_COMMITTED)
        return false;
    *out_candidate = (struct candidate){
        .slot = slot,
        .ctl = ctl,
        .stamp = shm_load_half(&header->stamp),
        .depth = chain_depth(shm_load_half(&header->chain)),
    };
    return true;
}

/* Take a committed page out of everybody's sight. On true *out_ctl is its EVICTING word. */
static bool page_take(struct pool_view *view, uint32_t slot, uint64_t ctl, uint64_t *out_ctl)
{
    struct pool_header *header = &view->headers[slot];
    const uint64_t evicting = ctl_make(PAGE_EVICTING, view->process, ctl_generation(ctl));
    if (!shm_cas(&header->ctl, ctl, evicting))
        return false;
    /* A reader pins first and reads ctl then: one of us sees the other. */
    const bool is_attached = (ctl & CTL_ATTACHED) != 0;
    if (!SHM_MAKES(SHM_MISTAKE_BLIND_EVICT) &&
        pins_hold(view, shm_load(&header->pins), is_attached)) {
        (void)shm_cas(&header->ctl, evicting, ctl);
        return false;
    }
    const struct page_name name = header_name(header);
    const uint64_t length_bytes = shm_load(&header->place) >> 32;
    index_remove(view, &name, slot);
    (void)shm_add(&view->live->used_bytes, -length_bytes);
    metric_add(METRIC_POOL_EVICTED, 1);
    *out_ctl = evicting;
    return true;
}

bool space_evict(struct pool_view *view, uint32_t slot, uint64_t ctl)
{
    uint64_t evicting;
    if (!page_take(view, slot, ctl, &evicting))
        return false;
    return shm_cas(&view->headers[slot].ctl, evicting,
                   ctl_make(PAGE_FREE, 0, ctl_generation(evicting)));
}

void space_free(struct pool_view *view, uint32_t slot, uint64_t reserved_ctl)
{
    (void)shm_cas(&view->headers[slot].ctl, reserved_ctl,
                  ctl_make(PAGE_FREE, 0, ctl_generation(reserved_ctl)));
}

static bool chunk_is(const struct pool_view *view, const struct page_class *page, uint32_t frame,
                     uint64_t word)
{
    return word == frame_make(FRAME_ACTIVE, 0, page->frames, page->units) &&
           page->frames <= view->geometry.frame_count - frame;
}

/* From FREE or EVICTING (our own) to RESERVED, with the next generation. */
static bool slot_reserve(struct pool_view *view, uint32_t frame, uint64_t frame_word, uint32_t slot,
                         uint64_t ctl, uint64_t *out_ctl)
{
    const uint64_t reserved = ctl_make(PAGE_RESERVED, view->process, ctl_generation(ctl) + 1);
    if (!shm_cas(&view->headers[slot].ctl, ctl, reserved))
        return false;
    /* A drainer changes the frame first and looks at slots then: one of us sees the other. */
    if (shm_load(&view->frames[frame]) != frame_word) {
        space_free(view, slot, reserved);
        return false;
    }
    *out_ctl = reserved;
    return true;
}

static void cursor_advance(struct pool_view *view, struct space_class *class, uint32_t frames)
{
    class->page_index = 0;
    class->frame += frames;
    if (class->frame >= view->geometry.frame_count)
        class->frame = 0;
}

/* The next slot of the class from the cursor on, which moves past it; false: none in this step. */
static bool cursor_next(struct pool_view *view, struct space_class *class, uint32_t *out_frame,
                        uint64_t *out_word, uint32_t *out_slot)
{
    const uint64_t word = shm_load(&view->frames[class->frame]);
    if (!chunk_is(view, &class->page, class->frame, word)) {
        cursor_advance(view, class, 1);
        return false;
    }
    *out_frame = class->frame;
    *out_word = word;
    *out_slot = class->frame * view->geometry.frame_slots + class->page_index;
    if (++class->page_index >= class->page.pages)
        cursor_advance(view, class, class->page.frames);
    return true;
}

static bool free_find(struct pool_view *view, struct space_class *class, uint32_t steps,
                      uint32_t *out_slot, uint64_t *out_ctl)
{
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t frame;
        uint64_t word;
        uint32_t slot;
        if (!cursor_next(view, class, &frame, &word, &slot))
            continue;
        const uint64_t ctl = shm_load(&view->headers[slot].ctl);
        if (ctl_state(ctl) == PAGE_FREE && slot_reserve(view, frame, word, slot, ctl, out_ctl)) {
            *out_slot = slot;
            return true;
        }
    }
    return false;
}

static void chunks_list(struct pool_view *view, struct space_class *class)
{
    class->chunk_count = 0;
    for (uint32_t frame = 0; frame < view->geometry.frame_count; frame++) {
        if (chunk_is(view, &class->page, frame, shm_load(&view->frames[frame])))
            class->chunks[class->chunk_count++] = frame;
    }
}

/* Make a new chunk, out of empty frames or, while the class has next to none, of another's. Its
 * first slot is the maker's: others, who see the chunk at once, may fill all the rest of it. */
static bool chunk_make(struct pool_view *view, struct space_class *class, uint32_t *out_slot,
                       uint64_t *out_ctl)
{
    if (view->claim_pause > 0 && class->chunk_count >= POOL_CHUNKS_MIN) {
        view->claim_pause--;
        return false;
    }
    uint32_t head;
    enum tarn_status status = frame_claim(view, &class->page, &head, out_slot, out_ctl);
    if (status == TARN_NO_SPACE && class->chunk_count < POOL_CHUNKS_MIN) {
        chunks_list(view, class);
        for (uint32_t i = 0;
             i < DRAIN_TRIES && status == TARN_NO_SPACE && class->chunk_count < POOL_CHUNKS_MIN;
             i++) {
            if (frame_drain(view, &class->page))
                status = frame_claim(view, &class->page, &head, out_slot, out_ctl);
        }
    }
    if (status != TARN_OK) {
        view->claim_pause = CLAIM_PAUSE;
        return false;
    }
    if (class->chunk_count < view->geometry.frame_count)
        class->chunks[class->chunk_count++] = head;
    class->frame = head;
    class->page_index = 0;
    return true;
}

static void candidate_add(struct space_class *class, const struct candidate *candidate)
{
    uint32_t youngest = 0;
    for (uint32_t i = 0; i < class->candidate_count; i++) {
        if (class->candidates[i].slot == candidate->slot) {
            class->candidates[i] = *candidate;
            return;
        }
        if (policy_goes_before(&class->candidates[youngest], &class->candidates[i]))
            youngest = i;
    }
    if (class->candidate_count < VIEW_CANDIDATES)
        class->candidates[class->candidate_count++] = *candidate;
    else if (policy_goes_before(candidate, &class->candidates[youngest]))
        class->candidates[youngest] = *candidate;
}

static bool candidate_take(struct space_class *class, struct candidate *out_candidate)
{
    if (class->candidate_count == 0)
        return false;
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < class->candidate_count; i++) {
        if (policy_goes_before(&class->candidates[i], &class->candidates[oldest]))
            oldest = i;
    }
    *out_candidate = class->candidates[oldest];
    class->candidates[oldest] = class->candidates[--class->candidate_count];
    return true;
}

static void samples_take(struct pool_view *view, struct space_class *class)
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        if (class->chunk_count == 0)
            chunks_list(view, class);
        if (class->chunk_count == 0)
            return;
        const uint32_t chosen = view_random(view, class->chunk_count);
        const uint32_t head = class->chunks[chosen];
        if (!chunk_is(view, &class->page, head, shm_load(&view->frames[head]))) {
            class->chunks[chosen] = class->chunks[--class->chunk_count];
            continue;
        }
        struct candidate candidate;
        if (candidate_read(view,
                           head * view->geometry.frame_slots + view_random(view, class->page.pages),
                           &candidate))
            candidate_add(class, &candidate);
    }
}

/* Evict a page and reserve its slot in one go. */
static bool evict_reserve(struct pool_view *view, struct space_class *class, uint32_t slot,
                          uint64_t ctl, uint64_t *out_ctl)
{
    uint64_t evicting;
    /* The slot's chunk is found again: it may have changed hands since the page was sampled. */
    uint32_t head = slot / view->geometry.frame_slots;
    const uint64_t tail = shm_load(&view->frames[head]);
    if (frame_state(tail) == FRAME_TAIL && frame_head(tail) < head)
        head = frame_head(tail);
    const uint64_t word = shm_load(&view->frames[head]);
    if (!chunk_is(view, &class->page, head, word) ||
        slot - head * view->geometry.frame_slots >= class->page.pages ||
        !page_take(view, slot, ctl, &evicting))
        return false;
    if (slot_reserve(view, head, word, slot, evicting, out_ctl))
        return true;
    (void)shm_cas(&view->headers[slot].ctl, evicting,
                  ctl_make(PAGE_FREE, 0, ctl_generation(evicting)));
    return false;
}

static bool oldest_evict(struct pool_view *view, struct space_class *class, uint32_t *out_slot,
                         uint64_t *out_ctl)
{
    for (uint32_t round = 0; round < SAMPLE_ROUNDS; round++) {
        samples_take(view, class);
        struct candidate candidate;
        for (uint32_t i = 0; i < SAMPLES && candidate_take(class, &candidate); i++) {
            struct candidate now;
            if (!candidate_read(view, candidate.slot, &now) || now.ctl != candidate.ctl ||
                now.stamp != candidate.stamp)
                continue;
            if (evict_reserve(view, class, now.slot, now.ctl, out_ctl)) {
                *out_slot = now.slot;
                return true;
            }
        }
    }
    return false;
}

/* Whatever slot of the class can be had, without looking at its age. */
static bool any_find(struct pool_view *view, struct space_class *class, uint32_t *out_slot,
                     uint64_t *out_ctl)
{
    for (uint32_t i = 0; i < WALK_STEPS; i++) {
        uint32_t frame;
        uint64_t word;
        uint32_t slot;
        if (!cursor_next(view, class, &frame, &word, &slot))
            continue;
        const uint64_t ctl = shm_load(&view->headers[slot].ctl);
        const enum page_state state = ctl_state(ctl);
        if ((state == PAGE_FREE && slot_reserve(view, frame, word, slot, ctl, out_ctl)) ||
            (state == PAGE_COMMITTED && evict_reserve(view, class, slot, ctl, out_ctl))) {
            *out_slot = slot;
            return true;
        }
    }
    return false;
}

static struct space_class *class_get(struct pool_view *view, const struct page_class *page)
{
    struct space_class *oldest = &view->classes[0];
    view->use_tick++;
    for (uint32_t i = 0; i < VIEW_CLASSES; i++) {
        struct space_class *class = &view->classes[i];
        if (class->page.units == page->units) {
            class->used_tick = view->use_tick;
            return class;
        }
        if (class->used_tick < oldest->used_tick)
            oldest = class;
    }
    *oldest = (struct space_class){
        .page = *page,
        .used_tick = view->use_tick,
        .chunks = oldest->chunks,
        .frame = view_random(view, view->geometry.frame_count),
    };
    chunks_list(view, oldest);
    if (oldest->chunk_count > 0)
        oldest->frame = oldest->chunks[view_random(view, oldest->chunk_count)];
    return oldest;
}

enum tarn_status space_reserve(struct pool_view *view, const struct page_class *page,
                               uint32_t *out_slot, uint64_t *out_ctl)
{
    struct space_class *class = class_get(view, page);
    if (free_find(view, class, SCAN_STEPS, out_slot, out_ctl) ||
        chunk_make(view, class, out_slot, out_ctl) ||
        oldest_evict(view, class, out_slot, out_ctl) || any_find(view, class, out_slot, out_ctl))
        return TARN_OK;
    if (process_reclaim(view, RECLAIM_INTERVAL_NS) && any_find(view, class, out_slot, out_ctl))
        return TARN_OK;
    return TARN_NO_SPACE;
}
