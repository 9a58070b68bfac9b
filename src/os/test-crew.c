/* SPDX-License-Identifier: Apache-2.0 */
#include "os/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

enum { INDEXES = 100, OWNERS = 4, ROUNDS = 200 };

struct row {
    struct crew *crew;
    _Atomic uint32_t done[INDEXES]; /* how often */
    _Atomic size_t reached_count;
    _Atomic bool is_held; /* everything waits until it no longer is */
    size_t count;
};

static void row_work(void *context, size_t index)
{
    struct row *row = context;
    (void)atomic_fetch_add(&row->reached_count, 1);
    while (atomic_load(&row->is_held))
        (void)sched_yield();
    (void)atomic_fetch_add(&row->done[index], 1);
}

static bool row_is_done(const struct row *row)
{
    for (size_t i = 0; i < INDEXES; i++) {
        if (atomic_load(&row->done[i]) != (i < row->count ? 1 : 0))
            return false;
    }
    return true;
}

static void *row_run(void *context)
{
    struct row *row = context;
    crew_run(row->crew, row->count, row_work, row);
    return NULL;
}

static void *rows_run(void *context)
{
    struct row *row = context;
    for (size_t round = 0; round < ROUNDS; round++) {
        memset(row->done, 0, sizeof(row->done));
        row->count = round * 7 % (INDEXES + 1);
        crew_run(row->crew, row->count, row_work, row);
        if (!row_is_done(row))
            return NULL;
    }
    return row;
}

/* Each index once, and all of them before the call returns. */
static void rows_of_several_owners_are_done(struct crew *crew)
{
    static struct row rows[OWNERS];
    pthread_t threads[OWNERS];
    for (size_t i = 0; i < OWNERS; i++) {
        rows[i].crew = crew;
        assert_int_equal(pthread_create(&threads[i], NULL, rows_run, &rows[i]), 0);
    }
    for (size_t i = 0; i < OWNERS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &rows[i]);
    }
}

static void every_index_is_worked_on_once(void **state)
{
    (void)state;
    struct crew crew;
    crew_open(&crew, "test-crew");
    rows_of_several_owners_are_done(&crew);
    crew_close(&crew);
}

static void a_crew_without_threads_works_too(void **state)
{
    (void)state;
    struct crew crew;
    cpu_set_t all;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (size_t core = 0; CPU_COUNT(&one) == 0; core++) {
        if (CPU_ISSET(core, &all))
            CPU_SET(core, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    crew_open(&crew, "test-crew");
    assert_int_equal(crew.thread_count, 0);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    rows_of_several_owners_are_done(&crew);
    crew_close(&crew);
}

/* Two of one row at a time, where there is a second core. */
static void the_crew_takes_part(void **state)
{
    (void)state;
    static struct row row = { .is_held = true, .count = 2 };
    struct crew crew;
    pthread_t owner;
    crew_open(&crew, "test-crew");
    row.crew = &crew;
    assert_int_equal(pthread_create(&owner, NULL, row_run, &row), 0);
    while (atomic_load(&row.reached_count) < (crew.thread_count > 0 ? 2 : 1))
        (void)sched_yield();
    atomic_store(&row.is_held, false);
    assert_int_equal(pthread_join(owner, NULL), 0);
    assert_true(row_is_done(&row));
    crew_close(&crew);
}

/* All of the crew are held by one row; another one's owner does it alone. */
static void nobody_waits_for_work_that_is_not_its_own(void **state)
{
    (void)state;
    static struct row held = { .is_held = true, .count = INDEXES };
    static struct row row = { .count = INDEXES };
    struct crew crew;
    pthread_t owner;
    crew_open(&crew, "test-crew");
    held.crew = row.crew = &crew;
    assert_int_equal(pthread_create(&owner, NULL, row_run, &held), 0);
    while (atomic_load(&held.reached_count) < crew.thread_count + 1)
        (void)sched_yield();
    (void)row_run(&row);
    assert_true(row_is_done(&row));
    atomic_store(&held.is_held, false);
    assert_int_equal(pthread_join(owner, NULL), 0);
    assert_true(row_is_done(&held));
    crew_close(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_is_worked_on_once),
        cmocka_unit_test(a_crew_without_threads_works_too),
        cmocka_unit_test(the_crew_takes_part),
        cmocka_unit_test(nobody_waits_for_work_that_is_not_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
