/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace.h - what the bytes under a digest mean, and the text of a key.
 *
 * namespace: {prefix}/{model}/w{world}r{rank}/lg{group}/t{tokens_per_block}b{page_bytes}-{layout}
 * key:       {namespace}/{digest}
 * `layout` is 16 and `digest` 32 lower-case hexadecimal digits, the numbers are decimal without
 * leading zeros. In prefix and model the characters '/' and '%' and control bytes are written %XX
 * (upper case), all others as they are, so each key has exactly one text. Pages that differ in any
 * field never meet: a mismatch reads as a miss. Pure; nothing here allocates.
 */
#ifndef KEY_NAMESPACE_H
#define KEY_NAMESPACE_H

#include "codec/digest.h"

enum {
    NAMESPACE_FIELD_BYTES_MAX = 320, /* of prefix and of model, as given */
    NAMESPACE_TEXT_BYTES_MAX = 479,  /* of the whole text; the terminator is not counted */
    NAMESPACE_REST_BYTES_MAX = 87,   /* of all but prefix and model, whatever the numbers */
    NAMESPACE_NAMES_BYTES_MAX = NAMESPACE_TEXT_BYTES_MAX - NAMESPACE_REST_BYTES_MAX,
    KEY_TEXT_BYTES_MAX = NAMESPACE_TEXT_BYTES_MAX + 1 + 2 * DIGEST_BYTES,
};

/* Strings are terminated and not empty. Zeroed is not a namespace: every field but rank, group and
 * layout is mandatory. */
struct key_namespace {
    char prefix[NAMESPACE_FIELD_BYTES_MAX + 1];
    char model[NAMESPACE_FIELD_BYTES_MAX + 1];
    uint32_t world; /* ranks that a page is split over, 1 or more */
    uint32_t rank;  /* below world */
    uint32_t group;
    uint32_t tokens_per_block;
    uint64_t page_bytes;
    uint64_t layout; /* fingerprint: what makes the same length mean other bytes */
};

/* INVALID: a missing or out-of-range field, or a text above NAMESPACE_TEXT_BYTES_MAX. */
NODISCARD enum tarn_status namespace_print(const struct key_namespace *space,
                                           char out_text[NAMESPACE_TEXT_BYTES_MAX + 1]);

/* Bytes that a prefix or model takes in the text. When both together take at most
 * NAMESPACE_NAMES_BYTES_MAX, no number can make the text too long. */
size_t namespace_field_bytes(const char *field);

/* The inverse, for bytes from anywhere: INVALID unless printing the result gives the same text. */
NODISCARD enum tarn_status namespace_parse(const char *text, size_t length_bytes,
                                           struct key_namespace *out_space);

NODISCARD enum tarn_status key_print(const struct key_namespace *space,
                                     const struct tarn_digest *digest,
                                     char out_text[KEY_TEXT_BYTES_MAX + 1]);
NODISCARD enum tarn_status key_parse(const char *text, size_t length_bytes,
                                     struct key_namespace *out_space,
                                     struct tarn_digest *out_digest);

#endif
