/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama-reference.h - libllama's own inference on the same file, to compare with: results by tests,
 * speed by `tarn bench engine`. Nothing that serves uses it. One thread.
 */
#ifndef ENGINE_LLAMA_REFERENCE_H
#define ENGINE_LLAMA_REFERENCE_H

#include "engine/engine.h"

struct reference_options {
    const char *model_path;
    const char *backend_dir; /* as for an engine */
    uint32_t ctx_tokens;     /* of each sequence */
    uint32_t sequences_max;
    uint32_t batch_tokens_max; /* of one forward; computed at once */
    uint32_t threads;
    enum engine_kv_type kv_type;
    bool flash_attention;
};

struct reference;

/* Statuses as for engine_open(); the cause is logged. */
NODISCARD enum tarn_status reference_open(const struct reference_options *options,
                                          struct reference **out_reference);
void reference_close(struct reference *reference); /* NULL is fine */

/* One sequence's part of a batch. `id` counts from 0; what the sequence held from `position` on is
 * forgotten. */
struct reference_sequence {
    uint32_t id;
    const int32_t *tokens;
    uint32_t token_count;
    uint32_t position;
    uint32_t output_count; /* logits wanted for the last so many tokens */
};

NODISCARD enum tarn_status reference_forward(struct reference *reference,
                                             const struct reference_sequence *sequences,
                                             uint32_t count);

/* Make sequence `to` hold what sequence `from` holds. */
void reference_copy(struct reference *reference, uint32_t from, uint32_t to);

/* Of one output of the last forward, counted in batch order; valid until the next. */
const float *reference_logits(const struct reference *reference, uint32_t output_index);

#endif
