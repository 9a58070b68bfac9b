/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-pool.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/pool-rows.h"
#include "codec/json.h"

enum { REPORT_BYTES_MAX = 1 << 16, LINE_BYTES = 256, RUNS_DEFAULT = 7, RUNS_MAX = 31 };

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
    char cpu[LINE_BYTES];
    char huge_pages[LINE_BYTES];
    char load[LINE_BYTES];
    struct utsname system;
    struct pool_rows rows;
};

/* ---- conditions ---- */

/* The first line of a file that begins with `prefix`, without it. */
static void line_find(const char *path, const char *prefix, char out_line[LINE_BYTES])
{
    char line[LINE_BYTES];
    (void)snprintf(out_line, LINE_BYTES, "unknown");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, prefix, strlen(prefix)) != 0)
            continue;
        const char *value = line + strlen(prefix);
        value += strspn(value, " \t:");
        (void)snprintf(out_line, LINE_BYTES, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    (void)fclose(file);
}

static void conditions_read(struct bench *bench)
{
    line_find("/proc/cpuinfo", "model name", bench->cpu);
    line_find("/proc/loadavg", "", bench->load);
    line_find("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", bench->huge_pages);
    if (uname(&bench->system) != 0)
        (void)snprintf(bench->system.release, sizeof(bench->system.release), "unknown");
}

/* ---- reports ---- */

static enum tarn_status row_print(const struct pool_row *row, struct text *out)
{
    char theirs[32] = "";
    char bar[32] = "";
    if (row->note[0])
        return text_append(out, "%-64s %s\n", row->name, row->note);
    if (row->theirs > 0)
        (void)snprintf(theirs, sizeof(theirs), "%.2f", row->theirs);
    if (row->bar > 0)
        (void)snprintf(bar, sizeof(bar), "%s %.1f", row->less_is_better ? "<=" : ">=", row->bar);
    return text_append(out, "%-64s %8.2f %8s %-5s %7.2f %8s%s\n", row->name, row->ours, theirs,
                       row->unit, row->value, bar, pool_row_misses(row) ? "  misses" : "");
}

static enum tarn_status table_print(const struct bench *bench, struct text *out)
{
    TRY(text_append(
        out,
        "%s; Linux %s; huge pages in shared memory: %s; load average %s\n"
        "pools and files in /dev/shm, one thread a process, %s, medians of %u run%s that "
        "take turns\n\n%-64s %8s %8s %-5s %7s %8s\n",
        bench->cpu, bench->system.release, bench->huge_pages, bench->load,
        bench->options.cpu_time ? "processor time" : "elapsed time", bench->options.runs,
        text_plural(bench->options.runs), "", "tarn", "other", "", "value", "bar"));
    for (uint32_t i = 0; i < bench->rows.count; i++)
        TRY(row_print(&bench->rows.rows[i], out));
    return TARN_OK;
}

static struct json *row_json(struct json_builder *builder, const struct pool_row *row)
{
    struct json *object = json_new_object(builder);
    json_put(builder, object, "row", json_new_string(builder, row->name));
    if (row->note[0]) {
        json_put(builder, object, "left_out", json_new_string(builder, row->note));
        return object;
    }
    json_put(builder, object, "unit", json_new_string(builder, row->unit));
    json_put(builder, object, "tarn", json_new_real(builder, row->ours));
    if (row->theirs > 0)
        json_put(builder, object, "other", json_new_real(builder, row->theirs));
    json_put(builder, object, "value", json_new_real(builder, row->value));
    if (row->bar > 0) {
        json_put(builder, object, "bar", json_new_real(builder, row->bar));
        json_put(builder, object, "misses", json_new_bool(builder, pool_row_misses(row)));
    }
    return object;
}

static enum tarn_status json_make(const struct bench *bench, struct text *out)
{
    struct json_builder builder = { 0 };
    struct json *root = json_new_object(&builder);
    struct json *list = json_new_array(&builder);
    json_put(&builder, root, "bench", json_new_string(&builder, "pool"));
    json_put(&builder, root, "cpu", json_new_string(&builder, bench->cpu));
    json_put(&builder, root, "kernel", json_new_string(&builder, bench->system.release));
    json_put(&builder, root, "huge_pages", json_new_string(&builder, bench->huge_pages));
    json_put(&builder, root, "load_average", json_new_string(&builder, bench->load));
    json_put(&builder, root, "cpu_time", json_new_bool(&builder, bench->options.cpu_time));
    json_put(&builder, root, "runs", json_new_integer(&builder, bench->options.runs));
    for (uint32_t i = 0; i < bench->rows.count; i++)
        json_push(&builder, list, row_json(&builder, &bench->rows.rows[i]));
    json_put(&builder, root, "rows", list);
    const enum tarn_status status = json_print(&builder, root, out);
    json_destroy(root);
    return status;
}

static enum tarn_status json_write(const struct bench *bench)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(json_make(bench, &text));
    return output_save(bench->json_path, &text);
}

static enum tarn_status report(const struct bench *bench)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(table_print(bench, &text));
    TRY(output_write(&text));
    return bench->json_path ? json_write(bench) : TARN_OK;
}

static bool all_reached(const struct bench *bench)
{
    bool reached = true;
    for (uint32_t i = 0; i < bench->rows.count; i++) {
        const struct pool_row *row = &bench->rows.rows[i];
        if (!pool_row_misses(row))
            continue;
        log_error("bench pool: %s: %.2f, the bar is %.2f", row->name, row->value, row->bar);
        reached = false;
    }
    return reached;
}

/* ---- the command ---- */

static enum tarn_status arguments_read(struct bench *bench, int argc, char **argv)
{
    const struct flag flags[] = {
        { .name = "runs", .count = &bench->options.runs, .count_max = RUNS_MAX },
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
    if (bench->options.runs % 2 == 1)
        return TARN_OK;
    log_error("--runs: %u is even, and a median wants one in the middle", bench->options.runs);
    return TARN_INVALID;
}

int bench_pool(int argc, char **argv)
{
    static struct bench bench = { .options.runs = RUNS_DEFAULT };
    if (arguments_read(&bench, argc, argv) != TARN_OK)
        return EXIT_STATUS_USAGE;
    if (bench.help)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    conditions_read(&bench);
    if (pool_rows_measure(&bench.options, &bench.rows) != TARN_OK || report(&bench) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return bench.check && !all_reached(&bench) ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
}
