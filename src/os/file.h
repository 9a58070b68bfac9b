/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - reading and writing files at an offset, whole or not at all. errno tells the cause. */
#ifndef OS_FILE_H
#define OS_FILE_H

#include "base/base.h"

enum { FILE_SPANS_MAX = 64 };

/* Write spans (at most FILE_SPANS_MAX) one after the other from `offset` on. NO_SPACE, IO. */
NODISCARD enum tarn_status file_write_at(int fd, uint64_t offset, const struct tarn_span *spans,
                                         uint32_t count);

/* Read exactly size_bytes. IO, also (with errno 0) when the file ends before. */
NODISCARD enum tarn_status file_read_at(int fd, uint64_t offset, void *out_data, size_t size_bytes);

/* Read a whole file or pipe of at most bytes_max; a NUL is put behind it. *out_chars is the
 * caller's to mem_free(). Outcomes: NO_SPACE (it is longer). IO, NO_MEMORY. */
NODISCARD enum tarn_status file_load(const char *path, size_t bytes_max, char **out_chars,
                                     size_t *out_bytes);

/* This boot of the machine, 16 bytes. IO. */
NODISCARD enum tarn_status file_boot_id(uint64_t out_boot[2]);

#endif
