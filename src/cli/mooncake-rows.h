/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncake-rows.h - what `tarn bench mooncake` measures: Tarn's store on a Mooncake pool beside
 * Mooncake's own Python package, in one run.
 *
 * The pool is a master's that is there, with the memory that is lent to it; or a master of the
 * bench's own and a donor, each a process, all on this host. Either side has a client that lends
 * nothing, so that the same bytes cross the same network: Tarn's in this process, through the C
 * library or the bridge, as every pool of Tarn's has it; the package's in a Python of its own
 * (bench-wheel.h) and in the environment as the user has it, without what Tarn sets for its own
 * (store/mooncake/environment.h). What Tarn does besides (header, checksum of every byte, the
 * question whether a page is there) is in its time.
 *
 * Pages are new in every run, are compared byte by byte after Tarn has got them, and are removed.
 * They have room for their header before them, as slots have and pages of an engine with headroom
 * (tarn.h). Two kinds of rows are not judged, and show what things cost: a put with the header
 * apart, as of an engine without headroom that saves in place, and unchecked ones, which call the
 * provider from C and do nothing besides.
 */
#ifndef CLI_MOONCAKE_ROWS_H
#define CLI_MOONCAKE_ROWS_H

#include "cli/bench-report.h"
#include "cli/bench-wheel.h"

struct mooncake_rows_options {
    uint32_t runs;      /* of each side and row; odd */
    const char *master; /* as find_master() has it; NULL: one of the bench's own */
    const char *python; /* NULL: python3 on the PATH */
};

struct mooncake_rows {
    struct bench_rows rows;
    char master[MOONCAKE_TEXT_BYTES_MAX + 1];
    char provider[BENCH_LINE_BYTES];   /* what Tarn called */
    char version[WHEEL_VERSION_BYTES]; /* of the Python package */
};

/* Measure all rows, in the main thread of a process that has one. Failures are logged. AGAIN: told
 * to end. Nothing is left running. */
NODISCARD enum tarn_status mooncake_rows_measure(const struct mooncake_rows_options *options,
                                                 struct mooncake_rows *out_rows);

#endif
