/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/check.h"

#include <stdio.h>

#include "store/local/index.h"
#include "store/local/name.h"
#include "store/local/page.h"

struct walk {
    const struct pool_view *view;
    struct pool_check *check;
    uint64_t alive;
    bool verify;
};

static void fault(struct walk *walk, const char *what, uint32_t number)
{
    if (walk->check->fault_count++ == 0)
        (void)snprintf(walk->check->first_fault, sizeof(walk->check->first_fault), "%s %u", what,
                       number);
}

static struct check_class *class_row(struct walk *walk, uint32_t units)
{
    for (uint32_t i = 0; i < CHECK_CLASSES_MAX; i++) {
        struct check_class *row = &walk->check->classes[i];
        if (row->units == 0)
            row->units = units;
        if (row->units == units)
            return row;
    }
    return &walk->check->classes[CHECK_CLASSES_MAX - 1]; /* the last row takes the rest */
}

static bool is_alive(const struct walk *walk, uint32_t owner)
{
    return owner < POOL_PROCESSES && (walk->alive >> owner & 1);
}

static void committed_check(struct walk *walk, uint32_t slot, uint64_t ctl, uint32_t units,
                            struct check_class *row)
{
    const struct pool_view *view = walk->view;
    const struct pool_header *header = &view->headers[slot];
    const struct page_name name = header_name(header);
    const uint32_t length_bytes = (uint32_t)(shm_load(&header->place) >> 32);
    const uint32_t entry = name.namespace_id % POOL_NAMESPACES;
    const uint64_t state = shm_load(&view->name_states[entry]);
    uint32_t found_slot;
    uint64_t found_ctl;
    const bool is_reachable = index_find(view, &name, &found_slot, &found_ctl) == TARN_OK;
    const enum tarn_status verified = walk->verify ? page_verify(view, slot) : TARN_MISS;
    if (!ctl_same_page(shm_load(&header->ctl), ctl))
        return; /* it went while we looked */

    struct pool_check *check = walk->check;
    check->bytes += length_bytes;
    row->page_count++;
    row->bytes += length_bytes;
    if (length_bytes == 0 || length_bytes > (uint64_t)units * POOL_UNIT_BYTES)
        fault(walk, "a page's length does not fit its slot:", slot);
    if (name_state(state) == NAME_READY && name_id(entry, state) == name.namespace_id) {
        check->names[entry].page_count++;
        check->names[entry].bytes += length_bytes;
    } else {
        check->nameless_count++;
    }
    check->unreachable_count += !is_reachable;
    check->verified_count += verified == TARN_OK;
    if (verified == TARN_CORRUPT) {
        check->corrupt_count++;
        fault(walk, "a page failed its checksum: slot", slot);
    }
}

static void slot_check(struct walk *walk, uint32_t slot, uint32_t units, struct check_class *row)
{
    const struct pool_header *header = &walk->view->headers[slot];
    const uint64_t ctl = shm_load(&header->ctl);
    const uint64_t pins = shm_load(&header->pins);
    const enum page_state state = ctl_state(ctl);
    if (state >= PAGE_STATE_COUNT) {
        fault(walk, "a slot is in no known state:", slot);
        return;
    }
    walk->check->slots[state]++;
    walk->check->pinned_count += (pins & walk->alive) != 0;
    walk->check->left_count +=
        (pins & ~walk->alive) != 0 || (ctl_is_owned(ctl) && !is_alive(walk, ctl_owner(ctl)));
    if (state == PAGE_COMMITTED)
        committed_check(walk, slot, ctl, units, row);
}

/* Slots whose headers belong to no page of a chunk hold nothing. */
static void spare_check(struct walk *walk, uint32_t first, uint32_t end)
{
    for (uint32_t slot = first; slot < end; slot++) {
        const uint64_t ctl = shm_load(&walk->view->headers[slot].ctl);
        const uint32_t frame = slot / walk->view->geometry.frame_slots;
        if (ctl_state(ctl) != PAGE_COMMITTED && ctl_state(ctl) < PAGE_STATE_COUNT)
            continue;
        uint64_t offset;
        if (view_page_offset(walk->view, slot, 1, &offset) == TARN_MISS &&
            shm_load(&walk->view->headers[slot].ctl) == ctl)
            fault(walk, "a page outside every chunk: frame", frame);
    }
}

/* Check the chunk or the empty frame at `frame`; returns how many frames it covers. */
static uint32_t frame_check(struct walk *walk, uint32_t frame)
{
    const struct pool_view *view = walk->view;
    const struct pool_geometry *geometry = &view->geometry;
    const uint64_t word = shm_load(&view->frames[frame]);
    const uint32_t first = frame * geometry->frame_slots;
    const enum frame_state state = frame_state(word);
    if (state >= FRAME_STATE_COUNT) {
        fault(walk, "a frame is in no known state:", frame);
        return 1;
    }
    walk->check->frames[state]++;
    if (state != FRAME_ACTIVE && state != FRAME_DRAINING) {
        spare_check(walk, first, first + geometry->frame_slots);
        return 1; /* a tail met here belongs to a chunk that is being made or taken apart */
    }
    const uint32_t frames = frame_frames(word);
    const uint32_t units = frame_units(word);
    const uint32_t pages = chunk_pages(geometry, units, frames);
    if (pages == 0 || frames > geometry->frame_count - frame) {
        fault(walk, "a chunk's geometry is senseless: frame", frame);
        return 1;
    }
    for (uint32_t i = 1; i < frames; i++) {
        walk->check->frames[FRAME_TAIL]++;
        if (shm_load(&view->frames[frame + i]) != frame_make_tail(frame) &&
            shm_load(&view->frames[frame]) == word)
            fault(walk, "a chunk lacks a frame:", frame + i);
    }
    struct check_class *row = class_row(walk, units);
    row->chunk_count++;
    row->slot_count += pages;
    for (uint32_t i = 0; i < pages; i++)
        slot_check(walk, first + i, units, row);
    spare_check(walk, first + pages, first + frames * geometry->frame_slots);
    return frames;
}

static void index_check(struct walk *walk)
{
    const struct pool_geometry *geometry = &walk->view->geometry;
    for (uint32_t bucket = 0; bucket < geometry->bucket_count; bucket++) {
        for (uint32_t i = 0; i < POOL_BUCKET_WORDS; i++) {
            const uint64_t word = shm_load(&walk->view->buckets[bucket].words[i]);
            if ((uint32_t)word > geometry->slot_count)
                fault(walk, "an index word names no slot: bucket", bucket);
        }
    }
}

void image_check(const struct pool_view *view, uint64_t alive, bool verify,
                 struct pool_check *out_check)
{
    *out_check = (struct pool_check){ 0 };
    struct walk walk = { .view = view, .check = out_check, .alive = alive, .verify = verify };
    for (uint32_t frame = 0; frame < view->geometry.frame_count;)
        frame += frame_check(&walk, frame);
    index_check(&walk);
}
