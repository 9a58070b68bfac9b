/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - how much memory this process may still take. Any thread. */
#ifndef OS_MEMORY_H
#define OS_MEMORY_H

#include "base/base.h"

/* Bytes of the mapping that begins at `base` that this process has mapped by huge pages of shared
 * memory (ShmemPmdMapped of /proc/self/smaps). Fails with IO, MISS (no such mapping). */
NODISCARD enum tarn_status memory_mapped_huge(const void *base, uint64_t *out_bytes);

/* MemAvailable of /proc/meminfo. Fails with IO. */
NODISCARD enum tarn_status memory_available(uint64_t *out_bytes);

/*
 * The least room left under a memory limit of this process's control group and its ancestors,
 * versions 1 and 2; UINT64_MAX when nothing limits it. `group_file` and `mount` are
 * "/proc/self/cgroup" and "/sys/fs/cgroup" except in tests.
 */
uint64_t memory_group_headroom(const char *group_file, const char *mount);

#endif
