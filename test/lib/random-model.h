/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random-model.h - small models with random weights, in GGUF files, for tests.
 *
 * A file is of the `llama` architecture with f32 weights, and complete: libllama loads it,
 * tokenises any text with it (single letters and some words are tokens, the rest falls back to
 * bytes), and finds a ChatML template. The same specification gives the same file, byte for byte.
 * Attention weighs: queries and keys are scaled so that a changed key or value changes the logits
 * plainly.
 */
#ifndef TEST_RANDOM_MODEL_H
#define TEST_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* What is wrong with the file, so that loaders of plain llama models must refuse it. libllama
 * itself loads the first four. */
enum random_model_flaw {
    RANDOM_MODEL_SOUND,
    RANDOM_MODEL_ROPE_SCALING,   /* llama.rope.scaling.* */
    RANDOM_MODEL_ROPE_FREQS,     /* a rope_freqs tensor */
    RANDOM_MODEL_SLIDING_WINDOW, /* llama.attention.sliding_window */
    RANDOM_MODEL_BIAS,           /* a bias on the attention's output */
    RANDOM_MODEL_ARCHITECTURE,   /* says it is gemma3 */
    RANDOM_MODEL_MISSING_TENSOR, /* the last layer has no ffn_down */
    RANDOM_MODEL_WRONG_SHAPE,    /* the last layer's attn_k has one row too few */
    RANDOM_MODEL_FLAW_COUNT
};

enum { RANDOM_MODEL_VOCAB_MIN = 320 };

struct random_model {
    uint32_t layer_count;
    uint32_t head_count;
    uint32_t kv_head_count;
    uint32_t head_dim; /* the embedding has head_count * head_dim elements */
    uint32_t feed_forward_dim;
    uint32_t vocab_count; /* at least RANDOM_MODEL_VOCAB_MIN */
    uint32_t context_tokens;
    float rope_theta;
    bool tied; /* the output matrix is the embedding matrix */
    uint64_t seed;
    enum random_model_flaw flaw;
};

/* A model that computes hundreds of tokens a second even under sanitizers: 1 MB. */
struct random_model random_model_tiny(void);

/* Write the file. False, with a line on stderr, if that fails; then there may be part of a file. */
bool random_model_write(const struct random_model *model, const char *path);

#endif
