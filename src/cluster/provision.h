/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provision.h - what a server needs of the cluster before it starts: a master launched or found, a
 * run directory with mooncake.json, and a donation; and all of it put away at the end.
 *
 * Order: provision_open() before the model is loaded, provision_entered() once the pool is open,
 * provision_leave() before it is closed, provision_close(). All in the main thread, after
 * stop_prepare() (os/stop.h).
 */
#ifndef CLUSTER_PROVISION_H
#define CLUSTER_PROVISION_H

#include "base/base.h"
#include "config/option.h"

struct provision;

/*
 * From a server's options, borrowed until it is closed, and environment (as environ), whose strings
 * are. A server that asks for nothing of this kind gets one that does nothing; else what Mooncake
 * reads from this process's environment is set, which wants a process of one thread.
 * Every failure is logged: INVALID (options that contradict themselves), UNSUPPORTED (a program or
 * a library is missing), NO_SPACE (more memory than this host has), IO. Outcomes: AGAIN (told to
 * end). Nothing is left behind unless OK.
 */
NODISCARD enum tarn_status provision_open(const struct options *options, char *const *environment,
                                          struct provision **out_provision);

/* Let the options say what was found: --pool is "mooncake:PATH", or "none" beside a donation alone;
 * and what a mooncake.json that is not ours says of the connector, where nobody else did. Texts
 * live as long as `provision`. */
void provision_apply(const struct provision *provision, struct options *options);

/* The engine is loaded and the pool open: say how many tokens fit, and lend. `block_bytes`: of one
 * block's pages on one rank; 0: not known. Fails as provision_open() when the memory cannot be
 * lent. */
NODISCARD enum tarn_status provision_entered(struct provision *provision, uint64_t block_bytes,
                                             uint32_t block_tokens);

/* The pool is about to be closed: say where blocks landed; the donation ends. */
void provision_leave(struct provision *provision);

/* Withdraw the address, stop a launched master, remove the files. NULL is fine. */
void provision_close(struct provision *provision);

#endif
