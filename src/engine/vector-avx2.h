/* SPDX-License-Identifier: Apache-2.0 */
/* vector-avx2.h - the vector operations of attend-template.h for AVX2, FMA and F16C. */
#ifndef ENGINE_VECTOR_AVX2_H
#define ENGINE_VECTOR_AVX2_H

#include <immintrin.h>

#include "base/base.h"

enum { VF_WIDTH = 8, VF_TILE = 3, VF_HEADS = 3 };

typedef __m256 vf;

static inline vf vf_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void vf_store(float *to, vf a)
{
    _mm256_storeu_ps(to, a);
}

static inline vf vf_set1(float value)
{
    return _mm256_set1_ps(value);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf vf_where_ge(vf a, vf b, vf value, vf other)
{
    return _mm256_blendv_ps(other, value, _mm256_cmp_ps(a, b, _CMP_GE_OQ));
}

static inline float vf_max_lane(vf a)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

static inline float vf_sum_lanes(vf a)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    half = _mm_add_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

static inline void vf_sum4(float out[4], vf a, vf b, vf c, vf d)
{
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}

/* e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; e^r by its Taylor polynomial of
 * degree 6, whose rest is below 2e-7. ln 2 is subtracted in two parts, the first of which has few
 * digits. */
static inline vf vf_exp(vf x)
{
    const vf least = _mm256_set1_ps(-88.0F); /* n = -127: the power below becomes zero */
    const vf bounded = _mm256_max_ps(x, least);
    const vf n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504F)),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), bounded);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
    vf sum = _mm256_set1_ps(1.0F / 720);
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(1.0F / 120));
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(1.0F / 24));
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(1.0F / 6));
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(0.5F));
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(1.0F));
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(1.0F));
    const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

static inline vf vf_load_half(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

static inline void vf_store_half(uint16_t *to, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
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
