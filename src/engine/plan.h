/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - how the attention of one batch is cut into pieces of work, and who takes which.
 *
 * A sequence with one token is cut by its past: ranges of PLAN_RANGE_TOKENS positions from position
 * 0, rounded to whole pages, all heads together. A longer one is cut by its rows into tiles, for
 * each K/V head. So neither the number of threads nor the neighbours in the batch change what is
 * summed in which order. Threads take pieces from one counter a layer, the long ones first; whoever
 * ends the last range of a sequence merges them.
 *
 * plan_make() belongs to the loop thread; plan_run() is called by every compute thread, with the
 * same plan.
 */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stdatomic.h>

#include "engine/attend.h"

enum { PLAN_RANGE_TOKENS = 128 };

struct plan_limits {
    uint32_t batch_tokens_max;
    uint32_t sequences_max;
    uint32_t ctx_tokens;
    uint32_t threads;
    uint32_t layer_count;
};

struct plan_piece {
    uint32_t sequence;
    uint32_t kv_head; /* of a tile */
    uint32_t first;   /* row of a tile, range of a sequence */
    uint32_t count;   /* rows of a tile, 0: a range */
};

struct plan_sequence {
    void *const *pages;
    uint32_t position;
    uint32_t token_first; /* in the batch */
    uint32_t token_count;
    uint32_t range_count; /* 0: tiles */
    float *partials;      /* of its ranges */
};

struct plan {
    struct attend_shape shape;
    struct plan_limits limits;
    const struct attend_kernel *kernel;
    struct plan_piece *pieces;
    size_t piece_count;
    struct plan_sequence *sequences;
    uint32_t sequence_count;
    uint32_t token_count;
    atomic_uint *next;       /* piece to be taken, for each layer */
    atomic_uint *unfinished; /* ranges, for each sequence; back at its start after each layer */
    float *partials;
    float *scratch;       /* for each thread */
    size_t scratch_count; /* numbers for one thread */
};

NODISCARD enum tarn_status plan_init(struct plan *plan, const struct attend_shape *shape,
                                     const struct attend_kernel *kernel,
                                     const struct plan_limits *limits);
void plan_deinit(struct plan *plan); /* zeroed is fine */

/* Cut up a batch that is within the limits. The pages' lists are borrowed until the batch is
 * computed. */
void plan_make(struct plan *plan, const struct engine_sequence *sequences, uint32_t count);

/* Bytes of K and V of one layer in a page; a page is layer_count of these. */
size_t plan_layer_bytes(const struct attend_shape *shape);

/* Write K and V [token][kv head][dim] of the batch into the pages; this thread's share. */
void plan_store(const struct plan *plan, uint32_t layer, const float *keys, const float *values,
                uint32_t thread, uint32_t thread_count);

/* Attend: query and out [token][head][dim]. Returns when no piece of this layer is left to take. */
void plan_run(struct plan *plan, uint32_t layer, const float *query, float *out, uint32_t thread);

#endif
