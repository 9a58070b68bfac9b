/* SPDX-License-Identifier: Apache-2.0 */
/* create.h - a new pool file: how large, and complete before it has a name. */
#ifndef STORE_LOCAL_CREATE_H
#define STORE_LOCAL_CREATE_H

#include "store/local/file.h"

#define POOL_BYTES_MIN (UINT64_C(64) << 20)

/* What the default size follows from. */
struct pool_room {
    uint64_t available_bytes;   /* MemAvailable */
    uint64_t file_system_bytes; /* free there */
    uint64_t group_bytes; /* under the tightest limit of the control groups; UINT64_MAX: none */
};

/* The least of a quarter of memory, half of the file system, half of the group's room. Pure. */
uint64_t pool_default_bytes(const struct pool_room *room);

/* Create the place's file in an open directory. Outcomes: AGAIN (another process was first),
 * NO_SPACE, IO; the last two are logged. */
NODISCARD enum tarn_status pool_create(int directory, const struct pool_place *place, int *out_fd);

#endif
