/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - time. Pure code takes `now_ns` as an argument and never calls this. */
#ifndef OS_CLOCK_H
#define OS_CLOCK_H

#include <time.h>

#include "base/base.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds since an arbitrary start; steady, not set by anyone. */
static inline uint64_t clock_now_ns(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Processor time that all threads of this process have used, in nanoseconds. */
static inline uint64_t clock_cpu_ns(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
