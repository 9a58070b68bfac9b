/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cursor.h"
#include "codec/digest.h"

enum { SETTLED_S = 2, FOLDER_MODE = 0700, FILE_MODE = 0600, SLICE_BYTES = 4 << 20 };

static void update_u64(struct digest_stream *stream, uint64_t value)
{
    uint8_t raw[8];
    struct writer w = writer_init(raw, sizeof(raw));
    writer_uint(&w, value, sizeof(raw));
    digest_update(stream, raw, sizeof(raw));
}

/* Outcomes: AGAIN (stopped). */
static enum tarn_status part_update(struct digest_stream *stream, const struct identity_part *part,
                                    engine_stop_fn should_stop, void *stop_context)
{
    for (size_t at = 0; at < part->size_bytes; at += SLICE_BYTES) {
        const size_t left = part->size_bytes - at;
        if (should_stop && should_stop(stop_context))
            return TARN_AGAIN;
        digest_update(stream, (const uint8_t *)part->bytes + at,
                      left < SLICE_BYTES ? left : SLICE_BYTES);
    }
    return TARN_OK;
}

static enum tarn_status weights_digest(const struct identity_part *parts, uint32_t count,
                                       engine_stop_fn should_stop, void *stop_context,
                                       struct tarn_digest *out_digest)
{
    struct digest_stream stream;
    digest_init(&stream);
    update_u64(&stream, count);
    for (uint32_t i = 0; i < count; i++) {
        update_u64(&stream, parts[i].size_bytes);
        TRY(part_update(&stream, &parts[i], should_stop, stop_context));
    }
    digest_finish(&stream, out_digest);
    return TARN_OK;
}

/* What a file is as far as the file system says; it names the entry in the cache. */
static void status_digest(const struct identity_part *parts, uint32_t count,
                          struct tarn_digest *out_digest)
{
    struct digest_stream stream;
    digest_init(&stream);
    for (uint32_t i = 0; i < count; i++) {
        const struct stat *s = &parts[i].status;
        update_u64(&stream, s->st_dev);
        update_u64(&stream, s->st_ino);
        update_u64(&stream, (uint64_t)s->st_size);
        update_u64(&stream, (uint64_t)s->st_mtim.tv_sec);
        update_u64(&stream, (uint64_t)s->st_mtim.tv_nsec);
        update_u64(&stream, (uint64_t)s->st_ctim.tv_sec);
        update_u64(&stream, (uint64_t)s->st_ctim.tv_nsec);
    }
    digest_finish(&stream, out_digest);
}

static bool settled(const struct identity_part *parts, uint32_t count)
{
    const time_t now = time(NULL);
    for (uint32_t i = 0; i < count; i++) {
        const struct stat *s = &parts[i].status;
        if (s->st_mtim.tv_sec + SETTLED_S >= now || s->st_ctim.tv_sec + SETTLED_S >= now)
            return false;
    }
    return true;
}

/* Path of the cache's entry; its folders are made. False: there is no place for a cache. */
static bool entry_path(const struct tarn_digest *name, char path[PATH_MAX])
{
    const char *cache =
        getenv("XDG_CACHE_HOME");      /* NOLINT(concurrency-mt-unsafe): nobody sets it */
    const char *home = getenv("HOME"); /* NOLINT(concurrency-mt-unsafe) */
    const bool own = cache && cache[0] == '/';
    char hex[DIGEST_HEX_BYTES];

    if (!own && (!home || home[0] != '/'))
        return false;
    const int base = snprintf(path, PATH_MAX, "%s%s", own ? cache : home, own ? "" : "/.cache");
    if (base < 0 || base > PATH_MAX - 100)
        return false;
    digest_to_hex(name, hex);
    static const char *const folders[] = { "", "/tarn", "/models" };
    size_t used_bytes = (size_t)base;
    for (size_t i = 0; i < LENGTH_OF(folders); i++) {
        used_bytes += (size_t)snprintf(path + used_bytes, PATH_MAX - used_bytes, "%s", folders[i]);
        if (mkdir(path, FOLDER_MODE) != 0 && errno != EEXIST)
            return false;
    }
    (void)snprintf(path + used_bytes, PATH_MAX - used_bytes, "/%s", hex);
    return true;
}

static bool entry_read(const char *path, struct tarn_digest *out_digest)
{
    char hex[DIGEST_HEX_BYTES + 1]; /* one more, so that a longer file is seen to be longer */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    const ssize_t size_bytes = read(fd, hex, sizeof(hex));
    (void)close(fd);
    return size_bytes == DIGEST_HEX_BYTES - 1 &&
           digest_from_hex(hex, (size_t)size_bytes, out_digest) == TARN_OK;
}

/* Written beside and moved into place, so that nobody reads half an entry. */
static void entry_write(const char *path, const struct tarn_digest *digest)
{
    char hex[DIGEST_HEX_BYTES];
    char beside[PATH_MAX + 32];
    digest_to_hex(digest, hex);
    (void)snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid());
    const int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return;
    const bool written = write(fd, hex, DIGEST_HEX_BYTES - 1) == DIGEST_HEX_BYTES - 1;
    if (close(fd) != 0 || !written || rename(beside, path) != 0)
        (void)unlink(beside);
}

enum tarn_status identity_of(const struct identity_part *parts, uint32_t count,
                             engine_stop_fn should_stop, void *stop_context,
                             char out_hex[IDENTITY_HEX_BYTES])
{
    struct tarn_digest name;
    struct tarn_digest digest;
    char path[PATH_MAX];
    char hex[DIGEST_HEX_BYTES];

    status_digest(parts, count, &name);
    const bool cached = settled(parts, count) && entry_path(&name, path);
    if (!cached || !entry_read(path, &digest)) {
        TRY(weights_digest(parts, count, should_stop, stop_context, &digest));
        if (cached)
            entry_write(path, &digest);
    }
    digest_to_hex(&digest, hex);
    memcpy(out_hex, hex, IDENTITY_HEX_BYTES - 1);
    out_hex[IDENTITY_HEX_BYTES - 1] = '\0';
    return TARN_OK;
}
