/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/vector-avx512.h"

#include "engine/attend-template.h"

ATTEND_KERNEL(attend_avx512, ENGINE_KERNEL_AVX512, "AVX-512");
