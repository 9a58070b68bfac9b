/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option-table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fault.h"

static char folder[] = "/tmp/tarn-test-option-XXXXXX";
static char path[64];

static int folder_make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/t.yaml", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void file_write(const char *chars, size_t length_bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(chars, 1, length_bytes, file), length_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Options from the file alone, and from flags besides. */
static enum tarn_status file_read(struct options *options, const char *chars,
                                  char *const *environment, const char *flag)
{
    static char words[3][128];
    char *argv[] = { words[0], words[1], words[2] };
    file_write(chars, strlen(chars));
    (void)snprintf(words[0], sizeof(words[0]), "--config");
    (void)snprintf(words[1], sizeof(words[1]), "%s", path);
    (void)snprintf(words[2], sizeof(words[2]), "%s", flag ? flag : "");
    return options_read(flag ? 3 : 2, argv, environment, options);
}

static void expect_error(const struct options *options, uint32_t line, const char *says)
{
    char place[96];
    (void)snprintf(place, sizeof(place), "%s:%u: ", path, line);
    if (strncmp(options->error, place, strlen(place)) != 0 || !strstr(options->error, says))
        fail_msg("'%s' is not at line %u, or does not say '%s'", options->error, line, says);
}

static void refused(const char *chars, uint32_t line, const char *says)
{
    struct options options;
    assert_int_equal(file_read(&options, chars, NULL, NULL), TARN_INVALID);
    expect_error(&options, line, says);
}

static const char whole[] = "model:\n"
                            "  path: m.gguf\n"
                            "  ctx: 4096\n"
                            "  kv_size: 2 GiB\n"
                            "server:\n"
                            "  port: 81\n"
                            "  drain-deadline: \"5s\"\n"
                            "pool:\n"
                            "  path: /dev/shm/p,size=1GiB\n"
                            "  role: producer\n"
                            "  save_generated: off\n";

static void every_section_is_read(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(file_read(&options, whole, NULL, NULL), TARN_OK);
    assert_string_equal(options.model, "m.gguf");
    assert_int_equal(option_number(&options, OPTION_CTX), 4096);
    assert_int_equal(option_number(&options, OPTION_KV_SIZE), INT64_C(2) << 30);
    assert_int_equal(option_number(&options, OPTION_PORT), 81);
    assert_int_equal(option_number(&options, OPTION_DRAIN_DEADLINE), 5000);
    assert_string_equal(option_text(&options, OPTION_POOL), "/dev/shm/p,size=1GiB");
    assert_int_equal(option_number(&options, OPTION_ROLE), TARN_ROLE_PRODUCER);
    assert_false(option_bool(&options, OPTION_SAVE_GENERATED));
    assert_string_equal(option_origin(&options, OPTION_PORT), "from the configuration file");
    assert_string_equal(option_origin(&options, OPTION_HOST), "by default");
    options_deinit(&options);
}

static void expect_row(const char *shown, const char *name, const char *value, const char *from)
{
    char row[256];
    (void)snprintf(row, sizeof(row), "\n%-30s %-40s %s\n", name, value, from);
    if (!strstr(shown, row))
        fail_msg("there is no row '%s'", row);
}

/* flag, environment, file, default: each shows which one it was. */
static void the_nearest_source_wins_and_is_shown(void **state)
{
    (void)state;
    struct options options;
    struct text text;
    char line[256];
    char port[] = "TARN_PORT=82";
    char ctx[] = "TARN_CTX=64";
    char *environment[] = { port, ctx, NULL };
    text_init(&text, 1 << 16);
    assert_int_equal(file_read(&options, whole, environment, "--port=83"), TARN_OK);
    assert_int_equal(option_number(&options, OPTION_PORT), 83);
    assert_int_equal(option_number(&options, OPTION_CTX), 64);
    assert_int_equal(option_number(&options, OPTION_ROLE), TARN_ROLE_PRODUCER);
    assert_int_equal(options_print_config(&options, &text), TARN_OK);
    const char *shown = text_chars(&text);
    expect_row(shown, "port", "83", "flag");
    expect_row(shown, "ctx", "64", "TARN_CTX");
    expect_row(shown, "host", "127.0.0.1", "default");
    (void)snprintf(line, sizeof(line), "%-30s %-40s %s:10\n", "role", "producer", path);
    assert_non_null(strstr(shown, line));
    (void)snprintf(line, sizeof(line), "%-30s %-40s %s:2\n", "MODEL", "m.gguf", path);
    assert_non_null(strstr(shown, line));
    text_deinit(&text);
    options_deinit(&options);
}

static void a_model_on_the_command_line_wins(void **state)
{
    (void)state;
    struct options options;
    struct text text;
    text_init(&text, 1 << 16);
    assert_int_equal(file_read(&options, whole, NULL, "other.gguf"), TARN_OK);
    assert_string_equal(options.model, "other.gguf");
    assert_int_equal(options_print_config(&options, &text), TARN_OK);
    assert_non_null(
        strstr(text_chars(&text), "other.gguf                               argument\n"));
    text_deinit(&text);
    options_deinit(&options);
}

static void the_environment_may_name_the_file(void **state)
{
    (void)state;
    struct options options;
    char variable[96];
    char *environment[] = { variable, NULL };
    (void)snprintf(variable, sizeof(variable), "TARN_CONFIG=%s", path);
    file_write("server: {port: 90}\n", 19);
    assert_int_equal(options_read(0, NULL, environment, &options), TARN_OK);
    assert_int_equal(option_number(&options, OPTION_PORT), 90);
    options_deinit(&options);
}

static void a_section_may_be_its_main_value_alone(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(file_read(&options, "model: m.gguf\npool: none\nserver:\n", NULL, NULL),
                     TARN_OK);
    assert_string_equal(options.model, "m.gguf");
    assert_string_equal(option_text(&options, OPTION_POOL), "none");
    options_deinit(&options);
    refused("model: m\nserver: 8000\n", 2, "section server is not a mapping of keys to values");
    refused("pool: [none]\n", 1, "section pool is not a mapping");
}

static void a_file_that_says_nothing_changes_nothing(void **state)
{
    (void)state;
    static const char *const nothings[] = { "", "# nothing\n", "---\n", "~\n", "server: {}\n" };
    for (size_t i = 0; i < LENGTH_OF(nothings); i++) {
        struct options options;
        assert_int_equal(file_read(&options, nothings[i], NULL, NULL), TARN_OK);
        assert_int_equal(option_number(&options, OPTION_PORT), 8000);
        options_deinit(&options);
    }
}

static void every_option_of_a_section_is_a_key_of_it(void **state)
{
    (void)state;
    size_t count = 0;
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        struct options options;
        char chars[256];
        const char *section = option_section(option);
        if (!section[0])
            continue;
        (void)snprintf(chars, sizeof(chars), "%s:\n  %s: []\n", section, option_rows[option].name);
        assert_int_equal(file_read(&options, chars, NULL, NULL), TARN_INVALID);
        expect_error(&options, 2, " is a list (it takes ");
        count++;
    }
    assert_true(count > 20);
}

static void an_unknown_key_is_refused_with_its_line_and_the_nearest(void **state)
{
    (void)state;
    refused("server:\n  prot: 80\n", 2, "unknown key 'prot' in section server; did you mean port?");
    refused("model: {kv_szie: 1GiB}\n", 1, "did you mean kv_size?");
    refused("pool:\n  pahth: /x\n", 2, "did you mean path?");
    refused("server:\n  florb: 80\n", 2,
            "unknown key 'florb' in section server; see tarn serve --help");
    refused("\nsever:\n  port: 80\n", 2, "unknown section 'sever'; did you mean server?");
    refused("florb: {}\n", 1, "unknown section 'florb'");
    refused("model:\n  port: 80\n", 2, "'port' belongs in section server, not in model");
    refused("model:\n  max-waiting: 80\n", 2, "'max_waiting' belongs in section server");
    refused("port: 80\n", 1, "'port' belongs in section server");
    refused("kv_size: 1GiB\n", 1, "'kv_size' belongs in section model");
    refused("server:\n  print_config: on\n", 2, "unknown key");
    refused("server:\n  config: x\n", 2, "unknown key");
    char chars[600];
    (void)snprintf(chars, sizeof(chars), "server:\n  %0500d: 1\n", 0);
    refused(chars, 2, "unknown key '0000");
}

static void a_key_that_comes_twice_is_refused(void **state)
{
    (void)state;
    refused("server:\n  port: 80\n  port: 81\n", 3, "key 'port' is here twice");
    refused("model:\n  kv_size: 1\n  kv-size: 2\n", 3,
            "model.kv_size is here twice; line 2 has it, too");
    refused("server: {}\nserver: {}\n", 2, "key 'server' is here twice");
}

static void a_value_of_another_kind_is_refused(void **state)
{
    (void)state;
    refused("server:\n  port: [80]\n", 2, "server.port is a list (it takes N)");
    refused("server:\n  port: {a: 1}\n", 2, "server.port is a mapping (it takes N)");
    refused("server:\n  port:\n", 2, "server.port has no value; leave the key out");
    refused("server:\n  host: ~\n", 2, "server.host has no value");
    refused("model:\n  path:\n", 2, "model.path has no value");
    refused("model:\n  path: []\n", 2, "model.path is a list");
    refused("model:\n  path: \"\"\n", 2, "model.path is empty");
    refused("server:\n  host: \"a\\nb\"\n", 2, "server.host has line breaks or control characters");
    refused("- a\n", 1, "not a mapping of sections");
    refused("serve\n", 1, "not a mapping of sections");
}

static void a_wrong_value_names_place_key_value_and_what_to_do(void **state)
{
    (void)state;
    refused("server:\n  port: http\n", 2,
            "server.port: 'http' does not start with a digit (it takes N)");
    refused("server:\n  port: 65536\n", 2, "outside 0 to 65535");
    refused("model:\n  kv_size: 4GB\n", 2,
            "model.kv_size: '4GB' uses GB, which means different "
            "sizes to different programs; write 4GiB");
    refused("model:\n  kv_size: 4KB\n", 2, "write 4KiB");
    refused("model:\n  kv_size: 4MB\n", 2, "write 4MiB");
    refused("model:\n  kv_size: 1.5GiB\n", 2, "is not a size");
    refused("pool:\n  save_generated: maybe\n", 2, "neither on nor off (it takes on|off)");
    refused("pool:\n  role: master\n", 2, "is not one of both|producer|consumer");
    refused("pool:\n  load_deadline: 2\n", 2, "its unit, ms or s");
    refused("pool: /a,b\n", 1, "--pool: 'b' is not size=SIZE");
    /* a value that loses to a flag is looked at, too */
    struct options options;
    assert_int_equal(file_read(&options, "server: {port: x}\n", NULL, "--port=1"), TARN_INVALID);
    expect_error(&options, 1, "server.port: 'x'");
}

static void keys_that_begin_with_a_key_may_stand_below_it(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(
        file_read(&options, "pool:\n  connector: {module: m.so, symbol: f}\n", NULL, NULL),
        TARN_OK);
    assert_string_equal(option_text(&options, OPTION_CONNECTOR_MODULE), "m.so");
    assert_string_equal(option_text(&options, OPTION_CONNECTOR_SYMBOL), "f");
    assert_string_equal(option_text(&options, OPTION_CONNECTOR), "tarn");
    options_deinit(&options);
    assert_int_equal(
        file_read(&options, "pool:\n  connector: tarn\n  connector_module: m.so\n", NULL, NULL),
        TARN_OK);
    assert_string_equal(option_text(&options, OPTION_CONNECTOR_MODULE), "m.so");
    options_deinit(&options);
    refused("pool:\n  connector:\n    modul: m.so\n", 3,
            "unknown key 'connector_modul' in section pool; did you mean connector_module?");
    refused("pool:\n  connector: {module: {a: b}}\n", 2,
            "pool.connector_module is a mapping (it takes PATH.so)");
    refused("pool:\n  connector: {module: a}\n  connector_module: b\n", 3, "is here twice");
}

static void booleans_have_four_spellings_each(void **state)
{
    (void)state;
    static const char *const words[] = { "0", "1", "false", "true", "no", "yes", "off", "on" };
    for (size_t i = 0; i < LENGTH_OF(words); i++) {
        struct options options;
        char chars[64];
        (void)snprintf(chars, sizeof(chars), "pool: {verify_tokens: %s}\n", words[i]);
        assert_int_equal(file_read(&options, chars, NULL, NULL), TARN_OK);
        assert_int_equal(option_bool(&options, OPTION_VERIFY_TOKENS), i % 2);
        options_deinit(&options);
    }
}

static void what_is_no_plain_yaml_is_refused(void **state)
{
    (void)state;
    refused("a: &x 1\n", 1, "an anchor (&name)");
    refused("server: {}\nmodel: *x\n", 2, "an alias (*name)");
    refused("server: {}\n---\nmodel: {}\n", 2, "a second document");
    refused("server: {port: 80\n", 2, "no YAML");
    refused("server:\n\tport: 80\n", 2, "no YAML");
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    struct options options;
    char flag[] = "--config=/nowhere/t.yaml";
    char *argv[] = { flag };
    assert_int_equal(options_read(1, argv, NULL, &options), TARN_IO);
    assert_string_equal(options.error, "--config: /nowhere/t.yaml: No such file or directory");
    char of_folder[96];
    (void)snprintf(of_folder, sizeof(of_folder), "--config=%s", folder);
    char *again[] = { of_folder };
    assert_int_equal(options_read(1, again, NULL, &options), TARN_IO);
    assert_non_null(strstr(options.error, "Is a directory"));
    static char chars[(1 << 16) + 1];
    memset(chars, '#', sizeof(chars));
    file_write(chars, sizeof(chars));
    char of_file[96];
    (void)snprintf(of_file, sizeof(of_file), "--config=%s", path);
    char *third[] = { of_file };
    assert_int_equal(options_read(1, third, NULL, &options), TARN_NO_SPACE);
    assert_non_null(strstr(options.error, "longer than 64 KiB"));
}

static enum tarn_status read_whole(void)
{
    struct options options;
    char flag[96];
    char *argv[] = { flag };
    (void)snprintf(flag, sizeof(flag), "--config=%s", path);
    TRY(options_read(1, argv, NULL, &options));
    options_deinit(&options);
    return TARN_OK;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    file_write(whole, sizeof(whole) - 1);
    assert_true(fault_sweep(read_whole) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_section_is_read),
        cmocka_unit_test(the_nearest_source_wins_and_is_shown),
        cmocka_unit_test(a_model_on_the_command_line_wins),
        cmocka_unit_test(the_environment_may_name_the_file),
        cmocka_unit_test(a_section_may_be_its_main_value_alone),
        cmocka_unit_test(a_file_that_says_nothing_changes_nothing),
        cmocka_unit_test(every_option_of_a_section_is_a_key_of_it),
        cmocka_unit_test(an_unknown_key_is_refused_with_its_line_and_the_nearest),
        cmocka_unit_test(a_key_that_comes_twice_is_refused),
        cmocka_unit_test(a_value_of_another_kind_is_refused),
        cmocka_unit_test(a_wrong_value_names_place_key_value_and_what_to_do),
        cmocka_unit_test(keys_that_begin_with_a_key_may_stand_below_it),
        cmocka_unit_test(booleans_have_four_spellings_each),
        cmocka_unit_test(what_is_no_plain_yaml_is_refused),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
