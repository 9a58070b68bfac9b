/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocabulary.h - a model's tokens and chat template, through libllama, which loads nothing else of
 * the file.
 *
 * The contracts are those of engine.h. Constant after opening: every function but open and close
 * may be called by any thread at any time (libllama's tokenizer is stateless).
 */
#ifndef ENGINE_VOCABULARY_H
#define ENGINE_VOCABULARY_H

#include <llama.h>

#include "engine/engine.h"

struct vocabulary {
    struct llama_model *model; /* without weights */
    const struct llama_vocab *llama;
    const char *chat_template; /* NULL: none */
    uint32_t token_count;
    bool adds_bos;
    bool adds_space; /* to the beginning of a text; taken away again when it is put together */
    int32_t end_tokens[ENGINE_END_TOKENS_MAX];
    uint32_t end_token_count;
};

/* The file's header has been checked (file-header.h), and backends are loaded. CORRUPT, logged. */
NODISCARD enum tarn_status vocabulary_open(struct vocabulary *vocabulary, const char *path);
void vocabulary_close(struct vocabulary *vocabulary); /* zeroed is fine */

NODISCARD enum tarn_status vocabulary_tokenize(const struct vocabulary *vocabulary,
                                               const struct engine_text *text, int32_t *tokens,
                                               uint32_t capacity, uint32_t *out_count);
NODISCARD enum tarn_status vocabulary_piece(const struct vocabulary *vocabulary, int32_t token,
                                            bool special, char *bytes, size_t *out_bytes);
NODISCARD enum tarn_status vocabulary_detokenize(const struct vocabulary *vocabulary,
                                                 const int32_t *tokens, uint32_t count,
                                                 bool special, struct text *out);
NODISCARD enum tarn_status vocabulary_chat(const struct vocabulary *vocabulary,
                                           const struct engine_message *messages, uint32_t count,
                                           bool add_assistant, struct text *out);
bool vocabulary_is_end(const struct vocabulary *vocabulary, int32_t token);

#endif
