/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-pool.h"

#include <stdio.h>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/pool-rows.h"

enum { RUNS_DEFAULT = 7, CONDITIONS_BYTES = 512 };

static const char usage[] =
    "usage: tarn bench pool [options]\n\n"
    "  --runs N      of each side and row, whose median counts; odd, at most 31; default 7\n"
    "  --cpu-time    count processor time, not the clock's: for a machine with other load\n"
    "  --quick       leave out the lookup among 10^7 entries (it takes 3 GiB and half a minute)\n"
    "  --json FILE   write the numbers there as well\n"
    "  --check       exit with 1 and name the rows that miss their bar\n\n"
    "Needs about 3 GiB in /dev/shm for a moment.\n";

struct bench {
    struct pool_rows_options options;
    const char *json_path;
    bool check;
    bool help;
    char huge_pages[BENCH_LINE_BYTES];
    struct bench_machine machine;
    struct bench_rows rows;
};

static void conditions_put(const void *context, struct json_builder *builder, struct json *root)
{
    const struct bench *bench = context;
    json_put(builder, root, "huge_pages", json_new_string(builder, bench->huge_pages));
    json_put(builder, root, "cpu_time", json_new_bool(builder, bench->options.cpu_time));
}

static int report(const struct bench *bench)
{
    char conditions[CONDITIONS_BYTES];
    const struct bench_report report = { .name = "pool",
                                         .machine = &bench->machine,
                                         .rows = &bench->rows,
                                         .runs = bench->options.runs,
                                         .other = "other",
                                         .conditions = conditions,
                                         .conditions_put = conditions_put,
                                         .context = bench,
                                         .json_path = bench->json_path,
                                         .check = bench->check };
    (void)snprintf(conditions, sizeof(conditions),
                   "pools and files in /dev/shm, huge pages there: %s, one thread a process, %s\n",
                   bench->huge_pages, bench->options.cpu_time ? "processor time" : "elapsed time");
    return bench_report(&report);
}

static enum tarn_status arguments_read(struct bench *bench, int argc, char **argv)
{
    const struct flag flags[] = {
        { .name = "runs", .count = &bench->options.runs, .count_max = BENCH_RUNS_MAX },
        { .name = "cpu-time", .is_set = &bench->options.cpu_time },
        { .name = "quick", .is_set = &bench->options.is_quick },
        { .name = "json", .text = &bench->json_path },
        { .name = "check", .is_set = &bench->check },
        { .name = "help", .is_set = &bench->help },
    };
    const struct flag_list list = { .command = "bench pool",
                                    .flags = flags,
                                    .flag_count = LENGTH_OF(flags) };
    TRY(flags_read(&list, argc, argv));
    return bench_runs_check(bench->options.runs);
}

int bench_pool(int argc, char **argv)
{
    static struct bench bench = { .options.runs = RUNS_DEFAULT };
    if (arguments_read(&bench, argc, argv) != TARN_OK)
        return EXIT_STATUS_USAGE;
    if (bench.help)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    bench_machine_read(&bench.machine);
    bench_line_find("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", bench.huge_pages);
    if (pool_rows_measure(&bench.options, &bench.rows) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return report(&bench);
}
