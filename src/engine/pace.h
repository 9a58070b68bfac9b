/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace.h - how many threads the next step should use, when the user did not say.
 *
 * ggml's threads spin at their barriers: where a neighbour takes one of the processors, every
 * barrier waits until the scheduler brings the missing thread back, and more threads are slower
 * than fewer. A thread that spins uses its processor, so contention shows in the processor time:
 * a step of n threads that took t seconds used n * t when it was alone, and less when it was not.
 * Below SHARE_LOW one thread is given up; now and then a step is tried with one more, at intervals
 * that double while it does not help. Results do not depend on the number of threads. Pure.
 */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include "base/base.h"

struct pace {
    uint32_t threads_max;
    uint32_t threads; /* what is known to be good */
    bool is_trying;   /* the step under way uses one more */
    uint64_t try_at_ns;
    uint64_t try_wait_ns;
    uint64_t wall_ns; /* of steps not judged yet, too short by themselves */
    uint64_t busy_ns;
};

void pace_init(struct pace *pace, uint32_t threads_max);

/* Threads for the step that starts at now_ns. */
uint32_t pace_begin(struct pace *pace, uint64_t now_ns);

/* The step is over: it took wall_ns, in which the process used cpu_ns of processor time. */
void pace_end(struct pace *pace, uint64_t now_ns, uint64_t wall_ns, uint64_t cpu_ns);

#endif
