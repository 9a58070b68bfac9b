/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig.h - two engines on one pool, for tests of the connector through its table: each drives its
 * own connector over a fake store, and both stores share their pages.
 *
 * Blocks of 4 tokens; group 0 has two interleaved regions, group 1 has one. Single rigs have but
 * the latter.
 */
#ifndef TEST_RIG_H
#define TEST_RIG_H

#include "connector/connector.h"
#include "lib/fake-device.h"
#include "lib/fake-store.h"

enum { T = 4, GROUPS = 2, SLOTS = 64, BLOCKS = 40, TOKENS = T * BLOCKS, WAIT_MS = 20000 };
enum { SIZE_A = 24, SIZE_B = 8, STRIDE = 40, SIZE_C = 48 };
enum { BLOCK_BYTES = SIZE_A + SIZE_B + SIZE_C };

struct rig {
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector;
    struct store *store; /* borrowed from the connector */
    uint8_t *memory[GROUPS];
    uint64_t headroom_bytes; /* before every slot of memory[1] */
    uint64_t step_number;
    size_t started[2]; /* transfers reported, by kind */
    size_t retired[2];
};

extern struct fake_pages *pages;
extern struct rig first;
extern struct rig second;
extern int32_t tokens[TOKENS]; /* of the one prompt there is */
extern struct tarn_digest digests[BLOCKS];

/* What rig_open() opens with. */
extern struct tarn_connector_options options;
extern struct tarn_engine_desc engine;
extern struct store_traits traits;
extern struct fake_device *device;           /* NULL: pages in host memory */
extern uint32_t rig_pages_short;             /* of every step */
extern enum tarn_status rig_register_status; /* of the second registration with a store */
extern size_t rig_groups;                    /* GROUPS, or 1: group 0 alone */
extern bool rig_is_single;                   /* one group of one region, without or */
extern uint32_t rig_headroom_bytes;          /* with headroom before its pages */

int setup(void **state);        /* both rigs, with defaults */
int setup_staged(void **state); /* ... but that every page is staged */
int teardown(void **state);
void reopen(void); /* both again, with what the test has changed */

/* One rig; of other statuses than OK the connector is open if open() was not what failed. */
enum tarn_status rig_open(struct rig *rig);
void rig_free(struct rig *rig); /* its connector is closed */

/* What "computing" leaves in a page: bytes that depend on the block and the group. */
void page_fill(struct rig *rig, uint64_t slot, uint64_t block);
bool page_is(const struct rig *rig, uint64_t slot, uint64_t block);

/* lookup() of the first token_count tokens. */
enum tarn_status lookup(struct rig *rig, uint64_t id, size_t token_count, uint64_t computed,
                        struct tarn_offer *out_offer);
/* A step of one request, begun; slot of block b is `slot` + b, in both groups. */
void step(struct rig *rig, struct tarn_step_request part, uint64_t slot);
void forward(struct rig *rig, enum tarn_status status);
void transfers(struct rig *rig); /* take all reports that are there */
void settle(struct rig *rig);    /* until all that was started is retired, and saves are over */
struct tarn_loaded verdict(struct rig *rig); /* wait for that on one load */
void finish(struct rig *rig, uint64_t id);
/* Compute a prompt of so many blocks and save it. */
void save_prompt(struct rig *rig, uint64_t id, uint64_t block_count);

#endif
