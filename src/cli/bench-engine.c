/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cli/bench-report.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "codec/json.h"
#include "config/value.h"
#include "engine/engine.h"
#include "engine/llama-reference.h"
#include "os/clock.h"

enum {
    BATCH_TOKENS = 512,
    DEPTH_MAX = 4096,
    STEPS = 32, /* of one decode run */
    QUIET_MS = 400,
    PAGE_ALIGNMENT = 64,
    SEQUENCES = 8,
    RUNS_DEFAULT = 5,
    RUNS_MAX = 99,
    THREADS_MAX = 512,
    CTX_TOKENS = DEPTH_MAX + STEPS,
    REPORT_BYTES_MAX = 1 << 16,
};

/* The rows, and what share of libllama's speed each must reach. */
struct row {
    uint32_t depth;     /* tokens of the prompt, or before the first decoded one */
    uint32_t sequences; /* 0: prefill */
    double bar;
};

static const struct row rows[] = {
    { 512, 0, 0.95 },  { 2048, 0, 0.95 }, { 4096, 0, 0.95 }, { 512, 1, 0.95 },  { 512, 8, 0.95 },
    { 2048, 1, 1.10 }, { 2048, 8, 1.10 }, { 4096, 1, 0.95 }, { 4096, 8, 0.95 },
};
enum { PREFILL_ROWS = 3 };

enum side { SIDE_TARN, SIDE_LIBLLAMA, SIDE_COUNT };

struct result {
    double rate[SIDE_COUNT]; /* tokens a second, the median */
    double fastest[SIDE_COUNT];
    double ratio; /* of the medians */
};

struct bench {
    const char *model_path;
    const char *json_path;
    uint32_t threads;
    uint32_t runs;
    enum engine_kv_type kv_type;
    bool check;
    bool poll;
    bool weight_copy;
    bool help;
    struct engine *engine;
    struct reference *reference;
    void *page_memory;
    void **pages;        /* [sequence][page], aligned as the engine wants them */
    uint32_t page_count; /* of one sequence */
    int32_t *tokens;
    struct result results[LENGTH_OF(rows)];
};

/* ---- one step on either side ---- */

static enum tarn_status step(struct bench *bench, enum side side, uint32_t sequence_count,
                             uint32_t position, uint32_t token_count)
{
    struct engine_sequence ours[SEQUENCES];
    struct reference_sequence theirs[SEQUENCES];

    for (uint32_t i = 0; i < sequence_count; i++) {
        ours[i] = (struct engine_sequence){ .tokens = bench->tokens + position,
                                            .token_count = token_count,
                                            .position = position,
                                            .pages = bench->pages + (size_t)i * bench->page_count,
                                            .page_count = bench->page_count,
                                            .output_count = 1 };
        theirs[i] = (struct reference_sequence){ .id = i,
                                                 .tokens = bench->tokens + position,
                                                 .token_count = token_count,
                                                 .position = position,
                                                 .output_count = 1 };
    }
    if (side == SIDE_TARN)
        return engine_forward(bench->engine, ours, sequence_count);
    return reference_forward(bench->reference, theirs, sequence_count);
}

/* One chunk after the other into sequence 0. */
static enum tarn_status prefill(struct bench *bench, enum side side, uint32_t token_count)
{
    for (uint32_t first = 0; first < token_count; first += BATCH_TOKENS)
        TRY(step(bench, side, 1, first, BATCH_TOKENS));
    return TARN_OK;
}

static enum tarn_status decode(struct bench *bench, enum side side, const struct row *row)
{
    for (uint32_t i = 0; i < STEPS; i++)
        TRY(step(bench, side, row->sequences, row->depth + i, 1));
    return TARN_OK;
}

/* ---- measuring ---- */

static enum tarn_status measure(struct bench *bench, enum side side, const struct row *row,
                                double *out_rate)
{
    /* The other side's threads spin for a while after its run: not during this one. */
    const struct timespec quiet = { .tv_nsec = (long)(QUIET_MS * NS_PER_MS) };
    (void)nanosleep(&quiet, NULL);
    const uint64_t start_ns = clock_now_ns();
    if (row->sequences == 0)
        TRY(prefill(bench, side, row->depth));
    else
        TRY(decode(bench, side, row));
    const double seconds = (double)(clock_now_ns() - start_ns) / (double)NS_PER_S;
    *out_rate = (row->sequences == 0 ? row->depth : STEPS * row->sequences) / seconds;
    return TARN_OK;
}

/* The sides take turns, so that whatever else the machine does falls on both. */
static enum tarn_status row_measure(struct bench *bench, size_t index)
{
    double rates[SIDE_COUNT][RUNS_MAX];
    struct result *result = &bench->results[index];

    if (rows[index].sequences > 0) {
        double ignored = 0; /* the first step of a shape builds its graph */
        TRY(measure(bench, SIDE_TARN, &rows[index], &ignored));
        TRY(measure(bench, SIDE_LIBLLAMA, &rows[index], &ignored));
    }
    for (uint32_t run = 0; run < bench->runs; run++) {
        for (int side = 0; side < SIDE_COUNT; side++)
            TRY(measure(bench, (enum side)side, &rows[index], &rates[side][run]));
    }
    for (int side = 0; side < SIDE_COUNT; side++) {
        result->rate[side] = bench_quantile(rates[side], bench->runs, 0.5);
        result->fastest[side] = bench_quantile(rates[side], bench->runs, 1);
    }
    result->ratio = result->rate[SIDE_TARN] / result->rate[SIDE_LIBLLAMA];
    return TARN_OK;
}

/* Both sides hold DEPTH_MAX tokens in sequence 0; give the others the same. */
static void sequences_copy(struct bench *bench)
{
    const size_t page_bytes = (size_t)engine_info_of(bench->engine)->page_bytes;
    for (uint32_t i = 1; i < SEQUENCES; i++) {
        for (uint32_t page = 0; page < bench->page_count; page++)
            memcpy(bench->pages[(size_t)i * bench->page_count + page], bench->pages[page],
                   page_bytes);
        reference_copy(bench->reference, 0, i);
    }
}

static void row_name(const struct row *row, char *name, size_t name_bytes)
{
    if (row->sequences == 0)
        (void)snprintf(name, name_bytes, "prefill %u", row->depth);
    else
        (void)snprintf(name, name_bytes, "decode at %u, %u sequence%s", row->depth, row->sequences,
                       row->sequences == 1 ? "" : "s");
}

static enum tarn_status row_run(struct bench *bench, size_t index)
{
    char name[64];
    row_name(&rows[index], name, sizeof(name));
    log_info("bench engine: %s", name);
    return row_measure(bench, index);
}

/* After the last prefill sequence 0 is at its longest. Decoding at a depth makes libllama forget
 * what lies deeper, so the deepest comes first. */
static enum tarn_status rows_measure(struct bench *bench)
{
    TRY(prefill(bench, SIDE_TARN, BATCH_TOKENS)); /* reads the weights in */
    TRY(prefill(bench, SIDE_LIBLLAMA, BATCH_TOKENS));
    for (size_t i = 0; i < PREFILL_ROWS; i++)
        TRY(row_run(bench, i));
    sequences_copy(bench);
    for (size_t i = LENGTH_OF(rows); i > PREFILL_ROWS; i--)
        TRY(row_run(bench, i - 1));
    return TARN_OK;
}

/* ---- set-up ---- */

static enum tarn_status pages_create(struct bench *bench)
{
    const struct engine_info *info = engine_info_of(bench->engine);
    bench->page_count = (CTX_TOKENS + info->page_tokens - 1) / info->page_tokens;
    bench->pages = mem_alloc((size_t)SEQUENCES * bench->page_count, sizeof(*bench->pages));
    bench->tokens = mem_alloc(CTX_TOKENS, sizeof(*bench->tokens));
    if (!bench->pages || !bench->tokens)
        return TARN_NO_MEMORY;
    const size_t page_bytes = (size_t)info->page_bytes;
    bench->page_memory = mem_alloc((size_t)SEQUENCES * bench->page_count + 1, page_bytes);
    if (!bench->page_memory)
        return TARN_NO_MEMORY;
    uint8_t *next = bench->page_memory;
    next += -(uintptr_t)next % PAGE_ALIGNMENT;
    for (uint32_t i = 0; i < SEQUENCES * bench->page_count; i++, next += page_bytes)
        bench->pages[i] = next;
    for (uint32_t i = 0; i < CTX_TOKENS; i++)
        bench->tokens[i] = (int32_t)(((uint64_t)i * 2654435761U) % info->vocab_count);
    return TARN_OK;
}

static enum tarn_status bench_start(struct bench *bench)
{
    struct engine_options options = { .model_path = bench->model_path,
                                      .ctx_tokens = CTX_TOKENS,
                                      .batch_tokens_max = BATCH_TOKENS,
                                      .sequences_max = SEQUENCES,
                                      .threads = bench->threads,
                                      .kv_type = bench->kv_type,
                                      .poll = bench->poll,
                                      .weight_copy = bench->weight_copy };
    TRY(engine_open(&options, &bench->engine));
    if (bench->threads == 0) { /* both sides get that number, and exactly that */
        bench->threads = engine_info_of(bench->engine)->threads;
        options.threads = bench->threads;
        engine_close(TAKE(bench->engine));
        TRY(engine_open(&options, &bench->engine));
    }
    const struct reference_options theirs = { .model_path = bench->model_path,
                                              .ctx_tokens = CTX_TOKENS,
                                              .sequences_max = SEQUENCES,
                                              .batch_tokens_max = BATCH_TOKENS,
                                              .threads = bench->threads,
                                              .kv_type = bench->kv_type,
                                              .flash_attention = true };
    TRY(reference_open(&theirs, &bench->reference));
    return pages_create(bench);
}

static void bench_stop(struct bench *bench)
{
    mem_free(bench->page_memory);
    mem_free(bench->pages);
    mem_free(bench->tokens);
    reference_close(bench->reference);
    engine_close(bench->engine);
}

/* ---- reports ---- */

static enum tarn_status table_print(const struct bench *bench, struct text *out)
{
    const struct engine_info *info = engine_info_of(bench->engine);
    char name[64];
    TRY(text_append(
        out,
        "%s, %s, %.1f M parameters; %s\n"
        "%u thread%s, KV %s, batches of %d tokens%s, medians of %u run%s that take turns\n\n"
        "%-28s %12s %12s %8s %6s\n",
        info->name, info->weights, (double)info->parameter_count / 1e6, info->cpu, bench->threads,
        text_plural(bench->threads), bench->kv_type == ENGINE_KV_F16 ? "f16" : "f32", BATCH_TOKENS,
        info->copy_bytes ? " on f16 copies of the weights" : "", bench->runs,
        text_plural(bench->runs), "tokens a second", "tarn", "libllama", "ratio", "bar"));
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        const struct result *result = &bench->results[i];
        row_name(&rows[i], name, sizeof(name));
        TRY(text_append(out, "%-28s %12.1f %12.1f %8.2f %6.2f%s\n", name, result->rate[SIDE_TARN],
                        result->rate[SIDE_LIBLLAMA], result->ratio, rows[i].bar,
                        result->ratio < rows[i].bar ? "  misses" : ""));
    }
    return TARN_OK;
}

static struct json *row_json(struct json_builder *builder, const struct bench *bench, size_t index)
{
    const struct result *result = &bench->results[index];
    struct json *row = json_new_object(builder);
    char name[64];
    row_name(&rows[index], name, sizeof(name));
    json_put(builder, row, "row", json_new_string(builder, name));
    json_put(builder, row, "tarn_tokens_per_s", json_new_real(builder, result->rate[SIDE_TARN]));
    json_put(builder, row, "libllama_tokens_per_s",
             json_new_real(builder, result->rate[SIDE_LIBLLAMA]));
    json_put(builder, row, "tarn_fastest_tokens_per_s",
             json_new_real(builder, result->fastest[SIDE_TARN]));
    json_put(builder, row, "libllama_fastest_tokens_per_s",
             json_new_real(builder, result->fastest[SIDE_LIBLLAMA]));
    json_put(builder, row, "ratio", json_new_real(builder, result->ratio));
    json_put(builder, row, "bar", json_new_real(builder, rows[index].bar));
    return row;
}

static enum tarn_status json_make(const struct bench *bench, struct text *out)
{
    const struct engine_info *info = engine_info_of(bench->engine);
    struct json_builder builder = { 0 };
    struct json *root = json_new_object(&builder);
    struct json *list = json_new_array(&builder);

    json_put(&builder, root, "bench", json_new_string(&builder, "engine"));
    json_put(&builder, root, "model", json_new_string(&builder, info->model_key));
    json_put(&builder, root, "weights", json_new_string(&builder, info->weights));
    json_put(&builder, root, "cpu", json_new_string(&builder, info->cpu));
    json_put(&builder, root, "threads", json_new_integer(&builder, bench->threads));
    json_put(&builder, root, "kv_type",
             json_new_string(&builder, bench->kv_type == ENGINE_KV_F16 ? "f16" : "f32"));
    json_put(&builder, root, "weight_copy_bytes",
             json_new_integer(&builder, (int64_t)info->copy_bytes));
    json_put(&builder, root, "runs", json_new_integer(&builder, bench->runs));
    for (size_t i = 0; i < LENGTH_OF(rows); i++)
        json_push(&builder, list, row_json(&builder, bench, i));
    json_put(&builder, root, "rows", list);
    const enum tarn_status status = json_print(&builder, root, out);
    json_destroy(root);
    return status;
}

static enum tarn_status json_write(const struct bench *bench)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(json_make(bench, &text));
    return output_save(bench->json_path, &text);
}

static enum tarn_status report(const struct bench *bench)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(table_print(bench, &text));
    TRY(output_write(&text));
    return bench->json_path ? json_write(bench) : TARN_OK;
}

static bool all_reached(const struct bench *bench)
{
    bool reached = true;
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        char name[64];
        if (bench->results[i].ratio >= rows[i].bar)
            continue;
        row_name(&rows[i], name, sizeof(name));
        log_error("bench engine: %s: %.2f of libllama's speed, the bar is %.2f", name,
                  bench->results[i].ratio, rows[i].bar);
        reached = false;
    }
    return reached;
}

/* ---- the command ---- */

static const char usage[] =
    "usage: tarn bench engine --model FILE.gguf [options]\n\n"
    "  --model FILE     the model; default: $TARN_MODEL\n"
    "  --threads N      of both sides; default: cores, less one when there are more than two\n"
    "  --kv-type TYPE   f16 (default) or f32\n"
    "  --runs N         of each side and row, whose median counts; default 5\n"
    "  --poll           Tarn's idle threads spin, as libllama's do\n"
    "  --weight-copy    Tarn makes f16 copies of quantised weights for large batches\n"
    "  --json FILE      write the numbers there as well\n"
    "  --check          exit with 1 and name the rows that miss their bar\n";

static enum tarn_status kv_type_read(const char *text, enum engine_kv_type *out_type)
{
    struct value_reason reason;
    uint64_t type = 0;
    if (value_choice(text, "f16|f32", &type, &reason) != TARN_OK) {
        log_error("--kv-type: '%.100s' %s", text, reason.chars);
        return TARN_INVALID;
    }
    *out_type = type == 0 ? ENGINE_KV_F16 : ENGINE_KV_F32;
    return TARN_OK;
}

static enum tarn_status arguments_read(struct bench *bench, int argc, char **argv)
{
    const char *kv_type = "f16";
    const struct flag flags[] = {
        { .name = "model", .text = &bench->model_path },
        { .name = "threads", .count = &bench->threads, .count_max = THREADS_MAX },
        { .name = "kv-type", .text = &kv_type },
        { .name = "runs", .count = &bench->runs, .count_max = RUNS_MAX },
        { .name = "poll", .is_set = &bench->poll },
        { .name = "weight-copy", .is_set = &bench->weight_copy },
        { .name = "json", .text = &bench->json_path },
        { .name = "check", .is_set = &bench->check },
        { .name = "help", .is_set = &bench->help },
    };
    const struct flag_list list = { .command = "bench engine",
                                    .flags = flags,
                                    .flag_count = LENGTH_OF(flags) };
    TRY(flags_read(&list, argc, argv));
    TRY(kv_type_read(kv_type, &bench->kv_type));
    if (!bench->model_path)
        bench->model_path = getenv("TARN_MODEL"); /* NOLINT(concurrency-mt-unsafe): one thread */
    if ((bench->model_path && bench->model_path[0]) || bench->help)
        return TARN_OK;
    log_error("which model? usage: tarn bench engine --model FILE.gguf [options]");
    return TARN_INVALID;
}

int bench_engine(int argc, char **argv)
{
    struct bench bench = { .runs = RUNS_DEFAULT };

    if (arguments_read(&bench, argc, argv) != TARN_OK)
        return EXIT_STATUS_USAGE;
    if (bench.help)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    enum tarn_status status = bench_start(&bench);
    if (status == TARN_OK)
        status = rows_measure(&bench);
    if (status == TARN_OK)
        status = report(&bench);
    if (status != TARN_OK)
        log_error("bench engine: %s", tarn_strerror(status));
    const bool missed = status == TARN_OK && bench.check && !all_reached(&bench);
    bench_stop(&bench);
    return status == TARN_OK && !missed ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
