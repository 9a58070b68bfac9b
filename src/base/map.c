/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <string.h>

#include "base/alloc.h"

void map_init(struct map *map, size_t key_bytes)
{
    ASSERT(key_bytes >= 1 && key_bytes <= MAP_KEY_BYTES_MAX);
    *map = (struct map){ .key_bytes = key_bytes };
}

void map_deinit(struct map *map)
{
    if (!map)
        return;
    mem_free(map->keys);
    mem_free(map->values);
    *map = (struct map){ .key_bytes = map->key_bytes };
}

static size_t map_hash(const struct map *map, const void *key)
{
    const uint8_t *bytes = key;
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < map->key_bytes; i++) {
        hash ^= bytes[i];
        hash *= 0x100000001b3u;
    }
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return (size_t)(hash ^ (hash >> 32));
}

static uint8_t *map_key_at(const struct map *map, size_t place)
{
    return map->keys + place * map->key_bytes;
}

/* The place of the key, or the free place where it would go. Needs a free place. */
static size_t map_find(const struct map *map, const void *key)
{
    size_t place = map_hash(map, key) & (map->capacity - 1);
    while (map->values[place] && memcmp(map_key_at(map, place), key, map->key_bytes) != 0)
        place = (place + 1) & (map->capacity - 1);
    return place;
}

static enum tarn_status map_rehash(struct map *map, size_t capacity)
{
    struct map bigger = { .capacity = capacity, .count = map->count, .key_bytes = map->key_bytes };
    bigger.keys = mem_alloc(capacity, map->key_bytes);
    bigger.values = mem_alloc(capacity, sizeof(*bigger.values));
    if (!bigger.keys || !bigger.values) {
        map_deinit(&bigger);
        return TARN_NO_MEMORY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (!map->values[i])
            continue;
        const size_t place = map_find(&bigger, map_key_at(map, i));
        memcpy(map_key_at(&bigger, place), map_key_at(map, i), map->key_bytes);
        bigger.values[place] = map->values[i];
    }
    map_deinit(map);
    *map = bigger;
    return TARN_OK;
}

enum tarn_status map_reserve(struct map *map, size_t count)
{
    size_t capacity = map->capacity ? map->capacity : 8;
    while (capacity - capacity / 4 < count)
        capacity *= 2;
    return capacity == map->capacity ? TARN_OK : map_rehash(map, capacity);
}

enum tarn_status map_set(struct map *map, const void *key, void *value)
{
    ASSERT(value);
    if (map->capacity) {
        const size_t place = map_find(map, key);
        if (map->values[place]) {
            map->values[place] = value;
            return TARN_OK;
        }
    }
    TRY(map_reserve(map, map->count + 1));
    const size_t place = map_find(map, key);
    memcpy(map_key_at(map, place), key, map->key_bytes);
    map->values[place] = value;
    map->count++;
    return TARN_OK;
}

void *map_get(const struct map *map, const void *key)
{
    return map->capacity ? map->values[map_find(map, key)] : NULL;
}

void *map_remove(struct map *map, const void *key)
{
    if (!map->capacity)
        return NULL;
    size_t hole = map_find(map, key);
    void *value = map->values[hole];
    if (!value)
        return NULL;
    map->count--;
    /* Close the gap: move back each follower whose home is not after the hole. */
    const size_t mask = map->capacity - 1;
    for (size_t next = (hole + 1) & mask; map->values[next]; next = (next + 1) & mask) {
        const size_t home = map_hash(map, map_key_at(map, next)) & mask;
        if (((next - home) & mask) < ((next - hole) & mask))
            continue;
        memcpy(map_key_at(map, hole), map_key_at(map, next), map->key_bytes);
        map->values[hole] = map->values[next];
        hole = next;
    }
    map->values[hole] = NULL;
    return value;
}

void *map_next(const struct map *map, size_t *position)
{
    while (*position < map->capacity) {
        void *value = map->values[(*position)++];
        if (value)
            return value;
    }
    return NULL;
}
