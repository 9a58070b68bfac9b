/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pace.h"

static const uint64_t JUDGED_NS = 5000000;         /* what is shorter says little */
static const uint64_t TRY_WAIT_NS_MIN = 250000000; /* between tries with one thread more */
static const uint64_t TRY_WAIT_NS_MAX = UINT64_C(8000000000);

/* In percent of the threads' time: below LOW a neighbour is there, from HIGH on there is none. */
enum { SHARE_LOW = 75, SHARE_HIGH = 90 };

void pace_init(struct pace *pace, uint32_t threads_max)
{
    ASSERT(threads_max > 0);
    *pace = (struct pace){ .threads_max = threads_max,
                           .threads = threads_max,
                           .try_wait_ns = TRY_WAIT_NS_MIN };
}

uint32_t pace_begin(struct pace *pace, uint64_t now_ns)
{
    if (pace->threads < pace->threads_max && !pace->is_trying && now_ns >= pace->try_at_ns) {
        pace->is_trying = true;
        pace->wall_ns = 0;
        pace->busy_ns = 0;
    }
    return pace->threads + pace->is_trying;
}

static void try_later(struct pace *pace, uint64_t now_ns)
{
    pace->try_at_ns = now_ns + pace->try_wait_ns;
    pace->try_wait_ns *= 2;
    if (pace->try_wait_ns > TRY_WAIT_NS_MAX)
        pace->try_wait_ns = TRY_WAIT_NS_MAX;
}

void pace_end(struct pace *pace, uint64_t now_ns, uint64_t wall_ns, uint64_t cpu_ns)
{
    const uint32_t used = pace->threads + pace->is_trying;
    pace->wall_ns += wall_ns;
    pace->busy_ns += cpu_ns;
    if (pace->wall_ns < JUDGED_NS)
        return;
    const uint64_t share = pace->busy_ns * 100 / (pace->wall_ns * used);
    pace->wall_ns = 0;
    pace->busy_ns = 0;
    if (pace->is_trying) {
        pace->is_trying = false;
        if (share >= SHARE_HIGH) {
            pace->threads++;
            pace->try_wait_ns = TRY_WAIT_NS_MIN;
        } else {
            try_later(pace, now_ns);
        }
    } else if (used > 1 && share < SHARE_LOW) {
        pace->threads--;
        try_later(pace, now_ns);
    }
}
