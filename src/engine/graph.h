/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - the computation of a batch as a ggml graph, kept by its shape.
 *
 * A graph depends on the number of tokens and of outputs alone: tokens, positions and pages are
 * data. So the last few shapes are kept, and a step of a known shape builds and allocates nothing.
 * All graphs compute in one buffer. Loop thread only.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H

#include <ggml-alloc.h>

#include "engine/backend.h"
#include "engine/model.h"
#include "engine/plan.h"
#include "engine/weight-copy.h"

enum { GRAPH_KEPT_MAX = 24 };

struct graph {
    uint32_t token_count; /* 0: not built */
    uint32_t output_count;
    uint64_t used_at;
    void *memory;
    struct ggml_context *context;
    struct ggml_cgraph *ggml;
    struct ggml_tensor *tokens;
    struct ggml_tensor *positions;
    struct ggml_tensor *outputs; /* indices of the tokens whose logits are wanted; NULL: none */
    struct ggml_tensor *logits;
};

struct graph_layer {
    struct plan *plan;
    uint32_t layer;
};

struct graph_set {
    const struct model *model;
    const struct weight_copy *copy;
    struct plan *plan;
    ggml_gallocr_t allocator;
    size_t buffer_bytes;
    size_t memory_bytes; /* of one graph's descriptions */
    uint64_t clock;
    struct graph_layer *layers;
    struct graph kept[GRAPH_KEPT_MAX];
};

/* Reserve room for batches of this size. The model, the copy and the plan must outlive the set. */
NODISCARD enum tarn_status graph_set_init(struct graph_set *set, const struct model *model,
                                          const struct weight_copy *copy, struct plan *plan,
                                          uint32_t token_count, uint32_t output_count);
void graph_set_deinit(struct graph_set *set); /* zeroed is fine */

/* The graph for a shape, with its tensors allocated; valid until the next call. */
NODISCARD enum tarn_status graph_get(struct graph_set *set, uint32_t token_count,
                                     uint32_t output_count, struct graph **out_graph);

#endif
