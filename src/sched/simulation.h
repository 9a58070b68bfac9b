/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulation.h - for tests: one random life of a scheduler, checked after every step.
 *
 * A seed decides the limits, the requests (families that share prefixes, several scopes), the
 * connector's speed and faults, cancellations, failing forward passes and restarts. The forward
 * pass is a fake that writes into each position a hash of the scope and all tokens up to there, and
 * verifies all positions that it reads, so that a wrong page is always seen.
 */
#ifndef SCHED_SIMULATION_H
#define SCHED_SIMULATION_H

#include "base/base.h"

struct simulation_counts {
    uint64_t passes;
    uint64_t requests;
    uint64_t device_tokens;
    uint64_t pool_tokens;
    uint64_t computed_tokens;
    uint64_t failed_calls; /* of the connector, on purpose */
};

/* NULL when all held, else what did not; valid until the next call. `counts` is added to. */
const char *simulate(uint64_t seed, struct simulation_counts *counts);

#endif
