/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/health.h"

void health_good(struct health *health, bool is_load)
{
    health->failure_count = 0;
    if (is_load)
        health->load_failures = 0;
}

static void health_pause(struct health *health, uint64_t pause_ns, uint64_t now_ns)
{
    health->state = HEALTH_DOWN;
    health->pause_ns = pause_ns < HEALTH_PAUSE_MAX_NS ? pause_ns : HEALTH_PAUSE_MAX_NS;
    health->resume_ns = now_ns + health->pause_ns;
}

bool health_stop(struct health *health, uint64_t now_ns)
{
    if (!health_is_up(health))
        return false;
    health->down_ns = now_ns;
    health_pause(health, HEALTH_PAUSE_MIN_NS, now_ns);
    return true;
}

bool health_bad(struct health *health, bool is_load, uint64_t now_ns)
{
    if (!health_is_up(health))
        return false;
    health->failure_count++;
    health->load_failures += is_load;
    if (health->failure_count < HEALTH_FAILURES_MAX && health->load_failures < HEALTH_FAILURES_MAX)
        return false;
    return health_stop(health, now_ns);
}

bool health_wants_canary(struct health *health, uint64_t now_ns)
{
    if (health->state != HEALTH_DOWN || now_ns < health->resume_ns)
        return false;
    health->state = HEALTH_TRIAL;
    return true;
}

bool health_canary_done(struct health *health, bool is_good, uint64_t now_ns)
{
    ASSERT(health->state == HEALTH_TRIAL);
    if (!is_good) {
        health_pause(health, 2 * health->pause_ns, now_ns);
        return false;
    }
    health->state = HEALTH_UP;
    health->failure_count = 0;
    health->load_failures = 0;
    return true;
}
