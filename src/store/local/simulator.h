/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulator.h - several processes on one pool image, in one thread, step by step.
 *
 * The pool's own sources, compiled with POOL_SIMULATE, run as cooperative threads of simulated
 * processes. At every access to a shared word and at every 4 KiB of page data a seed decides who
 * goes on, and who is killed. Killed processes lose their private memory; their other thread may go
 * on for a while, as one inside a long write does. After each step the checker looks: bytes that
 * come back are those that were put, a leased slot is not reused, no call takes more than so many
 * steps of its own. At the end everybody dies, a last process takes over, and nothing may be lost:
 * no pin, no slot.
 */
#ifndef STORE_LOCAL_SIMULATOR_H
#define STORE_LOCAL_SIMULATOR_H

#include "store/local/shm.h"

struct simulation {
    /* in */
    uint64_t seed;
    enum shm_mistake mistake; /* made throughout */
    bool is_roomy; /* nobody dies, nothing fails, all pages fit: none may go, no put may fail */
    /* out */
    const char *violation; /* NULL: none */
    uint64_t step_count;
    uint64_t kill_count;
    uint64_t put_count; /* committed */
    uint64_t hit_count; /* pages read */
    uint64_t eviction_count;
};

/* Run one schedule. Fails with NO_MEMORY. */
NODISCARD enum tarn_status simulate(struct simulation *simulation);

#endif
