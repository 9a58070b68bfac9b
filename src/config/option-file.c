/* SPDX-License-Identifier: Apache-2.0 */
/* Options from a configuration file: sections of keys, which come from the option table. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "codec/yaml.h"
#include "config/option-table.h"
#include "os/file.h"

static const char model_section[] = "model";
static const char main_key[] = "path"; /* what a section is about: the model's file, the pool */

/* A place in the file. */
struct place {
    struct options *options;
    const char *path;
    const char *section;
};

PRINTF_LIKE(3, 4)
static enum tarn_status refuse(const struct place *place, uint32_t line, const char *format, ...)
{
    char *error = place->options->error;
    const int head = snprintf(error, OPTION_ERROR_BYTES, "%.300s:%u: ", place->path, line);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error + head, (size_t)(OPTION_ERROR_BYTES - head), format, arguments);
    va_end(arguments);
    return TARN_INVALID;
}

static enum tarn_status refuse_memory(struct options *options)
{
    (void)snprintf(options->error, OPTION_ERROR_BYTES, "%s", tarn_strerror(TARN_NO_MEMORY));
    return TARN_NO_MEMORY;
}

const char *option_key(enum option option)
{
    const char *name = option_rows[option].name;
    const char *section = option_section(option);
    const size_t section_bytes = strlen(section);
    if (strncmp(name, section, section_bytes) != 0)
        return name;
    if (name[section_bytes] == '\0')
        return main_key;
    return name[section_bytes] == '-' ? name + section_bytes + 1 : name;
}

static bool is_in_section(enum option option, const char *section)
{
    return strcmp(option_section(option), section) == 0;
}

/* The option of a key (with - for _) in a section, else OPTION_COUNT_ALL. */
static enum option key_find(const char *section, const char *key)
{
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++)
        if (is_in_section(option, section) &&
            (strcmp(option_key(option), key) == 0 || strcmp(option_rows[option].name, key) == 0))
            return option;
    return OPTION_COUNT_ALL;
}

/* In the file - and _ are alike; messages have _. */
static void letters_exchange(char *name, char from, char to)
{
    for (; *name; name++)
        if (*name == from)
            *name = to;
}

static enum tarn_status unknown_section(const struct place *place, const struct yaml_node *node)
{
    const char *names[OPTION_COUNT_ALL + 1];
    char name[OPTION_NAME_BYTES_MAX];
    size_t count = 0;
    (void)snprintf(name, sizeof(name), "%s", node->key);
    letters_exchange(name, '_', '-');
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++)
        if (option_section(option)[0] && strcmp(option_rows[option].name, name) == 0)
            return refuse(place, node->line, "'%.40s' belongs in section %s", node->key,
                          option_section(option));
    names[count++] = model_section;
    for (size_t i = 0; i < option_line_count; i++)
        if (option_lines[i].title && option_lines[i].key[0])
            names[count++] = option_lines[i].key;
    const char *nearest = nearest_name(node->key, names, count);
    if (nearest)
        return refuse(place, node->line, "unknown section '%.40s'; did you mean %s?", node->key,
                      nearest);
    return refuse(place, node->line, "unknown section '%.40s'; see docs/configuration.md",
                  node->key);
}

/* `key` with - for _; `written` is how messages call it. */
static enum tarn_status unknown_key(const struct place *place, const char *key, const char *written,
                                    uint32_t line)
{
    const char *names[OPTION_COUNT_ALL + 1];
    char shown[OPTION_NAME_BYTES_MAX];
    size_t count = 0;
    names[count++] = main_key;
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        if (is_in_section(option, place->section))
            names[count++] = option_key(option);
        else if (option_section(option)[0] && strcmp(option_rows[option].name, key) == 0)
            return refuse(place, line, "'%.40s' belongs in section %s, not in %s", written,
                          option_section(option), place->section);
    }
    const char *nearest = nearest_name(key, names, count);
    if (!nearest)
        return refuse(place, line, "unknown key '%.40s' in section %s; see tarn serve --help",
                      written, place->section);
    (void)snprintf(shown, sizeof(shown), "%s", nearest);
    letters_exchange(shown, '-', '_');
    return refuse(place, line, "unknown key '%.40s' in section %s; did you mean %s?", written,
                  place->section, shown);
}

static enum tarn_status text_check(const struct place *place, const struct yaml_node *node,
                                   const char *key)
{
    for (const char *at = node->text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return refuse(place, node->line, "%s.%s has line breaks or control characters",
                          place->section, key);
    return TARN_OK;
}

/* A key's value as one text. */
static enum tarn_status text_take(const struct place *place, const struct yaml_node *node,
                                  const char *key, const char *takes)
{
    switch (node->kind) {
    case YAML_IS_TEXT:
        return text_check(place, node, key);
    case YAML_IS_EMPTY:
        return refuse(place, node->line, "%s.%s has no value; leave the key out for the default",
                      place->section, key);
    case YAML_IS_LIST:
        return refuse(place, node->line, "%s.%s is a list (it takes %s)", place->section, key,
                      takes);
    case YAML_IS_MAPPING:
        return refuse(place, node->line, "%s.%s is a mapping (it takes %s)", place->section, key,
                      takes);
    }
    return TARN_INVALID;
}

static enum tarn_status twice(const struct place *place, const struct yaml_node *node,
                              const char *key, uint32_t before)
{
    return refuse(place, node->line, "%s.%s is here twice; line %u has it, too", place->section,
                  key, before);
}

static enum tarn_status option_take(const struct place *place, const struct yaml_node *node,
                                    const char *key, enum option option)
{
    struct option_value *value = &place->options->values[option];
    char spelling[OPTION_ERROR_BYTES / 2];
    TRY(text_take(place, node, key, option_rows[option].argument));
    if (value->line > 0)
        return twice(place, node, key, value->line);
    (void)snprintf(spelling, sizeof(spelling), "%.300s:%u: %s.%s", place->path, node->line,
                   place->section, key);
    TRY(option_set(place->options, option, node->text, OPTION_FROM_FILE, spelling));
    value->line = node->line;
    return TARN_OK;
}

static enum tarn_status model_take(const struct place *place, const struct yaml_node *node)
{
    struct options *options = place->options;
    TRY(text_take(place, node, main_key, "FILE.gguf"));
    if (options->model_line > 0)
        return twice(place, node, main_key, options->model_line);
    if (node->text[0] == '\0')
        return refuse(place, node->line, "%s.%s is empty", place->section, main_key);
    options->model_line = node->line;
    if (options->model)
        return TARN_OK; /* an argument wins */
    options->model = node->text;
    options->model_source = OPTION_FROM_FILE;
    return TARN_OK;
}

/* Keys that begin with `name` and a dash may be written as a mapping below it. */
static bool has_keys_below(const char *section, const char *name)
{
    const size_t name_bytes = strlen(name);
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const char *key = option_key(option);
        if (is_in_section(option, section) && strncmp(key, name, name_bytes) == 0 &&
            key[name_bytes] == '-')
            return true;
    }
    return false;
}

/* A member's name, behind that of the key whose mapping it is in (`above`, with its dash, or "").
 */
static enum tarn_status name_join(const struct place *place, const char *above,
                                  const struct yaml_node *node,
                                  char out_name[OPTION_NAME_BYTES_MAX])
{
    if (snprintf(out_name, OPTION_NAME_BYTES_MAX, "%s%s", above, node->key) >=
        OPTION_NAME_BYTES_MAX)
        return unknown_key(place, node->key, node->key, node->line);
    letters_exchange(out_name, '_', '-');
    return TARN_OK;
}

static enum tarn_status name_take(const struct place *place, const struct yaml_node *node,
                                  const char *name)
{
    char key[OPTION_NAME_BYTES_MAX];
    const enum option option = key_find(place->section, name);
    (void)snprintf(key, sizeof(key), "%s", name);
    letters_exchange(key, '-', '_');
    if (option == OPTION_COUNT_ALL)
        return unknown_key(place, name, key, node->line);
    return option_take(place, node, key, option);
}

static enum tarn_status member_take(const struct place *place, const struct yaml_node *node)
{
    char name[OPTION_NAME_BYTES_MAX];
    char above[OPTION_NAME_BYTES_MAX + 1];
    TRY(name_join(place, "", node, name));
    if (strcmp(place->section, model_section) == 0 && strcmp(name, main_key) == 0)
        return model_take(place, node);
    if (node->kind != YAML_IS_MAPPING || !has_keys_below(place->section, name) ||
        key_find(place->section, name) == OPTION_COUNT_ALL)
        return name_take(place, node, name);
    (void)snprintf(above, sizeof(above), "%s-", name);
    for (const struct yaml_node *child = node->child; child; child = child->next) {
        TRY(name_join(place, above, child, name));
        TRY(name_take(place, child, name));
    }
    return TARN_OK;
}

static bool is_section(const char *key)
{
    for (size_t i = 0; i < option_line_count; i++)
        if (option_lines[i].title && key[0] && strcmp(option_lines[i].key, key) == 0)
            return true;
    return false;
}

static enum tarn_status section_take(struct place *place, const struct yaml_node *node)
{
    if (!is_section(node->key))
        return unknown_section(place, node);
    place->section = node->key;
    switch (node->kind) {
    case YAML_IS_EMPTY:
        return TARN_OK;
    case YAML_IS_MAPPING:
        for (const struct yaml_node *child = node->child; child; child = child->next)
            TRY(member_take(place, child));
        return TARN_OK;
    case YAML_IS_TEXT: { /* its main key's value alone */
        const enum option option = key_find(node->key, main_key);
        if (strcmp(node->key, model_section) == 0)
            return model_take(place, node);
        if (option != OPTION_COUNT_ALL)
            return option_take(place, node, main_key, option);
        break;
    }
    case YAML_IS_LIST:
        break;
    }
    return refuse(place, node->line, "section %s is not a mapping of keys to values", node->key);
}

enum tarn_status options_apply_file(struct options *options, const char *path, const char *chars,
                                    size_t length_bytes)
{
    struct place place = { .options = options, .path = path, .section = "" };
    struct yaml_fault fault;
    ASSERT(!options->file);
    const enum tarn_status status = yaml_read(chars, length_bytes, &options->file, &fault);
    if (status == TARN_INVALID)
        return refuse(&place, fault.line, "%s", fault.reason);
    if (status != TARN_OK)
        return refuse_memory(options);
    const struct yaml_node *root = yaml_root(options->file);
    if (!root || root->kind == YAML_IS_EMPTY)
        return TARN_OK;
    if (root->kind != YAML_IS_MAPPING)
        return refuse(&place, root->line,
                      "the file is not a mapping of sections (model, server, pool ...)");
    for (const struct yaml_node *node = root->child; node; node = node->next)
        TRY(section_take(&place, node));
    return TARN_OK;
}

enum tarn_status options_read_file(struct options *options, const char *path)
{
    char *chars = NULL;
    size_t length_bytes = 0;
    enum tarn_status status = file_load(path, YAML_BYTES_MAX, &chars, &length_bytes);
    if (status == TARN_NO_MEMORY)
        return refuse_memory(options);
    if (status != TARN_OK) {
        (void)snprintf(options->error, sizeof(options->error), "--config: %.300s: %s", path,
                       status == TARN_NO_SPACE ? "it is longer than 64 KiB"
                                               : strerrordesc_np(errno));
        return status;
    }
    status = options_apply_file(options, path, chars, length_bytes);
    mem_free(chars);
    return status;
}
