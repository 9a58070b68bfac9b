/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/file-header.h"

#include <ggml.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cursor.h"

/* Least bytes of an entry and of a tensor: they bound the counts before anything is allocated. */
enum { ENTRY_BYTES_MIN = 8 + 4 + 1, TENSOR_BYTES_MIN = 8 + 4 + 4 + 8, STRING_BYTES_MIN = 8 };
enum { ALIGNMENT_DEFAULT_BYTES = 32 };

static const uint8_t value_bytes[FILE_VALUE_TYPE_COUNT] = {
    [FILE_VALUE_U8] = 1,  [FILE_VALUE_I8] = 1,  [FILE_VALUE_U16] = 2, [FILE_VALUE_I16] = 2,
    [FILE_VALUE_U32] = 4, [FILE_VALUE_I32] = 4, [FILE_VALUE_F32] = 4, [FILE_VALUE_BOOL] = 1,
    [FILE_VALUE_U64] = 8, [FILE_VALUE_I64] = 8, [FILE_VALUE_F64] = 8,
};

enum tarn_status file_refuse(char *reason, enum tarn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was started above */
    (void)vsnprintf(reason, FILE_REASON_BYTES_MAX, format, args);
    va_end(args);
    return status;
}

struct file_string file_string_read(struct reader *r)
{
    const uint64_t length_bytes = reader_uint(r, 8);
    if (r->failed || length_bytes > r->left_bytes) {
        r->failed = true;
        return (struct file_string){ .chars = "" };
    }
    const struct file_string string = { (const char *)r->next, (size_t)length_bytes };
    r->next += length_bytes;
    r->left_bytes -= (size_t)length_bytes;
    return string;
}

static void skip(struct reader *r, uint64_t size_bytes)
{
    if (r->failed || size_bytes > r->left_bytes) {
        r->failed = true;
        return;
    }
    r->next += size_bytes;
    r->left_bytes -= (size_t)size_bytes;
}

static void skip_elements(struct reader *r, enum file_value_type type, uint64_t count)
{
    if (type != FILE_VALUE_STRING) {
        if (count > r->left_bytes / value_bytes[type])
            r->failed = true;
        else
            skip(r, count * value_bytes[type]);
        return;
    }
    if (count > r->left_bytes / STRING_BYTES_MIN)
        r->failed = true;
    for (uint64_t i = 0; i < count && !r->failed; i++)
        (void)file_string_read(r);
}

static enum tarn_status read_entry(struct reader *r, struct file_entry *entry, char *reason)
{
    entry->key = file_string_read(r);
    uint64_t type = reader_uint(r, 4);
    entry->is_array = type == FILE_VALUE_ARRAY;
    entry->count = 1;
    if (entry->is_array) {
        type = reader_uint(r, 4);
        entry->count = reader_uint(r, 8);
    }
    if (r->failed)
        return file_refuse(reason, TARN_CORRUPT, "the metadata ends in the middle of a key");
    if (type >= FILE_VALUE_TYPE_COUNT || type == FILE_VALUE_ARRAY)
        return file_refuse(reason, TARN_CORRUPT, "key '%.*s' has a value of unknown type %llu",
                           FILE_SHOWN(entry->key), (unsigned long long)type);
    entry->type = (enum file_value_type)type;
    entry->bytes = r->next;
    skip_elements(r, entry->type, entry->count);
    if (r->failed)
        return file_refuse(reason, TARN_CORRUPT, "the value of key '%.*s' is longer than the file",
                           FILE_SHOWN(entry->key));
    entry->size_bytes = (size_t)(r->next - entry->bytes);
    return TARN_OK;
}

/* Elements and bytes of a tensor, with no number overflowing. */
static bool tensor_measure(struct file_tensor *tensor)
{
    const uint64_t block = (uint64_t)ggml_blck_size((enum ggml_type)tensor->type);
    uint64_t count = 1;
    for (uint32_t i = 0; i < FILE_DIMS_MAX; i++) {
        if (tensor->dims[i] == 0 || tensor->dims[i] > (uint64_t)INT64_MAX / count)
            return false;
        count *= tensor->dims[i];
    }
    if (block == 0 || tensor->dims[0] % block != 0)
        return false;
    const uint64_t type_bytes = ggml_type_size((enum ggml_type)tensor->type);
    if (count / block > (uint64_t)INT64_MAX / type_bytes)
        return false;
    tensor->element_count = count;
    tensor->size_bytes = count / block * type_bytes;
    return true;
}

static enum tarn_status read_tensor(struct reader *r, struct file_tensor *tensor, char *reason)
{
    tensor->name = file_string_read(r);
    tensor->dim_count = (uint32_t)reader_uint(r, 4);
    if (!r->failed && tensor->dim_count > FILE_DIMS_MAX)
        return file_refuse(reason, TARN_CORRUPT, "tensor '%.*s' has %u dimensions",
                           FILE_SHOWN(tensor->name), tensor->dim_count);
    for (uint32_t i = 0; i < FILE_DIMS_MAX; i++)
        tensor->dims[i] = i < tensor->dim_count ? reader_uint(r, 8) : 1;
    tensor->type = (uint32_t)reader_uint(r, 4);
    tensor->offset_bytes = reader_uint(r, 8);
    if (r->failed)
        return file_refuse(reason, TARN_CORRUPT, "the tensor table ends in the middle of an entry");
    if (tensor->type >= GGML_TYPE_COUNT || ggml_blck_size((enum ggml_type)tensor->type) == 0)
        return file_refuse(reason, TARN_UNSUPPORTED, "tensor '%.*s' has weights of unknown type %u",
                           FILE_SHOWN(tensor->name), tensor->type);
    if (!tensor_measure(tensor))
        return file_refuse(reason, TARN_CORRUPT, "tensor '%.*s' has an impossible shape",
                           FILE_SHOWN(tensor->name));
    return TARN_OK;
}

/* Offsets in the table count from the end of the header, aligned; make them count from the file's
 * start. */
static enum tarn_status place_tensors(struct file_header *header, uint64_t file_bytes, char *reason)
{
    uint32_t alignment = ALIGNMENT_DEFAULT_BYTES;
    const enum tarn_status status = file_header_u32(header, "general.alignment", &alignment);
    if (status == TARN_CORRUPT || alignment == 0 || (alignment & (alignment - 1)) != 0)
        return file_refuse(reason, TARN_CORRUPT, "general.alignment is no power of two");
    const uint64_t start = (header->size_bytes + alignment - 1) / alignment * alignment;

    for (size_t i = 0; i < header->tensor_count; i++) {
        struct file_tensor *tensor = &header->tensors[i];
        if (tensor->offset_bytes % alignment != 0)
            return file_refuse(reason, TARN_CORRUPT,
                               "tensor '%.*s' does not lie at a multiple of %u",
                               FILE_SHOWN(tensor->name), alignment);
        if (start > file_bytes || tensor->offset_bytes > file_bytes - start ||
            tensor->size_bytes > file_bytes - start - tensor->offset_bytes)
            return file_refuse(
                reason, TARN_CORRUPT,
                "the file is cut short: it has %llu bytes, and tensor '%.*s' ends later",
                (unsigned long long)file_bytes, FILE_SHOWN(tensor->name));
        tensor->offset_bytes += start;
    }
    return TARN_OK;
}

static enum tarn_status read_tables(struct reader *r, struct file_header *header, char *reason)
{
    for (size_t i = 0; i < header->entry_count; i++)
        TRY(read_entry(r, &header->entries[i], reason));
    for (size_t i = 0; i < header->tensor_count; i++)
        TRY(read_tensor(r, &header->tensors[i], reason));
    return TARN_OK;
}

static enum tarn_status read_start(struct reader *r, struct file_header *header, char *reason)
{
    char magic[4];
    reader_bytes(r, magic, sizeof(magic));
    header->version = (uint32_t)reader_uint(r, 4);
    if (r->failed || memcmp(magic, "GGUF", sizeof(magic)) != 0)
        return file_refuse(reason, TARN_CORRUPT, "it is not a GGUF file");
    if (header->version != 2 && header->version != 3)
        return file_refuse(reason, TARN_UNSUPPORTED,
                           "it is GGUF version %u; versions 2 and 3 are read", header->version);
    const uint64_t tensor_count = reader_uint(r, 8);
    const uint64_t entry_count = reader_uint(r, 8);
    if (r->failed || entry_count > r->left_bytes / ENTRY_BYTES_MIN ||
        tensor_count > r->left_bytes / TENSOR_BYTES_MIN)
        return file_refuse(reason, TARN_CORRUPT,
                           "it says it has %llu keys and %llu tensors, which its bytes cannot hold",
                           (unsigned long long)entry_count, (unsigned long long)tensor_count);
    header->entry_count = (size_t)entry_count;
    header->tensor_count = (size_t)tensor_count;
    return TARN_OK;
}

enum tarn_status file_header_read(const void *data, size_t size_bytes, uint64_t file_bytes,
                                  struct file_header *out_header,
                                  char reason[FILE_REASON_BYTES_MAX])
{
    CLEANUP(file_header_deinit)
    struct file_header header = { 0 };
    struct reader r = reader_init(data, size_bytes);

    TRY(read_start(&r, &header, reason));
    header.entries = mem_alloc(header.entry_count + 1, sizeof(*header.entries));
    header.tensors = mem_alloc(header.tensor_count + 1, sizeof(*header.tensors));
    if (!header.entries || !header.tensors)
        return TARN_NO_MEMORY;
    TRY(read_tables(&r, &header, reason));
    header.size_bytes = size_bytes - r.left_bytes;
    TRY(place_tensors(&header, file_bytes, reason));
    *out_header = header;
    header = (struct file_header){ 0 };
    return TARN_OK;
}

void file_header_deinit(struct file_header *header)
{
    if (!header)
        return;
    mem_free(header->entries);
    mem_free(header->tensors);
    *header = (struct file_header){ 0 };
}

bool file_string_equal(struct file_string string, const char *chars)
{
    const size_t length_bytes = strlen(chars);
    return string.length_bytes == length_bytes && memcmp(string.chars, chars, length_bytes) == 0;
}

const struct file_entry *file_header_find(const struct file_header *header, const char *key)
{
    for (size_t i = 0; i < header->entry_count; i++) {
        if (file_string_equal(header->entries[i].key, key))
            return &header->entries[i];
    }
    return NULL;
}

const struct file_tensor *file_header_tensor(const struct file_header *header, const char *name)
{
    for (size_t i = 0; i < header->tensor_count; i++) {
        if (file_string_equal(header->tensors[i].name, name))
            return &header->tensors[i];
    }
    return NULL;
}

struct reader file_entry_reader(const struct file_entry *entry)
{
    return reader_init(entry->bytes, entry->size_bytes);
}

enum tarn_status file_header_u32(const struct file_header *header, const char *key,
                                 uint32_t *out_value)
{
    const struct file_entry *entry = file_header_find(header, key);
    if (!entry)
        return TARN_MISS;
    const enum file_value_type type = entry->type;
    if (entry->is_array || type == FILE_VALUE_F32 || type == FILE_VALUE_F64 ||
        type == FILE_VALUE_STRING)
        return TARN_CORRUPT;
    struct reader r = file_entry_reader(entry);
    const uint64_t value = reader_uint(&r, value_bytes[type]);
    const bool is_signed = type == FILE_VALUE_I8 || type == FILE_VALUE_I16 ||
                           type == FILE_VALUE_I32 || type == FILE_VALUE_I64;
    if (is_signed && (value >> (8 * value_bytes[type] - 1)) != 0)
        return TARN_CORRUPT;
    if (value > UINT32_MAX)
        return TARN_CORRUPT;
    *out_value = (uint32_t)value;
    return TARN_OK;
}

enum tarn_status file_header_f32(const struct file_header *header, const char *key,
                                 float *out_value)
{
    const struct file_entry *entry = file_header_find(header, key);
    if (!entry)
        return TARN_MISS;
    if (entry->is_array || entry->type != FILE_VALUE_F32)
        return TARN_CORRUPT;
    memcpy(out_value, entry->bytes, sizeof(*out_value));
    return TARN_OK;
}

enum tarn_status file_header_string(const struct file_header *header, const char *key,
                                    struct file_string *out_value)
{
    const struct file_entry *entry = file_header_find(header, key);
    if (!entry)
        return TARN_MISS;
    if (entry->is_array || entry->type != FILE_VALUE_STRING)
        return TARN_CORRUPT;
    struct reader r = file_entry_reader(entry);
    *out_value = file_string_read(&r);
    return TARN_OK;
}
