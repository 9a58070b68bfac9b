/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/random-model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ggml.h>
#include <gguf.h>

#include "base/alloc.h"
#include "base/base.h"

enum {
    TOKEN_UNKNOWN = 0,
    TOKEN_BOS = 1,
    TOKEN_EOS = 2,
    TOKEN_BYTE_FIRST = 3, /* 256 of them */
    TOKEN_IM_START = TOKEN_BYTE_FIRST + 256,
    TOKEN_IM_END,
    TOKEN_WORD_FIRST,
    TYPE_NORMAL = 1, /* token types of the format */
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_BYTE = 6,
    TOKEN_BYTES_MAX = 24,
};

#define SPACE "\xe2\x96\x81" /* U+2581, which stands for a space inside tokens */
#define TEMPLATE                                                                                   \
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>" \
    "\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

/* One file being made. */
struct draft {
    const struct random_model *model;
    struct gguf_context *gguf;
    struct ggml_context *tensors;
    uint64_t random; /* state of the generator */
    const char *architecture;
};

struct random_model random_model_tiny(void)
{
    return (struct random_model){ .layer_count = 2,
                                  .head_count = 4,
                                  .kv_head_count = 2,
                                  .head_dim = 16,
                                  .feed_forward_dim = 128,
                                  .vocab_count = 512,
                                  .context_tokens = 4096,
                                  .rope_theta = 10000.0f,
                                  .seed = 1 };
}

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
    uint64_t value = (*state += 0x9e3779b97f4a7c15u);
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* About normal, mean 0 and deviation 1: the sum of four even numbers, the same on every machine. */
static float random_normal(uint64_t *state)
{
    const uint64_t bits = random_next(state);
    const int64_t sum =
        (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 0xffff);
}

/* ---- keys ---- */

static void set_u32(struct draft *draft, const char *key, uint32_t value)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%s.%s", draft->architecture, key);
    gguf_set_val_u32(draft->gguf, name, value);
}

static void set_f32(struct draft *draft, const char *key, float value)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%s.%s", draft->architecture, key);
    gguf_set_val_f32(draft->gguf, name, value);
}

static void set_hyperparameters(struct draft *draft)
{
    const struct random_model *model = draft->model;
    gguf_set_val_str(draft->gguf, "general.architecture", draft->architecture);
    gguf_set_val_str(draft->gguf, "general.name", "random");
    gguf_set_val_u32(draft->gguf, "general.file_type", 0); /* all f32 */
    set_u32(draft, "block_count", model->layer_count);
    set_u32(draft, "context_length", model->context_tokens);
    set_u32(draft, "embedding_length", model->head_count * model->head_dim);
    set_u32(draft, "feed_forward_length", model->feed_forward_dim);
    set_u32(draft, "vocab_size", model->vocab_count);
    set_u32(draft, "attention.head_count", model->head_count);
    set_u32(draft, "attention.head_count_kv", model->kv_head_count);
    set_u32(draft, "attention.key_length", model->head_dim);
    set_u32(draft, "attention.value_length", model->head_dim);
    set_f32(draft, "attention.layer_norm_rms_epsilon", 1e-5f);
    set_u32(draft, "rope.dimension_count", model->head_dim);
    set_f32(draft, "rope.freq_base", model->rope_theta);
    if (model->flaw == RANDOM_MODEL_SLIDING_WINDOW || model->flaw == RANDOM_MODEL_ARCHITECTURE)
        set_u32(draft, "attention.sliding_window", 512);
    if (model->flaw == RANDOM_MODEL_ROPE_SCALING) {
        gguf_set_val_str(draft->gguf, "llama.rope.scaling.type", "linear");
        gguf_set_val_f32(draft->gguf, "llama.rope.scaling.factor", 2.0f);
    }
}

/* The words, by number: a space, then all letters, all pairs and so on, each without and with a
 * space before it. */
static void word_write(uint32_t number, char out_word[TOKEN_BYTES_MAX])
{
    if (number == 0) {
        (void)stpcpy(out_word, SPACE);
        return;
    }
    uint32_t rest = (number - 1) / 2;
    uint32_t words = 26;
    size_t length = 1;
    for (; rest >= words; length++, words *= 26)
        rest -= words;
    char *end = stpcpy(out_word, number % 2 ? "" : SPACE) + length;
    *end = '\0';
    for (; length > 0; length--, rest /= 26)
        *--end = (char)('a' + rest % 26);
}

static void token_write(uint32_t token, char out_text[TOKEN_BYTES_MAX], int32_t *out_type)
{
    static const char *const special[] = {
        [TOKEN_UNKNOWN] = "<unk>", [TOKEN_BOS] = "<s>", [TOKEN_EOS] = "</s>"
    };
    *out_type = TYPE_CONTROL;
    if (token < TOKEN_BYTE_FIRST) {
        (void)stpcpy(out_text, special[token]);
        *out_type = token == TOKEN_UNKNOWN ? TYPE_UNKNOWN : TYPE_CONTROL;
    } else if (token < TOKEN_IM_START) {
        (void)snprintf(out_text, TOKEN_BYTES_MAX, "<0x%02X>", token - TOKEN_BYTE_FIRST);
        *out_type = TYPE_BYTE;
    } else if (token < TOKEN_WORD_FIRST) {
        (void)stpcpy(out_text, token == TOKEN_IM_START ? "<|im_start|>" : "<|im_end|>");
    } else {
        word_write(token - TOKEN_WORD_FIRST, out_text);
        *out_type = TYPE_NORMAL;
    }
}

static bool set_tokenizer(struct draft *draft)
{
    const uint32_t count = draft->model->vocab_count;
    char(*text)[TOKEN_BYTES_MAX] = mem_alloc(count, sizeof(*text));
    const char **tokens = mem_alloc(count, sizeof(*tokens));
    float *scores = mem_alloc(count, sizeof(*scores));
    int32_t *types = mem_alloc(count, sizeof(*types));
    const bool good = text && tokens && scores && types;
    for (uint32_t token = 0; good && token < count; token++) {
        token_write(token, text[token], &types[token]);
        tokens[token] = text[token];
        scores[token] = token < TOKEN_WORD_FIRST ? 0.0f : -(float)(token - TOKEN_WORD_FIRST);
    }
    if (good) {
        gguf_set_val_str(draft->gguf, "tokenizer.ggml.model", "llama"); /* sentencepiece */
        gguf_set_val_str(draft->gguf, "tokenizer.ggml.pre", "default");
        gguf_set_arr_str(draft->gguf, "tokenizer.ggml.tokens", tokens, count);
        gguf_set_arr_data(draft->gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, count);
        gguf_set_arr_data(draft->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, count);
        gguf_set_val_u32(draft->gguf, "tokenizer.ggml.unknown_token_id", TOKEN_UNKNOWN);
        gguf_set_val_u32(draft->gguf, "tokenizer.ggml.bos_token_id", TOKEN_BOS);
        gguf_set_val_u32(draft->gguf, "tokenizer.ggml.eos_token_id", TOKEN_EOS);
        gguf_set_val_u32(draft->gguf, "tokenizer.ggml.eot_token_id", TOKEN_IM_END);
        gguf_set_val_bool(draft->gguf, "tokenizer.ggml.add_bos_token", true);
        gguf_set_val_bool(draft->gguf, "tokenizer.ggml.add_eos_token", false);
        gguf_set_val_str(draft->gguf, "tokenizer.chat_template", TEMPLATE);
    }
    mem_free(text);
    mem_free(tokens);
    mem_free(scores);
    mem_free(types);
    return good;
}

/* ---- tensors ---- */

/* Add a tensor of `rows` rows, 0 for a vector, whose elements are normal around `mean`. */
static void add_tensor(struct draft *draft, const char *name, int64_t columns, int64_t rows,
                       float mean, float deviation)
{
    struct ggml_tensor *tensor =
        rows ? ggml_new_tensor_2d(draft->tensors, GGML_TYPE_F32, columns, rows)
             : ggml_new_tensor_1d(draft->tensors, GGML_TYPE_F32, columns);
    ggml_set_name(tensor, name);
    float *elements = ggml_get_data_f32(tensor);
    for (int64_t i = 0; i < ggml_nelements(tensor); i++)
        elements[i] = mean + deviation * random_normal(&draft->random);
    gguf_add_tensor(draft->gguf, tensor);
}

/* A matrix that keeps the size of what it is given, times `gain`. */
static void add_matrix(struct draft *draft, const char *name, uint32_t columns, uint32_t rows,
                       float gain)
{
    add_tensor(draft, name, columns, rows, 0.0f, gain / sqrtf((float)columns));
}

static void add_layer(struct draft *draft, uint32_t layer)
{
    const struct random_model *model = draft->model;
    const uint32_t width = model->head_count * model->head_dim;
    const uint32_t kv_width = model->kv_head_count * model->head_dim;
    const bool last = layer == model->layer_count - 1;
    const bool narrow = last && model->flaw == RANDOM_MODEL_WRONG_SHAPE;
    char name[GGML_MAX_NAME];
#define NAME(what) (snprintf(name, sizeof(name), "blk.%u." what, layer), name)
    add_tensor(draft, NAME("attn_norm.weight"), width, 0, 1.0f, 0.1f);
    add_matrix(draft, NAME("attn_q.weight"), width, width, 1.5f);
    add_matrix(draft, NAME("attn_k.weight"), width, kv_width - narrow, 1.5f);
    add_matrix(draft, NAME("attn_v.weight"), width, kv_width, 1.0f);
    add_matrix(draft, NAME("attn_output.weight"), width, width, 1.0f);
    if (model->flaw == RANDOM_MODEL_BIAS)
        add_tensor(draft, NAME("attn_output.bias"), width, 0, 0.0f, 0.5f);
    add_tensor(draft, NAME("ffn_norm.weight"), width, 0, 1.0f, 0.1f);
    add_matrix(draft, NAME("ffn_gate.weight"), width, model->feed_forward_dim, 1.0f);
    add_matrix(draft, NAME("ffn_up.weight"), width, model->feed_forward_dim, 1.0f);
    if (!last || model->flaw != RANDOM_MODEL_MISSING_TENSOR)
        add_matrix(draft, NAME("ffn_down.weight"), model->feed_forward_dim, width, 1.0f);
#undef NAME
}

static void add_tensors(struct draft *draft)
{
    const struct random_model *model = draft->model;
    const uint32_t width = model->head_count * model->head_dim;
    add_tensor(draft, "token_embd.weight", width, model->vocab_count, 0.0f, 0.5f);
    for (uint32_t layer = 0; layer < model->layer_count; layer++)
        add_layer(draft, layer);
    add_tensor(draft, "output_norm.weight", width, 0, 1.0f, 0.1f);
    if (!model->tied)
        add_matrix(draft, "output.weight", width, model->vocab_count, 3.0f);
    if (model->flaw == RANDOM_MODEL_ROPE_FREQS)
        add_tensor(draft, "rope_freqs.weight", model->head_dim / 2, 0, 4.0f, 1.0f);
}

static size_t tensors_bytes(const struct random_model *model)
{
    const size_t width = (size_t)model->head_count * model->head_dim;
    const size_t layer = 4 * width * width + 3 * width * model->feed_forward_dim + 3 * width;
    const size_t elements = layer * model->layer_count + 2 * width * model->vocab_count + 2 * width;
    const size_t count = 10 * (size_t)model->layer_count + 4;
    return elements * sizeof(float) + count * (ggml_tensor_overhead() + GGML_MEM_ALIGN);
}

bool random_model_write(const struct random_model *model, const char *path)
{
    ASSERT(model->vocab_count >= RANDOM_MODEL_VOCAB_MIN && model->layer_count > 0);
    ASSERT(model->kv_head_count > 0 && model->head_count % model->kv_head_count == 0);
    struct draft draft = {
        .model = model,
        .gguf = gguf_init_empty(),
        .tensors = ggml_init((struct ggml_init_params){ .mem_size = tensors_bytes(model) }),
        .random = model->seed,
        .architecture = model->flaw == RANDOM_MODEL_ARCHITECTURE ? "gemma3" : "llama",
    };
    bool good = draft.gguf && draft.tensors && set_tokenizer(&draft);
    if (good) {
        set_hyperparameters(&draft);
        add_tensors(&draft);
        good = gguf_write_to_file(draft.gguf, path, false);
    }
    ggml_free(draft.tensors);
    gguf_free(draft.gguf);
    if (!good)
        (void)fprintf(stderr, "random model: %s could not be written\n", path);
    return good;
}
