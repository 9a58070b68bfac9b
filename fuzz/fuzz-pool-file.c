/* SPDX-License-Identifier: Apache-2.0 */
/* A pool file of any content: it is refused, or used without a crash, without an endless walk, and
 * without other bytes under a key than were put there. The first byte chooses: 0, the rest is the
 * file; else the rest is patches {area, offset (3), length, bytes} to a sound file of a few pages.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/log.h"
#include "store/local/file.h"
#include "store/local/inspect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { FRAMES = 4, FRAME_SLOTS = 8, KEYS = 12, PAGE_BYTES = 9000, AREAS = 8, TEXT_AREA = 5 };

static struct {
    char directory[64];
    char path[96];
    struct pool_geometry geometry;
    uint8_t *metadata;      /* of the sound file */
    bool texts_are_changed; /* they are most of the metadata, and rarely need to be restored */
    uint8_t page[PAGE_BYTES];
} fuzz;

static void line_drop(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static void directory_remove(void)
{
    (void)unlink(fuzz.path);
    (void)rmdir(fuzz.directory);
    mem_free(fuzz.metadata);
}

static struct store *open_store(void)
{
    const struct pool_options options = { .path = fuzz.path };
    struct store *store = NULL;
    return pool_open(&options, &store) == TARN_OK ? store : NULL;
}

static struct store_key key_of(uint32_t space, uint32_t number)
{
    struct store_key key = { .namespace_index = space, .depth = number };
    memset(key.digest.bytes, (int)number + 1, sizeof(key.digest.bytes));
    return key;
}

static enum tarn_status put(struct store *store, uint32_t space, uint32_t number)
{
    memset(fuzz.page, (int)number + 1, sizeof(fuzz.page));
    const struct tarn_span span = { fuzz.page, sizeof(fuzz.page) };
    struct store_item item = { .key = key_of(space, number), .spans = &span, .span_count = 1 };
    ASSERT(store_put(store, &item, 1) == TARN_OK);
    return item.status;
}

static void get(struct store *store, uint32_t space, uint32_t number)
{
    const struct tarn_span span = { fuzz.page, sizeof(fuzz.page) };
    struct store_item item = { .key = key_of(space, number), .spans = &span, .span_count = 1 };
    ASSERT(store_get(store, &item, 1) == TARN_OK);
    for (size_t i = 0; item.status == TARN_OK && i < sizeof(fuzz.page); i++)
        ASSERT(fuzz.page[i] == number + 1);
}

static void file_write(uint64_t offset, const void *bytes, size_t size_bytes)
{
    const int fd = open(fuzz.path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && pwrite(fd, bytes, size_bytes, (off_t)offset) == (ssize_t)size_bytes);
    (void)close(fd);
}

/* Make the sound file, once. */
static void sound_make(void)
{
    struct pool_superblock super;
    uint32_t space;
    log_set_sink(line_drop, NULL);
    (void)snprintf(fuzz.directory, sizeof(fuzz.directory), "/dev/shm/tarn-fuzz-XXXXXX");
    ASSERT(mkdtemp(fuzz.directory) != NULL);
    (void)snprintf(fuzz.path, sizeof(fuzz.path), "%s/p.pool", fuzz.directory);
    (void)atexit(directory_remove);
    ASSERT(geometry_init(FRAMES, FRAME_SLOTS, &fuzz.geometry) == TARN_OK);
    superblock_make(&fuzz.geometry, &super);
    file_write(0, &super, sizeof(super));
    ASSERT(truncate(fuzz.path, (off_t)fuzz.geometry.file_bytes) == 0);
    struct store *store = open_store();
    ASSERT(store && store_namespace(store, "tarn/fuzz", &space) == TARN_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        ASSERT(put(store, space, i) == TARN_OK);
    store_close(store);
    fuzz.metadata = mem_alloc(fuzz.geometry.data_offset, 1);
    const int fd = open(fuzz.path, O_RDONLY | O_CLOEXEC);
    ASSERT(fuzz.metadata && read(fd, fuzz.metadata, fuzz.geometry.data_offset) ==
                                (ssize_t)fuzz.geometry.data_offset);
    (void)close(fd);
}

static void sound_restore(void)
{
    const uint64_t texts = fuzz.geometry.name_text_offset;
    const uint64_t headers = fuzz.geometry.header_offset;
    const uint64_t end =
        fuzz.geometry.bucket_offset + fuzz.geometry.bucket_count * sizeof(struct pool_bucket);
    file_write(0, fuzz.metadata, texts);
    if (fuzz.texts_are_changed)
        file_write(texts, fuzz.metadata + texts, headers - texts);
    file_write(headers, fuzz.metadata + headers, end - headers);
    fuzz.texts_are_changed = false;
}

static void patches_apply(struct reader *reader)
{
    const struct pool_geometry *geometry = &fuzz.geometry;
    const uint64_t areas[AREAS + 1] = {
        0,
        POOL_LIVE_OFFSET,
        geometry->process_offset,
        geometry->frame_offset,
        geometry->name_state_offset,
        geometry->name_text_offset,
        geometry->header_offset,
        geometry->bucket_offset,
        geometry->bucket_offset + geometry->bucket_count * sizeof(struct pool_bucket),
    };
    uint8_t bytes[255];
    while (reader->left_bytes > 5) {
        const uint64_t area = reader_uint(reader, 1) % AREAS;
        const uint64_t offset =
            areas[area] + reader_uint(reader, 3) % (areas[area + 1] - areas[area]);
        size_t length = reader_uint(reader, 1);
        if (length > reader->left_bytes)
            length = reader->left_bytes;
        reader_bytes(reader, bytes, length);
        file_write(offset, bytes, length);
    }
}

static void store_use(struct store *store)
{
    struct store_key keys[KEYS];
    struct store_lease *lease = NULL;
    bool present[KEYS];
    uint32_t space;
    size_t count;
    if (store_namespace(store, "tarn/fuzz", &space) != TARN_OK)
        return;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(space, i);
    ASSERT(store_exists(store, keys, KEYS, present) == TARN_OK);
    if (store_lookup(store, keys, KEYS, &lease, &count) == TARN_OK)
        ASSERT(count > 0 && count <= KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        get(store, space, i);
    for (uint32_t i = KEYS / 2; i < 3 * KEYS; i++)
        (void)(put(store, space, i) == TARN_OK);
    (void)(store_remove(store, &keys[0]) == TARN_OK);
    store_lease_release(lease);
    for (uint32_t i = 0; i < KEYS; i++)
        get(store, space, i);
}

static void file_inspect(void)
{
    struct inspection *inspection = NULL;
    struct text text;
    if (inspection_open(fuzz.path, &inspection) != TARN_OK)
        return;
    text_init(&text, 4 << 20);
    inspection_refresh(inspection, true);
    ASSERT(inspection_print_stat(inspection, &text) == TARN_OK);
    ASSERT(inspection_print_names(inspection, &text) == TARN_OK);
    text_deinit(&text);
    inspection_close(inspection);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct reader reader = reader_init(data, size_bytes);
    if (!fuzz.metadata)
        sound_make();
    if (reader_uint(&reader, 1) == 0) {
        ASSERT(truncate(fuzz.path, 0) == 0);
        fuzz.texts_are_changed = true;
        file_write(0, reader.next, reader.left_bytes);
        ASSERT(truncate(fuzz.path, (off_t)fuzz.geometry.file_bytes) == 0);
    } else {
        sound_restore();
        patches_apply(&reader);
    }
    file_inspect();
    struct store *store = open_store();
    if (store)
        store_use(store);
    store_close(store);
    file_inspect();
    return 0;
}
