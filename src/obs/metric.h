/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metric.h - the process's metrics: one table, counted from any thread, shown as Prometheus text.
 *
 * Counting is one atomic operation on static memory: it cannot fail, block or allocate, so a
 * metric can never fail a request. The table is in metric-list.h; families (several rows of one
 * name with different labels) stand together there.
 */
#ifndef OBS_METRIC_H
#define OBS_METRIC_H

#include "base/base.h"
#include "base/text.h"
#include "obs/metric-list.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE };

enum metric {
#define X(id, kind, name, labels, help) METRIC_##id,
    METRIC_LIST(X)
#undef X
        METRIC_COUNT
};

enum histogram {
#define X(id, name, help) HISTOGRAM_##id,
    HISTOGRAM_LIST(X)
#undef X
        HISTOGRAM_COUNT
};

/* Counters only go up; gauges also take negative steps. */
void metric_add(enum metric metric, int64_t step);
void metric_set(enum metric metric, int64_t value); /* gauges */
int64_t metric_get(enum metric metric);

/* Count one duration. Buckets are fixed: 1 ms to 100 s, three a decade. */
void histogram_observe(enum histogram histogram, uint64_t duration_ns);

/* Append all metrics in Prometheus text format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). */
NODISCARD enum tarn_status metrics_print(struct text *text);

void metrics_reset(void); /* for tests */

#endif
