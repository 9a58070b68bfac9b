/* SPDX-License-Identifier: Apache-2.0 */
/* The option table as help, as a manual page, and as what is in force. */
#include <stdio.h>
#include <string.h>

#include "config/option-table.h"
#include "config/option.h"
#include "config/value.h"

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

/* A heading, with the file's section that its options are in. */
static enum tarn_status title_append(const struct option_line *line, const char *before,
                                     const char *after, struct text *out)
{
    if (line->key[0])
        return text_append(out, "%s%s (section %s)%s", before, line->title, line->key, after);
    return text_append(out, "%s%s%s", before, line->title, after);
}

/* The lines of one command stand together: a title's rows follow it. */
static enum option_command line_command(size_t line)
{
    return option_rows[option_lines[line + (option_lines[line].title != NULL)].option].command;
}

enum tarn_status options_print_help(enum option_command command, struct text *out)
{
    for (size_t i = 0; i < option_line_count; i++) {
        if (line_command(i) != command)
            continue;
        if (option_lines[i].title)
            TRY(title_append(&option_lines[i], "\n", ":\n", out));
        else
            TRY(help_row(&option_rows[option_lines[i].option], out));
    }
    return TARN_OK;
}

static enum tarn_status source_append(const struct options *options, enum option_source source,
                                      uint32_t line, const char *name, struct text *out)
{
    char variable[OPTION_NAME_BYTES_MAX];
    switch (source) {
    case OPTION_FROM_DEFAULT:
        return text_append(out, "default\n");
    case OPTION_FROM_FILE:
        return text_append(out, "%s:%u\n", option_text(options, OPTION_CONFIG), line);
    case OPTION_FROM_ENVIRONMENT:
        option_variable(name, variable);
        return text_append(out, "%s\n", variable);
    case OPTION_FROM_FLAG:
        return text_append(out, "%s\n", name[0] ? "flag" : "argument");
    }
    return TARN_INVALID;
}

/* A value, but for a secret in it. */
static enum tarn_status value_append(const char *text, struct text *out)
{
    size_t start = 0;
    const size_t secret_bytes = value_secret(text, &start);
    if (secret_bytes == 0)
        return text_append(out, "%s", text);
    return text_append(out, "%.*s***%s", (int)start, text, text + start + secret_bytes);
}

enum tarn_status options_print_config(const struct options *options, struct text *out)
{
    TRY(text_append(out, "%-30s %-40s %s\n", "option", "value", "from"));
    TRY(text_append(out, "%-30s %-40s ", "MODEL", options->model ? options->model : "(none)"));
    TRY(source_append(options, options->model_source, options->model_line, "", out));
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const struct option_row *row = &option_rows[option];
        const struct option_value *value = &options->values[option];
        if (row->command != options->command || row->type == OPTION_TYPE_SWITCH)
            continue;
        CLEANUP(text_deinit)
        struct text shown;
        text_init(&shown, 1 << 16);
        TRY(value->is_set ? value_append(value->text, &shown)
                          : text_append(&shown, "(%s)", row->unset_note));
        TRY(text_append(out, "%-30s %-40s ", row->name, text_chars(&shown)));
        TRY(source_append(options, value->source, value->line, row->name, out));
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

enum tarn_status options_print_manual(enum option_command command, struct text *out)
{
    for (size_t i = 0; i < option_line_count; i++) {
        if (line_command(i) != command)
            continue;
        if (option_lines[i].title)
            TRY(title_append(&option_lines[i], ".SS ", "\n", out));
        else
            TRY(manual_row(&option_rows[option_lines[i].option], out));
    }
    return TARN_OK;
}
