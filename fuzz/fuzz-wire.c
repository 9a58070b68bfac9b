/* SPDX-License-Identifier: Apache-2.0 */
/* A message from another rank that is accepted can be read to its end, and nothing is left. The
 * first byte chooses the kind and the shape of blocks. */
#include "connector/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void metadata_read(struct wire_reader *reader)
{
    struct wire_block block;
    uint64_t id;
    uint64_t index;
    uint32_t block_count;
    for (uint32_t i = 0; i < reader->counts[0]; i++) {
        wire_next_load(reader, &id, &index, &block_count);
        for (uint32_t j = 0; j < block_count; j++)
            wire_next_block(reader, &block);
    }
    for (uint32_t i = 0; i < reader->counts[1]; i++) {
        wire_next_save(reader, &id, &index);
        wire_next_block(reader, &block);
    }
}

static void lists_read(struct wire_reader *reader)
{
    struct wire_item item;
    struct wire_release release;
    struct wire_ended ended;
    for (uint32_t i = 0; i < reader->counts[0]; i++) {
        wire_next_item(reader, &item);
        ASSERT(item.loaded.block_count <= item.loaded.asked_count);
    }
    for (uint32_t i = 0; i < reader->counts[1]; i++) {
        if (reader->head.kind == WIRE_REPORT)
            wire_next_release(reader, &release);
        else
            wire_next_ended(reader, &ended);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct wire_reader reader;
    if (size_bytes == 0)
        return 0;
    const enum wire_kind kind = (enum wire_kind)(data[0] % 3 + 1);
    const struct tarn_bytes bytes = { data + 1, size_bytes - 1 };
    struct wire_shape shape = { data[0] / 3 % 8, data[0] / 24 * 8, 0 };
    if (bytes.size_bytes >= 24)
        memcpy(&shape.identity, data + 17, sizeof(shape.identity)); /* whoever it is from */
    if (wire_open(bytes, kind, shape, &reader) != TARN_OK)
        return 0;
    if (kind == WIRE_METADATA) {
        metadata_read(&reader);
    } else {
        lists_read(&reader);
    }
    ASSERT(reader.in.left_bytes == 0);
    return 0;
}
