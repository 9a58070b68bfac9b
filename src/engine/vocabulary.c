/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/vocabulary.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

enum tarn_status vocabulary_open(struct vocabulary *vocabulary, const char *path)
{
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    *vocabulary = (struct vocabulary){ .model = llama_model_load_from_file(path, params) };
    if (!vocabulary->model) {
        log_error("%s: libllama cannot read its vocabulary", path);
        return TARN_CORRUPT;
    }
    vocabulary->llama = llama_model_get_vocab(vocabulary->model);
    vocabulary->chat_template = llama_model_chat_template(vocabulary->model, NULL);
    vocabulary->token_count = (uint32_t)llama_vocab_n_tokens(vocabulary->llama);
    vocabulary->adds_bos = llama_vocab_get_add_bos(vocabulary->llama);

    char answer[8] = "";
    const bool unigram = llama_vocab_type(vocabulary->llama) == LLAMA_VOCAB_TYPE_SPM;
    const bool said = llama_model_meta_val_str(vocabulary->model, "tokenizer.ggml.add_space_prefix",
                                               answer, sizeof(answer)) >= 0;
    vocabulary->adds_space = unigram && (!said || strcmp(answer, "true") == 0);

    const int32_t count = (int32_t)vocabulary->token_count;
    for (int32_t token = 0; token < count; token++) {
        if (!llama_vocab_is_eog(vocabulary->llama, token))
            continue;
        if (vocabulary->end_token_count == ENGINE_END_TOKENS_MAX)
            break;
        vocabulary->end_tokens[vocabulary->end_token_count++] = token;
    }
    return TARN_OK;
}

void vocabulary_close(struct vocabulary *vocabulary)
{
    if (vocabulary->model)
        llama_model_free(vocabulary->model);
    *vocabulary = (struct vocabulary){ 0 };
}

enum tarn_status vocabulary_tokenize(const struct vocabulary *vocabulary,
                                     const struct engine_text *text, int32_t *tokens,
                                     uint32_t capacity, uint32_t *out_count)
{
    if (text->length_bytes > INT32_MAX || capacity > INT32_MAX)
        return TARN_INVALID;
    const int32_t count = llama_tokenize(vocabulary->llama, text->length_bytes ? text->chars : "",
                                         (int32_t)text->length_bytes, tokens, (int32_t)capacity,
                                         text->add_special, text->parse_special);
    if (count == INT32_MIN)
        return TARN_INVALID;
    *out_count = (uint32_t)(count < 0 ? -count : count);
    return count < 0 ? TARN_NO_SPACE : TARN_OK;
}

/* `strip` leading spaces are left out. */
static enum tarn_status piece(const struct vocabulary *vocabulary, int32_t token, int32_t strip,
                              bool special, char *bytes, size_t *out_bytes)
{
    if (token < 0 || (uint32_t)token >= vocabulary->token_count)
        return TARN_INVALID;
    const int32_t count = llama_token_to_piece(vocabulary->llama, token, bytes,
                                               ENGINE_PIECE_BYTES_MAX, strip, special);
    ASSERT(count >= 0); /* no token is longer: checked when the file was opened */
    *out_bytes = (size_t)count;
    return TARN_OK;
}

enum tarn_status vocabulary_piece(const struct vocabulary *vocabulary, int32_t token, bool special,
                                  char *bytes, size_t *out_bytes)
{
    return piece(vocabulary, token, 0, special, bytes, out_bytes);
}

enum tarn_status vocabulary_detokenize(const struct vocabulary *vocabulary, const int32_t *tokens,
                                       uint32_t count, bool special, struct text *out)
{
    char bytes[ENGINE_PIECE_BYTES_MAX];
    bool at_start = vocabulary->adds_space;

    for (uint32_t i = 0; i < count; i++) {
        size_t size_bytes = 0;
        TRY(piece(vocabulary, tokens[i], at_start ? 1 : 0, special, bytes, &size_bytes));
        TRY(text_append_bytes(out, bytes, size_bytes));
        at_start = at_start && size_bytes == 0;
    }
    return TARN_OK;
}

enum tarn_status vocabulary_chat(const struct vocabulary *vocabulary,
                                 const struct engine_message *messages, uint32_t count,
                                 bool add_assistant, struct text *out)
{
    _Static_assert(sizeof(struct engine_message) == sizeof(struct llama_chat_message) &&
                       offsetof(struct engine_message, content) ==
                           offsetof(struct llama_chat_message, content),
                   "a message of ours is one of libllama's");
    const struct llama_chat_message *chat =
        (const struct llama_chat_message *)(const void *)messages;

    if (!vocabulary->chat_template)
        return TARN_UNSUPPORTED;
    const int32_t size_bytes =
        llama_chat_apply_template(vocabulary->chat_template, chat, count, add_assistant, NULL, 0);
    if (size_bytes < 0)
        return TARN_UNSUPPORTED;
    char *rendered = mem_alloc((size_t)size_bytes + 1, 1);
    if (!rendered)
        return TARN_NO_MEMORY;
    (void)llama_chat_apply_template(vocabulary->chat_template, chat, count, add_assistant, rendered,
                                    size_bytes);
    const enum tarn_status status = text_append_bytes(out, rendered, (size_t)size_bytes);
    mem_free(rendered);
    return status;
}

bool vocabulary_is_end(const struct vocabulary *vocabulary, int32_t token)
{
    return token >= 0 && (uint32_t)token < vocabulary->token_count &&
           llama_vocab_is_eog(vocabulary->llama, token);
}
