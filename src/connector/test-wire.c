/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

enum { GROUPS = 3, T = 2 };

static const struct wire_shape shape = { GROUPS, 16 + 8 * T, 99 };
static const struct wire_shape list_shape = { 0, 0, 99 };
static const int32_t tokens[T] = { 5, -2 };

static const tarn_page pages[GROUPS] = { 1, TARN_PAGE_NONE - 1, 3 };

/* One load of two blocks, and one save. */
static void metadata_write(struct wire_buffer *buffer)
{
    const struct tarn_digest digest = { { 9, 8, 7 } };
    const size_t size_bytes =
        WIRE_HEADER_BYTES + wire_load_bytes(shape, 2) + wire_save_bytes(shape, 1);
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
    wire_end(&writer, &(struct wire_head){
                          .kind = WIRE_METADATA, .number = 5, .previous = 3, .verdict = 2 });
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
    assert_int_equal(reader.head.number, 5);
    assert_int_equal(reader.head.previous, 3);
    assert_int_equal(reader.head.verdict, 2);
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
    const struct wire_shape others[] = { { GROUPS + 1, shape.extra_bytes, shape.identity },
                                         { GROUPS, 0, shape.identity },
                                         { GROUPS, shape.extra_bytes, shape.identity + 1 } };
    for (size_t i = 0; i < LENGTH_OF(others); i++)
        assert_int_equal(wire_open(bytes, WIRE_METADATA, others[i], &reader), TARN_CORRUPT);
    for (size_t i = 0; i < 8; i++) { /* magic, version, kind */
        buffer.data[i] ^= 0x80;
        assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
        buffer.data[i] ^= 0x80;
    }
    for (size_t i = 16; i < 24; i++) { /* identity */
        buffer.data[i] ^= 0x80;
        assert_int_equal(wire_open(bytes, WIRE_METADATA, shape, &reader), TARN_CORRUPT);
        buffer.data[i] ^= 0x80;
    }
    for (size_t i = 48; i < 64; i++) { /* shape; counts: more than there is */
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
    struct wire_item item = { { .id = 1, .first_block = 2, .block_count = 3, .asked_count = 4 },
                              8 };
    struct wire_item out;
    struct wire_head head = { .kind = WIRE_VERDICT, .number = 1 };
    const int32_t statuses[] = { TARN_OK, TARN_STALE, TARN_CORRUPT, 5, -6, INT32_MIN, INT32_MAX };
    assert_int_equal(wire_buffer_reserve(&buffer, 200), TARN_OK);
    for (size_t i = 0; i < LENGTH_OF(statuses); i++) {
        struct wire_writer writer = wire_begin(&buffer, list_shape);
        memcpy(&item.loaded.status, &statuses[i], sizeof(item.loaded.status));
        memcpy(&head.status, &statuses[i], sizeof(head.status));
        wire_add_item(&writer, &item);
        wire_end(&writer, &head);
        assert_int_equal(wire_open(wire_buffer_bytes(&buffer), WIRE_VERDICT, list_shape, &reader),
                         TARN_OK);
        wire_next_item(&reader, &out);
        assert_int_equal(out.loaded.status, i < 3 ? statuses[i] : TARN_IO);
        assert_int_equal(reader.head.status, i < 3 ? statuses[i] : TARN_IO);
        assert_int_equal(out.loaded.asked_count, 4);
        assert_int_equal(out.step_number, 8);
    }
    wire_buffer_deinit(&buffer);
}

static void reports_and_verdicts_read_back(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    const struct wire_item item = { { .id = 1, .block_count = 3, .asked_count = 4 }, 8 };
    const struct wire_release release = { 11, 12, 13, 14, TARN_TRANSFER_LOAD, 2 };
    const struct wire_ended ended = { 21, 22 };
    struct wire_item item_out;
    struct wire_release release_out;
    struct wire_ended ended_out;
    assert_int_equal(wire_buffer_reserve(&buffer, 400), TARN_OK);
    struct wire_writer writer = wire_begin(&buffer, list_shape);
    wire_add_item(&writer, &item);
    wire_add_release(&writer, &release);
    wire_add_release(&writer, &release);
    wire_end(&writer, &(struct wire_head){ .kind = WIRE_REPORT, .number = 1, .rank = 3 });
    assert_int_equal(buffer.size_bytes,
                     WIRE_HEADER_BYTES + wire_items_bytes(1) + wire_releases_bytes(2));
    assert_int_equal(wire_open(wire_buffer_bytes(&buffer), WIRE_REPORT, list_shape, &reader),
                     TARN_OK);
    assert_int_equal(reader.head.rank, 3);
    wire_next_item(&reader, &item_out);
    assert_int_equal(item_out.loaded.block_count, 3);
    for (int i = 0; i < 2; i++) {
        wire_next_release(&reader, &release_out);
        assert_memory_equal(&release_out, &release, sizeof(release));
    }
    assert_int_equal(reader.in.left_bytes, 0);

    writer = wire_begin(&buffer, list_shape);
    wire_add_ended(&writer, &ended);
    wire_end(&writer, &(struct wire_head){ .kind = WIRE_VERDICT, .number = 1 });
    assert_int_equal(buffer.size_bytes, WIRE_HEADER_BYTES + wire_ended_bytes(1));
    assert_int_equal(wire_open(wire_buffer_bytes(&buffer), WIRE_VERDICT, list_shape, &reader),
                     TARN_OK);
    wire_next_ended(&reader, &ended_out);
    assert_memory_equal(&ended_out, &ended, sizeof(ended));
    wire_buffer_deinit(&buffer);
}

static void an_item_with_more_good_blocks_than_asked_for_is_refused(void **state)
{
    (void)state;
    struct wire_buffer buffer = { .data = NULL };
    struct wire_reader reader;
    const struct wire_item item = { { .id = 1, .block_count = 5, .asked_count = 4 }, 8 };
    assert_int_equal(wire_buffer_reserve(&buffer, 200), TARN_OK);
    struct wire_writer writer = wire_begin(&buffer, list_shape);
    wire_add_item(&writer, &item);
    wire_end(&writer, &(struct wire_head){ .kind = WIRE_VERDICT, .number = 1 });
    assert_int_equal(wire_open(wire_buffer_bytes(&buffer), WIRE_VERDICT, list_shape, &reader),
                     TARN_CORRUPT);
    wire_buffer_deinit(&buffer);
}

static void each_number_is_taken_once_in_whatever_order(void **state)
{
    (void)state;
    struct wire_window window = { .highest = 0 };
    assert_true(wire_window_has_all(&window, 0));
    assert_true(wire_window_is_stale(&window, 0));
    assert_false(wire_window_has_all(&window, 1));
    const uint64_t order[] = { 2, 1, 5, 3, 4, 40, 7 };
    for (size_t i = 0; i < LENGTH_OF(order); i++) {
        assert_false(wire_window_is_stale(&window, order[i]));
        wire_window_take(&window, order[i]);
        assert_true(wire_window_is_stale(&window, order[i]));
    }
    assert_true(wire_window_has_all(&window, 5));
    assert_false(wire_window_has_all(&window, 6));
    assert_false(wire_window_has_all(&window, 40));
    assert_false(wire_window_is_stale(&window, 6));
    wire_window_take(&window, 1000);
    assert_true(wire_window_is_stale(&window, 6)); /* too old to know */
    assert_true(wire_window_is_stale(&window, 936));
    assert_false(wire_window_is_stale(&window, 937));
    assert_false(wire_window_has_all(&window, 1000));
    for (uint64_t number = 937; number < 1000; number++)
        wire_window_take(&window, number);
    assert_true(wire_window_has_all(&window, 1000));
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
        cmocka_unit_test(reports_and_verdicts_read_back),
        cmocka_unit_test(an_item_with_more_good_blocks_than_asked_for_is_refused),
        cmocka_unit_test(each_number_is_taken_once_in_whatever_order),
        cmocka_unit_test(an_unknown_status_reads_as_an_error),
        cmocka_unit_test(a_buffer_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
