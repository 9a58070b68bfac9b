/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - BLAKE2b with 16 bytes of output, no key, no personalisation (RFC 7693).
 *
 * The same input gives the same digest on every machine, in every process, in any language. Nothing
 * here allocates or fails; a stream belongs to one thread.
 */
#ifndef CODEC_DIGEST_H
#define CODEC_DIGEST_H

#include <stdalign.h>

#include "base/base.h"

enum {
    DIGEST_BYTES = sizeof(struct tarn_digest),
    DIGEST_HEX_BYTES = 2 * DIGEST_BYTES + 1, /* with the terminator */
};

struct digest_stream {
    alignas(64) uint8_t opaque[384];
};

void digest_init(struct digest_stream *stream);
void digest_update(struct digest_stream *stream, const void *data, size_t size_bytes);
/* The stream is spent afterwards; digest_init() makes it usable again. */
void digest_finish(struct digest_stream *stream, struct tarn_digest *out_digest);

bool digest_equal(const struct tarn_digest *a, const struct tarn_digest *b);

/* 32 lower-case digits and a terminator. */
void digest_to_hex(const struct tarn_digest *digest, char out_hex[DIGEST_HEX_BYTES]);
/* Read exactly 32 lower-case digits at `hex`; anything else is INVALID. */
NODISCARD enum tarn_status digest_from_hex(const char *hex, size_t length_bytes,
                                           struct tarn_digest *out_digest);

#endif
