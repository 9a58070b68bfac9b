/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

/* Words from literals, as argv has them: writable. They live until the next call. */
static enum tarn_status read_words(struct options *options, char *const *environment,
                                   const char *const *words)
{
    static char storage[8][64];
    char *argv[LENGTH_OF(storage)];
    int argc = 0;
    for (; words[argc]; argc++) {
        (void)snprintf(storage[argc], sizeof(storage[argc]), "%s", words[argc]);
        argv[argc] = storage[argc];
    }
    return options_read(argc, argv, environment, options);
}

#define READ(options, environment, ...)                                                            \
    read_words(options, environment, (const char *const[]){ __VA_ARGS__, NULL })

static void expect_error(const struct options *options, const char *part)
{
    if (!strstr(options->error, part))
        fail_msg("'%s' does not say '%s'", options->error, part);
}

static void a_flag_wins_over_the_environment_which_wins_over_the_default(void **state)
{
    (void)state;
    struct options options;
    char port[] = "TARN_PORT=81";
    char batch[] = "TARN_MAX_BATCH_SIZE=3";
    char other[] = "TARN_PORTAL=x";
    char *environment[] = { port, batch, other, NULL };

    assert_int_equal(READ(&options, environment, "m.gguf", "--port", "82"), TARN_OK);
    assert_string_equal(options.model, "m.gguf");
    assert_int_equal(option_number(&options, OPTION_PORT), 82);
    assert_int_equal(options.values[OPTION_PORT].source, OPTION_FROM_FLAG);
    assert_int_equal(option_number(&options, OPTION_MAX_BATCH_SIZE), 3);
    assert_int_equal(options.values[OPTION_MAX_BATCH_SIZE].source, OPTION_FROM_ENVIRONMENT);
    assert_string_equal(option_text(&options, OPTION_HOST), "127.0.0.1");
    assert_int_equal(options.values[OPTION_HOST].source, OPTION_FROM_DEFAULT);
}

static void both_forms_of_a_flag_are_read(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(READ(&options, NULL, "--kv-size=2GiB", "--role", "producer", "m"), TARN_OK);
    assert_int_equal(option_number(&options, OPTION_KV_SIZE), INT64_C(2) << 30);
    assert_int_equal(option_number(&options, OPTION_ROLE), TARN_ROLE_PRODUCER);
    assert_int_equal(READ(&options, NULL, "--", "--model"), TARN_OK);
    assert_string_equal(options.model, "--model");
    assert_int_equal(READ(&options, NULL, "-h"), TARN_OK);
    assert_true(option_bool(&options, OPTION_HELP));
}

static void an_option_without_default_is_unset(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(READ(&options, NULL, "m"), TARN_OK);
    assert_false(option_is_set(&options, OPTION_CTX));
    assert_int_equal(option_number(&options, OPTION_CTX), 0);
    assert_null(option_text(&options, OPTION_POOL));
    assert_true(option_bool(&options, OPTION_SAVE_GENERATED));
    assert_false(option_bool(&options, OPTION_POLL));
}

static void an_unknown_option_is_an_error_with_the_nearest_name(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(READ(&options, NULL, "--prot", "80"), TARN_INVALID);
    expect_error(&options, "did you mean --port?");
    assert_int_equal(READ(&options, NULL, "--max-batch-token=9"), TARN_INVALID);
    expect_error(&options, "did you mean --max-batch-tokens?");
    assert_int_equal(READ(&options, NULL, "--florb"), TARN_INVALID);
    expect_error(&options, "unknown option --florb; see tarn serve --help");
    assert_int_equal(READ(&options, NULL, "-x"), TARN_INVALID);
    expect_error(&options, "unknown option -x");
}

static void a_wrong_value_names_option_value_and_what_to_do(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(READ(&options, NULL, "--port", "http"), TARN_INVALID);
    expect_error(&options, "--port: 'http' does not start with a digit (it takes N)");
    assert_int_equal(READ(&options, NULL, "--port", "65536"), TARN_INVALID);
    expect_error(&options, "outside 0 to 65535");
    assert_int_equal(READ(&options, NULL, "--kv-size", "4GB"), TARN_INVALID);
    expect_error(&options, "write 4GiB");
    assert_int_equal(READ(&options, NULL, "--kv-size", "0"), TARN_INVALID);
    expect_error(&options, "below the least");
    assert_int_equal(READ(&options, NULL, "--save-generated", "maybe"), TARN_INVALID);
    expect_error(&options, "neither on nor off (it takes on|off)");
    assert_int_equal(READ(&options, NULL, "--kv-type=q8"), TARN_INVALID);
    expect_error(&options, "is not one of f16|f32");
    assert_int_equal(READ(&options, NULL, "--host", ""), TARN_INVALID);
    expect_error(&options, "is empty");
    assert_int_equal(READ(&options, NULL, "--port"), TARN_INVALID);
    expect_error(&options, "--port needs a value");
    assert_int_equal(READ(&options, NULL, "--print-config=on"), TARN_INVALID);
    expect_error(&options, "takes no value");
    assert_int_equal(READ(&options, NULL, "a", "b"), TARN_INVALID);
    expect_error(&options, "unexpected argument 'b'");
}

static void an_error_in_the_environment_names_the_variable(void **state)
{
    (void)state;
    struct options options;
    char bad[] = "TARN_SAVE_GENERATED=perhaps";
    char *environment[] = { bad, NULL };
    assert_int_equal(READ(&options, environment, "m"), TARN_INVALID);
    expect_error(&options, "TARN_SAVE_GENERATED: 'perhaps'");
}

static void a_pool_is_none_a_path_or_a_path_with_a_size(void **state)
{
    (void)state;
    struct pool_option pool;
    char error[OPTION_ERROR_BYTES];
    assert_int_equal(pool_option_read(NULL, &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_DEFAULT);
    assert_int_equal(pool_option_read("none", &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_NONE);
    assert_int_equal(pool_option_read("/dev/shm/a", &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_NAMED);
    assert_string_equal(pool.path, "/dev/shm/a");
    assert_int_equal(pool.size_bytes, 0);
    assert_int_equal(pool_option_read("/dev/shm/a,size=1GiB", &pool, error), TARN_OK);
    assert_string_equal(pool.path, "/dev/shm/a");
    assert_int_equal(pool.size_bytes, 1 << 30);
    assert_int_equal(pool_option_read("/a,sise=1GiB", &pool, error), TARN_INVALID);
    assert_non_null(strstr(error, "is not size=SIZE"));
    assert_int_equal(pool_option_read("/a,size=1GB", &pool, error), TARN_INVALID);
    assert_non_null(strstr(error, "write 1GiB"));
    assert_int_equal(pool_option_read(",size=1GiB", &pool, error), TARN_INVALID);
    assert_non_null(strstr(error, "empty"));
    assert_int_equal(pool_option_read("mooncake://h,i:1", &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_DISTRIBUTED);
    assert_string_equal(pool.path, "mooncake://h,i:1");
    assert_int_equal(pool_option_read("mooncake", &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_DISTRIBUTED);
    assert_int_equal(pool_option_read("mooncakes", &pool, error), TARN_OK);
    assert_int_equal(pool.choice, POOL_NAMED);
    assert_int_equal(pool_option_read("mooncake://h:1,size=1GiB", &pool, error), TARN_INVALID);
    assert_non_null(strstr(error, "--global-segment-size"));

    struct options options;
    assert_int_equal(READ(&options, NULL, "m", "--pool", "/a,b"), TARN_INVALID);
    expect_error(&options, "--pool");
}

static void expect_row(const char *shown, const char *name, const char *value, const char *from)
{
    char row[256];
    (void)snprintf(row, sizeof(row), "\n%-30s %-40s %s\n", name, value, from);
    if (!strstr(shown, row))
        fail_msg("there is no row '%s'", row);
}

static void the_configuration_shows_each_value_and_its_source(void **state)
{
    (void)state;
    struct options options;
    struct text text;
    char variable[] = "TARN_THREADS=2";
    char *environment[] = { variable, NULL };
    text_init(&text, 1 << 16);
    assert_int_equal(READ(&options, environment, "m.gguf", "--ctx=64"), TARN_OK);
    assert_int_equal(options_print_config(&options, &text), TARN_OK);
    const char *shown = text_chars(&text);
    expect_row(shown, "ctx", "64", "flag");
    expect_row(shown, "threads", "2", "TARN_THREADS");
    expect_row(shown, "port", "8000", "default");
    assert_non_null(strstr(shown, "(the user's default pool on this host)"));
    assert_null(strstr(shown, "print-config"));
    text_deinit(&text);
}

static void secrets_are_not_printed(void **state)
{
    (void)state;
    struct options options;
    struct text text;
    text_init(&text, 1 << 16);
    assert_int_equal(READ(&options, NULL, "m", "--cache-prefix", "redis://me:word@host/0"),
                     TARN_OK);
    assert_int_equal(options_print_config(&options, &text), TARN_OK);
    assert_non_null(strstr(text_chars(&text), "redis://***@host/0"));
    assert_null(strstr(text_chars(&text), "word"));
    text_deinit(&text);
    assert_int_equal(READ(&options, NULL, "--port", "http://me:word@host"), TARN_INVALID);
    expect_error(&options, "--port: 'http://***' does not start with a digit");
    assert_null(strstr(options.error, "word"));
}

static void a_command_has_its_own_options_and_no_others(void **state)
{
    (void)state;
    struct options options;
    char port[] = "--rpc-port=7";
    char ratio[] = "--eviction-ratio=0.5";
    char help[] = "-h";
    char *argv[] = { port, ratio, help };
    assert_int_equal(options_read_of(OPTIONS_OF_MASTER, 3, argv, &options), TARN_OK);
    assert_int_equal(option_number(&options, OPTION_MASTER_RPC_PORT), 7);
    assert_int_equal(option_number(&options, OPTION_MASTER_EVICTION), 500000);
    assert_int_equal(option_number(&options, OPTION_MASTER_HTTP_PORT), 9004);
    assert_true(option_bool(&options, OPTION_MASTER_HELP));
    assert_false(option_is_set(&options, OPTION_PORT));
    assert_int_equal(options_read_of(OPTIONS_OF_DONOR, 1, argv, &options), TARN_INVALID);
    expect_error(&options, "unknown option --rpc-port; see tarn donor --help");
    char word[] = "word";
    argv[0] = word;
    assert_int_equal(options_read_of(OPTIONS_OF_DONOR, 1, argv, &options), TARN_INVALID);
    expect_error(&options, "unexpected argument 'word'; see tarn donor --help");
    assert_int_equal(READ(&options, NULL, "--segment-size", "1"), TARN_INVALID);
    expect_error(&options, "unknown option --segment-size");
}

/* Help and manual of a command have all of `words`, and lines that are `titles`. */
static void expect_named(enum option_command command, const char *const *words,
                         const char *const *titles)
{
    struct text help;
    struct text manual;
    text_init(&help, 1 << 16);
    text_init(&manual, 1 << 16);
    assert_int_equal(options_print_help(command, &help), TARN_OK);
    assert_int_equal(options_print_manual(command, &manual), TARN_OK);
    for (; *words; words++)
        assert_non_null(strstr(text_chars(&help), *words));
    for (; *titles; titles++) {
        char title[64];
        (void)snprintf(title, sizeof(title), "\n%s:\n", *titles);
        assert_non_null(strstr(text_chars(&help), title));
        (void)snprintf(title, sizeof(title), ".SS %s\n", *titles);
        assert_non_null(strstr(text_chars(&manual), title));
    }
    for (const char *line = text_chars(&help); *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 92);
    text_deinit(&help);
    text_deinit(&manual);
}

static void the_help_and_the_manual_name_every_option(void **state)
{
    (void)state;
#define SECTION(title, key)
#define X(id, type, name, ...) "  --" name,
    static const char *const serve[] = { OPTION_LIST(SECTION, X) NULL };
    static const char *const master[] = { MASTER_OPTION_LIST(SECTION, X) NULL };
    static const char *const donor[] = { DONOR_OPTION_LIST(SECTION, X) NULL };
#undef X
#undef SECTION
#define SECTION(title, key) key[0] ? title " (section " key ")" : title,
#define X(...)
    const char *const serve_titles[] = { OPTION_LIST(SECTION, X) NULL };
    const char *const master_titles[] = { MASTER_OPTION_LIST(SECTION, X) NULL };
    const char *const donor_titles[] = { DONOR_OPTION_LIST(SECTION, X) NULL };
#undef X
#undef SECTION
    expect_named(OPTIONS_OF_SERVE, serve, serve_titles);
    expect_named(OPTIONS_OF_MASTER, master, master_titles);
    expect_named(OPTIONS_OF_DONOR, donor, donor_titles);
    struct text manual;
    text_init(&manual, 1 << 16);
    assert_int_equal(options_print_manual(OPTIONS_OF_SERVE, &manual), TARN_OK);
    assert_non_null(strstr(text_chars(&manual), "\\fB\\-\\-max\\-batch\\-tokens\\fR"));
    assert_null(strstr(text_chars(&manual), "rpc"));
    text_deinit(&manual);
}

static enum tarn_status print_all(void)
{
    struct options options;
    struct text text;
    text_init(&text, 1 << 16);
    enum tarn_status status = READ(&options, NULL, "m");
    if (status == TARN_OK)
        status = options_print_help(OPTIONS_OF_SERVE, &text);
    if (status == TARN_OK)
        status = options_print_config(&options, &text);
    if (status == TARN_OK)
        status = options_print_manual(OPTIONS_OF_SERVE, &text);
    text_deinit(&text);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(print_all) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flag_wins_over_the_environment_which_wins_over_the_default),
        cmocka_unit_test(both_forms_of_a_flag_are_read),
        cmocka_unit_test(an_option_without_default_is_unset),
        cmocka_unit_test(an_unknown_option_is_an_error_with_the_nearest_name),
        cmocka_unit_test(a_wrong_value_names_option_value_and_what_to_do),
        cmocka_unit_test(an_error_in_the_environment_names_the_variable),
        cmocka_unit_test(a_pool_is_none_a_path_or_a_path_with_a_size),
        cmocka_unit_test(the_configuration_shows_each_value_and_its_source),
        cmocka_unit_test(secrets_are_not_printed),
        cmocka_unit_test(a_command_has_its_own_options_and_no_others),
        cmocka_unit_test(the_help_and_the_manual_name_every_option),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
