/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/inspect.h"

#include <sys/stat.h>

#include "base/alloc.h"
#include "store/local/check.h"
#include "store/local/file.h"
#include "store/local/name.h"

struct inspection {
    struct pool_place place;
    struct pool_file file;
    struct pool_view view;
    uint64_t alive; /* bit p: process slot p, at the last walk */
    struct pool_check check;
};

enum tarn_status inspection_open(const char *path, struct inspection **out_inspection)
{
    const struct pool_options options = { .path = path, .is_read_only = true };
    struct inspection *inspection = mem_alloc(1, sizeof(*inspection));
    if (!inspection)
        return TARN_NO_MEMORY;
    inspection->file = (struct pool_file){ .fd = -1, .lock_fd = -1 };
    enum tarn_status status = place_init(&inspection->place, &options);
    if (status == TARN_OK)
        status = file_open(&inspection->place, &inspection->file);
    if (status == TARN_OK) {
        const struct pool_env env = file_env(&inspection->file);
        status = view_init(&inspection->view, &inspection->file.geometry, inspection->file.metadata,
                           inspection->file.data, &env);
    }
    if (status != TARN_OK) {
        inspection_close(inspection);
        return status;
    }
    *out_inspection = inspection;
    return TARN_OK;
}

void inspection_close(struct inspection *inspection)
{
    if (!inspection)
        return;
    view_deinit(&inspection->view);
    file_close(&inspection->file);
    mem_free(inspection);
}

void inspection_refresh(struct inspection *inspection, bool verify)
{
    inspection->alive = 0;
    for (uint32_t process = 0; process < POOL_PROCESSES; process++)
        inspection->alive |= (uint64_t)file_process_lives(&inspection->file, process) << process;
    image_check(&inspection->view, inspection->alive, verify, &inspection->check);
}

bool inspection_is_sound(const struct inspection *inspection)
{
    return inspection->check.fault_count == 0;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static enum tarn_status size_print(const struct inspection *inspection, struct text *text)
{
    const struct pool_geometry *geometry = &inspection->file.geometry;
    const struct pool_check *check = &inspection->check;
    struct stat stat = { 0 };
    (void)fstat(inspection->file.fd, &stat);
    TRY(text_append(text, "pool        %s/%s, format %d\n", inspection->place.directory,
                    inspection->place.name, POOL_FORMAT_VERSION));
    TRY(text_append(
        text,
        "size        %.1f MiB, of which %.1f MiB for pages and %.1f MiB metadata (%.1f "
        "bytes a page slot); %.1f MiB have memory\n",
        mib(geometry->file_bytes), mib((uint64_t)geometry->frame_count * POOL_FRAME_BYTES),
        mib(geometry->data_offset), (double)geometry->data_offset / geometry->slot_count,
        mib((uint64_t)stat.st_blocks * 512)));
    return text_append(text,
                       "frames      %llu of %u in chunks, %llu empty\n"
                       "pages       %llu committed, %.1f MiB\n",
                       (unsigned long long)(geometry->frame_count - check->frames[FRAME_EMPTY]),
                       geometry->frame_count, (unsigned long long)check->frames[FRAME_EMPTY],
                       (unsigned long long)check->slots[PAGE_COMMITTED], mib(check->bytes));
}

static enum tarn_status states_print(const struct inspection *inspection, struct text *text)
{
    const struct pool_check *check = &inspection->check;
    const unsigned long long unfound_count = check->nameless_count + check->unreachable_count;
    TRY(text_append(text,
                    "slots       %llu free, %llu reserved, %llu committed, %llu evicting, %llu "
                    "quarantined; %llu leased\n",
                    (unsigned long long)check->slots[PAGE_FREE],
                    (unsigned long long)check->slots[PAGE_RESERVED],
                    (unsigned long long)check->slots[PAGE_COMMITTED],
                    (unsigned long long)check->slots[PAGE_EVICTING],
                    (unsigned long long)check->slots[PAGE_QUARANTINED],
                    (unsigned long long)check->pinned_count));
    return text_append(
        text,
        "left        %llu slot%s held by processes that died: taken back by the next "
        "that opens the pool or puts; %llu page%s to age out unfound\n",
        (unsigned long long)check->left_count, text_plural(check->left_count), unfound_count,
        text_plural(unfound_count));
}

static enum tarn_status processes_print(const struct inspection *inspection, struct text *text)
{
    TRY(text_append(text, "processes   %d of %d", __builtin_popcountll(inspection->alive),
                    POOL_PROCESSES));
    const char *separator = ": pid ";
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        if (!(inspection->alive >> process & 1))
            continue;
        TRY(text_append(
            text, "%s%llu", separator,
            (unsigned long long)shm_load(&inspection->view.processes[process].shown_pid)));
        separator = ", ";
    }
    return text_append(text, "\n");
}

static enum tarn_status classes_print(const struct inspection *inspection, struct text *text)
{
    for (uint32_t i = 0; i < CHECK_CLASSES_MAX; i++) {
        const struct check_class *row = &inspection->check.classes[i];
        if (row->units == 0)
            break;
        if (i == 0)
            TRY(text_append(text, "page size     chunks     slots     pages        MiB\n"));
        TRY(text_append(text, "%8u KiB %8u %9llu %9llu %10.1f\n",
                        row->units * (POOL_UNIT_BYTES >> 10), row->chunk_count,
                        (unsigned long long)row->slot_count, (unsigned long long)row->page_count,
                        mib(row->bytes)));
    }
    return TARN_OK;
}

enum tarn_status inspection_print_stat(const struct inspection *inspection, struct text *text)
{
    const struct pool_check *check = &inspection->check;
    TRY(size_print(inspection, text));
    TRY(states_print(inspection, text));
    TRY(processes_print(inspection, text));
    TRY(classes_print(inspection, text));
    if (check->verified_count + check->corrupt_count > 0)
        TRY(text_append(text, "verified    %llu page%s, %llu failed their checksum\n",
                        (unsigned long long)(check->verified_count + check->corrupt_count),
                        text_plural(check->verified_count + check->corrupt_count),
                        (unsigned long long)check->corrupt_count));
    if (check->fault_count == 0)
        return text_append(text, "verdict     valid\n");
    return text_append(text, "verdict     NOT VALID: %u fault%s, the first: %s\n",
                       check->fault_count, text_plural(check->fault_count), check->first_fault);
}

enum tarn_status inspection_print_names(const struct inspection *inspection, struct text *text)
{
    TRY(text_append(text, "     pages        MiB  namespace\n"));
    for (uint32_t entry = 0; entry < POOL_NAMESPACES; entry++) {
        char name[STORE_NAMESPACE_BYTES_MAX + 1];
        const struct check_name *row = &inspection->check.names[entry];
        const uint64_t word = shm_load(&inspection->view.name_states[entry]);
        if (name_state(word) != NAME_READY ||
            name_read(&inspection->view, name_id(entry, word), name) != TARN_OK)
            continue;
        for (char *at = name; *at; at++) {
            if ((unsigned char)*at < ' ' || *at == 127)
                *at = '?'; /* it goes to a terminal */
        }
        TRY(text_append(text, "%10llu %10.1f  %s\n", (unsigned long long)row->page_count,
                        mib(row->bytes), name));
    }
    return TARN_OK;
}
