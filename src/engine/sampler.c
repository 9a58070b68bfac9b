/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler.h"

#include <llama.h>
#include <math.h>

#include "base/alloc.h"
#include "base/log.h"

struct sampler {
    struct llama_sampler *chain;
    llama_token_data *candidates;
    uint32_t vocab_count;
};

/* libllama's orders: first fewer candidates, then the temperature, then the choice. */
static bool chain_build(struct llama_sampler *chain, const struct sampler_params *params)
{
    struct llama_sampler *links[4] = { 0 };
    size_t count = 0;

    if (params->temperature <= 0) {
        links[count++] = llama_sampler_init_greedy();
    } else {
        if (params->top_k > 0)
            links[count++] = llama_sampler_init_top_k(params->top_k);
        if (params->top_p < 1)
            links[count++] = llama_sampler_init_top_p(params->top_p, 1);
        links[count++] = llama_sampler_init_temp(params->temperature);
        /* one number asks libllama for a seed of its own */
        links[count++] = llama_sampler_init_dist(
            params->seed == LLAMA_DEFAULT_SEED ? LLAMA_DEFAULT_SEED - 1 : params->seed);
    }
    bool complete = true;
    for (size_t i = 0; i < count; i++) {
        if (links[i])
            llama_sampler_chain_add(chain, links[i]);
        complete = complete && links[i];
    }
    return complete;
}

enum tarn_status sampler_create(const struct engine *engine, const struct sampler_params *params,
                                struct sampler **out_sampler)
{
    if (!(params->temperature >= 0) || !isfinite(params->temperature) || !(params->top_p > 0) ||
        params->top_p > 1 || params->top_k < 0) {
        log_warn("a sampler with temperature %g, top_p %g, top_k %d is refused",
                 (double)params->temperature, (double)params->top_p, params->top_k);
        return TARN_INVALID;
    }
    struct sampler *sampler = mem_alloc(1, sizeof(*sampler));
    if (!sampler)
        return TARN_NO_MEMORY;
    sampler->vocab_count = engine_info_of(engine)->vocab_count;
    sampler->candidates = mem_alloc(sampler->vocab_count, sizeof(*sampler->candidates));
    sampler->chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (!sampler->candidates || !sampler->chain || !chain_build(sampler->chain, params)) {
        sampler_destroy(sampler);
        return TARN_NO_MEMORY;
    }
    *out_sampler = sampler;
    return TARN_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    if (!sampler)
        return;
    if (sampler->chain)
        llama_sampler_free(sampler->chain);
    mem_free(sampler->candidates);
    mem_free(sampler);
}

int32_t sampler_sample(struct sampler *sampler, const float *logits)
{
    for (uint32_t i = 0; i < sampler->vocab_count; i++)
        sampler->candidates[i] = (llama_token_data){ .id = (llama_token)i, .logit = logits[i] };
    llama_token_data_array array = { .data = sampler->candidates,
                                     .size = sampler->vocab_count,
                                     .selected = -1 };
    llama_sampler_apply(sampler->chain, &array);
    const bool chosen = array.selected >= 0 && (size_t)array.selected < array.size;
    const int32_t token = array.data[chosen ? array.selected : 0].id;
    llama_sampler_accept(sampler->chain, token);
    return token;
}
