/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/lock.h"
#include "store/local/create.h"
#include "store/local/guard.h"

/* Beyond any data, so that no other program's lock on a part of the file means a process slot. */
static const uint64_t LOCK_OFFSET = UINT64_C(1) << 62;

enum { INIT_BYTE = POOL_PROCESSES, OPEN_TRIES = 16 };

/* ---- place ---- */

enum tarn_status place_init(struct pool_place *place, const struct pool_options *options)
{
    *place = (struct pool_place){
        .is_default = options->path == NULL,
        .size_bytes = options->size_bytes,
        .page_bytes_min = options->page_bytes_min ? options->page_bytes_min : 16 << 10,
        .is_read_only = options->is_read_only,
    };
    if (!options->path) {
        (void)snprintf(place->directory, sizeof(place->directory), "/dev/shm/tarn-%u",
                       (unsigned)geteuid());
        (void)snprintf(place->name, sizeof(place->name), "default.v%d.pool", POOL_FORMAT_VERSION);
        return TARN_OK;
    }
    const char *slash = strrchr(options->path, '/');
    const char *name = slash ? slash + 1 : options->path;
    const size_t directory_bytes = slash ? (size_t)(slash - options->path) : 0;
    if (name[0] == '\0' || strlen(options->path) >= sizeof(place->name)) {
        log_error("pool %s: not a file's path, or longer than %d bytes", options->path,
                  POOL_PATH_BYTES - 1);
        return TARN_INVALID;
    }
    memcpy(place->name, name, strlen(name) + 1);
    if (!slash)
        memcpy(place->directory, ".", 2);
    else if (directory_bytes == 0)
        memcpy(place->directory, "/", 2);
    else
        memcpy(place->directory, options->path, directory_bytes);
    return TARN_OK;
}

static enum tarn_status directory_judge(const struct pool_place *place, int fd)
{
    struct stat stat;
    if (!place->is_default)
        return TARN_OK; /* the user named it */
    if (fstat(fd, &stat) != 0 || stat.st_uid != geteuid() || (stat.st_mode & 077) != 0) {
        log_error(
            "pool: %s must belong to user %u and be closed to others (mode 0700); remove it, or "
            "name another pool with --pool PATH",
            place->directory, (unsigned)geteuid());
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

static enum tarn_status directory_open(const struct pool_place *place, int *out_fd)
{
    if (place->is_default && !place->is_read_only && mkdir(place->directory, 0700) != 0 &&
        errno != EEXIST) {
        log_error("pool: cannot make directory %s: %s", place->directory, strerrordesc_np(errno));
        return TARN_IO;
    }
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (place->is_default ? O_NOFOLLOW : 0);
    const int fd = open(place->directory, flags);
    if (fd < 0) {
        if (place->is_read_only && errno == ENOENT)
            return TARN_MISS;
        log_error("pool: cannot open directory %s: %s", place->directory, strerrordesc_np(errno));
        return TARN_IO;
    }
    const enum tarn_status status = directory_judge(place, fd);
    if (status == TARN_OK)
        *out_fd = fd;
    else
        (void)close(fd);
    return status;
}

/* ---- opening ---- */

void file_close(struct pool_file *file)
{
    guard_remove(file->metadata);
    guard_remove(file->data);
    guard_remove(file->window);
    if (file->metadata)
        (void)munmap(file->metadata, file->geometry.data_offset);
    if (file->data)
        (void)munmap(file->data, (size_t)file->geometry.frame_count * POOL_FRAME_BYTES);
    if (file->window)
        (void)munmap(file->window, (size_t)file->geometry.frame_count * POOL_FRAME_BYTES);
    file_abandon(file);
}

void file_abandon(struct pool_file *file)
{
    if (file->lock_fd >= 0)
        (void)close(file->lock_fd);
    if (file->fd >= 0)
        (void)close(file->fd);
    *file = (struct pool_file){ .fd = -1, .lock_fd = -1 };
}

/* Open by name; a file that may not be written is opened for reading. */
static int name_open(int directory, const struct pool_place *place, bool *out_is_read_only)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = -1;
    if (!place->is_read_only)
        fd = openat(directory, place->name, O_RDWR | flags);
    *out_is_read_only = fd < 0;
    if (fd < 0 && (place->is_read_only || errno == EACCES || errno == EROFS))
        fd = openat(directory, place->name, O_RDONLY | flags);
    return fd;
}

static void *map(const struct pool_file *file, uint64_t offset, uint64_t size_bytes, int protection)
{
    void *at = mmap(NULL, size_bytes, protection, MAP_SHARED, file->fd, (off_t)offset);
    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, size_bytes, MADV_HUGEPAGE); /* where the mount allows; else a mere wish */
    if (madvise(at, size_bytes, MADV_DONTFORK) == 0) {
        guard_add(at, size_bytes);
        return at;
    }
    (void)munmap(at, size_bytes);
    return NULL;
}

static enum tarn_status file_map(const struct pool_place *place, struct pool_file *file)
{
    const struct pool_geometry *geometry = &file->geometry;
    file->metadata = map(file, 0, geometry->data_offset,
                         file->is_read_only ? PROT_READ : PROT_READ | PROT_WRITE);
    if (file->metadata)
        file->data = map(file, geometry->data_offset,
                         (uint64_t)geometry->frame_count * POOL_FRAME_BYTES, PROT_READ);
    /* Pages of tmpfs stay where their chunk put them; on a disk the kernel alone knows. */
    if (file->data && !file->is_read_only && file_is_in_memory(file))
        file->window =
            map(file, geometry->data_offset, (uint64_t)geometry->frame_count * POOL_FRAME_BYTES,
                PROT_READ | PROT_WRITE);
    if (file->data)
        return TARN_OK;
    log_error("pool: cannot map %s/%s: %s", place->directory, place->name, strerrordesc_np(errno));
    return TARN_IO;
}

/* Judge an open file by what it is and by a private copy of its first block. */
static enum tarn_status file_judge(const struct pool_place *place, struct pool_file *file)
{
    struct stat stat;
    struct pool_superblock super;
    const char *reason = NULL;
    if (fstat(file->fd, &stat) != 0)
        return TARN_IO;
    file->device = stat.st_dev;
    file->inode = stat.st_ino;
    if (!S_ISREG(stat.st_mode))
        reason = "it is no regular file";
    else if (file_read_at(file->fd, 0, &super, sizeof(super)) != TARN_OK)
        reason = "it is too short for a pool, or unreadable";
    else if (superblock_check(&super, (uint64_t)stat.st_size, &file->geometry, &reason) == TARN_OK)
        return TARN_OK;
    log_error("pool: %s/%s is refused: %s%s", place->directory, place->name, reason,
              place->is_read_only ? "" : "; it is left as it is: remove it, or name another pool");
    return TARN_UNSUPPORTED;
}

static bool is_same_file(int fd, const struct pool_file *file)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 && stat.st_dev == file->device && stat.st_ino == file->inode;
}

/* The description that carries the locks. Outcomes: AGAIN (the name has come to mean another file).
 */
static enum tarn_status lock_open(int directory, const struct pool_place *place,
                                  struct pool_file *file)
{
    if (file->is_read_only)
        return TARN_OK;
    file->lock_fd = openat(directory, place->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return file->lock_fd >= 0 && is_same_file(file->lock_fd, file) ? TARN_OK : TARN_AGAIN;
}

/* One try. Outcomes: AGAIN (another process made or removed the file meanwhile). */
static enum tarn_status file_try(int directory, const struct pool_place *place,
                                 struct pool_file *file)
{
    bool is_read_only = false;
    bool is_fresh = false;
    int fd = name_open(directory, place, &is_read_only);
    if (fd < 0 && errno == ENOENT && !place->is_read_only) {
        TRY(pool_create(directory, place, &fd));
        is_read_only = false;
        is_fresh = true;
    }
    if (fd < 0) {
        if (errno == ENOENT)
            return TARN_MISS;
        log_error("pool: cannot open %s/%s: %s", place->directory, place->name,
                  strerrordesc_np(errno));
        return errno == ELOOP ? TARN_UNSUPPORTED : TARN_IO;
    }
    *file = (struct pool_file){ .fd = fd, .lock_fd = -1, .is_read_only = is_read_only };
    file->is_fresh = is_fresh;
    TRY(file_judge(place, file));
    TRY(lock_open(directory, place, file));
    TRY(file_map(place, file));
    if (is_read_only && !place->is_read_only)
        log_warn("pool: %s/%s may not be written by this user: reading only", place->directory,
                 place->name);
    return TARN_OK;
}

enum tarn_status file_open(const struct pool_place *place, struct pool_file *out_file)
{
    int directory;
    TRY(directory_open(place, &directory));
    struct pool_file file = { .fd = -1, .lock_fd = -1 };
    enum tarn_status status = TARN_AGAIN;
    for (uint32_t i = 0; i < OPEN_TRIES && status == TARN_AGAIN; i++) {
        file_close(&file);
        status = file_try(directory, place, &file);
    }
    (void)close(directory);
    if (status == TARN_AGAIN) {
        log_error("pool: %s/%s keeps changing while it is opened", place->directory, place->name);
        status = TARN_IO;
    }
    if (status == TARN_OK)
        *out_file = file;
    else
        file_close(&file);
    return status;
}

static bool file_is_intact(const struct pool_file *file)
{
    return !guard_is_broken(file->metadata) && !guard_is_broken(file->data) &&
           !guard_is_broken(file->window);
}

bool file_is_lost(const struct pool_file *file)
{
    struct stat stat;
    if (fstat(file->fd, &stat) != 0 || stat.st_nlink == 0)
        return true;
    /* Cut short: a write may have made it longer again, but not as long. */
    const uint64_t end =
        file->geometry.data_offset + (uint64_t)file->geometry.frame_count * POOL_FRAME_BYTES;
    return (uint64_t)stat.st_size < end || !file_is_intact(file);
}

bool file_is_in_memory(const struct pool_file *file)
{
    struct statfs stat;
    return fstatfs(file->fd, &stat) == 0 && stat.f_type == TMPFS_MAGIC;
}

/* ---- locks ---- */

bool file_begin_init(const struct pool_file *file, uint32_t wait_ms)
{
    const struct timespec pause = { .tv_nsec = (long)NS_PER_MS };
    for (uint32_t waited_ms = 0;; waited_ms++) {
        if (lock_take(file->lock_fd, LOCK_OFFSET + INIT_BYTE))
            return true;
        if (waited_ms >= wait_ms)
            return false;
        (void)nanosleep(&pause, NULL);
    }
}

void file_end_init(const struct pool_file *file)
{
    lock_release(file->lock_fd, LOCK_OFFSET + INIT_BYTE);
}

bool file_process_lives(const struct pool_file *file, uint32_t process)
{
    const int fd = file->lock_fd >= 0 ? file->lock_fd : file->fd;
    return lock_is_held(fd, LOCK_OFFSET + process);
}

/* ---- the world of a view ---- */

static uint64_t env_now_ns(void *context)
{
    (void)context;
    return clock_now_ns();
}

static bool env_process_take(void *context, uint32_t process)
{
    const struct pool_file *file = context;
    return lock_take(file->lock_fd, LOCK_OFFSET + process);
}

static void env_process_release(void *context, uint32_t process)
{
    const struct pool_file *file = context;
    lock_release(file->lock_fd, LOCK_OFFSET + process);
}

static enum tarn_status env_write(void *context, uint64_t offset, const struct tarn_span *spans,
                                  uint32_t count)
{
    const struct pool_file *file = context;
    const enum tarn_status status =
        file_write_at(file->fd, file->geometry.data_offset + offset, spans, count);
    if (status != TARN_OK)
        LOG_LIMITED(LOG_WARN, "pool: writing a page failed: %s", strerrordesc_np(errno));
    return status;
}

static enum tarn_status env_populate(void *context, uint64_t offset, uint64_t size_bytes)
{
    const struct pool_file *file = context;
    int result;
    do
        result =
            fallocate(file->fd, 0, (off_t)(file->geometry.data_offset + offset), (off_t)size_bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0 || errno == EOPNOTSUPP)
        return TARN_OK;
    LOG_LIMITED(LOG_WARN, "pool: no memory for %llu more bytes (%s): the pool stays smaller",
                (unsigned long long)size_bytes, strerrordesc_np(errno));
    return TARN_NO_SPACE;
}

static void env_touch(void *context, uint64_t offset, uint64_t size_bytes)
{
    const struct pool_file *file = context;
    (void)madvise((uint8_t *)file->data + offset, size_bytes, MADV_POPULATE_READ);
}

/* EFAULT here is what SIGBUS would be in an access. Reading first, the kernel maps 16 pages a fault
 * instead of one, which takes two thirds of the time. */
static bool env_window_open(void *context, uint64_t offset, uint64_t size_bytes)
{
    const struct pool_file *file = context;
    uint8_t *at = (uint8_t *)file->window + offset;
    (void)madvise(at, size_bytes, MADV_POPULATE_READ);
    return madvise(at, size_bytes, MADV_POPULATE_WRITE) == 0;
}

static bool env_is_intact(void *context)
{
    const struct pool_file *file = context;
    return file_is_intact(file);
}

struct pool_env file_env(struct pool_file *file)
{
    return (struct pool_env){
        .now_ns = env_now_ns,
        .process_take = env_process_take,
        .process_release = env_process_release,
        .write = env_write,
        .populate = env_populate,
        .window = file->window,
        .window_open = env_window_open,
        .touch = env_touch,
        .is_intact = env_is_intact,
        .context = file,
    };
}
