/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/near.h"

static bool is_marked(_Atomic uint64_t *marks, uint64_t frame)
{
    return (atomic_load_explicit(&marks[frame / 64], memory_order_relaxed) >> frame % 64 & 1) != 0;
}

static void mark(_Atomic uint64_t *marks, uint64_t frame)
{
    (void)atomic_fetch_or_explicit(&marks[frame / 64], UINT64_C(1) << frame % 64,
                                   memory_order_relaxed);
}

void near_read(struct pool_view *view, uint64_t offset, uint64_t size_bytes)
{
    const uint64_t last = (offset + size_bytes - 1) / POOL_FRAME_BYTES;
    for (uint64_t frame = offset / POOL_FRAME_BYTES; frame <= last; frame++) {
        if (is_marked(view->touched, frame))
            continue;
        mark(view->touched, frame);
        if (view->env.touch)
            view->env.touch(view->env.context, frame * POOL_FRAME_BYTES, POOL_FRAME_BYTES);
    }
}

uint8_t *near_write(struct pool_view *view, uint64_t offset, uint64_t size_bytes, bool is_used)
{
    if (!view->env.window)
        return NULL;
    const uint64_t last = (offset + size_bytes - 1) / POOL_FRAME_BYTES;
    for (uint64_t frame = offset / POOL_FRAME_BYTES; frame <= last; frame++) {
        if (is_marked(view->opened, frame))
            continue;
        if (!is_used ||
            !view->env.window_open(view->env.context, frame * POOL_FRAME_BYTES, POOL_FRAME_BYTES))
            return NULL;
        mark(view->opened, frame);
        atomic_store_explicit(&view->has_opened, true, memory_order_relaxed);
    }
    return view->env.window + offset;
}
