/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "codec/json.h"
#include "config/value.h"
#include "store/mooncake/address.h"

#define POOL_PREFIX         "mooncake"
#define SEGMENT_BYTES       UINT64_C(3355443200)
#define LOCAL_BUFFER_BYTES  (UINT64_C(1) << 30)
#define MASTER_TIMEOUT_MS   UINT64_C(60000)
#define DEADLINE_MS_DEFAULT 2000

/* ---- the keys ---- */

enum option_kind {
    KIND_TEXT,
    KIND_PATH,
    KIND_SIZE,
    KIND_TIME,
    KIND_COUNT,
    KIND_CHOICE,
    KIND_UNUSED
};

struct option_row {
    const char *key;
    enum option_kind kind;
    size_t offset;
    const char *choices; /* of a choice; the first is number `first` */
    uint32_t first;
};

#define OPTION(key, kind, member)                                                                  \
    {                                                                                              \
        key, kind, offsetof(struct mooncake_options, member), NULL, 0                              \
    }
#define CHOICE(key, member, choices, first)                                                        \
    {                                                                                              \
        key, KIND_CHOICE, offsetof(struct mooncake_options, member), choices, first                \
    }
#define UNUSED(key)                                                                                \
    {                                                                                              \
        key, KIND_UNUSED, 0, NULL, 0                                                               \
    }

static const struct option_row rows[] = {
    OPTION("master_server_address", KIND_TEXT, master_server_address),
    OPTION("metadata_server", KIND_TEXT, metadata_server),
    OPTION("protocol", KIND_TEXT, protocol),
    OPTION("device_name", KIND_TEXT, device_name),
    OPTION("local_hostname", KIND_TEXT, local_hostname),
    OPTION("tenant_id", KIND_TEXT, tenant_id),
    OPTION("global_segment_size", KIND_SIZE, global_segment_bytes),
    OPTION("local_buffer_size", KIND_SIZE, local_buffer_bytes),
    OPTION("master_timeout", KIND_TIME, master_timeout_ms),
    OPTION("client_address", KIND_TEXT, client_address),
    OPTION("library", KIND_PATH, library),
    OPTION("wheel", KIND_PATH, wheel),
    OPTION("cache_prefix", KIND_TEXT, cache_prefix),
    OPTION("model_key", KIND_TEXT, model_key),
    OPTION("transfer_batch_size", KIND_COUNT, transfer_batch_size),
    OPTION("staging_buffer_bytes", KIND_SIZE, staging_buffer_bytes),
    CHOICE("client", client, "embedded|standalone", MOONCAKE_EMBEDDED),
    CHOICE("role", role, "both|producer|consumer", TARN_ROLE_BOTH + 1),
    CHOICE("stage_through_host", stage_through_host, "auto|off|on", TARN_SETTING_UNSET),
    /* Of Mooncake and vLLM, and without meaning here. */
    UNUSED("enable_ssd_offload"),
    UNUSED("ssd_offload_path"),
    UNUSED("enable_client_http_server"),
    UNUSED("client_http_port"),
    UNUSED("storage_root_dir"),
};

/* A file, and the option in it that is being read, for messages. */
struct place {
    const char *file;
    const char *key;
};

static enum tarn_status refuse(const struct place *place, const char *value, const char *reason)
{
    log_error("%s: %s: '%.200s' %s", place->file, place->key, value, reason);
    return TARN_INVALID;
}

static enum tarn_status refuse_kind(const struct place *place, const struct json *value,
                                    const char *wanted)
{
    log_error("%s: %s is %s, and should be %s", place->file, place->key,
              json_kind_name(json_kind_of(value)), wanted);
    return TARN_INVALID;
}

static void *member_of(struct mooncake_options *options, const struct option_row *row)
{
    return (unsigned char *)options + row->offset;
}

static enum tarn_status text_read(const struct place *place, const struct json *value,
                                  size_t bytes_max, char *out_text)
{
    const char *text = json_text(value);
    if (!text)
        return refuse_kind(place, value, "a text");
    if (json_text_bytes(value) > bytes_max)
        return refuse(place, text, "is too long");
    memcpy(out_text, text, json_text_bytes(value) + 1);
    return TARN_OK;
}

static enum tarn_status number_read(const struct place *place, const struct json *value,
                                    enum option_kind kind, uint64_t *out_number)
{
    struct value_reason reason = { "" };
    if (json_kind_of(value) == JSON_IS_INTEGER) {
        if (json_int(value) < 0)
            return refuse(place, "a number below zero", "is not allowed");
        *out_number = (uint64_t)json_int(value);
        return TARN_OK;
    }
    const char *text = json_text(value);
    if (!text || kind == KIND_COUNT)
        return refuse_kind(place, value,
                           kind == KIND_SIZE   ? "a number of bytes, or a text like \"4 GiB\""
                           : kind == KIND_TIME ? "a number of milliseconds, or a text like \"60s\""
                                               : "a whole number");
    const enum tarn_status status = kind == KIND_SIZE ? value_size(text, out_number, &reason)
                                                      : value_time(text, out_number, &reason);
    return status == TARN_OK ? TARN_OK : refuse(place, text, reason.chars);
}

static enum tarn_status choice_read(const struct place *place, const struct json *value,
                                    const struct option_row *row, uint32_t *out_choice)
{
    struct value_reason reason = { "" };
    uint64_t index = 0;
    const char *text = json_text(value);
    if (json_kind_of(value) == JSON_IS_BOOL && row->first == TARN_SETTING_UNSET)
        text = json_bool(value) ? "on" : "off";
    if (!text)
        return refuse_kind(place, value, row->choices);
    if (value_choice(text, row->choices, &index, &reason) != TARN_OK)
        return refuse(place, text, reason.chars);
    *out_choice = row->first + (uint32_t)index;
    return TARN_OK;
}

static enum tarn_status count_read(const struct place *place, const struct json *value,
                                   uint32_t *out_count)
{
    uint64_t number = 0;
    TRY(number_read(place, value, KIND_COUNT, &number));
    if (number == 0 || number > UINT32_MAX)
        return refuse(place, "this number", "is out of range");
    *out_count = (uint32_t)number;
    return TARN_OK;
}

static enum tarn_status option_read(const struct place *place, const struct json *value,
                                    const struct option_row *row, struct mooncake_options *options)
{
    void *member = member_of(options, row);
    if (json_kind_of(value) == JSON_IS_NULL)
        return TARN_OK;
    switch (row->kind) {
    case KIND_TEXT:
        return text_read(place, value, MOONCAKE_TEXT_BYTES_MAX, member);
    case KIND_PATH:
        return text_read(place, value, MOONCAKE_PATH_BYTES_MAX, member);
    case KIND_SIZE:
    case KIND_TIME:
        return number_read(place, value, row->kind, member);
    case KIND_COUNT:
        return count_read(place, value, member);
    case KIND_CHOICE:
        return choice_read(place, value, row, member);
    case KIND_UNUSED:
    default:
        return TARN_OK;
    }
}

/* ---- the file ---- */

/* A key that no row knows is likely a typing error, and its value without effect. */
static void unknown_warn(const char *name, const struct json *root)
{
    size_t known = 0;
    for (size_t i = 0; i < LENGTH_OF(rows); i++)
        known += json_member(root, rows[i].key) != NULL;
    for (size_t i = 0; known < json_count(root) && i < json_count(root); i++) {
        const char *key = json_key(root, i);
        bool is_known = false;
        for (size_t j = 0; j < LENGTH_OF(rows) && !is_known; j++)
            is_known = strcmp(rows[j].key, key) == 0;
        if (!is_known)
            log_warn("%s: the key '%.100s' is not known and has no effect", name, key);
    }
}

static enum tarn_status options_check(const char *name, const struct mooncake_options *options)
{
    struct address address;
    const char *master = options->master_server_address;
    if (!master[0]) {
        log_error("%s: master_server_address is missing: a pool needs a master, HOST:PORT", name);
        return TARN_INVALID;
    }
    if (address_parse(master, &address) != TARN_OK)
        log_warn(
            "%s: master_server_address: '%.200s' is no HOST:PORT or [V6]:PORT; it is passed on "
            "to the library as it is",
            name, master);
    if (options->local_buffer_bytes == 0) {
        log_error("%s: local_buffer_size is 0, which Mooncake refuses: leave it out", name);
        return TARN_INVALID;
    }
    if (options->client == MOONCAKE_STANDALONE &&
        address_parse(options->client_address, &address) != TARN_OK) {
        log_error("%s: client is standalone: client_address, HOST:PORT of the mooncake_client on "
                  "this host, is needed, and is '%.200s'",
                  name, options->client_address);
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status root_read(const char *name, const struct json *root,
                                  struct mooncake_options *options)
{
    if (json_kind_of(root) != JSON_IS_OBJECT) {
        log_error("%s: holds %s, and should hold an object", name,
                  json_kind_name(json_kind_of(root)));
        return TARN_INVALID;
    }
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        const struct json *value = json_member(root, rows[i].key);
        const struct place place = { name, rows[i].key };
        if (value)
            TRY(option_read(&place, value, &rows[i], options));
    }
    unknown_warn(name, root);
    if (strcmp(options->device_name, "auto") == 0 || strcmp(options->protocol, "tcp") == 0)
        options->device_name[0] = '\0';
    return options_check(name, options);
}

enum tarn_status mooncake_options_parse(const char *name, const char *text, size_t text_bytes,
                                        struct mooncake_options *out_options)
{
    char reason[JSON_REASON_BYTES];
    struct json *root = NULL;
    mooncake_options_init(out_options);
    const enum tarn_status parsed = json_parse(text, text_bytes, &root, reason);
    if (parsed == TARN_INVALID)
        log_error("%s: %s", name, reason);
    TRY(parsed);
    const enum tarn_status status = root_read(name, root, out_options);
    json_destroy(root);
    return status;
}

void mooncake_options_init(struct mooncake_options *options)
{
    *options = (struct mooncake_options){
        .metadata_server = "P2PHANDSHAKE",
        .protocol = "tcp",
        .global_segment_bytes = SEGMENT_BYTES,
        .local_buffer_bytes = LOCAL_BUFFER_BYTES,
        .master_timeout_ms = MASTER_TIMEOUT_MS,
        .deadline_ms = DEADLINE_MS_DEFAULT,
    };
}

static enum tarn_status file_read_whole(const char *path, char *out_text, size_t *out_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        log_error("cannot open %s: %s", path, strerrordesc_np(errno));
        return TARN_IO;
    }
    size_t length = 0;
    ssize_t count = 1;
    while (count > 0 && length <= MOONCAKE_FILE_BYTES_MAX) {
        count = read(fd, out_text + length, MOONCAKE_FILE_BYTES_MAX + 1 - length);
        length += count > 0 ? (size_t)count : 0;
    }
    if (count < 0)
        log_error("cannot read %s: %s", path, strerrordesc_np(errno));
    (void)close(fd);
    if (count < 0)
        return TARN_IO;
    if (length > MOONCAKE_FILE_BYTES_MAX) {
        log_error("%s is too large for a mooncake.json", path);
        return TARN_INVALID;
    }
    *out_bytes = length;
    return TARN_OK;
}

enum tarn_status mooncake_options_read_file(const char *path, struct mooncake_options *out_options)
{
    size_t length = 0;
    char *text = mem_alloc(MOONCAKE_FILE_BYTES_MAX + 2, 1);
    if (!text)
        return TARN_NO_MEMORY;
    enum tarn_status status = file_read_whole(path, text, &length);
    if (status == TARN_OK)
        status = mooncake_options_parse(path, text, length, out_options);
    mem_free(text);
    return status;
}

/* ---- a pool's text ---- */

bool mooncake_pool_is(const char *pool)
{
    const size_t length = strlen(POOL_PREFIX);
    return pool && strncmp(pool, POOL_PREFIX, length) == 0 &&
           (pool[length] == '\0' || pool[length] == ':');
}

static enum tarn_status inherited_take(struct mooncake_options *out_options)
{
    char path[MOONCAKE_PATH_BYTES_MAX + 1];
    const char *config = getenv("MOONCAKE_CONFIG_PATH"); /* NOLINT(concurrency-mt-unsafe) */
    const char *folder = getenv("TARN_RUN_DIR");         /* NOLINT(concurrency-mt-unsafe) */
    if (config && config[0])
        return mooncake_options_read_file(config, out_options);
    if (folder && folder[0] &&
        snprintf(path, sizeof(path), "%s/mooncake.json", folder) < (int)sizeof(path))
        return mooncake_options_read_file(path, out_options);
    log_error("the pool is `mooncake`, and nothing says which: set MOONCAKE_CONFIG_PATH to a "
              "mooncake.json, or TARN_RUN_DIR to a folder with one, or write "
              "mooncake://HOST:PORT");
    return TARN_INVALID;
}

static enum tarn_status master_take(const char *master, struct mooncake_options *out_options)
{
    mooncake_options_init(out_options);
    const int length =
        snprintf(out_options->master_server_address, MOONCAKE_TEXT_BYTES_MAX + 1, "%s", master);
    struct address address;
    if (length < 0 || length > MOONCAKE_TEXT_BYTES_MAX ||
        address_parse(master, &address) != TARN_OK) {
        log_error("the pool mooncake://%.200s names no master: write mooncake://HOST:PORT or "
                  "mooncake://[V6]:PORT",
                  master);
        return TARN_INVALID;
    }
    return TARN_OK;
}

enum tarn_status mooncake_options_read(const char *pool, struct mooncake_options *out_options)
{
    const char *rest = pool + strlen(POOL_PREFIX);
    ASSERT(mooncake_pool_is(pool));
    if (!rest[0])
        return inherited_take(out_options);
    if (strncmp(rest, "://", 3) == 0)
        return master_take(rest + 3, out_options);
    if (!rest[1]) {
        log_error(
            "the pool `mooncake:` names no file: write mooncake:PATH, or mooncake://HOST:PORT");
        return TARN_INVALID;
    }
    return mooncake_options_read_file(rest + 1, out_options);
}
