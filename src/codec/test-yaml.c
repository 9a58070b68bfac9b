/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "lib/fault.h"

static struct yaml_tree *tree_of(const char *chars)
{
    struct yaml_tree *tree = NULL;
    struct yaml_fault fault = { 0, "" };
    if (yaml_read(chars, strlen(chars), &tree, &fault) != TARN_OK)
        fail_msg("line %u: %s", fault.line, fault.reason);
    return tree;
}

static void refused_bytes(const char *chars, size_t length_bytes, uint32_t line, const char *says)
{
    struct yaml_tree *tree = NULL;
    struct yaml_fault fault = { 0, "" };
    assert_int_equal(yaml_read(chars, length_bytes, &tree, &fault), TARN_INVALID);
    assert_null(tree);
    if (fault.line != line || !strstr(fault.reason, says))
        fail_msg("line %u: '%s', not line %u: '%s'", fault.line, fault.reason, line, says);
}

static void refused(const char *chars, uint32_t line, const char *says)
{
    refused_bytes(chars, strlen(chars), line, says);
}

static void a_mapping_is_read_with_its_lines(void **state)
{
    (void)state;
    struct yaml_tree *tree = tree_of("# first\n"
                                     "server:\n"
                                     "  host: 127.0.0.1 # why\n"
                                     "  port: \"8000\"\n"
                                     "list: [a, {b: c}]\n"
                                     "empty:\n");
    const struct yaml_node *root = yaml_root(tree);
    assert_int_equal(root->kind, YAML_IS_MAPPING);
    const struct yaml_node *server = root->child;
    assert_string_equal(server->key, "server");
    assert_int_equal(server->line, 2);
    assert_int_equal(server->kind, YAML_IS_MAPPING);
    assert_string_equal(server->child->key, "host");
    assert_string_equal(server->child->text, "127.0.0.1");
    assert_int_equal(server->child->line, 3);
    assert_string_equal(server->child->next->text, "8000");
    assert_null(server->child->next->next);
    const struct yaml_node *list = server->next;
    assert_int_equal(list->kind, YAML_IS_LIST);
    assert_null(list->child->key);
    assert_string_equal(list->child->text, "a");
    assert_string_equal(list->child->next->child->text, "c");
    assert_int_equal(list->next->kind, YAML_IS_EMPTY);
    assert_null(list->next->next);
    yaml_destroy(tree);
    yaml_destroy(NULL);
}

static void scalars_stay_as_they_were_written(void **state)
{
    (void)state;
    static const char *const texts[] = { "on", "1e3", "0x10", "010", "2001-01-01", "1:30", "NO" };
    for (size_t i = 0; i < LENGTH_OF(texts); i++) {
        struct yaml_tree *tree = tree_of(texts[i]);
        assert_int_equal(yaml_root(tree)->kind, YAML_IS_TEXT);
        assert_string_equal(yaml_root(tree)->text, texts[i]);
        yaml_destroy(tree);
    }
    static const char *const empties[] = { "a:", "a: ~", "a: null", "a: NULL" };
    for (size_t i = 0; i < LENGTH_OF(empties); i++) {
        struct yaml_tree *tree = tree_of(empties[i]);
        assert_int_equal(yaml_root(tree)->child->kind, YAML_IS_EMPTY);
        yaml_destroy(tree);
    }
    struct yaml_tree *tree = tree_of("a: 'null'");
    assert_string_equal(yaml_root(tree)->child->text, "null");
    yaml_destroy(tree);
}

static void nothing_but_comments_is_no_value(void **state)
{
    (void)state;
    static const char *const nothings[] = { "", "\n", "# only\n# words\n" };
    for (size_t i = 0; i < LENGTH_OF(nothings); i++) {
        struct yaml_tree *tree = tree_of(nothings[i]);
        assert_null(yaml_root(tree));
        yaml_destroy(tree);
    }
}

static void what_hides_meaning_is_refused_with_its_line(void **state)
{
    (void)state;
    refused("a: 1\nb: &x 2\n", 2, "an anchor (&name)");
    refused("a: 1\nb: &x\n  c: 2\n", 2, "an anchor (&name)");
    refused("a: 1\nb: *x\n", 2, "an alias (*name)");
    refused("a: !!str 1\n", 1, "a tag (!name)");
    refused("\na: !mine [1]\n", 2, "a tag (!name)");
    refused("%TAG !x! tag:example,2000:\n---\na: 1\n", 1, "%TAG");
    refused("a: 1\n---\na: 2\n", 2, "a second document");
    refused("a: 1\nb: 2\na: 3\n", 3, "key 'a' is here twice");
    refused("[a]: 1\n", 1, "a key is not a text");
    refused("? {b: c}\n: 1\n", 1, "a key is not a text");
    refused("\"a\\nb\": 1\n", 1, "a key has control characters");
    refused("\na: \"x\\0y\"\n", 2, "a text has a NUL byte");
}

static void what_is_no_yaml_is_refused_with_its_line(void **state)
{
    (void)state;
    refused("a: 1\n b: 2\n", 2, "no YAML: ");
    refused("a: [1\n", 2, "no YAML: ");
    refused("a: 1\nb: \"x\n", 3, "no YAML: ");
    refused("a:\n\tb: 1\n", 2, "no YAML: ");
    refused("%YAML 9.9\n---\na: 1\n", 1, "no YAML: ");
    refused("a: 1\nb: \xff\n", 2, "no YAML: ");
    refused("a: 1\nb: \x01\n", 2, "no YAML: ");
    refused_bytes("a: 1\nb: \0\n", 9, 2, "no YAML: ");
}

static void the_limits_hold(void **state)
{
    (void)state;
    refused("[[[[[[[[[1]]]]]]]]]", 1, "nested too deep");
    struct yaml_tree *deep = tree_of("[[[[[[[[1]]]]]]]]");
    yaml_destroy(deep);
    static char chars[YAML_BYTES_MAX + 1];
    memset(chars, '#', sizeof(chars));
    refused_bytes(chars, sizeof(chars), 1, "longer than 64 KiB");
    struct yaml_tree *tree = NULL;
    struct yaml_fault fault;
    assert_int_equal(yaml_read(chars, YAML_BYTES_MAX, &tree, &fault), TARN_OK);
    yaml_destroy(tree);
    for (size_t i = 0; i < 2 * YAML_NODES_MAX; i += 2) {
        chars[i] = i ? ',' : '[';
        chars[i + 1] = 'a';
    }
    refused_bytes(chars, 2 * (size_t)YAML_NODES_MAX, 1, "more values");
    size_t length = 0;
    for (size_t i = 0; i < YAML_NODES_MAX; i++)
        length += (size_t)snprintf(chars + length, sizeof(chars) - length, "k%zu: 1\n", i);
    refused_bytes(chars, length, YAML_NODES_MAX, "more values");
}

static enum tarn_status read_and_destroy(void)
{
    static const char chars[] = "server: {port: 8000, list: [a, b]}\npool: none\n";
    struct yaml_tree *tree = NULL;
    struct yaml_fault fault;
    TRY(yaml_read(chars, sizeof(chars) - 1, &tree, &fault));
    yaml_destroy(tree);
    return TARN_OK;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(read_and_destroy) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapping_is_read_with_its_lines),
        cmocka_unit_test(scalars_stay_as_they_were_written),
        cmocka_unit_test(nothing_but_comments_is_no_value),
        cmocka_unit_test(what_hides_meaning_is_refused_with_its_line),
        cmocka_unit_test(what_is_no_yaml_is_refused_with_its_line),
        cmocka_unit_test(the_limits_hold),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
