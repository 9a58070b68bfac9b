/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/fingerprint.h"

#include <math.h>
#include <string.h>

#include "base/cursor.h"
#include "codec/digest.h"

enum { TEXT_BYTES_MAX = 256, OTHER_BYTES_MAX = 1 << 20 };

/* Tags are part of the format: never reuse one. */
enum fingerprint_tag {
    TAG_VERSION = 1,
    TAG_ELEMENT_TYPE,
    TAG_QUANTISATION,
    TAG_ORDER,
    TAG_LAYER_COUNT,
    TAG_HEAD_COUNT,
    TAG_KEY_HEAD_SIZE,
    TAG_VALUE_HEAD_SIZE,
    TAG_ROPE_DIMENSIONS,
    TAG_ROPE_BASE,
    TAG_ROPE_SCALE,
    TAG_ROPE_TYPE,
    TAG_WINDOW,
    TAG_OTHER,
    TAG_FORMAT = 64, /* from here on: of groups */
    TAG_LAYER,
    TAG_REGION_BYTES,
    TAG_BUFFER_LAYER,
    TAG_BUFFER_ROLE,
};

static void add_bytes(struct digest_stream *stream, enum fingerprint_tag tag, const void *data,
                      size_t size_bytes)
{
    uint8_t head[5];
    struct writer writer = writer_init(head, sizeof(head));
    writer_uint(&writer, tag, 1);
    writer_uint(&writer, size_bytes, 4);
    digest_update(stream, head, sizeof(head));
    digest_update(stream, data, size_bytes);
}

static void add_text(struct digest_stream *stream, enum fingerprint_tag tag, const char *text)
{
    add_bytes(stream, tag, text, text ? strlen(text) : 0);
}

static void add_uint(struct digest_stream *stream, enum fingerprint_tag tag, uint64_t value)
{
    uint8_t raw[8];
    struct writer writer = writer_init(raw, sizeof(raw));
    writer_uint(&writer, value, sizeof(raw));
    add_bytes(stream, tag, raw, sizeof(raw));
}

static void add_double(struct digest_stream *stream, enum fingerprint_tag tag, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    add_uint(stream, tag, bits);
}

static uint64_t finish(struct digest_stream *stream)
{
    struct tarn_digest digest;
    uint64_t value = 0;
    digest_finish(stream, &digest);
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | digest.bytes[i];
    return value;
}

static bool text_is_sound(const char *text, bool mandatory)
{
    if (!text || !text[0])
        return !mandatory;
    return strnlen(text, TEXT_BYTES_MAX + 1) <= TEXT_BYTES_MAX;
}

static bool format_is_sound(const struct tarn_kv_format *format)
{
    if (!text_is_sound(format->element_type, true) || !text_is_sound(format->order, true))
        return false;
    if (!text_is_sound(format->quantisation, false) || !text_is_sound(format->rope_type, false))
        return false;
    if (format->layer_count == 0 || isnan(format->rope_base) || isnan(format->rope_scale))
        return false;
    return format->other_size_bytes <= OTHER_BYTES_MAX &&
           (format->other || format->other_size_bytes == 0);
}

enum tarn_status fingerprint_of_format(const struct tarn_kv_format *format,
                                       uint64_t *out_fingerprint)
{
    if (!format_is_sound(format))
        return TARN_INVALID;

    struct digest_stream stream;
    digest_init(&stream);
    add_uint(&stream, TAG_VERSION, 1);
    add_text(&stream, TAG_ELEMENT_TYPE, format->element_type);
    add_text(&stream, TAG_QUANTISATION, format->quantisation);
    add_text(&stream, TAG_ORDER, format->order);
    add_uint(&stream, TAG_LAYER_COUNT, format->layer_count);
    add_uint(&stream, TAG_HEAD_COUNT, format->head_count);
    add_uint(&stream, TAG_KEY_HEAD_SIZE, format->key_head_size);
    add_uint(&stream, TAG_VALUE_HEAD_SIZE, format->value_head_size);
    add_uint(&stream, TAG_ROPE_DIMENSIONS, format->rope_dimensions);
    add_double(&stream, TAG_ROPE_BASE, format->rope_base);
    add_double(&stream, TAG_ROPE_SCALE, format->rope_scale);
    add_text(&stream, TAG_ROPE_TYPE, format->rope_type);
    add_uint(&stream, TAG_WINDOW, format->window_tokens);
    add_bytes(&stream, TAG_OTHER, format->other, format->other_size_bytes);
    *out_fingerprint = finish(&stream);
    return TARN_OK;
}

uint64_t fingerprint_of_group(const struct tarn_group *group, uint64_t format_fingerprint)
{
    struct digest_stream stream;
    digest_init(&stream);
    add_uint(&stream, TAG_VERSION, 1);
    add_uint(&stream, TAG_FORMAT, format_fingerprint);
    add_uint(&stream, TAG_WINDOW, group->window_tokens);
    for (size_t i = 0; i < group->layer_count; i++)
        add_uint(&stream, TAG_LAYER, group->layers[i]);
    for (size_t i = 0; i < group->region_count; i++) {
        const struct tarn_region *region = &group->regions[i];
        add_uint(&stream, TAG_REGION_BYTES, region->size_bytes);
        for (size_t j = 0; j < region->buffer_count; j++) {
            add_uint(&stream, TAG_BUFFER_LAYER, region->buffers[j].layer);
            add_uint(&stream, TAG_BUFFER_ROLE, region->buffers[j].role);
        }
    }
    return finish(&stream);
}
