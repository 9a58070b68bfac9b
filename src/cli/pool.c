/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pool.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cluster/landing.h"
#include "store/local/inspect.h"
#include "store/mooncake/options.h"

enum { OUTPUT_BYTES_MAX = 4 << 20, METRICS_PORT = 9004, LANDING_TIMEOUT_MS = 5000 };

static const char usage[] =
    "usage: tarn pool stat|ls [PATH] [--verify]\n"
    "       tarn pool stat mooncake://HOST:PORT [--metrics-port N]\n\n"
    "  stat      sizes, page slots by state, processes, page sizes, and whether the pool is valid\n"
    "  ls        namespaces, with their pages and bytes\n"
    "  PATH      the pool's file; without it, this user's default pool\n"
    "  --verify  also check the checksum of every page\n\n"
    "Of a distributed pool, stat shows where its blocks are, by host, as its master says on its "
    "HTTP\n"
    "port (--metrics-port, 9004 unless given).\n\n"
    "The pool may be in use. Exits 1 if it is not valid, or if there is none.\n";

struct request {
    const char *what;
    const char *path;
    bool verify;
    bool help;
    uint32_t metrics_port;
};

static enum tarn_status request_parse(int argc, char **argv, struct request *out_request)
{
    const char *words[2] = { NULL, NULL };
    const struct flag flags[] = {
        { .name = "verify", .is_set = &out_request->verify },
        { .name = "metrics-port", .count = &out_request->metrics_port, .count_max = UINT16_MAX },
        { .name = "help", .is_set = &out_request->help },
    };
    const struct flag_list list = { .command = "pool",
                                    .flags = flags,
                                    .flag_count = LENGTH_OF(flags),
                                    .words = words,
                                    .words_max = LENGTH_OF(words) };
    TRY(flags_read(&list, argc, argv));
    out_request->what = words[0];
    out_request->path = words[1];
    if (out_request->help ||
        (words[0] && (strcmp(words[0], "stat") == 0 || strcmp(words[0], "ls") == 0)))
        return TARN_OK;
    if (words[0])
        log_error("tarn pool does not know '%.100s': stat or ls; see tarn pool --help", words[0]);
    else
        log_error("which of them? usage: tarn pool stat|ls [PATH] [--verify]");
    return TARN_INVALID;
}

static enum tarn_status request_run(const struct request *request, bool *out_is_sound)
{
    CLEANUP(text_deinit)
    struct text text;
    struct inspection *inspection = NULL;
    text_init(&text, OUTPUT_BYTES_MAX);
    TRY(inspection_open(request->path, &inspection));
    inspection_refresh(inspection, request->verify);
    *out_is_sound = inspection_is_sound(inspection);
    enum tarn_status status = strcmp(request->what, "ls") == 0
                                  ? inspection_print_names(inspection, &text)
                                  : inspection_print_stat(inspection, &text);
    inspection_close(inspection);
    TRY(status);
    return output_write(&text);
}

/* Where a distributed pool's blocks are. */
static enum tarn_status distributed_run(const struct request *request)
{
    struct address address;
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    const char *master = strncmp(request->path, "mooncake://", 11) == 0 ? request->path + 11 : "";
    if (strcmp(request->what, "stat") != 0 || request->verify ||
        address_parse(master, &address) != TARN_OK) {
        log_error("of a distributed pool there is: tarn pool stat mooncake://HOST:PORT "
                  "[--metrics-port N]");
        return TARN_INVALID;
    }
    const struct landing_source source = { .host = address.host,
                                           .port = (uint16_t)request->metrics_port,
                                           .timeout_ms = LANDING_TIMEOUT_MS };
    const enum tarn_status asked = landing_fetch(&source, &landing, reason);
    if (asked != TARN_OK) {
        log_error("the master does not say where blocks are: http://%s:%u: %s; is its HTTP port "
                  "another? see --metrics-port",
                  source.host, source.port, reason);
        return asked;
    }
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    const enum tarn_status status = landing_print(&landing, &text);
    landing_deinit(&landing);
    return status == TARN_OK ? output_write(&text) : status;
}

int pool_command(int argc, char **argv)
{
    struct request request = { .metrics_port = METRICS_PORT };
    bool is_sound = false;
    if (request_parse(argc, argv, &request) != TARN_OK)
        return EXIT_STATUS_USAGE;
    if (request.help)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    if (request.path && mooncake_pool_is(request.path))
        return distributed_run(&request) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
    const enum tarn_status status = request_run(&request, &is_sound);
    if (status == TARN_MISS)
        log_error("there is no pool at %s",
                  request.path ? request.path : "the default place: no server has made one yet");
    return status == TARN_OK && is_sound ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
