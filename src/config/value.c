/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Read leading digits; *out_rest is what follows them. INVALID: none, or past 64 bits. */
static enum tarn_status digits_read(const char *text, uint64_t *out_number, const char **out_rest,
                                    struct value_reason *out_reason)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number)) {
            (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is too large a number");
            return TARN_INVALID;
        }
    }
    if (at == text) {
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "does not start with a digit");
        return TARN_INVALID;
    }
    *out_number = number;
    *out_rest = at;
    return TARN_OK;
}

enum tarn_status value_count(const char *text, uint64_t *out_count, struct value_reason *out_reason)
{
    uint64_t number = 0;
    const char *rest = NULL;
    TRY(digits_read(text, &number, &rest, out_reason));
    if (*rest) {
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is not a whole number");
        return TARN_INVALID;
    }
    *out_count = number;
    return TARN_OK;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* NULL when there is no such unit. */
static const struct unit *unit_find(const struct unit *units, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

static enum tarn_status unit_apply(const struct unit *unit, uint64_t number, uint64_t *out_value,
                                   struct value_reason *out_reason)
{
    uint64_t value = 0;
    if (__builtin_mul_overflow(number, unit->factor, &value)) {
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is too large a number");
        return TARN_INVALID;
    }
    *out_value = value;
    return TARN_OK;
}

static const struct unit size_units[] = {
    { "", 1 },
    { "B", 1 },
    { "KiB", UINT64_C(1) << 10 },
    { "MiB", UINT64_C(1) << 20 },
    { "GiB", UINT64_C(1) << 30 },
    { "TiB", UINT64_C(1) << 40 },
};

static const char *rest_without_spaces(const char *rest)
{
    while (*rest == ' ')
        rest++;
    return rest;
}

enum tarn_status value_size(const char *text, uint64_t *out_bytes, struct value_reason *out_reason)
{
    uint64_t number = 0;
    const char *rest = NULL;
    TRY(digits_read(text, &number, &rest, out_reason));
    rest = rest_without_spaces(rest);
    const struct unit *unit = unit_find(size_units, LENGTH_OF(size_units), rest);
    if (unit)
        return unit_apply(unit, number, out_bytes, out_reason);
    static const char *const ambiguous[] = { "KB", "MB", "GB", "TB" };
    for (size_t i = 0; i < LENGTH_OF(ambiguous); i++) {
        if (strcmp(rest, ambiguous[i]) != 0)
            continue;
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES,
                       "uses %s, which means different sizes to different programs; write "
                       "%" PRIu64 "%ciB",
                       rest, number, rest[0]);
        return TARN_INVALID;
    }
    (void)snprintf(out_reason->chars, VALUE_REASON_BYTES,
                   "is not a size; write a whole number and B, KiB, MiB, GiB or TiB");
    return TARN_INVALID;
}

enum tarn_status value_time(const char *text, uint64_t *out_ms, struct value_reason *out_reason)
{
    static const struct unit units[] = { { "ms", 1 }, { "s", 1000 } };
    uint64_t number = 0;
    const char *rest = NULL;
    TRY(digits_read(text, &number, &rest, out_reason));
    const struct unit *unit = unit_find(units, LENGTH_OF(units), rest_without_spaces(rest));
    if (unit)
        return unit_apply(unit, number, out_ms, out_reason);
    (void)snprintf(out_reason->chars, VALUE_REASON_BYTES,
                   "is not a time; write a whole number and its unit, ms or s");
    return TARN_INVALID;
}

enum tarn_status value_ratio(const char *text, uint64_t *out_millionths,
                             struct value_reason *out_reason)
{
    enum { MILLION = 1000000 };
    uint64_t millionths = 0;
    const char *rest = NULL;
    TRY(digits_read(text, &millionths, &rest, out_reason));
    bool is_fine = millionths <= 1;
    millionths = is_fine ? millionths * MILLION : 0;
    if (*rest == '.') {
        uint64_t place = MILLION;
        is_fine = is_fine && rest[1] != '\0';
        for (rest++; *rest >= '0' && *rest <= '9' && place > 1; rest++) {
            place /= 10;
            millionths += place * (uint64_t)(*rest - '0');
        }
    }
    is_fine = is_fine && *rest == '\0' && millionths > 0 && millionths <= MILLION;
    if (!is_fine) {
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES,
                       "is not a fraction above 0 and at most 1, with at most six places");
        return TARN_INVALID;
    }
    *out_millionths = millionths;
    return TARN_OK;
}

enum tarn_status value_bool(const char *text, bool *out_value, struct value_reason *out_reason)
{
    static const char *const words[] = { "0", "1", "false", "true", "no", "yes", "off", "on" };
    for (size_t i = 0; i < LENGTH_OF(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *out_value = i % 2 == 1;
            return TARN_OK;
        }
    }
    (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is neither on nor off");
    return TARN_INVALID;
}

enum tarn_status value_choice(const char *text, const char *choices, uint64_t *out_index,
                              struct value_reason *out_reason)
{
    const size_t length_bytes = strlen(text);
    uint64_t index = 0;
    for (const char *at = choices; at; index++) {
        const char *end = strchr(at, '|');
        const size_t choice_bytes = end ? (size_t)(end - at) : strlen(at);
        if (choice_bytes == length_bytes && memcmp(at, text, length_bytes) == 0) {
            *out_index = index;
            return TARN_OK;
        }
        at = end ? end + 1 : NULL;
    }
    (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is not one of %s", choices);
    return TARN_INVALID;
}

size_t value_secret(const char *text, size_t *out_start)
{
    const char *start = strstr(text, "://");
    if (!start)
        return 0;
    start += 3;
    const size_t authority_bytes = strcspn(start, "/?#,");
    size_t length_bytes = authority_bytes;
    while (length_bytes > 0 && start[length_bytes - 1] != '@')
        length_bytes--;
    *out_start = (size_t)(start - text);
    return length_bytes > 0 ? length_bytes - 1 : 0;
}

void value_print_size(uint64_t bytes, char *out, size_t out_bytes)
{
    size_t unit = LENGTH_OF(size_units) - 1;
    while (unit > 1 && bytes < size_units[unit].factor)
        unit--;
    const uint64_t factor = size_units[unit].factor;
    if (bytes % factor == 0)
        (void)snprintf(out, out_bytes, "%" PRIu64 " %s", bytes / factor, size_units[unit].name);
    else
        (void)snprintf(out, out_bytes, "%.2f %s", (double)bytes / (double)factor,
                       size_units[unit].name);
}
