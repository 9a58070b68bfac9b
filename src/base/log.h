/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - one line of text per event, to standard error or to a sink of the user's.
 *
 * The function that turns a cause into a status logs it, once; those above stay
 * silent. Every function is safe in any thread; none allocates and none can fail.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>

#include "base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

enum { LOG_LINE_BYTES_MAX = 2048 }; /* longer lines end in "..." */

/* Lines above `level` are dropped. Default: LOG_INFO. */
void log_set_level(enum log_level level);

/* Hand each line (without newline) to `sink` in place of standard error; NULL: back to it. The sink
 * is called in the thread that logs and must not log. */
typedef void (*log_sink_fn)(void *context, enum log_level level, const char *line);
void log_set_sink(log_sink_fn sink, void *context);

PRINTF_LIKE(2, 3) void log_write(enum log_level level, const char *format, ...);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* At most one line in `interval_ms` through one limiter; the next line says how many were left out.
 */
struct log_limit {
    uint64_t interval_ms;
    _Atomic uint64_t next_ms;
    _Atomic uint64_t dropped_count;
};

PRINTF_LIKE(3, 4)
void log_write_limited(struct log_limit *limit, enum log_level level, const char *format, ...);

/* A limiter of this place in the code: one line in 5 seconds. */
#define LOG_LIMITED(level, ...)                                                                    \
    do {                                                                                           \
        static struct log_limit log_limit_ = { .interval_ms = 5000 };                              \
        log_write_limited(&log_limit_, (level), __VA_ARGS__);                                      \
    } while (0)

#endif
