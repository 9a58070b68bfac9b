/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - inside sched/: the scheduler's state and what its files offer each other.
 *
 * request.c: a request's life. plan.c: who is admitted and what runs. pool.c: all that is said to,
 * and heard from, the connector. sched.c: the public functions that tie them together.
 */
#ifndef SCHED_STATE_H
#define SCHED_STATE_H

#include "base/list.h"
#include "base/map.h"
#include "kv/kv.h"
#include "sched/sched.h"

enum request_state {
    REQUEST_FREE,
    REQUEST_WAITING,   /* for room; the connector does not know it */
    REQUEST_LOADING,   /* until the verdict; not scheduled */
    REQUEST_ABANDONED, /* its load failed in the connector's hands: until those let go */
    REQUEST_SHORT,     /* its load fell short: pages of the rest must be renewed */
    REQUEST_RUNNING,   /* prefill, then generation */
    REQUEST_DRAINING,  /* ended; its pages stay until the connector reports it retired */
};

/* What the connector knows of a request. */
enum request_bond {
    BOND_NONE,       /* nothing: there is no pool, or it has been let go */
    BOND_KNOWN,      /* looked up; part of steps */
    BOND_UNFINISHED, /* finished() failed and will be repeated */
    BOND_PENDING,    /* finished; until retired() names it */
};

struct request {
    struct list link; /* in sched.free, waiting, running or draining */
    uint64_t id;
    int32_t *tokens; /* prompt, then answer */
    uint32_t prompt_count;
    uint32_t token_count;
    uint32_t max_tokens;
    uint32_t flags;
    const struct tarn_scope *scope;
    struct kv_sequence *sequence;
    enum request_state state;
    enum request_bond bond;
    uint64_t arrival_ns;
    uint64_t admitted_ns;
    uint32_t told_tokens;     /* tokens the connector knows */
    uint32_t offer_block;     /* the accepted offer */
    uint32_t offer_count;     /* in blocks; 0: none */
    uint32_t scheduled_count; /* tokens in the pass under way */
    bool load_started;
    bool awaits_token; /* its logits are there; sched_append() or sched_end() is due */
    bool settled;
    struct sched_sources sources;
    bool ending; /* ended during the pass it is part of */
    enum sched_outcome ending_outcome;
};

enum { SCHED_REASON_BYTES = 256, SCHED_TRANSFERS_BATCH = 256 };

struct sched {
    struct sched_options options;
    struct kv *kv;
    uint32_t request_max; /* slots */
    uint32_t blocks_max;  /* of one request */
    struct request *requests;
    int32_t *tokens;
    struct map by_id;
    struct list free;
    struct list waiting; /* by arrival */
    struct list running; /* admitted and not ended, by arrival */
    struct list draining;
    uint32_t waiting_count;
    uint32_t running_count;
    uint32_t draining_count;

    struct sched_item *items;
    struct request **batch; /* of items, in their order */
    uint32_t item_count;
    uint32_t batch_tokens;
    bool in_pass;
    uint64_t now_ns;

    struct sched_ended *ended; /* ring */
    uint32_t ended_max;
    uint32_t ended_first;
    uint32_t ended_count;

    /* What the connector is told, and its answers. */
    uint64_t step_number;
    bool step_open; /* forward_done() is due */
    bool blind;     /* transfers() failed: what is under a transfer is not known */
    struct tarn_step_request *step_requests;
    struct request **step_members;
    uint32_t step_count;
    const tarn_page **step_groups;
    tarn_page *step_pages;
    struct tarn_transfer *transfers;
    struct tarn_loaded *loaded;
    uint64_t *ids;
    uint32_t answers_max; /* capacity of loaded and ids */

    char reason[SCHED_REASON_BYTES];
};

/* ---- request.c ---- */
struct request *request_find(const struct sched *sched, uint64_t id); /* live ones; or NULL */
/* Insert by arrival, after those that came at the same time. */
void request_queue(struct list *list, struct request *request);
void request_settle(struct sched *sched, struct request *request, uint32_t pool_tokens);
void request_commit(struct sched *sched, struct request *request);
void request_end(struct sched *sched, struct request *request, enum sched_outcome outcome);
void request_fail(struct sched *sched, struct request *request, enum tarn_status status);
/* Let go of everything of a request that ended and that no transfer needs. */
void request_release(struct sched *sched, struct request *request);
void sched_update_gauges(const struct sched *sched);

/* ---- plan.c ---- */
void plan_renew(struct sched *sched);
void plan_admit(struct sched *sched);
void plan_batch(struct sched *sched);

/* ---- pool.c: each does nothing without a connector ---- */
NODISCARD enum tarn_status pool_check_ops(const struct tarn_connector_ops *ops);
void pool_lookup(struct sched *sched, struct request *request);
void pool_news(struct sched *sched);
void pool_step(struct sched *sched);
void pool_forward_done(struct sched *sched, enum tarn_status status);
void pool_finish(struct sched *sched, struct request *request);
void pool_settle(struct sched *sched, uint32_t timeout_ms);  /* let transfers end by themselves */
void pool_quiesce(struct sched *sched, uint32_t timeout_ms); /* tell them to */

#endif
