/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - asks the store how many blocks of a prompt it holds, from the first on without a gap.
 *
 * Batch by batch, block by block with all layer groups of a block on all ranks together, under a
 * deadline. A batch that fails, or whose answer comes late, is a miss, counted and warned about.
 * A store beyond this host is asked on the watch's thread: at the deadline the question is given
 * up, and its answer, whenever it comes, is discarded. The loop's.
 */
#ifndef CONNECTOR_PROBE_H
#define CONNECTOR_PROBE_H

#include "connector/absent.h"
#include "connector/leader.h"
#include "connector/watch.h"

/* One batch as the store is asked; the thread's while it is out. */
struct probe_question {
    struct store *store;
    const struct store_key *keys;
    size_t count;
    enum tarn_status status; /* as store_lookup(), as what follows */
    struct store_lease *lease;
    size_t found_count;
};

/* What to ask, constant but for the keys. All borrowed. */
struct probe {
    struct store *store;
    struct watch *watch; /* hears what came of it */
    const struct absent *absent;
    const uint32_t *namespaces; /* one a group, rank by rank */
    size_t group_count;         /* on all ranks together */
    size_t layer_group_count;   /* on one of them */
    size_t batch_pages;
    uint64_t deadline_ns;   /* from the start of a probe */
    struct store_key *keys; /* owned; of one batch */
    struct probe_question question;
};

struct found {
    struct store_lease *leases[LEADER_LEASES_MAX]; /* the receiver's to release */
    size_t lease_count;
    uint64_t block_count;
};

/* `probe` becomes a copy of `config`; blocks_max: of the longest prompt. */
NODISCARD enum tarn_status probe_init(struct probe *probe, const struct probe *config,
                                      uint64_t blocks_max);
void probe_deinit(struct probe *probe); /* zeroed is fine */

void probe_run(struct probe *probe, const struct leader_probe *asked, struct found *out_found);

#endif
