/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/backend.h"
#include "engine/graph.h"
#include "engine/identity.h"
#include "engine/model.h"
#include "engine/pace.h"
#include "engine/plan.h"
#include "engine/vocabulary.h"
#include "os/clock.h"
#include "os/thread.h"

enum {
    CTX_TOKENS_DEFAULT_MAX = 8192,
    CTX_TOKENS_MAX = 1 << 24, /* positions are exact in f32, where masks compare them */
    PAGE_TOKENS_DEFAULT = 32,
    BATCH_TOKENS_DEFAULT = 512,
    BATCH_TOKENS_MAX = 1 << 16,
    SEQUENCES_DEFAULT = 16,
    SEQUENCES_MAX = 4096,
};

struct engine {
    struct engine_info info;
    struct model model;
    struct weight_copy copy;
    struct vocabulary vocabulary;
    struct backend backend;
    struct plan plan;
    struct graph_set graphs;
    struct pace pace; /* of the threads, when their number was left to us */
    bool is_paced;
    const struct graph *last; /* of the last forward; NULL: it failed */
    int32_t *tokens;          /* a batch's inputs, gathered */
    int32_t *positions;
    int32_t *outputs;
};

/* ---- opening ---- */

static uint32_t threads_default(void)
{
    const uint32_t count = thread_cores();
    return count > 2 ? count - 1 : count;
}

static uint32_t value_or(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

static enum tarn_status options_check(const struct engine_options *options)
{
    static const struct {
        const char *what;
        size_t field;
        uint32_t most;
    } limits[] = {
        { "context", offsetof(struct engine_options, ctx_tokens), CTX_TOKENS_MAX },
        { "tokens of a page", offsetof(struct engine_options, page_tokens),
          ENGINE_PAGE_TOKENS_MAX },
        { "tokens of a batch", offsetof(struct engine_options, batch_tokens_max),
          BATCH_TOKENS_MAX },
        { "sequences of a batch", offsetof(struct engine_options, sequences_max), SEQUENCES_MAX },
        { "threads", offsetof(struct engine_options, threads), GGML_MAX_N_THREADS },
    };
    for (size_t i = 0; i < LENGTH_OF(limits); i++) {
        uint32_t value;
        memcpy(&value, (const char *)options + limits[i].field, sizeof(value));
        if (value > limits[i].most) {
            log_error("engine: %s: %u is more than the %u that are possible", limits[i].what, value,
                      limits[i].most);
            return TARN_INVALID;
        }
    }
    if (!options->model_path || options->model_path[0] == '\0') {
        log_error("engine: no model file is named");
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status info_identify(struct engine *engine, const struct engine_options *options,
                                      const struct identity_part *parts)
{
    struct engine_info *info = &engine->info;
    const char *path = engine->model.parts[0].path;
    char hex[IDENTITY_HEX_BYTES];
    char real[PATH_MAX];
    const char *known = realpath(path, real) ? real : path; /* a link and what it names are one */
    const char *slash = strrchr(known, '/');
    const char *name = slash ? slash + 1 : known;

    TRY(identity_of(parts, engine->model.part_count, options->should_stop, options->stop_context,
                    hex));
    (void)snprintf(info->model_key, sizeof(info->model_key), "%.255s-%s", name, hex);
    struct file_string said = { 0 };
    if (file_header_string(&engine->model.parts[0].header, "general.name", &said) == TARN_OK &&
        said.length_bytes > 0)
        (void)snprintf(info->name, sizeof(info->name), "%.*s",
                       (int)(said.length_bytes < sizeof(info->name) ? said.length_bytes
                                                                    : sizeof(info->name) - 1),
                       said.chars);
    else
        (void)snprintf(info->name, sizeof(info->name), "%.*s", ENGINE_NAME_BYTES_MAX - 1, name);
    return TARN_OK;
}

static enum tarn_status info_identity(struct engine *engine, const struct engine_options *options)
{
    const struct model *model = &engine->model;
    struct identity_part *parts = mem_alloc(model->part_count, sizeof(*parts));
    if (!parts)
        return TARN_NO_MEMORY;
    for (uint32_t i = 0; i < model->part_count; i++)
        parts[i] = (struct identity_part){ .bytes = model->parts[i].bytes,
                                           .size_bytes = model->parts[i].size_bytes,
                                           .status = model->parts[i].status };
    const enum tarn_status status = info_identify(engine, options, parts);
    mem_free(parts);
    return status;
}

static void info_fill(struct engine *engine, const struct engine_options *options)
{
    const struct model *model = &engine->model;
    const struct vocabulary *vocabulary = &engine->vocabulary;
    struct engine_info *info = &engine->info;
    const uint32_t most = model->ctx_train_tokens < CTX_TOKENS_DEFAULT_MAX ? model->ctx_train_tokens
                                                                           : CTX_TOKENS_DEFAULT_MAX;

    (void)snprintf(info->architecture, sizeof(info->architecture), "%s", model->architecture->name);
    (void)snprintf(info->weights, sizeof(info->weights), "%s",
                   ggml_type_name(model_weights_type(model)));
    info->parameter_count = model->parameter_count;
    info->weights_bytes = model->weights_bytes;
    info->layer_count = model->layer_count;
    info->head_count = model->head_count;
    info->kv_head_count = model->kv_head_count;
    info->head_dim = model->head_dim;
    info->embedding_dim = model->embedding_dim;
    info->vocab_count = model->vocab_count;
    info->ctx_train_tokens = model->ctx_train_tokens;
    info->ctx_tokens = value_or(options->ctx_tokens, most);
    info->page_tokens = value_or(options->page_tokens, PAGE_TOKENS_DEFAULT);
    info->batch_tokens_max = value_or(options->batch_tokens_max, BATCH_TOKENS_DEFAULT);
    info->sequences_max = value_or(options->sequences_max, SEQUENCES_DEFAULT);
    info->threads = value_or(options->threads, threads_default());
    info->kv_type = options->kv_type;
    info->rope_dims = model->head_dim;
    info->rope_base = model->rope_base;
    info->adds_bos = vocabulary->adds_bos;
    info->has_chat_template = vocabulary->chat_template != NULL;
    memcpy(info->end_tokens, vocabulary->end_tokens, sizeof(info->end_tokens));
    info->end_token_count = vocabulary->end_token_count;
}

static enum tarn_status compute_open(struct engine *engine, const struct engine_options *options)
{
    struct engine_info *info = &engine->info;
    const struct attend_kernel *kernel = NULL;
    const struct attend_shape shape = {
        .head_dim = info->head_dim,
        .group = info->head_count / info->kv_head_count,
        .kv_head_count = info->kv_head_count,
        .page_tokens = info->page_tokens,
        .kv_type = info->kv_type,
        .scale = 1.0F / sqrtf((float)info->head_dim),
    };
    const struct plan_limits limits = { .batch_tokens_max = info->batch_tokens_max,
                                        .sequences_max = info->sequences_max,
                                        .ctx_tokens = info->ctx_tokens,
                                        .threads = info->threads,
                                        .layer_count = info->layer_count };
    if (attend_kernel_find(options->kernel, &kernel) != TARN_OK) {
        log_error("engine: this CPU does not have what the chosen attention kernel needs");
        return TARN_UNSUPPORTED;
    }
    info->kernel = kernel->kind;
    info->page_bytes = info->layer_count * plan_layer_bytes(&shape);
    engine->tokens = mem_alloc(info->batch_tokens_max, sizeof(*engine->tokens));
    engine->positions = mem_alloc(info->batch_tokens_max, sizeof(*engine->positions));
    engine->outputs = mem_alloc(info->batch_tokens_max, sizeof(*engine->outputs));
    if (!engine->tokens || !engine->positions || !engine->outputs)
        return TARN_NO_MEMORY;
    TRY(plan_init(&engine->plan, &shape, kernel, &limits));
    TRY(backend_init(&engine->backend, info->threads, options->poll));
    engine->is_paced = options->threads == 0;
    pace_init(&engine->pace, info->threads);
    (void)snprintf(info->cpu, sizeof(info->cpu), "ggml %s; attention %s", engine->backend.features,
                   kernel->name);
    const uint32_t outputs =
        info->sequences_max < info->batch_tokens_max ? info->sequences_max : info->batch_tokens_max;
    if (options->weight_copy)
        TRY(weight_copy_init(&engine->copy, &engine->model, options->should_stop,
                             options->stop_context));
    info->copy_bytes = engine->copy.size_bytes;
    return graph_set_init(&engine->graphs, &engine->model, &engine->copy, &engine->plan,
                          info->batch_tokens_max, outputs);
}

static enum tarn_status stop_ask(const struct engine_options *options)
{
    return options->should_stop && options->should_stop(options->stop_context) ? TARN_AGAIN
                                                                               : TARN_OK;
}

static enum tarn_status engine_load(struct engine *engine, const struct engine_options *options)
{
    TRY(options_check(options));
    TRY(backend_load(options->backend_dir ? options->backend_dir : TARN_BACKEND_DIR));
    TRY(stop_ask(options));
    TRY(model_open(options->model_path, &engine->model));
    TRY(stop_ask(options));
    TRY(vocabulary_open(&engine->vocabulary, options->model_path));
    info_fill(engine, options);
    TRY(info_identity(engine, options));
    TRY(stop_ask(options));
    return compute_open(engine, options);
}

enum tarn_status engine_open(const struct engine_options *options, struct engine **out_engine)
{
    struct engine *engine = mem_alloc(1, sizeof(*engine));
    if (!engine)
        return TARN_NO_MEMORY;
    const enum tarn_status status = engine_load(engine, options);
    if (status != TARN_OK) {
        if (status == TARN_NO_MEMORY)
            log_error("engine: no memory for %s", options->model_path);
        engine_close(engine);
        return status;
    }
    *out_engine = engine;
    return TARN_OK;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    graph_set_deinit(&engine->graphs);
    plan_deinit(&engine->plan);
    backend_deinit(&engine->backend);
    weight_copy_deinit(&engine->copy);
    vocabulary_close(&engine->vocabulary);
    model_close(&engine->model);
    mem_free(engine->tokens);
    mem_free(engine->positions);
    mem_free(engine->outputs);
    mem_free(engine);
}

const struct engine_info *engine_info_of(const struct engine *engine)
{
    return &engine->info;
}

/* Pages that copies of the weights computed are a little different from those that the file's own
 * did: they do not meet, so that replaying stays exact. */
static const char weight_copy_mark[] = "weights f16 from 8 tokens on";

struct tarn_kv_format engine_kv_format(const struct engine *engine)
{
    const struct engine_info *info = &engine->info;
    return (struct tarn_kv_format){
        .size = sizeof(struct tarn_kv_format),
        .element_type = info->kv_type == ENGINE_KV_F16 ? "f16" : "f32",
        .order = "layer,kv,token,head,dim",
        .layer_count = info->layer_count,
        .head_count = info->kv_head_count,
        .key_head_size = info->head_dim,
        .value_head_size = info->head_dim,
        .rope_dimensions = info->rope_dims,
        .rope_base = (double)info->rope_base,
        .rope_type = engine->model.architecture->rope_type,
        .other = engine->copy.layers ? weight_copy_mark : NULL,
        .other_size_bytes = engine->copy.layers ? sizeof(weight_copy_mark) : 0,
    };
}

/* ---- computing ---- */

static enum tarn_status sequence_check(const struct engine_info *info,
                                       const struct engine_sequence *sequence)
{
    const uint64_t end = (uint64_t)sequence->position + sequence->token_count;
    if (sequence->token_count == 0 || sequence->output_count > sequence->token_count ||
        end > info->ctx_tokens || (uint64_t)sequence->page_count * info->page_tokens < end) {
        log_error("engine: a batch asks for %u tokens from position %u with %u pages and %u "
                  "outputs; the context is %u",
                  sequence->token_count, sequence->position, sequence->page_count,
                  sequence->output_count, info->ctx_tokens);
        return TARN_INVALID;
    }
    for (uint32_t i = 0; i < sequence->token_count; i++) {
        if (sequence->tokens[i] < 0 || (uint32_t)sequence->tokens[i] >= info->vocab_count) {
            log_error("engine: token %d is outside the vocabulary of %u", sequence->tokens[i],
                      info->vocab_count);
            return TARN_INVALID;
        }
    }
    return TARN_OK;
}

/* Gather the inputs of the batch. */
static enum tarn_status batch_gather(struct engine *engine, const struct engine_sequence *sequences,
                                     uint32_t count, uint32_t *out_tokens, uint32_t *out_outputs)
{
    const struct engine_info *info = &engine->info;
    uint32_t tokens = 0;
    uint32_t outputs = 0;

    if (count == 0 || count > info->sequences_max) {
        log_error("engine: a batch of %u sequences; 1 to %u are possible", count,
                  info->sequences_max);
        return TARN_INVALID;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *sequence = &sequences[i];
        TRY(sequence_check(info, sequence));
        if (sequence->token_count > info->batch_tokens_max - tokens) {
            log_error("engine: a batch of more than %u tokens", info->batch_tokens_max);
            return TARN_INVALID;
        }
        const uint32_t first_output = sequence->token_count - sequence->output_count;
        for (uint32_t k = 0; k < sequence->token_count; k++) {
            if (k >= first_output)
                engine->outputs[outputs++] = (int32_t)tokens;
            engine->tokens[tokens] = sequence->tokens[k];
            engine->positions[tokens++] = (int32_t)(sequence->position + k);
        }
    }
    *out_tokens = tokens;
    *out_outputs = outputs;
    return TARN_OK;
}

static enum ggml_status graph_compute(struct engine *engine, struct graph *graph)
{
    if (!engine->is_paced)
        return ggml_backend_graph_compute(engine->backend.ggml, graph->ggml);
    const uint64_t start_ns = clock_now_ns();
    const uint64_t cpu_ns = clock_cpu_ns();
    backend_use_threads(&engine->backend, pace_begin(&engine->pace, start_ns));
    const enum ggml_status status = ggml_backend_graph_compute(engine->backend.ggml, graph->ggml);
    const uint64_t end_ns = clock_now_ns();
    pace_end(&engine->pace, end_ns, end_ns - start_ns, clock_cpu_ns() - cpu_ns);
    return status;
}

enum tarn_status engine_forward(struct engine *engine, const struct engine_sequence *sequences,
                                uint32_t count)
{
    uint32_t tokens = 0;
    uint32_t outputs = 0;
    struct graph *graph = NULL;

    engine->last = NULL;
    TRY(batch_gather(engine, sequences, count, &tokens, &outputs));
    TRY(graph_get(&engine->graphs, tokens, outputs, &graph));
    plan_make(&engine->plan, sequences, count);
    memcpy(graph->tokens->data, engine->tokens, tokens * sizeof(int32_t));
    memcpy(graph->positions->data, engine->positions, tokens * sizeof(int32_t));
    if (outputs > 0)
        memcpy(graph->outputs->data, engine->outputs, outputs * sizeof(int32_t));
    const enum ggml_status status = graph_compute(engine, graph);
    if (status == GGML_STATUS_ABORTED)
        return TARN_AGAIN;
    if (status != GGML_STATUS_SUCCESS) {
        log_error("engine: ggml could not compute a batch of %u token%s: %s", tokens,
                  text_plural(tokens), ggml_status_to_string(status));
        return status == GGML_STATUS_ALLOC_FAILED ? TARN_NO_MEMORY : TARN_IO;
    }
    engine->last = graph;
    return TARN_OK;
}

void engine_set_stop(struct engine *engine, engine_stop_fn should_stop, void *context)
{
    backend_set_stop(&engine->backend, should_stop, context);
}

const float *engine_logits(const struct engine *engine, uint32_t output_index)
{
    ASSERT(engine->last && output_index < engine->last->output_count);
    return (const float *)engine->last->logits->data +
           (size_t)output_index * engine->info.vocab_count;
}

/* ---- vocabulary ---- */

enum tarn_status engine_tokenize(const struct engine *engine, const struct engine_text *text,
                                 int32_t *tokens, uint32_t capacity, uint32_t *out_count)
{
    return vocabulary_tokenize(&engine->vocabulary, text, tokens, capacity, out_count);
}

enum tarn_status engine_detokenize(const struct engine *engine, const int32_t *tokens,
                                   uint32_t count, bool special, struct text *out)
{
    return vocabulary_detokenize(&engine->vocabulary, tokens, count, special, out);
}

enum tarn_status engine_token_piece(const struct engine *engine, int32_t token, bool special,
                                    char *bytes, size_t *out_bytes)
{
    return vocabulary_piece(&engine->vocabulary, token, special, bytes, out_bytes);
}

bool engine_token_is_end(const struct engine *engine, int32_t token)
{
    return vocabulary_is_end(&engine->vocabulary, token);
}

enum tarn_status engine_chat_render(const struct engine *engine,
                                    const struct engine_message *messages, uint32_t count,
                                    bool add_assistant, struct text *out)
{
    return vocabulary_chat(&engine->vocabulary, messages, count, add_assistant, out);
}
