/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - how much memory for keys and values, worked out from the options. Pure. */
#ifndef SERVE_MEMORY_H
#define SERVE_MEMORY_H

#include "base/base.h"
#include "engine/engine.h"

struct memory_plan {
    uint64_t page_count;
    uint64_t wanted_count; /* for batch_size requests of half the context */
    bool is_limited;       /* a quarter of the memory available is less than that */
};

/* kv_size_bytes 0: not said. available_bytes 0: not known, no limit. */
struct memory_plan memory_plan_make(const struct engine_info *info, uint64_t kv_size_bytes,
                                    uint32_t batch_size, uint64_t available_bytes);

#endif
