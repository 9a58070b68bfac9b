/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/connector.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

/* What a preset fills in. `module` NULL: it is in this program. */
struct preset {
    const char *name;
    const char *module;
    const char *symbol;
};

static const struct preset presets[] = {
    { "tarn", NULL, "tarn_connector_ops" },
};

/* A table must have every member up to this one; which of them are offered is asked later. */
enum { TABLE_BYTES_MIN = offsetof(struct tarn_connector_ops, close) + sizeof(void (*)(void)) };

static enum tarn_status preset_find(const struct options *options, const struct preset **out_preset)
{
    const char *name = option_text(options, OPTION_CONNECTOR);
    for (size_t i = 0; i < LENGTH_OF(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *out_preset = &presets[i];
            return TARN_OK;
        }
    }
    CLEANUP(text_deinit)
    struct text known;
    text_init(&known, 1024);
    for (size_t i = 0; i < LENGTH_OF(presets); i++)
        TRY(text_append(&known, "%s%s", i ? ", " : "", presets[i].name));
    char place[OPTION_PLACE_BYTES];
    option_place(options, OPTION_CONNECTOR, place);
    log_error("%s: '%.100s' is no preset; there are: %s. Another connector is named by "
              "--connector-module and --connector-symbol",
              place, name, text_chars(&known));
    return TARN_INVALID;
}

/* Call the module's symbol. *out_table is the module's. */
static enum tarn_status module_load(const char *module, const char *symbol,
                                    const struct tarn_connector_ops **out_table)
{
    void *handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        log_error("connector: module %s cannot be loaded: %s", module,
                  dlerror()); /* NOLINT(concurrency-mt-unsafe): one a thread */
        return TARN_UNSUPPORTED;
    }
    tarn_connector_entry entry;
    void *address = dlsym(handle, symbol);
    if (!address) {
        log_error("connector: module %s has no symbol %s; set --connector-symbol to its function "
                  "that returns struct tarn_connector_ops",
                  module, symbol);
        return TARN_UNSUPPORTED;
    }
    memcpy(&entry, &address, sizeof(entry)); /* POSIX: a function's address is one of these */
    *out_table = entry(TARN_ABI_VERSION);
    if (*out_table)
        return TARN_OK;
    log_error("connector: %s() of module %s does not speak version %d of Tarn's ABI; use a module "
              "that was built for it",
              symbol, module, TARN_ABI_VERSION);
    return TARN_UNSUPPORTED;
}

static enum tarn_status table_copy(const char *module, const char *symbol,
                                   const struct tarn_connector_ops *table,
                                   struct tarn_connector_ops *out_table)
{
    const size_t size = table->size; /* its first member, there in every version */
    if (size < TABLE_BYTES_MIN) {
        log_error("connector: the table of %s() of module %s has %zu bytes, at least %d are "
                  "needed for version %d",
                  symbol, module, size, TABLE_BYTES_MIN, TARN_ABI_VERSION);
        return TARN_UNSUPPORTED;
    }
    struct tarn_connector_ops copy = { .size = 0 };
    memcpy(&copy, table, size < sizeof(copy) ? size : sizeof(copy));
    if (copy.abi_version != TARN_ABI_VERSION) {
        log_error("connector: the table of %s() of module %s is of version %u, this program "
                  "speaks version %d",
                  symbol, module, copy.abi_version, TARN_ABI_VERSION);
        return TARN_UNSUPPORTED;
    }
    if (!copy.name || !copy.open || !copy.register_layout || !copy.close) {
        log_error("connector: the table of %s() of module %s lacks %s", symbol, module,
                  !copy.name    ? "its name"
                  : !copy.open  ? "open()"
                  : !copy.close ? "close()"
                                : "register_layout()");
        return TARN_UNSUPPORTED;
    }
    *out_table = copy;
    return TARN_OK;
}

/* Options of a pool that go to every connector, in struct tarn_connector_options; the section's
 * others say where Tarn's own pool is. */
static bool is_for_every_connector(enum option option)
{
    static const enum option every[] = {
        OPTION_CONNECTOR,           OPTION_CONNECTOR_MODULE,   OPTION_CONNECTOR_SYMBOL,
        OPTION_MODEL_KEY,           OPTION_CACHE_PREFIX,       OPTION_ROLE,
        OPTION_LOOKUP_DEADLINE,     OPTION_LOAD_DEADLINE,      OPTION_LOAD_BYTES_PER_STEP,
        OPTION_LOAD_FAILURE,        OPTION_SAVE_GENERATED,     OPTION_VERIFY_TOKENS,
        OPTION_TRANSFER_BATCH_SIZE, OPTION_STAGE_THROUGH_HOST, OPTION_STAGING_BUFFER,
    };
    for (size_t i = 0; i < LENGTH_OF(every); i++)
        if (every[i] == option)
            return true;
    return false;
}

static enum tarn_status section_check(const struct options *options, const char *name)
{
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const bool is_given = options->values[option].source != OPTION_FROM_DEFAULT;
        if (!is_given || strcmp(option_section(option), "pool") != 0 ||
            is_for_every_connector(option))
            continue;
        char place[OPTION_PLACE_BYTES];
        option_place(options, option, place);
        log_error("%s: '%.100s' is for Tarn's own connector, and this one is '%s'; leave it out, "
                  "or use --connector tarn without a module",
                  place, option_text(options, option), name);
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

static enum tarn_status own_take(const char *symbol, const struct tarn_connector_ops *own,
                                 struct serve_connector *connector)
{
    if (strcmp(symbol, presets[0].symbol) != 0) {
        log_error("connector: this program itself has no connector %s; name the module that has "
                  "it with --connector-module",
                  symbol);
        return TARN_INVALID;
    }
    if (own)
        connector->table = *own;
    connector->is_there = own != NULL;
    connector->is_tarn = true;
    return TARN_OK;
}

static enum tarn_status module_take(const char *module, const char *symbol,
                                    const struct options *options,
                                    struct serve_connector *connector)
{
    const struct tarn_connector_ops *table = NULL;
    TRY(module_load(module, symbol, &table));
    TRY(table_copy(module, symbol, table, &connector->table));
    connector->is_there = true;
    connector->is_module = true;
    connector->is_tarn = strcmp(connector->table.name, presets[0].name) == 0;
    log_info("connector: %s, %s() of module %s%s", connector->table.name, symbol, module,
             connector->is_tarn ? ", which is Tarn's own" : "");
    return connector->is_tarn ? TARN_OK : section_check(options, connector->table.name);
}

enum tarn_status serve_connector_choose(const struct options *options,
                                        const struct tarn_connector_ops *own,
                                        struct serve_connector *out_connector)
{
    const struct preset *preset = NULL;
    TRY(preset_find(options, &preset));
    const char *pool = option_text(options, OPTION_POOL);
    const char *module = option_text(options, OPTION_CONNECTOR_MODULE);
    const char *symbol = option_text(options, OPTION_CONNECTOR_SYMBOL);
    if (module && !symbol && options->values[OPTION_CONNECTOR].source == OPTION_FROM_DEFAULT) {
        log_error("connector: which function of module %s? Name it with --connector-symbol",
                  module);
        return TARN_INVALID;
    }
    struct serve_connector connector = { .is_there = false };
    if (pool && strcmp(pool, "none") == 0) {
        *out_connector = connector;
        return TARN_OK;
    }
    module = module ? module : preset->module;
    symbol = symbol ? symbol : preset->symbol;
    TRY(module ? module_take(module, symbol, options, &connector)
               : own_take(symbol, own, &connector));
    *out_connector = connector;
    return TARN_OK;
}
