/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/format.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "store/local/create.h"
#include "store/local/policy.h"

static void parts_follow_each_other_and_data_begins_on_a_frame(void **state)
{
    (void)state;
    const uint64_t counts[] = { 1, 3, 31, 4096, 100000 };
    for (size_t i = 0; i < LENGTH_OF(counts); i++) {
        struct pool_geometry geometry;
        assert_int_equal(geometry_init(counts[i], 128, &geometry), TARN_OK);
        assert_int_equal(geometry.slot_count, counts[i] * 128);
        assert_true(geometry.process_offset + POOL_PROCESSES * sizeof(struct pool_process) <=
                    geometry.frame_offset);
        assert_true(geometry.frame_offset + counts[i] * 8 <= geometry.name_state_offset);
        assert_true(geometry.name_text_offset + POOL_NAMESPACES * sizeof(struct pool_name) <=
                    geometry.header_offset);
        assert_true(geometry.header_offset + geometry.slot_count * sizeof(struct pool_header) <=
                    geometry.bucket_offset);
        assert_true(geometry.bucket_offset + geometry.bucket_count * sizeof(struct pool_bucket) <=
                    geometry.data_offset);
        assert_int_equal(geometry.data_offset % POOL_FRAME_BYTES, 0);
        assert_int_equal(geometry.file_bytes, geometry.data_offset + counts[i] * POOL_FRAME_BYTES);
    }
}

static void metadata_takes_at_most_96_bytes_a_slot_from_64_mib_on(void **state)
{
    (void)state;
    struct pool_geometry geometry;
    assert_int_equal(geometry_fit(UINT64_C(8) << 30, 128, &geometry), TARN_OK);
    assert_true(geometry.data_offset <= (uint64_t)geometry.slot_count * 96);
}

static void counts_out_of_range_are_refused(void **state)
{
    (void)state;
    struct pool_geometry geometry;
    assert_int_equal(geometry_init(0, 128, &geometry), TARN_INVALID);
    assert_int_equal(geometry_init(1, 0, &geometry), TARN_INVALID);
    assert_int_equal(geometry_init(1, POOL_FRAME_SLOTS_MAX + 1, &geometry), TARN_INVALID);
    assert_int_equal(geometry_init(POOL_FRAMES_MAX + UINT64_C(1), 1, &geometry), TARN_INVALID);
    assert_int_equal(geometry_init(POOL_FRAMES_MAX, 512, &geometry), TARN_INVALID);
    assert_int_equal(geometry_init(UINT64_MAX, UINT64_MAX, &geometry), TARN_INVALID);
}

static void the_largest_pool_that_fits_is_never_larger(void **state)
{
    (void)state;
    for (uint64_t mib = 8; mib < 5000; mib += 97) {
        struct pool_geometry geometry;
        struct pool_geometry larger;
        assert_int_equal(geometry_fit(mib << 20, 128, &geometry), TARN_OK);
        assert_true(geometry.file_bytes <= mib << 20);
        assert_int_equal(geometry_init(geometry.frame_count + UINT64_C(1), 128, &larger), TARN_OK);
        assert_true(larger.file_bytes > mib << 20);
    }
    struct pool_geometry geometry;
    assert_int_equal(geometry_fit(1 << 20, 128, &geometry), TARN_NO_SPACE);
}

static const char *superblock_fault(const struct pool_superblock *super, uint64_t file_bytes)
{
    struct pool_geometry geometry;
    const char *reason = "none";
    (void)(superblock_check(super, file_bytes, &geometry, &reason) == TARN_OK);
    return reason;
}

static void every_changed_byte_of_a_superblock_is_refused(void **state)
{
    (void)state;
    struct pool_geometry geometry;
    struct pool_superblock super;
    assert_int_equal(geometry_init(31, 128, &geometry), TARN_OK);
    superblock_make(&geometry, &super);
    assert_string_equal(superblock_fault(&super, geometry.file_bytes), "none");
    assert_string_not_equal(superblock_fault(&super, geometry.file_bytes - 1), "none");
    uint8_t *bytes = (uint8_t *)&super;
    for (size_t i = 0; i < sizeof(super); i++) {
        bytes[i] ^= 0x40;
        assert_string_not_equal(superblock_fault(&super, geometry.file_bytes), "none");
        bytes[i] ^= 0x40;
    }
}

static void words_give_back_what_was_put_into_them(void **state)
{
    (void)state;
    const uint64_t generation = (UINT64_C(1) << 53) - 1;
    const uint64_t ctl = ctl_make(PAGE_EVICTING, 63, generation);
    assert_int_equal(ctl_state(ctl), PAGE_EVICTING);
    assert_int_equal(ctl_owner(ctl), 63);
    assert_true(ctl_generation(ctl) == generation);
    assert_true(ctl_same_page(ctl, ctl | CTL_ATTACHED));
    assert_false(ctl_same_page(ctl, ctl_make(PAGE_EVICTING, 63, generation - 1)));
    const uint64_t frame = frame_make(FRAME_DRAINING, 63, 32, 16384);
    assert_int_equal(frame_state(frame), FRAME_DRAINING);
    assert_int_equal(frame_owner(frame), 63);
    assert_int_equal(frame_frames(frame), 32);
    assert_int_equal(frame_units(frame), 16384);
    assert_int_equal(frame_head(frame_make_tail(12345678)), 12345678);
    const uint64_t name = name_make(NAME_WRITING, 63, STORE_NAMESPACE_BYTES_MAX, 0xfffff);
    assert_int_equal(name_state(name), NAME_WRITING);
    assert_int_equal(name_owner(name), 63);
    assert_int_equal(name_length(name), STORE_NAMESPACE_BYTES_MAX);
    assert_int_equal(name_generation(name), 0xfffff);
    assert_int_equal(chain_depth(chain_make(7, 4095)), 7);
    assert_int_equal(chain_depth(chain_make(UINT32_MAX, 0)), DEPTH_MAX);
}

static void a_chunk_wastes_at_most_a_sixteenth_where_one_can(void **state)
{
    (void)state;
    struct pool_geometry geometry;
    assert_int_equal(geometry_init(1000, 512, &geometry), TARN_OK);
    for (uint32_t kib = 4; kib <= 32 << 10; kib += 4) {
        struct page_class page;
        assert_int_equal(class_of(&geometry, (uint64_t)kib << 10, &page), TARN_OK);
        assert_int_equal(page.units, kib / 4);
        const uint64_t chunk_bytes = (uint64_t)page.frames * POOL_FRAME_BYTES;
        const uint64_t used_bytes = (uint64_t)page.pages * page.units * POOL_UNIT_BYTES;
        assert_true(page.pages > 0 && used_bytes <= chunk_bytes);
        if (kib <= 4 << 10) /* larger ones may have to waste more: a chunk has an end */
            assert_true((chunk_bytes - used_bytes) * 16 <= chunk_bytes);
    }
}

static void pages_that_cannot_fit_are_declined(void **state)
{
    (void)state;
    struct pool_geometry geometry;
    struct page_class page;
    assert_int_equal(geometry_init(31, 128, &geometry), TARN_OK);
    assert_int_equal(class_of(&geometry, 0, &page), TARN_NO_SPACE);
    assert_int_equal(class_of(&geometry, UINT64_MAX, &page), TARN_NO_SPACE);
    assert_int_equal(class_of(&geometry, POOL_PAGE_BYTES_MAX, &page), TARN_NO_SPACE);
    assert_int_equal(class_of(&geometry, 20 << 20, &page), TARN_OK);
    assert_int_equal(class_of(&geometry, 22 << 20, &page), TARN_NO_SPACE);
    assert_int_equal(chunk_pages(&geometry, 0, 1), 0);
    assert_int_equal(chunk_pages(&geometry, 1, 0), 0);
    assert_int_equal(chunk_pages(&geometry, 1, 33), 0);
}

static void the_default_size_is_the_least_of_three(void **state)
{
    (void)state;
    struct pool_room room = { 4000, 3000, UINT64_MAX };
    assert_int_equal(pool_default_bytes(&room), 1000);
    room.file_system_bytes = 1000;
    assert_int_equal(pool_default_bytes(&room), 500);
    room.group_bytes = 400;
    assert_int_equal(pool_default_bytes(&room), 200);
    room.group_bytes = 0;
    assert_int_equal(pool_default_bytes(&room), 0);
}

static void the_longest_unused_goes_first_then_the_deepest(void **state)
{
    (void)state;
    const struct candidate older = { .stamp = 5, .depth = 1 };
    const struct candidate newer = { .stamp = 6, .depth = 9 };
    const struct candidate deeper = { .stamp = 5, .depth = 2 };
    const struct candidate wrapped = { .stamp = 3 };
    const struct candidate before_wrap = { .stamp = UINT32_MAX - 2 };
    assert_true(policy_goes_before(&older, &newer));
    assert_false(policy_goes_before(&newer, &older));
    assert_true(policy_goes_before(&deeper, &older));
    assert_false(policy_goes_before(&older, &deeper));
    assert_true(policy_goes_before(&before_wrap, &wrapped));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_follow_each_other_and_data_begins_on_a_frame),
        cmocka_unit_test(metadata_takes_at_most_96_bytes_a_slot_from_64_mib_on),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(the_largest_pool_that_fits_is_never_larger),
        cmocka_unit_test(every_changed_byte_of_a_superblock_is_refused),
        cmocka_unit_test(words_give_back_what_was_put_into_them),
        cmocka_unit_test(a_chunk_wastes_at_most_a_sixteenth_where_one_can),
        cmocka_unit_test(pages_that_cannot_fit_are_declined),
        cmocka_unit_test(the_default_size_is_the_least_of_three),
        cmocka_unit_test(the_longest_unused_goes_first_then_the_deepest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
