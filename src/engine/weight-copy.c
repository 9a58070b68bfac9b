/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weight-copy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/memory.h"

/* The matrices of a layer. */
static const size_t matrix_fields[] = {
    offsetof(struct model_layer, query),     offsetof(struct model_layer, key),
    offsetof(struct model_layer, value),     offsetof(struct model_layer, attention_out),
    offsetof(struct model_layer, feed_gate), offsetof(struct model_layer, feed_up),
    offsetof(struct model_layer, feed_down),
};

static struct ggml_tensor **matrix_of(struct model_layer *layer, size_t index)
{
    return (struct ggml_tensor **)(void *)((char *)layer + matrix_fields[index]);
}

/* Types whose products with many columns ggml has no blocked code for on x86. */
static bool profits(const struct ggml_tensor *tensor)
{
    return tensor->type == GGML_TYPE_Q4_1 || tensor->type == GGML_TYPE_Q5_0 ||
           tensor->type == GGML_TYPE_Q5_1;
}

/* Descriptions of the copies; the layers point at them, or at the original where there is none. */
static void copies_describe(struct weight_copy *copy, const struct model *model)
{
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        for (size_t i = 0; i < LENGTH_OF(matrix_fields); i++) {
            struct ggml_tensor **slot = matrix_of(&copy->layers[layer], i);
            if (!profits(*slot))
                continue;
            const struct ggml_tensor *from = *slot;
            *slot = ggml_new_tensor_2d(copy->context, GGML_TYPE_F16, from->ne[0], from->ne[1]);
            copy->size_bytes += ggml_nbytes(*slot);
        }
    }
}

static void matrix_convert(const struct ggml_tensor *from, struct ggml_tensor *to, float *row)
{
    const ggml_to_float_t to_float = ggml_get_type_traits(from->type)->to_float;
    for (int64_t i = 0; i < from->ne[1]; i++) {
        to_float((const char *)from->data + (size_t)i * from->nb[1], row, from->ne[0]);
        ggml_fp32_to_fp16_row(
            row, (ggml_fp16_t *)(void *)((char *)to->data + (size_t)i * to->nb[1]), to->ne[0]);
    }
}

static enum tarn_status copies_fill(struct weight_copy *copy, const struct model *model,
                                    engine_stop_fn should_stop, void *stop_context)
{
    size_t row_count = 0;
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        for (size_t i = 0; i < LENGTH_OF(matrix_fields); i++) {
            const size_t count = (size_t)(*matrix_of(&model->layers[layer], i))->ne[0];
            row_count = count > row_count ? count : row_count;
        }
    }
    float *row = mem_alloc(row_count, sizeof(*row));
    if (!row)
        return TARN_NO_MEMORY;
    bool is_stopped = false;
    for (uint32_t layer = 0; layer < model->layer_count && !is_stopped; layer++) {
        for (size_t i = 0; i < LENGTH_OF(matrix_fields) && !is_stopped; i++) {
            const struct ggml_tensor *from = *matrix_of(&model->layers[layer], i);
            struct ggml_tensor *to = *matrix_of(&copy->layers[layer], i);
            is_stopped = should_stop && should_stop(stop_context);
            if (from != to && !is_stopped)
                matrix_convert(from, to, row);
        }
    }
    mem_free(row);
    return is_stopped ? TARN_AGAIN : TARN_OK;
}

static enum tarn_status copies_make(struct weight_copy *copy, const struct model *model,
                                    engine_stop_fn should_stop, void *stop_context)
{
    const size_t tensors = LENGTH_OF(matrix_fields) * model->layer_count;
    const struct ggml_init_params params = { .mem_size = tensors * ggml_tensor_overhead(),
                                             .no_alloc = true };
    copy->layers = mem_alloc(model->layer_count, sizeof(*copy->layers));
    copy->context = ggml_init(params);
    if (!copy->layers || !copy->context)
        return TARN_NO_MEMORY;
    memcpy(copy->layers, model->layers, model->layer_count * sizeof(*copy->layers));
    copies_describe(copy, model);
    if (copy->size_bytes == 0)
        return TARN_MISS;
    uint64_t available_bytes = 0; /* of a kernel that does not say */
    if (memory_available(&available_bytes) != TARN_OK || copy->size_bytes > available_bytes / 4) {
        log_info("engine: no copy of the weights for large batches: its %llu MiB are more than a "
                 "quarter of the available memory",
                 (unsigned long long)(copy->size_bytes >> 20));
        return TARN_MISS;
    }
    copy->buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(copy->context, ggml_backend_cpu_buffer_type());
    if (!copy->buffer)
        return TARN_NO_MEMORY;
    ggml_backend_buffer_set_usage(copy->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return copies_fill(copy, model, should_stop, stop_context);
}

enum tarn_status weight_copy_init(struct weight_copy *copy, const struct model *model,
                                  engine_stop_fn should_stop, void *stop_context)
{
    *copy = (struct weight_copy){ 0 };
    const enum tarn_status status = copies_make(copy, model, should_stop, stop_context);
    if (status != TARN_OK)
        weight_copy_deinit(copy);
    return status == TARN_MISS ? TARN_OK : status;
}

void weight_copy_deinit(struct weight_copy *copy)
{
    if (copy->buffer)
        ggml_backend_buffer_free(copy->buffer);
    if (copy->context)
        ggml_free(copy->context);
    mem_free(copy->layers);
    *copy = (struct weight_copy){ 0 };
}
