/* SPDX-License-Identifier: Apache-2.0 */
/* Slot geometry of staging pools: five cases, three refusals. */
#include "layout/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SMALL = 1000, LARGE = 4096, HEADER = 64, SLOT = LARGE + HEADER };

static struct layout_group groups[] = { { .page_bytes = SMALL }, { .page_bytes = LARGE } };
static const struct layout layout = { .groups = groups, .group_count = 2 };
static struct slots_wish wish;
static char reason[LAYOUT_REASON_BYTES];

static int setup(void **state)
{
    (void)state;
    wish = (struct slots_wish){ .batch_pages = 8,
                                .budget_bytes = UINT64_C(1) << 20,
                                .headroom_bytes = HEADER };
    memset(reason, 0, sizeof(reason));
    return 0;
}

static struct slots plan(void)
{
    struct slots slots;
    assert_int_equal(slots_plan(&layout, &wish, reason, &slots), TARN_OK);
    return slots;
}

static void refused(const char *why)
{
    struct slots slots = { .count = 77 };
    assert_int_equal(slots_plan(&layout, &wish, reason, &slots), TARN_INVALID);
    assert_string_equal(reason, why);
    assert_int_equal(slots.count, 77);
}

static void a_slot_holds_the_header_and_the_largest_page(void **state)
{
    (void)state;
    const struct slots slots = plan();
    assert_int_equal(slots.slot_bytes, SLOT);
    assert_int_equal(slots_page_offset(&slots, 0), HEADER);
    assert_int_equal(slots_page_offset(&slots, 3), 3 * SLOT + HEADER);
}

static void there_are_no_more_slots_than_a_batch_has_pages(void **state)
{
    (void)state;
    const struct slots slots = plan();
    assert_int_equal(slots.count, 8);
    assert_int_equal(slots_bytes(&slots), 8 * SLOT);
}

static void a_small_budget_has_fewer_slots(void **state)
{
    (void)state;
    wish.budget_bytes = 3 * SLOT;
    assert_int_equal(plan().count, 3);
    wish.budget_bytes = 3 * SLOT - 1;
    assert_int_equal(plan().count, 2);
}

static void a_budget_below_one_slot_has_one(void **state)
{
    (void)state;
    wish.budget_bytes = 1;
    const struct slots slots = plan();
    assert_int_equal(slots.count, 1);
    assert_int_equal(slots_bytes(&slots), SLOT);
}

/* What is stored behind a page has its place, slots are aligned, and none is registered in parts.
 */
static void slots_are_aligned_and_registered_whole(void **state)
{
    (void)state;
    wish.extra_bytes = 272;
    wish.range_bytes_max = UINT64_C(3) * 4480 - 1; /* not quite three slots */
    const struct slots slots = plan();
    assert_int_equal(slots.slot_bytes, 4480); /* 64 + 4096 + 272 = 4432, the next multiple of 64 */
    assert_int_equal(slots_range_count(&slots), 4);
    uint64_t end = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct range range = slots_range(&slots, i);
        assert_int_equal(range.start, end);
        assert_int_equal(range.size_bytes, UINT64_C(2) * 4480);
        end += range.size_bytes;
    }
    assert_int_equal(end, slots_bytes(&slots));
    wish.range_bytes_max = 0;
    const struct slots whole = plan();
    assert_int_equal(slots_range_count(&whole), 1);
    assert_int_equal(slots_range(&whole, 0).size_bytes, slots_bytes(&whole));
}

static void no_budget_is_refused(void **state)
{
    (void)state;
    wish.budget_bytes = 0;
    refused("staging_buffer is 0 bytes, and pages have to be staged: give it room for at least one "
            "page");
}

static void a_slot_that_cannot_be_registered_is_refused(void **state)
{
    (void)state;
    wish.range_bytes_max = SLOT - 1;
    refused(
        "a staging slot has 4160 bytes, and the store registers at most 4159 at once: use fewer "
        "tokens per block");
}

static void a_page_larger_than_the_address_space_is_refused(void **state)
{
    (void)state;
    groups[0].page_bytes = UINT64_MAX - 10;
    refused("a staging slot for the largest page is larger than the address space");
    groups[0].page_bytes = SMALL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_slot_holds_the_header_and_the_largest_page, setup),
        cmocka_unit_test_setup(there_are_no_more_slots_than_a_batch_has_pages, setup),
        cmocka_unit_test_setup(a_small_budget_has_fewer_slots, setup),
        cmocka_unit_test_setup(a_budget_below_one_slot_has_one, setup),
        cmocka_unit_test_setup(slots_are_aligned_and_registered_whole, setup),
        cmocka_unit_test_setup(no_budget_is_refused, setup),
        cmocka_unit_test_setup(a_slot_that_cannot_be_registered_is_refused, setup),
        cmocka_unit_test_setup(a_page_larger_than_the_address_space_is_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
