/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/process.h"

#include "store/local/frame.h"
#include "store/local/name.h"

static bool is_dead(uint64_t dead, uint32_t owner)
{
    return owner < POOL_PROCESSES && (dead >> owner & 1);
}

static void header_sweep(struct pool_header *header, uint64_t dead)
{
    if (shm_load(&header->pins) & dead)
        (void)shm_and(&header->pins, ~dead);
    const uint64_t ctl = shm_load(&header->ctl);
    if (!ctl_is_owned(ctl) || !is_dead(dead, ctl_owner(ctl)))
        return;
    /* What it was writing is lost; what it was evicting is whole, if perhaps no longer indexed. */
    const enum page_state state = ctl_state(ctl) == PAGE_RESERVED ? PAGE_FREE : PAGE_COMMITTED;
    (void)shm_cas(&header->ctl, ctl, ctl_make(state, 0, ctl_generation(ctl)));
}

void process_sweep(struct pool_view *view, uint64_t dead)
{
    for (uint32_t slot = 0; slot < view->geometry.slot_count; slot++)
        header_sweep(&view->headers[slot], dead);
    frames_sweep(view, dead);
    names_sweep(view, dead);
}

void process_sweep_all(struct pool_view *view, bool is_new_boot)
{
    uint64_t used_bytes = 0;
    process_sweep(view, UINT64_MAX);
    for (uint32_t slot = 0; slot < view->geometry.slot_count; slot++) {
        struct pool_header *header = &view->headers[slot];
        const uint64_t ctl = shm_load(&header->ctl);
        if (is_new_boot && (ctl & CTL_ATTACHED))
            (void)shm_and(&header->ctl, ~(uint64_t)CTL_ATTACHED);
        if (is_new_boot && ctl_state(ctl) == PAGE_QUARANTINED)
            (void)shm_cas(&header->ctl, ctl, ctl_make(PAGE_FREE, 0, ctl_generation(ctl)));
        if (ctl_state(ctl) == PAGE_COMMITTED)
            used_bytes += shm_load(&header->place) >> 32;
    }
    shm_store(&view->live->used_bytes, used_bytes);
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        shm_store(&view->processes[process].is_used, 0);
        shm_store(&view->processes[process].lease_ns, 0);
        shm_store(&view->processes[process].shown_pid, 0);
    }
}

static void slot_clean(struct pool_view *view, uint32_t process)
{
    struct pool_process *slot = &view->processes[process];
    process_sweep(view, UINT64_C(1) << process);
    shm_store(&slot->lease_ns, 0);
    shm_store(&slot->shown_pid, 0);
    shm_store(&slot->is_used, 0); /* last: until then the next one sweeps again */
}

enum tarn_status process_join(struct pool_view *view, uint32_t shown_pid)
{
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        struct pool_process *slot = &view->processes[process];
        if (!view->env.process_take(view->env.context, process))
            continue;
        if (shm_load(&slot->is_used) != 0)
            slot_clean(view, process);
        shm_store(&slot->is_used, 1); /* before anything is owned */
        shm_store(&slot->shown_pid, shown_pid);
        view->process = process;
        return TARN_OK;
    }
    return TARN_NO_SPACE;
}

void process_leave(struct pool_view *view)
{
    if (view->process >= POOL_PROCESSES)
        return;
    struct pool_process *slot = &view->processes[view->process];
    shm_store(&slot->shown_pid, 0);
    /* Threads end one by one when a process is killed: the last one may get as far as here. */
    if (atomic_load(&view->owner_count) == 0 && view->lease_count == 0)
        shm_store(&slot->is_used, 0);
    view->env.process_release(view->env.context, view->process);
    view->process = VIEW_NO_PROCESS;
}

static bool reclaim_locked(struct pool_view *view, uint64_t interval_ns)
{
    const uint64_t now_ns = view_now_ns(view);
    if (now_ns - view->reclaim_ns < interval_ns)
        return false;
    view->reclaim_ns = now_ns;
    bool found = false;
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        if (process == view->process || shm_load(&view->processes[process].is_used) == 0 ||
            !view->env.process_take(view->env.context, process))
            continue;
        if (shm_load(&view->processes[process].is_used) != 0) {
            slot_clean(view, process);
            found = true;
        }
        view->env.process_release(view->env.context, process);
    }
    return found;
}

bool process_reclaim(struct pool_view *view, uint64_t interval_ns)
{
    if (view->process >= POOL_PROCESSES)
        return false;
    view_lock(&view->reclaim_lock);
    const bool found = reclaim_locked(view, interval_ns);
    view_unlock(&view->reclaim_lock);
    return found;
}
