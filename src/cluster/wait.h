/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.h - waiting for what others do, until a time is over or this process is told to end, with a
 * line in the log every 5 s. The process has called stop_prepare() (os/stop.h).
 */
#ifndef CLUSTER_WAIT_H
#define CLUSTER_WAIT_H

#include "base/base.h"

struct wait {
    const char *what; /* "waiting for WHAT"; borrowed */
    uint64_t start_ns;
    uint64_t deadline_ns;
    uint64_t line_ns; /* when the next line is due */
};

void wait_init(struct wait *wait, const char *what, uint64_t timeout_ms);

/* Pause for a moment before the caller looks again. `detail`: what the last look found, for the
 * log. Outcomes: STALE (the time is over), AGAIN (told to end: logged). */
NODISCARD enum tarn_status wait_pause(struct wait *wait, const char *detail);

/* Milliseconds since the start, and until the end. */
uint64_t wait_passed_ms(const struct wait *wait);
uint64_t wait_left_ms(const struct wait *wait);

#endif
