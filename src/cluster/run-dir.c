/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/run-dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { DIR_MODE = 0700 };

static enum tarn_status temporary_make(struct run_dir *dir)
{
    const char *parent = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody changes it */
    (void)snprintf(dir->path, sizeof(dir->path), "%s/tarn-run-XXXXXX",
                   parent && parent[0] ? parent : "/tmp");
    if (mkdtemp(dir->path)) {
        dir->is_temporary = true;
        return TARN_OK;
    }
    log_error("no temporary directory %s: %s; name one with --run-dir", dir->path,
              strerrordesc_np(errno));
    return TARN_IO;
}

static enum tarn_status given_make(struct run_dir *dir, const char *path)
{
    if (snprintf(dir->path, sizeof(dir->path), "%s", path) >= (int)sizeof(dir->path)) {
        log_error("--run-dir: the path %.200s... is too long", path);
        return TARN_INVALID;
    }
    if (mkdir(path, DIR_MODE) == 0 || errno == EEXIST)
        return TARN_OK;
    log_error("--run-dir %s: cannot be made: %s", path, strerrordesc_np(errno));
    return TARN_IO;
}

static enum tarn_status lock_open(struct run_dir *dir)
{
    dir->lock_fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->lock_fd >= 0 && flock(dir->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return TARN_OK;
    if (dir->lock_fd >= 0 && errno == EWOULDBLOCK)
        log_error("--run-dir %s: another live process uses it; name another directory", dir->path);
    else
        log_error("--run-dir %s: %s", dir->path, strerrordesc_np(errno));
    if (dir->lock_fd >= 0)
        (void)close(dir->lock_fd);
    return TARN_IO;
}

enum tarn_status run_dir_open(const char *path, struct run_dir *out_dir)
{
    struct run_dir dir = { .lock_fd = -1 };
    TRY(path ? given_make(&dir, path) : temporary_make(&dir));
    const enum tarn_status status = lock_open(&dir);
    if (status != TARN_OK && dir.is_temporary)
        (void)rmdir(dir.path);
    TRY(status);
    *out_dir = dir;
    return TARN_OK;
}

enum tarn_status run_dir_file(const struct run_dir *dir, const char *name, char out_path[PATH_MAX])
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", dir->path, name) < PATH_MAX)
        return TARN_OK;
    log_error("--run-dir: the path %.200s... is too long", dir->path);
    return TARN_INVALID;
}

void run_dir_close(struct run_dir *dir)
{
    static const char *const names[] = { RUN_DIR_CLIENT_FILE, RUN_DIR_ADDRESS, RUN_DIR_MASTER_LOG };
    if (dir->path[0] == '\0')
        return;
    for (size_t i = 0; i < LENGTH_OF(names); i++)
        if (dir->is_temporary || strcmp(names[i], RUN_DIR_MASTER_LOG) != 0)
            (void)unlinkat(dir->lock_fd, names[i], 0);
    if (dir->is_temporary && rmdir(dir->path) != 0)
        log_warn("the temporary directory %s cannot be removed: %s", dir->path,
                 strerrordesc_np(errno));
    (void)close(dir->lock_fd);
    *dir = (struct run_dir){ .lock_fd = -1 };
}
