/* SPDX-License-Identifier: Apache-2.0 */
/* A key's text that is accepted prints as the same text; so does a namespace's. */
#include <string.h>

#include "key/namespace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const char *text = (const char *)data;
    struct key_namespace space;
    struct tarn_digest digest;
    char again[KEY_TEXT_BYTES_MAX + 1];
    if (key_parse(text, size_bytes, &space, &digest) == TARN_OK) {
        ASSERT(key_print(&space, &digest, again) == TARN_OK);
        ASSERT(strlen(again) == size_bytes && memcmp(again, text, size_bytes) == 0);
    }
    if (namespace_parse(text, size_bytes, &space) == TARN_OK) {
        ASSERT(namespace_print(&space, again) == TARN_OK);
        ASSERT(strlen(again) == size_bytes && memcmp(again, text, size_bytes) == 0);
    }
    return 0;
}
