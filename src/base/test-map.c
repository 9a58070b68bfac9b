/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fault.h"

static void a_random_history_agrees_with_a_plain_array(void **state)
{
    (void)state;
    enum { KEYS = 300, STEPS = 60000 };
    static char objects[KEYS];
    void *expected[KEYS] = { 0 };
    size_t expected_count = 0;
    uint64_t seed = 1;
    struct map map;
    map_init(&map, sizeof(uint64_t));

    for (int step = 0; step < STEPS; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t key = (seed >> 33) % KEYS;
        if ((seed >> 60) < 8) {
            expected_count += !expected[key];
            expected[key] = &objects[(seed >> 20) % KEYS];
            assert_int_equal(map_set(&map, &key, expected[key]), TARN_OK);
        } else {
            expected_count -= !!expected[key];
            assert_ptr_equal(map_remove(&map, &key), expected[key]);
            expected[key] = NULL;
        }
        const uint64_t other = (seed >> 12) % KEYS;
        assert_ptr_equal(map_get(&map, &other), expected[other]);
        assert_int_equal(map.count, expected_count);
    }
    size_t position = 0;
    size_t walked = 0;
    while (map_next(&map, &position))
        walked++;
    assert_int_equal(walked, expected_count);
    map_deinit(&map);
}

static enum tarn_status fill_a_map(void)
{
    struct map map;
    map_init(&map, sizeof(uint32_t));
    enum tarn_status status = TARN_OK;
    for (uint32_t key = 0; key < 20 && status == TARN_OK; key++)
        status = map_set(&map, &key, &map);
    map_deinit(&map);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(fill_a_map), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_random_history_agrees_with_a_plain_array),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
