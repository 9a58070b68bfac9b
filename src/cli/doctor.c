/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cli/command.h"
#include "codec/json.h"
#include "store/local/guard.h"
#include "store/mooncake/environment.h"

enum { OUTPUT_BYTES_MAX = 1 << 20 };

static const char usage[] =
    "usage: tarn doctor [MODEL.gguf] [options of tarn serve] [--json]\n\n"
    "Looks at what `tarn serve` with the same options, environment and configuration file needs: "
    "shared\nmemory, limits, clock, port, connector and pool, and writes and reads pages through "
    "all of it.\nExits 0 if a server would work, 1 if something failed, 2 if called wrongly.\n\n"
    "  --json  print findings as JSON\n";

static const char *const result_names[] = {
    [DOCTOR_OK] = "ok",
    [DOCTOR_NOTE] = "note",
    [DOCTOR_WARNING] = "warning",
    [DOCTOR_FAILED] = "failed",
};

void doctor_say(struct doctor *doctor, const char *check, enum doctor_result result,
                const char *advice, const char *format, ...)
{
    if (doctor->finding_count == DOCTOR_FINDINGS_MAX)
        return;
    struct doctor_finding *finding = &doctor->findings[doctor->finding_count++];
    *finding = (struct doctor_finding){ .check = check, .result = result, .advice = advice };
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

static void error_keep(void *context, enum log_level level, const char *line)
{
    struct doctor *doctor = context;
    if (level == LOG_ERROR)
        (void)snprintf(doctor->last_error, sizeof(doctor->last_error), "%.440s", line);
}

void doctor_log_catch(struct doctor *doctor)
{
    doctor->last_error[0] = '\0';
    log_set_sink(error_keep, doctor);
}

void doctor_log_release(struct doctor *doctor)
{
    (void)doctor;
    log_set_sink(NULL, NULL);
}

enum doctor_result doctor_worst(const struct doctor *doctor)
{
    enum doctor_result worst = DOCTOR_OK;
    for (size_t i = 0; i < doctor->finding_count; i++)
        if (doctor->findings[i].result > worst)
            worst = doctor->findings[i].result;
    return worst;
}

enum tarn_status doctor_print(const struct doctor *doctor, struct text *out)
{
    for (size_t i = 0; i < doctor->finding_count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        TRY(text_append(out, "%-8s %-15s %s\n", result_names[finding->result], finding->check,
                        finding->text));
        if (finding->advice)
            TRY(text_append(out, "%-8s %-15s -> %s\n", "", "", finding->advice));
    }
    return text_append(out, "%s\n",
                       doctor_worst(doctor) == DOCTOR_FAILED
                           ? "A server with these options would not work; see what failed."
                           : "A server with these options would work.");
}

enum tarn_status doctor_print_json(const struct doctor *doctor, struct text *out)
{
    struct json_builder builder = { .failed = false };
    struct json *checks = json_new_array(&builder);
    for (size_t i = 0; i < doctor->finding_count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        struct json *check = json_new_object(&builder);
        json_put(&builder, check, "check", json_new_string(&builder, finding->check));
        json_put(&builder, check, "result",
                 json_new_string(&builder, result_names[finding->result]));
        json_put(&builder, check, "text", json_new_string(&builder, finding->text));
        if (finding->advice)
            json_put(&builder, check, "advice", json_new_string(&builder, finding->advice));
        json_push(&builder, checks, check);
    }
    struct json *root = json_new_object(&builder);
    json_put(&builder, root, "ok", json_new_bool(&builder, doctor_worst(doctor) != DOCTOR_FAILED));
    json_put(&builder, root, "checks", checks);
    enum tarn_status status = json_print(&builder, root, out);
    if (status == TARN_OK)
        status = text_append(out, "\n");
    json_destroy(root);
    return status;
}

static void doctor_run(struct doctor *doctor)
{
    doctor_check_memory(doctor);
    doctor_check_memlock(doctor);
    doctor_check_huge_pages(doctor);
    doctor_check_clock(doctor);
    doctor_check_model(doctor);
    doctor_check_port(doctor);
    doctor_check_pool(doctor);
}

static int doctor_report(const struct options *options, bool as_json)
{
    struct pool_option pool;
    char error[OPTION_ERROR_BYTES];
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    if (pool_option_read(option_text(options, OPTION_POOL), &pool, error) != TARN_OK) {
        log_error("%s", error);
        return EXIT_STATUS_USAGE;
    }
    struct doctor *doctor = mem_alloc(1, sizeof(*doctor)); /* large */
    enum tarn_status status = doctor ? TARN_OK : TARN_NO_MEMORY;
    enum doctor_result worst = DOCTOR_FAILED;
    if (doctor) {
        doctor->options = options;
        doctor->pool = &pool;
        doctor_run(doctor);
        status = as_json ? doctor_print_json(doctor, &text) : doctor_print(doctor, &text);
        worst = doctor_worst(doctor);
        mem_free(doctor);
    }
    if (status != TARN_OK)
        log_error("%s", tarn_strerror(status));
    if (status != TARN_OK || output_write(&text) != TARN_OK)
        return EXIT_STATUS_FAILED;
    return worst == DOCTOR_FAILED ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
}

/* Take our own flag out of argv; the others are the server's. */
static bool flag_take(int *argc, char **argv, const char *flag)
{
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], flag) != 0)
            continue;
        for (; i + 1 < *argc; i++)
            argv[i] = argv[i + 1];
        --*argc;
        return true;
    }
    return false;
}

int doctor_command(int argc, char **argv)
{
    CLEANUP(options_deinit)
    struct options options = { 0 };
    const bool as_json = flag_take(&argc, argv, "--json");
    if (options_read(argc - 1, argv + 1, environ, &options) != TARN_OK) {
        log_error("%s", options.error);
        return EXIT_STATUS_USAGE;
    }
    if (option_bool(&options, OPTION_HELP))
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    if (guard_install() != TARN_OK)
        return EXIT_STATUS_FAILED;
    mooncake_environment_prepare((uint32_t)option_number(&options, OPTION_LOAD_DEADLINE));
    return doctor_report(&options, as_json);
}
