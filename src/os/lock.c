/* SPDX-License-Identifier: Apache-2.0 */
#include "os/lock.h"

#include <fcntl.h>

static struct flock byte_lock(short type, uint64_t offset)
{
    return (
        struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1 };
}

bool lock_take(int fd, uint64_t offset)
{
    struct flock lock = byte_lock(F_WRLCK, offset);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void lock_release(int fd, uint64_t offset)
{
    struct flock lock = byte_lock(F_UNLCK, offset);
    (void)fcntl(fd, F_OFD_SETLK, &lock);
}

bool lock_is_held(int fd, uint64_t offset)
{
    struct flock lock = byte_lock(F_WRLCK, offset);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
