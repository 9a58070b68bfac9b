/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/attend.h"

#ifdef TARN_ATTEND_X86
#include <cpuid.h>
#endif

/* Padding of a row in scratch memory: the widest vector. */
enum { ATTEND_PAD = 16 };

static size_t attend_padded(size_t count)
{
    return (count + ATTEND_PAD - 1) / ATTEND_PAD * ATTEND_PAD;
}

size_t attend_scratch_count(const struct attend_shape *shape)
{
    const size_t dim = attend_padded(shape->head_dim);
    const size_t blocks = (size_t)2 * ATTEND_BLOCK * dim;
    const size_t tile = (2 * dim + ATTEND_BLOCK + 4) * ATTEND_ROWS_MAX;
    const size_t range =
        (2 * dim + ATTEND_BLOCK + ATTEND_PAD + 2) * (size_t)shape->group * shape->kv_head_count;
    return attend_padded(blocks + (tile > range ? tile : range));
}

size_t attend_partial_count(const struct attend_shape *shape)
{
    return (size_t)shape->group * shape->kv_head_count * (shape->head_dim + 2);
}

#ifdef TARN_ATTEND_X86
/* clang before 15 has no name for it in __builtin_cpu_supports. */
static bool cpu_has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

static const struct attend_kernel *attend_kernel_best(enum engine_kernel at_most)
{
#ifdef TARN_ATTEND_X86
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
    if (at_most >= ENGINE_KERNEL_AVX512 && avx2 && __builtin_cpu_supports("avx512f"))
        return &attend_avx512;
    if (at_most >= ENGINE_KERNEL_AVX2 && avx2)
        return &attend_avx2;
#else
    (void)at_most;
#endif
    return &attend_portable;
}

enum tarn_status attend_kernel_find(enum engine_kernel kind,
                                    const struct attend_kernel **out_kernel)
{
    const struct attend_kernel *kernel =
        attend_kernel_best(kind == ENGINE_KERNEL_AUTO ? ENGINE_KERNEL_AVX512 : kind);
    if (kind != ENGINE_KERNEL_AUTO && kernel->kind != kind)
        return TARN_UNSUPPORTED;
    *out_kernel = kernel;
    return TARN_OK;
}
