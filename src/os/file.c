/* SPDX-License-Identifier: Apache-2.0 */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"

enum tarn_status file_write_at(int fd, uint64_t offset, const struct tarn_span *spans,
                               uint32_t count)
{
    struct iovec vectors[FILE_SPANS_MAX];
    ASSERT(count <= FILE_SPANS_MAX);
    for (uint32_t i = 0; i < count; i++)
        vectors[i] = (struct iovec){ spans[i].base, spans[i].size_bytes };
    struct iovec *next = vectors;
    struct iovec *end = vectors + count;
    while (next < end) {
        const ssize_t written = pwritev(fd, next, (int)(end - next), (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written == 0 || errno == ENOSPC ? TARN_NO_SPACE : TARN_IO;
        offset += (uint64_t)written;
        size_t left = (size_t)written;
        while (next < end && left >= next->iov_len)
            left -= (next++)->iov_len;
        if (next < end && left > 0) {
            next->iov_base = (uint8_t *)next->iov_base + left;
            next->iov_len -= left;
        }
    }
    return TARN_OK;
}

enum tarn_status file_read_at(int fd, uint64_t offset, void *out_data, size_t size_bytes)
{
    uint8_t *next = out_data;
    while (size_bytes > 0) {
        const ssize_t got = pread(fd, next, size_bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return TARN_IO;
        }
        next += got;
        offset += (uint64_t)got;
        size_bytes -= (size_t)got;
    }
    return TARN_OK;
}

/* Until the end, or bytes_max and one more. */
static enum tarn_status file_read_some(int fd, char *chars, size_t bytes_max, size_t *out_bytes)
{
    size_t done = 0;
    while (done <= bytes_max) {
        const ssize_t got = read(fd, chars + done, bytes_max + 1 - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return TARN_IO;
        if (got == 0) {
            *out_bytes = done;
            return TARN_OK;
        }
        done += (size_t)got;
    }
    return TARN_NO_SPACE;
}

enum tarn_status file_load(const char *path, size_t bytes_max, char **out_chars, size_t *out_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TARN_IO;
    char *chars = mem_alloc(bytes_max + 2, 1); /* zeroed: what is read ends with NUL */
    enum tarn_status status = TARN_NO_MEMORY;
    if (chars)
        status = file_read_some(fd, chars, bytes_max, out_bytes);
    const int cause = errno;
    (void)close(fd);
    errno = cause;
    if (status == TARN_OK)
        *out_chars = chars;
    else
        mem_free(chars);
    return status;
}

enum tarn_status file_boot_id(uint64_t out_boot[2])
{
    char text[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return TARN_IO;
    const bool has_line = fgets(text, sizeof(text), file) != NULL;
    (void)fclose(file);
    uint64_t boot[2] = { 0, 0 };
    size_t digits = 0;
    const char hex[] = "0123456789abcdef";
    for (const char *at = text; has_line && *at && digits < 32; at++) {
        const char *digit = strchr(hex, *at);
        if (!digit)
            continue; /* a hyphen */
        boot[digits / 16] = boot[digits / 16] << 4 | (uint64_t)(digit - hex);
        digits++;
    }
    if (digits != 32)
        return TARN_IO;
    out_boot[0] = boot[0];
    out_boot[1] = boot[1];
    return TARN_OK;
}
