/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - the pool's file: found or created, judged, mapped, and the locks that show who is alive.
 *
 * A file is created without a name, filled, and linked in one step, so that nobody ever opens half
 * a pool. It is opened without following a link, its first block is copied to private memory and
 * checked there, and from then on only the copy counts. Page data is mapped for reading where it is
 * read; puts have a window of their own, or pwrite (near.h). No child inherits a mapping.
 */
#ifndef STORE_LOCAL_FILE_H
#define STORE_LOCAL_FILE_H

#include "store/local/pool.h"
#include "store/local/view.h"

enum { POOL_PATH_BYTES = 512 };

/* Where a pool is, and what to make there if nothing is. */
struct pool_place {
    char directory[POOL_PATH_BYTES];
    char name[POOL_PATH_BYTES];
    bool is_default; /* the directory is made if need be, and must be this user's alone */
    uint64_t size_bytes;
    uint32_t page_bytes_min;
    bool is_read_only;
};

struct pool_file {
    int fd;      /* -1: closed */
    int lock_fd; /* an open file description of its own, for locks alone; -1: read-only */
    uint64_t device;
    uint64_t inode;
    struct pool_geometry geometry;
    void *metadata;
    void *data;
    void *window;      /* page data again, for writing; NULL: written with pwrite alone */
    bool is_read_only; /* asked for, or the file may not be written */
    bool is_fresh;     /* this call created it: nothing in it needs to be judged */
};

/* The place that options name. Outcomes: INVALID (logged). */
NODISCARD enum tarn_status place_init(struct pool_place *place, const struct pool_options *options);

/* Open or create; everything is logged. Outcomes as pool_open() names them. */
NODISCARD enum tarn_status file_open(const struct pool_place *place, struct pool_file *out_file);

/* Close and unmap; locks end. A closed file is fine. */
void file_close(struct pool_file *file);

/* In a child after fork: let go of the descriptors; the mapping is not there. */
void file_abandon(struct pool_file *file);

/* Whether its name is gone, or the memory under its mapping (guard.h). */
bool file_is_lost(const struct pool_file *file);

/* Whether it lies in tmpfs: pages there cannot have been put before this boot. */
bool file_is_in_memory(const struct pool_file *file);

/* Alone with the image (init byte): wait up to `wait_ms` for another opener. */
NODISCARD bool file_begin_init(const struct pool_file *file, uint32_t wait_ms);
void file_end_init(const struct pool_file *file);

/* The world as a view of this file sees it. The file must outlive the view. */
struct pool_env file_env(struct pool_file *file);

/* Whether a living process holds a process slot. Also for read-only files. */
bool file_process_lives(const struct pool_file *file, uint32_t process);

#endif
