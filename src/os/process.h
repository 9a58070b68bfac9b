/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - a child process that ends with its parent.
 *
 * A child is killed when the thread that started it ends, so that it is started in the main thread.
 * It has a process group of its own (what a terminal sends to the foreground is the parent's to
 * pass on), default signal handling, and /dev/null for standard input. One thread at a time a
 * child.
 */
#ifndef OS_PROCESS_H
#define OS_PROCESS_H

#include <sys/types.h>

#include "base/base.h"

enum { PROCESS_END_BYTES = 64 };

struct process {
    pid_t pid; /* 0: there is none, or it has ended and was reaped */
    int wait_status;
};

/* Start `program` (a path) with `arguments` and `environment`, both ended by NULL; the first
 * argument is its name. Standard output and error go to `output_fd`. IO: logged, with the cause. */
NODISCARD enum tarn_status process_start(const char *program, char *const *arguments,
                                         char *const *environment, int output_fd,
                                         struct process *out_process);

/* Whether it has ended (or never was). Does not wait. */
bool process_has_ended(struct process *process);

/* Ask it to end (SIGTERM), wait for at most grace_ms, then kill it, and its group; reaped on
 * return. False: it had to be killed. None is fine. */
bool process_stop(struct process *process, uint64_t grace_ms);

/* "exit status 3", "signal 9 (Killed)": how it ended, into `out` of PROCESS_END_BYTES. */
void process_print_end(const struct process *process, char *out);

/* The value of a variable of `environment` (as environ); NULL: not there, or empty. */
const char *process_variable(char *const *environment, const char *name);

/* `base` with those of `defaults` ("NAME=value", ended by NULL) whose name it lacks. Strings are
 * borrowed; the block is mem_free()'s. */
NODISCARD enum tarn_status process_environment(char *const *base, const char *const *defaults,
                                               char ***out_environment);

/* The file that a shell would run for `name`: itself if it has a slash, else the first executable
 * in the folders of `path` (as PATH; NULL: none). Outcomes: MISS (there is none). */
NODISCARD enum tarn_status process_find(const char *name, const char *path, char *out_path,
                                        size_t out_bytes);

#endif
