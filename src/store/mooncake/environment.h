/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.h - what Mooncake reads from this process's environment, and nowhere else.
 *
 * How long a call waits for the master is MC_RPC_TIMEOUT_MS and MC_RPC_CONNECT_TIMEOUT_MS, 30 s
 * unless set. A running process with threads must not change its environment, so that this is done
 * before there are any: by whoever starts the process (its children get it in their environment),
 * by `tarn` at its start, or by the first pool that is opened while the process has one thread.
 * What is set already is left alone.
 */
#ifndef STORE_MOONCAKE_ENVIRONMENT_H
#define STORE_MOONCAKE_ENVIRONMENT_H

#include "base/base.h"

/* The process has one thread, or everything is set already; otherwise nothing is changed and a
 * warning names what to set. RPC time-outs become half of deadline_ms; a transfer that does not
 * move ends after deadline_ms, in whole seconds, not after 30. Unless they are set, too: TCP is
 * given 60 KiB at a time, for the 64 KiB of Mooncake's own do not fit into one packet, the largest
 * of which has 65535 bytes with its headers; a few attempts to reach the master at setup in place
 * of twenty; and only warnings on standard error. */
void mooncake_environment_prepare(uint32_t deadline_ms);

#endif
