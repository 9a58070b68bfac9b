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
    OPTION_TYPE_BOOL,
    OPTION_TYPE_CHOICE,
    OPTION_TYPE_SWITCH
};

enum { OPTION_NAME_BYTES_MAX = 48 };

struct option_row {
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

/* "TARN_PORT" of "port". */
void option_variable(const char *name, char out[static OPTION_NAME_BYTES_MAX]);

#endif
