/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/header.h"

#include "base/cursor.h"
#include "codec/checksum.h"
#include "codec/digest.h"

enum { VERSION = 1, CHECKED_BYTES = 48 };

_Static_assert((int)HEADER_BYTES <= (int)TARN_PAGE_HEADROOM_BYTES, "tarn.h promises engines that");

static const uint8_t magic[8] = { 'T', 'A', 'R', 'N', 'P', 'A', 'G', 'E' };

static struct tarn_digest key_digest(const char *key)
{
    struct digest_stream stream;
    struct tarn_digest digest;
    digest_init(&stream);
    digest_update(&stream, key, strlen(key));
    digest_finish(&stream, &digest);
    return digest;
}

static uint64_t spans_bytes(const struct tarn_span *spans, uint32_t span_count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < span_count; i++)
        bytes += spans[i].size_bytes;
    return bytes;
}

static struct checksum checksum_of(const uint8_t header[HEADER_BYTES],
                                   const struct tarn_span *spans, uint32_t span_count)
{
    struct checksum_state state;
    checksum_begin(&state, 0);
    checksum_add(&state, header, CHECKED_BYTES);
    for (uint32_t i = 0; i < span_count; i++)
        checksum_add(&state, spans[i].base, spans[i].size_bytes);
    return checksum_end(&state);
}

void header_write(const char *key, const struct tarn_span *spans, uint32_t span_count,
                  uint8_t out_header[HEADER_BYTES])
{
    const struct tarn_digest digest = key_digest(key);
    struct writer writer = writer_init(out_header, HEADER_BYTES);
    writer_bytes(&writer, magic, sizeof(magic));
    writer_uint(&writer, VERSION, 4);
    writer_uint(&writer, HEADER_BYTES, 4);
    writer_uint(&writer, spans_bytes(spans, span_count), 8);
    writer_bytes(&writer, &digest, sizeof(digest));
    writer_uint(&writer, 0, 8);
    const struct checksum checksum = checksum_of(out_header, spans, span_count);
    writer_uint(&writer, checksum.low, 8);
    writer_uint(&writer, checksum.high, 8);
    ASSERT(!writer.failed && writer.left_bytes == 0);
}

enum header_fault header_check(const uint8_t header[HEADER_BYTES], const char *key,
                               const struct tarn_span *spans, uint32_t span_count)
{
    struct reader reader = reader_init(header, HEADER_BYTES);
    uint8_t found_magic[sizeof(magic)];
    struct tarn_digest digest;
    const struct tarn_digest expected = key_digest(key);
    reader_bytes(&reader, found_magic, sizeof(found_magic));
    const uint64_t version = reader_uint(&reader, 4);
    const uint64_t header_bytes = reader_uint(&reader, 4);
    const uint64_t payload_bytes = reader_uint(&reader, 8);
    reader_bytes(&reader, &digest, sizeof(digest));
    const uint64_t zero = reader_uint(&reader, 8);
    struct checksum checksum = { .low = reader_uint(&reader, 8) };
    checksum.high = reader_uint(&reader, 8);
    if (memcmp(found_magic, magic, sizeof(magic)) != 0 || version != VERSION ||
        header_bytes != HEADER_BYTES || zero != 0 ||
        payload_bytes != spans_bytes(spans, span_count))
        return HEADER_NOT_OURS;
    if (!digest_equal(&digest, &expected))
        return HEADER_OTHER_KEY;
    return checksum_equal(checksum, checksum_of(header, spans, span_count)) ? HEADER_SOUND
                                                                            : HEADER_CHANGED;
}

const char *header_fault_text(enum header_fault fault)
{
    static const char *const texts[] = {
        [HEADER_SOUND] = "sound",
        [HEADER_NOT_OURS] = "no page of this version and length",
        [HEADER_OTHER_KEY] = "the page of another key",
        [HEADER_CHANGED] = "changed since it was put (checksum)",
    };
    return texts[fault];
}
