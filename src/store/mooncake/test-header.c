/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/header.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define KEY "tarn/m/w1r0/lg0/t32b7-0000000000000000/00112233445566778899aabbccddeeff"

static uint8_t bytes[] = "seven..";

static void a_header_binds_bytes_to_their_key(void **state)
{
    (void)state;
    const struct tarn_span span = { bytes, 7 };
    uint8_t header[HEADER_BYTES];
    header_write(KEY, &span, 1, header);
    assert_int_equal(header_check(header, KEY, &span, 1), HEADER_SOUND);
    assert_int_equal(header_check(header, "another", &span, 1), HEADER_OTHER_KEY);
}

/* What other programs may rely on. */
static void the_format_is_what_the_header_says(void **state)
{
    (void)state;
    static const uint8_t expected[HEADER_BYTES] = {
        'T', 'A', 'R', 'N', 'P', 'A', 'G', 'E', 1, 0, 0, 0, 64, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        /* BLAKE2b-128 of the key, zero, XXH3-128: of another implementation (Python's) */
        0xdc, 0x98, 0x60, 0x71, 0x26, 0xa9, 0x9e, 0x1e, 0x9e, 0x50, 0x60, 0xe2, 0x3c, 0x3f, 0xf0,
        0x12, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x11, 0xd3, 0x36, 0x1d, 0x0a, 0x00,
        0x2d, 0xe0, 0x71, 0x3e, 0x2a, 0x4e, 0x01, 0x9e, 0xa5, 0x17
    };
    const struct tarn_span span = { bytes, 7 };
    uint8_t header[HEADER_BYTES];
    header_write(KEY, &span, 1, header);
    assert_memory_equal(header, expected, HEADER_BYTES);
}

static void every_changed_bit_is_noticed(void **state)
{
    (void)state;
    const struct tarn_span span = { bytes, 7 };
    uint8_t header[HEADER_BYTES];
    header_write(KEY, &span, 1, header);
    for (size_t bit = 0; bit < 8 * (HEADER_BYTES + (size_t)7); bit++) {
        uint8_t *at = bit / 8 < HEADER_BYTES ? &header[bit / 8] : &bytes[bit / 8 - HEADER_BYTES];
        *at ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(header_check(header, KEY, &span, 1), HEADER_SOUND);
        *at ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(header_check(header, KEY, &span, 1), HEADER_SOUND);
}

static void zeros_are_no_header(void **state)
{
    (void)state;
    const struct tarn_span span = { bytes, 7 };
    const uint8_t header[HEADER_BYTES] = { 0 };
    assert_int_equal(header_check(header, KEY, &span, 1), HEADER_NOT_OURS);
}

static void spans_may_be_cut_anywhere_and_lengths_may_not(void **state)
{
    (void)state;
    const struct tarn_span whole = { bytes, 7 };
    const struct tarn_span parts[] = { { bytes, 1 }, { bytes + 1, 5 }, { bytes + 6, 1 } };
    const struct tarn_span shorter = { bytes, 6 };
    uint8_t header[HEADER_BYTES];
    header_write(KEY, parts, 3, header);
    assert_int_equal(header_check(header, KEY, &whole, 1), HEADER_SOUND);
    assert_int_equal(header_check(header, KEY, parts, 2), HEADER_NOT_OURS);
    assert_int_equal(header_check(header, KEY, &shorter, 1), HEADER_NOT_OURS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_binds_bytes_to_their_key),
        cmocka_unit_test(the_format_is_what_the_header_says),
        cmocka_unit_test(every_changed_bit_is_noticed),
        cmocka_unit_test(zeros_are_no_header),
        cmocka_unit_test(spans_may_be_cut_anywhere_and_lengths_may_not),
    };
    return cmocka_run_group_tests_name("mooncake header", tests, NULL, NULL);
}
