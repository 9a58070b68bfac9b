/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capacity.h - how large a pool is, how many tokens fit, and what it takes of this host's memory.
 * Pure; sums that would overflow stay at their maximum.
 *
 *   pool   = ranks * segment + donation + what others lend
 *   tokens = pool / (ranks * bytes of one block on one rank) * tokens of a block
 *   taken  = ranks * (segment + buffer + staging) + donation + the donation's buffer
 *   left   = available - reserve - taken; less than nothing does not fit
 */
#ifndef CLUSTER_CAPACITY_H
#define CLUSTER_CAPACITY_H

#include "base/base.h"

/* A donor's client needs a buffer of its own, though it moves no traffic. */
#define CAPACITY_DONOR_BUFFER_BYTES (UINT64_C(64) << 20)

struct capacity_input {
    uint32_t rank_count; /* of this server */
    uint64_t segment_bytes;
    uint64_t buffer_bytes;
    uint64_t staging_bytes;   /* of one rank, all directions */
    uint64_t donation_bytes;  /* 0: none; charged once, whatever the ranks */
    uint64_t others_bytes;    /* that other hosts and processes lend */
    uint64_t available_bytes; /* of this host; 0: not known */
    uint64_t block_bytes;     /* of all groups on one rank, headers included; 0: not known */
    uint32_t block_tokens;
};

struct capacity {
    uint64_t pool_bytes;
    uint64_t token_count;
    uint64_t taken_bytes;
    uint64_t reserve_bytes; /* kept free: a sixteenth of what is available, at least 256 MiB */
    uint64_t left_bytes;
    bool fits; /* also when what is available is not known */
};

struct capacity capacity_compute(const struct capacity_input *input);

#endif
