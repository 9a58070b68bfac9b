/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - from logits to the next token, through libllama.
 *
 * One sampler a request: it carries the random state, so that a request which runs again from its
 * prompt with the same seed gives the same tokens. Used by one thread at a time; outlived by its
 * engine.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "engine/engine.h"

struct sampler_params {
    float temperature; /* 0: always the likeliest token */
    float top_p;       /* in (0, 1]; 1: all */
    int32_t top_k;     /* 0: all */
    uint32_t seed;
};

struct sampler;

/* INVALID: a number out of its range. */
NODISCARD enum tarn_status sampler_create(const struct engine *engine,
                                          const struct sampler_params *params,
                                          struct sampler **out_sampler);
void sampler_destroy(struct sampler *sampler); /* NULL is fine */

/* Choose a token and take note of it. `logits` has vocab_count numbers and is not changed. */
int32_t sampler_sample(struct sampler *sampler, const float *logits);

#endif
