/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/client-file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

static struct mooncake_options example(void)
{
    struct mooncake_options options;
    mooncake_options_init(&options);
    (void)snprintf(options.master_server_address, sizeof(options.master_server_address), "h:1");
    (void)snprintf(options.local_hostname, sizeof(options.local_hostname), "10.0.0.1");
    return options;
}

static void unset_keys_are_left_out_and_the_role_is_always_both(void **state)
{
    (void)state;
    struct mooncake_options options = example();
    struct text text;
    text_init(&text, 1 << 16);
    options.role = TARN_ROLE_CONSUMER + 1;
    assert_int_equal(client_file_print(&options, &text), TARN_OK);
    assert_string_equal(text_chars(&text),
                        "{\"local_hostname\":\"10.0.0.1\",\"metadata_server\":\"P2PHANDSHAKE\","
                        "\"master_server_address\":\"h:1\",\"protocol\":\"tcp\","
                        "\"global_segment_size\":3355443200,\"local_buffer_size\":1073741824,"
                        "\"master_timeout\":60000,\"role\":\"both\"}");
    text_deinit(&text);
}

static void what_is_written_reads_as_the_same(void **state)
{
    (void)state;
    struct mooncake_options options = example();
    struct mooncake_options read;
    struct text text;
    text_init(&text, 1 << 16);
    (void)snprintf(options.protocol, sizeof(options.protocol), "rdma");
    (void)snprintf(options.device_name, sizeof(options.device_name), "mlx5_0,mlx5_1");
    (void)snprintf(options.tenant_id, sizeof(options.tenant_id), "a \"b\"");
    (void)snprintf(options.cache_prefix, sizeof(options.cache_prefix), "epoch2");
    (void)snprintf(options.model_key, sizeof(options.model_key), "m");
    (void)snprintf(options.client_address, sizeof(options.client_address), "127.0.0.1:50052");
    (void)snprintf(options.library, sizeof(options.library), "/l.so");
    (void)snprintf(options.wheel, sizeof(options.wheel), "/w");
    options.client = MOONCAKE_STANDALONE;
    options.global_segment_bytes = 0;
    options.local_buffer_bytes = 12345;
    options.transfer_batch_size = 7;
    options.stage_through_host = TARN_SETTING_ON;
    options.staging_buffer_bytes = 1 << 20;
    options.role = TARN_ROLE_BOTH + 1;
    assert_int_equal(client_file_print(&options, &text), TARN_OK);
    assert_int_equal(mooncake_options_parse("test", text_chars(&text), text.length_bytes, &read),
                     TARN_OK);
    assert_memory_equal(&read, &options, sizeof(read));
    text_deinit(&text);
}

static enum tarn_status print(void)
{
    const struct mooncake_options options = example();
    struct text text;
    text_init(&text, 1 << 16);
    const enum tarn_status status = client_file_print(&options, &text);
    text_deinit(&text);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(print) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unset_keys_are_left_out_and_the_role_is_always_both),
        cmocka_unit_test(what_is_written_reads_as_the_same),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
