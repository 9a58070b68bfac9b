/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leader.h - decides what is loaded and what is saved, for all ranks of an engine.
 *
 * A function of (state, event, time): it probes, copies and waits for nothing; its callers do, and
 * tell it what came of it. What always holds:
 *   - an offer is whole blocks, never covers the last token of a prompt, and holds its leases until
 *     it is replaced, cancelled, ended by a verdict, or its request is finished;
 *   - a block is handed out for saving when the step that completes it is planned, once, in order,
 *     never before, and not again unless a save was dropped or failed;
 *   - a request that is finished stays known until every transfer of it was released;
 *   - with several ranks: a load has one verdict, made when every rank has reported on it, and it
 * is the least of what they reported; a page is retired when every rank has let go of it; and when
 *     a rank is silent for rank_deadline_ns, or says that it cannot go on, the verdict says that to
 *     all of them, and nothing is planned any more.
 * It knows pages and digests, never keys. One thread, the engine's loop.
 */
#ifndef CONNECTOR_LEADER_H
#define CONNECTOR_LEADER_H

#include "base/list.h"
#include "base/map.h"
#include "connector/absent.h"
#include "connector/hold.h"
#include "connector/wire.h"
#include "key/chain.h"
#include "store/store.h"

enum {
    LEADER_LEASES_MAX = 64, /* of one offer */
    LEADER_RANKS_MAX = 64,
};

struct leader_config {
    const struct layout *layout; /* borrowed, as the next */
    struct absent *absent;     /* NULL: what fails on other ranks may be asked for again at once */
    uint64_t identity;         /* see wire.h */
    uint64_t rank_deadline_ns; /* from a step to the last report on its loads; read with several
                                  ranks only */
    uint32_t rank_count;
    uint32_t request_count_max; /* not finished */
    uint64_t request_tokens_max;
    bool loads;
    bool saves;
    bool can_rewind;     /* takes offers that start before `computed` */
    bool save_generated; /* blocks with tokens beyond the prompt */
    bool verify_tokens;  /* metadata carries each block's tokens and parent */
    bool fail_short;     /* a load that falls short ends its request */
};

enum leader_state { LEADER_IDLE, LEADER_OFFERED, LEADER_LOADING };

/* One incarnation of a request. */
struct leader_request {
    uint64_t id;
    struct list link;    /* in leader.ended */
    struct list loading; /* in leader.loading */
    struct chain chain;
    int32_t *tokens;
    size_t token_count;
    size_t token_capacity;
    size_t prompt_count;
    tarn_page *pages;      /* of block b, group g: [b * group_count + g] */
    size_t page_blocks;    /* how many blocks have places there */
    uint64_t computed;     /* tokens that are complete, as far as we were told */
    uint64_t scheduled;    /* by the last step */
    uint64_t saved_blocks; /* those before are saved, being saved, or need not be */
    uint64_t offer_first;  /* blocks */
    uint64_t offer_count;
    uint64_t computed_before_load;
    uint64_t saved_before_load;
    struct store_lease *leases[LEADER_LEASES_MAX];
    size_t lease_count;
    uint64_t transfer_count; /* pages handed out and not released */
    uint64_t load_step;      /* that began the load */
    uint64_t load_due_ns;    /* when every rank has reported on it */
    uint64_t ranks_reported; /* one bit a rank */
    uint64_t good_count;     /* blocks, the minimum of the ranks so far */
    uint32_t worst_rank;     /* whose it is */
    enum tarn_status load_status;
    uint64_t attempt; /* the call of leader_step() that saw it last */
    enum leader_state state;
    uint32_t flags;
    bool has_stepped;
    bool is_finished;
};

struct leader {
    struct leader_config config;
    struct map requests;
    struct list ended;     /* finished, released, not reported */
    struct list loading;   /* in the order of steps */
    struct holds holds;    /* with several ranks */
    struct ring farewells; /* struct wire_ended, for the next verdict; with several ranks */
    size_t live_count;
    uint64_t step_number;
    uint64_t accepted_number; /* of the step whose metadata the worker here took in last */
    uint64_t attempt;
    uint64_t verdict_number;
    struct wire_window reports[LEADER_RANKS_MAX];
    enum tarn_status failure; /* not OK: the ranks go on no further */
    uint8_t failure_bytes[WIRE_HEADER_BYTES];
    uint64_t save_resume_ns; /* no saves are planned before */
    uint64_t save_pause_ns;  /* how long the last pause was */
    struct wire_buffer metadata;
    struct wire_buffer verdict;
};

enum leader_decline {
    LEADER_DECLINE_NONE,
    LEADER_DECLINE_ROLE,
    LEADER_DECLINE_DUMMY,
    LEADER_DECLINE_GENERATION_ONLY,
    LEADER_DECLINE_MEDIA,
    LEADER_DECLINE_NO_FULL_BLOCK,
    LEADER_DECLINE_LOCAL,
    LEADER_DECLINE_OFF_BOUNDARY,
};

/* Blocks [first_block, first_block + block_count) to ask the store for. */
struct leader_probe {
    uint64_t id;
    uint64_t first_block;
    uint64_t block_count;
    const struct tarn_digest *digests; /* of these blocks; until the next call */
};

void leader_init(struct leader *leader, const struct leader_config *config);
void leader_deinit(struct leader *leader); /* releases every lease; zeroed is fine */

/* Begin a lookup. The request is known from here on, whatever comes of it. Outcomes: MISS, not to
 * be asked: *out_decline says why. INVALID: tokens that are not the known ones and more, a request
 * that is loading or finished, too many requests, a prompt too long. */
NODISCARD enum tarn_status leader_ask(struct leader *leader, const struct tarn_request *request,
                                      uint64_t computed_tokens, struct leader_probe *out_probe,
                                      enum leader_decline *out_decline);

/* End it: the first block_count blocks of the probe are there, held by `leases`, which are taken
 * over. Outcomes: MISS for none. */
NODISCARD enum tarn_status leader_offer(struct leader *leader, const struct leader_probe *probe,
                                        uint64_t block_count, struct store_lease *const *leases,
                                        size_t lease_count, struct tarn_offer *out_offer);

/* As the members of struct tarn_connector_ops. A step that is refused changes nothing. */
NODISCARD enum tarn_status leader_cancel(struct leader *leader, uint64_t id, uint64_t start,
                                         uint64_t end);
NODISCARD enum tarn_status leader_step(struct leader *leader, const struct tarn_step *step,
                                       uint64_t now_ns, struct tarn_bytes *out_metadata);

/* If the last step's metadata was not accepted (the worker had no memory for it): take back what it
 * planned. The worker must refuse it from now on. One rank only: others may have begun. */
void leader_step_lose(struct leader *leader);

NODISCARD enum tarn_status leader_verdict(struct leader *leader, const struct tarn_bytes *reports,
                                          size_t report_count, uint64_t now_ns,
                                          struct tarn_bytes *out_verdict);
NODISCARD enum tarn_status leader_finished(struct leader *leader, uint64_t id,
                                           uint32_t *out_pending);
size_t leader_retired(struct leader *leader, uint64_t *out_ids, size_t capacity);
NODISCARD enum tarn_status leader_reset(struct leader *leader, uint64_t id);

/* What came of one page of a save. Anything but SAVED: its block is planned again; after FAILED
 * nothing is saved for a while. Unknown ids are ignored, here and below. COPIED is said between
 * ranks alone: the page is free, what came of the save follows. */
enum leader_saved { LEADER_SAVED, LEADER_SAVE_DROPPED, LEADER_SAVE_FAILED, LEADER_SAVE_COPIED };
void leader_save_ended(struct leader *leader, uint64_t id, uint64_t block,
                       enum leader_saved outcome, uint64_t now_ns);

/* No saves are planned before; what is not saved then is made up for. */
void leader_pause_saves(struct leader *leader, uint64_t until_ns);

/* One page of a load or save is no longer touched, and the engine knows. */
void leader_page_released(struct leader *leader, uint64_t id);

/* ---- several ranks ---- */

/* The ranks go on no further: the verdict now says `status` to all of them, whatever is asked; what
 * the other ranks hold counts as released, for they are gone or stop. */
void leader_fail(struct leader *leader, enum tarn_status status);
/* The verdict that says so. Until the next call. */
struct tarn_bytes leader_failure_verdict(struct leader *leader);

/* A rank let go of a page, or says what came of a save that it had copied. A page that it does not
 * hold is not released again. */
void leader_release(struct leader *leader, uint32_t rank, const struct wire_release *release,
                    uint64_t now_ns);
/* The forward pass of a step is over here: its saves count as started. */
void leader_forward(struct leader *leader, uint64_t step_number);
/* As the member `transfers`: of all ranks. */
size_t leader_transfers(struct leader *leader, struct tarn_transfer *out, size_t capacity);

/* ---- inside ---- */

/* Of this leader's metadata; of its other messages. */
struct wire_shape leader_shape(const struct leader *leader);
struct wire_shape leader_list_shape(const struct leader *leader);

/* Whether verdict(), transfers() or retired() has something to give. */
bool leader_has_news(const struct leader *leader);

/* NULL: not known. */
struct leader_request *leader_find(const struct leader *leader, uint64_t id);
void leader_drop_offer(struct leader_request *request);

#endif
