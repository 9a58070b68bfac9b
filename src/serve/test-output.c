/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

/* One output with up to two stop strings, and all that it released so far. */
struct fixture {
    struct api_stop stops[2];
    struct output output;
    struct text ready;
};

static void fixture_init(struct fixture *f, const char *first, const char *second)
{
    uint32_t count = 0;
    *f = (struct fixture){ 0 };
    if (first)
        f->stops[count++] = (struct api_stop){ first, strlen(first) };
    if (second)
        f->stops[count++] = (struct api_stop){ second, strlen(second) };
    output_init(&f->output, f->stops, count);
    text_init(&f->ready, 1000);
}

static void fixture_deinit(struct fixture *f)
{
    output_deinit(&f->output);
    text_deinit(&f->ready);
}

static void push(struct fixture *f, const char *piece, const char *ready)
{
    assert_int_equal(output_push(&f->output, piece, strlen(piece), &f->ready), TARN_OK);
    assert_string_equal(text_chars(&f->ready), ready);
}

static void finish(struct fixture *f, const char *ready)
{
    assert_int_equal(output_finish(&f->output, &f->ready), TARN_OK);
    assert_string_equal(text_chars(&f->ready), ready);
    fixture_deinit(f);
}

static void text_without_stops_is_released_at_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, NULL, NULL);
    push(&f, "Hel", "Hel");
    push(&f, "", "Hel");
    push(&f, "lo", "Hello");
    finish(&f, "Hello");
}

static void a_character_split_over_tokens_is_held_until_complete(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, NULL, NULL);
    push(&f, "a\xf0\x9f", "a");
    push(&f, "\x98", "a");
    push(&f, "\x80!", "a\xf0\x9f\x98\x80!");
    push(&f, "\xc3", "a\xf0\x9f\x98\x80!");
    push(&f, "\xa9", "a\xf0\x9f\x98\x80!\xc3\xa9");
    finish(&f, "a\xf0\x9f\x98\x80!\xc3\xa9");
}

static void bytes_that_are_no_utf8_are_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        const char *out;
    } rows[] = {
        { "a\xff"
          "b",
          "a\xef\xbf\xbd"
          "b" },                                    /* never a byte of UTF-8 */
        { "\x80", "\xef\xbf\xbd" },                 /* a continuation alone */
        { "\xc3z", "\xef\xbf\xbdz" },               /* cut short by another */
        { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" }, /* long form */
        { "\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* surrogate */
        { "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xe2\x82", "\xef\xbf\xbd" }, /* the end cuts it */
        { "\xc3\xc3\xa9", "\xef\xbf\xbd\xc3\xa9" },
    };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        struct text out;
        text_init(&out, 100);
        assert_int_equal(output_sanitise(rows[i].in, strlen(rows[i].in), &out), TARN_OK);
        assert_string_equal(text_chars(&out), rows[i].out);
        text_deinit(&out);
    }
}

static void a_nul_is_replaced(void **state)
{
    (void)state;
    struct text out;
    text_init(&out, 100);
    assert_int_equal(output_sanitise("a\0b", 3, &out), TARN_OK);
    assert_string_equal(text_chars(&out), "a\xef\xbf\xbd"
                                          "b");
    text_deinit(&out);
}

static void a_stop_string_across_tokens_ends_the_text_before_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "\n\nUser:", NULL);
    push(&f, "Yes.\n", "Yes.");
    push(&f, "\nUs", "Yes.");
    push(&f, "er: more", "Yes.");
    assert_true(f.output.stopped);
    finish(&f, "Yes.");
}

static void what_only_began_like_a_stop_string_is_released(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "END", NULL);
    push(&f, "xE", "x");
    push(&f, "N", "x");
    push(&f, "E", "xEN");
    push(&f, "NX", "xENENX");
    push(&f, "EN", "xENENX");
    assert_false(f.output.stopped);
    finish(&f, "xENENXEN");
}

static void the_earliest_of_several_stop_strings_counts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "cd", "bc");
    push(&f, "abcd", "a");
    assert_true(f.output.stopped);
    finish(&f, "a");
    fixture_init(&f, "abcX", "b");
    push(&f, "za", "z");
    push(&f, "b", "za");
    assert_true(f.output.stopped);
    finish(&f, "za");
}

static void a_stop_string_may_contain_characters_of_several_bytes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "\xc3\xa9t", NULL);
    push(&f, "\xc3", "");
    push(&f, "\xa9", "");
    push(&f, "\xc3", "");
    push(&f, "\xa9t", "\xc3\xa9");
    assert_true(f.output.stopped);
    finish(&f, "\xc3\xa9");
}

/* However a text is cut into tokens, the same comes out. */
static void the_cut_into_tokens_does_not_matter(void **state)
{
    (void)state;
    static const char whole[] = "na\xc3\xafve ab\xe2\x82\xac"
                                "abba\xf0\x9f\x98\x80"
                                "abb!";
    static const char wanted[] = "na\xc3\xafve ab\xe2\x82\xac"
                                 "abba\xf0\x9f\x98\x80";
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct fixture f;
        fixture_init(&f, "abb!", "never");
        size_t at = 0;
        while (at < sizeof(whole) - 1 && !f.output.stopped) {
            seed = seed * 1664525 + 1013904223;
            size_t length_bytes = 1 + (seed >> 16) % 5;
            if (length_bytes > sizeof(whole) - 1 - at)
                length_bytes = sizeof(whole) - 1 - at;
            assert_int_equal(output_push(&f.output, whole + at, length_bytes, &f.ready), TARN_OK);
            at += length_bytes;
        }
        finish(&f, wanted);
    }
}

static enum tarn_status push_some(void)
{
    const struct api_stop stop = { "stop", 4 };
    struct output output;
    struct text ready;
    output_init(&output, &stop, 1);
    text_init(&ready, 100);
    enum tarn_status status = output_push(&output, "some st", 7, &ready);
    if (status == TARN_OK)
        status = output_finish(&output, &ready);
    output_deinit(&output);
    text_deinit(&ready);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(push_some) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_without_stops_is_released_at_once),
        cmocka_unit_test(a_character_split_over_tokens_is_held_until_complete),
        cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(a_nul_is_replaced),
        cmocka_unit_test(a_stop_string_across_tokens_ends_the_text_before_it),
        cmocka_unit_test(what_only_began_like_a_stop_string_is_released),
        cmocka_unit_test(the_earliest_of_several_stop_strings_counts),
        cmocka_unit_test(a_stop_string_may_contain_characters_of_several_bytes),
        cmocka_unit_test(the_cut_into_tokens_does_not_matter),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
