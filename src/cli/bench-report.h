/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-report.h - what a bench measures, in rows that set Tarn beside another, and how they are
 * told: a table, JSON, and with --check an exit status.
 *
 * A row's value is what is judged. One that compares is a median of ratios, each of two runs that
 * took turns, so that whatever else the machine did fell on both.
 */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "base/base.h"
#include "base/text.h"
#include "cli/flags.h"
#include "codec/json.h"

enum {
    BENCH_ROWS_MAX = 24,
    BENCH_ROW_NAME_BYTES = 64,
    BENCH_ROW_NOTE_BYTES = 96,
    BENCH_RUNS_MAX = 101,
    BENCH_LINE_BYTES = 256,
    BENCH_FLAGS_MAX = 4,
};

struct bench_row {
    char name[BENCH_ROW_NAME_BYTES];
    const char *unit; /* of ours and theirs */
    double ours;
    double theirs; /* 0: nothing to compare with */
    double value;  /* what is judged: a ratio, a time, a size */
    double bar;    /* 0: not judged */
    bool less_is_better;
    char note[BENCH_ROW_NOTE_BYTES]; /* why a row was left out; empty: it was not */
};

struct bench_rows {
    uint32_t count;
    struct bench_row rows[BENCH_ROWS_MAX];
};

/* A further row, its unit GB/s and everything else zero. There is room. */
struct bench_row *bench_row_add(struct bench_rows *rows, const char *name);

/* Sorts the values: the one below which lies this part of them; 0.5 is the median of an odd number.
 */
double bench_quantile(double *values, size_t count, double part);

/* Set beside each other what was measured in `count` pairs of runs, in the row's unit: the medians
 * of both, and as the value that of the pairs' ratios. */
void bench_row_compare(struct bench_row *row, const double *ours, const double *theirs,
                       size_t count);

/* The same for pairs of runs that moved `bytes` each, in GB/s, from their seconds. */
void bench_row_rates(struct bench_row *row, double bytes, const double *ours_s,
                     const double *theirs_s, size_t count);

/* Of the machine, before anything was measured. */
struct bench_machine {
    char cpu[BENCH_LINE_BYTES];
    char kernel[BENCH_LINE_BYTES];
    char load[BENCH_LINE_BYTES];
};

/* The first line of a file that begins with `prefix`, without it; "unknown" if there is none. */
void bench_line_find(const char *path, const char *prefix, char out_line[BENCH_LINE_BYTES]);

/* What a bench is told on the command line, besides flags of its own. */
struct bench_command {
    const char *name; /* "pool", as the user called it after `tarn bench` */
    const char *usage;
    const struct flag *flags; /* of its own, at most BENCH_FLAGS_MAX */
    size_t flag_count;
    uint32_t *runs; /* --runs: of each side and row; odd. Holds the default */
    const char *json_path;
    bool check;
    struct bench_machine machine;
};

/* Read the command line, print help, look at the machine. Whether to go on: if not, *out_status is
 * the exit status. */
NODISCARD bool bench_begin(struct bench_command *command, int argc, char **argv, int *out_status);

struct bench_report {
    const struct bench_command *command;
    const struct bench_rows *rows;
    const char *other;      /* who it is that Tarn is beside, for the column's head */
    const char *conditions; /* of the table, lines that end in a newline */
    void (*conditions_put)(const void *context, struct json_builder *builder, struct json *root);
    const void *context;
};

/* Print the table, write the JSON, and judge. The exit status (command.h): 1 also with --check when
 * a row misses its bar, each of which is named. */
int bench_report(const struct bench_report *report);

#endif
