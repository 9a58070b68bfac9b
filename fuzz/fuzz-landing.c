/* SPDX-License-Identifier: Apache-2.0 */
/* What a master says of its segments is read within bounds, adds up, and can be shown. */
#include "cluster/landing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct landing landing;
    struct text text;
    char reason[LANDING_REASON_BYTES] = "";
    uint64_t count;
    text_init(&text, 1 << 20);
    if (text_append_bytes(&text, data, size_bytes) == TARN_OK)
        (void)landing_parse_count(text_chars(&text), &count);
    text_truncate(&text, 0);
    const enum tarn_status status =
        landing_parse((const char *)data, size_bytes, "a:1", &landing, reason);
    if (status == TARN_INVALID)
        ASSERT(reason[0] != '\0');
    if (status == TARN_OK) {
        uint64_t used_bytes = 0;
        for (size_t i = 0; i < landing.host_count; i++)
            used_bytes += landing.hosts[i].used_bytes;
        ASSERT(used_bytes == landing.used_bytes);
        ASSERT(landing_print(&landing, &text) != TARN_INVALID);
        landing_deinit(&landing);
    }
    text_deinit(&text);
    return 0;
}
