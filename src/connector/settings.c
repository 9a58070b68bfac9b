/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "connector/abi.h"
#include "connector/gate.h"
#include "connector/wire.h"
#include "layout/fingerprint.h"
#include "os/clock.h"

/* `value`, or the default for 0; above the limit it is refused. */
static enum tarn_status number_take(const char *name, uint32_t value, uint32_t fallback,
                                    uint32_t max, uint32_t *out_value)
{
    if (value > max) {
        log_error("%s is %" PRIu32 ", at most %" PRIu32 " is allowed", name, value, max);
        return TARN_INVALID;
    }
    *out_value = value ? value : fallback;
    return TARN_OK;
}

static enum tarn_status deadline_take(const char *name, uint32_t value_ms, uint32_t fallback_ms,
                                      uint64_t *out_ns)
{
    uint32_t ms;
    TRY(number_take(name, value_ms, fallback_ms, SETTINGS_DEADLINE_MS_MAX, &ms));
    *out_ns = ms * NS_PER_MS;
    return TARN_OK;
}

static enum tarn_status field_take(const char *name, const char *text, const char *fallback,
                                   char out_field[NAMESPACE_FIELD_BYTES_MAX + 1])
{
    if (!text || !text[0])
        text = fallback;
    const int length = snprintf(out_field, NAMESPACE_FIELD_BYTES_MAX + 1, "%s", text);
    if (length < 0 || length > NAMESPACE_FIELD_BYTES_MAX) {
        log_error("%s has more than %d bytes", name, NAMESPACE_FIELD_BYTES_MAX);
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status path_take(struct settings *settings, const char *path)
{
    if (!path)
        return TARN_OK;
    const size_t length = strnlen(path, SETTINGS_PATH_BYTES_MAX + 1);
    if (length == 0 || length > SETTINGS_PATH_BYTES_MAX) {
        log_error("pool is a path of %zu bytes, allowed is 1 to %d", length,
                  SETTINGS_PATH_BYTES_MAX);
        return TARN_INVALID;
    }
    settings->pool_path = mem_alloc(length + 1, 1);
    if (!settings->pool_path)
        return TARN_NO_MEMORY;
    memcpy(settings->pool_path, path, length);
    return TARN_OK;
}

static enum tarn_status choices_take(struct settings *settings,
                                     const struct tarn_connector_options *options)
{
    uint32_t ignored;
    TRY(number_take("role", options->role, TARN_ROLE_BOTH, TARN_ROLE_CONSUMER, &settings->role));
    TRY(number_take("load_failure", options->load_failure, 0, TARN_LOAD_FAIL, &ignored));
    TRY(number_take("save_generated", options->save_generated, 0, TARN_SETTING_ON, &ignored));
    TRY(number_take("verify_tokens", options->verify_tokens, 0, TARN_SETTING_ON, &ignored));
    TRY(number_take("stage_through_host", options->stage_through_host, 0, TARN_SETTING_ON,
                    &ignored));
    settings->stage = (enum tarn_setting)options->stage_through_host;
    settings->verify_tokens = options->verify_tokens == TARN_SETTING_ON;
    settings->save_generated = options->save_generated != TARN_SETTING_OFF;
    settings->fail_short = options->load_failure == TARN_LOAD_FAIL;
    return TARN_OK;
}

static enum tarn_status options_take(struct settings *settings,
                                     const struct tarn_connector_options *options)
{
    TRY(choices_take(settings, options));
    TRY(number_take("transfer_batch_size", options->transfer_batch_size, 64,
                    SETTINGS_BATCH_PAGES_MAX, &settings->batch_pages));
    TRY(number_take("save_queue_pages_max", options->save_queue_pages_max, 4096,
                    SETTINGS_QUEUE_PAGES_MAX, &settings->save_queue_pages_max));
    TRY(deadline_take("lookup_deadline_ms", options->lookup_deadline_ms, 100,
                      &settings->lookup_deadline_ns));
    TRY(deadline_take("load_deadline_ms", options->load_deadline_ms, 2000,
                      &settings->load_deadline_ns));
    TRY(field_take("cache_prefix", options->cache_prefix, "tarn", settings->cache_prefix));
    settings->load_bytes_per_step =
        options->load_bytes_per_step ? options->load_bytes_per_step : UINT64_C(1) << 30;
    settings->pinned_bytes_max = options->pinned_bytes_max;
    settings->staging_bytes =
        options->staging_buffer_bytes ? options->staging_buffer_bytes : UINT64_C(512) << 20;
    settings->pool_size_bytes = options->pool_size_bytes;
    return TARN_OK;
}

static enum tarn_status engine_take(struct settings *settings,
                                    const struct tarn_engine_desc *engine, bool pool_is_named)
{
    char reason[GATE_REASON_BYTES];
    struct tarn_kv_format format;
    struct tarn_engine_desc known = *engine;
    if (known.format) {
        TRY(abi_copy(&format, sizeof(format), known.format));
        known.format = &format;
    }
    const enum tarn_status gate = gate_check_engine(&known, pool_is_named, reason);
    if (gate != TARN_OK) {
        log_error("the pool is refused for %s: %s", known.name ? known.name : "this engine",
                  reason);
        return gate;
    }
    TRY(field_take("model_key", known.model_key, "", settings->model_key));
    if (fingerprint_of_format(&format, &settings->format_fingerprint) != TARN_OK) {
        log_error("format lacks its element type, order or number of layers, or has a number that "
                  "is none");
        return TARN_INVALID;
    }
    TRY(number_take("request_count_max", known.request_count_max, 1024, SETTINGS_REQUESTS_MAX,
                    &settings->request_count_max));
    TRY(number_take("request_tokens_max", known.request_tokens_max, 1 << 20, SETTINGS_TOKENS_MAX,
                    &settings->request_tokens_max));
    settings->rank = known.rank;
    settings->rank_count = known.world_size ? known.world_size : 1;
    settings->can_rewind = (known.flags & TARN_ENGINE_CAN_REWIND) != 0;
    return TARN_OK;
}

/* What is resolved rather than refused, said once. */
static void settings_say(struct settings *settings, const struct tarn_engine_desc *engine)
{
    if (engine->partial_reuse == TARN_SETTING_ON)
        log_warn("partial_reuse is on: after a match that ends inside a block the pool %s; turn it "
                 "off while a pool is attached (tarn_engine_settle())",
                 settings->can_rewind ? "is asked from the block's start" : "is not asked");
    if (!settings->fail_short && !(engine->flags & TARN_ENGINE_ROLLS_BACK)) {
        log_info("load_failure is `fail`: the engine cannot compute what a load failed to bring");
        settings->fail_short = true;
    }
}

/* Refuse at open what would not fit a key's text once the layout is known. */
static enum tarn_status names_judge(const struct settings *settings)
{
    const size_t prefix_bytes = namespace_field_bytes(settings->cache_prefix);
    const size_t model_bytes = namespace_field_bytes(settings->model_key);
    if (prefix_bytes + model_bytes <= NAMESPACE_NAMES_BYTES_MAX)
        return TARN_OK;
    log_error("cache_prefix takes %zu bytes of a key and model_key %zu ('/', '%%' and control "
              "bytes take 3 each): together at most %d are allowed; set a shorter one",
              prefix_bytes, model_bytes, NAMESPACE_NAMES_BYTES_MAX);
    return TARN_INVALID;
}

enum tarn_status settings_init(struct settings *settings,
                               const struct tarn_connector_options *options,
                               const struct tarn_engine_desc *engine)
{
    static const struct tarn_connector_options defaults = { .size = sizeof(defaults) };
    struct tarn_connector_options known_options;
    struct tarn_engine_desc known_engine;
    *settings = (struct settings){ .rank = 0 };
    TRY(abi_copy(&known_options, sizeof(known_options), options ? options : &defaults));
    TRY(abi_copy(&known_engine, sizeof(known_engine), engine));
    TRY(options_take(settings, &known_options));
    TRY(engine_take(settings, &known_engine, known_options.pool != NULL));
    TRY(names_judge(settings));
    settings_say(settings, &known_engine);
    return path_take(settings, known_options.pool);
}

void settings_deinit(struct settings *settings)
{
    mem_free(settings->pool_path);
    settings->pool_path = NULL;
}

uint32_t settings_extra_bytes(const struct settings *settings, const struct layout *layout)
{
    return settings->verify_tokens ? wire_extra_bytes(layout->tokens_per_block) : 0;
}

enum tarn_status settings_namespace(const struct settings *settings, const struct layout *layout,
                                    uint32_t rank, uint32_t group,
                                    char out_text[NAMESPACE_TEXT_BYTES_MAX + 1])
{
    struct key_namespace space = {
        .world = settings->rank_count,
        .rank = rank,
        .group = group,
        .tokens_per_block = layout->tokens_per_block,
        .page_bytes = layout->groups[group].page_bytes + settings_extra_bytes(settings, layout),
        .layout = layout->groups[group].fingerprint,
    };
    memcpy(space.prefix, settings->cache_prefix, sizeof(space.prefix));
    memcpy(space.model, settings->model_key, sizeof(space.model));
    return namespace_print(&space, out_text);
}
