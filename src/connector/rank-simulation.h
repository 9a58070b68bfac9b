/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank-simulation.h - for tests: one random life of an engine of two to four ranks, over the table
 * of tarn.h, checked after every event.
 *
 * A seed decides requests (which share prefixes, end early, and use each id again), what the pool
 * loses, which transfers fail, how long each takes, and what the transport does: messages are late,
 * come twice, and overtake each other. In half of the lives a rank, or the leader, is lost.
 *
 * What must hold:
 *   - an offer is what every group on every rank has;
 *   - a verdict is the same on all ranks, and what it calls good is good on each of them;
 *   - no rank computes for a request whose load's verdict it does not have, or on pages that are
 *     not right, or into pages that a transfer may still touch;
 *   - a page that is given back is touched by no rank any more;
 *   - nothing is saved but what its key stands for;
 *   - a message that came before is refused;
 *   - every request ends, and its pages come back; nobody is told of an end that had no cause, and
 *     when a rank is lost all others are told in time.
 */
#ifndef CONNECTOR_RANK_SIMULATION_H
#define CONNECTOR_RANK_SIMULATION_H

#include "base/base.h"

struct rank_simulation_counts {
    uint64_t messages;
    uint64_t repeated; /* messages that came twice */
    uint64_t early;    /* that came before what they build on */
    uint64_t loads;
    uint64_t short_loads;
    uint64_t forwards;
    uint64_t ends; /* lives in which a rank was lost */
};

/* NULL when all held, else what did not; valid until the next call. `counts` is added to. */
const char *simulate_ranks(uint64_t seed, struct rank_simulation_counts *counts);

#endif
