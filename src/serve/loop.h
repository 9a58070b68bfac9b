/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - the thread that owns scheduler, engine state and connector, and turns jobs into text.
 *
 * A turn: take jobs that came in and clients that went, ask the scheduler for a batch, run it,
 * sample, hand text to the jobs. Without work the loop sleeps until an event. Everything but the
 * calls marked "any thread" belongs to the thread that owns the server.
 */
#ifndef SERVE_LOOP_H
#define SERVE_LOOP_H

#include "base/base.h"
#include "engine/engine.h"
#include "os/wakeup.h"
#include "sched/sched.h"
#include "serve/job.h"

struct loop;

struct loop_options {
    struct engine *engine; /* borrowed */
    struct sched *sched;   /* borrowed; the loop's alone between start and stop */
    uint32_t jobs_max;     /* alive at once */
    uint32_t batch_size_max;
    uint32_t stall_ms;   /* 0: LOOP_STALL_MS */
    struct wakeup *news; /* signalled when jobs have news */
};

NODISCARD enum tarn_status loop_create(const struct loop_options *options, struct loop **out_loop);
void loop_destroy(struct loop *loop); /* stopped; NULL is fine */

NODISCARD enum tarn_status loop_start(struct loop *loop);

/* End the thread after its current pass and wait for it. Jobs that are left fail. */
void loop_stop(struct loop *loop);

/* Any thread. Hand a job over; the loop takes a reference of its own. Outcomes: NO_SPACE when
 * jobs_max are alive. */
NODISCARD enum tarn_status loop_submit(struct loop *loop, struct job *job);

/* Any thread. Some job's is_cancelled was set. */
void loop_wake(struct loop *loop);

/* Any thread. */
uint32_t loop_job_count(const struct loop *loop);

enum loop_health { LOOP_HEALTHY, LOOP_STALLED, LOOP_DEAD };

/* Any thread. Stalled: there is work, and no batch was finished for stall_ms. */
enum { LOOP_STALL_MS = 30000 };
enum loop_health loop_health_of(const struct loop *loop);

#endif
