/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/vector-portable.h"

#include "engine/attend-template.h"

ATTEND_KERNEL(attend_portable, ENGINE_KERNEL_PORTABLE, "portable");
