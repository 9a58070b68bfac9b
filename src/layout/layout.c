/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "layout/fingerprint.h"

PRINTF_LIKE(2, 3)
static enum tarn_status refuse(char reason[LAYOUT_REASON_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, LAYOUT_REASON_BYTES, format, args);
    va_end(args);
    return TARN_INVALID;
}

/* [base - headroom, base + stride * (slots - 1) + size), as far as it can be expressed; by address,
 * where base is an offset, without the headroom. */
static bool region_span(const struct tarn_region *region, bool by_slot, uint32_t headroom_bytes,
                        struct range *out_span)
{
    uint64_t start = region->base;
    uint64_t size_bytes = region->size_bytes;
    if (by_slot) {
        uint64_t steps_bytes;
        if (__builtin_mul_overflow(region->stride_bytes, region->slot_count - 1, &steps_bytes) ||
            __builtin_add_overflow(size_bytes, steps_bytes, &size_bytes) ||
            __builtin_add_overflow(size_bytes, (uint64_t)headroom_bytes, &size_bytes) ||
            __builtin_sub_overflow(start, (uint64_t)headroom_bytes, &start))
            return false;
    }
    *out_span = (struct range){ start, size_bytes };
    return size_bytes <= UINT64_MAX - start;
}

static enum tarn_status buffers_check(const struct tarn_region *region, uint32_t group,
                                      size_t index, char reason[LAYOUT_REASON_BYTES])
{
    if (region->buffer_count > LAYOUT_BUFFERS_MAX || (region->buffer_count && !region->buffers))
        return refuse(reason,
                      "region %zu of layer group %" PRIu32 " has no list of its %zu buffers", index,
                      group, region->buffer_count);
    for (size_t i = 0; i < region->buffer_count; i++) {
        if (region->buffers[i].role > TARN_INDEX_KEY)
            return refuse(reason,
                          "region %zu of layer group %" PRIu32
                          " has a buffer of unknown role %" PRIu32,
                          index, group, region->buffers[i].role);
    }
    return TARN_OK;
}

static enum tarn_status region_check(const struct tarn_layout *desc, const struct tarn_group *group,
                                     size_t index, char reason[LAYOUT_REASON_BYTES])
{
    const bool by_slot = desc->page_form == TARN_PAGES_BY_SLOT;
    const struct tarn_region *region = &group->regions[index];
    struct range span;
    if (region->size_bytes == 0)
        return refuse(reason, "region %zu of layer group %" PRIu32 " is empty", index, group->id);
    if (by_slot && region->slot_count == 0)
        return refuse(reason, "region %zu of layer group %" PRIu32 " has no slots", index,
                      group->id);
    if (by_slot && region->slot_count != group->regions[0].slot_count)
        return refuse(reason,
                      "region %zu of layer group %" PRIu32 " has %" PRIu64
                      " slots, region 0 has %" PRIu64 ": a page is one slot of all regions",
                      index, group->id, region->slot_count, group->regions[0].slot_count);
    if (by_slot && region->slot_count > 1 && region->stride_bytes < region->size_bytes)
        return refuse(reason,
                      "region %zu of layer group %" PRIu32 " has a stride of %" PRIu64
                      " bytes, below its size of %" PRIu64 ": neighbouring slots would overlap",
                      index, group->id, region->stride_bytes, region->size_bytes);
    if (by_slot && region->slot_count > 1 &&
        region->stride_bytes - region->size_bytes < desc->headroom_bytes)
        return refuse(
            reason,
            "region %zu of layer group %" PRIu32 " has a stride of %" PRIu64
            " bytes, which leaves no headroom_bytes of %" PRIu32 " between its slots of %" PRIu64,
            index, group->id, region->stride_bytes, desc->headroom_bytes, region->size_bytes);
    if (!region_span(region, by_slot, desc->headroom_bytes, &span))
        return refuse(reason,
                      "region %zu of layer group %" PRIu32 " runs past an end of the address space",
                      index, group->id);
    return buffers_check(region, group->id, index, reason);
}

static enum tarn_status group_check(const struct tarn_layout *desc, const struct tarn_group *group,
                                    char reason[LAYOUT_REASON_BYTES])
{
    const size_t index = group->id;
    uint64_t page_bytes = 0;
    if (group->region_count == 0 || !group->regions)
        return refuse(reason, "layer group %zu has no regions", index);
    if (group->region_count > LAYOUT_REGIONS_MAX)
        return refuse(reason, "layer group %zu has %zu regions, the limit is %d", index,
                      group->region_count, LAYOUT_REGIONS_MAX);
    if (group->layer_count && !group->layers)
        return refuse(reason, "layer group %zu has no list of its %zu layers", index,
                      group->layer_count);
    if (desc->headroom_bytes && group->region_count > 1)
        return refuse(reason,
                      "headroom_bytes is %" PRIu32
                      ", and pages of layer group %zu have %zu regions: it is for pages of one; "
                      "leave it 0",
                      desc->headroom_bytes, index, group->region_count);
    for (size_t i = 0; i < group->region_count; i++) {
        TRY(region_check(desc, group, i, reason));
        if (__builtin_add_overflow(page_bytes, group->regions[i].size_bytes, &page_bytes))
            return refuse(reason, "a page of layer group %zu is larger than the address space",
                          index);
    }
    return TARN_OK;
}

/* Ids are 0 to group_count - 1, each once, in any order. */
static enum tarn_status ids_check(const struct tarn_layout *desc, char reason[LAYOUT_REASON_BYTES])
{
    bool seen[LAYOUT_GROUPS_MAX] = { false };
    for (size_t i = 0; i < desc->group_count; i++) {
        const uint32_t id = desc->groups[i].id;
        if (id >= desc->group_count)
            return refuse(reason,
                          "layer group id %" PRIu32 " is not dense: %zu groups have ids 0 to %zu",
                          id, desc->group_count, desc->group_count - 1);
        if (seen[id])
            return refuse(reason, "layer group id %" PRIu32 " is used twice", id);
        seen[id] = true;
    }
    return TARN_OK;
}

static enum tarn_status memory_check(const struct tarn_layout *desc,
                                     char reason[LAYOUT_REASON_BYTES])
{
    if (desc->memory_count > LAYOUT_MEMORY_MAX || (desc->memory_count && !desc->memory))
        return refuse(reason, "no list of the %zu allocations (at most %d)", desc->memory_count,
                      LAYOUT_MEMORY_MAX);
    if (desc->page_form == TARN_PAGES_BY_ADDRESS && desc->memory_count == 0)
        return refuse(reason, "pages are named by address, but no allocation is given");
    for (size_t i = 0; i < desc->memory_count; i++) {
        const struct tarn_span *span = &desc->memory[i];
        if (span->size_bytes == 0)
            return refuse(reason, "allocation %zu is empty", i);
        if (span->size_bytes > UINT64_MAX - (uintptr_t)span->base)
            return refuse(reason, "allocation %zu runs past the end of the address space", i);
    }
    return TARN_OK;
}

static enum tarn_status layout_check(const struct tarn_layout *desc,
                                     char reason[LAYOUT_REASON_BYTES])
{
    if (desc->page_form != TARN_PAGES_BY_SLOT && desc->page_form != TARN_PAGES_BY_ADDRESS)
        return refuse(reason, "unknown page form %" PRIu32, desc->page_form);
    if (desc->tokens_per_block == 0 || desc->tokens_per_block > LAYOUT_TOKENS_PER_BLOCK_MAX)
        return refuse(reason, "tokens_per_block is %" PRIu32 ", allowed is 1 to %d",
                      desc->tokens_per_block, LAYOUT_TOKENS_PER_BLOCK_MAX);
    if (desc->group_count == 0 || !desc->groups)
        return refuse(reason, "the layout has no layer groups");
    if (desc->group_count > LAYOUT_GROUPS_MAX)
        return refuse(reason, "the layout has %zu layer groups, the limit is %d", desc->group_count,
                      LAYOUT_GROUPS_MAX);
    TRY(ids_check(desc, reason));
    for (size_t i = 0; i < desc->group_count; i++)
        TRY(group_check(desc, &desc->groups[i], reason));
    return memory_check(desc, reason);
}

/* Fill groups and regions; desc has been checked. */
static void layout_fill(struct layout *layout, const struct tarn_layout *desc, uint64_t format)
{
    struct layout_region *next = layout->regions;
    for (size_t i = 0; i < desc->group_count; i++) {
        const struct tarn_group *from = &desc->groups[i];
        struct layout_group *group = &layout->groups[from->id];
        *group = (struct layout_group){
            .slot_count = layout->form == TARN_PAGES_BY_SLOT ? from->regions[0].slot_count : 0,
            .fingerprint = fingerprint_of_group(from, format),
            .regions = next,
            .region_count = from->region_count,
            .layer_count = from->layer_count,
            .window_tokens = from->window_tokens,
        };
        for (size_t j = 0; j < from->region_count; j++, next++) {
            const struct tarn_region *region = &from->regions[j];
            next->base = region->base;
            next->size_bytes = region->size_bytes;
            next->stride_bytes = region->stride_bytes;
            group->page_bytes += region->size_bytes;
        }
        if (from->region_count > layout->region_count_max)
            layout->region_count_max = from->region_count;
    }
}

/* Spans of all regions that lie in `memory` (everywhere when it is NULL), into `out`. */
static size_t spans_collect(const struct tarn_layout *desc, const struct range *memory,
                            struct range *out)
{
    size_t count = 0;
    for (size_t i = 0; i < desc->group_count; i++) {
        for (size_t j = 0; j < desc->groups[i].region_count; j++) {
            struct range span;
            if (region_span(&desc->groups[i].regions[j], true, desc->headroom_bytes, &span) &&
                (!memory || ranges_hold(memory, 1, &span)))
                out[count++] = span;
        }
    }
    return count;
}

/* The allocations, ascending; INVALID when two of them overlap. */
static enum tarn_status memory_sort(const struct tarn_layout *desc, struct range *out_memory,
                                    char reason[LAYOUT_REASON_BYTES])
{
    for (size_t i = 0; i < desc->memory_count; i++)
        out_memory[i] =
            (struct range){ (uintptr_t)desc->memory[i].base, desc->memory[i].size_bytes };
    ranges_sort(out_memory, desc->memory_count);
    for (size_t i = 1; i < desc->memory_count; i++) {
        if (out_memory[i].start - out_memory[i - 1].start < out_memory[i - 1].size_bytes)
            return refuse(reason, "two allocations overlap");
    }
    return TARN_OK;
}

static enum tarn_status ranges_by_slot(struct layout *layout, const struct tarn_layout *desc,
                                       const struct range *memory, size_t span_count,
                                       char reason[LAYOUT_REASON_BYTES])
{
    size_t placed = 0;
    for (size_t i = 0; i < (desc->memory_count ? desc->memory_count : 1); i++) {
        struct range *next = layout->ranges + layout->range_count;
        const size_t count = spans_collect(desc, desc->memory_count ? &memory[i] : NULL, next);
        size_t merged = 0;
        TRY(ranges_merge(next, count, &merged));
        placed += count;
        layout->range_count += merged;
    }
    if (placed != span_count)
        return refuse(reason, "a region does not lie in one of the %zu allocations",
                      desc->memory_count);
    return TARN_OK;
}

/* At most what an address can hold: spans may share memory, so the sum could be more. */
static uint64_t pages_bytes(const struct layout *layout)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < layout->group_count; i++) {
        uint64_t bytes;
        if (__builtin_mul_overflow(layout->groups[i].page_bytes, layout->groups[i].slot_count,
                                   &bytes) ||
            __builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}

static void ranges_free(struct range **ranges)
{
    mem_free(*ranges);
}

static enum tarn_status layout_find_ranges(struct layout *layout, const struct tarn_layout *desc,
                                           size_t span_count, char reason[LAYOUT_REASON_BYTES])
{
    const bool by_slot = layout->form == TARN_PAGES_BY_SLOT;
    CLEANUP(ranges_free)
    struct range *memory = mem_alloc(desc->memory_count ? desc->memory_count : 1, sizeof(*memory));
    layout->ranges = mem_alloc(by_slot ? span_count : desc->memory_count, sizeof(*layout->ranges));
    if (!memory || !layout->ranges)
        return TARN_NO_MEMORY;
    TRY(memory_sort(desc, memory, reason));
    if (by_slot) {
        TRY(ranges_by_slot(layout, desc, memory, span_count, reason));
        layout->memory_bytes = pages_bytes(layout);
        return TARN_OK;
    }
    memcpy(layout->ranges, memory, desc->memory_count * sizeof(*memory));
    layout->range_count = desc->memory_count;
    for (size_t i = 0; i < layout->range_count; i++)
        layout->memory_bytes += layout->ranges[i].size_bytes;
    return TARN_OK;
}

static void layout_destroy_at(struct layout **layout)
{
    layout_destroy(*layout);
}

enum tarn_status layout_create(const struct tarn_layout *desc, uint64_t format_fingerprint,
                               char out_reason[LAYOUT_REASON_BYTES], struct layout **out_layout)
{
    size_t region_count = 0;
    TRY(layout_check(desc, out_reason));
    for (size_t i = 0; i < desc->group_count; i++)
        region_count += desc->groups[i].region_count;

    CLEANUP(layout_destroy_at)
    struct layout *layout = mem_alloc(1, sizeof(*layout));
    if (!layout)
        return TARN_NO_MEMORY;
    layout->tokens_per_block = desc->tokens_per_block;
    layout->form = (enum tarn_page_form)desc->page_form;
    layout->headroom_bytes = desc->headroom_bytes;
    layout->group_count = desc->group_count;
    layout->groups = mem_alloc(desc->group_count, sizeof(*layout->groups));
    layout->regions = mem_alloc(region_count, sizeof(*layout->regions));
    if (!layout->groups || !layout->regions)
        return TARN_NO_MEMORY;
    layout_fill(layout, desc, format_fingerprint);
    TRY(layout_find_ranges(layout, desc, region_count, out_reason));
    *out_layout = TAKE(layout);
    return TARN_OK;
}

void layout_destroy(struct layout *layout)
{
    if (!layout)
        return;
    mem_free(layout->groups);
    mem_free(layout->regions);
    mem_free(layout->ranges);
    mem_free(layout);
}

/* The run with the headroom before it. */
static struct range run_room(const struct layout *layout, const struct range *run)
{
    return (struct range){ run->start - layout->headroom_bytes,
                           run->size_bytes + layout->headroom_bytes };
}

/* The run of one region; false when there is none. */
static bool page_run(const struct layout *layout, const struct layout_group *group, size_t index,
                     tarn_page page, struct range *out_run)
{
    const struct layout_region *region = &group->regions[index];
    if (layout->form == TARN_PAGES_BY_SLOT) {
        if (page >= group->slot_count)
            return false;
        *out_run = (struct range){ region->base + region->stride_bytes * page, region->size_bytes };
        return true;
    }
    if (page == TARN_PAGE_NONE || region->base > UINT64_MAX - page ||
        page + region->base < layout->headroom_bytes)
        return false;
    *out_run = (struct range){ page + region->base, region->size_bytes };
    const struct range room = run_room(layout, out_run);
    return ranges_hold(layout->ranges, layout->range_count, &room);
}

enum tarn_status layout_page_spans(const struct layout *layout, uint32_t group, tarn_page page,
                                   struct tarn_span *out_spans)
{
    if (!layout_has_page(layout, group, page))
        return TARN_INVALID;
    const struct layout_group *found = &layout->groups[group];
    for (size_t i = 0; i < found->region_count; i++) {
        struct range run = { 0, 0 };
        (void)page_run(layout, found, i, page, &run);
        out_spans[i].base = (void *)(uintptr_t)run.start; /* NOLINT(performance-no-int-to-ptr) */
        out_spans[i].size_bytes = run.size_bytes;
    }
    return TARN_OK;
}

bool layout_has_page(const struct layout *layout, uint32_t group, tarn_page page)
{
    if (group >= layout->group_count)
        return false;
    const struct layout_group *found = &layout->groups[group];
    if (layout->form == TARN_PAGES_BY_SLOT)
        return page < found->slot_count;
    for (size_t i = 0; i < found->region_count; i++) {
        struct range run;
        if (!page_run(layout, found, i, page, &run))
            return false;
    }
    return true;
}

bool layout_page_is_whole(const struct layout *layout, uint32_t group, tarn_page page,
                          const struct range *ranges, size_t range_count)
{
    if (!layout_has_page(layout, group, page))
        return false;
    const struct layout_group *found = &layout->groups[group];
    for (size_t i = 0; i < found->region_count; i++) {
        struct range run = { 0, 0 };
        (void)page_run(layout, found, i, page, &run);
        run = run_room(layout, &run);
        if (!ranges_hold(ranges, range_count, &run))
            return false;
    }
    return true;
}

enum tarn_status layout_print(const struct layout *layout, struct text *text)
{
    TRY(text_append(text, "tokens_per_block=%" PRIu32, layout->tokens_per_block));
    for (size_t i = 0; i < layout->group_count; i++) {
        const struct layout_group *group = &layout->groups[i];
        TRY(text_append(text, ", lg%zu(layers=%zu, regions=%zu, bytes/page=%" PRIu64 ", ", i,
                        group->layer_count, group->region_count, group->page_bytes));
        if (layout->form == TARN_PAGES_BY_SLOT)
            TRY(text_append(text, "slots=%" PRIu64 ", ", group->slot_count));
        else
            TRY(text_append(text, "by address, "));
        if (group->window_tokens)
            TRY(text_append(text, "window=%" PRIu32 ")", group->window_tokens));
        else
            TRY(text_append(text, "window=none)"));
    }
    return TARN_OK;
}
