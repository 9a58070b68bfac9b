/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-dir.h - the directory of one running server or master: mooncake.json, master.addr,
 * mooncake_master.log.
 *
 * It belongs to one process at a time, by a lock that ends with the process. At the end a directory
 * that was given keeps the master's log alone; a temporary one goes.
 */
#ifndef CLUSTER_RUN_DIR_H
#define CLUSTER_RUN_DIR_H

#include <limits.h>

#include "base/base.h"

#define RUN_DIR_CLIENT_FILE "mooncake.json"
#define RUN_DIR_ADDRESS     "master.addr"
#define RUN_DIR_MASTER_LOG  "mooncake_master.log"

struct run_dir {
    char path[PATH_MAX]; /* empty: not open */
    int lock_fd;
    bool is_temporary;
};

/* `path` is made if it is not there (its parent must be); NULL: a temporary directory. IO: logged,
 * also when another process has it. */
NODISCARD enum tarn_status run_dir_open(const char *path, struct run_dir *out_dir);

/* The path of a file in it, which may be too long: INVALID, logged. */
NODISCARD enum tarn_status run_dir_file(const struct run_dir *dir, const char *name,
                                        char out_path[PATH_MAX]);

void run_dir_close(struct run_dir *dir); /* zeroed is fine */

#endif
