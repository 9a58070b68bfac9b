/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank-pool.h - the pool that an engine of several ranks is tested over: a file in shared memory,
 * or the Mooncake pool that the environment variable TARN_MOONCAKE_POOL names, whose memory others
 * lend. And what happens to a pool from outside: pages that are lost, or changed.
 *
 * All but rank_pool_open() work in a process of their own, so that the one that forks ranks has no
 * thread of a store.
 */
#ifndef TEST_RANK_POOL_H
#define TEST_RANK_POOL_H

#include "store/store.h"

/* False: it cannot be made. */
bool rank_pool_init(void);
bool rank_pool_deinit(void);

/* Whether it is Mooncake's. */
bool rank_pool_is_far(void);

/* As a rank has it; `lent_bytes`: what it lends to a Mooncake pool. */
NODISCARD enum tarn_status rank_pool_open(uint64_t lent_bytes, struct store **out_store);

/* Whether the page of every digest is there in every namespace. Says what is not. */
bool rank_pool_has(const char *const *spaces, size_t space_count, const struct tarn_digest *digests,
                   uint32_t count);

/* Take a page out of the pool. False: it was not there. */
bool rank_pool_lose(const char *space, const struct tarn_digest *digest);

/* Flip a bit of a page that is there with these bytes, behind the back of whoever put it. */
bool rank_pool_damage(const char *space, const struct tarn_digest *digest, const uint8_t *bytes,
                      size_t size_bytes);

#endif
