/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/lease.h"

#include "base/alloc.h"

/* One piece of lease memory. */
union lease_cell {
    struct list free_link;
    struct pool_lease lease;
    struct lease_block block;
};

enum { GROUP_PAGES = 32 }; /* looked up together, so that their cache misses overlap */

enum tarn_status leases_init(struct pool_view *view)
{
    union lease_cell *cells = mem_alloc(LEASE_CELLS, sizeof(*cells));
    if (!cells)
        return TARN_NO_MEMORY;
    view->lease_memory = cells;
    for (size_t i = 0; i < LEASE_CELLS; i++)
        list_push_back(&view->lease_cells, &cells[i].free_link);
    return TARN_OK;
}

static void *cell_take(struct pool_view *view)
{
    if (list_is_empty(&view->lease_cells))
        return NULL;
    struct list *link = view->lease_cells.next;
    list_remove(link);
    return LIST_ITEM(link, union lease_cell, free_link);
}

static void cell_give(struct pool_view *view, void *cell)
{
    struct list *link = &((union lease_cell *)cell)->free_link;
    list_init(link);
    list_push_front(&view->lease_cells, link);
}

uint64_t view_pin_bit(const struct pool_view *view)
{
    return view->process < POOL_PROCESSES ? UINT64_C(1) << view->process : 0;
}

static bool pin_locked(struct pool_view *view, uint32_t slot, uint64_t ctl)
{
    struct pool_header *header = &view->headers[slot];
    const uint64_t bit = view_pin_bit(view);
    if (bit == 0)
        return ctl_same_page(shm_load(&header->ctl), ctl);
    if (view->pin_counts[slot] == UINT16_MAX)
        return false;
    if (view->pin_counts[slot]++ == 0)
        (void)shm_or(&header->pins, bit);
    /* An evictor changes ctl first and reads pins then: one of us sees the other. */
    if (ctl_same_page(shm_load(&header->ctl), ctl))
        return true;
    if (--view->pin_counts[slot] == 0)
        (void)shm_and(&header->pins, ~bit);
    return false;
}

static void unpin_locked(struct pool_view *view, uint32_t slot)
{
    const uint64_t bit = view_pin_bit(view);
    if (bit != 0 && --view->pin_counts[slot] == 0)
        (void)shm_and(&view->headers[slot].pins, ~bit);
}

/* Show others how old this process's oldest lease is. */
static void oldest_show(struct pool_view *view)
{
    if (view->process >= POOL_PROCESSES)
        return;
    uint64_t oldest_ns = 0;
    if (!list_is_empty(&view->leases))
        oldest_ns = LIST_ITEM(view->leases.next, struct pool_lease, link)->taken_ns;
    shm_store(&view->processes[view->process].lease_ns, oldest_ns);
}

static enum tarn_status begin_locked(struct pool_view *view, struct pool_lease **out_lease)
{
    struct pool_lease *lease = cell_take(view);
    if (!lease)
        return TARN_AGAIN;
    *lease = (struct pool_lease){ .view = view, .taken_ns = view_now_ns(view) };
    list_init(&lease->blocks);
    list_init(&lease->link);
    list_push_back(&view->leases, &lease->link);
    view->lease_count++;
    if (view->leases.next == &lease->link)
        oldest_show(view); /* before the first pin, or it would protect nothing */
    *out_lease = lease;
    return TARN_OK;
}

enum tarn_status lease_begin(struct pool_view *view, struct pool_lease **out_lease)
{
    view_lock(&view->lease_lock);
    const enum tarn_status status = begin_locked(view, out_lease);
    view_unlock(&view->lease_lock);
    return status;
}

/* `slot`: a guess of where it is, or INDEX_NO_SLOT. */
static bool lease_add(struct pool_lease *lease, const struct page_name *name, uint32_t slot,
                      uint32_t stamp)
{
    struct pool_view *view = lease->view;
    struct lease_block *block = NULL;
    if (!list_is_empty(&lease->blocks))
        block = LIST_ITEM(lease->blocks.prev, struct lease_block, link);
    if (!block || block->count == LEASE_BLOCK_PAGES) {
        block = cell_take(view);
        if (!block)
            return false;
        block->count = 0;
        list_init(&block->link);
        list_push_back(&lease->blocks, &block->link);
    }
    uint64_t ctl;
    if (!index_holds(view, name, slot, &ctl) && index_find(view, name, &slot, &ctl) != TARN_OK)
        return false;
    if (!pin_locked(view, slot, ctl))
        return false;
    block->slots[block->count++] = slot;
    lease->page_count++;
    if (view->process < POOL_PROCESSES)
        shm_store_half(&view->headers[slot].stamp, stamp);
    return true;
}

/* Where the pages seem to be. Their buckets are loaded together, and then their headers. */
static void slots_guess(const struct pool_view *view, const struct page_name *names, uint32_t count,
                        uint32_t *out_slots)
{
    for (uint32_t i = 0; i < count; i++)
        index_prefetch(view, &names[i]);
    for (uint32_t i = 0; i < count; i++) {
        out_slots[i] = index_guess(view, &names[i]);
        if (out_slots[i] != INDEX_NO_SLOT)
            __builtin_prefetch(&view->headers[out_slots[i]], 1);
    }
}

void lease_extend(struct pool_lease *lease, const struct page_name *names, uint32_t count,
                  uint32_t stamp, uint32_t *out_count)
{
    struct pool_view *view = lease->view;
    uint32_t slots[GROUP_PAGES];
    uint32_t added = 0;
    view_lock(&view->lease_lock);
    for (uint32_t i = 0; i < count && i == added; i++) {
        if (i % GROUP_PAGES == 0)
            slots_guess(view, names + i, count - i < GROUP_PAGES ? count - i : GROUP_PAGES, slots);
        added += lease_add(lease, &names[i], slots[i % GROUP_PAGES], stamp);
    }
    view_unlock(&view->lease_lock);
    *out_count = added;
}

void lease_release(struct pool_lease *lease)
{
    if (!lease)
        return;
    struct pool_view *view = lease->view;
    view_lock(&view->lease_lock);
    list_for_each (link, &lease->blocks) {
        struct lease_block *block = LIST_ITEM(link, struct lease_block, link);
        for (uint32_t i = 0; i < block->count; i++)
            unpin_locked(view, block->slots[i]);
        cell_give(view, block);
    }
    const bool was_oldest = view->leases.next == &lease->link;
    list_remove(&lease->link);
    if (was_oldest)
        oldest_show(view);
    view->lease_count--;
    cell_give(view, lease);
    view_unlock(&view->lease_lock);
}

bool pins_hold(const struct pool_view *view, uint64_t pins, bool is_attached)
{
    if (is_attached && pins != 0)
        return true;
    for (; pins != 0; pins &= pins - 1) {
        const uint32_t process = (uint32_t)__builtin_ctzll(pins);
        const uint64_t taken_ns = shm_load(&view->processes[process].lease_ns);
        /* The clock is read last: were we stopped in between, a young lease would look far away. */
        const uint64_t now_ns = view_now_ns(view);
        const uint64_t age_ns = now_ns > taken_ns ? now_ns - taken_ns : taken_ns - now_ns;
        if (taken_ns != 0 && age_ns < LEASE_NS_MAX)
            return true;
    }
    return false;
}

bool page_pin(struct pool_view *view, uint32_t slot, uint64_t ctl)
{
    view_lock(&view->lease_lock);
    const bool pinned = pin_locked(view, slot, ctl);
    view_unlock(&view->lease_lock);
    return pinned;
}

void page_unpin(struct pool_view *view, uint32_t slot)
{
    view_lock(&view->lease_lock);
    unpin_locked(view, slot);
    view_unlock(&view->lease_lock);
}
