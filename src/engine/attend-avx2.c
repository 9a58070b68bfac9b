/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/vector-avx2.h"

#include "engine/attend-template.h"

ATTEND_KERNEL(attend_avx2, ENGINE_KERNEL_AVX2, "AVX2");
