/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void digest_of(const void *data, size_t size_bytes, char out_hex[DIGEST_HEX_BYTES])
{
    struct digest_stream stream;
    struct tarn_digest digest;
    digest_init(&stream);
    digest_update(&stream, data, size_bytes);
    digest_finish(&stream, &digest);
    digest_to_hex(&digest, out_hex);
}

/* Expected values: Python's hashlib.blake2b(data, digest_size=16). */
static void digests_are_blake2b_with_16_bytes(void **state)
{
    (void)state;
    char hex[DIGEST_HEX_BYTES];
    digest_of("", 0, hex);
    assert_string_equal(hex, "cae66941d9efbd404e4d88758ea67670");
    digest_of("abc", 3, hex);
    assert_string_equal(hex, "cf4ab791c62b8d2b2109c90275287816");
}

static void a_stream_of_parts_gives_the_digest_of_the_whole(void **state)
{
    (void)state;
    uint8_t data[1000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    char whole[DIGEST_HEX_BYTES];
    digest_of(data, sizeof(data), whole);

    struct digest_stream stream;
    digest_init(&stream);
    size_t done = 0;
    for (size_t step = 0; done < sizeof(data); step++) {
        const size_t part = step < sizeof(data) - done ? step : sizeof(data) - done;
        digest_update(&stream, data + done, part);
        done += part;
    }
    struct tarn_digest digest;
    char hex[DIGEST_HEX_BYTES];
    digest_finish(&stream, &digest);
    digest_to_hex(&digest, hex);
    assert_string_equal(hex, whole);
}

static void hexadecimal_reads_back_and_nothing_else_is_accepted(void **state)
{
    (void)state;
    const char *hex = "00f1e2d3c4b5a69788796a5b4c3d2e1f";
    struct tarn_digest digest;
    char again[DIGEST_HEX_BYTES];
    assert_int_equal(digest_from_hex(hex, strlen(hex), &digest), TARN_OK);
    digest_to_hex(&digest, again);
    assert_string_equal(again, hex);

    const struct tarn_digest before = digest;
    assert_int_equal(digest_from_hex(hex, 31, &digest), TARN_INVALID);
    assert_int_equal(digest_from_hex("00F1e2d3c4b5a69788796a5b4c3d2e1f", 32, &digest),
                     TARN_INVALID);
    assert_int_equal(digest_from_hex("00g1e2d3c4b5a69788796a5b4c3d2e1f", 32, &digest),
                     TARN_INVALID);
    assert_true(digest_equal(&digest, &before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_blake2b_with_16_bytes),
        cmocka_unit_test(a_stream_of_parts_gives_the_digest_of_the_whole),
        cmocka_unit_test(hexadecimal_reads_back_and_nothing_else_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
