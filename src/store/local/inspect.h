/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - what a pool holds, in words: `tarn pool stat` and `tarn pool ls`.
 *
 * Reads only, takes no process slot, and works on a pool in use: what it says is as of no single
 * moment. One thread.
 */
#ifndef STORE_LOCAL_INSPECT_H
#define STORE_LOCAL_INSPECT_H

#include "base/text.h"
#include "store/local/pool.h"

struct inspection;

/* Open a pool for reading; path NULL: the user's default pool. Outcomes: MISS (there is none; not
 * logged); UNSUPPORTED, IO (logged); NO_MEMORY. */
NODISCARD enum tarn_status inspection_open(const char *path, struct inspection **out_inspection);
void inspection_close(struct inspection *inspection); /* NULL is fine */

/* Walk the whole pool; with `verify` also every page's checksum. */
void inspection_refresh(struct inspection *inspection, bool verify);

/* Whether the last walk found nothing that must not be. */
bool inspection_is_sound(const struct inspection *inspection);

/* Sizes, slots by state, processes, page sizes and the verdict of the last walk. */
NODISCARD enum tarn_status inspection_print_stat(const struct inspection *inspection,
                                                 struct text *text);

/* One line a namespace: pages, bytes, text. */
NODISCARD enum tarn_status inspection_print_names(const struct inspection *inspection,
                                                  struct text *text);

#endif
