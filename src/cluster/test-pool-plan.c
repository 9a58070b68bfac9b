/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pool-plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What a case gives: flags, what is inherited, and what a file would say (set by hand, as reading
 * files is config's). */
struct given {
    struct options options;
    struct pool_plan_input input;
    struct pool_plan plan;
    char error[OPTION_ERROR_BYTES];
};

static void read_flags(struct given *given, const char *const *words)
{
    static char storage[12][128];
    static struct given blank;
    char *argv[LENGTH_OF(storage)];
    int argc = 0;
    *given = blank;
    for (; words[argc]; argc++) {
        (void)snprintf(storage[argc], sizeof(storage[argc]), "%s", words[argc]);
        argv[argc] = storage[argc];
    }
    if (options_read(argc, argv, NULL, &given->options) != TARN_OK)
        fail_msg("%s", given->options.error);
    given->input.options = &given->options;
}

#define GIVEN(given, ...) read_flags(given, (const char *const[]){ "m", ##__VA_ARGS__, NULL })

static void from_file(struct given *given, enum option option)
{
    given->options.values[option].source = OPTION_FROM_FILE;
}

static void inherit(struct given *given, const char *path, const char *master)
{
    given->input.inherited = path;
    given->input.inherited_master = master;
}

static void expect_plan(struct given *given, enum pool_plan_kind pool)
{
    if (pool_plan_make(&given->input, &given->plan, given->error) != TARN_OK)
        fail_msg("%s", given->error);
    assert_int_equal(given->plan.pool, pool);
}

static void expect_refused(struct given *given, const char *part)
{
    assert_int_equal(pool_plan_make(&given->input, &given->plan, given->error), TARN_INVALID);
    if (!strstr(given->error, part))
        fail_msg("'%s' does not say '%s'", given->error, part);
}

static void a_server_that_asks_for_nothing_gets_nothing(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given);
    expect_plan(&given, PLAN_AS_GIVEN);
    GIVEN(&given, "--pool", "/dev/shm/x");
    expect_plan(&given, PLAN_AS_GIVEN);
    GIVEN(&given, "--pool", "none");
    expect_plan(&given, PLAN_AS_GIVEN);
}

static void a_master_is_joined_in_each_form(void **state)
{
    (void)state;
    static const char *const texts[] = { "host:1", "[::1]:1", "unix:", "no-port",
                                         "file:///run/master.addr" };
    struct given given;
    for (size_t i = 0; i < LENGTH_OF(texts); i++) {
        char pool[64];
        (void)snprintf(pool, sizeof(pool), "mooncake://%s", texts[i]);
        GIVEN(&given, "--pool", pool);
        expect_plan(&given, PLAN_JOIN);
        assert_string_equal(given.plan.master, texts[i]);
        GIVEN(&given, "--master-server-address", texts[i]);
        expect_plan(&given, PLAN_JOIN);
        assert_string_equal(given.plan.master, texts[i]);
    }
    GIVEN(&given, "--pool", "mooncake:/a/mooncake.json");
    expect_plan(&given, PLAN_FILE);
    assert_string_equal(given.plan.file, "/a/mooncake.json");
}

static void a_master_is_launched(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--launch-master", "on");
    expect_plan(&given, PLAN_LAUNCH);
    GIVEN(&given, "--launch-master", "on", "--pool", "mooncake", "--master-address-file", "/a");
    expect_plan(&given, PLAN_LAUNCH);
}

static void both_of_launch_and_address_are_refused(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--launch-master", "on", "--master-server-address", "h:1");
    expect_refused(&given, "not both");
    GIVEN(&given, "--launch-master", "on", "--pool", "mooncake://h:1");
    expect_refused(&given, "not both");
    GIVEN(&given, "--master-server-address", "i:1", "--pool", "mooncake://h:1");
    expect_refused(&given, "not both");
    GIVEN(&given, "--launch-master", "on", "--pool", "/dev/shm/x");
    expect_refused(&given, "not both");
    GIVEN(&given, "--master-server-address", "h:1", "--pool", "mooncake://h:1");
    expect_plan(&given, PLAN_JOIN); /* they agree */
}

static void neither_needs_a_master(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--pool", "mooncake");
    expect_refused(&given, "needs a master");
    GIVEN(&given, "--pool", "mooncake://");
    expect_refused(&given, "needs a master");
    GIVEN(&given, "--global-segment-size", "1GiB");
    expect_refused(&given, "--global-segment-size");
    expect_refused(&given, "needs a master");
    GIVEN(&given, "--protocol", "rdma", "--pool", "/dev/shm/x");
    expect_refused(&given, "needs a master");
}

static void an_address_file_without_a_launch_is_refused(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--master-address-file", "/a", "--pool", "mooncake://h:1");
    expect_refused(&given, "--master-address-file /a");
    expect_refused(&given, "none is launched");
}

static void the_stronger_source_wins(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--pool", "mooncake://h:1", "--launch-master", "on");
    from_file(&given, OPTION_LAUNCH_MASTER);
    expect_plan(&given, PLAN_JOIN);
    assert_non_null(strstr(given.plan.note, "--pool mooncake://h:1"));
    GIVEN(&given, "--pool", "mooncake://h:1", "--master-server-address", "i:1");
    from_file(&given, OPTION_POOL);
    expect_plan(&given, PLAN_JOIN);
    assert_string_equal(given.plan.master, "i:1");
    GIVEN(&given, "--pool", "none", "--master-server-address", "i:1");
    from_file(&given, OPTION_MASTER_SERVER_ADDRESS);
    expect_plan(&given, PLAN_AS_GIVEN);
}

static void an_inherited_file_alone_is_used(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given);
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_FILE);
    assert_string_equal(given.plan.file, "/run/mooncake.json");
    assert_string_equal(given.plan.note, "");
    GIVEN(&given, "--pool", "mooncake");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_FILE);
}

static void an_inherited_file_beside_a_flag_is_refused_unless_they_agree(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--pool", "mooncake://h:2");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_refused(&given, "MOONCAKE_CONFIG_PATH=/run/mooncake.json");
    GIVEN(&given, "--pool", "mooncake://h:1");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_FILE);
    assert_non_null(strstr(given.plan.note, "agrees"));
    GIVEN(&given, "--launch-master", "on");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_refused(&given, "--launch-master on");
    GIVEN(&given, "--pool", "/dev/shm/x");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_refused(&given, "different pools");
    GIVEN(&given, "--global-segment-size", "1GiB");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_refused(&given, "--global-segment-size");
    GIVEN(&given, "--pool", "none");
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_AS_GIVEN);
    assert_non_null(strstr(given.plan.note, "is not used"));
}

static void an_inherited_file_beside_a_section_wins_and_the_log_says_so(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--pool", "mooncake://h:2", "--global-segment-size", "1GiB");
    from_file(&given, OPTION_POOL);
    from_file(&given, OPTION_GLOBAL_SEGMENT_SIZE);
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_FILE);
    assert_string_equal(given.plan.file, "/run/mooncake.json");
    assert_non_null(strstr(given.plan.note, "wins over the pool section"));
    GIVEN(&given, "--launch-master", "on");
    from_file(&given, OPTION_LAUNCH_MASTER);
    inherit(&given, "/run/mooncake.json", "h:1");
    expect_plan(&given, PLAN_FILE);
    assert_non_null(strstr(given.plan.note, "wins over the pool section"));
}

static void a_donation_alone_attaches_no_pool(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--donation-segment-size", "1GiB", "--donation-master-server-address", "h:1");
    expect_plan(&given, PLAN_NO_POOL);
    assert_true(given.plan.donates);
    assert_string_equal(given.plan.donation_master, "h:1");
    GIVEN(&given, "--donation-segment-size", "1GiB", "--donation-master-server-address", "h:1",
          "--pool", "/dev/shm/x");
    expect_plan(&given, PLAN_AS_GIVEN);
    assert_true(given.plan.donates);
}

static void a_donation_beside_a_pool_goes_to_its_master(void **state)
{
    (void)state;
    struct given given;
    GIVEN(&given, "--donation-segment-size", "1GiB", "--pool", "mooncake://h:1");
    expect_plan(&given, PLAN_JOIN);
    assert_true(given.plan.donates);
    assert_string_equal(given.plan.donation_master, "");
    GIVEN(&given, "--donation-segment-size", "1GiB");
    expect_refused(&given, "No master to join");
    GIVEN(&given, "--donation-protocol", "rdma");
    expect_refused(&given, "--donation-segment-size");
}

static void masters_are_compared_as_addresses(void **state)
{
    (void)state;
    assert_true(pool_plan_is_same_master("h:1", "h:1"));
    assert_true(pool_plan_is_same_master("[h]:1", "h:1"));
    assert_false(pool_plan_is_same_master("h:1", "h:2"));
    assert_true(pool_plan_is_same_master("etcd://x", "etcd://x"));
    assert_false(pool_plan_is_same_master("etcd://x", "h:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_asks_for_nothing_gets_nothing),
        cmocka_unit_test(a_master_is_joined_in_each_form),
        cmocka_unit_test(a_master_is_launched),
        cmocka_unit_test(both_of_launch_and_address_are_refused),
        cmocka_unit_test(neither_needs_a_master),
        cmocka_unit_test(an_address_file_without_a_launch_is_refused),
        cmocka_unit_test(the_stronger_source_wins),
        cmocka_unit_test(an_inherited_file_alone_is_used),
        cmocka_unit_test(an_inherited_file_beside_a_flag_is_refused_unless_they_agree),
        cmocka_unit_test(an_inherited_file_beside_a_section_wins_and_the_log_says_so),
        cmocka_unit_test(a_donation_alone_attaches_no_pool),
        cmocka_unit_test(a_donation_beside_a_pool_goes_to_its_master),
        cmocka_unit_test(masters_are_compared_as_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
