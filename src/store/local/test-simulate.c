/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test-simulate [[--roomy] --seed N [--mistake M]]; without arguments, the test suite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/local/simulator.h"

enum { SCHEDULES_SHORT = 2000, SCHEDULES_LONG = 20000, CATCH_SCHEDULES_MAX = 20000 };

static bool is_long(void)
{
    const char *text = getenv("TARN_TEST_LONG"); // NOLINT(concurrency-mt-unsafe): one thread
    return text && strcmp(text, "1") == 0;
}

static void no_schedule_breaks_a_promise(void **state)
{
    (void)state;
    struct simulation sum = { 0 };
    const uint64_t schedule_count = is_long() ? SCHEDULES_LONG : SCHEDULES_SHORT;
    for (uint64_t seed = 1; seed <= schedule_count; seed++) {
        struct simulation one = { .seed = seed };
        assert_int_equal(simulate(&one), TARN_OK);
        if (one.violation)
            fail_msg("seed %llu: %s (replay: test-simulate --seed %llu)", (unsigned long long)seed,
                     one.violation, (unsigned long long)seed);
        sum.step_count += one.step_count;
        sum.kill_count += one.kill_count;
        sum.put_count += one.put_count;
        sum.hit_count += one.hit_count;
        sum.eviction_count += one.eviction_count;
    }
    print_message(
        "# %llu schedules, %llu steps, %llu kills, %llu puts, %llu hits, %llu evictions\n",
        (unsigned long long)schedule_count, (unsigned long long)sum.step_count,
        (unsigned long long)sum.kill_count, (unsigned long long)sum.put_count,
        (unsigned long long)sum.hit_count, (unsigned long long)sum.eviction_count);
    /* Something must have happened, or the above says nothing. */
    assert_true(sum.kill_count > schedule_count);
    assert_true(sum.hit_count > schedule_count);
    assert_true(sum.eviction_count > schedule_count);
}

/* Several that fill an empty pool at once take each other's new chunks, and evict nothing. */
static void nothing_goes_while_there_is_room(void **state)
{
    (void)state;
    const uint64_t schedule_count = is_long() ? SCHEDULES_LONG : SCHEDULES_SHORT;
    uint64_t hit_count = 0;
    for (uint64_t seed = 1; seed <= schedule_count; seed++) {
        struct simulation one = { .seed = seed, .is_roomy = true };
        assert_int_equal(simulate(&one), TARN_OK);
        if (one.violation)
            fail_msg("seed %llu: %s (replay: test-simulate --roomy --seed %llu)",
                     (unsigned long long)seed, one.violation, (unsigned long long)seed);
        hit_count += one.hit_count;
    }
    assert_true(hit_count > 4 * schedule_count); /* pages found when all had ended */
}

/* Search from a seed near one that was seen to do it: the search goes on if the code has changed.
 */
static void catches(enum shm_mistake mistake, uint64_t first_seed, const char *first,
                    const char *second)
{
    for (uint64_t seed = first_seed; seed < first_seed + CATCH_SCHEDULES_MAX; seed++) {
        struct simulation one = { .seed = seed, .mistake = mistake };
        assert_int_equal(simulate(&one), TARN_OK);
        if (!one.violation)
            continue;
        print_message("# caught by seed %llu: %s\n", (unsigned long long)seed, one.violation);
        if (strcmp(one.violation, first) == 0 || (second && strcmp(one.violation, second) == 0))
            return;
    }
    fail_msg("the simulator does not catch mistake %d", mistake);
}

static const char other_bytes[] = "a key returned other bytes than were put under it";
static const char bad_checksum[] = "a page failed its checksum";

static void committing_before_writing_is_caught(void **state)
{
    (void)state;
    catches(SHM_MISTAKE_COMMIT_FIRST, 1, other_bytes, bad_checksum);
}

static void evicting_without_reading_pins_is_caught(void **state)
{
    (void)state;
    catches(SHM_MISTAKE_BLIND_EVICT, 1, "a slot was reused under a pin", NULL);
}

static void liveness_by_pid_is_caught(void **state)
{
    (void)state;
    catches(SHM_MISTAKE_PID_LIVENESS, 60, other_bytes, bad_checksum);
}

static void trusting_a_copy_without_a_last_look_is_caught(void **state)
{
    (void)state;
    catches(SHM_MISTAKE_NO_LAST_LOOK, 2390, other_bytes, bad_checksum);
}

/* Replay one schedule; exits 1 if it breaks a promise. */
static int replay(int argc, char **argv)
{
    struct simulation one = { 0 };
    int first = 1;
    if (strcmp(argv[first], "--roomy") == 0) {
        one.is_roomy = true;
        first++;
    }
    for (int i = first; i + 1 < argc; i += 2) {
        const unsigned long value = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0)
            one.seed = value;
        else if (strcmp(argv[i], "--mistake") == 0 && value < SHM_MISTAKE_COUNT)
            one.mistake = (enum shm_mistake)value;
        else
            return 2;
    }
    if (simulate(&one) != TARN_OK)
        return 2;
    printf("seed %llu, mistake %d: %llu steps, %llu kills, %llu puts, %llu hits: %s\n",
           (unsigned long long)one.seed, one.mistake, (unsigned long long)one.step_count,
           (unsigned long long)one.kill_count, (unsigned long long)one.put_count,
           (unsigned long long)one.hit_count, one.violation ? one.violation : "every promise kept");
    return one.violation != NULL;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_schedule_breaks_a_promise),
        cmocka_unit_test(nothing_goes_while_there_is_room),
        cmocka_unit_test(committing_before_writing_is_caught),
        cmocka_unit_test(evicting_without_reading_pins_is_caught),
        cmocka_unit_test(liveness_by_pid_is_caught),
        cmocka_unit_test(trusting_a_copy_without_a_last_look_is_caught),
    };
    if (argc > 1)
        return replay(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
