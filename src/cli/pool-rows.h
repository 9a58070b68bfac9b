/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-rows.h - what `tarn bench pool` measures: the pool beside memcpy, in one run.
 *
 * Every row that compares is the ratio of the medians of runs that take turns. Pools and files are
 * made in a new folder of /dev/shm and removed at the end. One thread; some rows start child
 * processes.
 */
#ifndef CLI_POOL_ROWS_H
#define CLI_POOL_ROWS_H

#include "base/base.h"

enum { POOL_ROWS_MAX = 24, POOL_ROW_NAME_BYTES = 64, POOL_ROW_NOTE_BYTES = 96 };

struct pool_row {
    char name[POOL_ROW_NAME_BYTES];
    const char *unit; /* of ours and theirs */
    double ours;
    double theirs; /* 0: nothing to compare with */
    double value;  /* what is judged: a ratio, a time, a size */
    double bar;    /* 0: not judged */
    bool less_is_better;
    char note[POOL_ROW_NOTE_BYTES]; /* why a row was left out; empty: it was not */
};

struct pool_rows {
    uint32_t count;
    struct pool_row rows[POOL_ROWS_MAX];
};

struct pool_rows_options {
    uint32_t runs; /* of each side, whose median counts; odd, at most 31 */
    bool cpu_time; /* count processor time: for a machine that does other things as well */
    bool is_quick; /* leave the row of 10^7 entries out */
};

static inline bool pool_row_misses(const struct pool_row *row)
{
    if (row->bar == 0.0 || row->note[0] != '\0')
        return false;
    return row->less_is_better ? row->value > row->bar : row->value < row->bar;
}

/* Measure all rows. Failures are logged. */
NODISCARD enum tarn_status pool_rows_measure(const struct pool_rows_options *options,
                                             struct pool_rows *out_rows);

#endif
