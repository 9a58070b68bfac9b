/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

static const uint32_t layers[] = { 0, 1 };
static const struct tarn_buffer buffers[] = { { 0, TARN_KEY }, { 0, TARN_VALUE } };

/* Two regions that interleave: slots of 64 bytes, 40 for the first and 16 for the second. */
static struct tarn_region regions_a[2];
static struct tarn_region regions_b[1];
static struct tarn_group groups[2];
static struct tarn_layout desc;
static char reason[LAYOUT_REASON_BYTES];

static int make_desc(void **state)
{
    (void)state;
    regions_a[0] = (struct tarn_region){ 1000, 40, 64, 8, buffers, 2 };
    regions_a[1] = (struct tarn_region){ 1048, 16, 64, 8, buffers, 1 };
    regions_b[0] = (struct tarn_region){ 10000, 100, 128, 4, NULL, 0 };
    groups[0] = (struct tarn_group){ 0, 0, layers, 2, regions_a, 2 };
    groups[1] = (struct tarn_group){ 1, 512, layers, 1, regions_b, 1 };
    desc =
        (struct tarn_layout){ sizeof(desc), 32, TARN_PAGES_BY_SLOT, groups, 2, NULL, 0, NULL, 0 };
    memset(reason, 0, sizeof(reason));
    return 0;
}

static struct layout *make(void)
{
    struct layout *layout = NULL;
    assert_int_equal(layout_create(&desc, 7, reason, &layout), TARN_OK);
    return layout;
}

static void refused(const char *why)
{
    struct layout *layout = NULL;
    assert_int_equal(layout_create(&desc, 7, reason, &layout), TARN_INVALID);
    assert_null(layout);
    assert_string_equal(reason, why);
    make_desc(NULL);
}

static void a_page_by_slot_is_one_run_a_region(void **state)
{
    (void)state;
    struct layout *layout = make();
    struct tarn_span spans[2];
    assert_int_equal(layout->region_count_max, 2);
    assert_int_equal(layout->groups[0].page_bytes, 56);
    assert_int_equal(layout_page_spans(layout, 0, 3, spans), TARN_OK);
    assert_int_equal((uintptr_t)spans[0].base, 1000 + 3 * 64);
    assert_int_equal(spans[0].size_bytes, 40);
    assert_int_equal((uintptr_t)spans[1].base, 1048 + 3 * 64);
    assert_int_equal(spans[1].size_bytes, 16);
    layout_destroy(layout);
}

static void a_slot_out_of_range_is_refused(void **state)
{
    (void)state;
    struct layout *layout = make();
    struct tarn_span spans[2] = { { NULL, 77 } };
    assert_true(layout_has_page(layout, 0, 7));
    assert_int_equal(layout_page_spans(layout, 0, 8, spans), TARN_INVALID);
    assert_int_equal(layout_page_spans(layout, 1, 4, spans), TARN_INVALID);
    assert_int_equal(layout_page_spans(layout, 2, 0, spans), TARN_INVALID);
    assert_int_equal(layout_page_spans(layout, 0, TARN_PAGE_NONE, spans), TARN_INVALID);
    assert_int_equal(spans[0].size_bytes, 77);
    layout_destroy(layout);
    layout_destroy(NULL);
}

static void interleaved_regions_are_registered_once(void **state)
{
    (void)state;
    struct layout *layout = make();
    assert_int_equal(layout->range_count, 2);
    assert_int_equal(layout->ranges[0].start, 1000);
    assert_int_equal(layout->ranges[0].size_bytes, 48 + 7 * 64 + 16);
    assert_int_equal(layout->ranges[1].start, 10000);
    assert_int_equal(layout->ranges[1].size_bytes, 3 * 128 + 100);
    assert_int_equal(layout->memory_bytes, 56 * 8 + 100 * 4);
    layout_destroy(layout);
}

static void mixed_slot_counts_are_refused(void **state)
{
    (void)state;
    regions_a[1].slot_count = 9;
    refused("region 1 of layer group 0 has 9 slots, region 0 has 8: a page is one slot of all "
            "regions");
}

static void what_cannot_be_a_layout_is_refused_with_its_reason(void **state)
{
    (void)state;
    desc.group_count = 0;
    refused("the layout has no layer groups");
    desc.group_count = 65;
    refused("the layout has 65 layer groups, the limit is 64");
    groups[1].id = 0;
    refused("layer group id 0 is used twice");
    groups[1].id = 2;
    refused("layer group id 2 is not dense: 2 groups have ids 0 to 1");
    groups[1].region_count = 0;
    refused("layer group 1 has no regions");
    groups[0].layers = NULL;
    refused("layer group 0 has no list of its 2 layers");
    regions_b[0].slot_count = 0;
    refused("region 0 of layer group 1 has no slots");
    regions_b[0].size_bytes = 0;
    refused("region 0 of layer group 1 is empty");
    regions_b[0].stride_bytes = 99;
    refused("region 0 of layer group 1 has a stride of 99 bytes, below its size of 100: "
            "neighbouring slots would overlap");
    regions_b[0].base = UINT64_MAX - 480;
    refused("region 0 of layer group 1 runs past an end of the address space");
    regions_b[0].stride_bytes = UINT64_MAX / 2;
    refused("region 0 of layer group 1 runs past an end of the address space");
    regions_a[0].buffer_count = 1u << 20;
    refused("region 0 of layer group 0 has no list of its 1048576 buffers");
    const struct tarn_buffer unknown = { 0, 9 };
    regions_b[0].buffers = &unknown;
    regions_b[0].buffer_count = 1;
    refused("region 0 of layer group 1 has a buffer of unknown role 9");
    desc.tokens_per_block = 0;
    refused("tokens_per_block is 0, allowed is 1 to 65536");
    desc.page_form = 2;
    refused("unknown page form 2");
    desc.page_form = TARN_PAGES_BY_ADDRESS;
    refused("pages are named by address, but no allocation is given");
}

static void use_group_of_one_region(void)
{
    desc.groups = &groups[1];
    desc.group_count = 1;
    groups[1].id = 0;
}

/* Registered with the pages, and never part of what is stored. */
static void headroom_before_a_page_is_registered_with_it(void **state)
{
    (void)state;
    struct tarn_span span;
    use_group_of_one_region();
    desc.headroom_bytes = 28;
    struct layout *layout = make();
    assert_int_equal(layout->headroom_bytes, 28);
    assert_int_equal(layout->groups[0].page_bytes, 100);
    assert_int_equal(layout->range_count, 1);
    assert_int_equal(layout->ranges[0].start, 10000 - 28);
    assert_int_equal(layout->ranges[0].size_bytes, 28 + 3 * 128 + 100);
    assert_int_equal(layout_page_spans(layout, 0, 1, &span), TARN_OK);
    assert_int_equal((uintptr_t)span.base, 10128);
    assert_int_equal(span.size_bytes, 100);
    /* Cut in its headroom, a page is not whole. */
    const struct range cut[] = { { 9972, 140 }, { 10112, 400 } };
    assert_true(layout_page_is_whole(layout, 0, 0, cut, 2));
    assert_false(layout_page_is_whole(layout, 0, 1, cut, 2));
    const uint64_t fingerprint = layout->groups[0].fingerprint;
    layout_destroy(layout);

    desc.headroom_bytes = 0;
    layout = make();
    assert_true(layout->groups[0].fingerprint == fingerprint);
    layout_destroy(layout);

    desc.headroom_bytes = 29;
    refused("region 0 of layer group 0 has a stride of 128 bytes, which leaves no headroom_bytes "
            "of 29 between its slots of 100");
    desc.headroom_bytes = 8;
    refused("headroom_bytes is 8, and pages of layer group 0 have 2 regions: it is for pages of "
            "one; leave it 0");
    use_group_of_one_region();
    regions_b[0].base = 20;
    desc.headroom_bytes = 28;
    refused("region 0 of layer group 0 runs past an end of the address space");
}

static void a_page_by_address_has_its_headroom_in_registered_memory(void **state)
{
    (void)state;
    struct tarn_span memory = { (void *)5000, 1000 };
    struct tarn_span span;
    regions_b[0].base = 0;
    use_group_of_one_region();
    desc.page_form = TARN_PAGES_BY_ADDRESS;
    desc.memory = &memory;
    desc.memory_count = 1;
    desc.headroom_bytes = 64;
    struct layout *layout = make();
    assert_int_equal(layout_page_spans(layout, 0, 5064, &span), TARN_OK);
    assert_int_equal((uintptr_t)span.base, 5064);
    assert_int_equal(span.size_bytes, 100);
    assert_false(layout_has_page(layout, 0, 5063));
    assert_true(layout_has_page(layout, 0, 5900));
    assert_false(layout_has_page(layout, 0, 5901));
    assert_false(layout_has_page(layout, 0, 63)); /* nothing is before it */
    layout_destroy(layout);
}

static void groups_may_come_in_any_order(void **state)
{
    (void)state;
    const struct tarn_group swapped[] = { groups[1], groups[0] };
    desc.groups = swapped;
    struct layout *layout = make();
    assert_int_equal(layout->groups[0].page_bytes, 56);
    assert_int_equal(layout->groups[1].page_bytes, 100);
    layout_destroy(layout);
}

static void spans_are_merged_inside_one_allocation_only(void **state)
{
    (void)state;
    /* Two regions that touch, at 1000 and 1512, in two allocations that touch there. */
    regions_a[0] = (struct tarn_region){ 1000, 64, 64, 8, NULL, 0 };
    regions_a[1] = (struct tarn_region){ 1512, 64, 64, 8, NULL, 0 };
    struct tarn_span memory[] = { { (void *)10000, 1000 },
                                  { (void *)1512, 600 },
                                  { (void *)900, 612 } };
    struct layout *layout = make();
    assert_int_equal(layout->range_count, 2);
    layout_destroy(layout);

    desc.memory = memory;
    desc.memory_count = 3;
    layout = make();
    assert_int_equal(layout->range_count, 3);
    assert_int_equal(layout->ranges[0].start, 1000);
    assert_int_equal(layout->ranges[0].size_bytes, 512);
    assert_int_equal(layout->ranges[1].start, 1512);
    assert_int_equal(layout->ranges[2].start, 10000);
    layout_destroy(layout);

    memory[0].size_bytes = 483;
    desc.memory = memory;
    desc.memory_count = 3;
    refused("a region does not lie in one of the 3 allocations");
    memory[1].base = (void *)1511;
    desc.memory = memory;
    desc.memory_count = 3;
    refused("two allocations overlap");
}

static void a_page_by_address_lies_in_registered_memory(void **state)
{
    (void)state;
    struct tarn_span memory[] = { { (void *)5000, 1000 }, { (void *)9000, 100 } };
    struct tarn_span spans[2];
    regions_a[0].base = 0;
    regions_a[1].base = 48;
    desc.page_form = TARN_PAGES_BY_ADDRESS;
    desc.group_count = 1;
    desc.memory = memory;
    desc.memory_count = 2;
    struct layout *layout = make();
    assert_int_equal(layout->range_count, 2);
    assert_int_equal(layout->memory_bytes, 1100);
    assert_int_equal(layout_page_spans(layout, 0, 5100, spans), TARN_OK);
    assert_int_equal((uintptr_t)spans[0].base, 5100);
    assert_int_equal((uintptr_t)spans[1].base, 5148);
    assert_true(layout_has_page(layout, 0, 5936));
    assert_false(layout_has_page(layout, 0, 5937)); /* its last byte is outside */
    assert_false(layout_has_page(layout, 0, 4999));
    assert_false(layout_has_page(layout, 0, 0));
    assert_false(layout_has_page(layout, 0, 9050)); /* region 1 is outside */
    assert_false(layout_has_page(layout, 0, UINT64_MAX - 10));
    assert_false(layout_has_page(layout, 0, TARN_PAGE_NONE));
    layout_destroy(layout);
}

static void a_page_that_straddles_a_split_is_known(void **state)
{
    (void)state;
    struct layout *layout = make();
    struct range pieces[8];
    const size_t count = ranges_split_count(layout->ranges, layout->range_count, 220);
    assert_int_equal(count, 6);
    ranges_split(layout->ranges, layout->range_count, 220, pieces);
    /* Group 0 starts at 1000; splits at 1220 and 1440: slot 3 is [1192, 1232) and [1240, 1256). */
    assert_true(layout_page_is_whole(layout, 0, 2, pieces, count));
    assert_false(layout_page_is_whole(layout, 0, 3, pieces, count));
    assert_true(layout_page_is_whole(layout, 0, 4, pieces, count));
    assert_false(layout_page_is_whole(layout, 0, 8, pieces, count));
    layout_destroy(layout);
}

static void the_log_line_describes_each_group(void **state)
{
    (void)state;
    struct layout *layout = make();
    struct text text;
    text_init(&text, 1000);
    assert_int_equal(layout_print(layout, &text), TARN_OK);
    assert_string_equal(text_chars(&text),
                        "tokens_per_block=32, "
                        "lg0(layers=2, regions=2, bytes/page=56, slots=8, window=none), "
                        "lg1(layers=1, regions=1, bytes/page=100, slots=4, window=512)");
    text_deinit(&text);
    layout_destroy(layout);
}

static enum tarn_status create_and_destroy(void)
{
    struct layout *layout = NULL;
    TRY(layout_create(&desc, 7, reason, &layout));
    layout_destroy(layout);
    return TARN_OK;
}

static void a_layout_survives_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(create_and_destroy), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_page_by_slot_is_one_run_a_region, make_desc),
        cmocka_unit_test_setup(a_slot_out_of_range_is_refused, make_desc),
        cmocka_unit_test_setup(interleaved_regions_are_registered_once, make_desc),
        cmocka_unit_test_setup(mixed_slot_counts_are_refused, make_desc),
        cmocka_unit_test_setup(what_cannot_be_a_layout_is_refused_with_its_reason, make_desc),
        cmocka_unit_test_setup(headroom_before_a_page_is_registered_with_it, make_desc),
        cmocka_unit_test_setup(a_page_by_address_has_its_headroom_in_registered_memory, make_desc),
        cmocka_unit_test_setup(groups_may_come_in_any_order, make_desc),
        cmocka_unit_test_setup(spans_are_merged_inside_one_allocation_only, make_desc),
        cmocka_unit_test_setup(a_page_by_address_lies_in_registered_memory, make_desc),
        cmocka_unit_test_setup(a_page_that_straddles_a_split_is_known, make_desc),
        cmocka_unit_test_setup(the_log_line_describes_each_group, make_desc),
        cmocka_unit_test_setup(a_layout_survives_failed_allocations, make_desc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
