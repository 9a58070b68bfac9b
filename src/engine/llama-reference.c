/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/llama-reference.h"

#include <llama.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/backend.h"

struct reference {
    struct llama_model *model;
    struct llama_context *context;
    struct llama_batch batch;
    struct backend
        backend; /* for its pool of threads; libllama computes with a backend of its own */
    uint32_t vocab_count;
    uint32_t batch_tokens_max;
};

static enum tarn_status reference_load(struct reference *r, const struct reference_options *options)
{
    struct llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    TRY(backend_load(options->backend_dir ? options->backend_dir : TARN_BACKEND_DIR));
    r->model = llama_model_load_from_file(options->model_path, model_params);
    if (!r->model) {
        log_error("%s: libllama cannot load it", options->model_path);
        return TARN_CORRUPT;
    }
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = options->ctx_tokens * options->sequences_max;
    params.n_seq_max = options->sequences_max;
    params.n_batch = options->batch_tokens_max;
    params.n_ubatch = options->batch_tokens_max;
    params.n_threads = (int32_t)options->threads;
    params.n_threads_batch = (int32_t)options->threads;
    params.type_k = options->kv_type == ENGINE_KV_F16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
    params.type_v = params.type_k;
    params.flash_attn_type =
        options->flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    r->context = llama_init_from_model(r->model, params);
    if (!r->context) {
        log_error("%s: libllama cannot make a context for it", options->model_path);
        return TARN_NO_MEMORY;
    }
    TRY(backend_init(&r->backend, options->threads, true)); /* spinning is libllama's default */
    llama_attach_threadpool(r->context, r->backend.pool, r->backend.pool);
    r->batch = llama_batch_init((int32_t)options->batch_tokens_max, 0, 1);
    r->batch_tokens_max = options->batch_tokens_max;
    r->vocab_count = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(r->model));
    return r->batch.token ? TARN_OK : TARN_NO_MEMORY;
}

enum tarn_status reference_open(const struct reference_options *options,
                                struct reference **out_reference)
{
    struct reference *reference = mem_alloc(1, sizeof(*reference));
    if (!reference)
        return TARN_NO_MEMORY;
    const enum tarn_status status = reference_load(reference, options);
    if (status != TARN_OK) {
        reference_close(reference);
        return status;
    }
    *out_reference = reference;
    return TARN_OK;
}

void reference_close(struct reference *reference)
{
    if (!reference)
        return;
    if (reference->batch.token)
        llama_batch_free(reference->batch);
    if (reference->context)
        llama_free(reference->context);
    if (reference->model)
        llama_model_free(reference->model);
    backend_deinit(&reference->backend);
    mem_free(reference);
}

static void batch_add(struct reference *r, const struct reference_sequence *sequence)
{
    struct llama_batch *batch = &r->batch;
    const uint32_t first_output = sequence->token_count - sequence->output_count;
    for (uint32_t i = 0; i < sequence->token_count; i++) {
        const int32_t at = batch->n_tokens++;
        batch->token[at] = sequence->tokens[i];
        batch->pos[at] = (llama_pos)(sequence->position + i);
        batch->n_seq_id[at] = 1;
        batch->seq_id[at][0] = (llama_seq_id)sequence->id;
        batch->logits[at] = i >= first_output ? 1 : 0;
    }
}

enum tarn_status reference_forward(struct reference *reference,
                                   const struct reference_sequence *sequences, uint32_t count)
{
    uint32_t tokens = 0;
    reference->batch.n_tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += sequences[i].token_count;
        if (tokens > reference->batch_tokens_max)
            return TARN_INVALID;
        (void)llama_memory_seq_rm(llama_get_memory(reference->context),
                                  (llama_seq_id)sequences[i].id, (llama_pos)sequences[i].position,
                                  -1);
        batch_add(reference, &sequences[i]);
    }
    const int32_t result = llama_decode(reference->context, reference->batch);
    if (result != 0) {
        log_error("libllama cannot compute a batch of %u token%s (%d)", tokens, text_plural(tokens),
                  result);
        return TARN_IO;
    }
    return TARN_OK;
}

void reference_copy(struct reference *reference, uint32_t from, uint32_t to)
{
    llama_memory_t memory = llama_get_memory(reference->context);
    (void)llama_memory_seq_rm(memory, (llama_seq_id)to, -1, -1);
    llama_memory_seq_cp(memory, (llama_seq_id)from, (llama_seq_id)to, -1, -1);
}

const float *reference_logits(const struct reference *reference, uint32_t output_index)
{
    return llama_get_logits(reference->context) + (size_t)output_index * reference->vocab_count;
}
