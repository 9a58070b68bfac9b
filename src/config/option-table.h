/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option-table.h - the rows of option-list.h, for the files of config/ that read and print them.
 */
#ifndef CONFIG_OPTION_TABLE_H
#define CONFIG_OPTION_TABLE_H

#include "config/option.h"

enum option_type {
    OPTION_TYPE_TEXT,
    OPTION_TYPE_COUNT,
    OPTION_TYPE_SIZE,
    OPTION_TYPE_TIME,
    OPTION_TYPE_RATIO,
    OPTION_TYPE_BOOL,
    OPTION_TYPE_CHOICE,
    OPTION_TYPE_SWITCH
};

enum { OPTION_NAME_BYTES_MAX = 48 };

struct option_row {
    enum option_command command;
    enum option_type type;
    const char *name;
    const char *argument;
    const char *fallback; /* "": unset */
    uint64_t least;
    uint64_t most; /* 0 with least 0: no limits; 0 otherwise: no upper limit */
    const char *unset_note;
    const char *help;
};

extern const struct option_row option_rows[OPTION_COUNT_ALL];

/* Headings and rows in the order of the list. */
struct option_line {
    const char *title; /* NULL: an option */
    const char *key;   /* the heading's section in the configuration file */
    enum option option;
};

extern const struct option_line option_lines[];
extern const size_t option_line_count;

/* Check and take a value, unless one from a source that wins is there. INVALID: options->error
 * begins with `spelling`, which is how the user named the option. */
NODISCARD enum tarn_status option_set(struct options *options, enum option option, const char *text,
                                      enum option_source source, const char *spelling);

/* Take what the text of a configuration file says; once. `path` is its name in messages. INVALID
 * and NO_MEMORY with options->error set, as "PATH:LINE: why". */
NODISCARD enum tarn_status options_apply_file(struct options *options, const char *path,
                                              const char *chars, size_t length_bytes);

/* The same of a file. Also IO, and NO_SPACE: it is too long. */
NODISCARD enum tarn_status options_read_file(struct options *options, const char *path);

/* The option's key in its section of the file, with - for _. */
const char *option_key(enum option option);

/* "TARN_PORT" of "port". */
void option_variable(const char *name, char out[static OPTION_NAME_BYTES_MAX]);

#endif
