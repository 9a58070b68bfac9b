/* SPDX-License-Identifier: Apache-2.0 */
/* A header that our reader takes is one on which ggml's does not stop the process, and nothing in
 * it points outside the bytes. */
#include <gguf.h>

#include "engine/file-vocabulary.h"

enum { PIECE_BYTES_MAX = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void touch(struct file_string string)
{
    const volatile char *chars = string.chars;
    for (size_t i = 0; i < string.length_bytes; i++)
        (void)chars[i];
}

static void quiet(enum ggml_log_level level, const char *text, void *context)
{
    (void)level;
    (void)text;
    (void)context;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const uint64_t file_bytes = UINT64_C(1) << 40; /* the tensors' data is not looked at */
    char reason[FILE_REASON_BYTES_MAX];
    struct file_header header;

    ggml_log_set(quiet, NULL);
    if (file_header_read(data, size_bytes, file_bytes, &header, reason) != TARN_OK)
        return 0;
    ASSERT(header.size_bytes <= size_bytes);
    for (size_t i = 0; i < header.entry_count; i++) {
        touch(header.entries[i].key);
        touch((struct file_string){ (const char *)header.entries[i].bytes,
                                    header.entries[i].size_bytes });
    }
    for (size_t i = 0; i < header.tensor_count; i++) {
        touch(header.tensors[i].name);
        ASSERT(header.tensors[i].size_bytes > 0);
        ASSERT(header.tensors[i].offset_bytes <= file_bytes - header.tensors[i].size_bytes);
    }
    (void)!file_vocabulary_check(&header, PIECE_BYTES_MAX, reason);
    const struct gguf_init_params params = { .no_alloc = true };
    gguf_free(gguf_init_from_buffer(data, size_bytes, params));
    file_header_deinit(&header);
    return 0;
}
