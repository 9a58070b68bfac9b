/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "obs/metric.h"

enum { SIZE_BYTES = 64 << 10 };

static volatile uint8_t *map_file(int *out_fd)
{
    const int fd = memfd_create("guard", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, SIZE_BYTES) == 0);
    void *base = mmap(NULL, SIZE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    *out_fd = fd;
    return base;
}

static void a_mapping_whose_memory_goes_away_reads_as_zeros(void **state)
{
    (void)state;
    int fd = -1;
    volatile uint8_t *bytes = map_file(&fd);
    void *base = (void *)(uintptr_t)bytes; /* NOLINT(performance-no-int-to-ptr) */
    assert_int_equal(guard_install(), TARN_OK);
    guard_add(base, SIZE_BYTES);
    bytes[SIZE_BYTES - 1] = 7;
    assert_false(guard_is_broken(base));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(bytes[SIZE_BYTES - 1], 0);
    assert_true(guard_is_broken(base));
    assert_int_equal(metric_get(METRIC_POOL_BROKEN), 1);
    bytes[0] = 1; /* goes nowhere, and harms nobody */
    guard_remove(base);
    assert_false(guard_is_broken(base));
    assert_int_equal(munmap(base, SIZE_BYTES), 0);
    assert_int_equal(close(fd), 0);
}

static void ranges_come_and_go_and_too_many_are_not_guarded(void **state)
{
    (void)state;
    static char places[GUARD_RANGES_MAX + 1][16];
    for (size_t i = 0; i < LENGTH_OF(places); i++)
        guard_add(places[i], sizeof(places[i]));
    for (size_t i = 0; i < LENGTH_OF(places); i++) {
        assert_false(guard_is_broken(places[i]));
        guard_remove(places[i]);
    }
    guard_remove(NULL);
    assert_false(guard_is_broken(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapping_whose_memory_goes_away_reads_as_zeros),
        cmocka_unit_test(ranges_come_and_go_and_too_many_are_not_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
