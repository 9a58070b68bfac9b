/* SPDX-License-Identifier: Apache-2.0 */
/* wakeup.h - a file descriptor that polls readable from signal to clear. Any thread may signal. */
#ifndef OS_WAKEUP_H
#define OS_WAKEUP_H

#include "base/base.h"

struct wakeup {
    int fd; /* poll it for reading; never read it */
};

/* IO: no descriptor left (logged). */
NODISCARD enum tarn_status wakeup_init(struct wakeup *wakeup);
void wakeup_deinit(struct wakeup *wakeup);

void wakeup_signal(struct wakeup *wakeup);
void wakeup_clear(struct wakeup *wakeup);

/* Wait until it is signalled or `deadline_ns` (os/clock.h) has passed. */
void wakeup_wait(struct wakeup *wakeup, uint64_t deadline_ns);

#endif
