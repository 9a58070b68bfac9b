/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over every file of a folder: its seeds, and what once failed. Each input is
 * also cut short at every length, so that a decoder sees each of its ends. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static uint8_t input[1 << 20];

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    const size_t size_bytes = fread(input, 1, sizeof(input), file);
    fclose(file);
    const size_t step = size_bytes / 4096 + 1; /* long inputs are cut at fewer places */
    for (size_t cut = 0; cut < size_bytes; cut += step) {
        uint8_t *copy = malloc(cut ? cut : 1); /* exact, so that a sanitizer sees the end */
        if (!copy)
            return -1;
        for (size_t i = 0; i < cut; i++)
            copy[i] = input[i];
        LLVMFuzzerTestOneInput(copy, cut);
        free(copy);
    }
    return LLVMFuzzerTestOneInput(input, size_bytes);
}

int main(int argc, char **argv)
{
    size_t count = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 1;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        if (replay(path) != 0) {
            fprintf(stderr, "%s: failed\n", path);
            return 1;
        }
        count++;
    }
    closedir(folder);
    printf("%zu inputs\n", count);
    return count == 0;
}
