/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/environment.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os/thread.h"

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread, or one that only waits */

static const char *const names[] = {
    "MC_RPC_TIMEOUT_MS",         "MC_RPC_CONNECT_TIMEOUT_MS", "MC_TCP_PROGRESS_TIMEOUT_SEC",
    "MC_TCP_STATUS_TIMEOUT_SEC", "MC_TCP_SLICE_SIZE",         "MC_STORE_CLIENT_SETUP_RETRIES",
    "GLOG_minloglevel"
};

static int all_unset(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH_OF(names); i++)
        (void)unsetenv(names[i]);
    return 0;
}

static void assert_variable(const char *name, const char *expected)
{
    const char *value = getenv(name);
    assert_non_null(value);
    assert_string_equal(value, expected);
}

static void what_is_not_set_is_set(void **state)
{
    (void)state;
    mooncake_environment_prepare(2500);
    assert_variable("MC_RPC_TIMEOUT_MS", "1250");
    assert_variable("MC_RPC_CONNECT_TIMEOUT_MS", "1250");
    assert_variable("MC_TCP_PROGRESS_TIMEOUT_SEC", "3");
    assert_variable("MC_TCP_STATUS_TIMEOUT_SEC", "3");
    assert_variable("MC_TCP_SLICE_SIZE", "61440");
    assert_variable("MC_STORE_CLIENT_SETUP_RETRIES", "2");
    assert_variable("GLOG_minloglevel", "1");
}

static void what_the_user_set_is_left_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH_OF(names); i++)
        assert_int_equal(setenv(names[i], "7", 1), 0);
    mooncake_environment_prepare(2500);
    for (size_t i = 0; i < LENGTH_OF(names); i++)
        assert_variable(names[i], "7");
}

static void wait_for_end(void *context)
{
    pthread_mutex_t *end = context;
    (void)pthread_mutex_lock(end);
    (void)pthread_mutex_unlock(end);
}

/* getenv() of another thread may be under way. */
static void a_process_with_threads_keeps_its_environment(void **state)
{
    (void)state;
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    struct thread thread;
    (void)pthread_mutex_lock(&end);
    assert_int_equal(thread_start(&thread, "other", wait_for_end, &end), TARN_OK);
    mooncake_environment_prepare(2500);
    for (size_t i = 0; i < LENGTH_OF(names); i++)
        assert_null(getenv(names[i]));
    (void)pthread_mutex_unlock(&end);
    thread_join(&thread);
}

/* NOLINTEND(concurrency-mt-unsafe) */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_not_set_is_set, all_unset),
        cmocka_unit_test_setup(what_the_user_set_is_left_alone, all_unset),
        cmocka_unit_test_setup(a_process_with_threads_keeps_its_environment, all_unset),
    };
    return cmocka_run_group_tests_name("mooncake environment", tests, NULL, NULL);
}
