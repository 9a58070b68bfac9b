/* SPDX-License-Identifier: Apache-2.0 */
/* The option table as help, as a manual page, and as what is in force. */
#include <stdio.h>
#include <string.h>

#include "config/option-table.h"
#include "config/option.h"

enum { HELP_COLUMNS = 92, HELP_INDENT = 34 };

/* Append `words` broken into lines that start at `indent`; the first is there already. */
static enum tarn_status words_append(struct text *out, const char *words, size_t indent)
{
    size_t column = indent;
    while (*words) {
        const size_t word_bytes = strcspn(words, " ");
        if (column > indent && column + 1 + word_bytes > HELP_COLUMNS) {
            TRY(text_append(out, "\n%*s", (int)indent, ""));
            column = indent;
        }
        TRY(text_append(out, "%s%.*s", column > indent ? " " : "", (int)word_bytes, words));
        column += word_bytes + (column > indent);
        words += word_bytes;
        words += *words == ' ';
    }
    return text_append(out, "\n");
}

static enum tarn_status help_words(const struct option_row *row, struct text *out)
{
    TRY(text_append(out, "%s", row->help));
    const char *fallback = row->fallback[0] ? row->fallback : row->unset_note;
    return fallback[0] ? text_append(out, " [%s]", fallback) : TARN_OK;
}

static enum tarn_status help_row(const struct option_row *row, struct text *out)
{
    char head[128];
    const int head_bytes = snprintf(head, sizeof(head), "  --%s%s%s", row->name,
                                    row->argument[0] ? " " : "", row->argument);
    TRY(text_append(out, "%s", head));
    if (head_bytes > HELP_INDENT - 2)
        TRY(text_append(out, "\n%*s", HELP_INDENT, ""));
    else
        TRY(text_append(out, "%*s", HELP_INDENT - head_bytes, ""));
    CLEANUP(text_deinit)
    struct text words;
    text_init(&words, 4096);
    TRY(help_words(row, &words));
    return words_append(out, text_chars(&words), HELP_INDENT);
}

enum tarn_status options_print_help(struct text *out)
{
    for (size_t i = 0; i < option_line_count; i++) {
        if (option_lines[i].title)
            TRY(text_append(out, "\n%s:\n", option_lines[i].title));
        else
            TRY(help_row(&option_rows[option_lines[i].option], out));
    }
    return TARN_OK;
}

static const char *source_text(const struct option_value *value, const char *variable)
{
    switch (value->source) {
    case OPTION_FROM_DEFAULT:
        return "default";
    case OPTION_FROM_ENVIRONMENT:
        return variable;
    case OPTION_FROM_FLAG:
        return "flag";
    }
    return "";
}

enum tarn_status options_print_config(const struct options *options, struct text *out)
{
    TRY(text_append(out, "%-22s %-40s %s\n", "option", "value", "from"));
    TRY(text_append(out, "%-22s %-40s %s\n", "MODEL", options->model ? options->model : "(none)",
                    options->model ? "argument" : "default"));
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const struct option_row *row = &option_rows[option];
        if (row->type == OPTION_TYPE_SWITCH)
            continue;
        const struct option_value *value = &options->values[option];
        char variable[OPTION_NAME_BYTES_MAX];
        option_variable(row->name, variable);
        char shown[320];
        (void)snprintf(shown, sizeof(shown), value->is_set ? "%s" : "(%s)",
                       value->is_set ? value->text : row->unset_note);
        TRY(text_append(out, "%-22s %-40s %s\n", row->name, shown, source_text(value, variable)));
    }
    return TARN_OK;
}

/* Text for a manual page: backslashes and leading dots are troff's. */
static enum tarn_status manual_append(struct text *out, const char *chars)
{
    for (; *chars; chars++) {
        const char *escape = *chars == '-' ? "\\" : "";
        const char *rest = *chars == '\\' ? "e" : "";
        TRY(text_append(out, "%s%c%s", escape, *chars, rest));
    }
    return TARN_OK;
}

static enum tarn_status manual_row(const struct option_row *row, struct text *out)
{
    TRY(text_append(out, ".TP\n\\fB\\-\\-"));
    TRY(manual_append(out, row->name));
    TRY(text_append(out, "\\fR"));
    if (row->argument[0]) {
        TRY(text_append(out, " \\fI"));
        TRY(manual_append(out, row->argument));
        TRY(text_append(out, "\\fR"));
    }
    TRY(text_append(out, "\n"));
    CLEANUP(text_deinit)
    struct text words;
    text_init(&words, 4096);
    TRY(help_words(row, &words));
    TRY(manual_append(out, text_chars(&words)));
    return text_append(out, "\n");
}

enum tarn_status options_print_manual(struct text *out)
{
    for (size_t i = 0; i < option_line_count; i++) {
        if (option_lines[i].title)
            TRY(text_append(out, ".SS %s\n", option_lines[i].title));
        else
            TRY(manual_row(&option_rows[option_lines[i].option], out));
    }
    return TARN_OK;
}
