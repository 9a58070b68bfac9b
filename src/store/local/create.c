/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/create.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "os/file.h"
#include "os/memory.h"

enum { MIB_SHIFT = 20, OLDEST_VERSION = 0 };

static unsigned long long mib(uint64_t bytes)
{
    return (unsigned long long)(bytes >> MIB_SHIFT);
}

uint64_t pool_default_bytes(const struct pool_room *room)
{
    uint64_t size_bytes = room->available_bytes / 4;
    if (room->file_system_bytes / 2 < size_bytes)
        size_bytes = room->file_system_bytes / 2;
    if (room->group_bytes != UINT64_MAX && room->group_bytes / 2 < size_bytes)
        size_bytes = room->group_bytes / 2;
    return size_bytes;
}

static struct pool_room room_measure(int directory)
{
    struct pool_room room = {
        .group_bytes = memory_group_headroom("/proc/self/cgroup", "/sys/fs/cgroup"),
    };
    struct statvfs stat;
    if (memory_available(&room.available_bytes) != TARN_OK)
        room.available_bytes = 0;
    if (fstatvfs(directory, &stat) == 0)
        room.file_system_bytes = (uint64_t)stat.f_bavail * stat.f_frsize;
    return room;
}

static void room_print(const struct pool_room *room, char *out_text, size_t size_bytes)
{
    char group[64] = "no memory limit of a control group";
    if (room->group_bytes != UINT64_MAX)
        (void)snprintf(group, sizeof(group), "half of %llu MiB left to the control group",
                       mib(room->group_bytes));
    (void)snprintf(out_text, size_bytes,
                   "a quarter of %llu MiB available memory, half of %llu MiB free in the file "
                   "system, %s",
                   mib(room->available_bytes), mib(room->file_system_bytes), group);
}

/* Decide the geometry of a new pool and say how it came about. */
static enum tarn_status size_decide(int directory, const struct pool_place *place,
                                    struct pool_geometry *out_geometry)
{
    char text[256];
    const struct pool_room room = room_measure(directory);
    const uint64_t size_bytes = place->size_bytes ? place->size_bytes : pool_default_bytes(&room);
    room_print(&room, text, sizeof(text));
    if (place->size_bytes)
        (void)snprintf(text, sizeof(text), "as asked for");
    if (size_bytes < POOL_BYTES_MIN) {
        log_error("pool: %s/%s is not created: %llu MiB (%s) is below the least size of %llu MiB",
                  place->directory, place->name, mib(size_bytes), text, mib(POOL_BYTES_MIN));
        return TARN_NO_SPACE;
    }
    const uint32_t frame_slots = place->page_bytes_min < POOL_UNIT_BYTES
                                     ? POOL_FRAME_SLOTS_MAX
                                     : POOL_FRAME_BYTES / place->page_bytes_min;
    struct pool_geometry geometry;
    TRY(geometry_fit(size_bytes, frame_slots ? frame_slots : 1, &geometry));
    if (geometry.data_offset + POOL_BYTES_MIN / 2 > room.file_system_bytes) {
        log_error("pool: %s has %llu MiB free, too little for %s", place->directory,
                  mib(room.file_system_bytes), place->name);
        return TARN_NO_SPACE;
    }
    if (geometry.file_bytes > room.file_system_bytes)
        log_warn("pool: %s has only %llu MiB free: the pool will not reach its size",
                 place->directory, mib(room.file_system_bytes));
    log_info("pool: creating %s/%s, %llu MiB (%s), %llu MiB of it for pages", place->directory,
             place->name, mib(geometry.file_bytes), text,
             mib((uint64_t)geometry.frame_count * POOL_FRAME_BYTES));
    *out_geometry = geometry;
    return TARN_OK;
}

/* Lay out an empty pool in a file that has no name yet. */
static enum tarn_status file_fill(int fd, const struct pool_geometry *geometry)
{
    uint64_t boot[2];
    struct pool_superblock super;
    superblock_make(geometry, &super);
    TRY(file_boot_id(boot));
    if (ftruncate(fd, (off_t)geometry->file_bytes) != 0)
        return TARN_IO;
    if (fallocate(fd, 0, 0, (off_t)geometry->data_offset) != 0 && errno != EOPNOTSUPP)
        return errno == ENOSPC ? TARN_NO_SPACE : TARN_IO;
    const struct tarn_span first = { &super, sizeof(super) };
    const struct tarn_span live = { boot, sizeof(boot) };
    TRY(file_write_at(fd, 0, &first, 1));
    return file_write_at(fd, POOL_LIVE_OFFSET, &live, 1);
}

static enum tarn_status file_link(int fd, int directory, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW) == 0)
        return TARN_OK;
    return errno == EEXIST ? TARN_AGAIN : TARN_IO;
}

/* Remove default pools of older formats that nobody uses. */
static void older_remove(int directory, const struct pool_place *place)
{
    for (int version = OLDEST_VERSION; version < POOL_FORMAT_VERSION; version++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "default.v%d.pool", version);
        const int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        if (fcntl(fd, F_OFD_SETLK, &all) == 0 && unlinkat(directory, name, 0) == 0)
            log_info("pool: removed %s/%s, of an older format and unused", place->directory, name);
        (void)close(fd);
    }
}

enum tarn_status pool_create(int directory, const struct pool_place *place, int *out_fd)
{
    struct pool_geometry geometry;
    if (place->is_default)
        older_remove(directory, place);
    TRY(size_decide(directory, place, &geometry));
    const int fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    enum tarn_status status = TARN_IO;
    if (fd >= 0)
        status = file_fill(fd, &geometry);
    if (status == TARN_OK)
        status = file_link(fd, directory, place->name);
    if (status == TARN_OK) {
        *out_fd = fd;
        return TARN_OK;
    }
    if (status != TARN_AGAIN)
        log_error("pool: cannot create %s/%s: %s", place->directory, place->name,
                  strerrordesc_np(errno));
    if (fd >= 0)
        (void)close(fd);
    return status;
}
