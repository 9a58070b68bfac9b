/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - what the ranks of one engine tell each other, as bytes: a step's metadata (leader to
 * workers), a report (a worker to the leader), a verdict (leader to workers).
 *
 * Every message is numbered, versioned and self-contained; integers are little endian. Readers
 * trust nothing: opening a message checks all of it against its length before anything is taken
 * out.
 *
 *   header:   magic u32, version u16, kind u16, number u64, identity u64, previous u64, verdict
 * u64, rank u32, status i32, group_count u32, extra_bytes u32, count_a u32, count_b u32 metadata:
 * count_a loads:  id u64, first_block u64, block_count u32, blocks count_b saves:  id u64, block
 * u64, one block a block:        digest 16 bytes, group_count pages u64, extra_bytes bytes: what is
 *                             stored behind its pages to be compared when they are loaded
 *   report:   count_a items: what came of a load on this rank
 *             count_b pages that a transfer of this rank has let go of: id u64, step u64, block
 * u64, group u32, kind u16, outcome u16 verdict:  count_a items: what came of a load on all ranks
 *             count_b requests that are over: id u64, step u64 (of their last transfer)
 *   item:     id u64, step u64 (that began the load), first_block u64, block_count u64,
 *             asked_count u64, status i32
 */
#ifndef CONNECTOR_WIRE_H
#define CONNECTOR_WIRE_H

#include "base/cursor.h"
#include "layout/layout.h"

/* What the two ends must agree on. The blocks are those in metadata; the other messages have none.
 */
struct wire_shape {
    uint32_t group_count;
    uint32_t extra_bytes; /* 0, or wire_extra_bytes() */
    uint64_t identity; /* of the ranks that speak: what their pages mean, and how many they are */
};

enum wire_kind { WIRE_METADATA = 1, WIRE_REPORT = 2, WIRE_VERDICT = 3 };

struct wire_head {
    enum wire_kind kind;
    uint32_t rank; /* that wrote it */
    uint64_t number;
    uint64_t previous;       /* the number of the last metadata before it; not of reports */
    uint64_t verdict;        /* metadata: the number of the last verdict before it */
    enum tarn_status status; /* OK; below zero: the ranks go on no further, and why */
};

/* A load of a request: one that began in another step is another one. */
struct wire_item {
    struct tarn_loaded loaded;
    uint64_t step_number;
};

/* Who touched which page: one entry a page and step. */
struct wire_release {
    uint64_t id;
    uint64_t step_number;
    uint64_t block;
    uint32_t group;
    uint16_t kind;    /* enum tarn_transfer_kind */
    uint16_t outcome; /* of a save: enum leader_saved */
};

struct wire_ended {
    uint64_t id;
    uint64_t step_number;
};

/* Memory for messages of one kind: grows to the largest so far. */
struct wire_buffer {
    uint8_t *data;
    size_t size_bytes;
    size_t capacity_bytes;
};

NODISCARD enum tarn_status wire_buffer_reserve(struct wire_buffer *buffer, size_t size_bytes);
void wire_buffer_deinit(struct wire_buffer *buffer); /* zeroed is fine */
struct tarn_bytes wire_buffer_bytes(const struct wire_buffer *buffer);

/* ---- writing ---- */

struct wire_writer {
    struct wire_buffer *buffer;
    struct writer out;
    struct wire_shape shape;
    uint32_t counts[2];
};

size_t wire_load_bytes(struct wire_shape shape, uint64_t block_count);
size_t wire_save_bytes(struct wire_shape shape, uint64_t block_count); /* of so many saves */
size_t wire_items_bytes(size_t item_count);
size_t wire_releases_bytes(size_t release_count);
size_t wire_ended_bytes(size_t ended_count);

enum { WIRE_HEADER_BYTES = 64 };

/* Start a message in `buffer`, which has room for all that will be written (the functions above,
 * and the header). */
struct wire_writer wire_begin(struct wire_buffer *buffer, struct wire_shape shape);
/* The head of a load; its block_count blocks follow. All loads come before the first save. */
void wire_add_load(struct wire_writer *writer, uint64_t id, uint64_t first_block,
                   uint32_t block_count);
/* The head of a save; its block follows. */
void wire_add_save(struct wire_writer *writer, uint64_t id, uint64_t block);
void wire_add_block(struct wire_writer *writer, const struct tarn_digest *digest,
                    const tarn_page *pages);
/* Behind each block, if the shape has extra bytes: the parent's digest, and each token as 8 bytes,
 * little endian, signed. */
void wire_add_extra(struct wire_writer *writer, const struct tarn_digest *parent,
                    const int32_t *tokens, uint32_t token_count);
uint32_t wire_extra_bytes(uint32_t tokens_per_block);
void wire_add_item(struct wire_writer *writer, const struct wire_item *item);
/* All items come before the first of these. */
void wire_add_release(struct wire_writer *writer, const struct wire_release *release);
void wire_add_ended(struct wire_writer *writer, const struct wire_ended *ended);
void wire_end(struct wire_writer *writer, const struct wire_head *head);

/* ---- reading ---- */

struct wire_reader {
    struct wire_head head;
    struct wire_shape shape;
    uint32_t counts[2]; /* loads, saves; items, releases; items, ended */
    struct reader in;
};

struct wire_block {
    struct tarn_digest digest;
    tarn_page pages[LAYOUT_GROUPS_MAX];
    const uint8_t *extra; /* in the message; NULL: there is none */
};

/* CORRUPT: not a whole message of this kind and version, of another shape, or with an item of more
 * good blocks than were asked for. */
NODISCARD enum tarn_status wire_open(struct tarn_bytes bytes, enum wire_kind kind,
                                     struct wire_shape shape, struct wire_reader *out_reader);

/* The next load, `counts[0]` times, each followed by its blocks; then the next save, `counts[1]`
 * times, each followed by its block; or the next item, then the next of the others. An opened
 * message cannot run short. */
void wire_next_load(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_first_block,
                    uint32_t *out_block_count);
void wire_next_save(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_block);
void wire_next_block(struct wire_reader *reader, struct wire_block *out_block);
void wire_next_item(struct wire_reader *reader, struct wire_item *out_item);
void wire_next_release(struct wire_reader *reader, struct wire_release *out_release);
void wire_next_ended(struct wire_reader *reader, struct wire_ended *out_ended);

/* ---- numbers ---- */

/* Which numbers of one sender were taken. Messages may overtake each other by less than 64. */
struct wire_window {
    uint64_t highest;
    uint64_t missing; /* bit i: highest - i was not taken */
};

/* Taken before, or too old to know. */
bool wire_window_is_stale(const struct wire_window *window, uint64_t number);
void wire_window_take(struct wire_window *window, uint64_t number); /* which is not stale */
/* Whether `number` and all before it were taken. */
bool wire_window_has_all(const struct wire_window *window, uint64_t number);

#endif
