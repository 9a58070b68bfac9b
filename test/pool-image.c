/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-image - what lies in a pool file, for tests: from outside, without joining the pool.
 *
 *   pool-image FILE count    a line "NAME NUMBER" for each page state, and for pinned slots, frames
 *                            in use, bytes of committed pages, and "owned-P" for slots that process
 *                            slot P has reserved or is evicting
 *   pool-image FILE pages    a line "SLOT OFFSET LENGTH DEPTH" for each committed page; OFFSET is
 *                            where its bytes are in the file
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "os/file.h"
#include "store/local/view.h"

static const char *const state_names[PAGE_STATE_COUNT] = {
    [PAGE_FREE] = "free",
    [PAGE_RESERVED] = "reserved",
    [PAGE_COMMITTED] = "committed",
    [PAGE_EVICTING] = "evicting",
    [PAGE_QUARANTINED] = "quarantined",
};

static enum tarn_status image_open(const char *path, struct pool_view *out_view)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat stat;
    struct pool_superblock super;
    struct pool_geometry geometry;
    const char *reason;
    if (fd < 0 || fstat(fd, &stat) != 0)
        return TARN_IO;
    TRY(file_read_at(fd, 0, &super, sizeof(super)));
    TRY(superblock_check(&super, (uint64_t)stat.st_size, &geometry, &reason));
    uint8_t *image = mmap(NULL, geometry.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (image == MAP_FAILED)
        return TARN_IO;
    const struct pool_env none = { 0 };
    return view_init(out_view, &geometry, image, image + geometry.data_offset, &none);
}

static void count_print(const struct pool_view *view)
{
    uint64_t states[8] = { 0 };
    uint64_t owned[128] = { 0 };
    uint64_t pins = 0;
    uint64_t frames = 0;
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < view->geometry.slot_count; slot++) {
        const uint64_t ctl = shm_load(&view->headers[slot].ctl);
        states[ctl_state(ctl)]++;
        pins += shm_load(&view->headers[slot].pins) != 0;
        if (ctl_is_owned(ctl))
            owned[ctl_owner(ctl)]++;
        if (ctl_state(ctl) == PAGE_COMMITTED)
            bytes += shm_load(&view->headers[slot].place) >> 32;
    }
    for (uint32_t frame = 0; frame < view->geometry.frame_count; frame++)
        frames += frame_state(shm_load(&view->frames[frame])) != FRAME_EMPTY;
    for (size_t process = 0; process < LENGTH_OF(owned); process++)
        if (owned[process])
            printf("owned-%zu %" PRIu64 "\n", process, owned[process]);
    for (uint32_t state = 0; state < PAGE_STATE_COUNT; state++)
        printf("%s %" PRIu64 "\n", state_names[state], states[state]);
    printf("pinned %" PRIu64 "\nframes %" PRIu64 "\nbytes %" PRIu64 "\n", pins, frames, bytes);
}

static void pages_print(const struct pool_view *view)
{
    for (uint32_t slot = 0; slot < view->geometry.slot_count; slot++) {
        struct pool_header *header = &view->headers[slot];
        const uint32_t length_bytes = (uint32_t)(shm_load(&header->place) >> 32);
        uint64_t offset;
        if (ctl_state(shm_load(&header->ctl)) == PAGE_COMMITTED &&
            view_page_offset(view, slot, length_bytes, &offset) == TARN_OK)
            printf("%" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu32 "\n", slot,
                   view->geometry.data_offset + offset, length_bytes,
                   chain_depth(shm_load_half(&header->chain)));
    }
}

int main(int argc, char **argv)
{
    struct pool_view view;
    if (argc != 3 || (strcmp(argv[2], "count") != 0 && strcmp(argv[2], "pages") != 0)) {
        log_error("usage: pool-image FILE count|pages");
        return 2;
    }
    const enum tarn_status status = image_open(argv[1], &view);
    if (status != TARN_OK) {
        log_error("%s: %s", argv[1], tarn_strerror(status));
        return 1;
    }
    if (strcmp(argv[2], "count") == 0)
        count_print(&view);
    else
        pages_print(&view);
    view_deinit(&view);
    return 0;
}
