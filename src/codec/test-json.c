/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "lib/fault.h"

static struct json *parse(const char *chars)
{
    struct json *json = NULL;
    char reason[JSON_REASON_BYTES] = "";
    if (json_parse(chars, strlen(chars), &json, reason) != TARN_OK)
        fail_msg("%s: %s", chars, reason);
    return json;
}

static void expect_refused(const char *chars, size_t length_bytes, const char *part)
{
    struct json *json = NULL;
    char reason[JSON_REASON_BYTES] = "";
    assert_int_equal(json_parse(chars, length_bytes, &json, reason), TARN_INVALID);
    assert_null(json);
    if (!strstr(reason, part))
        fail_msg("'%s' does not say '%s'", reason, part);
}

static void members_and_items_are_read_by_kind(void **state)
{
    (void)state;
    struct json *json = parse("{\"a\":[1,2.5,true,null,\"x\\u00e9\"],\"b\":{\"c\":-7}}");
    const struct json *a = json_member(json, "a");
    assert_int_equal(json_kind_of(a), JSON_IS_ARRAY);
    assert_int_equal(json_count(a), 5);
    assert_int_equal(json_int(json_item(a, 0)), 1);
    assert_true(json_number(json_item(a, 0)) == 1.0);
    assert_true(json_number(json_item(a, 1)) == 2.5);
    assert_true(json_bool(json_item(a, 2)));
    assert_int_equal(json_kind_of(json_item(a, 3)), JSON_IS_NULL);
    assert_string_equal(json_text(json_item(a, 4)), "x\xc3\xa9");
    assert_int_equal(json_text_bytes(json_item(a, 4)), 3);
    assert_int_equal(json_int(json_member(json_member(json, "b"), "c")), -7);
    assert_int_equal(json_count(json), 2);
    assert_string_equal(json_key(json, 0), "a");
    assert_string_equal(json_key(json, 1), "b");
    assert_null(json_key(json, 2));
    json_destroy(json);
}

static void reading_what_is_not_there_gives_nothing(void **state)
{
    (void)state;
    struct json *json = parse("[\"x\"]");
    assert_int_equal(json_kind_of(NULL), JSON_ABSENT);
    assert_null(json_member(json, "a"));
    assert_null(json_member(NULL, "a"));
    assert_null(json_item(json, 1));
    assert_null(json_item(NULL, 0));
    assert_null(json_key(json, 0));
    assert_null(json_key(NULL, 0));
    assert_null(json_text(json));
    assert_int_equal(json_text_bytes(NULL), 0);
    assert_int_equal(json_int(json_item(json, 0)), 0);
    assert_true(json_number(NULL) == 0.0);
    assert_false(json_bool(NULL));
    json_destroy(json);
    json_destroy(NULL);
}

static void malformed_text_is_refused_with_the_place(void **state)
{
    (void)state;
    expect_refused("", 0, "line 1");
    expect_refused("{\"a\":", 5, "line 1 column 5");
    expect_refused("{} {}", 5, "end of file expected");
    expect_refused("{\"a\":1,\"a\":2}", 13, "duplicate");
    expect_refused("\"\\u0000\"", 8, "NUL");
    expect_refused("\"\xff\"", 3, "unable to decode byte");
    expect_refused("[1e999]", 7, "real number overflow");
    expect_refused("[99999999999999999999]", 22, "too big integer");
}

static void deep_nesting_is_refused_before_a_tree_is_built(void **state)
{
    (void)state;
    char deep[2 * JSON_DEPTH_MAX + 2];
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    expect_refused(deep, sizeof(deep), "32 levels");
    struct json *json = NULL;
    char reason[JSON_REASON_BYTES];
    assert_int_equal(json_parse(deep + 1, sizeof(deep) - 2, &json, reason), TARN_OK);
    json_destroy(json);
    json = parse("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[[[[[[[[[[\"");
    json_destroy(json);
}

static void too_many_values_are_refused_before_a_tree_is_built(void **state)
{
    (void)state;
    const size_t count = JSON_VALUES_MAX + 1;
    char *chars = mem_alloc(2 * count + 1, 1);
    assert_non_null(chars);
    for (size_t i = 0; i < count; i++) {
        chars[2 * i] = i ? ',' : '[';
        chars[2 * i + 1] = '0';
    }
    chars[2 * count] = ']';
    const size_t live = mem_live_count();
    expect_refused(chars, 2 * count + 1, "1048576 values");
    assert_int_equal(mem_live_count(), live);
    mem_free(chars);
}

static struct json *build_answer(struct json_builder *builder)
{
    struct json *root = json_new_object(builder);
    struct json *list = json_new_array(builder);
    json_push(builder, list, json_new_integer(builder, -1));
    json_push(builder, list, json_new_bool(builder, false));
    json_push(builder, list, json_new_null(builder));
    json_put(builder, root, "list", list);
    json_put(builder, root, "text", json_new_text(builder, "q\"\n\x01\xc3\xa9z", 6));
    json_put(builder, root, "word", json_new_string(builder, "w"));
    return root;
}

static void an_answer_is_printed_on_one_line_in_order(void **state)
{
    (void)state;
    struct json_builder builder = { 0 };
    struct text text;
    text_init(&text, 1000);
    struct json *root = build_answer(&builder);
    assert_int_equal(text_append(&text, "data: "), TARN_OK);
    assert_int_equal(json_print(&builder, root, &text), TARN_OK);
    assert_string_equal(text_chars(&text), "data: {\"list\":[-1,false,null],\"text\":"
                                           "\"q\\\"\\n\\u0001\xc3\xa9\",\"word\":\"w\"}");
    json_destroy(root);
    text_deinit(&text);
}

static void an_answer_too_long_leaves_the_text_as_it_was(void **state)
{
    (void)state;
    struct json_builder builder = { 0 };
    struct text text;
    text_init(&text, 20);
    struct json *root = build_answer(&builder);
    assert_int_equal(text_append(&text, "data: "), TARN_OK);
    assert_int_equal(json_print(&builder, root, &text), TARN_NO_SPACE);
    assert_string_equal(text_chars(&text), "data: ");
    json_destroy(root);
    text_deinit(&text);
}

static void text_that_is_not_utf8_fails_the_answer(void **state)
{
    (void)state;
    struct json_builder builder = { 0 };
    struct text text;
    text_init(&text, 100);
    struct json *root = json_new_object(&builder);
    json_put(&builder, root, "x", json_new_text(&builder, "\xff", 1));
    assert_int_equal(json_print(&builder, root, &text), TARN_NO_MEMORY);
    json_destroy(root);
    text_deinit(&text);
}

static enum tarn_status parse_and_print(void)
{
    /* A text, a key and a number that are longer than a token's buffer is at first. */
    static const char chars[] = "{\"a\":[1,2.5,\"x\",{\"b\":null}],"
                                "\"a key of more than sixteen bytes\":\"a text that is longer than "
                                "the buffer of a token, also when that has grown twice\","
                                "\"c\":0.0000000000000000000000000000000000000001}";
    struct json *json = NULL;
    char reason[JSON_REASON_BYTES];
    TRY(json_parse(chars, sizeof(chars) - 1, &json, reason));
    json_destroy(json);
    struct json_builder builder = { 0 };
    struct text text;
    text_init(&text, 1000);
    struct json *root = build_answer(&builder);
    const enum tarn_status status = json_print(&builder, root, &text);
    json_destroy(root);
    text_deinit(&text);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(parse_and_print) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_and_items_are_read_by_kind),
        cmocka_unit_test(reading_what_is_not_there_gives_nothing),
        cmocka_unit_test(malformed_text_is_refused_with_the_place),
        cmocka_unit_test(deep_nesting_is_refused_before_a_tree_is_built),
        cmocka_unit_test(too_many_values_are_refused_before_a_tree_is_built),
        cmocka_unit_test(an_answer_is_printed_on_one_line_in_order),
        cmocka_unit_test(an_answer_too_long_leaves_the_text_as_it_was),
        cmocka_unit_test(text_that_is_not_utf8_fails_the_answer),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
