/* SPDX-License-Identifier: Apache-2.0 */
#include "key/namespace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct key_namespace plain = {
    .prefix = "tarn",
    .model = "m",
    .world = 2,
    .rank = 1,
    .group = 0,
    .tokens_per_block = 32,
    .page_bytes = 4096,
    .layout = 0xabc,
};

static const char plain_text[] = "tarn/m/w2r1/lg0/t32b4096-0000000000000abc";

static void each_namespace_field_alone_changes_the_key(void **state)
{
    (void)state;
    struct key_namespace spaces[9];
    for (size_t i = 0; i < LENGTH_OF(spaces); i++)
        spaces[i] = plain;
    spaces[1].prefix[0] = 'T';
    spaces[2].model[0] = 'n';
    spaces[3].world = 3;
    spaces[4].rank = 0;
    spaces[5].group = 1;
    spaces[6].tokens_per_block = 16;
    spaces[7].page_bytes = 4097;
    spaces[8].layout = 0xabd;

    const struct tarn_digest digest = { { 0 } };
    char texts[LENGTH_OF(spaces)][KEY_TEXT_BYTES_MAX + 1];
    for (size_t i = 0; i < LENGTH_OF(spaces); i++) {
        assert_int_equal(key_print(&spaces[i], &digest, texts[i]), TARN_OK);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(texts[i], texts[j]);
    }
}

static void a_key_has_the_documented_text_and_reads_back(void **state)
{
    (void)state;
    char text[KEY_TEXT_BYTES_MAX + 1];
    struct tarn_digest digest;
    struct tarn_digest digest_again;
    struct key_namespace again;
    memset(&digest, 0x5a, sizeof(digest));
    assert_int_equal(namespace_print(&plain, text), TARN_OK);
    assert_string_equal(text, plain_text);
    assert_int_equal(key_print(&plain, &digest, text), TARN_OK);
    assert_string_equal(text, "tarn/m/w2r1/lg0/t32b4096-0000000000000abc/"
                              "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a");
    assert_int_equal(key_parse(text, strlen(text), &again, &digest_again), TARN_OK);
    assert_true(digest_equal(&digest, &digest_again));
    assert_string_equal(again.prefix, plain.prefix);
    assert_string_equal(again.model, plain.model);
    assert_int_equal(again.world, 2);
    assert_int_equal(again.rank, 1);
    assert_int_equal(again.group, 0);
    assert_int_equal(again.tokens_per_block, 32);
    assert_int_equal(again.page_bytes, 4096);
    assert_int_equal(again.layout, 0xabc);
}

/* Names alone cannot collide, whatever characters they hold. */
static void separators_inside_a_field_are_escaped(void **state)
{
    (void)state;
    struct key_namespace space = plain;
    struct key_namespace again;
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    (void)snprintf(space.prefix, sizeof(space.prefix), "%s", "a/b");
    (void)snprintf(space.model, sizeof(space.model), "%s", "%2F\n\x7f\xc3\xbc");
    assert_int_equal(namespace_print(&space, text), TARN_OK);
    assert_string_equal(text, "a%2Fb/%252F%0A%7F\xc3\xbc/w2r1/lg0/t32b4096-0000000000000abc");
    assert_int_equal(namespace_parse(text, strlen(text), &again), TARN_OK);
    assert_string_equal(again.prefix, space.prefix);
    assert_string_equal(again.model, space.model);
}

static void a_namespace_without_its_mandatory_fields_has_no_text(void **state)
{
    (void)state;
    struct key_namespace spaces[8];
    char text[NAMESPACE_TEXT_BYTES_MAX + 1] = "untouched";
    for (size_t i = 0; i < LENGTH_OF(spaces); i++)
        spaces[i] = plain;
    spaces[0].prefix[0] = '\0';
    spaces[1].model[0] = '\0';
    spaces[2].world = 0;
    spaces[3].rank = 2;
    spaces[4].tokens_per_block = 0;
    spaces[5].page_bytes = 0;
    memset(spaces[6].model, 'x', sizeof(spaces[6].model));
    memset(spaces[7].model, '/', sizeof(spaces[7].model) - 1);
    for (size_t i = 0; i < LENGTH_OF(spaces); i++)
        assert_int_equal(namespace_print(&spaces[i], text), TARN_INVALID);
    assert_string_equal(text, "untouched");
}

static void only_the_one_text_of_a_namespace_is_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "tarn",
        "tarn/m",
        "/m/w2r1/lg0/t32b4096-0000000000000abc",
        "tarn//w2r1/lg0/t32b4096-0000000000000abc",
        "tarn/m/w2r1/lg0/t32b4096-0000000000000ab",
        "tarn/m/w2r1/lg0/t32b4096-0000000000000abcd",
        "tarn/m/w2r1/lg0/t32b4096-0000000000000ABC",
        "tarn/m/w2r1/lg0/t32b4096_0000000000000abc",
        "tarn/m/w2r1/lg0/t32b4096-0000000000000abc/",
        "tarn/m/w2r2/lg0/t32b4096-0000000000000abc",
        "tarn/m/w0r0/lg0/t32b4096-0000000000000abc",
        "tarn/m/w02r1/lg0/t32b4096-0000000000000abc",
        "tarn/m/wr1/lg0/t32b4096-0000000000000abc",
        "tarn/m/w4294967296r1/lg0/t32b4096-0000000000000abc",
        "tarn/m/w99999999999999999999r1/lg0/t32b4096-0000000000000abc",
        "tarn/m/w2r1/lg-1/t32b4096-0000000000000abc",
        "tarn/m/w2r1/lg0/t0b4096-0000000000000abc",
        "tarn/m/w2r1/lg0/t32b0-0000000000000abc",
        "tarn/m/w2r1/lg0/t32b18446744073709551616-0000000000000abc",
        "ta%6en/m/w2r1/lg0/t32b4096-0000000000000abc", /* needs no escape */
        "ta%2fn/m/w2r1/lg0/t32b4096-0000000000000abc", /* lower case */
        "ta%00n/m/w2r1/lg0/t32b4096-0000000000000abc",
        "ta%2/m/w2r1/lg0/t32b4096-0000000000000abc",
        "ta\nrn/m/w2r1/lg0/t32b4096-0000000000000abc", /* needs one */
    };
    struct key_namespace space = { .prefix = "untouched" };
    for (size_t i = 0; i < LENGTH_OF(wrong); i++)
        assert_int_equal(namespace_parse(wrong[i], strlen(wrong[i]), &space), TARN_INVALID);
    assert_string_equal(space.prefix, "untouched");

    for (size_t length = 0; length < strlen(plain_text); length++)
        assert_int_equal(namespace_parse(plain_text, length, &space), TARN_INVALID);
}

static void a_key_is_refused_for_its_digest_or_its_length(void **state)
{
    (void)state;
    static const char good[] =
        "tarn/m/w2r1/lg0/t32b4096-0000000000000abc/5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
    struct key_namespace space;
    struct tarn_digest digest;
    for (size_t length = 0; length < sizeof(good) - 1; length++)
        assert_int_equal(key_parse(good, length, &space, &digest), TARN_INVALID);
    char bad[sizeof(good)];
    memcpy(bad, good, sizeof(bad));
    bad[sizeof(good) - 2] = 'g';
    assert_int_equal(key_parse(bad, sizeof(bad) - 1, &space, &digest), TARN_INVALID);

    char long_text[NAMESPACE_TEXT_BYTES_MAX + 2];
    memset(long_text, 'x', sizeof(long_text));
    assert_int_equal(namespace_parse(long_text, sizeof(long_text), &space), TARN_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_namespace_field_alone_changes_the_key),
        cmocka_unit_test(a_key_has_the_documented_text_and_reads_back),
        cmocka_unit_test(separators_inside_a_field_are_escaped),
        cmocka_unit_test(a_namespace_without_its_mandatory_fields_has_no_text),
        cmocka_unit_test(only_the_one_text_of_a_namespace_is_read),
        cmocka_unit_test(a_key_is_refused_for_its_digest_or_its_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
