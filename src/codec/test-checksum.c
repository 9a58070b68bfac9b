/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/checksum.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SAMPLE_BYTES = 20000 };

static void sample_fill(uint8_t *bytes)
{
    for (size_t i = 0; i < SAMPLE_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
}

static struct checksum checksum_of(const uint8_t *bytes, size_t size_bytes, size_t piece_bytes,
                                   uint64_t seed)
{
    struct checksum_state state;
    checksum_begin(&state, seed);
    for (size_t done = 0; done < size_bytes;) {
        const size_t left = size_bytes - done;
        const size_t piece = left < piece_bytes ? left : piece_bytes;
        checksum_add(&state, bytes + done, piece);
        done += piece;
    }
    return checksum_end(&state);
}

static void the_checksum_of_nothing_is_the_published_one(void **state)
{
    (void)state;
    /* XXH128 of the empty input with seed 0: 99aa06d3014798d86001c324468d497f */
    const struct checksum sum = checksum_of(NULL, 0, 1, 0);
    assert_true(sum.high == UINT64_C(0x99aa06d3014798d8));
    assert_true(sum.low == UINT64_C(0x6001c324468d497f));
}

static void pieces_give_the_same_checksum_as_the_whole(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_BYTES];
    sample_fill(bytes);
    const size_t pieces[] = { 1, 3, 64, 240, 255, 256, 257, 1024, 4096, 9000 };
    const struct checksum whole = checksum_of(bytes, SAMPLE_BYTES, SAMPLE_BYTES, 99);
    for (size_t i = 0; i < LENGTH_OF(pieces); i++)
        assert_true(checksum_equal(whole, checksum_of(bytes, SAMPLE_BYTES, pieces[i], 99)));
}

static void one_changed_byte_or_seed_changes_the_checksum(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_BYTES];
    sample_fill(bytes);
    const struct checksum whole = checksum_of(bytes, SAMPLE_BYTES, SAMPLE_BYTES, 1);
    assert_false(checksum_equal(whole, checksum_of(bytes, SAMPLE_BYTES, SAMPLE_BYTES, 2)));
    for (size_t i = 0; i < SAMPLE_BYTES; i += 37) {
        bytes[i] ^= 1;
        assert_false(checksum_equal(whole, checksum_of(bytes, SAMPLE_BYTES, SAMPLE_BYTES, 1)));
        bytes[i] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_of_nothing_is_the_published_one),
        cmocka_unit_test(pieces_give_the_same_checksum_as_the_whole),
        cmocka_unit_test(one_changed_byte_or_seed_changes_the_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
