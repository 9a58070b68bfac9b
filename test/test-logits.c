/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test-logits.c - replay is exact: what one process prefilled and saved through tarn.h, another
 * loads and continues, and its logits are those of a process without a pool, bit for bit, when all
 * three cut their prefill at the same tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "lib/random-model.h"

enum {
    T = 32,
    CHUNK = 3 * T,
    TAIL = 45, /* tokens behind the common prefix */
    TOKENS_MAX = 1200,
    PAGES = 4 * (TOKENS_MAX / T + 1), /* a quarter of them may be under a save at once */
    VOCAB_MAX = 512,
    ROWS_MAX = TAIL + T,
    REQUEST = 7,
};

/* What the parent and its children share. */
struct result {
    float logits[ROWS_MAX * VOCAB_MAX];
    uint32_t loaded_blocks;
};

struct job {
    enum engine_kv_type kv_type;
    uint32_t common; /* tokens that all processes share */
    uint32_t seed;
    uint32_t tail_seed;
    uint32_t threads;
    bool has_pool;
    struct result *result; /* NULL: nobody looks at the logits */
};

/* One process: an engine with its pages and, if it has a pool, a connector. */
struct process {
    const struct job *job;
    struct engine *engine;
    const struct engine_info *info;
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector;
    uint8_t *memory;
    void *pages[PAGES];
    int32_t tokens[TOKENS_MAX];
    uint32_t total;
    uint32_t cut; /* the full blocks of the common prefix */
    uint64_t step_number;
};

static char folder[64];
static char model_path[96];
static char pool_path[96];

/* In a child, where cmocka's assertions would run the rest of the tests. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "# line %d: %s\n", __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void tokens_fill(int32_t *tokens, uint32_t count, uint32_t seed)
{
    uint64_t state = seed;
    for (uint32_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        tokens[i] = (int32_t)((state >> 33) % VOCAB_MAX);
    }
}

static void connector_start(struct process *process)
{
    const struct tarn_kv_format format = engine_kv_format(process->engine);
    const struct tarn_connector_options options = { .size = sizeof(options),
                                                    .pool = pool_path,
                                                    .pool_size_bytes = UINT64_C(64) << 20 };
    const struct tarn_engine_desc desc = { .size = sizeof(desc),
                                           .name = "test-logits",
                                           .model_key = process->info->model_key,
                                           .format = &format,
                                           .flags =
                                               TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK };
    const struct tarn_span memory = { process->memory, PAGES * process->info->page_bytes };
    const struct tarn_region region = { .size_bytes = process->info->page_bytes,
                                        .stride_bytes = process->info->page_bytes };
    const struct tarn_group group = { .regions = &region, .region_count = 1 };
    const struct tarn_layout layout = { .size = sizeof(layout),
                                        .tokens_per_block = T,
                                        .page_form = TARN_PAGES_BY_ADDRESS,
                                        .groups = &group,
                                        .group_count = 1,
                                        .memory = &memory,
                                        .memory_count = 1 };
    process->ops = tarn_connector_ops(TARN_ABI_VERSION);
    CHECK(process->ops->open(&options, &desc, &process->connector) == TARN_OK);
    CHECK(process->ops->register_layout(process->connector, &layout) == TARN_OK);
}

static void process_start(struct process *process, const struct job *job)
{
    const struct engine_options options = {
        .model_path = model_path,
        .backend_dir = getenv("TARN_BACKEND_DIR"), /* NOLINT(concurrency-mt-unsafe) */
        .page_tokens = T,
        .batch_tokens_max = CHUNK,
        .sequences_max = 1,
        .threads = job->threads,
        .kv_type = job->kv_type,
    };
    CHECK(engine_open(&options, &process->engine) == TARN_OK);
    process->info = engine_info_of(process->engine);
    CHECK(process->info->vocab_count <= VOCAB_MAX);
    process->memory = mmap(NULL, PAGES * process->info->page_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(process->memory != MAP_FAILED);
    /* Another order of pages in each process: where a page lies must not matter. */
    for (uint32_t i = 0; i < PAGES; i++)
        process->pages[i] =
            process->memory + (i * (job->tail_seed * 2 + 1) % PAGES) * process->info->page_bytes;
    process->job = job;
    process->total = job->common + TAIL;
    process->cut = job->common / T * T;
    tokens_fill(process->tokens, job->common, job->seed);
    tokens_fill(process->tokens + job->common, TAIL, job->tail_seed);
    if (job->has_pool)
        connector_start(process);
}

static void step_begin(struct process *process, uint32_t computed, uint32_t scheduled, bool load)
{
    tarn_page addresses[PAGES];
    const tarn_page *const pages = addresses;
    for (uint32_t i = 0; i < PAGES; i++)
        addresses[i] = (tarn_page)(uintptr_t)process->pages[i];
    const struct tarn_step_request request = { .id = REQUEST,
                                               .pages = &pages,
                                               .block_count = (process->total + T - 1) / T,
                                               .computed_tokens = computed,
                                               .scheduled_tokens = scheduled,
                                               .load = load };
    const struct tarn_step step = { .size = sizeof(step),
                                    .number = ++process->step_number,
                                    .requests = &request,
                                    .request_count = 1 };
    struct tarn_bytes metadata;
    CHECK(process->ops->step(process->connector, &step, &metadata) == TARN_OK);
    CHECK(process->ops->load_start(process->connector, metadata) == TARN_OK);
}

static void step_end(struct process *process)
{
    CHECK(process->ops->forward_done(process->connector, process->step_number, TARN_OK, NULL) ==
          TARN_OK);
}

/* Take from the pool what it has; how many tokens that is. */
static uint32_t prefix_load(struct process *process)
{
    const struct tarn_request request = { .size = sizeof(request),
                                          .id = REQUEST,
                                          .tokens = process->tokens,
                                          .token_count = process->total };
    struct tarn_offer offer = { 0, 0 };
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded[1024];
    size_t count = 0;
    const enum tarn_status found = process->ops->lookup(process->connector, &request, 0, &offer);
    CHECK(found == TARN_OK || found == TARN_MISS);
    if (found == TARN_MISS)
        return 0;
    CHECK(offer.first_token == 0);
    step_begin(process, 0, 0, true);
    enum tarn_status status = TARN_AGAIN;
    for (uint32_t tries = 0; status == TARN_AGAIN && tries < 60; tries++)
        status = process->ops->load_poll(process->connector, 1000, &report);
    CHECK(status == TARN_OK);
    CHECK(process->ops->verdict(process->connector, &report, 1, &verdict) == TARN_OK);
    CHECK(process->ops->verdict_apply(process->connector, verdict, loaded, LENGTH_OF(loaded),
                                      &count) == TARN_OK);
    CHECK(count == 1 && loaded[0].id == REQUEST && loaded[0].first_block == 0);
    step_end(process);
    return (uint32_t)loaded[0].block_count * T;
}

/* Compute what is not there. Logits are wanted of all tokens behind the cut. */
static void rest_compute(struct process *process, uint32_t position)
{
    const size_t vocab_count = process->info->vocab_count;
    size_t row = 0;
    while (position < process->total) {
        uint32_t end = position + CHUNK < process->total ? position + CHUNK : process->total;
        if (position < process->cut && process->cut < end)
            end = process->cut;
        const struct engine_sequence sequence = { .tokens = process->tokens + position,
                                                  .token_count = end - position,
                                                  .position = position,
                                                  .pages = process->pages,
                                                  .page_count = (process->total + T - 1) / T,
                                                  .output_count = position < process->cut
                                                                      ? 0
                                                                      : end - position };
        if (process->connector)
            step_begin(process, position, end - position, false);
        CHECK(engine_forward(process->engine, &sequence, 1) == TARN_OK);
        if (process->connector)
            step_end(process);
        for (uint32_t i = 0; i < sequence.output_count && process->job->result; i++, row++)
            memcpy(process->job->result->logits + row * vocab_count,
                   engine_logits(process->engine, i), vocab_count * sizeof(float));
        position = end;
    }
}

/* The life of a child: load what the pool has, compute the rest, save it. */
static void process_run(const struct job *job)
{
    static struct process process;
    uint32_t position = 0;
    process_start(&process, job);
    if (process.connector) {
        position = prefix_load(&process);
        CHECK(position == 0 || position == process.cut);
    }
    if (job->result)
        job->result->loaded_blocks = position / T;
    rest_compute(&process, position);
    if (process.connector) {
        uint32_t pending;
        CHECK(process.ops->finished(process.connector, REQUEST, &pending) == TARN_OK);
        CHECK(process.ops->close(process.connector, 60000) == TARN_OK); /* saves first */
    }
    engine_close(process.engine);
}

static void run_in_child(const struct job *job)
{
    int status = -1;
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        process_run(job);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A writer, a reader and a cold process; the last two must agree to the bit. */
static void check_replay(struct job job, uint32_t reader_threads)
{
    struct result *results =
        mmap(NULL, 2 * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(results != MAP_FAILED);
    job.threads = 1;
    job.tail_seed = 1000;
    job.has_pool = true;
    run_in_child(&job);

    job.tail_seed = 2000;
    job.result = &results[0];
    job.threads = reader_threads;
    run_in_child(&job);
    assert_int_equal(results[0].loaded_blocks, job.common / T);

    job.has_pool = false;
    job.result = &results[1];
    job.threads = 1;
    run_in_child(&job);
    const float *logits = results[1].logits;
    bool is_blank = true;
    for (size_t i = 0; i < VOCAB_MAX; i++)
        is_blank = is_blank && logits[i] == 0.0F;
    assert_false(is_blank);
    assert_memory_equal(results[0].logits, logits, sizeof(results[0].logits));
    assert_int_equal(munmap(results, 2 * sizeof(*results)), 0);
}

static void check_lengths(enum engine_kv_type kv_type)
{
    static const uint32_t lengths[] = { T, T + 1, 3 * T - 1, 100, 500, 1000 };
    for (uint32_t i = 0; i < LENGTH_OF(lengths); i++)
        check_replay((struct job){ .kv_type = kv_type, .common = lengths[i], .seed = i + 1 }, 1);
}

static void replay_across_processes_is_exact_with_f16_pages(void **state)
{
    (void)state;
    check_lengths(ENGINE_KV_F16);
}

static void replay_across_processes_is_exact_with_f32_pages(void **state)
{
    (void)state;
    check_lengths(ENGINE_KV_F32);
}

static void replay_is_exact_with_another_number_of_threads(void **state)
{
    (void)state;
    check_replay((struct job){ .kv_type = ENGINE_KV_F16, .common = 300, .seed = 99 }, 2);
}

static int folder_make(void **state)
{
    (void)state;
    const struct random_model model = random_model_tiny();
    (void)snprintf(folder, sizeof(folder), "/dev/shm/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(model_path, sizeof(model_path), "%s/m.gguf", folder);
    (void)snprintf(pool_path, sizeof(pool_path), "%s/p.pool", folder);
    (void)setenv("XDG_CACHE_HOME", folder, 1); /* NOLINT(concurrency-mt-unsafe) */
    return random_model_write(&model, model_path) ? 0 : -1;
}

static int folder_remove(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_across_processes_is_exact_with_f16_pages),
        cmocka_unit_test(replay_across_processes_is_exact_with_f32_pages),
        cmocka_unit_test(replay_is_exact_with_another_number_of_threads),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
