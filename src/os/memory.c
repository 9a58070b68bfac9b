/* SPDX-License-Identifier: Apache-2.0 */
#include "os/memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum tarn_status memory_available(uint64_t *out_bytes)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return TARN_IO;
    char line[256];
    enum tarn_status status = TARN_IO;
    while (status != TARN_OK && fgets(line, sizeof(line), file)) {
        const char name[] = "MemAvailable:";
        if (strncmp(line, name, sizeof(name) - 1) != 0)
            continue;
        *out_bytes = strtoull(line + sizeof(name) - 1, NULL, 10) * 1024;
        status = TARN_OK;
    }
    (void)fclose(file);
    return status;
}

enum tarn_status memory_mapped_huge(const void *base, uint64_t *out_bytes)
{
    char line[PATH_MAX + 128];
    FILE *file = fopen("/proc/self/smaps", "re");
    if (!file)
        return TARN_IO;
    bool is_ours = false;
    enum tarn_status status = TARN_MISS;
    while (status == TARN_MISS && fgets(line, sizeof(line), file)) {
        const char name[] = "ShmemPmdMapped:";
        char *end = line;
        const uintptr_t start = strtoull(line, &end, 16); /* "START-END ...", else "Name: ..." */
        if (*end == '-') {
            is_ours = start == (uintptr_t)base;
        } else if (is_ours && strncmp(line, name, sizeof(name) - 1) == 0) {
            *out_bytes = strtoull(line + sizeof(name) - 1, NULL, 10) * 1024;
            status = TARN_OK;
        }
    }
    (void)fclose(file);
    return status;
}

/* A number from a one-line file; UINT64_MAX for "max", anything else, or no file. */
static uint64_t number_read(const char *directory, const char *name)
{
    char path[PATH_MAX];
    char line[64] = "";
    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
        return UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    const bool has_line = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    char *end = line;
    const uint64_t value = has_line ? strtoull(line, &end, 10) : 0;
    return end == line ? UINT64_MAX : value;
}

/* Version 1 writes "no limit" as the largest multiple of a page that its counters hold. */
static const uint64_t NO_LIMIT = UINT64_C(1) << 62;

/* Room in a group and its ancestors, up to `root_bytes` characters of `directory`, which is cut. */
static uint64_t path_headroom(char *directory, size_t root_bytes, const char *limit_name,
                              const char *use_name)
{
    uint64_t headroom = UINT64_MAX;
    for (;;) {
        const uint64_t limit = number_read(directory, limit_name);
        const uint64_t used = number_read(directory, use_name);
        if (limit < NO_LIMIT && used != UINT64_MAX) {
            const uint64_t left = limit > used ? limit - used : 0;
            headroom = left < headroom ? left : headroom;
        }
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < root_bytes)
            return headroom;
        *slash = '\0';
    }
}

/* Room that one line "id:controllers:path" of the group file leaves. */
static uint64_t line_headroom(char *line, const char *mount)
{
    char directory[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return UINT64_MAX;
    *path++ = '\0';
    controllers++;
    path[strcspn(path, "\n")] = '\0';
    const bool is_v2 = controllers[0] == '\0';
    if (!is_v2 && strcmp(controllers, "memory") != 0)
        return UINT64_MAX;
    const int root_bytes =
        snprintf(directory, sizeof(directory), "%s%s", mount, is_v2 ? "" : "/memory");
    const int length = snprintf(directory, sizeof(directory), "%s%s%s", mount,
                                is_v2 ? "" : "/memory", strcmp(path, "/") == 0 ? "" : path);
    if (root_bytes < 0 || length < 0 || length >= (int)sizeof(directory))
        return UINT64_MAX;
    return path_headroom(directory, (size_t)root_bytes,
                         is_v2 ? "memory.max" : "memory.limit_in_bytes",
                         is_v2 ? "memory.current" : "memory.usage_in_bytes");
}

uint64_t memory_group_headroom(const char *group_file, const char *mount)
{
    FILE *file = fopen(group_file, "re");
    if (!file)
        return UINT64_MAX;
    uint64_t headroom = UINT64_MAX;
    char line[PATH_MAX + 64];
    while (fgets(line, sizeof(line), file)) {
        const uint64_t left = line_headroom(line, mount);
        headroom = left < headroom ? left : headroom;
    }
    (void)fclose(file);
    return headroom;
}
