/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - IEEE 754 binary16, one number at a time. */
#ifndef ENGINE_HALF_H
#define ENGINE_HALF_H

#include <string.h>

#include "base/base.h"

/* Exact. A shift puts the exponent in place, a product rebases it, which also makes subnormals
 * right. */
static inline float half_to_float(uint16_t half)
{
    const uint32_t rest = (uint32_t)(half & 0x7fffU) << 13;
    const uint32_t rebase_bits = 0x77800000U; /* 2^112 */
    float rebase;
    float magnitude;
    memcpy(&rebase, &rebase_bits, sizeof(rebase));
    memcpy(&magnitude, &rest, sizeof(magnitude));
    magnitude *= rebase;
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    if ((half & 0x7c00U) == 0x7c00U)
        bits |= 0x7f800000U;
    bits |= (uint32_t)(half & 0x8000U) << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To the nearest, ties to even; what is too large becomes infinity. */
static inline uint16_t float_to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000U);
    const uint32_t magnitude = bits & 0x7fffffffU;

    if (magnitude > 0x7f800000U)
        return (uint16_t)(sign | 0x7e00U);
    if (magnitude >= 0x47800000U) /* 65536 and above */
        return (uint16_t)(sign | 0x7c00U);
    if (magnitude < 0x38800000U) { /* subnormal: add a number whose last place is 2^-24 */
        float small;
        memcpy(&small, &magnitude, sizeof(small));
        small += 0.5F;
        memcpy(&bits, &small, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3f000000U));
    }
    const uint32_t odd = (magnitude >> 13) & 1U;
    return (uint16_t)(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13));
}

#endif
