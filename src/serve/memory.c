/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/memory.h"

static uint64_t pages_of(uint64_t tokens, uint32_t page_tokens)
{
    return (tokens + page_tokens - 1) / page_tokens;
}

struct memory_plan memory_plan_make(const struct engine_info *info, uint64_t kv_size_bytes,
                                    uint32_t batch_size, uint64_t available_bytes)
{
    const uint64_t one_count = pages_of(info->ctx_tokens, info->page_tokens);
    const uint64_t half_count = pages_of((info->ctx_tokens + 1) / 2, info->page_tokens);
    struct memory_plan plan = { .wanted_count = batch_size * half_count };
    if (plan.wanted_count < one_count)
        plan.wanted_count = one_count;
    if (kv_size_bytes > 0) {
        plan.page_count = kv_size_bytes / info->page_bytes;
        return plan;
    }
    const uint64_t most_count = available_bytes / 4 / info->page_bytes;
    plan.is_limited = available_bytes > 0 && most_count < plan.wanted_count;
    plan.page_count = plan.is_limited ? most_count : plan.wanted_count;
    return plan;
}
