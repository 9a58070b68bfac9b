/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-mooncake.h"

#include <stdio.h>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/mooncake-rows.h"

enum { RUNS_DEFAULT = 15, CONDITIONS_BYTES = 2048 };

static const char usage[] =
    "usage: tarn bench mooncake [options]\n\n"
    "  --master ADDRESS  HOST:PORT or file://PATH: the master of a pool that others lend memory "
    "to;\n"
    "                    without it a master and a donor of 512 MiB are started on this host\n"
    "  --python PROGRAM  the Python that has Mooncake's package; default: python3\n"
    "  --runs N          of each side and row, whose median counts; odd, at most 31; default 15\n"
    "  --json FILE       write the numbers there as well\n"
    "  --check           exit with 1 and name the rows that miss their bar\n";

struct bench {
    struct mooncake_rows_options options;
    const char *json_path;
    bool check;
    bool help;
    struct bench_machine machine;
    struct mooncake_rows rows;
};

static void conditions_put(const void *context, struct json_builder *builder, struct json *root)
{
    const struct bench *bench = context;
    json_put(builder, root, "master", json_new_string(builder, bench->rows.master));
    json_put(builder, root, "own_pool", json_new_bool(builder, !bench->options.master));
    json_put(builder, root, "tarn_calls", json_new_string(builder, bench->rows.provider));
    json_put(builder, root, "wheel", json_new_string(builder, bench->rows.version));
}

static int report(const struct bench *bench)
{
    char conditions[CONDITIONS_BYTES];
    const struct mooncake_rows *rows = &bench->rows;
    const struct bench_report report = { .name = "mooncake",
                                         .machine = &bench->machine,
                                         .rows = &rows->rows,
                                         .runs = bench->options.runs,
                                         .other = "wheel",
                                         .conditions = conditions,
                                         .conditions_put = conditions_put,
                                         .context = bench,
                                         .json_path = bench->json_path,
                                         .check = bench->check };
    (void)snprintf(conditions, sizeof(conditions),
                   "master %s, %s; Tarn through %s; the Python package %s in a process of its own; "
                   "TCP\n",
                   rows->master,
                   bench->options.master ? "memory that others lend"
                                         : "a donor of 512 MiB, all on this host",
                   rows->provider, rows->version);
    return bench_report(&report);
}

static enum tarn_status arguments_read(struct bench *bench, int argc, char **argv)
{
    const struct flag flags[] = {
        { .name = "master", .text = &bench->options.master },
        { .name = "python", .text = &bench->options.python },
        { .name = "runs", .count = &bench->options.runs, .count_max = BENCH_RUNS_MAX },
        { .name = "json", .text = &bench->json_path },
        { .name = "check", .is_set = &bench->check },
        { .name = "help", .is_set = &bench->help },
    };
    const struct flag_list list = { .command = "bench mooncake",
                                    .flags = flags,
                                    .flag_count = LENGTH_OF(flags) };
    TRY(flags_read(&list, argc, argv));
    return bench_runs_check(bench->options.runs);
}

int bench_mooncake(int argc, char **argv)
{
    static struct bench bench = { .options.runs = RUNS_DEFAULT };
    if (arguments_read(&bench, argc, argv) != TARN_OK)
        return EXIT_STATUS_USAGE;
    if (bench.help)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    bench_machine_read(&bench.machine);
    if (mooncake_rows_measure(&bench.options, &bench.rows) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return report(&bench);
}
