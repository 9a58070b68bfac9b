/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector-portable.h - the vector operations of attend-template.h in plain C, four numbers wide.
 *
 * Every vector-*.h defines the same names; a translation unit includes exactly one of them.
 */
#ifndef ENGINE_VECTOR_PORTABLE_H
#define ENGINE_VECTOR_PORTABLE_H

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/half.h"

/* Numbers in a vector; row vectors, and heads, that one inner loop keeps in registers. */
enum { VF_WIDTH = 4, VF_TILE = 3, VF_HEADS = 2 };

typedef struct {
    float lane[VF_WIDTH];
} vf;

#define VF_EACH(expr)                                                                              \
    vf result_;                                                                                    \
    for (int i = 0; i < VF_WIDTH; i++)                                                             \
        result_.lane[i] = (expr);                                                                  \
    return result_

static inline vf vf_load(const float *from)
{
    VF_EACH(from[i]);
}

static inline void vf_store(float *to, vf a)
{
    memcpy(to, a.lane, sizeof(a.lane));
}

static inline vf vf_set1(float value)
{
    VF_EACH(value);
}

static inline vf vf_add(vf a, vf b)
{
    VF_EACH(a.lane[i] + b.lane[i]);
}

static inline vf vf_sub(vf a, vf b)
{
    VF_EACH(a.lane[i] - b.lane[i]);
}

static inline vf vf_mul(vf a, vf b)
{
    VF_EACH(a.lane[i] * b.lane[i]);
}

/* a * b + c */
static inline vf vf_fma(vf a, vf b, vf c)
{
    VF_EACH(a.lane[i] * b.lane[i] + c.lane[i]);
}

static inline vf vf_max(vf a, vf b)
{
    VF_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}

/* value where a >= b, else `other` */
static inline vf vf_where_ge(vf a, vf b, vf value, vf other)
{
    VF_EACH(a.lane[i] >= b.lane[i] ? value.lane[i] : other.lane[i]);
}

static inline float vf_max_lane(vf a)
{
    float most = a.lane[0];
    for (int i = 1; i < VF_WIDTH; i++)
        most = a.lane[i] > most ? a.lane[i] : most;
    return most;
}

static inline float vf_sum_lanes(vf a)
{
    return (a.lane[0] + a.lane[2]) + (a.lane[1] + a.lane[3]);
}

/* out[k] = sum of the lanes of the k-th argument */
static inline void vf_sum4(float out[4], vf a, vf b, vf c, vf d)
{
    out[0] = vf_sum_lanes(a);
    out[1] = vf_sum_lanes(b);
    out[2] = vf_sum_lanes(c);
    out[3] = vf_sum_lanes(d);
}

/* e to the x for x <= 0; exactly zero below -88 */
static inline vf vf_exp(vf x)
{
    VF_EACH(x.lane[i] < -88.0F ? 0.0F : expf(x.lane[i]));
}

static inline vf vf_load_half(const uint16_t *from)
{
    VF_EACH(half_to_float(from[i]));
}

static inline void vf_store_half(uint16_t *to, vf a)
{
    for (int i = 0; i < VF_WIDTH; i++)
        to[i] = float_to_half(a.lane[i]);
}

/* to[k][i] = from[i][k] * scale, for four rows and columns; strides in numbers */
static inline void vf_transpose4(float *to, size_t to_stride, const float *from, size_t from_stride,
                                 float scale)
{
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++)
            to[k * to_stride + i] = from[i * from_stride + k] * scale;
    }
}

#endif
