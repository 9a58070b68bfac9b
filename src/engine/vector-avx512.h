/* SPDX-License-Identifier: Apache-2.0 */
/* vector-avx512.h - the vector operations of attend-template.h for AVX-512 F. */
#ifndef ENGINE_VECTOR_AVX512_H
#define ENGINE_VECTOR_AVX512_H

#include <immintrin.h>

#include "base/base.h"

enum { VF_WIDTH = 16, VF_TILE = 6, VF_HEADS = 4 };

typedef __m512 vf;

static inline vf vf_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void vf_store(float *to, vf a)
{
    _mm512_storeu_ps(to, a);
}

static inline vf vf_set1(float value)
{
    return _mm512_set1_ps(value);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf vf_where_ge(vf a, vf b, vf value, vf other)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), other, value);
}

static inline float vf_max_lane(vf a)
{
    return _mm512_reduce_max_ps(a);
}

static inline float vf_sum_lanes(vf a)
{
    return _mm512_reduce_add_ps(a);
}

/* Two rounds bring the four vectors together, one 128-bit lane each; two more add up inside lanes.
 */
static inline void vf_sum4(float out[4], vf a, vf b, vf c, vf d)
{
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const __m512 cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 sum =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4e));
    sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, sum)));
}

/* As in vector-avx2.h; the last step makes zeros of what is too small. */
static inline vf vf_exp(vf x)
{
    const vf bounded = _mm512_max_ps(x, _mm512_set1_ps(-110.0F));
    const vf n = _mm512_roundscale_ps(_mm512_mul_ps(bounded, _mm512_set1_ps(1.44269504F)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), bounded);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
    vf sum = _mm512_set1_ps(1.0F / 720);
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 120));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 24));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F / 6));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.5F));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F));
    return _mm512_scalef_ps(sum, n);
}

static inline vf vf_load_half(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

static inline void vf_store_half(uint16_t *to, vf a)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* to[k][i] = from[i][k] * scale, for four rows and columns; strides in numbers */
static inline void vf_transpose4(float *to, size_t to_stride, const float *from, size_t from_stride,
                                 float scale)
{
    const __m128 factor = _mm_set1_ps(scale);
    __m128 a = _mm_mul_ps(_mm_loadu_ps(from), factor);
    __m128 b = _mm_mul_ps(_mm_loadu_ps(from + from_stride), factor);
    __m128 c = _mm_mul_ps(_mm_loadu_ps(from + 2 * from_stride), factor);
    __m128 d = _mm_mul_ps(_mm_loadu_ps(from + 3 * from_stride), factor);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_stride, b);
    _mm_storeu_ps(to + 2 * to_stride, c);
    _mm_storeu_ps(to + 3 * to_stride, d);
}

#endif
