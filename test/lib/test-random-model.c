/* SPDX-License-Identifier: Apache-2.0 */
/* libllama, as tools/setup got it, loads the models that the tests run on: random ones, and the
 * real one. */
#include "lib/random-model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>

#include "base/base.h"

enum { TOKENS_MAX = 64, DECODE_TOKENS = 8 };

static char folder[64];
static char path[96];

static void be_silent(enum ggml_log_level level, const char *text, void *context)
{
    (void)level, (void)text, (void)context;
}

static int start(void **state)
{
    (void)state;
    const char *backend_dir = getenv("TARN_BACKEND_DIR");
    llama_log_set(be_silent, NULL);
    if (backend_dir && *backend_dir)
        ggml_backend_load_all_from_path(backend_dir);
    else
        ggml_backend_load_all();
    (void)snprintf(folder, sizeof(folder), "/tmp/tarn-random-model-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/model.gguf", folder);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    (void)unlink(path);
    llama_backend_free();
    return rmdir(folder);
}

static struct llama_model *load(const char *file)
{
    struct llama_model_params params = llama_model_default_params();
    return llama_model_load_from_file(file, params);
}

static int32_t tokens_of(const struct llama_model *model, const char *text, bool special,
                         int32_t out_tokens[TOKENS_MAX])
{
    return llama_tokenize(llama_model_get_vocab(model), text, (int32_t)strlen(text), out_tokens,
                          TOKENS_MAX, special, special);
}

/* Decode some tokens and return a copy of the last one's logits. */
static float *logits_after(struct llama_model *model, const int32_t *tokens, int32_t count)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.n_threads = params.n_threads_batch = 1;
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    int32_t copy[TOKENS_MAX];
    memcpy(copy, tokens, (size_t)count * sizeof(*copy));
    assert_int_equal(llama_decode(context, llama_batch_get_one(copy, count)), 0);
    const size_t bytes = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model)) * sizeof(float);
    float *logits = test_malloc(bytes);
    memcpy(logits, llama_get_logits_ith(context, count - 1), bytes);
    llama_free(context);
    return logits;
}

static void assert_decodes(struct llama_model *model)
{
    int32_t tokens[TOKENS_MAX];
    const int32_t count =
        tokens_of(model, "a mountain lake in the hills, steep and deep", true, tokens);
    assert_in_range(count, DECODE_TOKENS, TOKENS_MAX);
    const int32_t vocab_count = llama_vocab_n_tokens(llama_model_get_vocab(model));
    float *logits = logits_after(model, tokens, DECODE_TOKENS);
    float highest = logits[0];
    float lowest = logits[0];
    for (int32_t i = 0; i < vocab_count; i++) {
        assert_true(isfinite(logits[i]));
        highest = fmaxf(highest, logits[i]);
        lowest = fminf(lowest, logits[i]);
    }
    assert_true(highest - lowest > 1.0f);
    test_free(logits);
}

static void libllama_loads_a_random_model_as_specified(void **state)
{
    (void)state;
    struct random_model spec = random_model_tiny();
    spec.layer_count = 3;
    spec.vocab_count = 1000;
    assert_true(random_model_write(&spec, path));
    struct llama_model *model = load(path);
    assert_non_null(model);
    assert_int_equal(llama_vocab_n_tokens(llama_model_get_vocab(model)), 1000);
    assert_int_equal(llama_model_n_layer(model), 3);
    assert_int_equal(llama_model_n_head(model), 4);
    assert_int_equal(llama_model_n_head_kv(model), 2);
    assert_int_equal(llama_model_n_embd(model), 64);
    assert_int_equal(llama_model_n_ctx_train(model), 4096);
    assert_decodes(model);
    llama_model_free(model);
}

static void a_tied_model_is_smaller_and_decodes(void **state)
{
    (void)state;
    struct random_model spec = random_model_tiny();
    assert_true(random_model_write(&spec, path));
    struct llama_model *model = load(path);
    const uint64_t untied_bytes = llama_model_size(model);
    llama_model_free(model);
    spec.tied = true;
    assert_true(random_model_write(&spec, path));
    model = load(path);
    assert_non_null(model);
    assert_int_equal(untied_bytes - llama_model_size(model),
                     sizeof(float) * spec.vocab_count * spec.head_count * spec.head_dim);
    assert_decodes(model);
    llama_model_free(model);
}

static void any_text_comes_back_from_its_tokens(void **state)
{
    (void)state;
    const struct random_model spec = random_model_tiny();
    assert_true(random_model_write(&spec, path));
    struct llama_model *model = load(path);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    static const char *const texts[] = { "a mountain lake", "Tarn: 42!\n\t",
                                         "\xc3\xa9t\xc3\xa9 \xf0\x9f\x8f\x94" };
    for (size_t i = 0; i < LENGTH_OF(texts); i++) {
        int32_t tokens[TOKENS_MAX];
        char text[TOKENS_MAX + 1];
        const int32_t count = tokens_of(model, texts[i], false, tokens);
        assert_in_range(count, 1, TOKENS_MAX);
        const int32_t length =
            llama_detokenize(vocab, tokens, count, text, TOKENS_MAX, false, false);
        assert_in_range(length, 1, TOKENS_MAX);
        text[length] = '\0';
        assert_string_equal(text[0] == ' ' ? text + 1 : text, texts[i]);
    }
    int32_t tokens[TOKENS_MAX];
    assert_int_equal(tokens_of(model, "<|im_start|>", true, tokens), 2);
    assert_int_equal(tokens[0], llama_vocab_bos(vocab));
    assert_true(llama_vocab_is_control(vocab, tokens[1]));
    assert_non_null(llama_model_chat_template(model, NULL));
    llama_model_free(model);
}

static void an_early_token_changes_late_logits_plainly(void **state)
{
    (void)state;
    const struct random_model spec = random_model_tiny();
    assert_true(random_model_write(&spec, path));
    struct llama_model *model = load(path);
    int32_t tokens[TOKENS_MAX];
    for (int32_t i = 0; i < TOKENS_MAX; i++)
        tokens[i] = 300 + i;
    float *before = logits_after(model, tokens, TOKENS_MAX);
    tokens[3] += 100;
    float *after = logits_after(model, tokens, TOKENS_MAX);
    float largest = 0.0f;
    for (uint32_t i = 0; i < spec.vocab_count; i++)
        largest = fmaxf(largest, fabsf(before[i] - after[i]));
    assert_true(largest > 0.1f);
    test_free(before);
    test_free(after);
    llama_model_free(model);
}

static uint64_t digest_of(const char *file)
{
    FILE *stream = fopen(file, "rbe");
    assert_non_null(stream);
    uint64_t digest = 14695981039346656037u;
    for (int byte; (byte = getc(stream)) != EOF;)
        digest = (digest ^ (uint64_t)byte) * 1099511628211u;
    (void)fclose(stream);
    return digest;
}

static void a_seed_decides_every_byte(void **state)
{
    (void)state;
    struct random_model spec = random_model_tiny();
    assert_true(random_model_write(&spec, path));
    const uint64_t first = digest_of(path);
    assert_true(random_model_write(&spec, path));
    assert_true(digest_of(path) == first);
    spec.seed = 2;
    assert_true(random_model_write(&spec, path));
    assert_true(digest_of(path) != first);
}

static bool file_has(const struct gguf_context *gguf, enum random_model_flaw flaw)
{
    switch (flaw) {
    case RANDOM_MODEL_ROPE_SCALING:
        return gguf_find_key(gguf, "llama.rope.scaling.type") >= 0;
    case RANDOM_MODEL_ROPE_FREQS:
        return gguf_find_tensor(gguf, "rope_freqs.weight") >= 0;
    case RANDOM_MODEL_SLIDING_WINDOW:
        return gguf_find_key(gguf, "llama.attention.sliding_window") >= 0;
    case RANDOM_MODEL_BIAS:
        return gguf_find_tensor(gguf, "blk.0.attn_output.bias") >= 0;
    case RANDOM_MODEL_ARCHITECTURE:
        return gguf_find_key(gguf, "gemma3.attention.sliding_window") >= 0;
    case RANDOM_MODEL_MISSING_TENSOR:
        return gguf_find_tensor(gguf, "blk.1.ffn_down.weight") < 0;
    case RANDOM_MODEL_WRONG_SHAPE:
        return gguf_get_tensor_size(gguf, gguf_find_tensor(gguf, "blk.1.attn_k.weight")) !=
               gguf_get_tensor_size(gguf, gguf_find_tensor(gguf, "blk.0.attn_k.weight"));
    case RANDOM_MODEL_SOUND:
    case RANDOM_MODEL_FLAW_COUNT:
        break;
    }
    return false;
}

static void each_flaw_alone_is_in_the_file_that_has_it(void **state)
{
    (void)state;
    struct random_model spec = random_model_tiny();
    for (spec.flaw = RANDOM_MODEL_SOUND; spec.flaw < RANDOM_MODEL_FLAW_COUNT; spec.flaw++) {
        assert_true(random_model_write(&spec, path));
        struct gguf_context *gguf =
            gguf_init_from_file(path, (struct gguf_init_params){ .no_alloc = true });
        assert_non_null(gguf);
        for (enum random_model_flaw flaw = 1; flaw < RANDOM_MODEL_FLAW_COUNT; flaw++)
            assert_int_equal(file_has(gguf, flaw), flaw == spec.flaw);
        gguf_free(gguf);
        struct llama_model *model = load(path);
        assert_int_equal(model != NULL, spec.flaw < RANDOM_MODEL_ARCHITECTURE);
        llama_model_free(model);
    }
}

static void libllama_loads_the_real_model(void **state)
{
    (void)state;
    const char *file = getenv("TARN_MODEL");
    assert_non_null(file);
    struct llama_model *model = load(file);
    assert_non_null(model);
    assert_int_equal(llama_vocab_n_tokens(llama_model_get_vocab(model)), 49152);
    assert_int_equal(llama_model_n_layer(model), 30);
    const char *sanitized = getenv("TARN_TEST_SANITIZED");
    if (!sanitized ||
        *sanitized == '0') /* else random models alone compute: this one takes minutes */
        assert_decodes(model);
    llama_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libllama_loads_a_random_model_as_specified),
        cmocka_unit_test(a_tied_model_is_smaller_and_decodes),
        cmocka_unit_test(any_text_comes_back_from_its_tokens),
        cmocka_unit_test(an_early_token_changes_late_logits_plainly),
        cmocka_unit_test(a_seed_decides_every_byte),
        cmocka_unit_test(each_flaw_alone_is_in_the_file_that_has_it),
        cmocka_unit_test(libllama_loads_the_real_model),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
