/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SmolLM2-135M, Q4_1, beside libllama. Quantised weights make ggml quantise activations too, and
 * then any other order of summation moves logits: so the measure is how far libllama is from
 * itself, with flash attention and without, in the same run at the same positions of a real text.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/llama-reference.h"

enum { POSITIONS = 500, CHUNK = 125, TEXT_BYTES_MAX = 16384, PAGES = 16 };

struct distance {
    double divergence[POSITIONS]; /* Kullback-Leibler, from libllama with flash attention */
    double largest[POSITIONS];    /* difference of any logit */
    double loss;                  /* of the text, summed */
};

/* Logarithm of the sum of exponentials. */
static double log_sum(const float *logits, uint32_t count)
{
    double most = (double)logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < count; i++)
        most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* The distance of `other` from `base` at one position, of which `next` is the following token. */
static void distance_add(struct distance *distance, uint32_t position, const float *base,
                         const float *other, int32_t next)
{
    enum { VOCAB = 49152 };
    const double base_sum = log_sum(base, VOCAB);
    const double other_sum = log_sum(other, VOCAB);
    double divergence = 0;
    double largest = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        const double p = (double)base[i] - base_sum;
        divergence += exp(p) * (p - ((double)other[i] - other_sum));
        largest = fmax(largest, fabs((double)base[i] - (double)other[i]));
    }
    distance->divergence[position] = divergence;
    distance->largest[position] = largest;
    distance->loss += other_sum - (double)other[next];
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double mean(const double *numbers)
{
    double sum = 0;
    for (size_t i = 0; i < POSITIONS; i++)
        sum += numbers[i];
    return sum / POSITIONS;
}

struct trio {
    struct engine *engine;
    struct reference *flash;
    struct reference *plain;
    void *pages[PAGES];
    int32_t tokens[POSITIONS + 1];
};

static void trio_open(struct trio *trio, bool weight_copy)
{
    const char *model = getenv("TARN_MODEL");             /* NOLINT(concurrency-mt-unsafe) */
    const char *backend_dir = getenv("TARN_BACKEND_DIR"); /* NOLINT(concurrency-mt-unsafe) */
    const struct engine_options options = { .model_path = model,
                                            .backend_dir = backend_dir,
                                            .ctx_tokens = 512,
                                            .threads = 1,
                                            .weight_copy = weight_copy };
    struct reference_options theirs = { .model_path = model,
                                        .backend_dir = backend_dir,
                                        .ctx_tokens = 512,
                                        .sequences_max = 1,
                                        .batch_tokens_max = CHUNK,
                                        .threads = 1,
                                        .flash_attention = true };
    assert_non_null(model);
    assert_int_equal(engine_open(&options, &trio->engine), TARN_OK);
    assert_int_equal(engine_info_of(trio->engine)->vocab_count, 49152);
    assert_int_equal(reference_open(&theirs, &trio->flash), TARN_OK);
    theirs.flash_attention = false;
    assert_int_equal(reference_open(&theirs, &trio->plain), TARN_OK);
    for (size_t i = 0; i < PAGES; i++) {
        trio->pages[i] = mem_alloc(1, engine_info_of(trio->engine)->page_bytes);
        assert_non_null(trio->pages[i]);
    }
}

static void trio_close(struct trio *trio)
{
    for (size_t i = 0; i < PAGES; i++)
        mem_free(trio->pages[i]);
    reference_close(trio->plain);
    reference_close(trio->flash);
    engine_close(trio->engine);
}

/* The licence's first tokens. */
static void text_read(struct trio *trio)
{
    static char chars[TEXT_BYTES_MAX];
    static int32_t tokens[TEXT_BYTES_MAX];
    char path[512];
    uint32_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/LICENSE",
                   getenv("TARN_SOURCE_ROOT")); /* NOLINT(concurrency-mt-unsafe) */
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const struct engine_text text = { .chars = chars,
                                      .length_bytes = fread(chars, 1, sizeof(chars), file) };
    assert_int_equal(fclose(file), 0);
    assert_int_equal(engine_tokenize(trio->engine, &text, tokens, TEXT_BYTES_MAX, &count), TARN_OK);
    assert_true(count > POSITIONS);
    memcpy(trio->tokens, tokens, sizeof(trio->tokens));
}

static void chunk_run(struct trio *trio, uint32_t first)
{
    const struct engine_sequence ours = { .tokens = trio->tokens + first,
                                          .token_count = CHUNK,
                                          .position = first,
                                          .pages = trio->pages,
                                          .page_count = PAGES,
                                          .output_count = CHUNK };
    const struct reference_sequence theirs = { .tokens = trio->tokens + first,
                                               .token_count = CHUNK,
                                               .position = first,
                                               .output_count = CHUNK };
    assert_int_equal(engine_forward(trio->engine, &ours, 1), TARN_OK);
    assert_int_equal(reference_forward(trio->flash, &theirs, 1), TARN_OK);
    assert_int_equal(reference_forward(trio->plain, &theirs, 1), TARN_OK);
}

static void as_near_to_libllama_as_libllama_is_to_itself(void **state)
{
    (void)state;
    static struct distance ours;
    static struct distance theirs;
    static struct trio trio;
    double loss = 0;

    trio_open(&trio, false);
    text_read(&trio);
    for (uint32_t first = 0; first < POSITIONS; first += CHUNK) {
        chunk_run(&trio, first);
        for (uint32_t i = 0; i < CHUNK; i++) {
            const float *base = reference_logits(trio.flash, i);
            const int32_t next = trio.tokens[first + i + 1];
            loss += log_sum(base, 49152) - (double)base[next];
            distance_add(&ours, first + i, base, engine_logits(trio.engine, i), next);
            distance_add(&theirs, first + i, base, reference_logits(trio.plain, i), next);
        }
    }
    trio_close(&trio);

    qsort(ours.largest, POSITIONS, sizeof(double), compare);
    qsort(theirs.largest, POSITIONS, sizeof(double), compare);
    const size_t p99 = POSITIONS * 99 / 100;
    const double perplexity = exp(loss / POSITIONS);
    const double our_perplexity = exp(ours.loss / POSITIONS);
    print_message("# mean divergence %.3g, libllama's own %.3g\n", mean(ours.divergence),
                  mean(theirs.divergence));
    print_message("# largest logit difference: 99th percentile %.3g, libllama's own %.3g; "
                  "maximum %.3g, %.3g\n",
                  ours.largest[p99], theirs.largest[p99], ours.largest[POSITIONS - 1],
                  theirs.largest[POSITIONS - 1]);
    print_message("# perplexity %.4f, libllama's %.4f\n", our_perplexity, perplexity);
    assert_true(mean(theirs.divergence) > 0);
    assert_true(mean(ours.divergence) <= 1.5 * mean(theirs.divergence));
    assert_true(ours.largest[p99] <= 1.5 * theirs.largest[p99]);
    assert_true(fabs(our_perplexity / perplexity - 1) <= 0.005);
}

/* The sum of losses of the text's first positions, two chunks. */
static double engine_loss(struct trio *trio)
{
    double loss = 0;
    for (uint32_t first = 0; first < 2 * CHUNK; first += CHUNK) {
        const struct engine_sequence ours = { .tokens = trio->tokens + first,
                                              .token_count = CHUNK,
                                              .position = first,
                                              .pages = trio->pages,
                                              .page_count = PAGES,
                                              .output_count = CHUNK };
        assert_int_equal(engine_forward(trio->engine, &ours, 1), TARN_OK);
        for (uint32_t i = 0; i < CHUNK; i++) {
            const float *logits = engine_logits(trio->engine, i);
            loss += log_sum(logits, 49152) - (double)logits[trio->tokens[first + i + 1]];
        }
    }
    return loss;
}

static void copies_of_the_weights_predict_the_text_as_well(void **state)
{
    (void)state;
    static struct trio trio;
    double loss[2];

    for (int copied = 0; copied < 2; copied++) {
        trio_open(&trio, copied == 1);
        text_read(&trio);
        const struct engine_info *info = engine_info_of(trio.engine);
        assert_true(copied == 1 ? info->copy_bytes > info->weights_bytes : info->copy_bytes == 0);
        assert_true((engine_kv_format(trio.engine).other != NULL) == (copied == 1));
        loss[copied] = engine_loss(&trio);
        trio_close(&trio);
    }
    print_message("# perplexity with copies %.4f, without %.4f\n", exp(loss[1] / (2 * CHUNK)),
                  exp(loss[0] / (2 * CHUNK)));
    assert_true(fabs(exp((loss[1] - loss[0]) / (2 * CHUNK)) - 1) <= 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_the_weights_predict_the_text_as_well),
        cmocka_unit_test(as_near_to_libllama_as_libllama_is_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
