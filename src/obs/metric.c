/* SPDX-License-Identifier: Apache-2.0 */
#include "obs/metric.h"

#include <stdatomic.h>
#include <string.h>

struct metric_row {
    enum metric_kind kind;
    const char *name;
    const char *labels;
    const char *help;
};

static const struct metric_row metric_rows[] = {
#define X(id, kind, name, labels, help) { METRIC_##kind, name, labels, help },
    METRIC_LIST(X)
#undef X
};

static const struct {
    const char *name;
    const char *help;
} histogram_rows[] = {
#define X(id, name, help) { name, help },
    HISTOGRAM_LIST(X)
#undef X
};

/* Upper bounds of the buckets, in nanoseconds and as the text of their seconds. */
static const struct {
    uint64_t ns;
    const char *text;
} bucket_rows[] = {
    { 1000000, "0.001" },  { 2000000, "0.002" },  { 5000000, "0.005" },  { 10000000, "0.01" },
    { 20000000, "0.02" },  { 50000000, "0.05" },  { 100000000, "0.1" },  { 200000000, "0.2" },
    { 500000000, "0.5" },  { 1000000000, "1" },   { 2000000000, "2" },   { 5000000000, "5" },
    { 10000000000, "10" }, { 20000000000, "20" }, { 50000000000, "50" }, { 100000000000, "100" },
};

enum { BUCKET_COUNT = LENGTH_OF(bucket_rows) };

static _Atomic int64_t metric_values[METRIC_COUNT];

static struct {
    _Atomic uint64_t buckets[BUCKET_COUNT + 1]; /* the last one: above every bound */
    _Atomic uint64_t sum_ns;
} histogram_values[HISTOGRAM_COUNT];

void metric_add(enum metric metric, int64_t step)
{
    atomic_fetch_add_explicit(&metric_values[metric], step, memory_order_relaxed);
}

void metric_set(enum metric metric, int64_t value)
{
    atomic_store_explicit(&metric_values[metric], value, memory_order_relaxed);
}

int64_t metric_get(enum metric metric)
{
    return atomic_load_explicit(&metric_values[metric], memory_order_relaxed);
}

void histogram_observe(enum histogram histogram, uint64_t duration_ns)
{
    size_t bucket = 0;
    while (bucket < BUCKET_COUNT && duration_ns > bucket_rows[bucket].ns)
        bucket++;
    atomic_fetch_add_explicit(&histogram_values[histogram].buckets[bucket], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram_values[histogram].sum_ns, duration_ns,
                              memory_order_relaxed);
}

static enum tarn_status metric_print(struct text *text, enum metric metric)
{
    const struct metric_row *row = &metric_rows[metric];
    if (metric == 0 || strcmp(row->name, metric_rows[metric - 1].name) != 0) {
        const char *kind = row->kind == METRIC_COUNTER ? "counter" : "gauge";
        TRY(text_append(text, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name,
                        kind));
    }
    const char *open = row->labels[0] ? "{" : "";
    const char *close = row->labels[0] ? "}" : "";
    return text_append(text, "%s%s%s%s %lld\n", row->name, open, row->labels, close,
                       (long long)metric_get(metric));
}

static enum tarn_status histogram_print(struct text *text, enum histogram histogram)
{
    const char *name = histogram_rows[histogram].name;
    uint64_t count = 0;
    TRY(text_append(text, "# HELP %s %s\n# TYPE %s histogram\n", name,
                    histogram_rows[histogram].help, name));
    for (size_t i = 0; i <= BUCKET_COUNT; i++) {
        count +=
            atomic_load_explicit(&histogram_values[histogram].buckets[i], memory_order_relaxed);
        TRY(text_append(text, "%s_bucket{le=\"%s\"} %llu\n", name,
                        i < BUCKET_COUNT ? bucket_rows[i].text : "+Inf",
                        (unsigned long long)count));
    }
    const uint64_t sum_ns =
        atomic_load_explicit(&histogram_values[histogram].sum_ns, memory_order_relaxed);
    return text_append(text, "%s_sum %llu.%09llu\n%s_count %llu\n", name,
                       (unsigned long long)(sum_ns / 1000000000),
                       (unsigned long long)(sum_ns % 1000000000), name, (unsigned long long)count);
}

enum tarn_status metrics_print(struct text *text)
{
    for (enum metric metric = 0; metric < METRIC_COUNT; metric++)
        TRY(metric_print(text, metric));
    for (enum histogram histogram = 0; histogram < HISTOGRAM_COUNT; histogram++)
        TRY(histogram_print(text, histogram));
    return TARN_OK;
}

void metrics_reset(void)
{
    for (size_t i = 0; i < METRIC_COUNT; i++)
        atomic_store(&metric_values[i], 0);
    for (size_t i = 0; i < HISTOGRAM_COUNT; i++) {
        for (size_t j = 0; j <= BUCKET_COUNT; j++)
            atomic_store(&histogram_values[i].buckets[j], 0);
        atomic_store(&histogram_values[i].sum_ns, 0);
    }
}
