/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_level = LOG_INFO;
static _Atomic(log_sink_fn) log_sink;
static _Atomic(void *) log_sink_context;

void log_set_level(enum log_level level)
{
    atomic_store(&log_level, (int)level);
}

void log_set_sink(log_sink_fn sink, void *context)
{
    atomic_store(&log_sink, NULL);
    atomic_store(&log_sink_context, context);
    atomic_store(&log_sink, sink);
}

static const char *log_prefix(enum log_level level)
{
    switch (level) {
    case LOG_ERROR:
        return "tarn: error: ";
    case LOG_WARN:
        return "tarn: warning: ";
    case LOG_INFO:
        return "tarn: ";
    case LOG_DEBUG:
        return "tarn: debug: ";
    }
    return "tarn: ";
}

static void log_emit(enum log_level level, char *line, size_t prefix_bytes, size_t length_bytes)
{
    const log_sink_fn sink = atomic_load(&log_sink);
    if (sink) {
        sink(atomic_load(&log_sink_context), level, line + prefix_bytes);
        return;
    }
    line[length_bytes] = '\n';
    /* One write, so that lines of threads and processes do not mix. */
    if (write(STDERR_FILENO, line, length_bytes + 1) < 0)
        return; /* nowhere left to complain */
}

static void log_format(enum log_level level, uint64_t dropped_count, const char *format,
                       va_list args)
{
    char line[LOG_LINE_BYTES_MAX];
    const size_t room_bytes = sizeof(line) - 48; /* for the note on dropped lines and '\n' */
    const size_t prefix_bytes = (size_t)snprintf(line, room_bytes, "%s", log_prefix(level));
    const int added = vsnprintf(line + prefix_bytes, room_bytes - prefix_bytes, format, args);
    if (added < 0)
        return;
    size_t length_bytes = prefix_bytes + (size_t)added;
    if (length_bytes >= room_bytes) {
        length_bytes = room_bytes - 1;
        memcpy(line + length_bytes - 3, "...", sizeof("..."));
    }
    if (dropped_count > 0)
        length_bytes +=
            (size_t)snprintf(line + length_bytes, sizeof(line) - length_bytes - 1,
                             " (%llu like it left out)", (unsigned long long)dropped_count);
    log_emit(level, line, prefix_bytes, length_bytes);
}

void log_write(enum log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
        return;
    va_list args;
    va_start(args, format);
    log_format(level, 0, format, args);
    va_end(args);
}

static uint64_t log_now_ms(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void log_write_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
        return;
    const uint64_t now_ms = log_now_ms();
    uint64_t next_ms = atomic_load(&limit->next_ms);
    if (now_ms < next_ms ||
        !atomic_compare_exchange_strong(&limit->next_ms, &next_ms, now_ms + limit->interval_ms)) {
        atomic_fetch_add(&limit->dropped_count, 1);
        return;
    }
    va_list args;
    va_start(args, format);
    log_format(level, atomic_exchange(&limit->dropped_count, 0), format, args);
    va_end(args);
}
