/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/graph.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"

enum {
    GRAPH_NODES_OF_LAYER = 32, /* more than the builder makes */
    GRAPH_NODES_BESIDE = 32
};

/* ---- the two operations that ggml does not have ---- */

static void store_run(struct ggml_tensor *dst, int ith, int nth, void *context)
{
    const struct graph_layer *layer = context;
    plan_store(layer->plan, layer->layer, dst->src[0]->data, dst->src[1]->data, (uint32_t)ith,
               (uint32_t)nth);
}

static void attend_run(struct ggml_tensor *dst, int ith, int nth, void *context)
{
    const struct graph_layer *layer = context;
    (void)nth;
    plan_run(layer->plan, layer->layer, dst->src[0]->data, dst->data, (uint32_t)ith);
}

/* ---- building ---- */

struct builder {
    const struct model *model;
    const struct model_layer *weights; /* of the layers: the file's, or their copy */
    struct ggml_context *context;
    struct graph *graph;
    struct graph_layer *layers;
};

static struct ggml_tensor *build_norm(const struct builder *b, struct ggml_tensor *x,
                                      struct ggml_tensor *weight)
{
    return ggml_mul(b->context, ggml_rms_norm(b->context, x, b->model->norm_epsilon), weight);
}

static struct ggml_tensor *build_rope(const struct builder *b, struct ggml_tensor *x,
                                      uint32_t head_count)
{
    const struct model *m = b->model;
    struct ggml_tensor *heads =
        ggml_reshape_3d(b->context, x, m->head_dim, head_count, b->graph->token_count);
    return ggml_rope_ext(b->context, heads, b->graph->positions, NULL, (int)m->head_dim,
                         m->architecture->rope_mode, (int)m->ctx_train_tokens, m->rope_base, 1.0F,
                         0.0F, 1.0F, 32.0F, 1.0F);
}

/* Stores K and V of the layer, and returns what the tokens see; NULL if nobody asks
 * (`last_stored`). */
static struct ggml_tensor *build_attention(const struct builder *b, uint32_t layer,
                                           struct ggml_tensor *x)
{
    const struct model *m = b->model;
    const struct model_layer *w = &b->weights[layer];
    struct ggml_context *c = b->context;
    const bool wanted = layer + 1 < m->layer_count || b->graph->outputs;

    struct ggml_tensor *key = build_rope(b, ggml_mul_mat(c, w->key, x), m->kv_head_count);
    struct ggml_tensor *value = ggml_mul_mat(c, w->value, x);
    struct ggml_tensor *stored_from[] = { key, value };
    struct ggml_tensor *stored = ggml_custom_4d(c, GGML_TYPE_F32, 1, 1, 1, 1, stored_from, 2,
                                                store_run, GGML_N_TASKS_MAX, &b->layers[layer]);
    if (!wanted) {
        ggml_build_forward_expand(b->graph->ggml, stored);
        return NULL;
    }
    struct ggml_tensor *query = build_rope(b, ggml_mul_mat(c, w->query, x), m->head_count);
    struct ggml_tensor *attended_from[] = { query, stored };
    struct ggml_tensor *attended = ggml_custom_4d(
        c, GGML_TYPE_F32, (int64_t)m->head_count * m->head_dim, b->graph->token_count, 1, 1,
        attended_from, 2, attend_run, GGML_N_TASKS_MAX, &b->layers[layer]);
    return ggml_mul_mat(c, w->attention_out, attended);
}

static struct ggml_tensor *build_feed(const struct builder *b, const struct model_layer *w,
                                      struct ggml_tensor *x)
{
    struct ggml_context *c = b->context;
    struct ggml_tensor *normed = build_norm(b, x, w->feed_norm);
    struct ggml_tensor *gate = ggml_mul_mat(c, w->feed_gate, normed);
    struct ggml_tensor *up = ggml_mul_mat(c, w->feed_up, normed);
    return ggml_mul_mat(c, w->feed_down, ggml_swiglu_split(c, gate, up));
}

static void build_layers(const struct builder *b)
{
    const struct model *m = b->model;
    struct graph *graph = b->graph;
    struct ggml_context *c = b->context;
    struct ggml_tensor *x = ggml_get_rows(c, m->token_embedding, graph->tokens);

    for (uint32_t layer = 0; layer < m->layer_count; layer++) {
        const struct model_layer *w = &b->weights[layer];
        struct ggml_tensor *attended =
            build_attention(b, layer, build_norm(b, x, w->attention_norm));
        if (!attended)
            return; /* the last layer of a batch without outputs */
        if (layer + 1 == m->layer_count) {
            attended = ggml_get_rows(c, attended, graph->outputs);
            x = ggml_get_rows(c, x, graph->outputs);
        }
        x = ggml_add(c, attended, x);
        x = ggml_add(c, build_feed(b, w, x), x);
    }
    graph->logits = ggml_mul_mat(c, m->output, build_norm(b, x, m->output_norm));
    ggml_set_output(graph->logits);
    ggml_build_forward_expand(graph->ggml, graph->logits);
}

static struct ggml_tensor *build_input(struct ggml_context *context, uint32_t count)
{
    struct ggml_tensor *input = ggml_new_tensor_1d(context, GGML_TYPE_I32, count);
    ggml_set_input(input);
    return input;
}

static size_t nodes_max(const struct model *model)
{
    return (size_t)model->layer_count * GRAPH_NODES_OF_LAYER + GRAPH_NODES_BESIDE;
}

static void graph_drop(struct graph *graph)
{
    if (graph->context)
        ggml_free(graph->context);
    *graph = (struct graph){ .memory = graph->memory };
}

static enum tarn_status graph_build(struct graph_set *set, struct graph *graph,
                                    uint32_t token_count, uint32_t output_count)
{
    const struct ggml_init_params params = { .mem_size = set->memory_bytes,
                                             .mem_buffer = graph->memory,
                                             .no_alloc = true };
    graph_drop(graph);
    graph->context = ggml_init(params);
    if (!graph->context)
        return TARN_NO_MEMORY;
    graph->token_count = token_count;
    graph->output_count = output_count;
    graph->ggml = ggml_new_graph_custom(graph->context, nodes_max(set->model), false);
    graph->tokens = build_input(graph->context, token_count);
    graph->positions = build_input(graph->context, token_count);
    if (output_count > 0)
        graph->outputs = build_input(graph->context, output_count);
    const bool copied = set->copy->layers && token_count >= WEIGHT_COPY_TOKENS_MIN;
    const struct builder builder = { .model = set->model,
                                     .weights = copied ? set->copy->layers : set->model->layers,
                                     .context = graph->context,
                                     .graph = graph,
                                     .layers = set->layers };
    build_layers(&builder);
    return TARN_OK;
}

/* ---- the set ---- */

enum tarn_status graph_set_init(struct graph_set *set, const struct model *model,
                                const struct weight_copy *copy, struct plan *plan,
                                uint32_t token_count, uint32_t output_count)
{
    *set = (struct graph_set){ .model = model, .copy = copy, .plan = plan };
    const size_t nodes = nodes_max(model);
    set->memory_bytes =
        2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false);
    set->layers = mem_alloc(model->layer_count, sizeof(*set->layers));
    bool complete = set->layers != NULL;
    for (size_t i = 0; i < GRAPH_KEPT_MAX; i++) {
        set->kept[i].memory = mem_alloc(1, set->memory_bytes);
        complete = complete && set->kept[i].memory;
    }
    set->allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (!complete || !set->allocator) {
        graph_set_deinit(set);
        return TARN_NO_MEMORY;
    }
    for (uint32_t i = 0; i < model->layer_count; i++)
        set->layers[i] = (struct graph_layer){ .plan = plan, .layer = i };

    struct graph *graph = NULL;
    const enum tarn_status status = graph_get(set, token_count, output_count, &graph);
    if (status != TARN_OK)
        graph_set_deinit(set);
    return status;
}

void graph_set_deinit(struct graph_set *set)
{
    for (size_t i = 0; i < GRAPH_KEPT_MAX; i++) {
        graph_drop(&set->kept[i]);
        mem_free(set->kept[i].memory);
    }
    if (set->allocator)
        ggml_gallocr_free(set->allocator);
    mem_free(set->layers);
    *set = (struct graph_set){ 0 };
}

/* A buffer that grew is another buffer: the other graphs' tensors lay in the old one. */
static enum tarn_status graph_allocate(struct graph_set *set, struct graph *graph)
{
    if (!ggml_gallocr_alloc_graph(set->allocator, graph->ggml)) {
        log_error("no memory to compute %u token%s with %u output%s", graph->token_count,
                  text_plural(graph->token_count), graph->output_count,
                  text_plural(graph->output_count));
        graph_drop(graph);
        return TARN_NO_MEMORY;
    }
    const size_t buffer_bytes = ggml_gallocr_get_buffer_size(set->allocator, 0);
    if (buffer_bytes != set->buffer_bytes) {
        for (size_t i = 0; i < GRAPH_KEPT_MAX; i++) {
            if (&set->kept[i] != graph)
                graph_drop(&set->kept[i]);
        }
        set->buffer_bytes = buffer_bytes;
    }
    return TARN_OK;
}

enum tarn_status graph_get(struct graph_set *set, uint32_t token_count, uint32_t output_count,
                           struct graph **out_graph)
{
    struct graph *oldest = &set->kept[0];

    set->clock++;
    for (size_t i = 0; i < GRAPH_KEPT_MAX; i++) {
        struct graph *graph = &set->kept[i];
        if (graph->token_count == token_count && graph->output_count == output_count) {
            graph->used_at = set->clock;
            *out_graph = graph;
            return TARN_OK;
        }
        if (graph->used_at < oldest->used_at)
            oldest = graph;
    }
    TRY(graph_build(set, oldest, token_count, output_count));
    TRY(graph_allocate(set, oldest));
    oldest->used_at = set->clock;
    *out_graph = oldest;
    return TARN_OK;
}
