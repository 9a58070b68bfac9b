/* SPDX-License-Identifier: Apache-2.0 */
#include "os/stop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "os/clock.h"

static void signals_fill(sigset_t *signals)
{
    (void)sigemptyset(signals);
    (void)sigaddset(signals, SIGTERM);
    (void)sigaddset(signals, SIGINT);
}

void stop_prepare(void)
{
    sigset_t signals;
    signals_fill(&signals);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

bool stop_wait(uint64_t timeout_ms)
{
    const uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    sigset_t signals;
    signals_fill(&signals);
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        const struct timespec timeout = { .tv_sec = (time_t)(left_ns / NS_PER_S),
                                          .tv_nsec = (long)(left_ns % NS_PER_S) };
        if (sigtimedwait(&signals, NULL, &timeout) > 0)
            return true;
        if (errno != EINTR || left_ns == 0)
            return false;
    }
}

bool stop_is_pending(void)
{
    sigset_t pending;
    (void)sigemptyset(&pending);
    (void)sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}
