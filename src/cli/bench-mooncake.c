/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-mooncake.h"

#include <stdio.h>

#include "cli/command.h"
#include "cli/mooncake-rows.h"

enum { RUNS_DEFAULT = 51, CONDITIONS_BYTES = 2048 };

static const char usage[] =
    "usage: tarn bench mooncake [options]\n\n"
    "  --master ADDRESS  HOST:PORT or file://PATH: the master of a pool that others lend memory "
    "to;\n"
    "                    without it a master and a donor of 512 MiB are started on this host\n"
    "  --python PROGRAM  the Python that has Mooncake's package; default: python3\n"
    "  --runs N          of each side and row, whose median counts; odd, at most 101; default 51\n"
    "  --json FILE       write the numbers there as well\n"
    "  --check           exit with 1 and name the rows that miss their bar\n";

struct bench {
    struct mooncake_rows_options options;
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

static int report(const struct bench *bench, const struct bench_command *command)
{
    char conditions[CONDITIONS_BYTES];
    const struct mooncake_rows *rows = &bench->rows;
    const struct bench_report report = { .command = command,
                                         .rows = &rows->rows,
                                         .other = "wheel",
                                         .conditions = conditions,
                                         .conditions_put = conditions_put,
                                         .context = bench };
    (void)snprintf(conditions, sizeof(conditions),
                   "master %s, %s; Tarn through %s; the Python package %s in a process of its own; "
                   "TCP\n",
                   rows->master,
                   bench->options.master ? "memory that others lend"
                                         : "a donor of 512 MiB, all on this host",
                   rows->provider, rows->version);
    return bench_report(&report);
}

int bench_mooncake(int argc, char **argv)
{
    static struct bench bench = { .options.runs = RUNS_DEFAULT };
    const struct flag flags[] = {
        { .name = "master", .text = &bench.options.master },
        { .name = "python", .text = &bench.options.python },
    };
    struct bench_command command = { .name = "mooncake",
                                     .usage = usage,
                                     .flags = flags,
                                     .flag_count = LENGTH_OF(flags),
                                     .runs = &bench.options.runs };
    int status;
    if (!bench_begin(&command, argc, argv, &status))
        return status;
    if (mooncake_rows_measure(&bench.options, &bench.rows) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return report(&bench, &command);
}
