/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h - the subcommands of `tarn`.
 *
 * A command gets argv with its own name first, and returns the exit status: 0 done, 1 failed, 2
 * called wrongly. The cause of a failure has been logged.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "base/base.h"
#include "base/text.h"

enum { EXIT_STATUS_OK = 0, EXIT_STATUS_FAILED = 1, EXIT_STATUS_USAGE = 2 };

struct command {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *summary;
    int (*run)(int argc, char **argv);
};

extern const struct command commands[];
extern const size_t command_count;

int serve_command(int argc, char **argv);
int master_command(int argc, char **argv);
int donor_command(int argc, char **argv);
int bench_command(int argc, char **argv);

/* Write to standard output. IO: logged. */
NODISCARD enum tarn_status output_write(const struct text *text);

/* Write the text and a newline to a file, new or in place of what was there. IO: logged. */
NODISCARD enum tarn_status output_save(const char *path, const struct text *text);

/* The manual page tarn(1). */
NODISCARD enum tarn_status manual_print(struct text *out);

#endif
