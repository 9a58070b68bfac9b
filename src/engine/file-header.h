/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file-header.h - a GGUF file's metadata and tensor table, read from mapped bytes.
 *
 * The file comes from outside: every count, length and offset is checked against the bytes that are
 * there before anything else reads the file, so that a damaged one ends in a message, and neither
 * ggml nor libllama meets it. Pure; keys, names and values point into the caller's bytes, which
 * must stay.
 *
 * Format: docs/gguf.md of the ggml project, versions 2 and 3, little endian.
 */
#ifndef ENGINE_FILE_HEADER_H
#define ENGINE_FILE_HEADER_H

#include "base/base.h"
#include "base/cursor.h"

enum { FILE_DIMS_MAX = 4, FILE_REASON_BYTES_MAX = 200, FILE_SHOWN_BYTES_MAX = 60 };

/* Types of values, numbered as in the file. */
enum file_value_type {
    FILE_VALUE_U8,
    FILE_VALUE_I8,
    FILE_VALUE_U16,
    FILE_VALUE_I16,
    FILE_VALUE_U32,
    FILE_VALUE_I32,
    FILE_VALUE_F32,
    FILE_VALUE_BOOL,
    FILE_VALUE_STRING,
    FILE_VALUE_ARRAY,
    FILE_VALUE_U64,
    FILE_VALUE_I64,
    FILE_VALUE_F64,
    FILE_VALUE_TYPE_COUNT
};

struct file_string {
    const char *chars; /* not terminated */
    size_t length_bytes;
};

struct file_entry {
    struct file_string key;
    enum file_value_type type; /* of the elements, if `is_array` */
    bool is_array;
    uint64_t count;       /* of elements; 1 for a plain value */
    const uint8_t *bytes; /* a string begins with its length, 8 bytes */
    size_t size_bytes;
};

struct file_tensor {
    struct file_string name;
    uint32_t type; /* ggml's number, known to ggml */
    uint32_t dim_count;
    uint64_t dims[FILE_DIMS_MAX]; /* 1 where there is none; no dimension is 0 */
    uint64_t element_count;
    uint64_t offset_bytes; /* from the file's beginning; all size_bytes are inside the file */
    uint64_t size_bytes;
};

struct file_header {
    uint32_t version;
    uint64_t size_bytes; /* of metadata and tensor table */
    struct file_entry *entries;
    size_t entry_count;
    struct file_tensor *tensors;
    size_t tensor_count;
};

/*
 * Read the header of a file of which `data` holds the first (or all) `size_bytes`; tensors must lie
 * inside `file_bytes`. CORRUPT: not a GGUF file, or damaged; UNSUPPORTED: a version, or a kind of
 * weights that is not known; NO_MEMORY. For the first two `reason` says in words what is wrong;
 * nothing is logged.
 */
NODISCARD enum tarn_status file_header_read(const void *data, size_t size_bytes,
                                            uint64_t file_bytes, struct file_header *out_header,
                                            char reason[FILE_REASON_BYTES_MAX]);
void file_header_deinit(struct file_header *header); /* NULL and zeroed are fine */

/* NULL: no such key, or tensor. */
const struct file_entry *file_header_find(const struct file_header *header, const char *key);
const struct file_tensor *file_header_tensor(const struct file_header *header, const char *name);

/* Plain values. MISS: no such key; CORRUPT: it has another type (of integers every kind is taken,
 * if the number fits). */
NODISCARD enum tarn_status file_header_u32(const struct file_header *header, const char *key,
                                           uint32_t *out_value);
NODISCARD enum tarn_status file_header_f32(const struct file_header *header, const char *key,
                                           float *out_value);
NODISCARD enum tarn_status file_header_string(const struct file_header *header, const char *key,
                                              struct file_string *out_value);

bool file_string_equal(struct file_string string, const char *chars);

/* For further checks of a file: its entries' bytes, strings one after the other in them, and a
 * reason in words, whose status is returned. */
struct reader file_entry_reader(const struct file_entry *entry);
struct file_string file_string_read(struct reader *r);
PRINTF_LIKE(3, 4)
enum tarn_status file_refuse(char *reason, enum tarn_status status, const char *format, ...);

/* "%.*s" of a name from the file, cut so that a long one does not hide the message. */
#define FILE_SHOWN(string)                                                                         \
    (int)((string).length_bytes < FILE_SHOWN_BYTES_MAX ? (string).length_bytes                     \
                                                       : FILE_SHOWN_BYTES_MAX),                    \
        (string).chars

#endif
