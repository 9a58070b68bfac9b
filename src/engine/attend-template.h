/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend-template.h - the attention kernels, written once over the operations of a vector-*.h.
 *
 * Included after that header by one translation unit for each kind of CPU, which names the kernel.
 *
 * A tile keeps everything with rows side by side in vectors: queries and outputs are transposed
 * once for the tile, K and V numbers are broadcast, and the softmax runs over lanes without
 * crossing them. A range has few rows, so there vectors lie along the head's dimension.
 */
#ifndef ENGINE_ATTEND_TEMPLATE_H
#define ENGINE_ATTEND_TEMPLATE_H

#include <math.h>
#include <string.h>

#include "engine/attend.h"
#include "engine/half.h"

#define INLINED       static inline __attribute__((always_inline))
#define ATTEND_MASKED (-1e30F) /* a score that gets weight zero, exactly */
/* for i in [0, count), a small constant, without a loop */
#define for_unrolled(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

enum {
    ATTEND_QUADS = 4, /* positions, or dimensions, that one inner loop takes */
    CACHE_LINE_BYTES = 64,
};

static size_t padded(size_t count, size_t to)
{
    return (count + to - 1) / to * to;
}

static void numbers_load(enum engine_kv_type type, float *to, const void *from, size_t count)
{
    if (type == ENGINE_KV_F32) {
        memcpy(to, from, count * sizeof(float));
        return;
    }
    const uint16_t *halves = from;
    size_t i = 0;
    for (; i + VF_WIDTH <= count; i += VF_WIDTH)
        vf_store(to + i, vf_load_half(halves + i));
    for (; i < count; i++)
        to[i] = half_to_float(halves[i]);
}

static void numbers_store(enum engine_kv_type type, void *to, const float *from, size_t count)
{
    if (type == ENGINE_KV_F32) {
        memcpy(to, from, count * sizeof(float));
        return;
    }
    uint16_t *halves = to;
    size_t i = 0;
    for (; i + VF_WIDTH <= count; i += VF_WIDTH)
        vf_store_half(halves + i, vf_load(from + i));
    for (; i < count; i++)
        halves[i] = float_to_half(from[i]);
}

/* `count` positions of one page; bytes from one to the next: stride_bytes */
struct block {
    const char *keys;
    const char *values;
    size_t stride_bytes;
    uint32_t first;
    uint32_t count;
};

/* The block that begins at `first`: up to ATTEND_BLOCK positions, to the end of the page or `last`.
 */
static struct block block_at(const struct attend_shape *shape, const struct attend_source *source,
                             uint32_t first, uint32_t last)
{
    const uint32_t inside = first % shape->page_tokens;
    uint32_t count = shape->page_tokens - inside;
    if (count > ATTEND_BLOCK)
        count = ATTEND_BLOCK;
    if (count > last - first + 1)
        count = last - first + 1;
    const size_t stride_bytes =
        (size_t)shape->kv_head_count * shape->head_dim * attend_element_bytes(shape->kv_type);
    const char *page = source->pages[first / shape->page_tokens];
    return (struct block){ .keys = page + source->key_offset_bytes + inside * stride_bytes,
                           .values = page + source->value_offset_bytes + inside * stride_bytes,
                           .stride_bytes = stride_bytes,
                           .first = first,
                           .count = count };
}

/* Rows of K or V as f32, `stride` numbers apart, padding zero, up to a multiple of four rows. */
static void block_load(const struct attend_shape *shape, const char *from, size_t stride_bytes,
                       uint32_t count, float *to, size_t stride)
{
    const size_t dim = shape->head_dim;
    for (uint32_t j = 0; j < count; j++) {
        numbers_load(shape->kv_type, to + j * stride, from + j * stride_bytes, dim);
        for (size_t k = dim; k < stride; k++)
            to[j * stride + k] = 0;
    }
    const size_t rest = padded(count, ATTEND_QUADS) - count;
    memset(to + count * stride, 0, rest * stride * sizeof(float));
}

/* ---- tiles ---- */

struct tile_state {
    float *keys;      /* [block][stride] */
    float *values;    /* [block][stride] */
    float *query;     /* [dim][rows], scaled */
    float *out;       /* [stride][rows] */
    float *scores;    /* [block][rows] */
    float *position;  /* [rows] */
    float *most;      /* [rows] */
    float *sum;       /* [rows] */
    float *shrink;    /* [rows] */
    size_t stride;    /* head_dim, to a multiple of four */
    uint32_t vectors; /* row vectors in use */
};

static struct tile_state tile_state_init(const struct attend_shape *shape, uint32_t row_count,
                                         float *scratch)
{
    const size_t stride = padded(shape->head_dim, ATTEND_QUADS);
    struct tile_state state = { .stride = stride,
                                .vectors = (uint32_t)padded(row_count, VF_WIDTH) / VF_WIDTH };
    state.keys = scratch;
    state.values = state.keys + ATTEND_BLOCK * stride;
    state.query = state.values + ATTEND_BLOCK * stride;
    state.out = state.query + stride * ATTEND_ROWS_MAX;
    state.scores = state.out + stride * ATTEND_ROWS_MAX;
    state.position = state.scores + (size_t)ATTEND_BLOCK * ATTEND_ROWS_MAX;
    state.most = state.position + ATTEND_ROWS_MAX;
    state.sum = state.most + ATTEND_ROWS_MAX;
    state.shrink = state.sum + ATTEND_ROWS_MAX;
    return state;
}

/* Numbers from the chunk's beginning to row `row` of it. */
static size_t row_offset(const struct attend_shape *shape, uint32_t row)
{
    const size_t heads = (size_t)shape->kv_head_count * shape->group;
    return (row / shape->group * heads + row % shape->group) * shape->head_dim;
}

/* Rows past the last one copy it, so that they hold numbers like any other. */
static void tile_begin(const struct attend_shape *shape, const struct attend_tile *tile,
                       struct tile_state *state)
{
    const size_t rows = (size_t)state->vectors * VF_WIDTH;
    const size_t dim = shape->head_dim;
    float four[4][ATTEND_DIM_MAX];

    for (size_t r = 0; r < rows; r += 4) {
        for (size_t i = 0; i < 4; i++) {
            const uint32_t inside =
                r + i < tile->row_count ? (uint32_t)(r + i) : tile->row_count - 1;
            const uint32_t row = tile->row_first + inside;
            memcpy(four[i], tile->query + row_offset(shape, row), dim * sizeof(float));
            memset(four[i] + dim, 0, (state->stride - dim) * sizeof(float));
            const uint32_t token = row / shape->group;
            state->position[r + i] = (float)(tile->position + token);
            state->most[r + i] = -INFINITY;
            state->sum[r + i] = 0;
        }
        for (size_t k = 0; k < state->stride; k += 4)
            vf_transpose4(state->query + k * ATTEND_ROWS_MAX + r, ATTEND_ROWS_MAX, four[0] + k,
                          ATTEND_DIM_MAX, shape->scale);
    }
    memset(state->out, 0, state->stride * ATTEND_ROWS_MAX * sizeof(float));
}

static void tile_end(const struct attend_shape *shape, const struct attend_tile *tile,
                     const struct tile_state *state)
{
    const size_t dim = shape->head_dim;
    float four[4][ATTEND_DIM_MAX];

    for (size_t r = 0; r < tile->row_count; r += 4) {
        for (size_t k = 0; k < state->stride; k += 4)
            vf_transpose4(four[0] + k, ATTEND_DIM_MAX, state->out + k * ATTEND_ROWS_MAX + r,
                          ATTEND_ROWS_MAX, 1.0F);
        for (size_t i = 0; i < 4 && r + i < tile->row_count; i++) {
            const float share = 1.0F / state->sum[r + i];
            float *out = tile->out + row_offset(shape, tile->row_first + (uint32_t)(r + i));
            for (size_t k = 0; k < dim; k++)
                out[k] = four[i][k] * share;
        }
    }
}

/* scores[0..3][rows] = four keys by the queries */
INLINED void tile_scores_quad(const struct tile_state *state, size_t dim, size_t position,
                              size_t row, const int vectors)
{
    const float *key = state->keys + position * state->stride;
    const float *query = state->query + row;
    vf sums[ATTEND_QUADS][VF_TILE];

    for_unrolled (j, ATTEND_QUADS) {
        for_unrolled (v, vectors)
            sums[j][v] = vf_set1(0);
    }
    for (size_t k = 0; k < dim; k++) {
        vf lanes[VF_TILE];
        for_unrolled (v, vectors)
            lanes[v] = vf_load(query + k * ATTEND_ROWS_MAX + (size_t)v * VF_WIDTH);
        for_unrolled (j, ATTEND_QUADS) {
            const vf number = vf_set1(key[(size_t)j * state->stride + k]);
            for_unrolled (v, vectors)
                sums[j][v] = vf_fma(lanes[v], number, sums[j][v]);
        }
    }
    float *to = state->scores + position * ATTEND_ROWS_MAX + row;
    for_unrolled (j, ATTEND_QUADS) {
        for_unrolled (v, vectors)
            vf_store(to + (size_t)j * ATTEND_ROWS_MAX + (size_t)v * VF_WIDTH, sums[j][v]);
    }
}

/* out[0..3][rows] = out * shrink + four dimensions of the values by the weights */
INLINED void tile_values_quad(const struct tile_state *state, size_t count, size_t k, size_t row,
                              const int vectors)
{
    float *out = state->out + k * ATTEND_ROWS_MAX + row;
    const float *weights = state->scores + row;
    vf sums[ATTEND_QUADS][VF_TILE];

    for_unrolled (d, ATTEND_QUADS) {
        for_unrolled (v, vectors) {
            const size_t at = (size_t)v * VF_WIDTH;
            sums[d][v] = vf_mul(vf_load(out + (size_t)d * ATTEND_ROWS_MAX + at),
                                vf_load(state->shrink + row + at));
        }
    }
    for (size_t j = 0; j < count; j++) {
        vf lanes[VF_TILE];
        for_unrolled (v, vectors)
            lanes[v] = vf_load(weights + j * ATTEND_ROWS_MAX + (size_t)v * VF_WIDTH);
        for_unrolled (d, ATTEND_QUADS) {
            const vf number = vf_set1(state->values[j * state->stride + k + (size_t)d]);
            for_unrolled (v, vectors)
                sums[d][v] = vf_fma(lanes[v], number, sums[d][v]);
        }
    }
    for_unrolled (d, ATTEND_QUADS) {
        for_unrolled (v, vectors)
            vf_store(out + (size_t)d * ATTEND_ROWS_MAX + (size_t)v * VF_WIDTH, sums[d][v]);
    }
}

static void tile_mask(const struct tile_state *state, const struct block *block)
{
    for (size_t j = 0; j < block->count; j++) {
        const vf position = vf_set1((float)(block->first + j));
        for (size_t v = 0; v < state->vectors; v++) {
            float *score = state->scores + j * ATTEND_ROWS_MAX + v * VF_WIDTH;
            const vf row = vf_load(state->position + v * VF_WIDTH);
            vf_store(score, vf_where_ge(row, position, vf_load(score), vf_set1(ATTEND_MASKED)));
        }
    }
}

/* Scores become weights against the new maximum; `shrink` is what older weights change by. */
static void tile_softmax(const struct tile_state *state, size_t count)
{
    for (size_t v = 0; v < state->vectors; v++) {
        const size_t at = v * VF_WIDTH;
        float *scores = state->scores + at;
        const vf before = vf_load(state->most + at);
        vf most = before;
        for (size_t j = 0; j < count; j++)
            most = vf_max(most, vf_load(scores + j * ATTEND_ROWS_MAX));
        const vf shrink = vf_exp(vf_sub(before, most));
        vf sum = vf_mul(vf_load(state->sum + at), shrink);
        for (size_t j = 0; j < count; j++) {
            const vf weight = vf_exp(vf_sub(vf_load(scores + j * ATTEND_ROWS_MAX), most));
            sum = vf_add(sum, weight);
            vf_store(scores + j * ATTEND_ROWS_MAX, weight);
        }
        vf_store(state->most + at, most);
        vf_store(state->sum + at, sum);
        vf_store(state->shrink + at, shrink);
    }
}

INLINED void tile_products(const struct attend_shape *shape, const struct tile_state *state,
                           size_t count, size_t row, const int vectors, const bool values)
{
    if (values) {
        for (size_t k = 0; k < state->stride; k += ATTEND_QUADS)
            tile_values_quad(state, count, k, row, vectors);
        return;
    }
    for (size_t j = 0; j < count; j += ATTEND_QUADS)
        tile_scores_quad(state, shape->head_dim, j, row, vectors);
}

/* All rows, VF_TILE vectors of them at a time, and then the rest. */
INLINED void tile_sweep(const struct attend_shape *shape, const struct tile_state *state,
                        size_t count, const bool values)
{
    uint32_t v = 0;
    for (; v + VF_TILE <= state->vectors; v += VF_TILE)
        tile_products(shape, state, count, (size_t)v * VF_WIDTH, VF_TILE, values);
    const size_t row = (size_t)v * VF_WIDTH;
    switch (state->vectors - v) {
    case 1:
        tile_products(shape, state, count, row, 1, values);
        break;
    case 2:
        tile_products(shape, state, count, row, 2, values);
        break;
    case 3:
        tile_products(shape, state, count, row, VF_TILE > 3 ? 3 : 1, values);
        break;
    case 4:
        tile_products(shape, state, count, row, VF_TILE > 4 ? 4 : 1, values);
        break;
    case 5:
        tile_products(shape, state, count, row, VF_TILE > 5 ? 5 : 1, values);
        break;
    default:
        break;
    }
}

/* Ask for one head's rows of a block. */
static void rows_prefetch(const struct attend_shape *shape, const struct block *block)
{
    const size_t row_bytes = shape->head_dim * attend_element_bytes(shape->kv_type);
    for (size_t j = 0; j < block->count; j++) {
        for (size_t at = 0; at < row_bytes; at += CACHE_LINE_BYTES) {
            __builtin_prefetch(block->keys + j * block->stride_bytes + at);
            __builtin_prefetch(block->values + j * block->stride_bytes + at);
        }
    }
}

static void attend_tile_run(const struct attend_shape *shape, const struct attend_tile *tile,
                            float *scratch)
{
    struct tile_state state = tile_state_init(shape, tile->row_count, scratch);
    const uint32_t row_last = tile->row_first + tile->row_count - 1;
    const uint32_t seen_by_all = tile->position + tile->row_first / shape->group;
    const uint32_t last = tile->position + row_last / shape->group;

    tile_begin(shape, tile, &state);
    for (uint32_t first = 0; first <= last;) {
        const struct block block = block_at(shape, &tile->source, first, last);
        if (first + block.count <= last) {
            const struct block next = block_at(shape, &tile->source, first + block.count, last);
            rows_prefetch(shape, &next);
        }
        block_load(shape, block.keys, block.stride_bytes, block.count, state.keys, state.stride);
        tile_sweep(shape, &state, block.count, false);
        if (block.first + block.count - 1 > seen_by_all)
            tile_mask(&state, &block);
        tile_softmax(&state, block.count);
        block_load(shape, block.values, block.stride_bytes, block.count, state.values,
                   state.stride);
        tile_sweep(shape, &state, block.count, true);
        first += block.count;
    }
    tile_end(shape, tile, &state);
}

/* ---- ranges ---- */

/* All heads side by side; only a row that is no whole number of vectors passes through keys and
 * values. */
struct range_state {
    float *keys;    /* [block][stride] */
    float *values;  /* [block][stride] */
    float *query;   /* [head][stride], scaled */
    float *out;     /* [head][stride] */
    float *weights; /* [head][block] */
    float *sums;    /* [head][vector] */
    float *most;    /* [head] */
    float *shrink;  /* [head] */
    size_t heads;
    size_t stride; /* head_dim, to a whole number of vectors */
    size_t vectors;
};

static struct range_state range_state_init(const struct attend_shape *shape, float *scratch)
{
    const size_t stride = padded(shape->head_dim, VF_WIDTH);
    struct range_state state = { .heads = (size_t)shape->group * shape->kv_head_count,
                                 .stride = stride,
                                 .vectors = stride / VF_WIDTH };
    state.keys = scratch;
    state.values = state.keys + ATTEND_BLOCK * stride;
    state.query = state.values + ATTEND_BLOCK * stride;
    state.out = state.query + state.heads * stride;
    state.weights = state.out + state.heads * stride;
    state.sums = state.weights + state.heads * ATTEND_BLOCK;
    state.most = state.sums + state.heads * VF_WIDTH;
    state.shrink = state.most + state.heads;
    return state;
}

static void range_begin(const struct attend_shape *shape, const struct attend_range *range,
                        const struct range_state *state)
{
    const size_t dim = shape->head_dim;
    memset(state->query, 0, state->heads * state->stride * sizeof(float));
    memset(state->out, 0, state->heads * state->stride * sizeof(float));
    memset(state->sums, 0, state->heads * VF_WIDTH * sizeof(float));
    for (size_t h = 0; h < state->heads; h++) {
        for (size_t k = 0; k < dim; k++)
            state->query[h * state->stride + k] = range->query[h * dim + k] * shape->scale;
        state->most[h] = -INFINITY;
    }
}

static void range_end(const struct attend_shape *shape, const struct attend_range *range,
                      const struct range_state *state)
{
    const size_t dim = shape->head_dim;
    for (size_t h = 0; h < state->heads; h++) {
        float *partial = range->partial + h * (dim + 2);
        partial[0] = state->most[h];
        partial[1] = vf_sum_lanes(vf_load(state->sums + h * VF_WIDTH));
        memcpy(partial + 2, state->out + h * state->stride, dim * sizeof(float));
    }
}

INLINED vf row_load(const char *row, size_t vector, const bool half)
{
    if (half)
        return vf_load_half((const uint16_t *)(const void *)row + vector * VF_WIDTH);
    return vf_load((const float *)(const void *)row + vector * VF_WIDTH);
}

INLINED void range_scores(const struct range_state *state, const struct block *block, size_t head,
                          const int heads, const bool half)
{
    const float *query = state->query + head * state->stride;
    float *weights = state->weights + head * ATTEND_BLOCK;

    for (uint32_t j = 0; j < block->count; j += ATTEND_QUADS) {
        const char *rows[ATTEND_QUADS]; /* past the last one: the last one again */
        for (uint32_t i = 0; i < ATTEND_QUADS; i++) {
            const uint32_t at = j + i < block->count ? j + i : block->count - 1;
            rows[i] = block->keys + at * block->stride_bytes;
        }
        vf sums[VF_HEADS][ATTEND_QUADS];
        for_unrolled (h, heads) {
            for_unrolled (i, ATTEND_QUADS)
                sums[h][i] = vf_set1(0);
        }
        for (size_t v = 0; v < state->vectors; v++) {
            vf keys[ATTEND_QUADS];
            for_unrolled (i, ATTEND_QUADS)
                keys[i] = row_load(rows[i], v, half);
            for_unrolled (h, heads) {
                const vf numbers = vf_load(query + (size_t)h * state->stride + v * VF_WIDTH);
                for_unrolled (i, ATTEND_QUADS)
                    sums[h][i] = vf_fma(keys[i], numbers, sums[h][i]);
            }
        }
        for_unrolled (h, heads)
            vf_sum4(weights + (size_t)h * ATTEND_BLOCK + j, sums[h][0], sums[h][1], sums[h][2],
                    sums[h][3]);
    }
}

static void range_softmax(const struct range_state *state, size_t head, uint32_t count)
{
    float *weights = state->weights + head * ATTEND_BLOCK;
    for (uint32_t j = count; j < ATTEND_BLOCK; j++)
        weights[j] = ATTEND_MASKED;
    vf most = vf_load(weights);
    for (uint32_t j = VF_WIDTH; j < ATTEND_BLOCK; j += VF_WIDTH)
        most = vf_max(most, vf_load(weights + j));
    const float before = state->most[head];
    const float now = vf_max_lane(vf_max(most, vf_set1(before)));
    const vf shrink = vf_exp(vf_set1(before - now));
    vf sum = vf_mul(vf_load(state->sums + head * VF_WIDTH), shrink);
    for (uint32_t j = 0; j < ATTEND_BLOCK; j += VF_WIDTH) {
        const vf weight = vf_exp(vf_sub(vf_load(weights + j), vf_set1(now)));
        sum = vf_add(sum, weight);
        vf_store(weights + j, weight);
    }
    vf_store(state->sums + head * VF_WIDTH, sum);
    state->most[head] = now;
    state->shrink[head] = vf_max_lane(shrink);
}

/* Where in the outputs: the first head, and the first vector in each. */
struct range_corner {
    size_t head;
    size_t vector;
};

INLINED void range_values(const struct range_state *state, const struct block *block,
                          struct range_corner at, const int heads, const int vectors,
                          const bool half)
{
    float *out = state->out + at.head * state->stride + at.vector * VF_WIDTH;
    const float *weights = state->weights + at.head * ATTEND_BLOCK;
    vf sums[VF_HEADS][ATTEND_QUADS];

    for_unrolled (h, heads) {
        const vf shrink = vf_set1(state->shrink[at.head + (size_t)h]);
        for_unrolled (v, vectors)
            sums[h][v] =
                vf_mul(vf_load(out + (size_t)h * state->stride + (size_t)v * VF_WIDTH), shrink);
    }
    for (uint32_t j = 0; j < block->count; j++) {
        const char *row = block->values + j * block->stride_bytes;
        vf values[ATTEND_QUADS];
        for_unrolled (v, vectors)
            values[v] = row_load(row, at.vector + (size_t)v, half);
        for_unrolled (h, heads) {
            const vf weight = vf_set1(weights[(size_t)h * ATTEND_BLOCK + j]);
            for_unrolled (v, vectors)
                sums[h][v] = vf_fma(values[v], weight, sums[h][v]);
        }
    }
    for_unrolled (h, heads) {
        for_unrolled (v, vectors)
            vf_store(out + (size_t)h * state->stride + (size_t)v * VF_WIDTH, sums[h][v]);
    }
}

INLINED void range_block(const struct range_state *state, const struct block *block, size_t head,
                         const int heads, const bool half)
{
    range_scores(state, block, head, heads, half);
    for (int h = 0; h < heads; h++)
        range_softmax(state, head + (size_t)h, block->count);
    struct range_corner at = { .head = head };
    for (; at.vector + ATTEND_QUADS <= state->vectors; at.vector += ATTEND_QUADS)
        range_values(state, block, at, heads, ATTEND_QUADS, half);
    for (; at.vector < state->vectors; at.vector++)
        range_values(state, block, at, heads, 1, half);
}

/* The query heads of one K/V head, of which `head` is the first. */
INLINED void range_group(const struct range_state *state, const struct block *block, size_t head,
                         size_t count, const bool half)
{
    for (; count >= VF_HEADS; head += VF_HEADS, count -= VF_HEADS)
        range_block(state, block, head, VF_HEADS, half);
    switch (count) {
    case 1:
        range_block(state, block, head, 1, half);
        break;
    case 2:
        range_block(state, block, head, VF_HEADS > 2 ? 2 : 1, half);
        break;
    case 3:
        range_block(state, block, head, VF_HEADS > 3 ? 3 : 1, half);
        break;
    default:
        break;
    }
}

/* K/V head `kv` of a block of all heads. */
static void range_kv_head(const struct attend_shape *shape, const struct range_state *state,
                          const struct block *all, size_t kv)
{
    const size_t offset_bytes = kv * shape->head_dim * attend_element_bytes(shape->kv_type);
    const size_t head = kv * shape->group;
    struct block block = *all;
    block.keys += offset_bytes;
    block.values += offset_bytes;
    if (state->stride == shape->head_dim) {
        if (shape->kv_type == ENGINE_KV_F16)
            range_group(state, &block, head, shape->group, true);
        else
            range_group(state, &block, head, shape->group, false);
        return;
    }
    block_load(shape, block.keys, block.stride_bytes, block.count, state->keys, state->stride);
    block_load(shape, block.values, block.stride_bytes, block.count, state->values, state->stride);
    block.keys = (const char *)state->keys;
    block.values = (const char *)state->values;
    block.stride_bytes = state->stride * sizeof(float);
    range_group(state, &block, head, shape->group, false);
}

/* Ask for share `part` of `parts` of what a block holds, so that it has come when its turn has. */
static void block_prefetch(const struct block *block, size_t part, size_t parts)
{
    const size_t bytes = block->count * block->stride_bytes;
    const size_t end = bytes * (part + 1) / parts;
    for (size_t at = bytes * part / parts; at < end; at += CACHE_LINE_BYTES) {
        __builtin_prefetch(block->keys + at);
        __builtin_prefetch(block->values + at);
    }
}

static void attend_range_run(const struct attend_shape *shape, const struct attend_range *range,
                             float *scratch)
{
    const struct range_state state = range_state_init(shape, scratch);
    struct block block = block_at(shape, &range->source, range->first, range->last);

    range_begin(shape, range, &state);
    for (;;) {
        const uint32_t first = block.first + block.count;
        const bool more = first <= range->last;
        const struct block next =
            more ? block_at(shape, &range->source, first, range->last) : block;
        for (size_t kv = 0; kv < shape->kv_head_count; kv++) {
            if (more)
                block_prefetch(&next, kv, shape->kv_head_count);
            range_kv_head(shape, &state, &block, kv);
        }
        if (!more)
            break;
        block = next;
    }
    range_end(shape, range, &state);
}

/* Weights of the parts are relative to the largest of their maxima. */
static void attend_merge_run(const struct attend_shape *shape, const float *partials,
                             uint32_t count, float *out)
{
    const size_t dim = shape->head_dim;
    const size_t heads = (size_t)shape->group * shape->kv_head_count;

    for (size_t head = 0; head < heads; head++) {
        const float *first = partials + head * (dim + 2);
        float *to = out + head * dim;
        float most = first[0];
        for (size_t i = 1; i < count; i++)
            most = fmaxf(most, first[i * heads * (dim + 2)]);
        float sum = 0;
        memset(to, 0, dim * sizeof(float));
        for (size_t i = 0; i < count; i++) {
            const float *part = first + i * heads * (dim + 2);
            const float weight = expf(part[0] - most);
            sum += weight * part[1];
            for (size_t k = 0; k < dim; k++)
                to[k] += weight * part[2 + k];
        }
        for (size_t k = 0; k < dim; k++)
            to[k] /= sum;
    }
}

#define ATTEND_KERNEL(symbol, kernel, text)                                                        \
    const struct attend_kernel symbol = { .kind = (kernel),                                        \
                                          .name = (text),                                          \
                                          .tile = attend_tile_run,                                 \
                                          .range = attend_range_run,                               \
                                          .merge = attend_merge_run,                               \
                                          .store = numbers_store }

#endif
