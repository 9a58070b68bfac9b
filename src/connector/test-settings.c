/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "connector/abi.h"
#include "lib/fault.h"
#include "os/clock.h"

static const struct tarn_kv_format format = {
    .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
};
static struct tarn_engine_desc engine;
static struct tarn_connector_options options;
static char last_line[LOG_LINE_BYTES_MAX];

static void keep_line(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    memcpy(last_line, line, strlen(line) + 1);
}

static int setup(void **state)
{
    (void)state;
    options = (struct tarn_connector_options){ .size = sizeof(options) };
    engine = (struct tarn_engine_desc){ .size = sizeof(engine),
                                        .model_key = "m",
                                        .format = &format,
                                        .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK };
    last_line[0] = '\0';
    log_set_sink(keep_line, NULL);
    return 0;
}

static void zero_is_the_default_everywhere(void **state)
{
    (void)state;
    struct settings settings;
    assert_int_equal(settings_init(&settings, NULL, &engine), TARN_OK);
    assert_null(settings.pool_path);
    assert_string_equal(settings.cache_prefix, "tarn");
    assert_string_equal(settings.model_key, "m");
    assert_int_equal(settings.role, TARN_ROLE_BOTH);
    assert_int_equal(settings.batch_pages, 64);
    assert_int_equal(settings.lookup_deadline_ns, 100 * NS_PER_MS);
    assert_int_equal(settings.load_deadline_ns, 2 * NS_PER_S);
    assert_int_equal(settings.load_bytes_per_step, 1 << 30);
    assert_int_equal(settings.save_queue_pages_max, 4096);
    assert_int_equal(settings.staging_bytes, 512 << 20);
    assert_int_equal(settings.stage, TARN_SETTING_UNSET);
    assert_int_equal(settings.request_count_max, 1024);
    assert_int_equal(settings.request_tokens_max, 1 << 20);
    assert_true(settings.save_generated);
    assert_false(settings.fail_short);
    assert_string_equal(last_line, "");
    settings_deinit(&settings);
}

static void an_engine_that_cannot_roll_back_fails_short_loads(void **state)
{
    (void)state;
    struct settings settings;
    engine.flags = TARN_ENGINE_BLOCK_REUSE;
    assert_int_equal(settings_init(&settings, &options, &engine), TARN_OK);
    assert_true(settings.fail_short);
    assert_non_null(strstr(last_line, "load_failure is `fail`"));
    settings_deinit(&settings);
}

static void refused(enum tarn_status status, const char *says)
{
    struct settings settings;
    assert_int_equal(settings_init(&settings, &options, &engine), status);
    assert_non_null(strstr(last_line, says));
    setup(NULL);
}

static void each_value_out_of_range_is_named(void **state)
{
    (void)state;
    char long_text[400];
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    options.role = 3;
    refused(TARN_INVALID, "role is 3, at most 2 is allowed");
    options.transfer_batch_size = 1 << 20;
    refused(TARN_INVALID, "transfer_batch_size is 1048576");
    options.save_queue_pages_max = UINT32_MAX;
    refused(TARN_INVALID, "save_queue_pages_max is 4294967295");
    options.lookup_deadline_ms = UINT32_MAX;
    refused(TARN_INVALID, "lookup_deadline_ms");
    options.load_deadline_ms = UINT32_MAX;
    refused(TARN_INVALID, "load_deadline_ms");
    options.load_failure = 2;
    refused(TARN_INVALID, "load_failure");
    options.save_generated = 3;
    refused(TARN_INVALID, "save_generated");
    options.verify_tokens = 3;
    refused(TARN_INVALID, "verify_tokens is 3");
    options.stage_through_host = 3;
    refused(TARN_INVALID, "stage_through_host is 3, at most 2 is allowed");
    options.cache_prefix = long_text;
    refused(TARN_INVALID, "cache_prefix has more than 320 bytes");
    options.pool = "";
    refused(TARN_INVALID, "pool is a path of 0 bytes");
    engine.model_key = long_text;
    refused(TARN_INVALID, "model_key has more than 320 bytes");
    engine.rank = 1;
    refused(TARN_INVALID, "rank is 1");
    engine.request_tokens_max = UINT32_MAX;
    refused(TARN_INVALID, "request_tokens_max");
    engine.request_count_max = UINT32_MAX;
    refused(TARN_INVALID, "request_count_max");
    const struct tarn_kv_format empty = { .size = sizeof(empty) };
    engine.format = &empty;
    refused(TARN_INVALID, "format lacks");
    engine.beam_width_max = 2;
    refused(TARN_UNSUPPORTED, "the pool is refused for this engine: beam_width_max is 2");
}

static void structures_of_older_and_newer_programs_are_read(void **state)
{
    (void)state;
    struct newer {
        struct tarn_connector_options known;
        uint64_t more;
    } newer = { .known = { .size = sizeof(newer), .transfer_batch_size = 7 } };
    struct tarn_connector_options out;
    assert_int_equal(abi_copy(&out, sizeof(out), &newer), TARN_OK);
    assert_int_equal(out.transfer_batch_size, 7);
    newer.more = 1; /* asks for something that we do not know */
    assert_int_equal(abi_copy(&out, sizeof(out), &newer), TARN_UNSUPPORTED);

    options.size = offsetof(struct tarn_connector_options, transfer_batch_size);
    options.role = TARN_ROLE_PRODUCER;
    options.transfer_batch_size = 9; /* past the older structure's end */
    assert_int_equal(abi_copy(&out, sizeof(out), &options), TARN_OK);
    assert_int_equal(out.role, TARN_ROLE_PRODUCER);
    assert_int_equal(out.transfer_batch_size, 0);
    options.size = 0;
    assert_int_equal(abi_copy(&out, sizeof(out), &options), TARN_INVALID);
    assert_int_equal(abi_copy(&out, sizeof(out), NULL), TARN_INVALID);
}

/* All that decides a page's meaning is in its namespace. */
static void the_namespace_names_prefix_model_and_layout(void **state)
{
    (void)state;
    struct settings settings;
    struct layout_group group = { .page_bytes = 4096, .fingerprint = 0xabc };
    const struct layout layout = { .tokens_per_block = 32, .groups = &group, .group_count = 1 };
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    options.cache_prefix = "mine";
    assert_int_equal(settings_init(&settings, &options, &engine), TARN_OK);
    assert_int_equal(settings_namespace(&settings, &layout, 0, 0, text), TARN_OK);
    assert_string_equal(text, "mine/m/w1r0/lg0/t32b4096-0000000000000abc");
    settings_deinit(&settings);
    options.verify_tokens = TARN_SETTING_ON; /* other objects, so another namespace */
    assert_int_equal(settings_init(&settings, &options, &engine), TARN_OK);
    assert_int_equal(settings_namespace(&settings, &layout, 0, 0, text), TARN_OK);
    assert_string_equal(text, "mine/m/w1r0/lg0/t32b4368-0000000000000abc");
    settings_deinit(&settings);
    options.verify_tokens = TARN_SETTING_OFF;
    engine.world_size = engine.tensor_parallel_size = 4; /* each rank's are its own */
    assert_int_equal(settings_init(&settings, &options, &engine), TARN_OK);
    assert_int_equal(settings_namespace(&settings, &layout, 3, 0, text), TARN_OK);
    assert_string_equal(text, "mine/m/w4r3/lg0/t32b4096-0000000000000abc");
    settings_deinit(&settings);
}

/* What is accepted at open makes a key with any layout; a byte more is refused, and says so. */
static void names_that_do_not_fit_a_key_are_refused_at_open(void **state)
{
    (void)state;
    struct settings settings;
    struct layout_group group = { .page_bytes = UINT64_MAX, .fingerprint = UINT64_MAX };
    const struct layout layout = { .tokens_per_block = UINT32_MAX,
                                   .groups = &group,
                                   .group_count = 1 };
    char text[NAMESPACE_TEXT_BYTES_MAX + 1];
    char model[NAMESPACE_FIELD_BYTES_MAX + 1];
    char prefix[NAMESPACE_FIELD_BYTES_MAX + 1];
    memset(model, 'm', sizeof(model));
    model[sizeof(model) - 1] = '\0';
    (void)snprintf(prefix, sizeof(prefix), "%%%.*s",
                   NAMESPACE_NAMES_BYTES_MAX - NAMESPACE_FIELD_BYTES_MAX - 3, model);
    engine.model_key = model;
    options.cache_prefix = prefix;
    assert_int_equal(settings_init(&settings, &options, &engine), TARN_OK);
    assert_int_equal(settings_namespace(&settings, &layout, 0, 0, text), TARN_OK);
    settings_deinit(&settings);
    prefix[strlen(prefix) - 1] = '/';
    refused(TARN_INVALID, "cache_prefix takes 74 bytes of a key and model_key 320 ('/', '%' and "
                          "control bytes take 3 each): together at most 392 are allowed");
}

static enum tarn_status init_and_deinit(void)
{
    struct settings settings;
    options.pool = "/dev/shm/some/pool";
    TRY(settings_init(&settings, &options, &engine));
    settings_deinit(&settings);
    return TARN_OK;
}

static void settings_survive_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(init_and_deinit), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(zero_is_the_default_everywhere, setup),
        cmocka_unit_test_setup(an_engine_that_cannot_roll_back_fails_short_loads, setup),
        cmocka_unit_test_setup(each_value_out_of_range_is_named, setup),
        cmocka_unit_test_setup(structures_of_older_and_newer_programs_are_read, setup),
        cmocka_unit_test_setup(the_namespace_names_prefix_model_and_layout, setup),
        cmocka_unit_test_setup(names_that_do_not_fit_a_key_are_refused_at_open, setup),
        cmocka_unit_test_setup(settings_survive_failed_allocations, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
