/* SPDX-License-Identifier: Apache-2.0 */
/* The engine beside libllama, on small models with random f32 weights. */
#include "engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/llama-reference.h"
#include "lib/random-model.h"

enum { CTX_TOKENS = 2304, BATCH_TOKENS = 256, SEQUENCES = 8, TOKENS = 2000, PAGES_MAX = 96 };
enum { OUTPUTS = 16 }; /* positions compared at the end of a run */

/* A sanitizer reads portable code best, and makes it slow: then fewer tokens. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KERNEL = ENGINE_KERNEL_PORTABLE, LENGTHS = 4, STEPS = 20 };
#else
enum { KERNEL = ENGINE_KERNEL_AUTO, LENGTHS = 6, STEPS = 200 };
#endif

static char model_path[64];

/* A pool of pages of which a sequence takes the first free ones. */
struct pages {
    size_t page_bytes;
    void *pages[PAGES_MAX];
    uint32_t count;
};

static void pages_init(struct pages *pages, const struct engine *engine, uint32_t tokens)
{
    const struct engine_info *info = engine_info_of(engine);
    *pages = (struct pages){ .page_bytes = info->page_bytes };
    pages->count = (tokens + info->page_tokens - 1) / info->page_tokens;
    assert_true(pages->count <= PAGES_MAX);
    for (uint32_t i = 0; i < pages->count; i++) {
        pages->pages[i] = mem_alloc(1, info->page_bytes);
        assert_non_null(pages->pages[i]);
    }
}

static void pages_deinit(struct pages *pages)
{
    for (uint32_t i = 0; i < pages->count; i++)
        mem_free(pages->pages[i]);
}

static struct engine *engine_start(const struct engine_options *like)
{
    struct engine_options options = *like;
    struct engine *engine = NULL;
    options.model_path = model_path;
    options.backend_dir = getenv("TARN_BACKEND_DIR"); /* NOLINT(concurrency-mt-unsafe) */
    options.kernel = (enum engine_kernel)KERNEL;
    options.ctx_tokens = CTX_TOKENS;
    options.batch_tokens_max = options.batch_tokens_max ? options.batch_tokens_max : BATCH_TOKENS;
    options.sequences_max = SEQUENCES;
    options.threads = options.threads ? options.threads : 1;
    assert_int_equal(engine_open(&options, &engine), TARN_OK);
    return engine;
}

static struct reference *reference_start(enum engine_kv_type kv_type, bool flash_attention)
{
    const struct reference_options options = {
        .model_path = model_path,
        .backend_dir = getenv("TARN_BACKEND_DIR"), /* NOLINT(concurrency-mt-unsafe) */
        .ctx_tokens = CTX_TOKENS,
        .sequences_max = 1,
        .batch_tokens_max = BATCH_TOKENS,
        .threads = 1,
        .kv_type = kv_type,
        .flash_attention = flash_attention,
    };
    struct reference *reference = NULL;
    assert_int_equal(reference_open(&options, &reference), TARN_OK);
    return reference;
}

static void tokens_fill(int32_t *tokens, uint32_t count, uint32_t seed, uint32_t vocab_count)
{
    uint64_t state = seed;
    for (uint32_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        tokens[i] = (int32_t)((state >> 33) % vocab_count);
    }
}

/* The part [first, first + count) of a run of `total` tokens, with logits for its last OUTPUTS. */
static uint32_t outputs_in(uint32_t first, uint32_t count, uint32_t total)
{
    const uint32_t from = total > OUTPUTS ? total - OUTPUTS : 0;
    const uint32_t end = first + count;
    if (end <= from)
        return 0;
    return end - (first > from ? first : from);
}

/* Compute `total` tokens from position `start` in chunks; the last outputs' logits into `logits`.
 */
static void engine_run(struct engine *engine, const struct pages *pages, const int32_t *tokens,
                       uint32_t start, uint32_t total, float *logits)
{
    const struct engine_info *info = engine_info_of(engine);
    const uint32_t chunk_max = info->batch_tokens_max;
    size_t written = 0;

    for (uint32_t first = start; first < total;) {
        const uint32_t count = total - first < chunk_max ? total - first : chunk_max;
        const struct engine_sequence sequence = { .tokens = tokens + first,
                                                  .token_count = count,
                                                  .position = first,
                                                  .pages = pages->pages,
                                                  .page_count = pages->count,
                                                  .output_count = outputs_in(first, count, total) };
        assert_int_equal(engine_forward(engine, &sequence, 1), TARN_OK);
        if (sequence.output_count > 0)
            memcpy(logits + written, engine_logits(engine, 0),
                   (size_t)sequence.output_count * info->vocab_count * sizeof(float));
        written += (size_t)sequence.output_count * info->vocab_count;
        first += count;
    }
}

static void reference_run(struct reference *reference, const int32_t *tokens, uint32_t total,
                          uint32_t vocab_count, float *logits)
{
    size_t written = 0;
    for (uint32_t first = 0; first < total;) {
        const uint32_t count = total - first < BATCH_TOKENS ? total - first : BATCH_TOKENS;
        const struct reference_sequence sequence = { .tokens = tokens + first,
                                                     .token_count = count,
                                                     .position = first,
                                                     .output_count =
                                                         outputs_in(first, count, total) };
        assert_int_equal(reference_forward(reference, &sequence, 1), TARN_OK);
        if (sequence.output_count > 0)
            memcpy(logits + written, reference_logits(reference, 0),
                   (size_t)sequence.output_count * vocab_count * sizeof(float));
        written += (size_t)sequence.output_count * vocab_count;
        first += count;
    }
}

/* Largest difference over largest number. */
static double difference(const float *a, const float *b, size_t count)
{
    double most = 0;
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return most / largest;
}

/* With f32 pages the reference is libllama without flash attention, which then computes in f32 all
 * over; with it, libllama sums V in f16 where there are few tokens, and is as far from itself. With
 * f16 pages both ways round to f16 on the way, and the distance between them is the measure. */
static void check_against_libllama(const struct random_model *model, enum engine_kv_type kv_type)
{
    static const uint32_t lengths[] = { 1, 31, 32, 33, 500, 2000 };
    const size_t logits_max = (size_t)OUTPUTS * model->vocab_count;
    float *ours = mem_alloc(3 * logits_max, sizeof(float));
    int32_t tokens[TOKENS];
    struct pages pages;

    assert_non_null(ours);
    float *plain = ours + logits_max;
    float *flash = plain + logits_max;
    assert_true(random_model_write(model, model_path));
    tokens_fill(tokens, TOKENS, 11, model->vocab_count);
    struct engine *engine = engine_start(&(struct engine_options){ .kv_type = kv_type });
    struct reference *without = reference_start(kv_type, false);
    struct reference *with = reference_start(kv_type, true);
    pages_init(&pages, engine, TOKENS);
    for (size_t i = 0; i < LENGTHS; i++) {
        const uint32_t total = lengths[i];
        const size_t count = (size_t)(total < OUTPUTS ? total : OUTPUTS) * model->vocab_count;
        engine_run(engine, &pages, tokens, 0, total, ours);
        reference_run(without, tokens, total, model->vocab_count, plain);
        reference_run(with, tokens, total, model->vocab_count, flash);
        const double spread = difference(flash, plain, count);
        const double off_by = difference(ours, plain, count);
        const double allowed = kv_type == ENGINE_KV_F16 ? fmax(1e-3, 1.5 * spread) : 1e-3;
        print_message(
            "# %4u tokens, KV %s: off by %.2e (from flash attention %.2e); libllama's own "
            "spread %.2e\n",
            total, kv_type == ENGINE_KV_F16 ? "f16" : "f32", off_by, difference(ours, flash, count),
            spread);
        assert_true(off_by <= allowed);
    }
    pages_deinit(&pages);
    reference_close(without);
    reference_close(with);
    engine_close(engine);
    mem_free(ours);
}

static struct random_model model_tiny(void)
{
    return random_model_tiny();
}

static struct random_model model_odd(void) /* output of its own or not, one K/V head, odd sizes */
{
    struct random_model model = random_model_tiny();
    model.layer_count = 3;
    model.head_count = 5;
    model.kv_head_count = 1;
    model.head_dim = 24;
    model.feed_forward_dim = 200;
    model.tied = !model.tied;
    model.rope_theta = 100000.0F;
    model.seed = 5;
    return model;
}

static void logits_agree_with_libllama_for_f32_pages(void **state)
{
    (void)state;
    const struct random_model tiny = model_tiny();
    const struct random_model odd = model_odd();
    check_against_libllama(&tiny, ENGINE_KV_F32);
    check_against_libllama(&odd, ENGINE_KV_F32);
}

static void logits_agree_with_libllama_for_f16_pages(void **state)
{
    (void)state;
    const struct random_model tiny = model_tiny();
    const struct random_model odd = model_odd();
    check_against_libllama(&tiny, ENGINE_KV_F16);
    check_against_libllama(&odd, ENGINE_KV_F16);
}

/* ---- replay ---- */

/* Prefill in chunks that end where the replayed prefix ends, keep its pages' bytes, and run the
 * rest over copies of them in another engine. */
static void check_replay(const struct engine_options *cold_like,
                         const struct engine_options *warm_like)
{
    enum { TOTAL = 300, PREFIX = 256 };
    struct engine *cold = engine_start(cold_like);
    const size_t count = (size_t)OUTPUTS * engine_info_of(cold)->vocab_count;
    float *logits = mem_alloc(2 * count, sizeof(float));
    int32_t tokens[TOTAL];
    struct pages pages;
    struct pages copies;

    assert_non_null(logits);
    tokens_fill(tokens, TOTAL, 3, engine_info_of(cold)->vocab_count);
    pages_init(&pages, cold, TOTAL);
    engine_run(cold, &pages, tokens, 0, PREFIX, logits);
    engine_run(cold, &pages, tokens, PREFIX, TOTAL, logits);

    struct engine *warm = engine_start(warm_like);
    pages_init(&copies, warm, TOTAL);
    assert_int_equal(copies.page_bytes, pages.page_bytes);
    for (uint32_t i = 0; i < copies.count; i++)
        memset(copies.pages[i], 0x3c, copies.page_bytes);
    for (uint32_t i = 0; i < PREFIX / engine_info_of(cold)->page_tokens; i++)
        memcpy(copies.pages[i], pages.pages[i], pages.page_bytes);
    engine_run(warm, &copies, tokens, PREFIX, TOTAL, logits + count);
    assert_memory_equal(logits, logits + count, count * sizeof(float));

    pages_deinit(&pages);
    pages_deinit(&copies);
    engine_close(cold);
    engine_close(warm);
    mem_free(logits);
}

static void replayed_pages_give_the_same_bits(void **state)
{
    (void)state;
    const struct random_model model = model_tiny();
    assert_true(random_model_write(&model, model_path));
    check_replay(&(struct engine_options){ 0 }, &(struct engine_options){ 0 });
    check_replay(&(struct engine_options){ .kv_type = ENGINE_KV_F32 },
                 &(struct engine_options){ .kv_type = ENGINE_KV_F32 });
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    const struct random_model model = model_odd();
    assert_true(random_model_write(&model, model_path));
    check_replay(&(struct engine_options){ .threads = 1 },
                 &(struct engine_options){ .threads = 2 });
    check_replay(&(struct engine_options){ .threads = 3 },
                 &(struct engine_options){ .poll = true });
}

/* ---- batches ---- */

struct talk {
    int32_t tokens[512];
    uint32_t prompt_count;
    uint32_t count;
    struct pages pages;
};

static int32_t likeliest(const float *logits, uint32_t count, float *out_margin)
{
    uint32_t best = 0;
    float second = -INFINITY;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *out_margin = logits[best] - second;
    return (int32_t)best;
}

static float largest(const float *logits, uint32_t count)
{
    float most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(logits[i]));
    return most;
}

/* Greedy text of all talks in one batch a step; how near the two best logits were, by step, into
 * `margins`, relative to the largest. */
static void talks_run(struct engine *engine, struct talk *talks, uint32_t talk_count,
                      uint32_t steps, float *margins)
{
    const uint32_t vocab_count = engine_info_of(engine)->vocab_count;
    uint32_t done[SEQUENCES] = { 0 };

    for (uint32_t step = 0; step < steps; step++) {
        struct engine_sequence batch[SEQUENCES];
        for (uint32_t i = 0; i < talk_count; i++) {
            batch[i] = (struct engine_sequence){ .tokens = talks[i].tokens + done[i],
                                                 .token_count = talks[i].count - done[i],
                                                 .position = done[i],
                                                 .pages = talks[i].pages.pages,
                                                 .page_count = talks[i].pages.count,
                                                 .output_count = 1 };
            done[i] = talks[i].count;
        }
        assert_int_equal(engine_forward(engine, batch, talk_count), TARN_OK);
        for (uint32_t i = 0; i < talk_count; i++) {
            const float *logits = engine_logits(engine, i);
            float margin = 0;
            talks[i].tokens[talks[i].count++] = likeliest(logits, vocab_count, &margin);
            if (margins)
                margins[i * steps + step] = margin / largest(logits, vocab_count);
        }
    }
}

static void talks_init(struct engine *engine, struct talk *talks)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        talks[i].prompt_count = 1 + 8 * i; /* 1 to 57 */
        talks[i].count = talks[i].prompt_count;
        tokens_fill(talks[i].tokens, talks[i].count, 100 + i, engine_info_of(engine)->vocab_count);
        pages_init(&talks[i].pages, engine, 320);
    }
}

static void talks_deinit(struct talk *talks)
{
    for (uint32_t i = 0; i < SEQUENCES; i++)
        pages_deinit(&talks[i].pages);
}

/* Matrix products of other shapes sum in another order, so the text may part where two logits are
 * nearly the same; such places are counted. */
static void neighbours_in_a_batch_do_not_change_the_text(void **state)
{
    (void)state;
    static struct talk together[SEQUENCES];
    static struct talk alone[SEQUENCES];
    static float margins[SEQUENCES * STEPS];
    uint32_t parted = 0;
    uint32_t compared = 0;
    const struct random_model model = model_tiny();

    assert_true(random_model_write(&model, model_path));
    struct engine *engine = engine_start(&(struct engine_options){ 0 });
    talks_init(engine, together);
    talks_init(engine, alone);
    talks_run(engine, together, SEQUENCES, STEPS, margins);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        talks_run(engine, &alone[i], 1, STEPS, NULL);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        for (uint32_t step = 0; step < STEPS; step++) {
            const uint32_t at = together[i].prompt_count + step;
            compared++;
            if (together[i].tokens[at] == alone[i].tokens[at])
                continue;
            assert_true(margins[i * STEPS + step] < 1e-3F);
            parted++;
            break; /* from here on they are two texts */
        }
    }
    print_message("# %u tokens compared, %u texts parted at a near tie\n", compared, parted);
    assert_true(compared >= SEQUENCES * STEPS / 2);
    assert_true(parted * 50 <= compared);
    talks_deinit(together);
    talks_deinit(alone);
    engine_close(engine);
}

/* The same shape of batch, so the same order of sums: now not one bit may differ. */
static void other_neighbours_do_not_change_a_bit(void **state)
{
    (void)state;
    static struct talk talks[SEQUENCES];
    const struct random_model model = model_tiny();

    assert_true(random_model_write(&model, model_path));
    struct engine *engine = engine_start(&(struct engine_options){ .threads = 2 });
    const size_t bytes = engine_info_of(engine)->vocab_count * sizeof(float);
    float *first = mem_alloc(1, bytes);
    assert_non_null(first);
    for (uint32_t round = 0; round < 2; round++) {
        struct engine_sequence batch[3];
        talks_init(engine, talks);
        for (uint32_t i = 0; i < 3; i++) {
            struct talk *talk = &talks[round == 0 ? 2 + 2 * i : 6 - 2 * i]; /* 4 is in the middle */
            talk->count = i == 1 ? 37 : 20;
            batch[i] = (struct engine_sequence){ .tokens = talk->tokens,
                                                 .token_count = talk->count,
                                                 .pages = talk->pages.pages,
                                                 .page_count = talk->pages.count,
                                                 .output_count = 1 };
        }
        assert_int_equal(engine_forward(engine, batch, 3), TARN_OK);
        if (round == 0)
            memcpy(first, engine_logits(engine, 1), bytes);
        else
            assert_memory_equal(engine_logits(engine, 1), first, bytes);
        talks_deinit(talks);
    }
    mem_free(first);
    engine_close(engine);
}

static bool stop_at_zero(void *context)
{
    uint32_t *left = context;
    return *left == 0 || --*left == 0;
}

/* Wherever a forward is ended early, the same one computes the same bits afterwards. */
static void a_forward_can_be_ended_early_and_done_again(void **state)
{
    (void)state;
    enum { STOPPED_TOKENS = 40 };
    const struct random_model model = model_tiny();
    int32_t tokens[STOPPED_TOKENS];
    struct pages pages;

    assert_true(random_model_write(&model, model_path));
    struct engine *engine = engine_start(&(struct engine_options){ .threads = 2 });
    const struct engine_info *info = engine_info_of(engine);
    const size_t bytes = info->vocab_count * sizeof(float);
    float *expected = mem_alloc(1, bytes);
    assert_non_null(expected);
    pages_init(&pages, engine, STOPPED_TOKENS);
    tokens_fill(tokens, STOPPED_TOKENS, 7, info->vocab_count);
    const struct engine_sequence all = { .tokens = tokens,
                                         .token_count = STOPPED_TOKENS,
                                         .pages = pages.pages,
                                         .page_count = pages.count,
                                         .output_count = 1 };
    assert_int_equal(engine_forward(engine, &all, 1), TARN_OK);
    memcpy(expected, engine_logits(engine, 0), bytes);
    for (uint32_t stop = 1; stop < 12; stop++) {
        uint32_t left = stop;
        engine_set_stop(engine, stop_at_zero, &left);
        assert_int_equal(engine_forward(engine, &all, 1), TARN_AGAIN);
        engine_set_stop(engine, NULL, NULL);
        assert_int_equal(engine_forward(engine, &all, 1), TARN_OK);
        assert_memory_equal(engine_logits(engine, 0), expected, bytes);
    }
    pages_deinit(&pages);
    mem_free(expected);
    engine_close(engine);
}

static void a_batch_that_cannot_be_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    const struct random_model model = model_tiny();
    assert_true(random_model_write(&model, model_path));
    struct engine *engine = engine_start(&(struct engine_options){ 0 });
    const struct engine_info *info = engine_info_of(engine);
    static int32_t tokens[CTX_TOKENS + 1];
    struct pages pages;
    pages_init(&pages, engine, 64);
    const struct engine_sequence good = { .tokens = tokens,
                                          .token_count = 8,
                                          .pages = pages.pages,
                                          .page_count = pages.count,
                                          .output_count = 1 };
    struct engine_sequence bad[8];
    for (size_t i = 0; i < LENGTH_OF(bad); i++)
        bad[i] = good;
    const int32_t outside[] = { 0, (int32_t)info->vocab_count };
    const int32_t negative[] = { -1 };
    bad[0].token_count = 0;
    bad[1].output_count = 9;
    bad[2].position = 57; /* past the pages */
    bad[3].position = CTX_TOKENS;
    bad[4].position = UINT32_MAX;
    bad[5] = (struct engine_sequence){
        .tokens = outside, .token_count = 2, .pages = pages.pages, .page_count = pages.count
    };
    bad[6] = (struct engine_sequence){
        .tokens = negative, .token_count = 1, .pages = pages.pages, .page_count = pages.count
    };
    bad[7].token_count = BATCH_TOKENS + 1;
    bad[7].page_count = 9;
    for (size_t i = 0; i < LENGTH_OF(bad); i++)
        assert_int_equal(engine_forward(engine, &bad[i], 1), TARN_INVALID);
    assert_int_equal(engine_forward(engine, &good, 0), TARN_INVALID);
    assert_int_equal(engine_forward(engine, &good, SEQUENCES + 1), TARN_INVALID);
    for (size_t i = 0; i < info->page_bytes; i++)
        assert_int_equal(((const char *)pages.pages[0])[i], 0);
    assert_int_equal(engine_forward(engine, &good, 1), TARN_OK);
    pages_deinit(&pages);
    engine_close(engine);
}

/* More shapes than graphs are kept, each again after the others, and one that makes the buffer
 * grow. */
static void graphs_come_and_go_without_a_trace(void **state)
{
    (void)state;
    enum { SHAPES = 60 };
    static float first[SHAPES];
    const struct random_model model = model_tiny();
    assert_true(random_model_write(&model, model_path));
    struct engine *engine = engine_start(&(struct engine_options){ 0 });
    int32_t tokens[BATCH_TOKENS];
    struct pages pages;
    pages_init(&pages, engine, BATCH_TOKENS);
    tokens_fill(tokens, BATCH_TOKENS, 9, engine_info_of(engine)->vocab_count);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < SHAPES; i++) {
            const struct engine_sequence sequence = {
                .tokens = tokens,
                .token_count = i == SHAPES / 2 ? BATCH_TOKENS : i + 1,
                .pages = pages.pages,
                .page_count = pages.count,
                .output_count = i == SHAPES / 2 ? BATCH_TOKENS : 1,
            };
            assert_int_equal(engine_forward(engine, &sequence, 1), TARN_OK);
            const float number = engine_logits(engine, sequence.output_count - 1)[7];
            if (round == 0)
                first[i] = number;
            else
                assert_memory_equal(&number, &first[i], sizeof(number));
        }
    }
    pages_deinit(&pages);
    engine_close(engine);
}

static int group_setup(void **state)
{
    (void)state;
    (void)snprintf(model_path, sizeof(model_path), "/tmp/tarn-test-engine-%ld.gguf",
                   (long)getpid());
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_libllama_for_f32_pages),
        cmocka_unit_test(logits_agree_with_libllama_for_f16_pages),
        cmocka_unit_test(replayed_pages_give_the_same_bits),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(neighbours_in_a_batch_do_not_change_the_text),
        cmocka_unit_test(other_neighbours_do_not_change_a_bit),
        cmocka_unit_test(a_forward_can_be_ended_early_and_done_again),
        cmocka_unit_test(a_batch_that_cannot_be_is_refused_and_changes_nothing),
        cmocka_unit_test(graphs_come_and_go_without_a_trace),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
