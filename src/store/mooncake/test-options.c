/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "lib/fault.h"
#include "store/mooncake/address.h"

static char last_line[LOG_LINE_BYTES_MAX];
static struct mooncake_options options;

static void line_keep(void *context, enum log_level level, const char *line)
{
    (void)context;
    if (level <= LOG_WARN)
        (void)snprintf(last_line, sizeof(last_line), "%s", line);
}

static int sink_set(void **state)
{
    (void)state;
    last_line[0] = '\0';
    log_set_sink(line_keep, NULL);
    return 0;
}

static int sink_reset(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    return 0;
}

static enum tarn_status parse(const char *text)
{
    return mooncake_options_parse("test.json", text, strlen(text), &options);
}

static void expect_refused(const char *text, const char *first, const char *second)
{
    last_line[0] = '\0';
    assert_int_equal(parse(text), TARN_INVALID);
    if (!strstr(last_line, first) || !strstr(last_line, second))
        fail_msg("'%s' does not say '%s' and '%s'", last_line, first, second);
}

static void a_master_alone_has_defaults_for_everything_else(void **state)
{
    (void)state;
    assert_int_equal(mooncake_options_read("mooncake://10.0.0.7:50051", &options), TARN_OK);
    assert_string_equal(options.master_server_address, "10.0.0.7:50051");
    assert_string_equal(options.metadata_server, "P2PHANDSHAKE");
    assert_string_equal(options.protocol, "tcp");
    assert_string_equal(options.local_hostname, "");
    assert_true(options.global_segment_bytes == UINT64_C(3355443200));
    assert_true(options.local_buffer_bytes == UINT64_C(1) << 30);
    assert_int_equal(options.master_timeout_ms, 60000);
    assert_int_equal(options.client, MOONCAKE_EMBEDDED);
    assert_int_equal(mooncake_options_read("mooncake://[::1]:50051", &options), TARN_OK);
    assert_string_equal(options.master_server_address, "[::1]:50051");
}

static void texts_of_other_pools_are_not_ours(void **state)
{
    (void)state;
    assert_true(mooncake_pool_is("mooncake"));
    assert_true(mooncake_pool_is("mooncake:x.json"));
    assert_true(mooncake_pool_is("mooncake://h:1"));
    assert_false(mooncake_pool_is(NULL));
    assert_false(mooncake_pool_is(""));
    assert_false(mooncake_pool_is("/dev/shm/mooncake"));
    assert_false(mooncake_pool_is("mooncake.pool"));
    assert_false(mooncake_pool_is("none"));
}

static void senseless_pool_texts_say_what_to_write(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "mooncake://",       "mooncake://host",       "mooncake://host:",   "mooncake://:1",
        "mooncake://host:0", "mooncake://host:65536", "mooncake://host:1x", "mooncake://a:b:1",
        "mooncake://::1:1",  "mooncake://[::1]",      "mooncake://[::1]1",  "mooncake://h/x:1",
        "mooncake:"
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        last_line[0] = '\0';
        assert_int_equal(mooncake_options_read(texts[i], &options), TARN_INVALID);
        assert_non_null(strstr(last_line, "mooncake://HOST:PORT"));
    }
}

static void the_file_of_vllm_is_read_with_our_keys(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"local_hostname\": \"node1\", \"metadata_server\": \"P2PHANDSHAKE\","
                           "\"global_segment_size\": 1073741824, \"local_buffer_size\": \"64 MiB\","
                           "\"protocol\": \"rdma\", \"device_name\": \"mlx5_0,mlx5_1\","
                           "\"master_server_address\": \"node0:50051\", \"tenant_id\": \"a\","
                           "\"enable_ssd_offload\": false, \"client_http_port\": 9300,"
                           "\"role\": \"consumer\", \"cache_prefix\": \"p\", \"model_key\": \"m\","
                           "\"transfer_batch_size\": 32, \"stage_through_host\": \"on\","
                           "\"staging_buffer_bytes\": \"1GiB\", \"master_timeout\": \"5s\"}"),
                     TARN_OK);
    assert_string_equal(last_line, "");
    assert_string_equal(options.local_hostname, "node1");
    assert_true(options.global_segment_bytes == UINT64_C(1) << 30);
    assert_true(options.local_buffer_bytes == UINT64_C(64) << 20);
    assert_string_equal(options.protocol, "rdma");
    assert_string_equal(options.device_name, "mlx5_0,mlx5_1");
    assert_string_equal(options.tenant_id, "a");
    assert_int_equal(options.role, TARN_ROLE_CONSUMER + 1);
    assert_string_equal(options.cache_prefix, "p");
    assert_string_equal(options.model_key, "m");
    assert_int_equal(options.transfer_batch_size, 32);
    assert_int_equal(options.stage_through_host, TARN_SETTING_ON);
    assert_true(options.staging_buffer_bytes == UINT64_C(1) << 30);
    assert_int_equal(options.master_timeout_ms, 5000);
}

static void a_master_that_is_no_address_passes_with_a_warning(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"master_server_address\": \"etcd://a:1,b:1\"}"), TARN_OK);
    assert_string_equal(options.master_server_address, "etcd://a:1,b:1");
    assert_non_null(strstr(last_line, "'etcd://a:1,b:1' is no HOST:PORT"));
}

static void unset_keys_and_null_keep_the_default(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"master_server_address\": \"h:1\", \"tenant_id\": null,"
                           "\"device_name\": \"auto\", \"stage_through_host\": \"auto\"}"),
                     TARN_OK);
    assert_string_equal(options.tenant_id, "");
    assert_string_equal(options.device_name, "");
    assert_int_equal(options.role, 0);
    assert_int_equal(options.stage_through_host, TARN_SETTING_UNSET);
    assert_int_equal(parse("{\"master_server_address\": \"h:1\", \"stage_through_host\": true}"),
                     TARN_OK);
    assert_int_equal(options.stage_through_host, TARN_SETTING_ON);
}

static void unknown_keys_are_warned_about(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"master_server_address\": \"h:1\", \"segment_size\": 1}"), TARN_OK);
    assert_non_null(strstr(last_line, "test.json"));
    assert_non_null(strstr(last_line, "'segment_size' is not known"));
}

static void bad_values_are_refused_by_key_and_value(void **state)
{
    (void)state;
#define WITH(rest) "{\"master_server_address\": \"h:1\", " rest "}"
    expect_refused("{}", "master_server_address", "missing");
    expect_refused("[]", "test.json", "an object");
    expect_refused("{", "test.json", "line 1");
    expect_refused("{\"master_server_address\": 7}", "master_server_address", "a text");
    expect_refused(WITH("\"global_segment_size\": \"4GB\""), "global_segment_size", "4GB");
    expect_refused(WITH("\"global_segment_size\": \"4gb\""), "global_segment_size", "4gb");
    expect_refused(WITH("\"global_segment_size\": -1"), "global_segment_size", "below zero");
    expect_refused(WITH("\"global_segment_size\": 1.5"), "global_segment_size", "bytes");
    expect_refused(WITH("\"local_buffer_size\": 0"), "local_buffer_size", "refuses");
    expect_refused(WITH("\"transfer_batch_size\": 0"), "transfer_batch_size", "range");
    expect_refused(WITH("\"role\": \"leader\""), "role", "leader");
    expect_refused(WITH("\"stage_through_host\": 3"), "stage_through_host", "auto|off|on");
    expect_refused(WITH("\"client\": \"standalone\""), "client_address", "mooncake_client");
    expect_refused(WITH("\"client\": \"standalone\", \"client_address\": \"here\""),
                   "client_address", "'here'");
#undef WITH
}

static void a_pool_without_address_is_looked_for_in_two_places(void **state)
{
    (void)state;
    char folder[] = "/tmp/tarn-test-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/mooncake.json", folder);
    (void)unsetenv("MOONCAKE_CONFIG_PATH");
    (void)unsetenv("TARN_RUN_DIR");
    assert_int_equal(mooncake_options_read("mooncake", &options), TARN_INVALID);
    assert_non_null(strstr(last_line, "MOONCAKE_CONFIG_PATH"));
    assert_non_null(strstr(last_line, "TARN_RUN_DIR"));
    (void)setenv("TARN_RUN_DIR", folder, 1);
    assert_int_equal(mooncake_options_read("mooncake", &options), TARN_IO);
    assert_non_null(strstr(last_line, path));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("{\"master_server_address\": \"run-dir:1\"}", file);
    (void)fclose(file);
    assert_int_equal(mooncake_options_read("mooncake", &options), TARN_OK);
    assert_string_equal(options.master_server_address, "run-dir:1");
    (void)setenv("MOONCAKE_CONFIG_PATH", "/nowhere/mooncake.json", 1);
    assert_int_equal(mooncake_options_read("mooncake", &options), TARN_IO);
    (void)setenv("MOONCAKE_CONFIG_PATH", path, 1);
    (void)setenv("TARN_RUN_DIR", "/nowhere", 1);
    assert_int_equal(mooncake_options_read("mooncake", &options), TARN_OK);
    char pool[80];
    (void)snprintf(pool, sizeof(pool), "mooncake:%s", path);
    assert_int_equal(mooncake_options_read(pool, &options), TARN_OK);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void the_own_address_is_that_of_the_route(void **state)
{
    (void)state;
    struct address address;
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    assert_int_equal(address_parse("127.0.0.1:50051", &address), TARN_OK);
    assert_int_equal(address_of_route(&address, host), TARN_OK);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(address_parse("no-such-host.invalid:1", &address), TARN_OK);
    assert_int_equal(address_of_route(&address, host), TARN_IO);
    assert_non_null(strstr(last_line, "no-such-host.invalid"));
}

static enum tarn_status parse_something(void)
{
    return parse("{\"master_server_address\": \"h:1\", \"global_segment_size\": \"1GiB\"}");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(fault_sweep(parse_something) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_master_alone_has_defaults_for_everything_else, sink_set,
                                        sink_reset),
        cmocka_unit_test(texts_of_other_pools_are_not_ours),
        cmocka_unit_test_setup_teardown(senseless_pool_texts_say_what_to_write, sink_set,
                                        sink_reset),
        cmocka_unit_test_setup_teardown(the_file_of_vllm_is_read_with_our_keys, sink_set,
                                        sink_reset),
        cmocka_unit_test_setup_teardown(a_master_that_is_no_address_passes_with_a_warning, sink_set,
                                        sink_reset),
        cmocka_unit_test_setup_teardown(unset_keys_and_null_keep_the_default, sink_set, sink_reset),
        cmocka_unit_test_setup_teardown(unknown_keys_are_warned_about, sink_set, sink_reset),
        cmocka_unit_test_setup_teardown(bad_values_are_refused_by_key_and_value, sink_set,
                                        sink_reset),
        cmocka_unit_test_setup_teardown(a_pool_without_address_is_looked_for_in_two_places,
                                        sink_set, sink_reset),
        cmocka_unit_test_setup_teardown(the_own_address_is_that_of_the_route, sink_set, sink_reset),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, sink_set, sink_reset),
    };
    return cmocka_run_group_tests_name("mooncake options", tests, NULL, NULL);
}
