/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - hash map from fixed-size byte keys to pointers.
 *
 * Open addressing with linear probing, at most three quarters full. Keys are copied
 * in; values are borrowed. Not for keys from outside that could be chosen to collide:
 * ids and digests only. One thread at a time.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/base.h"

enum { MAP_KEY_BYTES_MAX = 32 };

struct map {
    uint8_t *keys;
    void **values;   /* NULL = free place */
    size_t capacity; /* zero or a power of two */
    size_t count;
    size_t key_bytes;
};

/* key_bytes: 1 to MAP_KEY_BYTES_MAX. Allocates nothing yet. */
void map_init(struct map *map, size_t key_bytes);
void map_deinit(struct map *map); /* values are the caller's; NULL and zeroed are fine */

/* Make room so that `count` entries fit without a further allocation. */
NODISCARD enum tarn_status map_reserve(struct map *map, size_t count);

/* Set the value of a key, new or present; `value` is not NULL. */
NODISCARD enum tarn_status map_set(struct map *map, const void *key, void *value);

/* The key's value, or NULL. */
void *map_get(const struct map *map, const void *key);

/* Take a key out and return its value, or NULL when it was not there. */
void *map_remove(struct map *map, const void *key);

/* Walk: *position starts at 0; returns the next value or NULL at the end. Do not change the map
 * during a walk. */
void *map_next(const struct map *map, size_t *position);

#endif
