/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/flags.h"

#include <string.h>

#include "base/log.h"
#include "config/option.h"
#include "config/value.h"

enum { FLAGS_MAX = 16 };

static const struct flag *flag_find(const struct flag_list *list, const char *name,
                                    size_t name_bytes)
{
    for (size_t i = 0; i < list->flag_count; i++) {
        const char *known = list->flags[i].name;
        if (strlen(known) == name_bytes && strncmp(known, name, name_bytes) == 0)
            return &list->flags[i];
    }
    return NULL;
}

static enum tarn_status unknown(const struct flag_list *list, const char *argument)
{
    const char *names[FLAGS_MAX];
    ASSERT(list->flag_count <= FLAGS_MAX);
    for (size_t i = 0; i < list->flag_count; i++)
        names[i] = list->flags[i].name;
    const char *nearest = nearest_name(argument + strspn(argument, "-"), names, list->flag_count);
    if (nearest)
        log_error("unknown option %.100s; did you mean --%s?", argument, nearest);
    else
        log_error("unknown option %.100s; see tarn %s --help", argument, list->command);
    return TARN_INVALID;
}

static enum tarn_status count_read(const struct flag_list *list, const struct flag *flag,
                                   const char *value)
{
    struct value_reason reason;
    uint64_t count = 0;
    if (value_count(value, &count, &reason) != TARN_OK) {
        log_error("--%s: '%.100s' %s; see tarn %s --help", flag->name, value, reason.chars,
                  list->command);
        return TARN_INVALID;
    }
    if (count == 0 || count > flag->count_max) {
        log_error("--%s: '%.100s' is outside 1 to %u; see tarn %s --help", flag->name, value,
                  flag->count_max, list->command);
        return TARN_INVALID;
    }
    *flag->count = (uint32_t)count;
    return TARN_OK;
}

/* Take the flag in argv[*at], and its value, which may be the next argument. */
static enum tarn_status flag_take(const struct flag_list *list, int argc, char **argv, int *at)
{
    const char *argument = argv[*at];
    const size_t name_bytes = strcspn(argument, "=");
    const bool is_long = strncmp(argument, "--", 2) == 0 && name_bytes > 2;
    const struct flag *flag = is_long ? flag_find(list, argument + 2, name_bytes - 2) : NULL;
    const char *value = argument[name_bytes] == '=' ? argument + name_bytes + 1 : NULL;
    if (!flag)
        return unknown(list, argument);
    if (flag->is_set && value) {
        log_error("--%s takes no value; see tarn %s --help", flag->name, list->command);
        return TARN_INVALID;
    }
    if (flag->is_set) {
        *flag->is_set = true;
        return TARN_OK;
    }
    if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value) {
        log_error("--%s needs a value; see tarn %s --help", flag->name, list->command);
        return TARN_INVALID;
    }
    if (flag->count)
        return count_read(list, flag, value);
    *flag->text = value;
    return TARN_OK;
}

enum tarn_status flags_read(const struct flag_list *list, int argc, char **argv)
{
    size_t word_count = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            TRY(flag_take(list, argc, argv, &i));
        } else if (word_count < list->words_max) {
            list->words[word_count++] = argv[i];
        } else {
            log_error("unexpected argument '%.100s'; see tarn %s --help", argv[i], list->command);
            return TARN_INVALID;
        }
    }
    return TARN_OK;
}
