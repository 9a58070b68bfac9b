/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker-parts.h - inside the worker: what its files offer each other. worker.c: life, and what is
 * told of transfers; worker-step.c: taking a step in; worker-load.c: loads; worker-report.c:
 * reports and verdicts; worker-save.c: saves from plan to result.
 */
#ifndef CONNECTOR_WORKER_PARTS_H
#define CONNECTOR_WORKER_PARTS_H

#include "connector/worker.h"

enum {
    SAVE_STARTED = TARN_TRANSFER_SAVE << 1 | TARN_TRANSFER_STARTED,
    SAVE_RETIRED = TARN_TRANSFER_SAVE << 1 | TARN_TRANSFER_RETIRED,
    LOAD_STARTED = TARN_TRANSFER_LOAD << 1 | TARN_TRANSFER_STARTED,
    LOAD_RETIRED = TARN_TRANSFER_LOAD << 1 | TARN_TRANSFER_RETIRED,
};

/* ---- worker.c ---- */
uint64_t worker_page_bytes(const struct worker *worker, uint32_t group);
struct wire_shape worker_shape(const struct worker *worker);
void worker_gauges_update(const struct worker *worker);
/* Room was made when the transfer was planned. */
void worker_report_transfer(struct worker *worker, uint64_t id, uint64_t block, uint32_t group,
                            tarn_page page, uint32_t kind_and_phase);
/* Until a thread has something to give back, which is then taken, or the deadline. */
void worker_wait(struct worker *worker, uint64_t deadline_ns);

void worker_hear_answer(struct worker *worker, enum answer answer, bool is_load, uint64_t now_ns);

/* ---- worker-load.c ---- */
void load_destroy(struct load *load); /* NULL is fine */
void load_free_if_over(struct load *load);
/* The load of a request that has no verdict yet; or NULL. */
struct load *worker_load_find(const struct worker *worker, uint64_t id);
void worker_load_conclude(struct worker *worker, struct load *load);
/* Begin no further batch of it. */
void worker_load_stop(struct worker *worker, struct load *load);
void worker_load_take(struct worker *worker, const struct load_batch *batch, uint64_t now_ns);
void worker_loads_grant(struct worker *worker);
void worker_loads_push(struct worker *worker);
/* When the load is late at the earliest. */
uint64_t worker_load_due_ns(const struct worker *worker, const struct load *load);
void worker_loads_check_deadlines(struct worker *worker, uint64_t now_ns);

/* ---- worker-report.c ---- */
/* With several ranks: this one has let go of a page; for its next report. Room was made when the
 * transfer was planned. */
void worker_tell_release(struct worker *worker, const struct wire_release *release);
/* With several ranks: a lease of this one's on the pages of a load, as far as there is one. */
void worker_load_lease(struct worker *worker, struct load *load);

/* ---- worker-save.c ---- */
struct transfer_request *worker_request_find(const struct worker *worker, uint64_t id);
NODISCARD enum tarn_status worker_request_make(struct worker *worker, uint64_t id);
void worker_request_drop_if_idle(struct worker *worker, struct transfer_request *request);
NODISCARD enum tarn_status worker_extras_reserve(struct worker *worker, size_t count);
struct save_extra *worker_extra_take(struct worker *worker, const struct wire_block *block);
void worker_extras_free(struct worker *worker);
/* Take the planned saves of one request out, NULL: of all, as far as steps up to step_max. */
void worker_planned_drop(struct worker *worker, const uint64_t *id, uint64_t step_max,
                         uint64_t now_ns);
void worker_save_take(struct worker *worker, const struct save_job *job, uint64_t now_ns);

#endif
