/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/attend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/half.h"

enum { LAYERS = 2, LAYER = 1, PAGES_MAX = 64 };

/* One sequence in pages, its queries, and room for results. */
struct scene {
    struct attend_shape shape;
    uint32_t position; /* of the first query token */
    uint32_t tokens;   /* query tokens */
    void *pages[PAGES_MAX];
    float *query;
    float *out;
    float *exact;
    float *partials;
    float *scratch_raw;
    float *scratch;
};

static uint64_t random_state;

static float random_number(void) /* in [-1, 1) */
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(random_state >> 32) / 2147483648.0F;
}

static size_t heads_of(const struct attend_shape *shape)
{
    return (size_t)shape->group * shape->kv_head_count;
}

/* Bytes of K, or of V, of one layer in a page. */
static size_t half_layer_bytes(const struct attend_shape *shape)
{
    return (size_t)shape->page_tokens * shape->kv_head_count * shape->head_dim *
           attend_element_bytes(shape->kv_type);
}

static char *element_at(const struct scene *scene, uint32_t position, size_t kv, bool value)
{
    const struct attend_shape *shape = &scene->shape;
    const size_t row = (size_t)(position % shape->page_tokens) * shape->kv_head_count + kv;
    return (char *)scene->pages[position / shape->page_tokens] +
           (value ? 2 * LAYER + 1 : 2 * LAYER) * half_layer_bytes(shape) +
           row * shape->head_dim * attend_element_bytes(shape->kv_type);
}

static double element(const struct scene *scene, const char *row, size_t k)
{
    if (scene->shape.kv_type == ENGINE_KV_F32) {
        float number;
        memcpy(&number, row + k * sizeof(number), sizeof(number));
        return (double)number;
    }
    uint16_t half;
    memcpy(&half, row + k * sizeof(half), sizeof(half));
    return (double)half_to_float(half);
}

/* Pages of large numbers, then K and V of every position written over them. */
static void pages_fill(struct scene *scene)
{
    const struct attend_shape *shape = &scene->shape;
    const uint32_t end = scene->position + scene->tokens;
    const size_t page_bytes = (size_t)2 * LAYERS * half_layer_bytes(shape);
    float row[ATTEND_DIM_MAX];

    for (uint32_t i = 0; i * shape->page_tokens < end; i++) {
        scene->pages[i] = mem_alloc(page_bytes, 1);
        assert_non_null(scene->pages[i]);
        memset(scene->pages[i], 0x5a, page_bytes); /* 203 in f16, 1.5e16 in f32 */
    }
    for (uint32_t position = 0; position < end; position++) {
        for (size_t kv = 0; kv < 2 * (size_t)shape->kv_head_count; kv++) {
            for (size_t k = 0; k < shape->head_dim; k++)
                row[k] = 2 * random_number();
            attend_portable.store(shape->kv_type, element_at(scene, position, kv / 2, kv % 2), row,
                                  shape->head_dim);
        }
    }
}

static void scene_exact(struct scene *scene)
{
    const struct attend_shape *shape = &scene->shape;
    const size_t dim = shape->head_dim;
    const size_t heads = heads_of(shape);

    for (size_t row = 0; row < scene->tokens * heads; row++) {
        const uint32_t last = scene->position + (uint32_t)(row / heads);
        const size_t kv = row % heads / shape->group;
        double sum = 0;
        double values[ATTEND_DIM_MAX] = { 0 };
        for (uint32_t position = 0; position <= last; position++) {
            const char *key = element_at(scene, position, kv, false);
            const char *value = element_at(scene, position, kv, true);
            double score = 0;
            for (size_t k = 0; k < dim; k++)
                score += (double)scene->query[row * dim + k] * element(scene, key, k);
            const double weight = exp(score * (double)shape->scale);
            sum += weight;
            for (size_t k = 0; k < dim; k++)
                values[k] += weight * element(scene, value, k);
        }
        for (size_t k = 0; k < dim; k++)
            scene->exact[row * dim + k] = (float)(values[k] / sum);
    }
}

static void scene_init(struct scene *scene, const struct attend_shape *shape, uint32_t position,
                       uint32_t tokens)
{
    *scene = (struct scene){ .shape = *shape, .position = position, .tokens = tokens };
    const size_t numbers = tokens * heads_of(shape) * shape->head_dim;
    scene->query = mem_alloc(numbers, sizeof(float));
    scene->out = mem_alloc(numbers, sizeof(float));
    scene->exact = mem_alloc(numbers, sizeof(float));
    scene->partials = mem_alloc(attend_partial_count(shape) * PAGES_MAX, sizeof(float));
    scene->scratch_raw = mem_alloc(attend_scratch_count(shape) + 16, sizeof(float));
    assert_true(scene->query && scene->out && scene->exact && scene->partials &&
                scene->scratch_raw);
    scene->scratch = scene->scratch_raw;
    while ((uintptr_t)scene->scratch % 64 != 0)
        scene->scratch++;
    random_state = 42;
    for (size_t i = 0; i < numbers; i++)
        scene->query[i] = 2 * random_number();
    pages_fill(scene);
    scene_exact(scene);
}

static void scene_deinit(struct scene *scene)
{
    for (size_t i = 0; i < PAGES_MAX; i++)
        mem_free(scene->pages[i]);
    mem_free(scene->query);
    mem_free(scene->out);
    mem_free(scene->exact);
    mem_free(scene->partials);
    mem_free(scene->scratch_raw);
}

static struct attend_source source_of(const struct scene *scene, size_t kv)
{
    const struct attend_shape *shape = &scene->shape;
    const size_t inside = kv * shape->head_dim * attend_element_bytes(shape->kv_type);
    return (struct attend_source){
        .pages = scene->pages,
        .key_offset_bytes = (size_t)2 * LAYER * half_layer_bytes(shape) + inside,
        .value_offset_bytes = (2 * LAYER + 1) * half_layer_bytes(shape) + inside,
    };
}

/* All rows, in tiles of `rows`. */
static void scene_tiles(struct scene *scene, const struct attend_kernel *kernel, uint32_t rows)
{
    const struct attend_shape *shape = &scene->shape;
    const uint32_t row_count = scene->tokens * shape->group;

    for (uint32_t kv = 0; kv < shape->kv_head_count; kv++) {
        const size_t offset = (size_t)kv * shape->group * shape->head_dim;
        for (uint32_t row = 0; row < row_count; row += rows) {
            const struct attend_tile tile = {
                .source = source_of(scene, kv),
                .query = scene->query + offset,
                .out = scene->out + offset,
                .row_first = row,
                .row_count = row_count - row < rows ? row_count - row : rows,
                .position = scene->position,
            };
            kernel->tile(shape, &tile, scene->scratch);
        }
    }
}

/* Each token as ranges of `pages` pages, merged. */
static void scene_ranges(struct scene *scene, const struct attend_kernel *kernel, uint32_t pages)
{
    const struct attend_shape *shape = &scene->shape;
    const size_t row = heads_of(shape) * shape->head_dim;
    const uint32_t step = pages * shape->page_tokens;

    for (uint32_t token = 0; token < scene->tokens; token++) {
        const uint32_t last = scene->position + token;
        uint32_t count = 0;
        for (uint32_t first = 0; first <= last; first += step) {
            const struct attend_range range = {
                .source = source_of(scene, 0),
                .query = scene->query + token * row,
                .partial = scene->partials + count++ * attend_partial_count(shape),
                .first = first,
                .last = last - first < step ? last : first + step - 1,
            };
            kernel->range(shape, &range, scene->scratch);
        }
        kernel->merge(shape, scene->partials, count, scene->out + token * row);
    }
}

static void scene_check(const struct scene *scene, const char *what)
{
    const size_t numbers = scene->tokens * heads_of(&scene->shape) * scene->shape.head_dim;
    float worst = 0;
    for (size_t i = 0; i < numbers; i++) {
        assert_true(isfinite(scene->out[i]));
        worst = fmaxf(worst, fabsf(scene->out[i] - scene->exact[i]));
    }
    if (worst > 2e-5F) {
        print_error("%s: off by %g (dim %u, group %u, page %u)\n", what, (double)worst,
                    scene->shape.head_dim, scene->shape.group, scene->shape.page_tokens);
        fail();
    }
}

static size_t kernels_here(const struct attend_kernel *kernels[3])
{
    size_t count = 0;
    for (int kind = ENGINE_KERNEL_PORTABLE; kind <= ENGINE_KERNEL_AVX512; kind++) {
        if (attend_kernel_find((enum engine_kernel)kind, &kernels[count]) == TARN_OK)
            count++;
    }
    assert_true(count >= 1);
    return count;
}

static void scenes_check(const struct attend_shape *shape, uint32_t position, uint32_t tokens)
{
    const struct attend_kernel *kernels[3];
    const size_t count = kernels_here(kernels);
    struct scene scene;

    scene_init(&scene, shape, position, tokens);
    for (size_t i = 0; i < count; i++) {
        scene_tiles(&scene, kernels[i], ATTEND_ROWS_MAX);
        scene_check(&scene, kernels[i]->name);
        scene_tiles(&scene, kernels[i], 5);
        scene_check(&scene, kernels[i]->name);
        scene_ranges(&scene, kernels[i], 2);
        scene_check(&scene, kernels[i]->name);
    }
    scene_deinit(&scene);
}

static void every_kernel_agrees_with_exact_attention(void **state)
{
    (void)state;
    static const struct attend_shape shapes[] = {
        { .head_dim = 64, .group = 3, .kv_head_count = 3, .page_tokens = 32 },
        { .head_dim = 128, .group = 4, .kv_head_count = 2, .page_tokens = 16 },
        { .head_dim = 80, .group = 1, .kv_head_count = 2, .page_tokens = 64 },
        { .head_dim = 34, .group = 7, .kv_head_count = 1, .page_tokens = 5 },
        { .head_dim = 2, .group = 2, .kv_head_count = 3, .page_tokens = 1 },
        { .head_dim = 6, .group = 17, .kv_head_count = 1, .page_tokens = 33 },
    };
    static const uint32_t positions[] = { 0, 1, 31, 40 };

    for (size_t i = 0; i < LENGTH_OF(shapes); i++) {
        for (size_t k = 0; k < LENGTH_OF(positions); k++) {
            struct attend_shape shape = shapes[i];
            shape.scale = 1.0F / sqrtf((float)shape.head_dim);
            const uint32_t position = shape.page_tokens == 1 ? positions[k] / 2 : positions[k];
            scenes_check(&shape, position, k == 1 ? 1 : 13);
            shape.kv_type = ENGINE_KV_F32;
            scenes_check(&shape, position, k == 2 ? 1 : 13);
        }
    }
}

static const struct attend_shape small = {
    .head_dim = 64, .group = 3, .kv_head_count = 2, .page_tokens = 32, .scale = 0.125F
};

/* What a row computes must not depend on its tile, or replaying with other neighbours would differ.
 */
static void a_row_computes_the_same_bits_in_every_tile(void **state)
{
    (void)state;
    const struct attend_kernel *kernels[3];
    const size_t count = kernels_here(kernels);
    struct scene scene;

    scene_init(&scene, &small, 70, 40);
    const size_t bytes = 40 * heads_of(&small) * small.head_dim * sizeof(float);
    float *first = mem_alloc(bytes, 1);
    assert_non_null(first);
    for (size_t i = 0; i < count; i++) {
        scene_tiles(&scene, kernels[i], ATTEND_ROWS_MAX);
        memcpy(first, scene.out, bytes);
        for (uint32_t rows = 1; rows < ATTEND_ROWS_MAX; rows += 7) {
            scene_tiles(&scene, kernels[i], rows);
            assert_memory_equal(scene.out, first, bytes);
        }
    }
    mem_free(first);
    scene_deinit(&scene);
}

/* Other finite bytes behind the last position, and a value huge but masked, change not one bit. */
static void what_a_query_must_not_see_has_weight_zero(void **state)
{
    (void)state;
    const struct attend_kernel *kernels[3];
    const size_t count = kernels_here(kernels);
    struct scene scene;
    float huge[64];

    const size_t token = heads_of(&small) * small.head_dim;
    float *first = mem_alloc(4 * token, sizeof(float));
    assert_non_null(first);
    for (size_t i = 0; i < LENGTH_OF(huge); i++)
        huge[i] = 60000.0F;
    for (size_t i = 0; i < count; i++) {
        scene_init(&scene, &small, 70, 4);
        scene_tiles(&scene, kernels[i], ATTEND_ROWS_MAX);
        memcpy(first, scene.out, 4 * token * sizeof(float));
        for (uint32_t position = 73; position < 96; position++) {
            kernels[i]->store(small.kv_type, element_at(&scene, position, 0, true), huge, 64);
            kernels[i]->store(small.kv_type, element_at(&scene, position, 0, false), huge, 64);
        }
        scene_tiles(&scene, kernels[i], ATTEND_ROWS_MAX);
        assert_memory_equal(scene.out, first, 3 * token * sizeof(float)); /* 70, 71 and 72 */
        scene.tokens = 3;
        scene_ranges(&scene, kernels[i], 4);
        scene_check(&scene, kernels[i]->name);
        scene_deinit(&scene);
    }
    mem_free(first);
}

/* One score far above all others: its weight is one, the rest exactly nothing. */
static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    const struct attend_kernel *kernels[3];
    const size_t count = kernels_here(kernels);
    struct scene scene;
    float loud[64];

    scene_init(&scene, &small, 70, 1);
    for (size_t k = 0; k < LENGTH_OF(loud); k++)
        loud[k] = scene.query[k] * 1000;
    attend_portable.store(small.kv_type, element_at(&scene, 33, 0, false), loud, 64);
    for (size_t i = 0; i < count; i++) {
        scene_tiles(&scene, kernels[i], ATTEND_ROWS_MAX);
        for (size_t k = 0; k < 64; k++)
            assert_float_equal(scene.out[k], element(&scene, element_at(&scene, 33, 0, true), k),
                               1e-6);
        scene_ranges(&scene, kernels[i], 1);
        for (size_t k = 0; k < 64; k++)
            assert_float_equal(scene.out[k], element(&scene, element_at(&scene, 33, 0, true), k),
                               1e-6);
    }
    scene_deinit(&scene);
}

static void every_half_survives_a_round_trip(void **state)
{
    (void)state;
    const struct attend_kernel *kernels[3];
    const size_t count = kernels_here(kernels);

    for (uint32_t half = 0; half <= UINT16_MAX; half++) {
        const float number = half_to_float((uint16_t)half);
        if (isnan(number))
            continue;
        assert_int_equal(float_to_half(number), half);
    }
    for (size_t i = 0; i < count; i++) {
        float numbers[19];
        uint16_t halves[19];
        uint16_t plain[19];
        random_state = 7;
        for (int round = 0; round < 10000; round++) {
            for (size_t k = 0; k < LENGTH_OF(numbers); k++)
                numbers[k] = ldexpf(random_number(), (int)(random_number() * 30));
            kernels[i]->store(ENGINE_KV_F16, halves, numbers, LENGTH_OF(numbers));
            for (size_t k = 0; k < LENGTH_OF(numbers); k++)
                plain[k] = float_to_half(numbers[k]);
            assert_memory_equal(halves, plain, sizeof(halves));
        }
    }
}

static void a_kernel_that_is_not_here_is_refused(void **state)
{
    (void)state;
    const struct attend_kernel *kernel = NULL;

    assert_int_equal(attend_kernel_find(ENGINE_KERNEL_PORTABLE, &kernel), TARN_OK);
    assert_string_equal(kernel->name, "portable");
    assert_int_equal(attend_kernel_find(ENGINE_KERNEL_AUTO, &kernel), TARN_OK);
    if (kernel->kind != ENGINE_KERNEL_AVX512)
        assert_int_equal(attend_kernel_find(ENGINE_KERNEL_AVX512, &kernel), TARN_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_agrees_with_exact_attention),
        cmocka_unit_test(a_row_computes_the_same_bits_in_every_tile),
        cmocka_unit_test(what_a_query_must_not_see_has_weight_zero),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(a_kernel_that_is_not_here_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
