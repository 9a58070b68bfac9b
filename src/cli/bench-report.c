/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench-report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "cli/command.h"

enum { REPORT_BYTES_MAX = 1 << 16 };

/* ---- rows ---- */

struct bench_row *bench_row_add(struct bench_rows *rows, const char *name)
{
    ASSERT(rows->count < BENCH_ROWS_MAX);
    struct bench_row *row = &rows->rows[rows->count++];
    *row = (struct bench_row){ .unit = "GB/s" };
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    return row;
}

static bool row_misses(const struct bench_row *row)
{
    if (row->bar == 0.0 || row->note[0] != '\0')
        return false;
    return row->less_is_better ? row->value > row->bar : row->value < row->bar;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

double bench_quantile(double *values, size_t count, double part)
{
    qsort(values, count, sizeof(*values), compare);
    return values[(size_t)(part * (double)(count - 1) + 0.5)];
}

void bench_row_compare(struct bench_row *row, const double *ours, const double *theirs,
                       size_t count)
{
    double values[3][BENCH_RUNS_MAX];
    ASSERT(count > 0 && count <= BENCH_RUNS_MAX);
    for (size_t i = 0; i < count; i++) {
        values[0][i] = ours[i];
        values[1][i] = theirs[i];
        values[2][i] = ours[i] / theirs[i];
    }
    row->ours = bench_quantile(values[0], count, 0.5);
    row->theirs = bench_quantile(values[1], count, 0.5);
    row->value = bench_quantile(values[2], count, 0.5);
}

void bench_row_rates(struct bench_row *row, double bytes, const double *ours_s,
                     const double *theirs_s, size_t count)
{
    double ours[BENCH_RUNS_MAX];
    double theirs[BENCH_RUNS_MAX];
    ASSERT(count <= BENCH_RUNS_MAX);
    for (size_t i = 0; i < count; i++) {
        ours[i] = bytes / ours_s[i] / 1e9;
        theirs[i] = bytes / theirs_s[i] / 1e9;
    }
    bench_row_compare(row, ours, theirs, count);
}

/* ---- the machine ---- */

void bench_line_find(const char *path, const char *prefix, char out_line[BENCH_LINE_BYTES])
{
    char line[BENCH_LINE_BYTES];
    (void)snprintf(out_line, BENCH_LINE_BYTES, "unknown");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, prefix, strlen(prefix)) != 0)
            continue;
        const char *value = line + strlen(prefix);
        value += strspn(value, " \t:");
        (void)snprintf(out_line, BENCH_LINE_BYTES, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    (void)fclose(file);
}

static void machine_read(struct bench_machine *out_machine)
{
    struct utsname system;
    bench_line_find("/proc/cpuinfo", "model name", out_machine->cpu);
    bench_line_find("/proc/loadavg", "", out_machine->load);
    (void)snprintf(out_machine->kernel, sizeof(out_machine->kernel), "%s",
                   uname(&system) == 0 ? system.release : "unknown");
}

/* ---- the command line ---- */

static enum tarn_status arguments_read(struct bench_command *command, int argc, char **argv,
                                       bool *out_help)
{
    char name[32];
    struct flag flags[BENCH_FLAGS_MAX + 4] = {
        { .name = "runs", .count = command->runs, .count_max = BENCH_RUNS_MAX },
        { .name = "json", .text = &command->json_path },
        { .name = "check", .is_set = &command->check },
        { .name = "help", .is_set = out_help },
    };
    ASSERT(command->flag_count <= BENCH_FLAGS_MAX);
    memcpy(&flags[4], command->flags, command->flag_count * sizeof(flags[0]));
    (void)snprintf(name, sizeof(name), "bench %s", command->name);
    const struct flag_list list = { .command = name,
                                    .flags = flags,
                                    .flag_count = 4 + command->flag_count };
    TRY(flags_read(&list, argc, argv));
    if (*command->runs % 2 == 1)
        return TARN_OK;
    log_error("--runs: %u is even, and a median wants one in the middle", *command->runs);
    return TARN_INVALID;
}

bool bench_begin(struct bench_command *command, int argc, char **argv, int *out_status)
{
    bool help = false;
    *out_status = EXIT_STATUS_USAGE;
    if (arguments_read(command, argc, argv, &help) != TARN_OK)
        return false;
    *out_status = EXIT_STATUS_FAILED;
    if (help) {
        if (fputs(command->usage, stdout) >= 0)
            *out_status = EXIT_STATUS_OK;
        return false;
    }
    machine_read(&command->machine);
    return true;
}

/* ---- the table ---- */

static enum tarn_status row_print(const struct bench_row *row, struct text *out)
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
                       row->unit, row->value, bar, row_misses(row) ? "  misses" : "");
}

static enum tarn_status table_make(const struct bench_report *report, struct text *out)
{
    const struct bench_machine *machine = &report->command->machine;
    TRY(text_append(out,
                    "%s; Linux %s; load average %s\n%smedians of %u run%s that take turns\n\n"
                    "%-64s %8s %8s %-5s %7s %8s\n",
                    machine->cpu, machine->kernel, machine->load, report->conditions,
                    *report->command->runs, text_plural(*report->command->runs), "", "tarn",
                    report->other, "", "value", "bar"));
    for (uint32_t i = 0; i < report->rows->count; i++)
        TRY(row_print(&report->rows->rows[i], out));
    return TARN_OK;
}

/* ---- JSON ---- */

static struct json *row_json(struct json_builder *builder, const struct bench_row *row)
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
        json_put(builder, object, "misses", json_new_bool(builder, row_misses(row)));
    }
    return object;
}

static enum tarn_status json_make(const struct bench_report *report, struct text *out)
{
    const struct bench_machine *machine = &report->command->machine;
    struct json_builder builder = { 0 };
    struct json *root = json_new_object(&builder);
    struct json *list = json_new_array(&builder);
    json_put(&builder, root, "bench", json_new_string(&builder, report->command->name));
    json_put(&builder, root, "cpu", json_new_string(&builder, machine->cpu));
    json_put(&builder, root, "kernel", json_new_string(&builder, machine->kernel));
    json_put(&builder, root, "load_average", json_new_string(&builder, machine->load));
    report->conditions_put(report->context, &builder, root);
    json_put(&builder, root, "runs", json_new_integer(&builder, *report->command->runs));
    for (uint32_t i = 0; i < report->rows->count; i++)
        json_push(&builder, list, row_json(&builder, &report->rows->rows[i]));
    json_put(&builder, root, "rows", list);
    const enum tarn_status status = json_print(&builder, root, out);
    json_destroy(root);
    return status;
}

/* ---- the report ---- */

static enum tarn_status table_print(const struct bench_report *report)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(table_make(report, &text));
    return output_write(&text);
}

static enum tarn_status json_write(const struct bench_report *report)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    TRY(json_make(report, &text));
    return output_save(report->command->json_path, &text);
}

static bool all_reached(const struct bench_report *report)
{
    bool reached = true;
    for (uint32_t i = 0; i < report->rows->count; i++) {
        const struct bench_row *row = &report->rows->rows[i];
        if (!row_misses(row))
            continue;
        log_error("bench %s: %s: %.2f, the bar is %.2f", report->command->name, row->name,
                  row->value, row->bar);
        reached = false;
    }
    return reached;
}

int bench_report(const struct bench_report *report)
{
    if (table_print(report) != TARN_OK ||
        (report->command->json_path && json_write(report) != TARN_OK))
        return EXIT_STATUS_FAILED;
    return report->command->check && !all_reached(report) ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
}
