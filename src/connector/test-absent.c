/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/absent.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/fault.h"

static struct tarn_digest digest_of(uint32_t number)
{
    return (struct tarn_digest){ { (uint8_t)number, (uint8_t)(number >> 8) } };
}

static void a_key_is_absent_until_its_time_or_its_removal(void **state)
{
    (void)state;
    struct absent absent;
    const struct tarn_digest a = digest_of(1);
    const struct tarn_digest b = digest_of(2);
    assert_int_equal(absent_init(&absent), TARN_OK);
    assert_false(absent_has(&absent, &a, 0, 0));
    absent_add(&absent, &a, 0, 100);
    assert_true(absent_has(&absent, &a, 0, 99));
    assert_false(absent_has(&absent, &a, 0, 100));
    assert_false(absent_has(&absent, &a, 1, 99)); /* another group */
    assert_false(absent_has(&absent, &b, 0, 99));
    absent_add(&absent, &a, 0, UINT64_MAX);
    absent_add(&absent, &a, 0, 50); /* never sooner */
    assert_true(absent_has(&absent, &a, 0, 1000000));
    absent_remove(&absent, &b, 0);
    absent_remove(&absent, &a, 0);
    absent_remove(&absent, &a, 0);
    assert_false(absent_has(&absent, &a, 0, 0));
    absent_deinit(&absent);
}

static void the_oldest_key_makes_room(void **state)
{
    (void)state;
    struct absent absent;
    assert_int_equal(absent_init(&absent), TARN_OK);
    for (uint32_t i = 0; i < 3 * ABSENT_MAX; i++) {
        const struct tarn_digest digest = digest_of(i);
        absent_add(&absent, &digest, 0, UINT64_MAX);
        if (i % 3 == 0)
            absent_remove(&absent, &digest, 0);
    }
    assert_true(absent.map.count <= ABSENT_MAX);
    const struct tarn_digest last = digest_of(3 * ABSENT_MAX - 1);
    const struct tarn_digest first = digest_of(1);
    assert_true(absent_has(&absent, &last, 0, 0));
    assert_false(absent_has(&absent, &first, 0, 0));
    absent_deinit(&absent);
}

static enum tarn_status make(void)
{
    struct absent absent;
    const enum tarn_status status = absent_init(&absent);
    absent_deinit(&absent);
    return status;
}

static void the_table_survives_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(make), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_absent_until_its_time_or_its_removal),
        cmocka_unit_test(the_oldest_key_makes_room),
        cmocka_unit_test(the_table_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
