/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched.h - which tokens of which requests run in the next forward pass, and on which pages.
 *
 * The scheduler owns the KV-cache manager (kv/) and leads the connector, which it knows as a table
 * of functions alone. It is a function of (state, event, time): it has no clock, thread or file,
 * and reads no page. Requests are served first come, first served; one is admitted only when the
 * pages for its whole prompt and answer can be reserved, so that whatever was admitted can finish.
 *
 * Threads: all calls from one thread, the loop. No call blocks, but for the connector's lookup
 * (within its deadline) and sched_drain().
 *
 * The loop, once a turn:
 *     sched_submit() for what came in, sched_cancel() for who hung up
 *     sched_pass()                     AGAIN: poll sched_poll_fd() and the own events, then again
 *     the forward pass over the batch
 *     sched_pass_done()
 *     for each item with want_logits: sample, then sched_append(), or sched_end() when it is over
 *     sched_take_ended() until it says no: requests that the scheduler had to end itself
 *
 * Counted here: requests by outcome (refused ones in sched_submit), prompt tokens by source,
 * generated tokens, passes, the gauges of requests and pages (those under a transfer are the
 * connector's to count); histograms of queue, load and prefill time. Requests with
 * TARN_REQUEST_DUMMY count as warm-up and nowhere else.
 */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include "base/base.h"

struct sched;

struct sched_options {
    void *page_memory;           /* page i at page_memory + i * page_stride_bytes; finite numbers */
    uint64_t page_bytes;         /* a multiple of 64, as are page_memory and the stride */
    uint64_t page_stride_bytes;  /* from page to page; 0: page_bytes */
    uint32_t page_count;         /* at least one request of request_tokens_max */
    uint32_t page_tokens;        /* T */
    uint32_t request_tokens_max; /* prompt and answer together (the context) */
    uint32_t batch_size_max;     /* requests of one pass, and requests admitted at once */
    uint32_t batch_tokens_max;   /* tokens of one pass; at least batch_size_max + T */
    uint32_t waiting_max;        /* requests queued for room */
    uint32_t prefill_cut;        /* test: a prefill chunk ends at this token of a prompt; 0: no */
    uint32_t chunk_tokens;       /* prefill chunks are at most this long, a multiple of T; 0: as
                                    long as the budget allows */
    const struct tarn_connector_ops *ops; /* NULL: no pool */
    struct tarn_connector *connector;     /* open, its layout registered by address; the caller
                                             closes it after sched_destroy() */
};

/* A configuration that cannot work is refused with one line in the log that has the arithmetic:
 * UNSUPPORTED. NO_MEMORY. All memory that the passes need is taken here. */
NODISCARD enum tarn_status sched_create(const struct sched_options *options,
                                        struct sched **out_sched);
/* Forgets what is still there, and calls the connector no more. Drain first. NULL is fine. */
void sched_destroy(struct sched *sched);

/* Requests that the connector may know of at once: request_count_max of struct tarn_engine_desc
 * must be at most this, or 0. */
uint32_t sched_request_count_max(const struct sched_options *options);

struct sched_request {
    uint64_t id;           /* unique among requests that have not retired: never reuse one */
    const int32_t *tokens; /* the prompt, copied */
    uint32_t token_count;  /* at least 1 */
    uint32_t max_tokens;   /* of the answer, at least 1 */
    const struct tarn_scope *scope; /* NULL: the common scope; borrowed until the request ended */
    uint32_t flags;                 /* enum tarn_request_flag */
    uint64_t arrival_ns;            /* decides the order; same clock as now_ns */
};

/* Queue a request. Outcomes: NO_SPACE (the queue is full, try later). INVALID (it can never run;
 * sched_reason() says why, with the numbers), NO_MEMORY. A request ends with sched_end(),
 * sched_cancel(), or by being named by sched_take_ended(). */
NODISCARD enum tarn_status sched_submit(struct sched *sched, const struct sched_request *request);

/* Why the last sched_submit() was refused: one sentence without a full stop. Valid until the next
 * submit. */
const char *sched_reason(const struct sched *sched);

/* One request's part of a pass; has the meaning of struct engine_sequence. */
struct sched_item {
    uint64_t id;
    const int32_t *tokens; /* of positions [position, position + token_count) */
    uint32_t token_count;
    uint32_t position;
    void *const *pages;  /* page i covers positions [i*T, (i+1)*T) */
    uint32_t page_count; /* covers all of [0, position + token_count) */
    bool want_logits; /* of the last token: the request then needs sched_append() or sched_end() */
};

/* What a pass that has nothing to run waits for. */
enum sched_wait {
    SCHED_WAIT_NONE,
    SCHED_WAIT_IDLE,     /* no requests */
    SCHED_WAIT_TRANSFER, /* loads to end or saves to retire: sched_poll_fd(), at most 50 ms */
    SCHED_WAIT_CALLER,   /* sampled tokens that were not appended */
};

struct sched_batch {
    const struct sched_item *items; /* valid until sched_pass_done() */
    uint32_t item_count;
    uint32_t token_count;
    enum sched_wait wait; /* not NONE only when there are no items */
};

/* Take the connector's news, admit, and choose what runs. OK: at least one item; run it, then call
 * sched_pass_done() once. Outcomes: AGAIN, nothing to run now: out_batch is written, with no items,
 * and sched_pass_done() must not be called. */
NODISCARD enum tarn_status sched_pass(struct sched *sched, uint64_t now_ns,
                                      struct sched_batch *out_batch);

/* The forward pass over the batch is over. Not OK: its requests end as failed (their pages hold
 * nothing that can be trusted), and sched_take_ended() names them. */
void sched_pass_done(struct sched *sched, enum tarn_status status, uint64_t now_ns);

/* The next token of a request whose logits were wanted. Outcomes: MISS, there is no such request
 * (it was cancelled or failed). INVALID: not its turn, or its answer already has max_tokens. */
NODISCARD enum tarn_status sched_append(struct sched *sched, uint64_t id, int32_t token);

enum sched_outcome { SCHED_OK, SCHED_CANCELLED, SCHED_FAILED };

/* The request is over, in whatever state it is. Its id is unknown from here on (for the connector:
 * once its saves have retired). Unknown ids are ignored. sched_cancel: outcome CANCELLED. */
void sched_end(struct sched *sched, uint64_t id, enum sched_outcome outcome);
void sched_cancel(struct sched *sched, uint64_t id);

struct sched_ended {
    uint64_t id;
    enum tarn_status status; /* why: of the forward pass, or of a load that must not fail */
};

/* The next request that the scheduler itself ended, as failed; false when there is none. Take them
 * all before the next pass. */
bool sched_take_ended(struct sched *sched, struct sched_ended *out_ended);

/* Where a prompt's tokens came from; the first four add up to the last. Settled when the request
 * was admitted and, if it loads, the load's verdict is there. */
struct sched_sources {
    uint32_t device;
    uint32_t tier;
    uint32_t pool;
    uint32_t computed;
    uint32_t requested;
};

/* Ask before sched_end(). Outcomes: AGAIN (not settled yet), MISS (no such request). */
NODISCARD enum tarn_status sched_sources(const struct sched *sched, uint64_t id,
                                         struct sched_sources *out_sources);

/* Polls readable when a pass has news from the connector to take; -1: there is none to poll. */
int sched_poll_fd(const struct sched *sched);

/* No request waits, runs, or has pages that a transfer still uses. */
bool sched_is_idle(const struct sched *sched);

/* For shutdown: cancel every request, wait up to timeout_ms for what is being saved to be written,
 * then up to as long again for transfers that were told to stop. Outcomes: AGAIN when one did not
 * end; the page memory must then stay. */
NODISCARD enum tarn_status sched_drain(struct sched *sched, uint32_t timeout_ms);

#endif
