/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pool.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "store/local/inspect.h"

enum { OUTPUT_BYTES_MAX = 4 << 20 };

static const char usage[] =
    "usage: tarn pool stat|ls [PATH] [--verify]\n\n"
    "  stat      sizes, page slots by state, processes, page sizes, and whether the pool is valid\n"
    "  ls        namespaces, with their pages and bytes\n"
    "  PATH      the pool's file; without it, this user's default pool\n"
    "  --verify  also check the checksum of every page\n\n"
    "The pool may be in use. Exits 1 if it is not valid, or if there is none.\n";

struct request {
    const char *what;
    const char *path;
    bool verify;
};

static bool request_parse(int argc, char **argv, struct request *out_request)
{
    struct request request = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verify") == 0)
            request.verify = true;
        else if (argv[i][0] == '-' || request.path)
            return false;
        else if (!request.what)
            request.what = argv[i];
        else
            request.path = argv[i];
    }
    if (!request.what || (strcmp(request.what, "stat") != 0 && strcmp(request.what, "ls") != 0))
        return false;
    *out_request = request;
    return true;
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

int pool_command(int argc, char **argv)
{
    struct request request;
    bool is_sound = false;
    if (argc >= 2 && strcmp(argv[argc - 1], "--help") == 0)
        return fputs(usage, stdout) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
    if (!request_parse(argc, argv, &request)) {
        (void)fputs(usage, stderr);
        return EXIT_STATUS_USAGE;
    }
    const enum tarn_status status = request_run(&request, &is_sound);
    if (status == TARN_MISS)
        log_error("there is no pool at %s",
                  request.path ? request.path : "the default place: no server has made one yet");
    return status == TARN_OK && is_sound ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
