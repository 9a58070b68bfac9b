/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-connector.h - for tests: a connector that is slow, forgetful and faulty on request, and that
 * distrusts the engine.
 *
 * Its pages hold, for each position, a hash of the scope and of all tokens up to there, so that it
 * knows what a page must hold and sees every page that was saved too early, written under a
 * transfer, or reused. What it finds wrong goes to `fault`, the first one stays. Time is
 * fake_tick(). Allocates nothing.
 */
#ifndef SCHED_FAKE_CONNECTOR_H
#define SCHED_FAKE_CONNECTOR_H

#include "base/base.h"

enum {
    FAKE_T = 4,
    FAKE_PAGE_BYTES = 64,
    FAKE_TOKENS_MAX = 96,
    FAKE_BLOCKS_MAX = FAKE_TOKENS_MAX / FAKE_T,
    FAKE_REQUESTS_MAX = 48,
    FAKE_TRANSFERS_MAX = 128,
    FAKE_REPORTS_MAX = 1024,
    FAKE_OBJECTS_MAX = 1024,
    FAKE_POISON = 0xff, /* what a load that is not over, or failed, leaves: no finite number */
};

/* One position of a page. */
struct fake_cell {
    uint64_t hash;
    uint64_t check;
};

/* A token list and the hash of each of its prefixes. */
struct fake_text {
    uint32_t count;
    int32_t tokens[FAKE_TOKENS_MAX];
    uint64_t prefix[FAKE_TOKENS_MAX + 1];
};

void fake_text_init(struct fake_text *text, const struct tarn_scope *scope);
void fake_text_add(struct fake_text *text, int32_t token);
struct fake_cell fake_text_cell(const struct fake_text *text, uint32_t position);

enum fake_call {
    FAKE_LOOKUP,
    FAKE_STEP,
    FAKE_LOAD_START,
    FAKE_LOAD_POLL,
    FAKE_VERDICT,
    FAKE_VERDICT_APPLY,
    FAKE_FORWARD_DONE,
    FAKE_TRANSFERS,
    FAKE_FINISHED,
    FAKE_RETIRED,
    FAKE_QUIESCE,
    FAKE_CALL_COUNT
};

enum fake_load { FAKE_NO_LOAD, FAKE_OFFERED, FAKE_LOADING, FAKE_READY, FAKE_REPORTED, FAKE_LOADED };

struct fake_request {
    uint64_t id;
    bool known;
    bool finished; /* until retired() names it */
    bool dummy;
    struct fake_text text;
    void *pages[FAKE_BLOCKS_MAX];
    uint32_t computed;
    uint32_t saved_count; /* blocks that need no save */
    uint32_t offer_block;
    uint32_t offer_count;
    uint32_t good_count;
    enum fake_load load;
    bool load_begun;
    uint32_t planned_end; /* saves of the step under way: blocks [saved_count, planned_end) */
};

struct fake_transfer {
    bool active;
    uint16_t kind;
    bool fails; /* a load that leaves poison */
    bool late;  /* ... and that the verdict does not wait for */
    uint64_t id;
    uint32_t block;
    void *page;
    uint64_t end_tick;
    struct fake_cell cells[FAKE_T]; /* what the page holds, or will */
};

/* Chances are per 1000. */
struct fake_knobs {
    uint32_t error[FAKE_CALL_COUNT];
    uint32_t short_load;
    uint32_t good_plus_one; /* not 0: loads have one block less than this that is good */
    uint32_t late_load;
    uint32_t drop_save;
    uint32_t lose_object; /* a tick */
    uint32_t unsound_offer;
    uint32_t unsound_verdict;
    uint32_t delay_max; /* ticks of a transfer */
    uint32_t late_max;  /* ticks of a late one */
    bool load_failure_fails;
};

struct tarn_connector {
    struct fake_knobs knobs;
    uint64_t random;
    int poll_fd; /* -1 unless a test sets it */
    uint64_t tick;
    uint64_t step_number;
    bool step_open;
    uint64_t metadata; /* the step that load_start() may name */
    uint64_t started_step;
    struct fake_request requests[FAKE_REQUESTS_MAX];
    struct fake_transfer transfers[FAKE_TRANSFERS_MAX];
    struct tarn_transfer reports[FAKE_REPORTS_MAX]; /* ring */
    size_t report_first;
    size_t report_count;
    uint64_t objects[FAKE_OBJECTS_MAX]; /* hash of the prefix that ends a saved block; 0: none */
    struct fake_cell contents[FAKE_OBJECTS_MAX][FAKE_T];
    uint64_t retired_ids[FAKE_REQUESTS_MAX];
    size_t retired_count;
    uint64_t load_count;  /* blocks that were loaded, and good */
    uint64_t save_count;  /* blocks that were saved */
    uint64_t error_count; /* calls that failed on purpose */
    char fault[256];
};

const struct tarn_connector_ops *fake_connector_ops(void);

void fake_init(struct tarn_connector *fake, uint64_t seed);
/* As after a restart of the engine: requests and transfers are gone, objects stay. */
void fake_restart(struct tarn_connector *fake);
void fake_tick(struct tarn_connector *fake);
/* Transfers of a kind that have the page, as they really are. */
uint32_t fake_busy(const struct tarn_connector *fake, const void *page,
                   enum tarn_transfer_kind kind);
/* Whether the request was finished while transfers remained, and retired() has not named it. */
bool fake_is_pending(const struct tarn_connector *fake, uint64_t id);

PRINTF_LIKE(2, 3) void fake_fault(struct tarn_connector *fake, const char *format, ...);

uint64_t fake_random(uint64_t *state);
bool fake_chance(uint64_t *state, uint32_t per_mille);

#endif
