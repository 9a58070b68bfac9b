/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/name.h"

#include "codec/checksum.h"

enum { TAG_BITS = 26 };

static const uint64_t NAMES_SWEEP_INTERVAL_NS = 10000000000;

static uint64_t text_hash(const char *text, uint32_t length_bytes)
{
    struct checksum_state state;
    checksum_begin(&state, 0);
    checksum_add(&state, text, length_bytes);
    return checksum_end(&state).low;
}

/* What every search compares first: where it begins and what the entry's word carries. */
struct name_probe {
    const char *text;
    uint32_t length_bytes;
    uint32_t first;
    uint32_t tag;
};

static struct name_probe name_probe(const char *text)
{
    const uint32_t length_bytes = (uint32_t)strlen(text);
    const uint64_t hash = text_hash(text, length_bytes);
    return (struct name_probe){
        .text = text,
        .length_bytes = length_bytes,
        .first = (uint32_t)(hash % POOL_NAMESPACES),
        .tag = (uint32_t)(hash >> (64 - TAG_BITS)),
    };
}

static void text_copy(const struct pool_view *view, uint32_t entry, uint64_t words[POOL_NAME_WORDS],
                      uint32_t length_bytes)
{
    const uint32_t word_count = (length_bytes + 7) / 8;
    for (uint32_t i = 0; i < word_count && i < POOL_NAME_WORDS; i++)
        words[i] = shm_load(&view->name_texts[entry].text[i]);
}

static bool entry_is(const struct pool_view *view, uint32_t entry, uint64_t word,
                     const struct name_probe *probe)
{
    uint64_t words[POOL_NAME_WORDS];
    if (name_state(word) != NAME_READY || name_tag(word) != probe->tag ||
        name_length(word) != probe->length_bytes || probe->length_bytes > sizeof(words))
        return false;
    text_copy(view, entry, words, probe->length_bytes);
    shm_read_fence();
    return memcmp(words, probe->text, probe->length_bytes) == 0 &&
           shm_load(&view->name_states[entry]) == word;
}

static enum tarn_status find_probe(const struct pool_view *view, const struct name_probe *probe,
                                   uint32_t *out_id)
{
    for (uint32_t i = 0; i < POOL_NAMESPACES; i++) {
        const uint32_t entry = (probe->first + i) % POOL_NAMESPACES;
        const uint64_t word = shm_load(&view->name_states[entry]);
        if (entry_is(view, entry, word, probe)) {
            *out_id = name_id(entry, word);
            return TARN_OK;
        }
    }
    return TARN_MISS;
}

enum tarn_status name_find(const struct pool_view *view, const char *text, uint32_t *out_id)
{
    const struct name_probe probe = name_probe(text);
    return find_probe(view, &probe, out_id);
}

static void text_write(struct pool_view *view, uint32_t entry, const struct name_probe *probe)
{
    uint64_t words[POOL_NAME_WORDS] = { 0 };
    memcpy(words, probe->text, probe->length_bytes);
    for (uint32_t i = 0; i < POOL_NAME_WORDS; i++)
        shm_store(&view->name_texts[entry].text[i], words[i]);
}

static bool entry_claim(struct pool_view *view, uint32_t entry, const struct name_probe *probe)
{
    const uint64_t word = shm_load(&view->name_states[entry]);
    if (name_state(word) != NAME_FREE)
        return false;
    const uint32_t generation = (name_generation(word) + 1) % NAME_GENERATIONS;
    const uint64_t writing = name_make(NAME_WRITING, view->process, 0, generation);
    if (!shm_cas(&view->name_states[entry], word, writing))
        return false;
    text_write(view, entry, probe);
    const uint64_t ready =
        name_make(NAME_READY, 0, probe->length_bytes, generation) | (uint64_t)probe->tag << 38;
    return shm_cas(&view->name_states[entry], writing, ready);
}

static bool probe_claim(struct pool_view *view, const struct name_probe *probe)
{
    for (uint32_t i = 0; i < POOL_NAMESPACES; i++) {
        if (!entry_claim(view, (probe->first + i) % POOL_NAMESPACES, probe))
            continue;
        (void)shm_add(&view->live->names_epoch, 1);
        return true;
    }
    return false;
}

static bool probe_enter(struct pool_view *view, const struct name_probe *probe)
{
    view_own(view);
    const bool entered = probe_claim(view, probe);
    view_disown(view);
    return entered;
}

/* Free the entries whose number no page carries, in any generation. */
static void unused_free(struct pool_view *view)
{
    uint64_t used[POOL_NAMESPACES / 64 + 1] = { 0 };
    const uint64_t now_ns = view_now_ns(view);
    if (view->names_swept_ns != 0 && now_ns - view->names_swept_ns < NAMES_SWEEP_INTERVAL_NS)
        return;
    view->names_swept_ns = now_ns;
    for (uint32_t slot = 0; slot < view->geometry.slot_count; slot++) {
        const uint64_t ctl = shm_load(&view->headers[slot].ctl);
        const uint32_t entry = (uint32_t)shm_load(&view->headers[slot].place) % POOL_NAMESPACES;
        if (ctl_state(ctl) != PAGE_FREE)
            used[entry / 64] |= UINT64_C(1) << entry % 64;
    }
    for (uint32_t entry = 0; entry < POOL_NAMESPACES; entry++) {
        const uint64_t word = shm_load(&view->name_states[entry]);
        if (name_state(word) == NAME_READY && !(used[entry / 64] >> entry % 64 & 1))
            (void)shm_cas(&view->name_states[entry], word,
                          name_make(NAME_FREE, 0, 0, name_generation(word)));
    }
    (void)shm_add(&view->live->names_epoch, 1);
}

enum tarn_status name_intern(struct pool_view *view, const char *text, uint32_t *out_id)
{
    const struct name_probe probe = name_probe(text);
    if (find_probe(view, &probe, out_id) == TARN_OK)
        return TARN_OK;
    if (view->process >= POOL_PROCESSES)
        return TARN_MISS;
    if (!probe_enter(view, &probe)) {
        view_lock(&view->reclaim_lock);
        unused_free(view);
        view_unlock(&view->reclaim_lock);
        if (!probe_enter(view, &probe))
            return TARN_NO_SPACE;
    }
    /* Another process may have entered it too: settle on what everybody finds. */
    return find_probe(view, &probe, out_id) == TARN_OK ? TARN_OK : TARN_NO_SPACE;
}

enum tarn_status name_read(const struct pool_view *view, uint32_t id,
                           char out_text[STORE_NAMESPACE_BYTES_MAX + 1])
{
    uint64_t words[POOL_NAME_WORDS] = { 0 };
    const uint32_t entry = id % POOL_NAMESPACES;
    const uint64_t word = shm_load(&view->name_states[entry]);
    const uint32_t length_bytes = name_length(word);
    if (name_state(word) != NAME_READY || name_id(entry, word) != id ||
        length_bytes > STORE_NAMESPACE_BYTES_MAX)
        return TARN_MISS;
    text_copy(view, entry, words, length_bytes);
    shm_read_fence();
    if (shm_load(&view->name_states[entry]) != word)
        return TARN_MISS;
    memcpy(out_text, words, length_bytes);
    out_text[length_bytes] = '\0';
    return TARN_OK;
}

void names_sweep(struct pool_view *view, uint64_t dead)
{
    for (uint32_t entry = 0; entry < POOL_NAMESPACES; entry++) {
        const uint64_t word = shm_load(&view->name_states[entry]);
        if (name_state(word) == NAME_WRITING && name_owner(word) < POOL_PROCESSES &&
            (dead >> name_owner(word) & 1))
            (void)shm_cas(&view->name_states[entry], word,
                          name_make(NAME_FREE, 0, 0, name_generation(word)));
    }
}
