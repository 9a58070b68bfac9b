/* SPDX-License-Identifier: Apache-2.0 */
#include "store/names.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"

enum tarn_status names_add(struct names *names, const char *text, uint32_t limit,
                           uint32_t *out_index)
{
    const uint32_t count = atomic_load(&names->count);
    ASSERT(limit <= NAMES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names->texts[i], text) == 0) {
            *out_index = i;
            return TARN_OK;
        }
    }
    if (count == limit)
        return TARN_NO_SPACE;
    const size_t size_bytes = strlen(text) + 1;
    names->texts[count] = mem_alloc(size_bytes, 1);
    if (!names->texts[count])
        return TARN_NO_MEMORY;
    memcpy(names->texts[count], text, size_bytes);
    atomic_store_explicit(&names->count, count + 1, memory_order_release);
    *out_index = count;
    return TARN_OK;
}

const char *names_get(const struct names *names, uint32_t index)
{
    const bool is_there = index < atomic_load_explicit(&names->count, memory_order_acquire);
    return is_there ? names->texts[index] : NULL;
}

void names_deinit(struct names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        mem_free(names->texts[i]);
}
