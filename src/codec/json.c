/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/list.h"

/*
 * jansson's reader does not look whether a token's buffer could grow, and runs over its end when it
 * could not. So a reading that finds no memory is not gone on with: it is left by a jump, and what
 * it had taken is freed. For that, each block is linked to the others of the same reading.
 */
struct block {
    struct list link; /* to itself once the reading is over */
};

struct reading {
    struct list blocks;
    jmp_buf out_of_memory;
};

static _Thread_local struct reading *reading; /* NULL: nothing is being read in this thread */

static void *json_alloc(size_t size_bytes)
{
    struct block *block = mem_alloc(1, sizeof(*block) + size_bytes);
    if (!block && reading)
        longjmp(reading->out_of_memory, 1);
    if (!block)
        return NULL;
    list_init(&block->link);
    if (reading)
        list_push_back(&reading->blocks, &block->link);
    return block + 1;
}

static void json_free(void *ptr)
{
    if (!ptr)
        return;
    struct block *block = (struct block *)ptr - 1;
    list_remove(&block->link);
    mem_free(block);
}

static void json_setup(void)
{
    json_set_alloc_funcs(json_alloc, json_free);
}

static void json_setup_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, json_setup);
}

/* struct json is jansson's json_t under another name. */
static const json_t *tree_of(const struct json *json)
{
    return (const json_t *)(const void *)json;
}

static json_t *tree_to_change(struct json *json)
{
    return (json_t *)(void *)json;
}

static struct json *json_of(json_t *tree)
{
    return (struct json *)(void *)tree;
}

/* Bounds before a tree is built: nesting, and separators, of which every value but the first of a
 * container has one. Malformed text is jansson's to find. */
static enum tarn_status limits_check(const char *chars, size_t length_bytes, char *out_reason)
{
    size_t depth = 0;
    size_t value_count = 1;
    bool in_text = false;
    for (size_t i = 0; i < length_bytes; i++) {
        const char c = chars[i];
        if (in_text) {
            i += c == '\\';
            in_text = c != '"';
            continue;
        }
        in_text = c == '"';
        depth += c == '[' || c == '{';
        depth -= depth > 0 && (c == ']' || c == '}');
        value_count += c == ',' || c == '[' || c == '{';
        if (depth > JSON_DEPTH_MAX || value_count > JSON_VALUES_MAX) {
            (void)snprintf(out_reason, JSON_REASON_BYTES, "more than %d %s",
                           depth > JSON_DEPTH_MAX ? JSON_DEPTH_MAX : JSON_VALUES_MAX,
                           depth > JSON_DEPTH_MAX ? "levels of nesting" : "values");
            return TARN_INVALID;
        }
    }
    return TARN_OK;
}

/* *out_tree is NULL when it is malformed: `out_error` says why. NO_MEMORY. */
static enum tarn_status tree_read(const char *chars, size_t length_bytes, json_t **out_tree,
                                  json_error_t *out_error)
{
    struct reading ours;
    list_init(&ours.blocks);
    reading = &ours;
    if (setjmp(ours.out_of_memory) != 0) {
        reading = NULL;
        list_for_each (link, &ours.blocks)
            json_free(LIST_ITEM(link, struct block, link) + 1);
        return TARN_NO_MEMORY;
    }
    *out_tree =
        json_loadb(chars, length_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, out_error);
    reading = NULL;
    list_for_each (link, &ours.blocks)
        list_remove(link);
    return TARN_OK;
}

enum tarn_status json_parse(const char *chars, size_t length_bytes, struct json **out_json,
                            char *out_reason)
{
    json_setup_once();
    TRY(limits_check(chars, length_bytes, out_reason));
    json_error_t error;
    json_t *tree = NULL;
    TRY(tree_read(chars, length_bytes, &tree, &error));
    if (!tree) {
        (void)snprintf(out_reason, JSON_REASON_BYTES, "line %d column %d: %s", error.line,
                       error.column, error.text);
        return TARN_INVALID;
    }
    *out_json = json_of(tree);
    return TARN_OK;
}

void json_destroy(struct json *json)
{
    json_decref(tree_to_change(json));
}

enum json_kind json_kind_of(const struct json *json)
{
    if (!json)
        return JSON_ABSENT;
    switch (json_typeof(tree_of(json))) {
    case JSON_OBJECT:
        return JSON_IS_OBJECT;
    case JSON_ARRAY:
        return JSON_IS_ARRAY;
    case JSON_STRING:
        return JSON_IS_TEXT;
    case JSON_INTEGER:
        return JSON_IS_INTEGER;
    case JSON_REAL:
        return JSON_IS_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_IS_BOOL;
    case JSON_NULL:
        return JSON_IS_NULL;
    }
    return JSON_ABSENT;
}

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {
        [JSON_ABSENT] = "absent",     [JSON_IS_NULL] = "null",
        [JSON_IS_BOOL] = "a boolean", [JSON_IS_INTEGER] = "an integer",
        [JSON_IS_REAL] = "a number",  [JSON_IS_TEXT] = "a string",
        [JSON_IS_ARRAY] = "an array", [JSON_IS_OBJECT] = "an object",
    };
    return names[kind];
}

const struct json *json_member(const struct json *object, const char *key)
{
    return (const struct json *)(const void *)json_object_get(tree_of(object), key);
}

size_t json_count(const struct json *json)
{
    return json_kind_of(json) == JSON_IS_OBJECT ? json_object_size(tree_of(json))
                                                : json_array_size(tree_of(json));
}

const char *json_key(const struct json *object, size_t index)
{
    json_t *tree = (json_t *)(uintptr_t)object; /* NOLINT(performance-no-int-to-ptr): not changed */
    void *at = json_object_iter(tree);
    for (size_t i = 0; at && i < index; i++)
        at = json_object_iter_next(tree, at);
    return json_object_iter_key(at);
}

const struct json *json_item(const struct json *array, size_t index)
{
    return (const struct json *)(const void *)json_array_get(tree_of(array), index);
}

const char *json_text(const struct json *json)
{
    return json_string_value(tree_of(json));
}

size_t json_text_bytes(const struct json *json)
{
    return json_string_length(tree_of(json));
}

int64_t json_int(const struct json *json)
{
    return json_integer_value(tree_of(json));
}

double json_number(const struct json *json)
{
    return json_number_value(tree_of(json));
}

bool json_bool(const struct json *json)
{
    return json && json_is_true(tree_of(json));
}

static struct json *new_value(struct json_builder *builder, json_t *tree)
{
    if (!tree)
        builder->failed = true;
    return json_of(tree);
}

struct json *json_new_object(struct json_builder *builder)
{
    json_setup_once();
    return new_value(builder, json_object());
}

struct json *json_new_array(struct json_builder *builder)
{
    json_setup_once();
    return new_value(builder, json_array());
}

struct json *json_new_text(struct json_builder *builder, const char *chars, size_t length_bytes)
{
    json_setup_once();
    return new_value(builder, json_stringn(chars, length_bytes));
}

struct json *json_new_string(struct json_builder *builder, const char *chars)
{
    return json_new_text(builder, chars, strlen(chars));
}

struct json *json_new_integer(struct json_builder *builder, int64_t value)
{
    json_setup_once();
    return new_value(builder, json_integer(value));
}

struct json *json_new_real(struct json_builder *builder, double value)
{
    json_setup_once();
    return new_value(builder, json_real(value));
}

struct json *json_new_bool(struct json_builder *builder, bool value)
{
    return new_value(builder, json_boolean(value));
}

struct json *json_new_null(struct json_builder *builder)
{
    return new_value(builder, json_null());
}

void json_put(struct json_builder *builder, struct json *object, const char *key,
              struct json *value)
{
    if (json_object_set_new(tree_to_change(object), key, tree_to_change(value)) != 0)
        builder->failed = true;
}

void json_push(struct json_builder *builder, struct json *array, struct json *value)
{
    if (json_array_append_new(tree_to_change(array), tree_to_change(value)) != 0)
        builder->failed = true;
}

struct print_target {
    struct text *out;
    enum tarn_status status;
};

/* Stops at the first failure, also where jansson does not look at the result. */
static int piece_append(const char *chars, size_t length_bytes, void *context)
{
    struct print_target *target = context;
    if (target->status == TARN_OK)
        target->status = text_append_bytes(target->out, chars, length_bytes);
    return target->status == TARN_OK ? 0 : -1;
}

enum tarn_status json_print(const struct json_builder *builder, const struct json *root,
                            struct text *out)
{
    struct print_target target = { .out = out, .status = TARN_OK };
    if (builder->failed || !root)
        return TARN_NO_MEMORY;
    const size_t length_before = out->length_bytes;
    const int result =
        json_dump_callback(tree_of(root), piece_append, &target, JSON_COMPACT | JSON_ENCODE_ANY);
    if (result != 0 && target.status == TARN_OK)
        target.status = TARN_NO_MEMORY;
    if (target.status != TARN_OK)
        text_truncate(out, length_before);
    return target.status;
}
