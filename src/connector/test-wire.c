/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

enum { GROUPS = 3, T = 2 };

static const struct wire_shape shape = { GROUPS, 16 + 8 * T };
static const int32_t tokens[T] = { 5, -2 };

static const tarn_page pages[GROUPS] = { 1, TARN_PAGE_NONE - 1, 3 };

/* One load of two blocks, and one save. */
static void metadata_write(struct wire_buffer *buffer)
{
    const struct tarn_digest digest = { { 9, 8, 7 } };
    const size_t size_bytes =
        wire_header_bytes() + wire_load_bytes(shape, 2) + wire_save_bytes(shape, 1);
    assert_int_equal(wire_buffer_reserve(buffer, size_bytes), TARN_OK);
    struct wire_writer writer = wire_begin(buffer, shape);
    wire_add_load(&writer, 77, 10, 2);
    wire_add_block(&writer, &digest, pages);
    wire_add_extra(&writer, &digest, tokens, T);
    wire_add_block(&writer, &digest, pages);
    wire_add_extra(&writer, &digest, tokens, T);
    wire_add_save(&writer, 78, 12);
    wire_add_block(&writer, &digest, pages);
    wire_add_extra(&writer, &digest, tokens, T);
    wire_end(&writer, WIRE_METADATA, 5, 0);
    assert_int_equal(buffer->size_bytes, size_bytes);
}

static void a_message_reads_back(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    struct wire_block block;
    uint64_t id;
    uint64_t first;
    uint32_t count;
    metadata_write(&buffer);
    assert_int_equal(wire_open(wire_buffer_bytes(&buffer), WIRE_METADATA, shape, &reader), TARN_OK);
    assert_int_equal(reader.number, 5);
    assert_int_equal(reader.counts[0], 1);
    assert_int_equal(reader.counts[1], 1);
    wire_next_load(&reader, &id, &first, &count);
    assert_int_equal(id, 77);
    assert_int_equal(first, 10);
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++) {
        wire_next_block(&reader, &block);
        assert_memory_equal(block.pages, pages, sizeof(pages));
        assert_int_equal(block.digest.bytes[1], 8);
        assert_memory_equal(block.extra, &block.digest, 16);
        assert_int_equal(block.extra[16], 5);
        assert_int_equal(block.extra[16 + 8], 0xfe);
        assert_int_equal(block.extra[16 + 15], 0xff);
    }
    wire_next_save(&reader, &id, &first);
    assert_int_equal(id, 78);
    assert_int_equal(first, 12);
    wire_next_block(&reader, &block);
    wire_buffer_deinit(&buffer);
}

static void a_message_cut_anywhere_or_with_more_behind_it_is_refused(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    metadata_write(&buffer);
    struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
    const size_t size_bytes = bytes.size_bytes;
    for (bytes.size_bytes = 0; bytes.size_bytes < size_bytes; bytes.size_bytes++)
        assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
    bytes.size_bytes = size_bytes + 1;
    assert_true(buffer.capacity_bytes > size_bytes);
    assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
    bytes.data = NULL;
    assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
    wire_buffer_deinit(&buffer);
}

static void another_kind_version_or_number_of_groups_is_refused(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    metadata_write(&buffer);
    const struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
    assert_int_equal(wire_open(bytes, WIRE_REPORT, shape, &reader), TARN_CORRUPT);
    const struct wire_shape others[] = { { GROUPS + 1, shape.extra_bytes }, { GROUPS, 0 } };
    for (size_t i = 0; i < LENGTH_OF(others); i++)
        assert_int_equal(wire_open(bytes, WIRE_METADATA, others[i], &reader), TARN_CORRUPT);
    for (size_t i = 0; i < 8; i++) { /* magic, version, kind */
        buffer.data[i] ^= 0x80;
        assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
        buffer.data[i] ^= 0x80;
    }
    for (size_t i = 20; i < 36; i++) { /* shape; counts: more than there is */
        buffer.data[i] ^= 0x80;
        assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
        buffer.data[i] ^= 0x80;
    }
    assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_OK);
    wire_buffer_deinit(&buffer);
}

static void an_unknown_status_reads_as_an_error(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    struct tarn_loaded item = { .id = 1, .first_block = 2, .block_count = 3, .asked_count = 4 };
    struct tarn_loaded out;
    const int32_t statuses[] = { TARN_OK, TARN_STALE, TARN_CORRUPT, 5, -6, INT32_MIN, INT32_MAX };
    assert_int_equal(wire_buffer_reserve(&buffer, 100), TARN_OK);
    for (size_t i = 0; i < LENGTH_OF(statuses); i++) {
        struct wire_writer writer = wire_begin(&buffer, WIRE_NO_BLOCKS);
        memcpy(&item.status, &statuses[i], sizeof(item.status));
        wire_add_item(&writer, &item);
        wire_end(&writer, WIRE_VERDICT, 1, 0);
        assert_int_equal(
            wire_open(wire_buffer_bytes(&buffer), WIRE_VERDICT, WIRE_NO_BLOCKS, &reader), TARN_OK);
        wire_next_item(&reader, &out);
        assert_int_equal(out.status, i < 3 ? statuses[i] : TARN_IO);
        assert_int_equal(out.asked_count, 4);
    }
    wire_buffer_deinit(&buffer);
}

static enum tarn_status grow(void)
{
    struct wire_buffer buffer = { .data = NULL };
    enum tarn_status status = wire_buffer_reserve(&buffer, 10);
    if (status == TARN_OK)
        status = wire_buffer_reserve(&buffer, 1000);
    wire_buffer_deinit(&buffer);
    return status;
}

static void a_buffer_survives_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(grow), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_reads_back),
        cmocka_unit_test(a_message_cut_anywhere_or_with_more_behind_it_is_refused),
        cmocka_unit_test(another_kind_version_or_number_of_groups_is_refused),
        cmocka_unit_test(an_unknown_status_reads_as_an_error),
        cmocka_unit_test(a_buffer_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
