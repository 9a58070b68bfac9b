/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/absent.h"

#include <string.h>

#include "base/alloc.h"

enum tarn_status absent_init(struct absent *absent)
{
    *absent = (struct absent){ .next = 0 };
    map_init(&absent->map, ABSENT_KEY_BYTES);
    absent->entries = mem_alloc(ABSENT_MAX, sizeof(*absent->entries));
    if (!absent->entries)
        return TARN_NO_MEMORY;
    return map_reserve(&absent->map, ABSENT_MAX);
}

void absent_deinit(struct absent *absent)
{
    map_deinit(&absent->map);
    mem_free(absent->entries);
    *absent = (struct absent){ .next = 0 };
}

static void key_make(const struct tarn_digest *digest, uint32_t group,
                     uint8_t out_key[ABSENT_KEY_BYTES])
{
    memcpy(out_key, digest->bytes, sizeof(digest->bytes));
    memcpy(out_key + sizeof(digest->bytes), &group, sizeof(group));
}

static void entry_free(struct absent *absent, struct absent_entry *entry)
{
    if (entry->until_ns)
        (void)map_remove(&absent->map, entry->key);
    entry->until_ns = 0;
}

void absent_add(struct absent *absent, const struct tarn_digest *digest, uint32_t group,
                uint64_t until_ns)
{
    uint8_t key[ABSENT_KEY_BYTES];
    key_make(digest, group, key);
    struct absent_entry *entry = map_get(&absent->map, key);
    if (entry) {
        if (entry->until_ns < until_ns)
            entry->until_ns = until_ns;
        return;
    }
    entry = &absent->entries[absent->next];
    absent->next = (absent->next + 1) % ABSENT_MAX;
    entry_free(absent, entry);
    memcpy(entry->key, key, sizeof(key));
    entry->until_ns = until_ns;
    const enum tarn_status status = map_set(&absent->map, key, entry);
    ASSERT(status == TARN_OK); /* there is room for ABSENT_MAX */
}

void absent_remove(struct absent *absent, const struct tarn_digest *digest, uint32_t group)
{
    uint8_t key[ABSENT_KEY_BYTES];
    if (absent->map.count == 0)
        return;
    key_make(digest, group, key);
    struct absent_entry *entry = map_get(&absent->map, key);
    if (entry)
        entry_free(absent, entry);
}

bool absent_has(const struct absent *absent, const struct tarn_digest *digest, uint32_t group,
                uint64_t now_ns)
{
    uint8_t key[ABSENT_KEY_BYTES];
    if (absent->map.count == 0)
        return false;
    key_make(digest, group, key);
    const struct absent_entry *entry = map_get(&absent->map, key);
    return entry && now_ns < entry->until_ns;
}
