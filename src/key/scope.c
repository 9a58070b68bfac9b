/* SPDX-License-Identifier: Apache-2.0 */
#include "key/scope.h"

#include <math.h>
#include <string.h>

#include "base/cursor.h"

static void field_add(struct digest_stream *stream, enum scope_tag tag, const void *data,
                      size_t size_bytes)
{
    uint8_t head[5];
    struct writer writer = writer_init(head, sizeof(head));
    writer_uint(&writer, tag, 1);
    writer_uint(&writer, size_bytes, 4);
    digest_update(stream, head, sizeof(head));
    digest_update(stream, data, size_bytes);
}

static void field_add_uint(struct digest_stream *stream, enum scope_tag tag, uint64_t value,
                           size_t size_bytes)
{
    uint8_t raw[8];
    struct writer writer = writer_init(raw, sizeof(raw));
    writer_uint(&writer, value, size_bytes);
    field_add(stream, tag, raw, size_bytes);
}

static uint64_t double_bits(double value)
{
    uint64_t bits;
    _Static_assert(sizeof(bits) == sizeof(value), "binary64");
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

enum tarn_status scope_digest(const struct tarn_scope *scope, struct tarn_digest *out_seed)
{
    static const struct tarn_scope common = { .size = sizeof(common) };
    if (!scope)
        scope = &common;
    const char *salt = scope->cache_salt ? scope->cache_salt : "";
    const size_t salt_bytes = strnlen(salt, SCOPE_SALT_BYTES_MAX + 1);
    if (salt_bytes > SCOPE_SALT_BYTES_MAX || (scope->media_count && !scope->media))
        return TARN_INVALID;
    if (scope->adapter && isnan(scope->adapter_scale))
        return TARN_INVALID;

    struct digest_stream stream;
    digest_init(&stream);
    field_add_uint(&stream, SCOPE_TAG_VERSION, SCOPE_FORMAT_VERSION, 4);
    if (salt_bytes)
        field_add(&stream, SCOPE_TAG_SALT, salt, salt_bytes);
    if (scope->adapter) {
        field_add(&stream, SCOPE_TAG_ADAPTER_DIGEST, scope->adapter->bytes, DIGEST_BYTES);
        field_add_uint(&stream, SCOPE_TAG_ADAPTER_SCALE, double_bits(scope->adapter_scale), 8);
    }
    for (size_t i = 0; i < scope->media_count; i++)
        field_add(&stream, SCOPE_TAG_MEDIA_DIGEST, scope->media[i].bytes, DIGEST_BYTES);
    digest_finish(&stream, out_seed);
    return TARN_OK;
}
