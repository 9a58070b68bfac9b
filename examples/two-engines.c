/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two-engines.c - what one engine computed, another in a second process loads. tarn.h is all it
 * knows, libtarn.so all it links:
 *
 *     cc -Iinclude examples/two-engines.c -Lbuild -ltarn -Wl,-rpath,$PWD/build -o two-engines
 *     ./two-engines
 *
 * The "engine" keeps the keys and values of a block in one slot of strided memory; computing a
 * block writes bytes that depend on every token up to its end, as attention does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tarn/tarn.h"

enum { T = 16, SLOTS = 160, BLOCKS = 32, TOKENS = T * BLOCKS + 5, KEY = 3000, VALUE = 1000 };
enum { STRIDE = 4096 }; /* of a slot: its key, then its value, then a hole */
/* A page under a save is pinned, and at most a quarter of all pages may be: more slots than blocks.
 */

struct engine {
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector;
    unsigned char memory[SLOTS * STRIDE];
    int32_t tokens[TOKENS];
    unsigned busy; /* transfers of our pages under way */
};

static void check(enum tarn_status status, const char *what)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, tarn_strerror(status));
    exit(1);
}

/* "Attention": the bytes of block b, from tokens [0, (b + 1) * T). */
static void compute(const struct engine *engine, size_t block, unsigned char *slot)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < (block + 1) * T; i++)
        hash = (hash ^ (uint32_t)engine->tokens[i]) * 16777619u;
    for (size_t i = 0; i < KEY + VALUE; i++)
        slot[i] = (unsigned char)((hash ^= hash << 5 ^ (uint32_t)i) >> 7);
}

/* Open a connector on the pool at `path`, and tell it where our pages are. */
static void engine_start(struct engine *engine, const char *path)
{
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "f16", .order = "kv,token,dim", .layer_count = 1
    };
    const struct tarn_connector_options options = { .size = sizeof(options),
                                                    .pool = path,
                                                    .pool_size_bytes = 64 << 20 };
    const struct tarn_engine_desc desc = { .size = sizeof(desc),
                                           .name = "two-engines",
                                           .model_key = "example-1",
                                           .format = &format,
                                           .flags =
                                               TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK };
    const uint64_t base = (uintptr_t)engine->memory;
    const struct tarn_region regions[] = {
        { .base = base, .size_bytes = KEY, .stride_bytes = STRIDE, .slot_count = SLOTS },
        { .base = base + KEY, .size_bytes = VALUE, .stride_bytes = STRIDE, .slot_count = SLOTS },
    };
    const uint32_t layers[] = { 0 };
    const struct tarn_group group = {
        .layers = layers, .layer_count = 1, .regions = regions, .region_count = 2
    };
    const struct tarn_layout layout = {
        .size = sizeof(layout), .tokens_per_block = T, .groups = &group, .group_count = 1
    };
    engine->ops = tarn_connector_ops(TARN_ABI_VERSION);
    check(engine->ops->open(&options, &desc, &engine->connector), "open");
    check(engine->ops->register_layout(engine->connector, &layout), "register_layout");
}

/* One step of our one request: tokens [0, computed) are there, [computed, TOKENS) run now unless
 * the offer is loaded. Block b lies in slot b. */
static void engine_step(struct engine *engine, uint64_t number, uint64_t computed, int load)
{
    tarn_page slots[BLOCKS + 1];
    const tarn_page *const pages = slots;
    for (size_t i = 0; i <= BLOCKS; i++)
        slots[i] = i;
    const struct tarn_step_request request = { .id = 1,
                                               .pages = &pages,
                                               .block_count = BLOCKS + 1,
                                               .computed_tokens = computed,
                                               .scheduled_tokens = load ? 0 : TOKENS - computed,
                                               .load = (uint32_t)load };
    const struct tarn_step step = {
        .size = sizeof(step), .number = number, .requests = &request, .request_count = 1
    };
    struct tarn_bytes metadata;
    check(engine->ops->step(engine->connector, &step, &metadata), "step");
    check(engine->ops->load_start(engine->connector, metadata), "load_start");
}

/* Wait for the load; what it brought is the verdict's to say. */
static uint64_t engine_load(struct engine *engine)
{
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded[1024];
    size_t count;
    enum tarn_status status;
    do
        status = engine->ops->load_poll(engine->connector, 1000, &report);
    while (status == TARN_AGAIN);
    check(status, "load_poll");
    check(engine->ops->verdict(engine->connector, &report, 1, &verdict), "verdict");
    check(engine->ops->verdict_apply(engine->connector, verdict, loaded, 1024, &count),
          "verdict_apply");
    return count ? loaded[0].block_count : 0;
}

/* Follow the transfers of our pages. A real engine frees no page that is under one. */
static void engine_watch(struct engine *engine)
{
    struct tarn_transfer transfers[64];
    size_t count;
    do {
        check(engine->ops->transfers(engine->connector, transfers, 64, &count), "transfers");
        for (size_t i = 0; i < count; i++)
            engine->busy += transfers[i].phase == TARN_TRANSFER_STARTED ? 1u : ~0u;
    } while (count || engine->busy);
}

/* The life of one engine with one prompt. */
static int engine_run(const char *path)
{
    static struct engine engine;
    unsigned char expected[KEY + VALUE];
    struct tarn_offer offer = { 0, 0 };
    uint64_t number = 0;
    uint64_t loaded = 0;
    uint32_t pending;
    for (size_t i = 0; i < TOKENS; i++)
        engine.tokens[i] = (int32_t)(i * i % 1000);
    engine_start(&engine, path);
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = engine.tokens, .token_count = TOKENS
    };
    if (engine.ops->lookup(engine.connector, &request, 0, &offer) == TARN_OK) {
        engine_step(&engine, ++number, 0, 1);
        loaded = engine_load(&engine);
        check(engine.ops->forward_done(engine.connector, number, TARN_OK, NULL), "forward_done");
    }
    engine_step(&engine, ++number, loaded * T, 0);
    for (size_t block = loaded; block < BLOCKS; block++)
        compute(&engine, block, engine.memory + block * STRIDE);
    check(engine.ops->forward_done(engine.connector, number, TARN_OK, NULL), "forward_done");
    engine_watch(&engine);
    check(engine.ops->finished(engine.connector, 1, &pending), "finished");
    int wrong = 0;
    for (size_t block = 0; block < BLOCKS; block++) {
        compute(&engine, block, expected);
        wrong += memcmp(expected, engine.memory + block * STRIDE, sizeof(expected)) != 0;
    }
    check(engine.ops->close(engine.connector, 10000), "close");
    printf("process %d: %2d blocks from the pool, %2d computed, %d wrong\n", (int)getpid(),
           (int)loaded, BLOCKS - (int)loaded, wrong);
    return wrong ? 1 : (int)loaded == 0 ? 10 : (int)loaded == BLOCKS ? 11 : 1;
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/two-engines-XXXXXX";
    char path[64];
    int results[2] = { 0, 0 };
    if (argc == 2)
        return engine_run(argv[1]);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/pool", folder);
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", argv[0], path, (char *)NULL);
            _exit(1);
        }
        waitpid(child, &results[i], 0);
    }
    unlink(path);
    rmdir(folder);
    const int good = WEXITSTATUS(results[0]) == 10 && WEXITSTATUS(results[1]) == 11;
    puts(good ? "the second engine computed nothing" : "FAILED");
    return !good;
}
