/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint64_t size_of(const char *text)
{
    struct value_reason reason;
    uint64_t bytes = 0;
    assert_int_equal(value_size(text, &bytes, &reason), TARN_OK);
    return bytes;
}

static void a_ratio_is_a_fraction_above_0_and_at_most_1(void **state)
{
    (void)state;
    static const char *const wrong[] = { "0",
                                         "0.0",
                                         "1.1",
                                         "2",
                                         "-0.5",
                                         "5%",
                                         ".5",
                                         "0.0000001",
                                         "1e-3",
                                         "1.",
                                         "99999999999999999999" };
    struct value_reason reason;
    uint64_t millionths = 0;
    assert_int_equal(value_ratio("0.05", &millionths, &reason), TARN_OK);
    assert_int_equal(millionths, 50000);
    assert_int_equal(value_ratio("1", &millionths, &reason), TARN_OK);
    assert_int_equal(millionths, 1000000);
    assert_int_equal(value_ratio("0.000001", &millionths, &reason), TARN_OK);
    assert_int_equal(millionths, 1);
    for (size_t i = 0; i < LENGTH_OF(wrong); i++) {
        reason.chars[0] = '\0';
        assert_int_equal(value_ratio(wrong[i], &millionths, &reason), TARN_INVALID);
        assert_true(reason.chars[0] != '\0');
    }
}

static void expect_size_refused(const char *text, const char *advice)
{
    struct value_reason reason;
    uint64_t bytes = 7;
    assert_int_equal(value_size(text, &bytes, &reason), TARN_INVALID);
    assert_int_equal(bytes, 7);
    assert_non_null(strstr(reason.chars, advice));
}

static void sizes_are_binary_and_a_bare_number_is_bytes(void **state)
{
    (void)state;
    assert_int_equal(size_of("0"), 0);
    assert_int_equal(size_of("512"), 512);
    assert_int_equal(size_of("512B"), 512);
    assert_int_equal(size_of("4 KiB"), 4096);
    assert_int_equal(size_of("3MiB"), 3 << 20);
    assert_int_equal(size_of("2GiB"), INT64_C(2) << 30);
    assert_int_equal(size_of("1TiB"), INT64_C(1) << 40);
}

static void decimal_units_are_refused_and_the_binary_one_is_named(void **state)
{
    (void)state;
    expect_size_refused("4KB", "write 4KiB");
    expect_size_refused("4MB", "write 4MiB");
    expect_size_refused("4GB", "write 4GiB");
    expect_size_refused("4TB", "write 4TiB");
}

static void what_is_no_size_is_refused(void **state)
{
    (void)state;
    expect_size_refused("", "digit");
    expect_size_refused("-1", "digit");
    expect_size_refused("GiB", "digit");
    expect_size_refused("1.5GiB", "whole number");
    expect_size_refused("1gib", "whole number");
    expect_size_refused("1GiBx", "whole number");
    expect_size_refused("18446744073709551616", "too large");
    expect_size_refused("17000000TiB", "too large");
}

static void times_are_milliseconds_or_seconds(void **state)
{
    (void)state;
    struct value_reason reason;
    uint64_t ms = 0;
    assert_int_equal(value_time("100", &ms, &reason), TARN_INVALID);
    assert_non_null(strstr(reason.chars, "ms or s"));
    assert_int_equal(value_time("100ms", &ms, &reason), TARN_OK);
    assert_int_equal(ms, 100);
    assert_int_equal(value_time("2s", &ms, &reason), TARN_OK);
    assert_int_equal(ms, 2000);
    assert_int_equal(value_time("2m", &ms, &reason), TARN_INVALID);
}

static void booleans_have_four_spellings_each(void **state)
{
    (void)state;
    struct value_reason reason;
    bool value = false;
    static const char *const yes[] = { "1", "true", "yes", "on" };
    static const char *const no[] = { "0", "false", "no", "off" };
    for (size_t i = 0; i < LENGTH_OF(yes); i++) {
        assert_int_equal(value_bool(yes[i], &value, &reason), TARN_OK);
        assert_true(value);
        assert_int_equal(value_bool(no[i], &value, &reason), TARN_OK);
        assert_false(value);
    }
    assert_int_equal(value_bool("On", &value, &reason), TARN_INVALID);
    assert_int_equal(value_bool("", &value, &reason), TARN_INVALID);
    assert_int_equal(value_bool("2", &value, &reason), TARN_INVALID);
}

static void a_choice_is_matched_whole(void **state)
{
    (void)state;
    struct value_reason reason;
    uint64_t index = 9;
    assert_int_equal(value_choice("f32", "f16|f32", &index, &reason), TARN_OK);
    assert_int_equal(index, 1);
    assert_int_equal(value_choice("f16", "f16|f32", &index, &reason), TARN_OK);
    assert_int_equal(index, 0);
    assert_int_equal(value_choice("f", "f16|f32", &index, &reason), TARN_INVALID);
    assert_int_equal(value_choice("f16|f32", "f16|f32", &index, &reason), TARN_INVALID);
    assert_non_null(strstr(reason.chars, "f16|f32"));
}

static void expect_secret(const char *text, const char *secret)
{
    size_t start = 0;
    const size_t length = value_secret(text, &start);
    assert_int_equal(length, strlen(secret));
    assert_memory_equal(text + start, secret, length);
}

static void the_secret_of_an_address_is_found(void **state)
{
    (void)state;
    expect_secret("redis://me:word@host:6379/0", "me:word");
    expect_secret("redis://:w@rd@host", ":w@rd");
    expect_secret("mooncake://host:1", "");
    expect_secret("http://host/a@b", "");
    expect_secret("http://@host", "");
    expect_secret("/dev/shm/a@b,size=1GiB", "");
    expect_secret("://", "");
    expect_secret("", "");
}

static void sizes_are_printed_for_people(void **state)
{
    (void)state;
    char shown[32];
    value_print_size(0, shown, sizeof(shown));
    assert_string_equal(shown, "0 B");
    value_print_size(1023, shown, sizeof(shown));
    assert_string_equal(shown, "1023 B");
    value_print_size(64 << 20, shown, sizeof(shown));
    assert_string_equal(shown, "64 MiB");
    value_print_size(3 << 29, shown, sizeof(shown));
    assert_string_equal(shown, "1.50 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ratio_is_a_fraction_above_0_and_at_most_1),
        cmocka_unit_test(sizes_are_binary_and_a_bare_number_is_bytes),
        cmocka_unit_test(decimal_units_are_refused_and_the_binary_one_is_named),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(times_are_milliseconds_or_seconds),
        cmocka_unit_test(booleans_have_four_spellings_each),
        cmocka_unit_test(a_choice_is_matched_whole),
        cmocka_unit_test(the_secret_of_an_address_is_found),
        cmocka_unit_test(sizes_are_printed_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
