/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health.h - whether a store is asked at all.
 *
 * Three calls in a row that failed or came too late, or three loads, whatever was answered in
 * between, or one that does not come back: it is down, and left alone for a second; then one canary
 * is sent. If that fails as well, the pause doubles, up to 30 s; if it comes back, the store is
 * asked again. Nothing else reopens it: an answer that comes late says little. Pure; one thread.
 */
#ifndef CONNECTOR_HEALTH_H
#define CONNECTOR_HEALTH_H

#include "os/clock.h"

enum { HEALTH_FAILURES_MAX = 3 }; /* in a row, before it is down */
#define HEALTH_PAUSE_MIN_NS NS_PER_S
#define HEALTH_PAUSE_MAX_NS (30 * NS_PER_S)

enum health_state {
    HEALTH_UP,
    HEALTH_DOWN,  /* not asked until resume_ns */
    HEALTH_TRIAL, /* a canary is out */
};

/* Zeroed: up. */
struct health {
    enum health_state state;
    uint32_t failure_count; /* in a row, while it is up */
    uint32_t load_failures; /* of loads alone */
    uint64_t pause_ns;      /* this one's length */
    uint64_t resume_ns;
    uint64_t down_ns; /* since when it is down */
};

static inline bool health_is_up(const struct health *health)
{
    return health->state == HEALTH_UP;
}

/* A call was answered; or failed, or its deadline passed. True: that took the store down. */
void health_good(struct health *health, bool is_load);
bool health_bad(struct health *health, bool is_load, uint64_t now_ns);

/* Nothing can be asked: it is down at once. True: it was up. */
bool health_stop(struct health *health, uint64_t now_ns);

/* Whether to send a canary now. True once a pause; then health_canary_done() is due. */
bool health_wants_canary(struct health *health, uint64_t now_ns);
/* True: the store is up again. */
bool health_canary_done(struct health *health, bool is_good, uint64_t now_ns);

#endif
