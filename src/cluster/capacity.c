/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/capacity.h"

enum { RESERVE_PART = 16 };

#define RESERVE_BYTES_LEAST (UINT64_C(256) << 20)

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

struct capacity capacity_compute(const struct capacity_input *input)
{
    struct capacity capacity = { .fits = true };
    const uint64_t ranks = input->rank_count;
    const uint64_t rank_bytes =
        sum(input->segment_bytes, sum(input->buffer_bytes, input->staging_bytes));
    const uint64_t donor_bytes =
        input->donation_bytes ? sum(input->donation_bytes, CAPACITY_DONOR_BUFFER_BYTES) : 0;
    capacity.pool_bytes =
        sum(product(ranks, input->segment_bytes), sum(input->donation_bytes, input->others_bytes));
    capacity.taken_bytes = sum(product(ranks, rank_bytes), donor_bytes);
    const uint64_t block_bytes = product(ranks, input->block_bytes);
    if (block_bytes > 0)
        capacity.token_count = product(capacity.pool_bytes / block_bytes, input->block_tokens);
    if (input->available_bytes > 0) {
        const uint64_t part = input->available_bytes / RESERVE_PART;
        capacity.reserve_bytes = part > RESERVE_BYTES_LEAST ? part : RESERVE_BYTES_LEAST;
        const uint64_t needed = sum(capacity.taken_bytes, capacity.reserve_bytes);
        capacity.fits = needed <= input->available_bytes;
        capacity.left_bytes = capacity.fits ? input->available_bytes - needed : 0;
    }
    return capacity;
}
