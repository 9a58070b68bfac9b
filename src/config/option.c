/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "codec/yaml.h"
#include "config/option-table.h"
#include "config/value.h"

const struct option_row option_rows[OPTION_COUNT_ALL] = {
#define SECTION(title, key)
#define ROW(command, id, type, ...) [OPTION_##id] = { command, OPTION_TYPE_##type, __VA_ARGS__ },
#define X(...)                      ROW(OPTIONS_OF_SERVE, __VA_ARGS__)
    OPTION_LIST(SECTION, X)
#undef X
#define X(...) ROW(OPTIONS_OF_MASTER, __VA_ARGS__)
        MASTER_OPTION_LIST(SECTION, X)
#undef X
#define X(...) ROW(OPTIONS_OF_DONOR, __VA_ARGS__)
            DONOR_OPTION_LIST(SECTION, X)
#undef X
#undef ROW
#undef SECTION
};

const struct option_line option_lines[] = {
#define SECTION(title, key) { title, key, OPTION_COUNT_ALL },
#define X(id, ...)          { NULL, NULL, OPTION_##id },
    OPTION_LIST(SECTION, X) MASTER_OPTION_LIST(SECTION, X) DONOR_OPTION_LIST(SECTION, X)
#undef X
#undef SECTION
};
const size_t option_line_count = LENGTH_OF(option_lines);

static const char *const command_names[] = {
    [OPTIONS_OF_SERVE] = "serve",
    [OPTIONS_OF_MASTER] = "master",
    [OPTIONS_OF_DONOR] = "donor",
};

static bool has_limits(const struct option_row *row)
{
    return row->least > 0 || row->most > 0;
}

static enum tarn_status number_read(const struct option_row *row, const char *text,
                                    uint64_t *out_number, struct value_reason *out_reason)
{
    bool flag = false;
    switch (row->type) {
    case OPTION_TYPE_TEXT:
    case OPTION_TYPE_SWITCH:
        if (text[0] == '\0') {
            (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is empty");
            return TARN_INVALID;
        }
        *out_number = 1;
        return TARN_OK;
    case OPTION_TYPE_COUNT:
        return value_count(text, out_number, out_reason);
    case OPTION_TYPE_SIZE:
        return value_size(text, out_number, out_reason);
    case OPTION_TYPE_TIME:
        return value_time(text, out_number, out_reason);
    case OPTION_TYPE_RATIO:
        return value_ratio(text, out_number, out_reason);
    case OPTION_TYPE_BOOL:
        TRY(value_bool(text, &flag, out_reason));
        *out_number = flag;
        return TARN_OK;
    case OPTION_TYPE_CHOICE:
        return value_choice(text, row->argument, out_number, out_reason);
    }
    return TARN_INVALID;
}

static enum tarn_status limits_check(const struct option_row *row, uint64_t number,
                                     struct value_reason *out_reason)
{
    if (!has_limits(row) || (number >= row->least && (row->most == 0 || number <= row->most)))
        return TARN_OK;
    if (row->most == 0)
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES, "is below the least, %" PRIu64,
                       row->least);
    else
        (void)snprintf(out_reason->chars, VALUE_REASON_BYTES,
                       "is outside %" PRIu64 " to %" PRIu64 "%s", row->least, row->most,
                       row->type == OPTION_TYPE_TIME ? " ms" : "");
    return TARN_INVALID;
}

const char *option_section(enum option option)
{
    const char *key = "";
    for (size_t i = 0; i < option_line_count; i++) {
        if (option_lines[i].title)
            key = option_lines[i].key;
        else if (option_lines[i].option == option)
            return key;
    }
    return "";
}

enum tarn_status option_set(struct options *options, enum option option, const char *text,
                            enum option_source source, const char *spelling)
{
    const struct option_row *row = &option_rows[option];
    struct value_reason reason;
    uint64_t number = 0;
    enum tarn_status status = number_read(row, text, &number, &reason);
    if (status == TARN_OK)
        status = limits_check(row, number, &reason);
    if (status != TARN_OK) {
        size_t start = 0;
        const size_t secret_bytes = value_secret(text, &start);
        (void)snprintf(options->error, sizeof(options->error), "%s: '%.*s%.100s' %s (it takes %s)",
                       spelling, secret_bytes ? (int)start : 0, text, secret_bytes ? "***" : text,
                       reason.chars, row->argument);
        return TARN_INVALID;
    }
    struct option_value *value = &options->values[option];
    if (source < value->source)
        return TARN_OK;
    *value =
        (struct option_value){ .source = source, .is_set = true, .text = text, .number = number };
    return TARN_OK;
}

void option_variable(const char *name, char out[static OPTION_NAME_BYTES_MAX])
{
    size_t at = (size_t)snprintf(out, OPTION_NAME_BYTES_MAX, "TARN_");
    for (; *name && at + 1 < OPTION_NAME_BYTES_MAX; name++)
        out[at++] = (char)(*name == '-' ? '_' : toupper((unsigned char)*name));
    out[at] = '\0';
}

static enum tarn_status defaults_read(struct options *options)
{
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++)
        if (option_rows[option].command == options->command && option_rows[option].fallback[0])
            TRY(option_set(options, option, option_rows[option].fallback, OPTION_FROM_DEFAULT,
                           option_rows[option].name));
    return TARN_OK;
}

static enum tarn_status environment_read(struct options *options, char *const *environment)
{
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        if (option_rows[option].command != options->command ||
            option_rows[option].type == OPTION_TYPE_SWITCH)
            continue;
        char name[OPTION_NAME_BYTES_MAX];
        option_variable(option_rows[option].name, name);
        const size_t name_bytes = strlen(name);
        for (char *const *entry = environment; *entry; entry++)
            if (strncmp(*entry, name, name_bytes) == 0 && (*entry)[name_bytes] == '=')
                TRY(option_set(options, option, *entry + name_bytes + 1, OPTION_FROM_ENVIRONMENT,
                               name));
    }
    return TARN_OK;
}

static size_t distance(const char *a, const char *b)
{
    /* Levenshtein's distance, one row; names are short. */
    size_t row[OPTION_NAME_BYTES_MAX];
    const size_t b_length = strlen(b);
    if (strlen(a) >= OPTION_NAME_BYTES_MAX || b_length >= OPTION_NAME_BYTES_MAX)
        return OPTION_NAME_BYTES_MAX;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t drop = row[j] + 1;
            const size_t add = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = change < drop ? change : drop;
            row[j] = add < row[j] ? add : row[j];
        }
    }
    return row[b_length];
}

const char *nearest_name(const char *name, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    const size_t length = strlen(name);
    size_t least = length / 3 + 1; /* further than this is another word */
    if (length >= OPTION_NAME_BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const size_t far = distance(name, names[i]);
        if (far <= least) {
            nearest = names[i];
            least = far - (far > 0);
        }
    }
    return nearest;
}

static enum tarn_status unknown_option(struct options *options, const char *flag)
{
    const char *names[OPTION_COUNT_ALL];
    size_t count = 0;
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++)
        if (option_rows[option].command == options->command)
            names[count++] = option_rows[option].name;
    char name[OPTION_NAME_BYTES_MAX];
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(flag, "="), flag);
    const char *nearest = nearest_name(name + strspn(name, "-"), names, count);
    if (nearest)
        (void)snprintf(options->error, sizeof(options->error),
                       "unknown option %s; did you mean --%s?", name, nearest);
    else
        (void)snprintf(options->error, sizeof(options->error),
                       "unknown option %s; see tarn %s --help", name,
                       command_names[options->command]);
    return TARN_INVALID;
}

/* The command's option of "--name" or "--name=value", else OPTION_COUNT_ALL. */
static enum option option_find(enum option_command command, const char *flag)
{
    const size_t name_bytes = strcspn(flag, "=");
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const char *name = option_rows[option].name;
        if (option_rows[option].command == command && strncmp(flag, "--", 2) == 0 &&
            strlen(name) + 2 == name_bytes && memcmp(flag + 2, name, name_bytes - 2) == 0)
            return option;
    }
    return OPTION_COUNT_ALL;
}

/* Read the flag at argv[*at]; *at moves to its last word. */
static enum tarn_status flag_read(struct options *options, int argc, char *const *argv, int *at)
{
    const char *flag = argv[*at];
    const enum option option = option_find(options->command, flag);
    if (option == OPTION_COUNT_ALL)
        return unknown_option(options, flag);
    char spelling[OPTION_NAME_BYTES_MAX];
    (void)snprintf(spelling, sizeof(spelling), "--%s", option_rows[option].name);
    const char *equals = strchr(flag, '=');
    if (option_rows[option].type == OPTION_TYPE_SWITCH) {
        if (!equals)
            return option_set(options, option, "on", OPTION_FROM_FLAG, spelling);
        (void)snprintf(options->error, sizeof(options->error), "%s takes no value", spelling);
        return TARN_INVALID;
    }
    if (equals)
        return option_set(options, option, equals + 1, OPTION_FROM_FLAG, spelling);
    if (*at + 1 < argc)
        return option_set(options, option, argv[++*at], OPTION_FROM_FLAG, spelling);
    (void)snprintf(options->error, sizeof(options->error), "%s needs a value (%s)", spelling,
                   option_rows[option].argument);
    return TARN_INVALID;
}

static enum tarn_status words_read(struct options *options, int argc, char *const *argv)
{
    bool only_operands = false;
    for (int at = 0; at < argc; at++) {
        if (!only_operands && strcmp(argv[at], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && strcmp(argv[at], "-h") == 0) {
            TRY(option_set(options, option_find(options->command, "--help"), "on", OPTION_FROM_FLAG,
                           "-h"));
        } else if (!only_operands && argv[at][0] == '-' && argv[at][1] != '\0') {
            TRY(flag_read(options, argc, argv, &at));
        } else if (options->command != OPTIONS_OF_SERVE) {
            (void)snprintf(options->error, sizeof(options->error),
                           "unexpected argument '%.100s'; see tarn %s --help", argv[at],
                           command_names[options->command]);
            return TARN_INVALID;
        } else if (!options->model) {
            options->model = argv[at];
            options->model_source = OPTION_FROM_FLAG;
        } else {
            (void)snprintf(options->error, sizeof(options->error),
                           "unexpected argument '%.100s': there is one model, '%.100s'", argv[at],
                           options->model);
            return TARN_INVALID;
        }
    }
    return TARN_OK;
}

/* What the table cannot say of a value; the message says where it came from. */
static enum tarn_status pool_check(struct options *options)
{
    const struct option_value *value = &options->values[OPTION_POOL];
    struct pool_option pool;
    char reason[OPTION_ERROR_BYTES];
    if (pool_option_read(value->text, &pool, reason) == TARN_OK)
        return TARN_OK;
    char place[OPTION_PLACE_BYTES] = "";
    if (value->source != OPTION_FROM_FLAG)
        option_place(options, OPTION_POOL, place);
    (void)snprintf(options->error, sizeof(options->error), "%s%s%.400s", place,
                   place[0] ? ": " : "", reason);
    return TARN_INVALID;
}

static enum tarn_status sources_read(struct options *options, int argc, char *const *argv,
                                     char *const *environment)
{
    TRY(defaults_read(options));
    if (environment)
        TRY(environment_read(options, environment));
    TRY(words_read(options, argc, argv));
    if (option_is_set(options, OPTION_CONFIG))
        TRY(options_read_file(options, option_text(options, OPTION_CONFIG)));
    return pool_check(options);
}

enum tarn_status options_read(int argc, char *const *argv, char *const *environment,
                              struct options *out_options)
{
    *out_options = (struct options){ .command = OPTIONS_OF_SERVE };
    const enum tarn_status status = sources_read(out_options, argc, argv, environment);
    if (status != TARN_OK)
        options_deinit(out_options);
    return status;
}

enum tarn_status options_read_of(enum option_command command, int argc, char *const *argv,
                                 struct options *out_options)
{
    *out_options = (struct options){ .command = command };
    TRY(defaults_read(out_options));
    return words_read(out_options, argc, argv);
}

void options_deinit(struct options *options)
{
    yaml_destroy(options->file);
    options->file = NULL;
}

void option_place(const struct options *options, enum option option,
                  char out_place[OPTION_PLACE_BYTES])
{
    const struct option_value *value = &options->values[option];
    char name[OPTION_NAME_BYTES_MAX];
    switch (value->source) {
    case OPTION_FROM_DEFAULT:
    case OPTION_FROM_FLAG:
        (void)snprintf(out_place, OPTION_PLACE_BYTES, "--%s", option_rows[option].name);
        return;
    case OPTION_FROM_FILE:
        (void)snprintf(name, sizeof(name), "%s", option_key(option));
        for (char *at = name; *at; at++)
            *at = (char)(*at == '-' ? '_' : *at);
        (void)snprintf(out_place, OPTION_PLACE_BYTES, "%.300s:%u: %s.%s",
                       option_text(options, OPTION_CONFIG), value->line, option_section(option),
                       name);
        return;
    case OPTION_FROM_ENVIRONMENT:
        option_variable(option_rows[option].name, name);
        (void)snprintf(out_place, OPTION_PLACE_BYTES, "%s", name);
        return;
    }
}

bool option_is_set(const struct options *options, enum option option)
{
    return options->values[option].is_set;
}

const char *option_text(const struct options *options, enum option option)
{
    return options->values[option].text;
}

uint64_t option_number(const struct options *options, enum option option)
{
    return options->values[option].number;
}

bool option_bool(const struct options *options, enum option option)
{
    return options->values[option].number != 0;
}

const char *option_name(enum option option)
{
    return option_rows[option].name;
}

const char *option_origin(const struct options *options, enum option option)
{
    switch (options->values[option].source) {
    case OPTION_FROM_DEFAULT:
        return "by default";
    case OPTION_FROM_FILE:
        return "from the configuration file";
    case OPTION_FROM_ENVIRONMENT:
        return "from the environment";
    case OPTION_FROM_FLAG:
        return "by flag";
    }
    return "";
}

enum tarn_status pool_option_read(const char *text, struct pool_option *out_pool, char *error)
{
    struct pool_option pool = { .choice = POOL_DEFAULT };
    if (text && strcmp(text, "none") == 0) {
        pool.choice = POOL_NONE;
    } else if (text && (strncmp(text, "mooncake:", 9) == 0 || strcmp(text, "mooncake") == 0)) {
        pool.choice = POOL_DISTRIBUTED;
        if (strstr(text, ",size=") || strlen(text) >= sizeof(pool.path)) {
            (void)snprintf(error, OPTION_ERROR_BYTES, "--pool: '%.100s' %s", text,
                           strstr(text, ",size=")
                               ? "has a size, but a distributed pool is as large "
                                 "as its members lend; see --global-segment-size"
                               : "is too long");
            return TARN_INVALID;
        }
        (void)snprintf(pool.path, sizeof(pool.path), "%s", text);
    } else if (text) {
        pool.choice = POOL_NAMED;
        const char *comma = strrchr(text, ',');
        const size_t path_bytes = comma ? (size_t)(comma - text) : strlen(text);
        if (path_bytes == 0 || path_bytes >= sizeof(pool.path)) {
            (void)snprintf(error, OPTION_ERROR_BYTES, "--pool: the path is %s",
                           path_bytes ? "too long" : "empty");
            return TARN_INVALID;
        }
        memcpy(pool.path, text, path_bytes);
        struct value_reason reason = { "is not size=SIZE" };
        if (comma && (strncmp(comma, ",size=", 6) != 0 ||
                      value_size(comma + 6, &pool.size_bytes, &reason) != TARN_OK)) {
            (void)snprintf(error, OPTION_ERROR_BYTES,
                           "--pool: '%.100s' %s (it takes none|PATH[,size=SIZE])", comma + 1,
                           reason.chars);
            return TARN_INVALID;
        }
        if (comma && pool.size_bytes == 0) {
            (void)snprintf(error, OPTION_ERROR_BYTES,
                           "--pool: size=0 is no size; leave it out for the default one");
            return TARN_INVALID;
        }
    }
    *out_pool = pool;
    return TARN_OK;
}
