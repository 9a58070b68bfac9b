/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-store.h - a store on the heap that does what a test tells it: miss, fail, be slow, lie.
 *
 * Any thread may call. Several stores may share their pages, as processes do.
 */
#ifndef TEST_FAKE_STORE_H
#define TEST_FAKE_STORE_H

#include "store/store.h"

struct fake_pages; /* what a pool holds */

struct fake_pages *fake_pages_create(void);
void fake_pages_destroy(struct fake_pages *pages);
size_t fake_pages_count(struct fake_pages *pages);
/* Whether the block is there in this many namespaces: groups. */
size_t fake_pages_of(struct fake_pages *pages, const struct tarn_digest *digest);
void fake_pages_drop(struct fake_pages *pages, const struct tarn_digest *digest,
                     const char *namespace_part); /* "" : every group */
/* Flip a byte: a get then answers CORRUPT. */
void fake_pages_damage(struct fake_pages *pages, const struct tarn_digest *digest);

/* Whether every page holds what `is_right` says its digest stands for. */
bool fake_pages_all(struct fake_pages *pages,
                    bool (*is_right)(const struct tarn_digest *digest, const uint8_t *bytes,
                                     uint64_t size_bytes));

/* Flip the last byte, unseen by checksums: as if it had been put for something else. */
void fake_pages_forge(struct fake_pages *pages, const struct tarn_digest *digest);

struct store *fake_store_create(struct fake_pages *pages); /* store_close() destroys it */

/* What the store asks of its user, from now on; it then checks that it is given it: registered
 * memory, one span, headroom that may be written. */
void fake_store_set_traits(struct store *store, const struct store_traits *traits);
size_t fake_store_registered(struct store *store); /* ranges */

enum fake_call { FAKE_LOOKUP, FAKE_GET, FAKE_PUT, FAKE_REGISTER, FAKE_CALLS };

/* Items `first` (from 0, counted from now) to `last` of this kind of call get `status`. */
void fake_store_fail(struct store *store, enum fake_call call, size_t first, size_t last,
                     enum tarn_status status);
/* Calls of this kind wait inside the store until they are let go. */
void fake_store_hold(struct store *store, enum fake_call call, bool hold);
/* Wait until a call is held; false after 10 s. */
bool fake_store_is_held(struct store *store, enum fake_call call);
/* From now on, so many of a thousand items and lookups fail, in ways and places that `seed` picks.
 */
void fake_store_fail_at_random(struct store *store, uint64_t seed, uint32_t permille);
/* The item that is asked for as the nth (from 0, counted from now) is not held any more when
 * store_holds() asks: a transfer that was given up came late. With the trait writes_late. */
void fake_store_write_late(struct store *store, size_t nth);
/* Make every lookup take this long. */
void fake_store_slow_lookup(struct store *store, uint32_t ms);

size_t fake_store_calls(struct store *store, enum fake_call call); /* items asked for */
size_t fake_store_batches(struct store *store, enum fake_call call);
size_t fake_store_batch(struct store *store, enum fake_call call, size_t nth); /* its items; < 64 */
size_t fake_store_leases(struct store *store);                                 /* held */

#endif
