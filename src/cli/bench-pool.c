/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-pool.h"

#include <stdio.h>

#include "cli/command.h"
#include "cli/pool-rows.h"

enum { RUNS_DEFAULT = 7, CONDITIONS_BYTES = 512 };

static const char usage[] =
    "usage: tarn bench pool [options]\n\n"
    "  --runs N      of each side and row, whose median counts; odd, at most 101; default 7\n"
    "  --cpu-time    count processor time, not the clock's: for a machine with other load\n"
    "  --quick       leave out the lookup among 10^7 entries (it takes 3 GiB and half a minute)\n"
    "  --json FILE   write the numbers there as well\n"
    "  --check       exit with 1 and name the rows that miss their bar\n\n"
    "Needs about 3 GiB in /dev/shm for a moment.\n";

struct bench {
    struct pool_rows_options options;
    char huge_pages[BENCH_LINE_BYTES];
    struct bench_rows rows;
};

static void conditions_put(const void *context, struct json_builder *builder, struct json *root)
{
    const struct bench *bench = context;
    json_put(builder, root, "huge_pages", json_new_string(builder, bench->huge_pages));
    json_put(builder, root, "cpu_time", json_new_bool(builder, bench->options.cpu_time));
}

static int report(const struct bench *bench, const struct bench_command *command)
{
    char conditions[CONDITIONS_BYTES];
    const struct bench_report report = { .command = command,
                                         .rows = &bench->rows,
                                         .other = "other",
                                         .conditions = conditions,
                                         .conditions_put = conditions_put,
                                         .context = bench };
    (void)snprintf(conditions, sizeof(conditions),
                   "pools and files in /dev/shm, huge pages there: %s, one thread a process, %s\n",
                   bench->huge_pages, bench->options.cpu_time ? "processor time" : "elapsed time");
    return bench_report(&report);
}

int bench_pool(int argc, char **argv)
{
    static struct bench bench = { .options.runs = RUNS_DEFAULT };
    const struct flag flags[] = {
        { .name = "cpu-time", .is_set = &bench.options.cpu_time },
        { .name = "quick", .is_set = &bench.options.is_quick },
    };
    struct bench_command command = { .name = "pool",
                                     .usage = usage,
                                     .flags = flags,
                                     .flag_count = LENGTH_OF(flags),
                                     .runs = &bench.options.runs };
    int status;
    if (!bench_begin(&command, argc, argv, &status))
        return status;
    bench_line_find("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", bench.huge_pages);
    if (pool_rows_measure(&bench.options, &bench.rows) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return report(&bench, &command);
}
