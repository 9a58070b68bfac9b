/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.h - locks on single bytes of a file, held by an open file description.
 *
 * The kernel releases them when the last descriptor of the description is gone, which is after the
 * last thread of a killed process has stopped. They need a descriptor opened for writing. Locks
 * taken through one description do not exclude each other.
 */
#ifndef OS_LOCK_H
#define OS_LOCK_H

#include "base/base.h"

/* Take the byte at `offset` (it need not exist); false if another description holds it. Does not
 * wait. */
bool lock_take(int fd, uint64_t offset);
void lock_release(int fd, uint64_t offset);

/* Whether another description holds the byte. The descriptor may be read-only. */
bool lock_is_held(int fd, uint64_t offset);

#endif
