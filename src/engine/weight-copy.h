/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight-copy.h - a second copy of quantised weights, for large batches.
 *
 * Some quantised types have no blocked matrix product in ggml, only a product of a matrix and a
 * vector. The same numbers as f16 take a third of the time from WEIGHT_COPY_TOKENS_MIN tokens on;
 * the file's own weights stay for smaller batches, which are bound by memory. With f16 weights ggml
 * does not quantise activations: results differ from libllama's with the same file, which is why
 * nobody gets them unasked. Made when the model is opened, where memory
 * allows; constant afterwards.
 */
#ifndef ENGINE_WEIGHT_COPY_H
#define ENGINE_WEIGHT_COPY_H

#include "engine/engine.h"
#include "engine/model.h"

enum { WEIGHT_COPY_TOKENS_MIN = 8 };

struct weight_copy {
    struct model_layer *layers; /* NULL: there is no copy */
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    uint64_t size_bytes;
};

/* Copy the layers' matrices that profit. No copy is no failure: nothing to copy, or it would take
 * more than a quarter of the memory that is available, which is logged. should_stop (NULL: nobody)
 * is asked before each matrix. Outcomes: AGAIN, it ended the copying. */
NODISCARD enum tarn_status weight_copy_init(struct weight_copy *copy, const struct model *model,
                                            engine_stop_fn should_stop, void *stop_context);
void weight_copy_deinit(struct weight_copy *copy); /* zeroed is fine */

#endif
