/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-rows.h - what `tarn bench pool` measures: the pool beside memcpy, in one run.
 *
 * Pools and files are made in a new folder of /dev/shm and removed at the end. One thread; some
 * rows start child processes.
 */
#ifndef CLI_POOL_ROWS_H
#define CLI_POOL_ROWS_H

#include "cli/bench-report.h"

struct pool_rows_options {
    uint32_t runs; /* of each side; odd, at most BENCH_RUNS_MAX */
    bool cpu_time; /* count processor time: for a machine that does other things as well */
    bool is_quick; /* leave the row of 10^7 entries out */
};

/* Measure all rows. Failures are logged. */
NODISCARD enum tarn_status pool_rows_measure(const struct pool_rows_options *options,
                                             struct bench_rows *out_rows);

#endif
