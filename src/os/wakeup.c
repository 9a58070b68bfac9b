/* SPDX-License-Identifier: Apache-2.0 */
#include "os/wakeup.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "os/clock.h"

enum tarn_status wakeup_init(struct wakeup *wakeup)
{
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        log_error("no event descriptor: error %d (see ulimit -n)", errno);
        return TARN_IO;
    }
    wakeup->fd = fd;
    return TARN_OK;
}

void wakeup_deinit(struct wakeup *wakeup)
{
    (void)close(wakeup->fd);
    wakeup->fd = -1;
}

void wakeup_signal(struct wakeup *wakeup)
{
    const uint64_t one = 1;
    const ssize_t written = write(wakeup->fd, &one, sizeof(one));
    (void)written; /* only fails when it has been signalled 2^64 times: then it is readable */
}

void wakeup_clear(struct wakeup *wakeup)
{
    uint64_t count;
    const ssize_t taken = read(wakeup->fd, &count, sizeof(count));
    (void)taken; /* EAGAIN: it was not signalled */
}

void wakeup_wait(struct wakeup *wakeup, uint64_t deadline_ns)
{
    struct pollfd poll_fd = { .fd = wakeup->fd, .events = POLLIN };
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= deadline_ns)
            return;
        const uint64_t left_ns = deadline_ns - now_ns;
        const struct timespec timeout = {
            .tv_sec = (time_t)(left_ns / NS_PER_S),
            .tv_nsec = (long)(left_ns % NS_PER_S),
        };
        const int ready = ppoll(&poll_fd, 1, &timeout, NULL);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return;
    }
}
