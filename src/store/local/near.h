/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h - which frames of page data are in this process's page table, so that copying does not
 * stumble over a page fault each 4 KiB.
 *
 * There are two mappings: one that everyone reads from, and a window that only puts write through.
 * Memory is given to a frame when its chunk is made and stays with it; a frame is opened in the
 * window by the kernel, which then tells a failure instead of raising SIGBUS. From then on only
 * what breaks a reader too (a file cut short, memory that fails) can break a writer: guard.h.
 * Private to the process, any thread; nothing of it is needed by others.
 */
#ifndef STORE_LOCAL_NEAR_H
#define STORE_LOCAL_NEAR_H

#include "store/local/view.h"

/* Have the frames of [offset, offset + size) in the page table before reading from them. */
void near_read(struct pool_view *view, uint64_t offset, uint64_t size_bytes);

/* Where [offset, offset + size) of page data can be written in place; NULL: only through
 * env.write. `is_used`: the memory was written before. Into fresh memory the kernel's way is the
 * faster one, so frames are opened when they are used again. */
uint8_t *near_write(struct pool_view *view, uint64_t offset, uint64_t size_bytes, bool is_used);

#endif
