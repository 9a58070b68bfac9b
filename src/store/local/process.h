/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - process slots, and what becomes of what a dead process held.
 *
 * A process is alive as long as the kernel holds the lock on its slot's byte (env.process_take),
 * and for no other reason. Only who holds the byte sweeps after its former holder: an idempotent
 * walk over all words that the dead one may own.
 */
#ifndef STORE_LOCAL_PROCESS_H
#define STORE_LOCAL_PROCESS_H

#include "store/local/view.h"

/* Take a process slot, sweeping after its last holder. Outcomes: NO_SPACE (all 64 are alive). */
NODISCARD enum tarn_status process_join(struct pool_view *view, uint32_t shown_pid);

/* Give the own slot up; its leases must have been released and its puts have ended. */
void process_leave(struct pool_view *view);

/*
 * Take back what dead processes held; true if there was one. Does nothing, and false, if this
 * process looked less than `interval_ns` ago.
 */
bool process_reclaim(struct pool_view *view, uint64_t interval_ns);

/* Undo all that processes of `dead` (bit p: slot p) own: reservations, evictions, pins, frames,
 * names. Their bytes must be held. */
void process_sweep(struct pool_view *view, uint64_t dead);

/* For the first opener, alone with the image: forget all processes, and after a boot also what
 * was attached and put away. */
void process_sweep_all(struct pool_view *view, bool is_new_boot);

#endif
