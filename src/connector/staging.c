/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/staging.h"

#include "base/alloc.h"

static uint8_t *slot_page(const struct staging *staging, size_t slot)
{
    return (uint8_t *)staging->block.base + slots_page_offset(&staging->slots, slot);
}

static enum tarn_status slots_register(struct staging *staging)
{
    const size_t count = slots_range_count(&staging->slots);
    while (staging->registered_count < count) {
        const struct range range = slots_range(&staging->slots, staging->registered_count);
        TRY(store_register(staging->store, (uint8_t *)staging->block.base + range.start,
                           (size_t)range.size_bytes));
        staging->registered_count++;
    }
    return TARN_OK;
}

enum tarn_status staging_open(struct staging *staging)
{
    const size_t span_count = staging->layout->region_count_max;
    enum tarn_status status = block_init(&staging->block, (size_t)slots_bytes(&staging->slots));
    if (status == TARN_OK) {
        staging->spans = mem_alloc(span_count, sizeof(*staging->spans));
        status = staging->spans ? slots_register(staging) : TARN_NO_MEMORY;
    }
    if (status != TARN_OK)
        staging_close(staging);
    return status;
}

void staging_close(struct staging *staging)
{
    while (staging->registered_count > 0) {
        const struct range range = slots_range(&staging->slots, --staging->registered_count);
        store_unregister(staging->store, (uint8_t *)staging->block.base + range.start);
    }
    mem_free(TAKE(staging->spans));
    block_deinit(&staging->block);
}

bool staging_is_open(const struct staging *staging)
{
    return staging->block.base != NULL;
}

struct tarn_span staging_span(const struct staging *staging, size_t slot, uint32_t group)
{
    return (struct tarn_span){ slot_page(staging, slot), staging->layout->groups[group].page_bytes +
                                                             staging->slots.extra_bytes };
}

uint8_t *staging_extra(const struct staging *staging, size_t slot, uint32_t group)
{
    return slot_page(staging, slot) + staging->layout->groups[group].page_bytes;
}

/* Region by region, in order. */
static enum tarn_status page_copy(const struct staging *staging, size_t slot, uint32_t group,
                                  tarn_page page)
{
    uint8_t *at = slot_page(staging, slot);
    const enum tarn_status found = layout_page_spans(staging->layout, group, page, staging->spans);
    ASSERT(found == TARN_OK); /* checked before the job was made */
    for (size_t i = 0; i < staging->layout->groups[group].region_count; i++) {
        const struct tarn_span *span = &staging->spans[i];
        const bool saves = staging->direction == TARN_COPY_TO_HOST;
        TRY(device_copy(staging->device, saves ? (void *)at : span->base,
                        saves ? span->base : (void *)at, span->size_bytes, staging->direction));
        at += span->size_bytes;
    }
    return TARN_OK;
}

enum tarn_status staging_gather(const struct staging *staging, size_t slot, uint32_t group,
                                tarn_page page)
{
    ASSERT(staging->direction == TARN_COPY_TO_HOST);
    return page_copy(staging, slot, group, page);
}

enum tarn_status staging_scatter(const struct staging *staging, size_t slot, uint32_t group,
                                 tarn_page page)
{
    ASSERT(staging->direction == TARN_COPY_FROM_HOST);
    return page_copy(staging, slot, group, page);
}

enum tarn_status staging_wait(const struct staging *staging)
{
    return device_synchronise(staging->device, staging->direction);
}
