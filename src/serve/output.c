/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/output.h"

#include <string.h>

enum { OUTPUT_HELD_BYTES_MAX = 64 << 10 };

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void output_init(struct output *output, const struct api_stop *stops, uint32_t stop_count)
{
    *output = (struct output){ .stops = stops, .stop_count = stop_count };
    text_init(&output->held, OUTPUT_HELD_BYTES_MAX);
}

void output_deinit(struct output *output)
{
    text_deinit(&output->held);
}

/* Bytes of the character that starts with `first`, 0 when none does (RFC 3629). */
static uint32_t character_length(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* May `next` be the second byte after `first`? Excludes long forms, surrogates, and what lies above
 * U+10FFFF. */
static bool second_fits(uint8_t first, uint8_t next)
{
    const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return next >= least && next <= most;
}

static bool character_fits(const struct output *output, uint8_t next)
{
    if (output->character_bytes == 1)
        return second_fits(output->character[0], next);
    return next >= 0x80 && next <= 0xbf;
}

static enum tarn_status byte_push(struct output *output, uint8_t byte)
{
    if (output->character_bytes > 0) {
        if (character_fits(output, byte)) {
            output->character[output->character_bytes++] = byte;
            if (output->character_bytes < character_length(output->character[0]))
                return TARN_OK;
            const uint32_t length_bytes = output->character_bytes;
            output->character_bytes = 0;
            return text_append_bytes(&output->held, output->character, length_bytes);
        }
        output->character_bytes = 0; /* cut short: `byte` starts anew */
        TRY(text_append_bytes(&output->held, replacement, 3));
    }
    if (character_length(byte) == 0 || byte == 0)
        return text_append_bytes(&output->held, replacement, 3);
    if (character_length(byte) == 1)
        return text_append_bytes(&output->held, &byte, 1);
    output->character[0] = byte;
    output->character_bytes = 1;
    return TARN_OK;
}

/* Where the earliest stop string starts, or SIZE_MAX. */
static size_t stop_find(const struct output *output)
{
    size_t earliest = SIZE_MAX;
    for (uint32_t i = 0; i < output->stop_count; i++) {
        const char *held = text_chars(&output->held);
        const char *found = memmem(held, output->held.length_bytes, output->stops[i].chars,
                                   output->stops[i].length_bytes);
        if (found && (size_t)(found - held) < earliest)
            earliest = (size_t)(found - held);
    }
    return earliest;
}

/* Length of the longest end of what is held that begins a stop string. */
static size_t stop_begun_bytes(const struct output *output)
{
    const char *end = text_chars(&output->held) + output->held.length_bytes;
    size_t longest = 0;
    for (uint32_t i = 0; i < output->stop_count; i++) {
        size_t length_bytes = output->stops[i].length_bytes - 1;
        if (length_bytes > output->held.length_bytes)
            length_bytes = output->held.length_bytes;
        while (length_bytes > longest &&
               memcmp(end - length_bytes, output->stops[i].chars, length_bytes) != 0)
            length_bytes--;
        longest = length_bytes > longest ? length_bytes : longest;
    }
    return longest;
}

static enum tarn_status held_release(struct output *output, size_t keep_bytes, struct text *ready)
{
    const size_t length_bytes = output->held.length_bytes - keep_bytes;
    if (length_bytes == 0)
        return TARN_OK;
    TRY(text_append_bytes(ready, output->held.chars, length_bytes));
    memmove(output->held.chars, output->held.chars + length_bytes, keep_bytes);
    text_truncate(&output->held, keep_bytes);
    return TARN_OK;
}

enum tarn_status output_push(struct output *output, const char *bytes, size_t length_bytes,
                             struct text *ready)
{
    ASSERT(!output->stopped);
    for (size_t i = 0; i < length_bytes; i++)
        TRY(byte_push(output, (uint8_t)bytes[i]));
    const size_t stop_at = stop_find(output);
    if (stop_at == SIZE_MAX)
        return held_release(output, stop_begun_bytes(output), ready);
    output->stopped = true;
    output->character_bytes = 0;
    text_truncate(&output->held, stop_at);
    return held_release(output, 0, ready);
}

enum tarn_status output_finish(struct output *output, struct text *ready)
{
    if (output->character_bytes > 0) {
        output->character_bytes = 0;
        TRY(text_append_bytes(&output->held, replacement, 3));
    }
    return held_release(output, 0, ready);
}

enum tarn_status output_sanitise(const char *bytes, size_t length_bytes, struct text *out)
{
    CLEANUP(output_deinit)
    struct output output;
    output_init(&output, NULL, 0);
    for (size_t i = 0; i < length_bytes; i++) {
        TRY(output_push(&output, bytes + i, 1, out));
    }
    return output_finish(&output, out);
}
