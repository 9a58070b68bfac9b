/* SPDX-License-Identifier: Apache-2.0 */
#include "key/namespace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIELD_TEXT_BYTES_MAX = 3 * NAMESPACE_FIELD_BYTES_MAX };

static bool byte_is_escaped(unsigned char byte)
{
    return byte < 0x20 || byte == 0x7f || byte == '/' || byte == '%';
}

/* Fails (false) on an empty field or one without an end. */
static bool field_print(const char field[NAMESPACE_FIELD_BYTES_MAX + 1],
                        char out_text[FIELD_TEXT_BYTES_MAX + 1])
{
    static const char digits[] = "0123456789ABCDEF";
    const size_t length = strnlen(field, NAMESPACE_FIELD_BYTES_MAX + 1);
    if (length == 0 || length > NAMESPACE_FIELD_BYTES_MAX)
        return false;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)field[i];
        if (byte_is_escaped(byte)) {
            *out_text++ = '%';
            *out_text++ = digits[byte >> 4];
            *out_text++ = digits[byte & 15];
        } else {
            *out_text++ = field[i];
        }
    }
    *out_text = '\0';
    return true;
}

enum tarn_status namespace_print(const struct key_namespace *space,
                                 char out_text[NAMESPACE_TEXT_BYTES_MAX + 1])
{
    char prefix[FIELD_TEXT_BYTES_MAX + 1];
    char model[FIELD_TEXT_BYTES_MAX + 1];
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    if (!field_print(space->prefix, prefix) || !field_print(space->model, model))
        return TARN_INVALID;
    if (space->rank >= space->world || space->tokens_per_block == 0 || space->page_bytes == 0)
        return TARN_INVALID;
    const int length = snprintf(text, sizeof(text),
                                "%s/%s/w%" PRIu32 "r%" PRIu32 "/lg%" PRIu32 "/t%" PRIu32 "b%" PRIu64
                                "-%016" PRIx64,
                                prefix, model, space->world, space->rank, space->group,
                                space->tokens_per_block, space->page_bytes, space->layout);
    if (length < 0 || length > NAMESPACE_TEXT_BYTES_MAX)
        return TARN_INVALID;
    memcpy(out_text, text, (size_t)length + 1);
    return TARN_OK;
}

size_t namespace_field_bytes(const char *field)
{
    size_t bytes = 0;
    for (; *field; field++)
        bytes += byte_is_escaped((unsigned char)*field) ? 3 : 1;
    return bytes;
}

enum tarn_status key_print(const struct key_namespace *space, const struct tarn_digest *digest,
                           char out_text[KEY_TEXT_BYTES_MAX + 1])
{
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    char hex[DIGEST_HEX_BYTES];
    TRY(namespace_print(space, text));
    digest_to_hex(digest, hex);
    (void)snprintf(out_text, KEY_TEXT_BYTES_MAX + 1, "%s/%s", text, hex);
    return TARN_OK;
}

/* A reader of characters whose failure is sticky, as in base/cursor.h. */
struct parser {
    const char *next;
    const char *end;
    bool failed;
};

static void parse_literal(struct parser *parser, const char *literal)
{
    const size_t length = strlen(literal);
    if (parser->failed || (size_t)(parser->end - parser->next) < length ||
        memcmp(parser->next, literal, length) != 0) {
        parser->failed = true;
        return;
    }
    parser->next += length;
}

static uint64_t parse_decimal(struct parser *parser, uint64_t max)
{
    uint64_t value = 0;
    const char *first = parser->next;
    for (; !parser->failed && parser->next < parser->end; parser->next++) {
        const char c = *parser->next;
        if (c < '0' || c > '9')
            break;
        const uint64_t digit = (uint64_t)(c - '0');
        if (value > (max - digit) / 10) {
            parser->failed = true;
            return 0;
        }
        value = 10 * value + digit;
    }
    const size_t length = (size_t)(parser->next - first);
    if (length == 0 || (length > 1 && *first == '0'))
        parser->failed = true;
    return parser->failed ? 0 : value;
}

static int hex_value(char c, char letter_a)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= letter_a && c <= letter_a + 5 ? c - letter_a + 10 : -1;
}

/* `digit_count` digits, letters from `letter_a` on. */
static uint64_t parse_hex(struct parser *parser, size_t digit_count, char letter_a)
{
    uint64_t value = 0;
    if (parser->failed || (size_t)(parser->end - parser->next) < digit_count) {
        parser->failed = true;
        return 0;
    }
    for (size_t i = 0; i < digit_count; i++) {
        const int digit = hex_value(*parser->next++, letter_a);
        if (digit < 0) {
            parser->failed = true;
            return 0;
        }
        value = value << 4 | (uint64_t)digit;
    }
    return value;
}

/* One byte of a field as written; a byte must be escaped if and only if it has to be. */
static char parse_field_byte(struct parser *parser)
{
    const char c = *parser->next++;
    if (c != '%') {
        parser->failed = byte_is_escaped((unsigned char)c);
        return c;
    }
    const uint64_t byte = parse_hex(parser, 2, 'A');
    if (byte == 0 || !byte_is_escaped((unsigned char)byte))
        parser->failed = true;
    return (char)(unsigned char)byte;
}

/* A field and the '/' after it. */
static void parse_field(struct parser *parser, char out_field[NAMESPACE_FIELD_BYTES_MAX + 1])
{
    size_t length = 0;
    while (!parser->failed && parser->next < parser->end && *parser->next != '/') {
        const char byte = parse_field_byte(parser);
        if (length == NAMESPACE_FIELD_BYTES_MAX)
            parser->failed = true;
        else
            out_field[length++] = byte;
    }
    if (length == 0)
        parser->failed = true;
    parse_literal(parser, "/");
}

enum tarn_status namespace_parse(const char *text, size_t length_bytes,
                                 struct key_namespace *out_space)
{
    struct key_namespace space = { .rank = 0 };
    if (length_bytes > NAMESPACE_TEXT_BYTES_MAX)
        return TARN_INVALID;
    struct parser parser = { .next = text, .end = text + length_bytes };
    parse_field(&parser, space.prefix);
    parse_field(&parser, space.model);
    parse_literal(&parser, "w");
    space.world = (uint32_t)parse_decimal(&parser, UINT32_MAX);
    parse_literal(&parser, "r");
    space.rank = (uint32_t)parse_decimal(&parser, UINT32_MAX);
    parse_literal(&parser, "/lg");
    space.group = (uint32_t)parse_decimal(&parser, UINT32_MAX);
    parse_literal(&parser, "/t");
    space.tokens_per_block = (uint32_t)parse_decimal(&parser, UINT32_MAX);
    parse_literal(&parser, "b");
    space.page_bytes = parse_decimal(&parser, UINT64_MAX);
    parse_literal(&parser, "-");
    space.layout = parse_hex(&parser, 16, 'a');
    if (parser.failed || parser.next != parser.end)
        return TARN_INVALID;
    if (space.rank >= space.world || space.tokens_per_block == 0 || space.page_bytes == 0)
        return TARN_INVALID;
    *out_space = space;
    return TARN_OK;
}

enum tarn_status key_parse(const char *text, size_t length_bytes, struct key_namespace *out_space,
                           struct tarn_digest *out_digest)
{
    enum { TAIL_BYTES = 1 + 2 * DIGEST_BYTES };
    struct tarn_digest digest;
    if (length_bytes < TAIL_BYTES || text[length_bytes - TAIL_BYTES] != '/')
        return TARN_INVALID;
    TRY(digest_from_hex(text + length_bytes - 2 * DIGEST_BYTES, 2 * DIGEST_BYTES, &digest));
    TRY(namespace_parse(text, length_bytes - TAIL_BYTES, out_space));
    *out_digest = digest;
    return TARN_OK;
}
