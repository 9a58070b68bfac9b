/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a GGUF file's weights, mapped, and the table of architectures that can be computed.
 *
 * A model is opened completely or refused by name: every tensor that the architecture needs is
 * there in its shape, no tensor is there that nobody would use, and no key asks for something that
 * is not computed. Constant after opening.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <ggml-backend.h>
#include <ggml.h>
#include <sys/stat.h>

#include "engine/file-header.h"

enum { MODEL_PARTS_MAX = 999, MODEL_LAYERS_MAX = 1024 };

/* One file. Tensors lie in the mapping. */
struct model_part {
    char *path;
    void *bytes;
    size_t size_bytes;
    struct stat status; /* of the file, when it was mapped */
    struct file_header header;
    bool *tensor_used;
    ggml_backend_buffer_t buffer;
};

struct model_layer {
    struct ggml_tensor *attention_norm;
    struct ggml_tensor *query;
    struct ggml_tensor *key;
    struct ggml_tensor *value;
    struct ggml_tensor *attention_out;
    struct ggml_tensor *feed_norm;
    struct ggml_tensor *feed_gate;
    struct ggml_tensor *feed_up;
    struct ggml_tensor *feed_down;
};

/* What an architecture is, as far as the graph builder must know. */
struct architecture {
    const char *name;      /* general.architecture */
    int rope_mode;         /* ggml's: 0 pairs neighbours */
    const char *rope_type; /* as tarn_kv_format has it */
};

struct model {
    const struct architecture *architecture;
    struct model_part *parts;
    uint32_t part_count;
    struct ggml_context *context; /* of the tensors' descriptions */
    struct ggml_tensor *token_embedding;
    struct ggml_tensor *output_norm;
    struct ggml_tensor *output; /* the embedding again if the file has none */
    struct model_layer *layers;
    uint32_t layer_count;
    uint32_t head_count;
    uint32_t kv_head_count;
    uint32_t head_dim;
    uint32_t embedding_dim;
    uint32_t feed_dim;
    uint32_t vocab_count;
    uint32_t ctx_train_tokens;
    float norm_epsilon;
    float rope_base;
    uint64_t parameter_count;
    uint64_t weights_bytes;
};

/* Statuses as for engine_open(); the cause is logged. */
NODISCARD enum tarn_status model_open(const char *path, struct model *out_model);
void model_close(struct model *model); /* zeroed is fine */

/* The kind of most weights, as ggml names it. */
enum ggml_type model_weights_type(const struct model *model);

#endif
