/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/file-vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { TYPE_BYTE = 6, BYTE_TOKEN_BYTES = 6 }; /* "<0x0A>" */

/* What libllama's vocabulary reader expects under a key. */
struct vocabulary_rule {
    const char *key;
    enum file_value_type type;
    bool is_array;
    bool per_token; /* as long as the list of tokens */
};

static const struct vocabulary_rule vocabulary_rules[] = {
    { "tokenizer.ggml.model", FILE_VALUE_STRING, false, false },
    { "tokenizer.ggml.pre", FILE_VALUE_STRING, false, false },
    { "tokenizer.ggml.tokens", FILE_VALUE_STRING, true, true },
    { "tokenizer.ggml.scores", FILE_VALUE_F32, true, true },
    { "tokenizer.ggml.token_type", FILE_VALUE_I32, true, true },
    { "tokenizer.ggml.merges", FILE_VALUE_STRING, true, false },
    { "tokenizer.ggml.precompiled_charsmap", FILE_VALUE_U8, true, false },
    { "tokenizer.ggml.add_bos_token", FILE_VALUE_BOOL, false, false },
    { "tokenizer.ggml.add_eos_token", FILE_VALUE_BOOL, false, false },
    { "tokenizer.ggml.add_sep_token", FILE_VALUE_BOOL, false, false },
    { "tokenizer.ggml.add_space_prefix", FILE_VALUE_BOOL, false, false },
    { "tokenizer.ggml.remove_extra_whitespaces", FILE_VALUE_BOOL, false, false },
    { "tokenizer.chat_template", FILE_VALUE_STRING, false, false },
};

/* Every key "tokenizer.ggml....token_id" is a number inside the vocabulary. */
static enum tarn_status check_special_tokens(const struct file_header *header, uint64_t token_count,
                                             char *reason)
{
    static const char prefix[] = "tokenizer.ggml.";
    static const char suffix[] = "_token_id";
    for (size_t i = 0; i < header->entry_count; i++) {
        const struct file_entry *entry = &header->entries[i];
        const size_t length_bytes = entry->key.length_bytes;
        if (length_bytes < sizeof(prefix) + sizeof(suffix) ||
            memcmp(entry->key.chars, prefix, sizeof(prefix) - 1) != 0 ||
            memcmp(entry->key.chars + length_bytes - (sizeof(suffix) - 1), suffix,
                   sizeof(suffix) - 1) != 0)
            continue;
        struct reader r = file_entry_reader(entry);
        if (entry->is_array || entry->type != FILE_VALUE_U32 || reader_uint(&r, 4) >= token_count)
            return file_refuse(reason, TARN_CORRUPT, "key '%.*s' names no token",
                               FILE_SHOWN(entry->key));
    }
    return TARN_OK;
}

/* Texts in order, to find doubles and to look texts up. */
static int text_compare(const void *a, const void *b)
{
    const struct file_string *left = a;
    const struct file_string *right = b;
    if (left->length_bytes != right->length_bytes)
        return left->length_bytes < right->length_bytes ? -1 : 1;
    return memcmp(left->chars, right->chars, left->length_bytes);
}

static bool text_known(const struct file_string *texts, size_t count, struct file_string text)
{
    return bsearch(&text, texts, count, sizeof(*texts), text_compare) != NULL;
}

/* Any text must have tokens: a byte is one of "<0x0A>" and its like, or itself. */
static bool bytes_known(const struct file_string *texts, size_t count)
{
    for (unsigned byte = 0; byte <= UINT8_MAX; byte++) {
        char name[BYTE_TOKEN_BYTES + 1];
        const char itself = (char)byte;
        (void)snprintf(name, sizeof(name), "<0x%02X>", byte);
        if (!text_known(texts, count, (struct file_string){ name, BYTE_TOKEN_BYTES }) &&
            !text_known(texts, count, (struct file_string){ &itself, 1 }))
            return false;
    }
    return true;
}

static enum tarn_status check_texts(const struct file_header *header, struct file_string *texts,
                                    size_t count, char *reason)
{
    qsort(texts, count, sizeof(*texts), text_compare);
    for (size_t i = 1; i < count; i++) {
        /* libllama gives empty ones a name of their own each */
        if (texts[i].length_bytes > 0 && text_compare(&texts[i - 1], &texts[i]) == 0)
            return file_refuse(reason, TARN_CORRUPT, "token '%.*s' is there twice",
                               FILE_SHOWN(texts[i]));
    }
    struct file_string model = { 0 };
    TRY(file_header_string(header, "tokenizer.ggml.model", &model));
    if (file_string_equal(model, "llama") && !bytes_known(texts, count))
        return file_refuse(reason, TARN_CORRUPT, "its tokenizer has no tokens for single bytes");
    return TARN_OK;
}

/* Tokens of the type "byte" are spelled in hexadecimal. */
static enum tarn_status check_byte_tokens(const struct file_header *header,
                                          const struct file_string *texts, size_t count,
                                          char *reason)
{
    const struct file_entry *types = file_header_find(header, "tokenizer.ggml.token_type");
    if (!types)
        return TARN_OK;
    struct reader r = file_entry_reader(types);
    for (size_t i = 0; i < count; i++) {
        if (reader_uint(&r, 4) == TYPE_BYTE && texts[i].length_bytes != BYTE_TOKEN_BYTES)
            return file_refuse(reason, TARN_CORRUPT, "token '%.*s' is said to be a byte",
                               FILE_SHOWN(texts[i]));
    }
    return TARN_OK;
}

static enum tarn_status check_tokens(const struct file_header *header,
                                     const struct file_entry *tokens, size_t piece_bytes_max,
                                     char *reason)
{
    const size_t count = (size_t)tokens->count;
    struct file_string *texts = mem_alloc(count, sizeof(*texts));
    struct reader r = file_entry_reader(tokens);
    enum tarn_status status = TARN_OK;

    if (!texts)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < count && status == TARN_OK; i++) {
        texts[i] = file_string_read(&r);
        if (texts[i].length_bytes > piece_bytes_max)
            status = file_refuse(reason, TARN_CORRUPT, "token %zu is longer than %zu bytes", i,
                                 piece_bytes_max);
    }
    if (status == TARN_OK)
        status = check_byte_tokens(header, texts, count, reason);
    if (status == TARN_OK)
        status = check_texts(header, texts, count, reason);
    mem_free(texts);
    return status;
}

static enum tarn_status check_kind(const struct file_header *header, char *reason)
{
    struct file_string model = { 0 };
    if (file_header_string(header, "tokenizer.ggml.model", &model) != TARN_OK)
        return file_refuse(reason, TARN_CORRUPT, "it has no tokenizer");
    if (file_string_equal(model, "gpt2") && !file_header_find(header, "tokenizer.ggml.merges"))
        return file_refuse(reason, TARN_CORRUPT, "its tokenizer has no merges");
    if (!file_string_equal(model, "llama") && !file_string_equal(model, "gpt2"))
        return file_refuse(reason, TARN_UNSUPPORTED,
                           "tokenizer '%.*s' is not supported; supported: llama, gpt2",
                           FILE_SHOWN(model));
    return TARN_OK;
}

enum tarn_status file_vocabulary_check(const struct file_header *header, size_t piece_bytes_max,
                                       char reason[FILE_REASON_BYTES_MAX])
{
    const struct file_entry *tokens = file_header_find(header, "tokenizer.ggml.tokens");
    if (!tokens || tokens->count == 0 || tokens->count > INT32_MAX)
        return file_refuse(reason, TARN_CORRUPT, "it has no tokenizer");
    for (size_t i = 0; i < LENGTH_OF(vocabulary_rules); i++) {
        const struct vocabulary_rule *rule = &vocabulary_rules[i];
        const struct file_entry *entry = file_header_find(header, rule->key);
        if (!entry)
            continue;
        if (entry->type != rule->type || entry->is_array != rule->is_array)
            return file_refuse(reason, TARN_CORRUPT, "key '%s' has a value of the wrong type",
                               rule->key);
        if (rule->per_token && entry->count != tokens->count)
            return file_refuse(reason, TARN_CORRUPT, "key '%s' has %llu values for %llu tokens",
                               rule->key, (unsigned long long)entry->count,
                               (unsigned long long)tokens->count);
    }
    TRY(check_kind(header, reason));
    TRY(check_special_tokens(header, tokens->count, reason));
    return check_tokens(header, tokens, piece_bytes_max, reason);
}
