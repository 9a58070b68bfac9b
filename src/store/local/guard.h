/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - what keeps a reader alive when the memory under a mapped pool goes away.
 *
 * A process of the same user can truncate a pool file, and memory or a disk can fail: touching such
 * a page raises SIGBUS. With the guard installed, the mapping is replaced by zeros and marked as
 * broken: copies then fail their checksum, and the pool is left. Without it the signal ends the
 * process, as it does in a program that uses the library.
 */
#ifndef STORE_LOCAL_GUARD_H
#define STORE_LOCAL_GUARD_H

#include "base/base.h"

/* Handle SIGBUS in this process from now on; one that is not in a mapped pool ends the process as
 * before. Programs call it; the library does not. IO: logged. */
NODISCARD enum tarn_status guard_install(void);

/* A mapping came, or goes. Any thread. Past GUARD_RANGES_MAX mappings are not guarded. */
enum { GUARD_RANGES_MAX = 64 };
void guard_add(void *base, size_t size_bytes);
void guard_remove(void *base);

/* Whether zeros took this mapping's place. */
bool guard_is_broken(const void *base);

#endif
