/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/probe.h"

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/clock.h"

enum tarn_status probe_init(struct probe *probe, const struct probe *config, uint64_t blocks_max)
{
    /* A batch of the longest prompt, so that its offer fits in its leases. */
    const uint64_t share = blocks_max * config->group_count / LEADER_LEASES_MAX + 1;
    const uint64_t batch = share > config->batch_pages ? share : config->batch_pages;
    *probe = *config;
    ASSERT(probe->group_count > 0 && probe->layer_group_count > 0);
    probe->keys = mem_alloc((size_t)batch + probe->group_count, sizeof(*probe->keys));
    return probe->keys ? TARN_OK : TARN_NO_MEMORY;
}

void probe_deinit(struct probe *probe)
{
    mem_free(probe->keys);
    probe->keys = NULL;
}

/* Keys of blocks from `block` of the probe on, block by block, up to one that is to be treated as
 * absent. Returns how many blocks. */
static size_t probe_keys(struct probe *probe, const struct leader_probe *asked, uint64_t block,
                         size_t block_count, uint64_t now_ns)
{
    const size_t group_count = probe->group_count;
    for (size_t i = 0; i < block_count; i++) {
        for (uint32_t group = 0; group < group_count; group++) {
            const struct tarn_digest *digest = &asked->digests[block + i];
            if (absent_has(probe->absent, digest, group % (uint32_t)probe->layer_group_count,
                           now_ns))
                return i;
            probe->keys[i * group_count + group] = (struct store_key){
                .digest = *digest,
                .namespace_index = probe->namespaces[group],
                .depth = (uint32_t)(asked->first_block + block + i),
            };
        }
    }
    return block_count;
}

static void question_ask(void *context)
{
    struct probe_question *question = context;
    question->status = store_lookup(question->store, question->keys, question->count,
                                    &question->lease, &question->found_count);
}

static void question_discard(void *context)
{
    struct probe_question *question = context;
    if (question->status == TARN_OK)
        store_lease_release(TAKE(question->lease));
}

/* As store_lookup() of the first `count` keys. Outcomes: STALE, no answer by the deadline. */
static enum tarn_status probe_ask(struct probe *probe, size_t count, uint64_t deadline_ns)
{
    struct asker *asker = &probe->watch->asker;
    const struct question question = { question_ask, question_discard, &probe->question };
    probe->question = (struct probe_question){
        .store = probe->store, .keys = probe->keys, .count = count, .status = TARN_IO
    };
    if (asker->is_open) {
        const enum tarn_status asked = asker_ask(asker, &question, deadline_ns);
        return asked == TARN_OK ? probe->question.status : TARN_STALE;
    }
    question_ask(&probe->question);
    if (clock_now_ns() <= deadline_ns)
        return probe->question.status;
    question_discard(&probe->question);
    return TARN_STALE;
}

static void probe_late(struct probe *probe)
{
    metric_add(METRIC_PROBE_LATE, 1);
    LOG_LIMITED(LOG_WARN, "the pool did not answer by the lookup deadline");
    watch_bad(probe->watch, false, clock_now_ns());
}

/* One batch. Returns whether to go on. */
static bool probe_batch(struct probe *probe, const struct leader_probe *asked, size_t block_count,
                        uint64_t deadline_ns, struct found *found)
{
    const size_t group_count = probe->group_count;
    const size_t known = probe_keys(probe, asked, found->block_count, block_count, clock_now_ns());
    if (known == 0)
        return false;
    const enum tarn_status status = probe_ask(probe, known * group_count, deadline_ns);
    if (status == TARN_STALE) {
        probe_late(probe);
        return false;
    }
    if (status != TARN_OK && status != TARN_MISS) {
        metric_add(METRIC_PROBE_FAILED, 1);
        LOG_LIMITED(LOG_WARN, "the pool could not be asked: %s", tarn_strerror(status));
        if (status < 0)
            watch_bad(probe->watch, false, clock_now_ns());
        return false;
    }
    watch_good(probe->watch, false);
    if (status == TARN_MISS)
        return false;
    found->leases[found->lease_count++] = TAKE(probe->question.lease);
    found->block_count += probe->question.found_count / group_count;
    return probe->question.found_count == block_count * group_count;
}

/* From the first block on, batch by batch, up to the first gap: after eviction what lies behind one
 * says nothing about what lies before it, so that a search by halves would be wrong. */
void probe_run(struct probe *probe, const struct leader_probe *asked, struct found *out_found)
{
    struct found *found = out_found;
    const uint64_t deadline_ns = clock_now_ns() + probe->deadline_ns;
    const size_t group_count = probe->group_count;
    const uint64_t share = asked->block_count * group_count / LEADER_LEASES_MAX;
    *found = (struct found){ .lease_count = 0 };
    /* A question that was given up has the keys until it comes back. */
    if (probe->watch->asker.is_open && asker_is_busy(&probe->watch->asker)) {
        probe_late(probe);
        return;
    }
    size_t batch = probe->batch_pages;
    ASSERT(group_count > 0);
    if (share >= batch)
        batch = (size_t)share + group_count;
    const size_t batch_blocks = batch < group_count ? 1 : batch / group_count;
    while (found->block_count < asked->block_count && found->lease_count < LEADER_LEASES_MAX) {
        const uint64_t left = asked->block_count - found->block_count;
        const size_t blocks = left < batch_blocks ? (size_t)left : batch_blocks;
        if (!probe_batch(probe, asked, blocks, deadline_ns, found))
            return;
    }
}
