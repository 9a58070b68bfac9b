/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/view.h"

#include "base/alloc.h"
#include "store/local/lease.h"

static void view_point(struct pool_view *view, uint8_t *metadata)
{
    const struct pool_geometry *geometry = &view->geometry;
    view->live = (struct pool_live *)(void *)(metadata + POOL_LIVE_OFFSET);
    view->processes = (struct pool_process *)(void *)(metadata + geometry->process_offset);
    view->frames = (shm_word *)(void *)(metadata + geometry->frame_offset);
    view->name_states = (shm_word *)(void *)(metadata + geometry->name_state_offset);
    view->name_texts = (struct pool_name *)(void *)(metadata + geometry->name_text_offset);
    view->headers = (struct pool_header *)(void *)(metadata + geometry->header_offset);
    view->buckets = (struct pool_bucket *)(void *)(metadata + geometry->bucket_offset);
}

static enum tarn_status view_allocate(struct pool_view *view)
{
    const uint32_t frame_count = view->geometry.frame_count;
    view->pin_counts = mem_alloc(view->geometry.slot_count, sizeof(*view->pin_counts));
    view->chunk_memory = mem_alloc((size_t)frame_count * VIEW_CLASSES, sizeof(uint32_t));
    view->touched = mem_alloc(frame_count / 64 + 1, sizeof(*view->touched));
    view->opened = mem_alloc(frame_count / 64 + 1, sizeof(*view->opened));
    if (!view->pin_counts || !view->chunk_memory || !view->touched || !view->opened)
        return TARN_NO_MEMORY;
    for (uint32_t i = 0; i < VIEW_CLASSES; i++)
        view->classes[i].chunks = view->chunk_memory + (size_t)i * frame_count;
    return leases_init(view);
}

enum tarn_status view_init(struct pool_view *view, const struct pool_geometry *geometry,
                           void *metadata, const void *data, const struct pool_env *env)
{
    *view = (struct pool_view){
        .geometry = *geometry,
        .data = data,
        .env = *env,
        .process = VIEW_NO_PROCESS,
        .verify = true,
        .random = 1,
    };
    view_point(view, metadata);
    list_init(&view->leases);
    list_init(&view->lease_cells);
    view_lock_init(&view->lease_lock);
    view_lock_init(&view->put_lock);
    view_lock_init(&view->reclaim_lock);
    const enum tarn_status status = view_allocate(view);
    if (status != TARN_OK)
        view_deinit(view);
    return status;
}

void view_deinit(struct pool_view *view)
{
    if (!view || !view->live)
        return;
    mem_free(view->pin_counts);
    mem_free(view->chunk_memory);
    mem_free(view->touched);
    mem_free(view->opened);
    mem_free(view->lease_memory);
    view_lock_deinit(&view->lease_lock);
    view_lock_deinit(&view->put_lock);
    view_lock_deinit(&view->reclaim_lock);
    *view = (struct pool_view){ 0 };
}

void view_seed(struct pool_view *view, uint64_t seed)
{
    view->random = seed | 1;
}

uint32_t view_random(struct pool_view *view, uint32_t limit)
{
    /* xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift generators" */
    view->random ^= view->random >> 12;
    view->random ^= view->random << 25;
    view->random ^= view->random >> 27;
    const uint64_t value = (view->random * UINT64_C(2685821657736338717)) >> 32;
    return (uint32_t)(value * limit >> 32);
}

uint32_t view_tick(struct pool_view *view)
{
    const uint64_t tick = shm_load(&view->live->tick) + 1;
    if (view->process != VIEW_NO_PROCESS)
        shm_store(&view->live->tick,
                  tick); /* two at once may get the same: order is all it is for */
    return (uint32_t)tick;
}

enum tarn_status view_page_offset(const struct pool_view *view, uint32_t slot,
                                  uint32_t length_bytes, uint64_t *out_offset)
{
    const struct pool_geometry *geometry = &view->geometry;
    uint32_t head = slot / geometry->frame_slots;
    if (head >= geometry->frame_count)
        return TARN_MISS;
    uint64_t word = shm_load(&view->frames[head]);
    const uint32_t frame = head;
    if (frame_state(word) == FRAME_TAIL) {
        head = frame_head(word);
        if (head >= frame)
            return TARN_MISS;
        word = shm_load(&view->frames[head]);
    }
    if (frame_state(word) != FRAME_ACTIVE && frame_state(word) != FRAME_DRAINING)
        return TARN_MISS;

    const uint32_t frames = frame_frames(word);
    const uint32_t units = frame_units(word);
    const uint32_t page = slot - head * geometry->frame_slots;
    if (page >= chunk_pages(geometry, units, frames) || frames > geometry->frame_count - head ||
        length_bytes > (uint64_t)units * POOL_UNIT_BYTES)
        return TARN_MISS;
    *out_offset = (uint64_t)head * POOL_FRAME_BYTES + (uint64_t)page * units * POOL_UNIT_BYTES;
    return TARN_OK;
}
