/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/wire.h"

#include "base/alloc.h"

enum {
    WIRE_MAGIC = 0x574e5254, /* "TRNW" */
    WIRE_VERSION = 2,
    LOAD_HEAD_BYTES = 20,
    SAVE_HEAD_BYTES = 16,
    ITEM_BYTES = 44,
    RELEASE_BYTES = 32,
    ENDED_BYTES = 16,
    WINDOW = 64,
};

static size_t block_bytes(struct wire_shape shape)
{
    return sizeof(struct tarn_digest) + 8 * (size_t)shape.group_count + shape.extra_bytes;
}

enum tarn_status wire_buffer_reserve(struct wire_buffer *buffer, size_t size_bytes)
{
    if (size_bytes <= buffer->capacity_bytes)
        return TARN_OK;
    uint8_t *data = mem_alloc(size_bytes + size_bytes / 2, 1);
    if (!data)
        return TARN_NO_MEMORY;
    mem_free(buffer->data);
    *buffer = (struct wire_buffer){ .data = data, .capacity_bytes = size_bytes + size_bytes / 2 };
    return TARN_OK;
}

void wire_buffer_deinit(struct wire_buffer *buffer)
{
    mem_free(buffer->data);
    *buffer = (struct wire_buffer){ 0 };
}

struct tarn_bytes wire_buffer_bytes(const struct wire_buffer *buffer)
{
    return (struct tarn_bytes){ .data = buffer->data, .size_bytes = buffer->size_bytes };
}

size_t wire_load_bytes(struct wire_shape shape, uint64_t block_count)
{
    return LOAD_HEAD_BYTES + (size_t)block_count * block_bytes(shape);
}

size_t wire_save_bytes(struct wire_shape shape, uint64_t block_count)
{
    return (size_t)block_count * (SAVE_HEAD_BYTES + block_bytes(shape));
}

size_t wire_items_bytes(size_t item_count)
{
    return item_count * ITEM_BYTES;
}

size_t wire_releases_bytes(size_t release_count)
{
    return release_count * RELEASE_BYTES;
}

size_t wire_ended_bytes(size_t ended_count)
{
    return ended_count * ENDED_BYTES;
}

struct wire_writer wire_begin(struct wire_buffer *buffer, struct wire_shape shape)
{
    ASSERT(buffer->capacity_bytes >= WIRE_HEADER_BYTES);
    return (struct wire_writer){
        .buffer = buffer,
        .out = writer_init(buffer->data + WIRE_HEADER_BYTES,
                           buffer->capacity_bytes - WIRE_HEADER_BYTES),
        .shape = shape,
    };
}

void wire_add_load(struct wire_writer *writer, uint64_t id, uint64_t first_block,
                   uint32_t block_count)
{
    ASSERT(writer->counts[1] == 0);
    writer->counts[0]++;
    writer_uint(&writer->out, id, 8);
    writer_uint(&writer->out, first_block, 8);
    writer_uint(&writer->out, block_count, 4);
}

void wire_add_save(struct wire_writer *writer, uint64_t id, uint64_t block)
{
    writer->counts[1]++;
    writer_uint(&writer->out, id, 8);
    writer_uint(&writer->out, block, 8);
}

void wire_add_block(struct wire_writer *writer, const struct tarn_digest *digest,
                    const tarn_page *pages)
{
    writer_bytes(&writer->out, digest->bytes, sizeof(digest->bytes));
    for (uint32_t i = 0; i < writer->shape.group_count; i++)
        writer_uint(&writer->out, pages[i], 8);
}

uint32_t wire_extra_bytes(uint32_t tokens_per_block)
{
    return (uint32_t)sizeof(struct tarn_digest) + 8 * tokens_per_block;
}

void wire_add_extra(struct wire_writer *writer, const struct tarn_digest *parent,
                    const int32_t *tokens, uint32_t token_count)
{
    if (writer->shape.extra_bytes == 0)
        return;
    ASSERT(writer->shape.extra_bytes == wire_extra_bytes(token_count));
    writer_bytes(&writer->out, parent->bytes, sizeof(parent->bytes));
    for (uint32_t i = 0; i < token_count; i++)
        writer_uint(&writer->out, (uint64_t)(int64_t)tokens[i], 8);
}

void wire_add_item(struct wire_writer *writer, const struct wire_item *item)
{
    ASSERT(writer->counts[1] == 0);
    writer->counts[0]++;
    writer_uint(&writer->out, item->loaded.id, 8);
    writer_uint(&writer->out, item->step_number, 8);
    writer_uint(&writer->out, item->loaded.first_block, 8);
    writer_uint(&writer->out, item->loaded.block_count, 8);
    writer_uint(&writer->out, item->loaded.asked_count, 8);
    writer_uint(&writer->out, (uint32_t)item->loaded.status, 4);
}

void wire_add_release(struct wire_writer *writer, const struct wire_release *release)
{
    writer->counts[1]++;
    writer_uint(&writer->out, release->id, 8);
    writer_uint(&writer->out, release->step_number, 8);
    writer_uint(&writer->out, release->block, 8);
    writer_uint(&writer->out, release->group, 4);
    writer_uint(&writer->out, release->kind, 2);
    writer_uint(&writer->out, release->outcome, 2);
}

void wire_add_ended(struct wire_writer *writer, const struct wire_ended *ended)
{
    writer->counts[1]++;
    writer_uint(&writer->out, ended->id, 8);
    writer_uint(&writer->out, ended->step_number, 8);
}

void wire_end(struct wire_writer *writer, const struct wire_head *head)
{
    struct wire_buffer *buffer = writer->buffer;
    struct writer out = writer_init(buffer->data, WIRE_HEADER_BYTES);
    ASSERT(!writer->out.failed);
    writer_uint(&out, WIRE_MAGIC, 4);
    writer_uint(&out, WIRE_VERSION, 2);
    writer_uint(&out, (uint64_t)head->kind, 2);
    writer_uint(&out, head->number, 8);
    writer_uint(&out, writer->shape.identity, 8);
    writer_uint(&out, head->previous, 8);
    writer_uint(&out, head->verdict, 8);
    writer_uint(&out, head->rank, 4);
    writer_uint(&out, (uint32_t)head->status, 4);
    writer_uint(&out, writer->shape.group_count, 4);
    writer_uint(&out, writer->shape.extra_bytes, 4);
    writer_uint(&out, writer->counts[0], 4);
    writer_uint(&out, writer->counts[1], 4);
    ASSERT(!out.failed && out.left_bytes == 0);
    buffer->size_bytes = (size_t)(writer->out.next - buffer->data);
}

static void reader_skip(struct reader *reader, uint64_t size_bytes)
{
    if (reader->failed || size_bytes > reader->left_bytes) {
        reader->failed = true;
        return;
    }
    reader->next += size_bytes;
    reader->left_bytes -= (size_t)size_bytes;
}

static enum tarn_status status_read(struct reader *in)
{
    const int32_t status = (int32_t)(uint32_t)reader_uint(in, 4);
    const bool is_known = status >= TARN_CORRUPT && status <= TARN_STALE;
    return is_known ? (enum tarn_status)status : TARN_IO;
}

static struct wire_item item_read(struct reader *in)
{
    struct wire_item item;
    item.loaded.id = reader_uint(in, 8);
    item.step_number = reader_uint(in, 8);
    item.loaded.first_block = reader_uint(in, 8);
    item.loaded.block_count = reader_uint(in, 8);
    item.loaded.asked_count = reader_uint(in, 8);
    item.loaded.status = status_read(in);
    return item;
}

static void blocks_skip(const struct wire_reader *reader, struct reader *in)
{
    for (uint32_t i = 0; i < reader->counts[0] && !in->failed; i++) {
        reader_skip(in, LOAD_HEAD_BYTES - 4);
        const uint64_t block_count = reader_uint(in, 4);
        reader_skip(in, block_count * block_bytes(reader->shape));
    }
    reader_skip(in, (uint64_t)reader->counts[1] * (SAVE_HEAD_BYTES + block_bytes(reader->shape)));
}

/* Step over the whole body; what is left then is too much, and `failed` says it was too little. */
static void body_skip(const struct wire_reader *reader, struct reader *in)
{
    if (reader->head.kind == WIRE_METADATA) {
        blocks_skip(reader, in);
        return;
    }
    for (uint32_t i = 0; i < reader->counts[0] && !in->failed; i++) {
        const struct wire_item item = item_read(in);
        if (item.loaded.block_count > item.loaded.asked_count)
            in->failed = true;
    }
    reader_skip(in, (uint64_t)reader->counts[1] *
                        (reader->head.kind == WIRE_REPORT ? RELEASE_BYTES : ENDED_BYTES));
}

enum tarn_status wire_open(struct tarn_bytes bytes, enum wire_kind kind, struct wire_shape shape,
                           struct wire_reader *out_reader)
{
    struct wire_reader reader = { .head.kind = kind };
    if (!bytes.data)
        return TARN_CORRUPT;
    reader.in = reader_init(bytes.data, bytes.size_bytes);
    const uint64_t magic = reader_uint(&reader.in, 4);
    const uint64_t version = reader_uint(&reader.in, 2);
    const uint64_t found_kind = reader_uint(&reader.in, 2);
    reader.head.number = reader_uint(&reader.in, 8);
    reader.shape.identity = reader_uint(&reader.in, 8);
    reader.head.previous = reader_uint(&reader.in, 8);
    reader.head.verdict = reader_uint(&reader.in, 8);
    reader.head.rank = (uint32_t)reader_uint(&reader.in, 4);
    reader.head.status = status_read(&reader.in);
    reader.shape.group_count = (uint32_t)reader_uint(&reader.in, 4);
    reader.shape.extra_bytes = (uint32_t)reader_uint(&reader.in, 4);
    reader.counts[0] = (uint32_t)reader_uint(&reader.in, 4);
    reader.counts[1] = (uint32_t)reader_uint(&reader.in, 4);
    if (reader.in.failed || magic != WIRE_MAGIC || version != WIRE_VERSION ||
        found_kind != (uint64_t)kind)
        return TARN_CORRUPT;
    if (reader.shape.group_count != shape.group_count ||
        reader.shape.extra_bytes != shape.extra_bytes || reader.shape.identity != shape.identity ||
        shape.group_count > LAYOUT_GROUPS_MAX)
        return TARN_CORRUPT;
    struct reader in = reader.in;
    body_skip(&reader, &in);
    if (in.failed || in.left_bytes != 0)
        return TARN_CORRUPT;
    *out_reader = reader;
    return TARN_OK;
}

void wire_next_load(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_first_block,
                    uint32_t *out_block_count)
{
    *out_id = reader_uint(&reader->in, 8);
    *out_first_block = reader_uint(&reader->in, 8);
    *out_block_count = (uint32_t)reader_uint(&reader->in, 4);
    ASSERT(!reader->in.failed);
}

void wire_next_save(struct wire_reader *reader, uint64_t *out_id, uint64_t *out_block)
{
    *out_id = reader_uint(&reader->in, 8);
    *out_block = reader_uint(&reader->in, 8);
    ASSERT(!reader->in.failed);
}

void wire_next_block(struct wire_reader *reader, struct wire_block *out_block)
{
    reader_bytes(&reader->in, out_block->digest.bytes, sizeof(out_block->digest.bytes));
    for (uint32_t i = 0; i < reader->shape.group_count; i++)
        out_block->pages[i] = reader_uint(&reader->in, 8);
    out_block->extra = reader->shape.extra_bytes ? reader->in.next : NULL;
    reader_skip(&reader->in, reader->shape.extra_bytes);
    ASSERT(!reader->in.failed);
}

void wire_next_item(struct wire_reader *reader, struct wire_item *out_item)
{
    *out_item = item_read(&reader->in);
    ASSERT(!reader->in.failed);
}

void wire_next_release(struct wire_reader *reader, struct wire_release *out_release)
{
    out_release->id = reader_uint(&reader->in, 8);
    out_release->step_number = reader_uint(&reader->in, 8);
    out_release->block = reader_uint(&reader->in, 8);
    out_release->group = (uint32_t)reader_uint(&reader->in, 4);
    out_release->kind = (uint16_t)reader_uint(&reader->in, 2);
    out_release->outcome = (uint16_t)reader_uint(&reader->in, 2);
    ASSERT(!reader->in.failed);
}

void wire_next_ended(struct wire_reader *reader, struct wire_ended *out_ended)
{
    out_ended->id = reader_uint(&reader->in, 8);
    out_ended->step_number = reader_uint(&reader->in, 8);
    ASSERT(!reader->in.failed);
}

/* ---- numbers ---- */

bool wire_window_is_stale(const struct wire_window *window, uint64_t number)
{
    if (number > window->highest)
        return false;
    const uint64_t back = window->highest - number;
    return number == 0 || back >= WINDOW || !(window->missing >> back & 1);
}

void wire_window_take(struct wire_window *window, uint64_t number)
{
    ASSERT(!wire_window_is_stale(window, number));
    if (number <= window->highest) {
        window->missing &= ~(UINT64_C(1) << (window->highest - number));
        return;
    }
    const uint64_t ahead = number - window->highest;
    window->missing = ahead < WINDOW ? window->missing << ahead : 0;
    window->missing |= ahead < WINDOW ? (UINT64_C(1) << ahead) - 2 : UINT64_MAX - 1;
    window->highest = number;
}

bool wire_window_has_all(const struct wire_window *window, uint64_t number)
{
    if (number > window->highest)
        return false;
    const uint64_t back = window->highest - number;
    return back >= WINDOW || window->missing >> back == 0;
}
