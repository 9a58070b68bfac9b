/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, chats and samplers on a small random model. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "lib/random-model.h"

static struct engine *engine;
static char model_path[64];

enum { TOKENS_MAX = 512 };

static uint32_t tokenize(const char *chars, bool special, int32_t *tokens)
{
    const struct engine_text text = { .chars = chars,
                                      .length_bytes = strlen(chars),
                                      .add_special = special,
                                      .parse_special = special };
    uint32_t count = 0;
    assert_int_equal(engine_tokenize(engine, &text, tokens, TOKENS_MAX, &count), TARN_OK);
    return count;
}

static void text_survives_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = { "hello world", "a", "Grüße, 世界! \xf0\x9f\x8c\x8a\n\ttab",
                                         "" };
    int32_t tokens[TOKENS_MAX];

    for (size_t i = 0; i < LENGTH_OF(texts); i++) {
        CLEANUP(text_deinit)
        struct text back;
        text_init(&back, 4096);
        const uint32_t count = tokenize(texts[i], false, tokens);
        assert_int_equal(engine_detokenize(engine, tokens, count, false, &back), TARN_OK);
        assert_string_equal(text_chars(&back), texts[i]);
    }
}

/* A character that is no token comes as its bytes, one token each. */
static void a_character_may_be_split_over_tokens(void **state)
{
    (void)state;
    int32_t tokens[TOKENS_MAX];
    char bytes[ENGINE_PIECE_BYTES_MAX];
    char all[64];
    size_t used_bytes = 0;
    size_t size_bytes = 0;
    const uint32_t count = tokenize("\xe4\xb8\x96", false, tokens);

    assert_true(count >= 3);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(engine_token_piece(engine, tokens[i], false, bytes, &size_bytes), TARN_OK);
        memcpy(all + used_bytes, bytes, size_bytes);
        used_bytes += size_bytes;
    }
    assert_true(used_bytes >= 3);
    assert_memory_equal(all + used_bytes - 3, "\xe4\xb8\x96", 3);
}

static void too_many_tokens_are_counted(void **state)
{
    (void)state;
    int32_t tokens[TOKENS_MAX];
    uint32_t count = 0;
    const uint32_t all = tokenize("one two three four", false, tokens);
    const struct engine_text text = { .chars = "one two three four", .length_bytes = 18 };

    assert_int_equal(engine_tokenize(engine, &text, tokens, all - 1, &count), TARN_NO_SPACE);
    assert_int_equal(count, all);
    assert_int_equal(engine_tokenize(engine, &text, NULL, 0, &count), TARN_NO_SPACE);
    assert_int_equal(count, all);
}

static void tokens_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const int32_t outside[] = { -1, (int32_t)engine_info_of(engine)->vocab_count, INT32_MAX };
    char bytes[ENGINE_PIECE_BYTES_MAX];
    size_t size_bytes = 0;
    CLEANUP(text_deinit)
    struct text text;

    text_init(&text, 100);
    for (size_t i = 0; i < LENGTH_OF(outside); i++) {
        assert_int_equal(engine_token_piece(engine, outside[i], true, bytes, &size_bytes),
                         TARN_INVALID);
        assert_int_equal(engine_detokenize(engine, &outside[i], 1, true, &text), TARN_INVALID);
        assert_false(engine_token_is_end(engine, outside[i]));
    }
}

static void a_chat_is_rendered_by_the_files_template(void **state)
{
    (void)state;
    const struct engine_message messages[] = { { "system", "Be short." }, { "user", "Hi!" } };
    int32_t tokens[TOKENS_MAX];
    CLEANUP(text_deinit)
    struct text text;
    CLEANUP(text_deinit)
    struct text small;

    text_init(&text, 4096);
    text_init(&small, 10);
    assert_true(engine_info_of(engine)->has_chat_template);
    assert_int_equal(engine_chat_render(engine, messages, 2, true, &text), TARN_OK);
    assert_string_equal(text_chars(&text), "<|im_start|>system\nBe short.<|im_end|>\n"
                                           "<|im_start|>user\nHi!<|im_end|>\n"
                                           "<|im_start|>assistant\n");
    const uint32_t count = tokenize(text_chars(&text), true, tokens);
    uint32_t ends = 0;
    for (uint32_t i = 0; i < count; i++)
        ends += engine_token_is_end(engine, tokens[i]) ? 1 : 0;
    assert_int_equal(ends, 2); /* each <|im_end|> is one token, which ends a generation */
    assert_int_equal(engine_chat_render(engine, messages, 2, true, &small), TARN_NO_SPACE);
}

static void end_tokens_are_listed(void **state)
{
    (void)state;
    const struct engine_info *info = engine_info_of(engine);
    assert_true(info->end_token_count > 0);
    for (uint32_t i = 0; i < info->end_token_count; i++)
        assert_true(engine_token_is_end(engine, info->end_tokens[i]));
}

/* ---- samplers ---- */

static float *logits_make(void)
{
    const uint32_t count = engine_info_of(engine)->vocab_count;
    float *logits = mem_alloc(count, sizeof(*logits));
    assert_non_null(logits);
    for (uint32_t i = 0; i < count; i++)
        logits[i] = sinf((float)i * 0.37F) * 3;
    logits[41] = 5;
    logits[77] = 4.5F;
    return logits;
}

static struct sampler *sampler_make(float temperature, float top_p, int32_t top_k, uint32_t seed)
{
    const struct sampler_params params = {
        .temperature = temperature, .top_p = top_p, .top_k = top_k, .seed = seed
    };
    struct sampler *sampler = NULL;
    assert_int_equal(sampler_create(engine, &params, &sampler), TARN_OK);
    return sampler;
}

static void temperature_zero_takes_the_likeliest(void **state)
{
    (void)state;
    float *logits = logits_make();
    struct sampler *sampler = sampler_make(0, 1, 0, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(sampler_sample(sampler, logits), 41);
    sampler_destroy(sampler);
    sampler = sampler_make(1.5F, 1, 1, 1); /* one candidate is left */
    assert_int_equal(sampler_sample(sampler, logits), 41);
    sampler_destroy(sampler);
    sampler = sampler_make(1.5F, 0.001F, 0, 1);
    assert_int_equal(sampler_sample(sampler, logits), 41);
    sampler_destroy(sampler);
    mem_free(logits);
}

static void a_seed_decides_the_text(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    float *logits = logits_make();
    static const uint32_t seeds[] = { 7, 7, 8, UINT32_MAX, UINT32_MAX };
    int32_t texts[LENGTH_OF(seeds)][COUNT];

    for (size_t i = 0; i < LENGTH_OF(seeds); i++) {
        struct sampler *sampler = sampler_make(1, 0.95F, 40, seeds[i]);
        for (size_t k = 0; k < COUNT; k++)
            texts[i][k] = sampler_sample(sampler, logits);
        sampler_destroy(sampler);
    }
    assert_memory_equal(texts[0], texts[1], sizeof(texts[0]));
    assert_memory_not_equal(texts[0], texts[2], sizeof(texts[0]));
    assert_memory_equal(texts[3], texts[4], sizeof(texts[0]));
    mem_free(logits);
}

static void two_likely_tokens_come_in_their_proportion(void **state)
{
    (void)state;
    float *logits = logits_make();
    struct sampler *sampler = sampler_make(1, 1, 2, 3);
    uint32_t first = 0;
    for (int i = 0; i < 4000; i++) {
        const int32_t token = sampler_sample(sampler, logits);
        assert_true(token == 41 || token == 77);
        first += token == 41 ? 1 : 0;
    }
    assert_in_range(first, 2350, 2630); /* 1 / (1 + exp(-1/2)) of 4000 is 2490 */
    sampler_destroy(sampler);
    mem_free(logits);
}

static void numbers_out_of_range_make_no_sampler(void **state)
{
    (void)state;
    static const struct sampler_params bad[] = {
        { .temperature = -1, .top_p = 1 },
        { .temperature = NAN, .top_p = 1 },
        { .temperature = INFINITY, .top_p = 1 },
        { .temperature = 1, .top_p = 0 },
        { .temperature = 1, .top_p = 1.01F },
        { .temperature = 1, .top_p = NAN },
        { .temperature = 1, .top_p = 1, .top_k = -1 },
    };
    struct sampler *sampler = NULL;
    for (size_t i = 0; i < LENGTH_OF(bad); i++)
        assert_int_equal(sampler_create(engine, &bad[i], &sampler), TARN_INVALID);
    assert_null(sampler);
    sampler_destroy(NULL);
}

/* ---- threads ---- */

static atomic_bool stopping;

static void *tokenize_again(void *context)
{
    const int32_t *expected = context;
    while (!atomic_load(&stopping)) {
        int32_t tokens[TOKENS_MAX];
        uint32_t count = 0;
        const struct engine_text text = { .chars = "hello world and so on", .length_bytes = 21 };
        if (engine_tokenize(engine, &text, tokens, TOKENS_MAX, &count) != TARN_OK ||
            memcmp(tokens, expected, count * sizeof(*tokens)) != 0)
            return context;
    }
    return NULL;
}

static void another_thread_tokenizes_during_a_forward(void **state)
{
    (void)state;
    int32_t expected[TOKENS_MAX] = { 0 };
    pthread_t thread;
    void *result = NULL;
    void *page = mem_alloc(1, engine_info_of(engine)->page_bytes);

    assert_non_null(page);
    const uint32_t count = tokenize("hello world and so on", false, expected);
    assert_int_equal(pthread_create(&thread, NULL, tokenize_again, expected), 0);
    for (int i = 0; i < 20; i++) {
        const struct engine_sequence sequence = { .tokens = expected,
                                                  .token_count = count,
                                                  .pages = &page,
                                                  .page_count = 1,
                                                  .output_count = 1 };
        assert_int_equal(engine_forward(engine, &sequence, 1), TARN_OK);
    }
    atomic_store(&stopping, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    mem_free(page);
}

static int group_setup(void **state)
{
    (void)state;
    const struct random_model model = random_model_tiny();
    (void)snprintf(model_path, sizeof(model_path), "/tmp/tarn-test-vocabulary-%ld.gguf",
                   (long)getpid());
    const struct engine_options options = {
        .model_path = model_path,
        .backend_dir = getenv("TARN_BACKEND_DIR"), /* NOLINT(concurrency-mt-unsafe) */
        .ctx_tokens = 64,
        .page_tokens = 64,
        .threads = 1,
        .kernel = ENGINE_KERNEL_PORTABLE,
    };
    if (!random_model_write(&model, model_path) || engine_open(&options, &engine) != TARN_OK)
        return -1;
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    engine_close(engine);
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_survives_tokens),
        cmocka_unit_test(a_character_may_be_split_over_tokens),
        cmocka_unit_test(too_many_tokens_are_counted),
        cmocka_unit_test(tokens_outside_the_vocabulary_are_refused),
        cmocka_unit_test(a_chat_is_rendered_by_the_files_template),
        cmocka_unit_test(end_tokens_are_listed),
        cmocka_unit_test(temperature_zero_takes_the_likeliest),
        cmocka_unit_test(a_seed_decides_the_text),
        cmocka_unit_test(two_likely_tokens_come_in_their_proportion),
        cmocka_unit_test(numbers_out_of_range_make_no_sampler),
        cmocka_unit_test(another_thread_tokenizes_during_a_forward),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
