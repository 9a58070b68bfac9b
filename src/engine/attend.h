/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.h - attention over pages: the code that differs by CPU.
 *
 * Pure functions over memory of the caller's; nothing here knows ggml. K and V are read where the
 * pages lie, each once for all query heads that share them. Sums are kept in f32; the softmax is
 * computed online, with its running maximum. What lies in a page beyond the last position asked for
 * is never read.
 *
 * Two shapes. A tile is many rows against the whole past: a row is one query head of one token,
 * token by token and in a token head by head. A range is one token against a part of its past,
 * whose results are merged. What a row computes depends on its own query and position alone, not on
 * its tile.
 */
#ifndef ENGINE_ATTEND_H
#define ENGINE_ATTEND_H

#include "engine/engine.h"

enum {
    ATTEND_ROWS_MAX = 96,  /* of a tile */
    ATTEND_BLOCK = 32,     /* positions taken at a time */
    ATTEND_DIM_MAX = 512,  /* of a head */
    ATTEND_GROUP_MAX = 64, /* query heads on one K/V head */
};

struct attend_shape {
    uint32_t head_dim;
    uint32_t group; /* query heads on one K/V head; head h reads K/V head h / group */
    uint32_t kv_head_count;
    uint32_t page_tokens;
    enum engine_kv_type kv_type;
    float scale; /* of the scores: 1 / sqrt(head_dim) */
};

/* Where K and V lie in a sequence's pages: offsets in bytes, of token 0 in any page. */
struct attend_source {
    void *const *pages;
    size_t key_offset_bytes;
    size_t value_offset_bytes;
};

/* Rows of a chunk of tokens of one sequence, for one K/V head, at which the source points. Query
 * and output are [token][head][dim], both at token 0 of the chunk and the first query head of the
 * K/V head. */
struct attend_tile {
    struct attend_source source;
    const float *query;
    float *out;
    uint32_t row_first;
    uint32_t row_count; /* 1 to ATTEND_ROWS_MAX */
    uint32_t position;  /* of the chunk's token 0; the token at position p sees [0, p] */
};

/* Positions [first, last] for one token and all heads: the source points at K/V head 0. */
struct attend_range {
    struct attend_source source;
    const float *query; /* [head][dim] */
    float *partial;     /* out: attend_partial_count numbers */
    uint32_t first;
    uint32_t last;
};

struct attend_kernel {
    enum engine_kernel kind;
    const char *name;
    void (*tile)(const struct attend_shape *shape, const struct attend_tile *tile, float *scratch);
    void (*range)(const struct attend_shape *shape, const struct attend_range *range,
                  float *scratch);
    /* Put the results of `count` consecutive ranges together, in order, into out [head][dim]. */
    void (*merge)(const struct attend_shape *shape, const float *partials, uint32_t count,
                  float *out);
    /* numbers into elements of a page */
    void (*store)(enum engine_kv_type type, void *to, const float *from, size_t count);
};

/* The kernel asked for; UNSUPPORTED when this CPU or this build does not have it. */
NODISCARD enum tarn_status attend_kernel_find(enum engine_kernel kind,
                                              const struct attend_kernel **out_kernel);

/* Numbers of scratch memory that a thread needs for either shape; aligned to 64 bytes. */
size_t attend_scratch_count(const struct attend_shape *shape);

/* Numbers in one range's result: for each head its maximum, its sum and its weighted values. */
size_t attend_partial_count(const struct attend_shape *shape);

static inline size_t attend_element_bytes(enum engine_kv_type type)
{
    return type == ENGINE_KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

extern const struct attend_kernel attend_portable;
#ifdef TARN_ATTEND_X86
extern const struct attend_kernel attend_avx2;
extern const struct attend_kernel attend_avx512;
#endif

#endif
