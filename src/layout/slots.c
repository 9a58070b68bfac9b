/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/slots.h"

#include <inttypes.h>
#include <stdio.h>

/* Header, largest page and what is behind it, rounded up; false: more than an address can say. */
static bool slot_size(const struct layout *layout, const struct slots_wish *wish,
                      uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < layout->group_count; i++) {
        if (bytes < layout->groups[i].page_bytes)
            bytes = layout->groups[i].page_bytes;
    }
    if (__builtin_add_overflow(bytes, (uint64_t)wish->headroom_bytes, &bytes) ||
        __builtin_add_overflow(bytes, (uint64_t)wish->extra_bytes, &bytes) ||
        __builtin_add_overflow(bytes, (uint64_t)SLOTS_ALIGN_BYTES - 1, &bytes))
        return false;
    *out_bytes = bytes - bytes % SLOTS_ALIGN_BYTES;
    return true;
}

enum tarn_status slots_plan(const struct layout *layout, const struct slots_wish *wish,
                            char out_reason[LAYOUT_REASON_BYTES], struct slots *out_slots)
{
    struct slots slots = { .headroom_bytes = wish->headroom_bytes,
                           .extra_bytes = wish->extra_bytes };
    ASSERT(layout->group_count > 0 && wish->batch_pages > 0);
    if (wish->budget_bytes == 0) {
        (void)snprintf(out_reason, LAYOUT_REASON_BYTES,
                       "staging_buffer is 0 bytes, and pages have to be staged: give it room for "
                       "at least one page");
        return TARN_INVALID;
    }
    if (!slot_size(layout, wish, &slots.slot_bytes) || slots.slot_bytes > SIZE_MAX / 2) {
        (void)snprintf(out_reason, LAYOUT_REASON_BYTES,
                       "a staging slot for the largest page is larger than the address space");
        return TARN_INVALID;
    }
    if (wish->range_bytes_max && slots.slot_bytes > wish->range_bytes_max) {
        (void)snprintf(out_reason, LAYOUT_REASON_BYTES,
                       "a staging slot has %" PRIu64
                       " bytes, and the store registers at most %" PRIu64
                       " at once: use fewer tokens per block",
                       slots.slot_bytes, wish->range_bytes_max);
        return TARN_INVALID;
    }
    const uint64_t fit = wish->budget_bytes / slots.slot_bytes;
    slots.count = fit < wish->batch_pages ? (size_t)fit : wish->batch_pages;
    if (slots.count == 0)
        slots.count = 1;
    if (slots.count > SIZE_MAX / 2 / slots.slot_bytes)
        slots.count = (size_t)(SIZE_MAX / 2 / slots.slot_bytes);
    slots.range_slots =
        wish->range_bytes_max ? (size_t)(wish->range_bytes_max / slots.slot_bytes) : slots.count;
    *out_slots = slots;
    return TARN_OK;
}

uint64_t slots_bytes(const struct slots *slots)
{
    return slots->slot_bytes * slots->count;
}

uint64_t slots_page_offset(const struct slots *slots, size_t index)
{
    ASSERT(index < slots->count);
    return slots->slot_bytes * index + slots->headroom_bytes;
}

size_t slots_range_count(const struct slots *slots)
{
    return (slots->count + slots->range_slots - 1) / slots->range_slots;
}

struct range slots_range(const struct slots *slots, size_t index)
{
    const size_t first = index * slots->range_slots;
    ASSERT(first < slots->count);
    const size_t left = slots->count - first;
    const size_t count = left < slots->range_slots ? left : slots->range_slots;
    return (struct range){ slots->slot_bytes * first, slots->slot_bytes * count };
}
