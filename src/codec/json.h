/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - JSON from outside, read within limits, and JSON to send; a fence around jansson.
 *
 * Reading: text of any length up to the caller's bound is checked for depth and for its number of
 * values before a tree is built, so that memory is bounded by the text's length. Duplicate keys,
 * NUL in strings and invalid UTF-8 are refused. Building: values are put together first and
 * checked once, at json_print(): a failed allocation anywhere makes it fail.
 *
 * jansson allocates through mem_alloc. One thread a tree.
 */
#ifndef CODEC_JSON_H
#define CODEC_JSON_H

#include "base/base.h"
#include "base/text.h"

enum { JSON_DEPTH_MAX = 32, JSON_VALUES_MAX = 1 << 20, JSON_REASON_BYTES = 192 };

enum json_kind {
    JSON_ABSENT, /* of NULL: no such member */
    JSON_IS_NULL,
    JSON_IS_BOOL,
    JSON_IS_INTEGER, /* fits int64_t */
    JSON_IS_REAL,
    JSON_IS_TEXT,
    JSON_IS_ARRAY,
    JSON_IS_OBJECT
};

struct json;

/* Read one value. INVALID: out_reason (JSON_REASON_BYTES) says where and why; NO_MEMORY. */
NODISCARD enum tarn_status json_parse(const char *chars, size_t length_bytes,
                                      struct json **out_json, char *out_reason);
void json_destroy(struct json *json); /* the root only; NULL is fine */

/* Readers take NULL and values of another kind: they answer NULL, 0, false. Answers live as long
 * as the root. */
enum json_kind json_kind_of(const struct json *json);
const char *json_kind_name(enum json_kind kind); /* "an object" */
const struct json *json_member(const struct json *object, const char *key);
size_t json_count(const struct json *json); /* items of an array, members of an object */
const struct json *json_item(const struct json *array, size_t index);
const char *json_key(const struct json *object, size_t index); /* in the order of the text */
const char *json_text(const struct json *json);                /* UTF-8, terminated */
size_t json_text_bytes(const struct json *json);
int64_t json_int(const struct json *json);
double json_number(const struct json *json); /* an integer's value, too */
bool json_bool(const struct json *json);

/* New values; NULL when memory ran out. What is put or pushed becomes the container's, and is gone
 * if that fails: fill a container first, put it into another last. Invalid UTF-8 in a text is a
 * failure. */
struct json_builder {
    bool failed;
};

struct json *json_new_object(struct json_builder *builder);
struct json *json_new_array(struct json_builder *builder);
struct json *json_new_text(struct json_builder *builder, const char *chars, size_t length_bytes);
struct json *json_new_integer(struct json_builder *builder, int64_t value);
struct json *json_new_real(struct json_builder *builder, double value); /* finite */
struct json *json_new_bool(struct json_builder *builder, bool value);
struct json *json_new_null(struct json_builder *builder);
void json_put(struct json_builder *builder, struct json *object, const char *key,
              struct json *value);
void json_push(struct json_builder *builder, struct json *array, struct json *value);

/* For texts that are terminated. */
struct json *json_new_string(struct json_builder *builder, const char *chars);

/* Append `root` on one line, members in the order in which they were put. NO_MEMORY: something
 * failed while building; NO_SPACE: past the text's maximum. */
NODISCARD enum tarn_status json_print(const struct json_builder *builder, const struct json *root,
                                      struct text *out);

#endif
