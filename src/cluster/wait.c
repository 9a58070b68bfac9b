/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/wait.h"

#include <inttypes.h>

#include "base/log.h"
#include "os/clock.h"
#include "os/stop.h"

enum { PAUSE_MS = 20, LINE_MS = 5000 };

void wait_init(struct wait *wait, const char *what, uint64_t timeout_ms)
{
    const uint64_t now_ns = clock_now_ns();
    *wait = (struct wait){ .what = what,
                           .start_ns = now_ns,
                           .deadline_ns = now_ns + timeout_ms * NS_PER_MS,
                           .line_ns = now_ns + LINE_MS * NS_PER_MS };
}

uint64_t wait_passed_ms(const struct wait *wait)
{
    return (clock_now_ns() - wait->start_ns) / NS_PER_MS;
}

uint64_t wait_left_ms(const struct wait *wait)
{
    const uint64_t now_ns = clock_now_ns();
    return now_ns < wait->deadline_ns ? (wait->deadline_ns - now_ns) / NS_PER_MS : 0;
}

enum tarn_status wait_pause(struct wait *wait, const char *detail)
{
    const uint64_t now_ns = clock_now_ns();
    if (now_ns >= wait->deadline_ns)
        return TARN_STALE;
    if (now_ns >= wait->line_ns) {
        log_info("waiting for %s: %s (%" PRIu64 " s of %" PRIu64 " s)", wait->what, detail,
                 (now_ns - wait->start_ns) / NS_PER_S,
                 (wait->deadline_ns - wait->start_ns) / NS_PER_S);
        wait->line_ns += LINE_MS * NS_PER_MS;
    }
    if (!stop_wait(PAUSE_MS))
        return TARN_OK;
    log_info("told to end while waiting for %s", wait->what);
    return TARN_AGAIN;
}
