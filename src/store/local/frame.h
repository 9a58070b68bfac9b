/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - chunks: runs of frames that hold pages of one class.
 *
 * The word of a chunk's first frame says what the chunk is; the words of its other frames name the
 * first. Making one and taking one apart go through FRAME_CLAIMED, which has an owner: if it dies,
 * whoever sweeps after it makes the frames EMPTY. Caller holds put_lock.
 */
#ifndef STORE_LOCAL_FRAME_H
#define STORE_LOCAL_FRAME_H

#include "store/local/view.h"

/* Make a chunk out of empty frames, give it memory, and reserve a slot in it before anybody else
 * can: *out_ctl is its RESERVED word. *out_head is the chunk's first frame. Outcomes: NO_SPACE (no
 * run of empty frames, or the file system is full). IO. */
NODISCARD enum tarn_status frame_claim(struct pool_view *view, const struct page_class *page,
                                       uint32_t *out_head, uint32_t *out_slot, uint64_t *out_ctl);

/* Empty one or more chunks of other classes, so that frame_claim() may find a run for this one.
 * Which: those whose sampled pages are the longest unused. False: nothing could be emptied now. */
bool frame_drain(struct pool_view *view, const struct page_class *page);

/* Finish what dead owners (bit p: process slot p) began with chunks. */
void frames_sweep(struct pool_view *view, uint64_t dead);

#endif
