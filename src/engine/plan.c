/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include "base/alloc.h"

static uint32_t divide_up(uint32_t count, uint32_t by)
{
    return count / by + (count % by != 0);
}

/* Positions of a range: whole pages. */
static uint32_t range_tokens(const struct attend_shape *shape)
{
    const uint32_t pages = PLAN_RANGE_TOKENS / shape->page_tokens;
    return (pages ? pages : 1) * shape->page_tokens;
}

size_t plan_layer_bytes(const struct attend_shape *shape)
{
    return 2 * (size_t)shape->page_tokens * shape->kv_head_count * shape->head_dim *
           attend_element_bytes(shape->kv_type);
}

static size_t pieces_max(const struct attend_shape *shape, const struct plan_limits *limits)
{
    const size_t rows = (size_t)limits->batch_tokens_max * shape->group;
    const size_t tiles = (rows / ATTEND_ROWS_MAX + limits->sequences_max) * shape->kv_head_count;
    const size_t ranges =
        (size_t)limits->sequences_max * divide_up(limits->ctx_tokens, range_tokens(shape));
    return tiles + ranges;
}

/* Memory of the worst case; of the partial results only what is used is ever touched. */
enum tarn_status plan_init(struct plan *plan, const struct attend_shape *shape,
                           const struct attend_kernel *kernel, const struct plan_limits *limits)
{
    const size_t ranges = divide_up(limits->ctx_tokens, range_tokens(shape));
    *plan = (struct plan){ .shape = *shape,
                           .limits = *limits,
                           .kernel = kernel,
                           .scratch_count = attend_scratch_count(shape) + 16 };
    plan->pieces = mem_alloc(pieces_max(shape, limits), sizeof(*plan->pieces));
    plan->sequences = mem_alloc(limits->sequences_max, sizeof(*plan->sequences));
    plan->next = mem_alloc(limits->layer_count, sizeof(*plan->next));
    plan->unfinished = mem_alloc(limits->sequences_max, sizeof(*plan->unfinished));
    plan->partials =
        mem_alloc(limits->sequences_max * ranges * attend_partial_count(shape), sizeof(float));
    plan->scratch = mem_alloc(limits->threads * plan->scratch_count + 16, sizeof(float));
    if (plan->pieces && plan->sequences && plan->next && plan->unfinished && plan->partials &&
        plan->scratch)
        return TARN_OK;
    plan_deinit(plan);
    return TARN_NO_MEMORY;
}

void plan_deinit(struct plan *plan)
{
    mem_free(plan->pieces);
    mem_free(plan->sequences);
    mem_free(plan->next);
    mem_free(plan->unfinished);
    mem_free(plan->partials);
    mem_free(plan->scratch);
    *plan = (struct plan){ 0 };
}

/* Later rows see more, so they come first. */
static void plan_tiles(struct plan *plan, uint32_t sequence)
{
    const struct attend_shape *shape = &plan->shape;
    const uint32_t rows = plan->sequences[sequence].token_count * shape->group;

    for (uint32_t tile = divide_up(rows, ATTEND_ROWS_MAX); tile > 0; tile--) {
        const uint32_t first = (tile - 1) * ATTEND_ROWS_MAX;
        for (uint32_t kv = 0; kv < shape->kv_head_count; kv++)
            plan->pieces[plan->piece_count++] = (struct plan_piece){
                .sequence = sequence,
                .kv_head = kv,
                .first = first,
                .count = rows - first < ATTEND_ROWS_MAX ? rows - first : ATTEND_ROWS_MAX,
            };
    }
}

static void plan_ranges(struct plan *plan, uint32_t sequence, size_t *partial_count)
{
    struct plan_sequence *s = &plan->sequences[sequence];
    s->range_count = divide_up(s->position + 1, range_tokens(&plan->shape));
    s->partials = plan->partials + *partial_count * attend_partial_count(&plan->shape);
    *partial_count += s->range_count;
    atomic_store_explicit(&plan->unfinished[sequence], s->range_count, memory_order_relaxed);
    for (uint32_t range = 0; range < s->range_count; range++)
        plan->pieces[plan->piece_count++] =
            (struct plan_piece){ .sequence = sequence, .first = range };
}

void plan_make(struct plan *plan, const struct engine_sequence *sequences, uint32_t count)
{
    size_t partial_count = 0;

    plan->piece_count = 0;
    plan->token_count = 0;
    plan->sequence_count = count;
    for (uint32_t i = 0; i < count; i++) {
        plan->sequences[i] = (struct plan_sequence){ .pages = sequences[i].pages,
                                                     .position = sequences[i].position,
                                                     .token_first = plan->token_count,
                                                     .token_count = sequences[i].token_count };
        plan->token_count += sequences[i].token_count;
        if (sequences[i].token_count > 1)
            plan_tiles(plan, i);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (sequences[i].token_count == 1)
            plan_ranges(plan, i, &partial_count);
    }
    for (uint32_t layer = 0; layer < plan->limits.layer_count; layer++)
        atomic_store_explicit(&plan->next[layer], 0, memory_order_relaxed);
}

/* Where K of a layer and K/V head lies in a page; V follows after all of K. */
static struct attend_source source_of(const struct plan *plan, const struct plan_sequence *s,
                                      uint32_t layer, uint32_t kv_head)
{
    const struct attend_shape *shape = &plan->shape;
    const size_t layer_bytes = plan_layer_bytes(shape);
    const size_t key_offset_bytes = layer * layer_bytes + (size_t)kv_head * shape->head_dim *
                                                              attend_element_bytes(shape->kv_type);
    return (struct attend_source){ .pages = s->pages,
                                   .key_offset_bytes = key_offset_bytes,
                                   .value_offset_bytes = key_offset_bytes + layer_bytes / 2 };
}

static void store_sequence(const struct plan *plan, const struct plan_sequence *s,
                           const struct attend_source *source, const float *keys,
                           const float *values)
{
    const struct attend_shape *shape = &plan->shape;
    const size_t numbers = (size_t)shape->kv_head_count * shape->head_dim;
    const size_t row_bytes = numbers * attend_element_bytes(shape->kv_type);

    for (uint32_t i = 0; i < s->token_count; i++) {
        const uint32_t position = s->position + i;
        char *page = s->pages[position / shape->page_tokens];
        const size_t inside = position % shape->page_tokens * row_bytes;
        plan->kernel->store(shape->kv_type, page + source->key_offset_bytes + inside,
                            keys + i * numbers, numbers);
        plan->kernel->store(shape->kv_type, page + source->value_offset_bytes + inside,
                            values + i * numbers, numbers);
    }
}

void plan_store(const struct plan *plan, uint32_t layer, const float *keys, const float *values,
                uint32_t thread, uint32_t thread_count)
{
    const size_t numbers = (size_t)plan->shape.kv_head_count * plan->shape.head_dim;
    const uint32_t begin = (uint32_t)((uint64_t)plan->token_count * thread / thread_count);
    const uint32_t end = (uint32_t)((uint64_t)plan->token_count * (thread + 1) / thread_count);

    for (uint32_t i = 0; i < plan->sequence_count; i++) {
        struct plan_sequence part = plan->sequences[i]; /* what of it lies in [begin, end) */
        const uint32_t first = part.token_first > begin ? part.token_first : begin;
        const uint32_t after = part.token_first + part.token_count;
        const uint32_t last = after < end ? after : end;
        if (first >= last)
            continue;
        part.position += first - part.token_first;
        part.token_count = last - first;
        const struct attend_source source = source_of(plan, &part, layer, 0);
        store_sequence(plan, &part, &source, keys + first * numbers, values + first * numbers);
    }
}

static void run_tile(const struct plan *plan, const struct plan_piece *piece,
                     const struct attend_tile *whole, float *scratch)
{
    const struct attend_shape *shape = &plan->shape;
    const size_t offset = (size_t)piece->kv_head * shape->group * shape->head_dim;
    struct attend_tile tile = *whole;
    tile.query += offset;
    tile.out += offset;
    tile.row_first = piece->first;
    tile.row_count = piece->count;
    plan->kernel->tile(shape, &tile, scratch);
}

/* `out` is the token's row. */
static void run_range(struct plan *plan, const struct plan_piece *piece, struct attend_range *range,
                      float *out, float *scratch)
{
    const struct plan_sequence *s = &plan->sequences[piece->sequence];
    const uint32_t tokens = range_tokens(&plan->shape);
    range->first = piece->first * tokens;
    range->last = s->position - range->first < tokens ? s->position : range->first + tokens - 1;
    range->partial = s->partials + piece->first * attend_partial_count(&plan->shape);
    plan->kernel->range(&plan->shape, range, scratch);
    atomic_uint *unfinished = &plan->unfinished[piece->sequence];
    if (atomic_fetch_sub_explicit(unfinished, 1, memory_order_acq_rel) != 1)
        return;
    plan->kernel->merge(&plan->shape, s->partials, s->range_count, out);
    atomic_store_explicit(unfinished, s->range_count, memory_order_relaxed);
}

void plan_run(struct plan *plan, uint32_t layer, const float *query, float *out, uint32_t thread)
{
    const size_t row = (size_t)plan->shape.group * plan->shape.kv_head_count * plan->shape.head_dim;
    const size_t lead = (16 - (uintptr_t)plan->scratch / sizeof(float) % 16) % 16;
    const size_t stride = plan->scratch_count / 16 * 16;
    float *scratch = plan->scratch + lead + thread * stride;

    for (;;) {
        const size_t at = atomic_fetch_add_explicit(&plan->next[layer], 1, memory_order_relaxed);
        if (at >= plan->piece_count)
            return;
        const struct plan_piece *piece = &plan->pieces[at];
        const struct plan_sequence *s = &plan->sequences[piece->sequence];
        const size_t offset = s->token_first * row;
        if (piece->count > 0) {
            const struct attend_tile tile = {
                .source = source_of(plan, s, layer, piece->kv_head),
                .query = query + offset,
                .out = out + offset,
                .position = s->position,
            };
            run_tile(plan, piece, &tile, scratch);
        } else {
            struct attend_range range = { .source = source_of(plan, s, layer, 0),
                                          .query = query + offset };
            run_range(plan, piece, &range, out + offset, scratch);
        }
    }
}
