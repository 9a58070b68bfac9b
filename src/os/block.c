/* SPDX-License-Identifier: Apache-2.0 */
#include "os/block.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

enum tarn_status block_init(struct block *block, size_t size_bytes)
{
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        log_error("cannot have %zu bytes of memory: %s", size_bytes, strerrordesc_np(errno));
        return TARN_NO_MEMORY;
    }
    (void)madvise(base, size_bytes, MADV_HUGEPAGE); /* a wish */
    if (madvise(base, size_bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        log_error("cannot have %zu bytes of memory: %s", size_bytes, strerrordesc_np(errno));
        (void)munmap(base, size_bytes);
        return TARN_NO_MEMORY;
    }
    *block = (struct block){ .base = base, .size_bytes = size_bytes };
    return TARN_OK;
}

void block_deinit(struct block *block)
{
    if (block->base)
        (void)munmap(block->base, block->size_bytes);
    *block = (struct block){ 0 };
}
