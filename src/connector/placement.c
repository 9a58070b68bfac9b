/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/placement.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"

static const char *const kind_names[] = {
    [TARN_TRANSFER_SAVE] = "saves", [TARN_TRANSFER_LOAD] = "loads"
};

static const struct store_traits *traits_of(const struct placement *placement)
{
    return store_traits(placement->config.store);
}

/* Why no page can be moved in place; NULL: it can. */
static const char *obstacle(const struct placement *placement)
{
    const struct placement_config *config = &placement->config;
    if (!device_has_cpu_access(config->device))
        return "the CPU cannot read the pages' memory";
    if (traits_of(placement)->is_contiguous_only && !placement->has_headroom)
        return "the store moves one buffer a page";
    if (traits_of(placement)->must_register && config->extra_bytes)
        return "verify_tokens stores more than the page";
    return NULL;
}

static bool headroom_is_enough(const struct placement *placement)
{
    const uint32_t wanted_bytes = traits_of(placement)->headroom_bytes;
    const uint32_t given_bytes = placement->config.layout->headroom_bytes;
    if (given_bytes && given_bytes < wanted_bytes)
        log_warn("the layout's headroom_bytes is %" PRIu32 ", below the %" PRIu32
                 " that this store's header takes: pages move as if there were none",
                 given_bytes, wanted_bytes);
    return wanted_bytes && given_bytes >= wanted_bytes && !placement->config.extra_bytes;
}

static enum tarn_status decide(struct placement *placement)
{
    const struct placement_config *config = &placement->config;
    placement->has_headroom = headroom_is_enough(placement);
    const char *why = obstacle(placement);
    if (why && config->stage == TARN_SETTING_OFF) {
        log_error("stage_through_host is off, but pages cannot be moved in place: %s; set it to "
                  "auto or on",
                  why);
        return TARN_UNSUPPORTED;
    }
    for (int kind = 0; kind < PLACEMENT_DIRECTIONS; kind++) {
        const bool outlives = kind == TARN_TRANSFER_LOAD && traits_of(placement)->is_beyond_host;
        const bool is_late = kind == TARN_TRANSFER_LOAD && traits_of(placement)->writes_late;
        placement->batch_pages[kind] = config->batch_pages;
        placement->stages_all[kind] = why || config->stage == TARN_SETTING_ON || is_late ||
                                      (config->stage == TARN_SETTING_UNSET && outlives);
    }
    if (config->stage == TARN_SETTING_OFF && traits_of(placement)->writes_late)
        log_warn("stage_through_host is off, but loads are staged all the same: this store may "
                 "write where a load has failed, and only a slot may be written late");
    return TARN_OK;
}

/* ---- page memory ---- */

static void ranges_unregister(struct placement *placement)
{
    while (placement->registered_count > 0) {
        const struct range *range = &placement->ranges[--placement->registered_count];
        store_unregister(placement->config.store,
                         (void *)(uintptr_t)range->start); /* NOLINT(performance-no-int-to-ptr) */
    }
    mem_free(TAKE(placement->ranges));
    placement->range_count = 0;
    placement->is_split = false;
}

static bool needs_ranges(const struct placement *placement)
{
    bool in_place = false;
    for (int kind = 0; kind < PLACEMENT_DIRECTIONS; kind++)
        in_place = in_place || (placement->config.is_used[kind] && !placement->stages_all[kind]);
    return in_place && traits_of(placement)->must_register;
}

static enum tarn_status ranges_register(struct placement *placement)
{
    const struct layout *layout = placement->config.layout;
    const uint64_t limit_bytes =
        traits_of(placement)->range_bytes_max ? traits_of(placement)->range_bytes_max : UINT64_MAX;
    const size_t count = ranges_split_count(layout->ranges, layout->range_count, limit_bytes);
    placement->ranges = mem_alloc(count ? count : 1, sizeof(*placement->ranges));
    if (!placement->ranges)
        return TARN_NO_MEMORY;
    ranges_split(layout->ranges, layout->range_count, limit_bytes, placement->ranges);
    placement->range_count = count;
    placement->is_split = count > layout->range_count;
    while (placement->registered_count < count) {
        const struct range *range = &placement->ranges[placement->registered_count];
        TRY(store_register(placement->config.store,
                           (void *)(uintptr_t)range->start, /* NOLINT(performance-no-int-to-ptr) */
                           (size_t)range->size_bytes));
        placement->registered_count++;
    }
    return TARN_OK;
}

/* A store that cannot have the pages' memory gets copies of them. */
static enum tarn_status pages_register(struct placement *placement)
{
    if (!needs_ranges(placement))
        return TARN_OK;
    const enum tarn_status status = ranges_register(placement);
    if (status == TARN_OK) {
        log_info("the pool's store was told of the pages' memory: %zu range%s%s",
                 placement->range_count, text_plural(placement->range_count),
                 placement->is_split ? "; pages that lie across two of them are staged" : "");
        return TARN_OK;
    }
    const size_t registered = placement->registered_count;
    const size_t count = placement->range_count;
    ranges_unregister(placement);
    if (status == TARN_NO_MEMORY)
        return status;
    if (placement->config.stage == TARN_SETTING_OFF) {
        log_error("the store took %zu of %zu range%s of the pages' memory (%s), and "
                  "stage_through_host is off: set it to auto, or raise the limit named above",
                  registered, count, text_plural(count), tarn_strerror(status));
        return TARN_UNSUPPORTED;
    }
    log_warn("the store took %zu of %zu range%s of the pages' memory (%s): all pages are staged "
             "through host memory instead, which costs a copy each",
             registered, count, text_plural(count), tarn_strerror(status));
    for (int kind = 0; kind < PLACEMENT_DIRECTIONS; kind++)
        placement->stages_all[kind] = true;
    return TARN_OK;
}

/* ---- staging pools ---- */

static bool needs_pool(const struct placement *placement, int kind)
{
    const bool copies_saves = kind == TARN_TRANSFER_SAVE && traits_of(placement)->is_beyond_host &&
                              placement->config.stage == TARN_SETTING_UNSET;
    return placement->config.is_used[kind] &&
           (placement->stages_all[kind] || placement->is_split || copies_saves);
}

static enum tarn_status pool_open(struct placement *placement, int kind)
{
    const struct placement_config *config = &placement->config;
    const struct slots_wish wish = {
        .batch_pages = config->batch_pages,
        .budget_bytes = config->staging_bytes,
        .headroom_bytes = traits_of(placement)->headroom_bytes,
        .extra_bytes = config->extra_bytes,
        .range_bytes_max = traits_of(placement)->range_bytes_max,
    };
    char reason[LAYOUT_REASON_BYTES];
    struct staging *pool = &placement->pools[kind];
    struct slots slots;
    const enum tarn_status planned = slots_plan(config->layout, &wish, reason, &slots);
    if (planned != TARN_OK) {
        log_error("%s cannot be staged: %s", kind_names[kind], reason);
        return planned;
    }
    *pool = (struct staging){ .store = config->store,
                              .layout = config->layout,
                              .device = config->device,
                              .slots = slots,
                              .direction = kind == TARN_TRANSFER_SAVE ? TARN_COPY_TO_HOST
                                                                      : TARN_COPY_FROM_HOST };
    TRY(staging_open(pool));
    if (slots.count < config->batch_pages) {
        placement->batch_pages[kind] = (uint32_t)slots.count;
        log_warn("staging_buffer of %" PRIu64 " bytes holds %zu page%s of up to %" PRIu64
                 " bytes: batches of %s are narrowed from %" PRIu32 " pages to that",
                 config->staging_bytes, slots.count, text_plural(slots.count), slots.slot_bytes,
                 kind_names[kind], config->batch_pages);
    }
    log_info("%s %s staged through host memory: %zu slot%s of %" PRIu64 " bytes", kind_names[kind],
             placement->stages_all[kind] ? "are" : "can be", slots.count, text_plural(slots.count),
             slots.slot_bytes);
    return TARN_OK;
}

enum tarn_status placement_open(struct placement *placement, const struct placement_config *config)
{
    *placement = (struct placement){ .config = *config };
    enum tarn_status status = decide(placement);
    if (status == TARN_OK)
        status = pages_register(placement);
    for (int kind = 0; kind < PLACEMENT_DIRECTIONS && status == TARN_OK; kind++) {
        if (needs_pool(placement, kind))
            status = pool_open(placement, kind);
    }
    if (status != TARN_OK)
        placement_close(placement);
    return status;
}

void placement_close(struct placement *placement)
{
    ranges_unregister(placement);
    for (int kind = 0; kind < PLACEMENT_DIRECTIONS; kind++)
        staging_close(&placement->pools[kind]);
    *placement = (struct placement){ .range_count = 0 };
}

bool placement_stages(const struct placement *placement, enum tarn_transfer_kind kind,
                      uint32_t group, tarn_page page)
{
    if (placement->stages_all[kind])
        return true;
    return placement->is_split && !layout_page_is_whole(placement->config.layout, group, page,
                                                        placement->ranges, placement->range_count);
}

bool placement_can_stage(const struct placement *placement, enum tarn_transfer_kind kind)
{
    return staging_is_open(&placement->pools[kind]);
}
