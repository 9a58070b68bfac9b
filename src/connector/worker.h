/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - moves the pages of one rank, as the leader's messages say.
 *
 * What always holds:
 *   - every page of a transfer is reported started before a thread may touch it, and retired after
 *     the last touch, each exactly once; a page that was never started is never touched;
 *   - a load ends with how many leading blocks are good on this rank; pages still in the hands of a
 *     call that outlived the deadline stay unretired until it returns, unless the call can only
 *     write into staging slots;
 *   - saves start only after their step's forward pass succeeded, and not for a request whose load
 *     has no verdict, or whose verdict was short;
 *   - with several ranks: a step is taken in only after every step and verdict before it; a verdict
 *     that calls more blocks good than this rank reported is refused, and ends the ranks.
 * One thread, the engine's loop; the threads behind it are in transfer.h. Time is passed in, except
 * where a call waits.
 */
#ifndef CONNECTOR_WORKER_H
#define CONNECTOR_WORKER_H

#include "base/map.h"
#include "connector/absent.h"
#include "connector/leader.h"
#include "connector/ring.h"
#include "connector/transfer.h"
#include "connector/watch.h"

enum { WORKER_SCRATCH_MAX = 256 };

struct worker_config {
    struct store *store;               /* borrowed, as the next five */
    const struct layout *layout;       /* */
    const struct placement *placement; /* */
    const struct device *device;       /* */
    const uint32_t *namespaces;        /* in the store, one a group */
    struct wakeup *wakeup;
    struct watch *watch;   /* hears what came of calls to the store */
    struct leader *leader; /* with one rank: hears what came of everything; else NULL */
    uint64_t identity;     /* see wire.h */
    uint32_t rank;
    uint32_t rank_count;
    uint32_t extra_bytes; /* behind each page: see wire.h */
    uint32_t save_queue_pages_max;
    uint64_t pinned_bytes_max;
    uint64_t load_bytes_per_step;
    uint64_t load_deadline_ns;
    uint64_t verdict_deadline_ns; /* from a load's start; read with several ranks only */
};

struct worker {
    struct worker_config config;
    struct transfer transfer;
    struct map requests; /* id to struct transfer_request */
    struct list loads;
    struct save_extra *extras_free;
    size_t extra_free_count;
    struct ring planned;   /* struct save_job, in the order of steps */
    struct ring transfers; /* struct tarn_transfer */
    struct ring releases;  /* struct wire_release, with several ranks: for the next report */
    struct absent absent;
    struct wire_buffer report;
    struct save_job *scratch; /* WORKER_SCRATCH_MAX, of one call */
    uint64_t metadata_number;
    uint64_t forward_number;
    struct wire_window verdicts;
    uint64_t report_number;
    enum tarn_status failure;    /* not OK: the ranks go on no further */
    bool must_tell_failure;      /* in the next report */
    uint64_t load_granted_bytes; /* may still be started in this step */
    uint64_t pinned_bytes;       /* under saves */
    size_t started_count;        /* transfers not retired */
    size_t saves_in_flight;
    size_t batches_in_flight;
    size_t abandoned_count; /* pages of loads that are over, but not returned */
    bool pages_short;       /* the engine's word: saves had better be copied first */
};

/* On failure worker_close() is still due; after OK it is, too. */
NODISCARD enum tarn_status worker_open(struct worker *worker, const struct worker_config *config);
/* Nothing is in flight (worker_drain()). Zeroed is fine. */
void worker_close(struct worker *worker);

/* As the members of struct tarn_connector_ops. */
NODISCARD enum tarn_status worker_load_start(struct worker *worker, struct tarn_bytes metadata,
                                             uint64_t now_ns);
/* Steps up to this number are refused from now on. */
void worker_skip_step(struct worker *worker, uint64_t step_number);
NODISCARD enum tarn_status worker_load_poll(struct worker *worker, uint64_t deadline_ns,
                                            struct tarn_bytes *out_report);
NODISCARD enum tarn_status worker_verdict_apply(struct worker *worker, struct tarn_bytes verdict,
                                                struct tarn_loaded *out_loaded, size_t capacity,
                                                size_t *out_count);
NODISCARD enum tarn_status worker_forward_done(struct worker *worker, uint64_t step_number,
                                               enum tarn_status status, void *event,
                                               uint64_t now_ns);
/* With several ranks, on the leader's: what would go into the next report. False: nothing. */
bool worker_take_release(struct worker *worker, struct wire_release *out_release);
size_t worker_transfers(struct worker *worker, struct tarn_transfer *out, size_t capacity);
NODISCARD enum tarn_status worker_quiesce(struct worker *worker, const uint64_t *ids, size_t count,
                                          uint64_t deadline_ns);

/* The request ended: what steps up to step_max began of it is heard of no more; its load is
 * stopped, its planned saves are dropped; saves under way go on. */
void worker_finish(struct worker *worker, uint64_t id, uint64_t step_max, uint64_t now_ns);

/* The ranks go on no further: loads are stopped and planned saves dropped; load_start(),
 * load_poll(), verdict_apply() and forward_done() say `status` from now on. must_tell: the next
 * report says so first. */
void worker_fail(struct worker *worker, enum tarn_status status, bool must_tell, uint64_t now_ns);

/* Take back what the threads are done with. Called before every operation. */
void worker_collect(struct worker *worker, uint64_t now_ns);

/* Whether load_poll() or transfers() has something to give. */
bool worker_has_news(const struct worker *worker);

/* A load was given up, and the call that was to bring its pages has not returned: nothing can be
 * loaded until it does. */
bool worker_load_is_out(const struct worker *worker);

/* The store is down: what was handed to the save thread and not begun is dropped. */
void worker_saves_cut(struct worker *worker);

/* Stop loads, let saves end; past deadline_ns drop those that were not begun. Outcomes: AGAIN, a
 * transfer has not ended. */
NODISCARD enum tarn_status worker_drain(struct worker *worker, uint64_t deadline_ns);

#endif
