/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h - for tests: a scheduler with the fake connector, driven one pass at a time. Its
 * forward pass writes what belongs at each position and fails the test on a wrong page. */
#ifndef SCHED_HARNESS_H
#define SCHED_HARNESS_H

#include "sched/fake-connector.h"
#include "sched/sched.h"
#include "sched/state.h"

enum { HARNESS_PAGES = 24, HARNESS_REQUESTS = 32 };

struct harness {
    struct sched_options options;
    struct tarn_connector fake;
    struct sched *sched;
    _Alignas(64) uint8_t memory[HARNESS_PAGES][FAKE_PAGE_BYTES];
    struct fake_text texts[HARNESS_REQUESTS]; /* by id */
    uint64_t now_ns;
    int32_t first_token;      /* of the prompts submitted next */
    struct sched_batch batch; /* of the last pass */
    struct sched_item items[8];
};

extern struct harness harness;

/* Default options: 24 pages of 4 tokens, a context of 64, 3 requests, 16 tokens a pass, a queue of
 * 8. Change harness.options, then start. */
void harness_init(bool with_pool);
void harness_start(void);
/* The engine restarts; the pool keeps what it has. */
void harness_restart(void);
void harness_stop(void);

/* A prompt of `count` tokens, first_token and up; arrives now. */
enum tarn_status harness_try_submit(uint64_t id, uint32_t count, uint32_t max_tokens,
                                    uint32_t flags);
void harness_submit(uint64_t id, uint32_t count, uint32_t max_tokens);

/* One pass, without taking its tokens. Time and transfers go on by one tick before it. */
enum tarn_status harness_pass(void);
/* Passes until the request's first logits are there; its prompt is computed. */
void harness_prefill(uint64_t id);
/* Append a token to whoever had logits wanted in the last pass. */
void harness_append(void);
/* Run the request to its end: `count` tokens. */
void harness_finish(uint64_t id, uint32_t count);
/* Ticks until nothing is left to wait for. */
void harness_settle(void);

const struct request *harness_request(uint64_t id); /* NULL: the scheduler has let go of it */
struct sched_sources harness_sources(uint64_t id);
/* The request's item in the last pass, or NULL. */
const struct sched_item *harness_item(uint64_t id);
uint32_t harness_pages(enum kv_page_state state);
uint32_t harness_pinned(void);

#endif
