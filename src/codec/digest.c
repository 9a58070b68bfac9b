/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/digest.h"

#include <pthread.h>
#include <string.h>

#include <sodium.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(struct digest_stream), "state fits");
_Static_assert(alignof(crypto_generichash_state) <= alignof(struct digest_stream), "aligned");
_Static_assert(DIGEST_BYTES >= crypto_generichash_BYTES_MIN, "libsodium makes digests this short");

static pthread_once_t sodium_once = PTHREAD_ONCE_INIT;

/* Lets libsodium choose its vector code; without it the digests are the same, only slower. */
static void sodium_start(void)
{
    const int rc = sodium_init(); /* fails only without a source of random numbers: not used here */
    (void)rc;
}

static crypto_generichash_state *state_of(struct digest_stream *stream)
{
    return (crypto_generichash_state *)(void *)stream->opaque;
}

void digest_init(struct digest_stream *stream)
{
    pthread_once(&sodium_once, sodium_start);
    const int rc = crypto_generichash_init(state_of(stream), NULL, 0, DIGEST_BYTES);
    ASSERT(rc == 0);
}

void digest_update(struct digest_stream *stream, const void *data, size_t size_bytes)
{
    if (size_bytes == 0)
        return;
    const int rc = crypto_generichash_update(state_of(stream), data, size_bytes);
    ASSERT(rc == 0);
}

void digest_finish(struct digest_stream *stream, struct tarn_digest *out_digest)
{
    const int rc = crypto_generichash_final(state_of(stream), out_digest->bytes, DIGEST_BYTES);
    ASSERT(rc == 0);
}

bool digest_equal(const struct tarn_digest *a, const struct tarn_digest *b)
{
    return memcmp(a->bytes, b->bytes, DIGEST_BYTES) == 0;
}

void digest_to_hex(const struct tarn_digest *digest, char out_hex[DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out_hex[2 * i] = digits[digest->bytes[i] >> 4];
        out_hex[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    out_hex[2 * DIGEST_BYTES] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

enum tarn_status digest_from_hex(const char *hex, size_t length_bytes,
                                 struct tarn_digest *out_digest)
{
    struct tarn_digest digest;
    if (length_bytes != 2 * DIGEST_BYTES)
        return TARN_INVALID;
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        const int high = hex_digit(hex[2 * i]);
        const int low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return TARN_INVALID;
        digest.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *out_digest = digest;
    return TARN_OK;
}
