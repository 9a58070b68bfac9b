/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flags.h - the flags and words after a subcommand's name, read into its own variables.
 *
 * `--name VALUE` and `--name=VALUE`; what begins with a dash is a flag. For commands with a handful
 * of them: `tarn serve` has config/option.h. Pure, but for the one line about what is wrong.
 */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "base/base.h"

/* One of the three targets is set; what is not given keeps its value. */
struct flag {
    const char *name;  /* without dashes */
    bool *is_set;      /* takes no value */
    const char **text; /* takes any value; borrowed from argv */
    uint32_t *count;   /* takes a number from 1 to count_max */
    uint32_t count_max;
};

struct flag_list {
    const char *command; /* "pool", as the user called it after `tarn`, for the message */
    const struct flag *flags;
    size_t flag_count;
    const char **words; /* words_max places, written from the first on; the rest is left alone */
    size_t words_max;
};

/* argv has the command's own name first. INVALID: logged, in one line that names the argument and
 * says where help is; some targets may be written. */
NODISCARD enum tarn_status flags_read(const struct flag_list *list, int argc, char **argv);

#endif
