/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each gate, from an engine in C that knows tarn.h alone: an engine that does not trip it is taken,
 * one that does is refused, and the message has the option, its value, why, and what to set
 * instead. Twice: with the preset's table, and with that of a module, named on the command line.
 * Prints TAP.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tarn/tarn.h"

enum { LINES_BYTES = 4096 };

static int failed;
static int number;
static const char *how; /* the table came */
static const struct tarn_connector_ops *ops;
static char path[64];
static char lines[LINES_BYTES]; /* logged since */
static struct tarn_kv_format format;
static struct tarn_engine_desc engine;

static void ok(int good, const char *what)
{
    failed += !good;
    printf("%s %d - %s: %s\n", good ? "ok" : "not ok", ++number, how, what);
    if (!good)
        printf("# %s\n", lines);
}

static void line_keep(void *context, int level, const char *line)
{
    const size_t used = strlen(lines);
    (void)context;
    (void)level;
    snprintf(lines + used, sizeof(lines) - used, "%s | ", line);
}

/* An engine that no gate minds. */
static void engine_reset(void)
{
    memset(&format, 0, sizeof(format));
    format.size = sizeof(format);
    format.element_type = "f16";
    format.order = "kv,dim";
    format.layer_count = 1;
    memset(&engine, 0, sizeof(engine));
    engine.size = sizeof(engine);
    engine.name = "gates";
    engine.model_key = "gates-1";
    engine.format = &format;
    engine.flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK;
    lines[0] = '\0';
}

static enum tarn_status open_and_close(void)
{
    struct tarn_connector_options options = { 0 };
    struct tarn_connector *connector = NULL;
    options.size = sizeof(options);
    options.pool = path;
    options.pool_size_bytes = 64 << 20;
    const enum tarn_status status = ops->open(&options, &engine, &connector);
    if (status == TARN_OK && ops->close(connector, 1000) != TARN_OK)
        return TARN_AGAIN;
    return status;
}

static void taken(const char *what)
{
    ok(open_and_close() == TARN_OK, what);
    engine_reset();
}

static void refused(const char *what, const char *option, const char *why, const char *instead)
{
    const enum tarn_status status = open_and_close();
    ok(status == TARN_UNSUPPORTED && strstr(lines, "refused for gates: ") &&
           strstr(lines, option) && strstr(lines, why) && strstr(lines, instead),
       what);
    engine_reset();
}

static void engines(void)
{
    engine_reset();
    taken("an engine without peculiarities is taken");
    engine.flags |= TARN_ENGINE_PREEMPTS | TARN_ENGINE_QUIESCES | TARN_ENGINE_CAN_REWIND;
    engine.context_parallel_size = engine.pipeline_parallel_size = engine.beam_width_max = 1;
    engine.lower_tier = engine.partial_reuse = TARN_SETTING_OFF;
    taken("an engine that says no to everything, and preempts with quiesce(), is taken");
    format.window_tokens = 512;
    refused("sliding window", "window_tokens (sliding-window attention) is 512",
            "depends on the reader's position", "use a model without");
    engine.context_parallel_size = 2;
    refused("context parallelism", "context_parallel_size is 2", "slice of a sequence",
            "set it to 1");
    engine.pipeline_parallel_size = 3;
    refused("pipeline parallelism", "pipeline_parallel_size is 3", "not tested", "set it to 1");
    engine.flags |= TARN_ENGINE_ATTENTION_DP;
    refused("attention data parallelism",
            "attention data parallelism (TARN_ENGINE_ATTENTION_DP) is on",
            "each owner schedules by itself", "turn attention data parallelism off");
    engine.flags |= TARN_ENGINE_RECURRENT;
    refused("recurrent state", "recurrent state (TARN_ENGINE_RECURRENT) is on", "not in the pages",
            "use a model of attention layers only");
    engine.flags |= TARN_ENGINE_STATE_OUTSIDE;
    refused("index-V outside the pages",
            "state outside the pages (TARN_ENGINE_STATE_OUTSIDE) is on", "would meet stale state",
            "keep that state in registered pages");
    engine.flags |= TARN_ENGINE_DRAFT_IN_PAGES;
    refused("draft layers inside pages", "draft layers in pages (TARN_ENGINE_DRAFT_IN_PAGES) is on",
            "not tested", "turn speculative decoding off");
    engine.beam_width_max = 4;
    refused("beam width", "beam_width_max is 4", "beams share pages and rewrite them",
            "set it to 1");
    engine.flags &= ~(uint32_t)TARN_ENGINE_BLOCK_REUSE;
    refused("block reuse off", "block reuse (TARN_ENGINE_BLOCK_REUSE) is off", "cannot resume",
            "turn block reuse on");
    engine.lower_tier = TARN_SETTING_ON;
    refused("a lower tier beside a named pool", "lower_tier (a KV tier below the device) is on",
            "other addresses than were registered", "set either the pool or the tier, not both");
    engine.flags |= TARN_ENGINE_PREEMPTS;
    refused("preemption without quiesce()", "without TARN_ENGINE_QUIESCES is on",
            "reused under a transfer", "call quiesce() before pages are given up");
}

/* A window that only one layer group has shows when the layout is registered. */
static void layouts(void)
{
    static unsigned char memory[2 * 4096];
    struct tarn_connector_options options = { 0 };
    struct tarn_connector *connector = NULL;
    struct tarn_region region = { 0 };
    struct tarn_group group = { 0 };
    struct tarn_layout layout = { 0 };
    const uint32_t layer = 0;
    options.size = sizeof(options);
    options.pool = path;
    region.base = (uintptr_t)memory;
    region.size_bytes = region.stride_bytes = 4096;
    region.slot_count = 2;
    group.layers = &layer;
    group.layer_count = 1;
    group.regions = &region;
    group.region_count = 1;
    group.window_tokens = 128;
    layout.size = sizeof(layout);
    layout.tokens_per_block = 32;
    layout.groups = &group;
    layout.group_count = 1;
    engine_reset();
    if (ops->open(&options, &engine, &connector) != TARN_OK) {
        ok(0, "a connector for layouts");
        return;
    }
    ok(ops->register_layout(connector, &layout) == TARN_UNSUPPORTED &&
           strstr(lines, "window_tokens (sliding-window attention) is 128"),
       "a layer group with a window");
    group.window_tokens = 0;
    ok(ops->register_layout(connector, &layout) == TARN_OK, "and without it is taken");
    ok(ops->close(connector, 1000) == TARN_OK, "it closes");
}

static int line_count(const char *part)
{
    int count = 0;
    for (const char *at = lines; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* Before its page pools are built an engine asks what to turn off: the same for every table. */
static void settling(void)
{
    engine_reset();
    ok(tarn_engine_settle(&engine, 1) == TARN_OK && engine.lower_tier == TARN_SETTING_OFF &&
           engine.partial_reuse == TARN_SETTING_OFF && line_count("lower_tier is off") == 1 &&
           line_count("partial_reuse is off") == 1,
       "an unset tier and unset partial reuse are turned off, said once");
    lines[0] = '\0';
    ok(tarn_engine_settle(&engine, 1) == TARN_OK && lines[0] == '\0' && open_and_close() == TARN_OK,
       "what is off stays off and nothing is said; the engine is taken");
    engine_reset();
    engine.lower_tier = TARN_SETTING_OFF;
    engine.partial_reuse = TARN_SETTING_ON;
    ok(tarn_engine_settle(&engine, 0) == TARN_OK && engine.partial_reuse == TARN_SETTING_OFF &&
           line_count("partial_reuse is off") == 1 && line_count("lower_tier") == 0,
       "partial reuse that was asked for is turned off, said once");
    engine_reset();
    engine.lower_tier = TARN_SETTING_ON;
    ok(tarn_engine_settle(&engine, 1) == TARN_UNSUPPORTED && engine.lower_tier == TARN_SETTING_ON &&
           line_count("set either the pool or the tier, not both") == 1,
       "a tier that was asked for beside a pool that was named is refused");
    engine_reset();
    engine.lower_tier = TARN_SETTING_ON;
    ok(tarn_engine_settle(&engine, 0) == TARN_MISS && engine.lower_tier == TARN_SETTING_ON &&
           line_count("the default pool is off") == 1,
       "beside the default pool it stays, and the pool is off, said once");
    engine_reset();
    engine.size = 8;
    ok(tarn_engine_settle(&engine, 0) == TARN_INVALID, "a structure that lacks both is refused");
    engine_reset();
    engine.partial_reuse = TARN_SETTING_ON;
    ok(open_and_close() == TARN_OK && line_count("partial_reuse is on") == 1,
       "who leaves it on is told what the pool then declines");
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/tarn-gates-XXXXXX";
    tarn_connector_entry entry = NULL;
    void *module = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *address = module ? dlsym(module, "wrap_entry") : NULL;
    memcpy(&entry, &address, sizeof(entry));
    if (!entry || !mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/pool", folder);
    tarn_log_to(line_keep, NULL);
    for (int i = 0; i < 2; i++) {
        how = i ? "module" : "preset";
        ops = i ? entry(TARN_ABI_VERSION) : tarn_connector_ops(TARN_ABI_VERSION);
        engines();
        layouts();
        settling();
    }
    tarn_log_to(NULL, NULL);
    unlink(path);
    rmdir(folder);
    printf("1..%d\n", number);
    return failed != 0;
}
