/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h - being told to end: SIGTERM and SIGINT, which wait until they are asked for. */
#ifndef OS_STOP_H
#define OS_STOP_H

#include "base/base.h"

/* Before the process has a second thread, which inherits it. */
void stop_prepare(void);

/* Wait for up to timeout_ms; true: told to end. Each signal is reported once. */
bool stop_wait(uint64_t timeout_ms);

/* Whether a signal that is blocked waits to be taken; it goes on waiting. */
bool stop_is_pending(void);

#endif
