/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/watch.h"

#include <inttypes.h>

#include "base/log.h"
#include "obs/metric.h"

enum tarn_status watch_open(struct watch *watch, struct store *store, uint32_t canary_namespace,
                            bool puts, uint64_t canary_deadline_ns)
{
    *watch = (struct watch){ .canary_deadline_ns = canary_deadline_ns };
    TRY(canary_open(&watch->canary, store, canary_namespace, puts));
    if (store_traits(store)->is_beyond_host) {
        const enum tarn_status status = asker_open(&watch->asker, "tarn-probe");
        if (status != TARN_OK) {
            canary_close(&watch->canary);
            return status;
        }
    }
    watch->is_open = true;
    return TARN_OK;
}

void watch_close(struct watch *watch)
{
    if (!watch->is_open)
        return;
    if (!health_is_up(&watch->health))
        metric_add(METRIC_STORE_DOWN, -1);
    asker_close(&watch->asker);
    canary_close(&watch->canary);
    watch->is_open = false;
}

bool watch_may_ask(const struct watch *watch)
{
    return health_is_up(&watch->health);
}

void watch_good(struct watch *watch, bool is_load)
{
    health_good(&watch->health, is_load);
}

/* Each outage has its line, and its end: there is at most one a second. */
static void outage_begin(struct watch *watch, const char *why)
{
    watch->outage_count++;
    metric_add(METRIC_STORE_DOWN, 1);
    metric_add(METRIC_STORE_OUTAGES, 1);
    log_warn("the pool is left alone for 1 s: %s. Requests are computed without it until a canary "
             "comes back",
             why);
}

void watch_bad(struct watch *watch, bool is_load, uint64_t now_ns)
{
    if (health_bad(&watch->health, is_load, now_ns))
        outage_begin(watch, "three calls in a row failed or came too late");
}

void watch_load_is_out(struct watch *watch, bool is_out, uint64_t now_ns)
{
    watch->load_is_out = is_out;
    if (is_out && health_stop(&watch->health, now_ns))
        outage_begin(watch, "a load was given up, and its call to the store does not return");
}

static void canary_ask(void *context)
{
    canary_try(context);
}

static void canary_judge(struct watch *watch, uint64_t now_ns)
{
    const uint64_t took_ns = now_ns - watch->canary_sent_ns;
    const bool is_late = took_ns > watch->canary_deadline_ns;
    const char *failed_step = watch->canary.failed_step;
    if (health_canary_done(&watch->health, !failed_step && !is_late, now_ns)) {
        metric_add(METRIC_STORE_DOWN, -1);
        log_info("the pool works again, after %" PRIu64 " ms",
                 (now_ns - watch->health.down_ns) / NS_PER_MS);
        return;
    }
    LOG_LIMITED(LOG_WARN,
                "the pool is still down: the canary's %s %s (%s, %" PRIu64 " ms); it is "
                "left alone for %" PRIu64 " s",
                failed_step ? failed_step : "answer", failed_step ? "failed" : "came too late",
                tarn_strerror(watch->canary.status), took_ns / NS_PER_MS,
                watch->health.pause_ns / NS_PER_S);
}

void watch_look(struct watch *watch, uint64_t now_ns)
{
    const struct question question = { canary_ask, NULL, &watch->canary };
    if (watch->health.state == HEALTH_TRIAL) {
        if (asker_take(&watch->asker))
            canary_judge(watch, now_ns);
        return;
    }
    /* A question that was given up is still out: there is nobody to send. */
    if (health_is_up(&watch->health) || watch->load_is_out ||
        (watch->asker.is_open && asker_is_busy(&watch->asker)) ||
        !health_wants_canary(&watch->health, now_ns))
        return;
    watch->canary_sent_ns = now_ns;
    if (watch->asker.is_open) {
        const enum tarn_status begun = asker_begin(&watch->asker, &question);
        ASSERT(begun == TARN_OK); /* it was idle */
        return;
    }
    canary_try(&watch->canary);
    canary_judge(watch, clock_now_ns());
}
