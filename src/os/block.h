/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.h - one large block of private memory, straight from the kernel: zeroed, page-aligned, and
 * present from the start, so that it is never short later. Any thread.
 */
#ifndef OS_BLOCK_H
#define OS_BLOCK_H

#include "base/base.h"

struct block {
    void *base; /* NULL: none */
    size_t size_bytes;
};

/* In huge pages where the system gives them. NO_MEMORY: logged. */
NODISCARD enum tarn_status block_init(struct block *block, size_t size_bytes);
void block_deinit(struct block *block); /* zeroed is fine */

#endif
