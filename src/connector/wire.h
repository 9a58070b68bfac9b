/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - what the ranks of one engine tell each other, as bytes: a step's metadata (leader to
 * workers), a report (a worker to the leader), a verdict (leader to workers).
 *
 * Every message is numbered, versioned and self-contained; integers are little endian. Readers
 * trust nothing: opening a message checks all of it against its length before anything is taken
 * out.
 *
 *   header:   magic u32, version u16, kind u16, number u64, rank u32, group_count u32,
 *             extra_bytes u32, count_a u32, count_b u32
 *   metadata: count_a loads:  id u64, first_block u64, block_count u32, blocks
 *             count_b saves:  id u64, block u64, one block
 *             a block:        digest 16 bytes, group_count pages u64, extra_bytes bytes: what is
 *                             stored behind its pages to be compared when they are loaded
 *   report, verdict: count_a items: id u64, first_block u64, block_count u64, asked_count u64,
 *             status i32
 */
#ifndef CONNECTOR_WIRE_H
#define CONNECTOR_WIRE_H

#include "base/cursor.h"
#include "layout/layout.h"

/* Of the blocks in metadata; the other messages have none. */
struct wire_shape {
    uint32_t group_count;
    uint32_t extra_bytes; /* 0, or wire_extra_bytes() */
};

#define WIRE_NO_BLOCKS ((struct wire_shape){ 0, 0 })

enum wire_kind { WIRE_METADATA = 1, WIRE_REPORT = 2, WIRE_VERDICT = 3 };

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
size_t wire_header_bytes(void);

/* Start a message in `buffer`, which has room for all that will be written (the functions above).
 */
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
void wire_add_item(struct wire_writer *writer, const struct tarn_loaded *item);
void wire_end(struct wire_writer *writer, enum wire_kind kind, uint64_t number, uint32_t rank);

/* ---- reading ---- */

struct wire_reader {
    uint64_t number;
    uint32_t rank;
    struct wire_shape shape;
    uint32_t counts[2]; /* of metadata: loads, saves; else: items */
    struct reader in;
};

struct wire_block {
    struct tarn_digest digest;
    tarn_page pages[LAYOUT_GROUPS_MAX];
    const uint8_t *extra; /* in the message; NULL: there is none */
};

/* CORRUPT: not a whole message of this kind and version, or of another shape. */
NODISCARD enum tarn_status wire_open(struct tarn_bytes bytes, enum wire_kind kind,
                                     struct wire_shape shape, struct wire_reader *out_reader);

/* The next load, `counts[0]` times, each followed by its blocks; then the next save, `counts[1]`
 * times, each followed by its block; or the next item. An opened message cannot run short. */
void wire_next_load(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_first_block,
                    uint32_t *out_block_count);
void wire_next_save(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_block);
void wire_next_block(struct wire_reader *reader, struct wire_block *out_block);
void wire_next_item(struct wire_reader *reader, struct tarn_loaded *out_item);

#endif
