/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank-machine.h - for the simulation of ranks: the machines they run on. A clock that is set by
 * hand, one pool, and for each rank its page memory and what its save and load threads would do,
 * which is done page by page when the simulation says so.
 *
 * It takes the place of connector/transfer.c and of clock_gettime() in the program it is linked to.
 * What a page holds is known: the bytes of its block on its rank in its group, or garbage.
 */
#ifndef CONNECTOR_RANK_MACHINE_H
#define CONNECTOR_RANK_MACHINE_H

#include "connector/connector.h"

enum {
    MACHINE_RANKS = 4,
    MACHINE_GROUPS = 2,
    MACHINE_SLOTS = 36,
    MACHINE_PAGE_BYTES = 16,
};

/* Whether a transfer of this request may touch this page now. */
typedef bool (*machine_may_touch)(uint32_t rank, uint64_t id, tarn_page slot);

void machine_init(uint64_t seed, machine_may_touch may_touch);
void machine_deinit(void);

extern uint64_t machine_now_ns;
uint32_t machine_pick(uint32_t count); /* 0 to count - 1 */

/* What first went wrong; NULL: nothing. */
const char *machine_fault(void);
void machine_say_fault(const char *fault);

/* The pool, as rank `rank` opens it; and its pages' layout. */
struct store *machine_store(uint32_t rank);
void machine_layout(uint32_t rank, struct tarn_layout *out_layout);
size_t machine_lease_count(void);
/* Whether the block is there in every group of every rank. */
bool machine_pool_has(const struct tarn_digest *digest, uint32_t rank_count);
/* Put a block there, in every group of every rank that was opened. */
void machine_pool_fill(const struct tarn_digest *digest);
/* Take the page of a block on one rank in one group out. */
void machine_pool_lose(const struct tarn_digest *digest, uint32_t rank, uint32_t group);

/* The forward pass writes the pages of a block. */
void machine_compute(uint32_t rank, tarn_page slot, const struct tarn_digest *digest);
/* Whether they hold what the block stands for on this rank. */
bool machine_is_right(uint32_t rank, tarn_page slot, const struct tarn_digest *digest);
/* Whether a transfer that was handed to a thread of this rank will still touch the slot. */
bool machine_is_busy(uint32_t rank, tarn_page slot);

/* Do one batch of loads, one save, of a rank, if there is one; some fail. False: there is none. */
bool machine_load(uint32_t rank);
bool machine_save(uint32_t rank);

#endif
