/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope.h - who may reuse a page: the fields, apart from the tokens, that decide what it holds.
 *
 * The seed of a chain is the digest of the scope's fields in the order of `enum scope_tag`, each
 * written as tag (u8), length (u32, little endian), bytes. An absent field is not written; an
 * empty salt is an absent salt. Two scopes that differ in one field share no block.
 * docs/key-scheme.md has the format and golden vectors. Pure; nothing here allocates.
 */
#ifndef KEY_SCOPE_H
#define KEY_SCOPE_H

#include "codec/digest.h"

enum { SCOPE_FORMAT_VERSION = 1, SCOPE_SALT_BYTES_MAX = 1 << 16 };

enum scope_tag {
    SCOPE_TAG_VERSION = 1,        /* u32, little endian: SCOPE_FORMAT_VERSION */
    SCOPE_TAG_SALT = 2,           /* UTF-8, as given: no normalisation */
    SCOPE_TAG_ADAPTER_DIGEST = 3, /* of the adapter's content, never of its name */
    SCOPE_TAG_ADAPTER_SCALE = 4,  /* IEEE 754 binary64, little endian; with an adapter only */
    SCOPE_TAG_MEDIA_DIGEST = 5,   /* of one multimodal content; one field each, in order */
};

/* `scope` is complete (its `size` is not looked at); NULL is the common scope. INVALID: a salt
 * above SCOPE_SALT_BYTES_MAX, a scale that is not a number, missing media digests. */
NODISCARD enum tarn_status scope_digest(const struct tarn_scope *scope,
                                        struct tarn_digest *out_seed);

#endif
