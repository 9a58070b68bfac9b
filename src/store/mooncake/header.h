/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header.h - the 64 bytes before each page's bytes in a distributed store.
 *
 * Little endian:
 *   0   8  "TARNPAGE"
 *   8   4  version, 1
 *   12  4  bytes of this header, 64
 *   16  8  bytes that follow it
 *   24 16  digest of the key's text (BLAKE2b): bytes are bound to their key
 *   40  8  zero
 *   48 16  XXH3-128, seed 0, of the 48 bytes above and of all that follows the header: low word,
 * high word Pure; any thread.
 */
#ifndef STORE_MOONCAKE_HEADER_H
#define STORE_MOONCAKE_HEADER_H

#include "base/base.h"

enum { HEADER_BYTES = 64 };

enum header_fault { HEADER_SOUND, HEADER_NOT_OURS, HEADER_OTHER_KEY, HEADER_CHANGED };

/* The header of an object with this key whose bytes are the spans, one after the other. */
void header_write(const char *key, const struct tarn_span *spans, uint32_t span_count,
                  uint8_t out_header[HEADER_BYTES]);

/* Whether the header belongs to the key, and to exactly these bytes. NOT_OURS: no header of this
 * version, or of another length; CHANGED: the checksum differs. */
enum header_fault header_check(const uint8_t header[HEADER_BYTES], const char *key,
                               const struct tarn_span *spans, uint32_t span_count);

const char *header_fault_text(enum header_fault fault);

#endif
