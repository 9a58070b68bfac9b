/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/fingerprint.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct tarn_kv_format plain = {
    .size = sizeof(plain),
    .element_type = "f16",
    .order = "layer,kv,token,head,dim",
    .layer_count = 30,
    .head_count = 3,
    .key_head_size = 64,
    .value_head_size = 64,
    .rope_dimensions = 64,
    .rope_base = 100000,
    .rope_type = "normal",
};

static uint64_t of(const struct tarn_kv_format *format)
{
    uint64_t fingerprint = 0;
    assert_int_equal(fingerprint_of_format(format, &fingerprint), TARN_OK);
    return fingerprint;
}

/* Another layout of the same length is another key. */
static void each_field_of_the_format_alone_changes_the_fingerprint(void **state)
{
    (void)state;
    struct tarn_kv_format formats[15];
    for (size_t i = 0; i < LENGTH_OF(formats); i++)
        formats[i] = plain;
    formats[1].element_type = "bf16";
    formats[2].quantisation = "k8v4";
    formats[3].order = "layer,kv,head,token,dim";
    formats[4].layer_count = 31;
    formats[5].head_count = 4;
    formats[6].key_head_size = 32;
    formats[7].value_head_size = 32;
    formats[8].rope_dimensions = 32;
    formats[9].rope_base = 10000;
    formats[10].rope_scale = 8;
    formats[11].rope_type = "neox";
    formats[12].window_tokens = 512;
    formats[13].other = "x";
    formats[13].other_size_bytes = 1;
    formats[14].other = "xy";
    formats[14].other_size_bytes = 2;
    for (size_t i = 0; i < LENGTH_OF(formats); i++) {
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(of(&formats[i]), of(&formats[j]));
    }
}

static void an_absent_text_is_an_empty_text(void **state)
{
    (void)state;
    struct tarn_kv_format format = plain;
    format.quantisation = "";
    assert_int_equal(of(&format), of(&plain));
}

static void a_format_without_meaning_is_refused(void **state)
{
    (void)state;
    struct tarn_kv_format formats[7];
    uint64_t fingerprint = 5;
    char endless[300];
    memset(endless, 'x', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    for (size_t i = 0; i < LENGTH_OF(formats); i++)
        formats[i] = plain;
    formats[0].element_type = NULL;
    formats[1].order = "";
    formats[2].layer_count = 0;
    formats[3].rope_base = (double)NAN;
    formats[4].rope_scale = (double)NAN;
    formats[5].rope_type = endless;
    formats[6].other_size_bytes = 3;
    for (size_t i = 0; i < LENGTH_OF(formats); i++)
        assert_int_equal(fingerprint_of_format(&formats[i], &fingerprint), TARN_INVALID);
    assert_int_equal(fingerprint, 5);
}

static void what_lies_in_a_page_counts_and_where_it_lies_does_not(void **state)
{
    (void)state;
    const uint32_t layers[] = { 0, 1 };
    const uint32_t other_layers[] = { 2, 3 };
    const struct tarn_buffer key_value[] = { { 0, TARN_KEY }, { 0, TARN_VALUE } };
    const struct tarn_buffer value_key[] = { { 0, TARN_VALUE }, { 0, TARN_KEY } };
    struct tarn_region region = { 1000, 64, 64, 8, key_value, 2 };
    struct tarn_group group = { 0, 0, layers, 2, &region, 1 };
    const uint64_t first = fingerprint_of_group(&group, 7);

    region = (struct tarn_region){ 5000, 64, 128, 16, key_value, 2 };
    assert_int_equal(fingerprint_of_group(&group, 7), first);
    assert_int_not_equal(fingerprint_of_group(&group, 8), first);
    group.window_tokens = 512;
    assert_int_not_equal(fingerprint_of_group(&group, 7), first);
    group.window_tokens = 0;
    group.layers = other_layers;
    assert_int_not_equal(fingerprint_of_group(&group, 7), first);
    group.layers = layers;
    region.buffers = value_key;
    assert_int_not_equal(fingerprint_of_group(&group, 7), first);
    region.buffers = key_value;
    region.size_bytes = 65;
    assert_int_not_equal(fingerprint_of_group(&group, 7), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_of_the_format_alone_changes_the_fingerprint),
        cmocka_unit_test(an_absent_text_is_an_empty_text),
        cmocka_unit_test(a_format_without_meaning_is_refused),
        cmocka_unit_test(what_lies_in_a_page_counts_and_where_it_lies_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
