/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/index.h"

#include "store/local/policy.h"
#include "store/local/space.h"

struct page_name page_name_make(const struct store_key *key, uint32_t namespace_id)
{
    struct page_name name = { .namespace_id = namespace_id, .depth = key->depth };
    memcpy(name.digest, key->digest.bytes, sizeof(name.digest));
    return name;
}

/* Digests are uniform already; the namespace only has to be mixed in. */
static uint64_t name_hash(const struct page_name *name)
{
    return name->digest[0] ^ (name->namespace_id + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t hash_bucket(const struct pool_view *view, uint64_t hash)
{
    return (uint32_t)((hash >> 32) * view->geometry.bucket_count >> 32);
}

static uint64_t hash_word(uint64_t hash, uint32_t slot)
{
    return hash << 32 | (slot + UINT64_C(1));
}

static shm_word *window_word(const struct pool_view *view, uint32_t first, uint32_t position)
{
    uint32_t bucket = first + position / POOL_BUCKET_WORDS;
    if (bucket >= view->geometry.bucket_count)
        bucket -= view->geometry.bucket_count;
    return &view->buckets[bucket].words[position % POOL_BUCKET_WORDS];
}

enum { WINDOW_WORDS = POOL_WINDOW_BUCKETS * POOL_BUCKET_WORDS };

void index_prefetch(const struct pool_view *view, const struct page_name *name)
{
    __builtin_prefetch(&view->buckets[hash_bucket(view, name_hash(name))]);
}

/* Slot of a word that carries the hash's tag; false for other words and for slots out of range. */
static bool word_slot(const struct pool_view *view, uint64_t word, uint64_t hash,
                      uint32_t *out_slot)
{
    const uint32_t slot_plus_one = (uint32_t)word;
    if (word >> 32 != (hash & UINT32_MAX) || slot_plus_one == 0 ||
        slot_plus_one > view->geometry.slot_count)
        return false;
    *out_slot = slot_plus_one - 1;
    return true;
}

uint32_t index_guess(const struct pool_view *view, const struct page_name *name)
{
    const uint64_t hash = name_hash(name);
    const struct pool_bucket *bucket = &view->buckets[hash_bucket(view, hash)];
    for (uint32_t i = 0; i < POOL_BUCKET_WORDS; i++) {
        uint32_t slot;
        if (word_slot(view, shm_load(&bucket->words[i]), hash, &slot))
            return slot;
    }
    return INDEX_NO_SLOT;
}

struct page_name header_name(const struct pool_header *header)
{
    return (struct page_name){
        .digest = { shm_load(&header->digest[0]), shm_load(&header->digest[1]) },
        .namespace_id = (uint32_t)shm_load(&header->place),
        .depth = chain_depth(shm_load_half(&header->chain)),
    };
}

static bool header_is(const struct pool_header *header, const struct page_name *name)
{
    return shm_load(&header->digest[0]) == name->digest[0] &&
           shm_load(&header->digest[1]) == name->digest[1] &&
           (uint32_t)shm_load(&header->place) == name->namespace_id;
}

bool index_holds(const struct pool_view *view, const struct page_name *name, uint32_t slot,
                 uint64_t *out_ctl)
{
    if (slot == INDEX_NO_SLOT)
        return false;
    const uint64_t ctl = shm_load(&view->headers[slot].ctl);
    if (ctl_state(ctl) != PAGE_COMMITTED || !header_is(&view->headers[slot], name))
        return false;
    *out_ctl = ctl;
    return true;
}

enum tarn_status index_find(const struct pool_view *view, const struct page_name *name,
                            uint32_t *out_slot, uint64_t *out_ctl)
{
    const uint64_t hash = name_hash(name);
    const uint32_t first = hash_bucket(view, hash);
    for (uint32_t i = 0; i < WINDOW_WORDS; i++) {
        uint32_t slot;
        if (!word_slot(view, shm_load(window_word(view, first, i)), hash, &slot) ||
            !index_holds(view, name, slot, out_ctl))
            continue;
        *out_slot = slot;
        return TARN_OK;
    }
    return TARN_MISS;
}

/* Whether nobody would miss a word: its slot is not of this window, or holds nothing. */
static bool word_is_stale(const struct pool_view *view, uint64_t word, uint32_t first)
{
    const uint32_t slot_plus_one = (uint32_t)word;
    if (slot_plus_one == 0 || slot_plus_one > view->geometry.slot_count)
        return true;
    const struct pool_header *header = &view->headers[slot_plus_one - 1];
    const uint64_t ctl = shm_load(&header->ctl);
    if (ctl_state(ctl) == PAGE_FREE || ctl_state(ctl) == PAGE_QUARANTINED)
        return true;
    if (ctl_state(ctl) != PAGE_COMMITTED)
        return false; /* its owner may be about to commit it under this word */
    const struct page_name name = header_name(header);
    const uint64_t hash = name_hash(&name);
    const uint32_t distance = (first + view->geometry.bucket_count - hash_bucket(view, hash)) %
                              view->geometry.bucket_count;
    const bool is_near = distance < POOL_WINDOW_BUCKETS ||
                         view->geometry.bucket_count - distance < POOL_WINDOW_BUCKETS;
    return shm_load(&header->ctl) == ctl && (word >> 32 != (hash & UINT32_MAX) || !is_near);
}

static bool insert_into_room(struct pool_view *view, uint32_t first, uint64_t desired)
{
    for (uint32_t i = 0; i < WINDOW_WORDS; i++) {
        shm_word *word = window_word(view, first, i);
        const uint64_t seen = shm_load(word);
        if ((seen == 0 || seen == desired || word_is_stale(view, seen, first)) &&
            shm_cas(word, seen, desired))
            return true;
    }
    return false;
}

/* Evict the window's oldest page, if it may be. */
static bool window_evict(struct pool_view *view, uint32_t first)
{
    struct candidate oldest = { 0 };
    bool found = false;
    for (uint32_t i = 0; i < WINDOW_WORDS; i++) {
        const uint32_t slot_plus_one = (uint32_t)shm_load(window_word(view, first, i));
        struct candidate other;
        if (slot_plus_one == 0 || slot_plus_one > view->geometry.slot_count ||
            !candidate_read(view, slot_plus_one - 1, &other))
            continue;
        if (!found || policy_goes_before(&other, &oldest))
            oldest = other;
        found = true;
    }
    return found && space_evict(view, oldest.slot, oldest.ctl);
}

enum tarn_status index_insert(struct pool_view *view, const struct page_name *name, uint32_t slot)
{
    enum { EVICTIONS_MAX = 4 };
    const uint64_t hash = name_hash(name);
    const uint32_t first = hash_bucket(view, hash);
    for (uint32_t i = 0; i < EVICTIONS_MAX; i++) {
        if (insert_into_room(view, first, hash_word(hash, slot)))
            return TARN_OK;
        if (!window_evict(view, first))
            break;
    }
    return TARN_NO_SPACE;
}

void index_remove(struct pool_view *view, const struct page_name *name, uint32_t slot)
{
    const uint64_t hash = name_hash(name);
    const uint32_t first = hash_bucket(view, hash);
    for (uint32_t i = 0; i < WINDOW_WORDS; i++) {
        shm_word *word = window_word(view, first, i);
        if (shm_load(word) == hash_word(hash, slot))
            (void)shm_cas(word, hash_word(hash, slot), 0);
    }
}
