/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - keeps a connector from waiting for a store that does not answer: counts what came of
 * calls, leaves the store alone while it is down, and sends the canary that reopens it.
 *
 * For a store beyond this host the canary, and questions of others, run on a thread of the watch's
 * (watch.asker); else here. The loop's.
 */
#ifndef CONNECTOR_WATCH_H
#define CONNECTOR_WATCH_H

#include "connector/asker.h"
#include "connector/canary.h"
#include "connector/health.h"

struct watch {
    struct health health;
    struct asker asker; /* not open: the store is of this host */
    struct canary canary;
    uint64_t canary_deadline_ns; /* one that takes longer has failed */
    uint64_t canary_sent_ns;
    uint64_t outage_count;
    bool load_is_out;
    bool is_open;
};

/* Fails as canary_open() and asker_open(); then nothing is left. */
NODISCARD enum tarn_status watch_open(struct watch *watch, struct store *store,
                                      uint32_t canary_namespace, bool puts,
                                      uint64_t canary_deadline_ns);
/* No question is out (asker_wait_idle()). Zeroed is fine. */
void watch_close(struct watch *watch);

/* Whether to ask the store for anything. */
bool watch_may_ask(const struct watch *watch);

/* A call to the store was answered; or it failed, or its deadline passed. */
void watch_good(struct watch *watch, bool is_load);
void watch_bad(struct watch *watch, bool is_load, uint64_t now_ns);

/* Whether a load's call is out past its deadline. It takes the store down by itself, and while it
 * is out no canary is sent: nothing could be loaded. */
void watch_load_is_out(struct watch *watch, bool is_out, uint64_t now_ns);

/* Send a canary if it is time, and hear of one that is out. */
void watch_look(struct watch *watch, uint64_t now_ns);

#endif
