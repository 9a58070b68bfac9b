/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option.h - the options of a command, from flags, the environment, a file and the defaults.
 *
 * A flag wins over the environment, which wins over the file that --config names, which wins over
 * the default. Every value is checked when it is read, also one that loses; an option without a
 * value takes what the program works out from the rest ("when unset" in option-list.h). Values
 * borrow from argv and the environment. One thread at a time; but for reading the file, pure.
 */
#ifndef CONFIG_OPTION_H
#define CONFIG_OPTION_H

#include <limits.h>

#include "base/base.h"
#include "base/text.h"
#include "config/option-list.h"

enum option {
#define SECTION(title, key)
#define X(id, ...) OPTION_##id,
    OPTION_LIST(SECTION, X) MASTER_OPTION_LIST(SECTION, X) DONOR_OPTION_LIST(SECTION, X)
#undef X
#undef SECTION
        OPTION_COUNT_ALL
};

/* The commands whose options the table has. An option belongs to one. */
enum option_command { OPTIONS_OF_SERVE, OPTIONS_OF_MASTER, OPTIONS_OF_DONOR };

/* In this order a later one wins. */
enum option_source {
    OPTION_FROM_DEFAULT,
    OPTION_FROM_FILE,
    OPTION_FROM_ENVIRONMENT,
    OPTION_FROM_FLAG
};

struct option_value {
    enum option_source source;
    bool is_set;
    uint32_t line;    /* where the file has it, also when another source wins; 0: it does not */
    const char *text; /* as written */
    uint64_t number;  /* count, bytes, milliseconds, millionths, 0 or 1, or the choice's index */
};

struct yaml_tree;

enum { OPTION_ERROR_BYTES = 1024 };

struct options {
    enum option_command command;
    struct option_value values[OPTION_COUNT_ALL];
    const char *model; /* the one operand, else the file's, else NULL */
    enum option_source model_source;
    uint32_t model_line;
    struct yaml_tree *file;         /* owned: its values' texts */
    char error[OPTION_ERROR_BYTES]; /* set by options_read() when it fails */
};

/* Read argv[0..argc), without the program's and the subcommand's name, and `environment` (as
 * environ; NULL: none). INVALID, or what became of reading the file: out_options->error names the
 * option, the value and what to do, and there is nothing to deinit. */
NODISCARD enum tarn_status options_read(int argc, char *const *argv, char *const *environment,
                                        struct options *out_options);

/* The same of another command: no operand, no environment, no file. */
NODISCARD enum tarn_status options_read_of(enum option_command command, int argc, char *const *argv,
                                           struct options *out_options);

void options_deinit(struct options *options); /* texts of the file are gone */

bool option_is_set(const struct options *options, enum option option);
const char *option_text(const struct options *options, enum option option); /* NULL when unset */
uint64_t option_number(const struct options *options, enum option option);  /* 0 when unset */
bool option_bool(const struct options *options, enum option option);

/* The section of the configuration file that an option is in; "": none. */
const char *option_section(enum option option);

/* Where a value was given, for messages: "--port", "TARN_PORT", "t.yaml:3: server.port". */
enum { OPTION_PLACE_BYTES = 512 };
void option_place(const struct options *options, enum option option,
                  char out_place[OPTION_PLACE_BYTES]);
const char *option_name(enum option option);                                  /* "port" */
const char *option_origin(const struct options *options, enum option option); /* "by default" ... */

/* What --pool says. "mooncake", and what begins with "mooncake:", is distributed, and the path as
 * it stands. */
enum pool_choice { POOL_DEFAULT, POOL_NONE, POOL_NAMED, POOL_DISTRIBUTED };

struct pool_option {
    enum pool_choice choice;
    char path[PATH_MAX];
    uint64_t size_bytes; /* 0: not given */
};

/* `text` NULL is the default pool. INVALID with `error` (OPTION_ERROR_BYTES) set. */
NODISCARD enum tarn_status pool_option_read(const char *text, struct pool_option *out_pool,
                                            char *error);

/* All options of a command by section, for a terminal. */
NODISCARD enum tarn_status options_print_help(enum option_command command, struct text *out);

/* One line an option: name, value, source. */
NODISCARD enum tarn_status options_print_config(const struct options *options, struct text *out);

/* The options of a command as part of a manual page (man(7) macros). */
NODISCARD enum tarn_status options_print_manual(enum option_command command, struct text *out);

/* The entry of `names` nearest to a mistyped `name`, or NULL when none is near. */
const char *nearest_name(const char *name, const char *const *names, size_t count);

#endif
