/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/pool.h"
#include "config/option.h"

enum { OUTPUT_BYTES_MAX = 1 << 20 };

const struct command commands[] = {
    { "serve", "MODEL.gguf [options]", "serve a model over an OpenAI-compatible HTTP API",
      serve_command },
    { "master", "[options]", "run the master of a distributed pool", master_command },
    { "donor", "[options]", "lend memory to a distributed pool", donor_command },
    { "pool", "stat|ls [PATH]", "what a pool holds, and whether it is valid", pool_command },
    { "doctor", "[MODEL.gguf] [options of serve] [--json]",
      "say whether a server with these options would work here", doctor_command },
    { "bench", "WHAT [options]", "measure a part beside what it competes with", bench_command },
};
const size_t command_count = LENGTH_OF(commands);

enum tarn_status output_write(const struct text *text)
{
    if (fputs(text_chars(text), stdout) < 0 || fflush(stdout) != 0) {
        log_error("standard output: %s", strerrordesc_np(errno));
        return TARN_IO;
    }
    return TARN_OK;
}

enum tarn_status output_save(const char *path, const struct text *text)
{
    FILE *file = fopen(path, "we");
    bool is_written = file && fprintf(file, "%s\n", text_chars(text)) > 0;
    is_written = file && fclose(file) == 0 && is_written;
    if (is_written)
        return TARN_OK;
    log_error("%s: %s", path, strerrordesc_np(errno));
    return TARN_IO;
}

static enum tarn_status help_print(struct text *out)
{
    TRY(text_append(out,
                    "tarn %s: a shared pool of KV-cache pages, and a server on it\n\n"
                    "usage: tarn COMMAND [arguments]\n\ncommands:\n",
                    tarn_version()));
    for (size_t i = 0; i < command_count; i++)
        TRY(text_append(out, "  %-8s %s\n", commands[i].name, commands[i].summary));
    return text_append(out, "\n"
                            "  tarn COMMAND --help   what a command takes\n"
                            "  tarn --version        the version\n"
                            "  tarn --man            the manual page, for man -l -\n");
}

static enum tarn_status version_print(struct text *out)
{
    return text_append(out, "tarn %s\n", tarn_version());
}

static int print(enum tarn_status (*content)(struct text *out))
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    const enum tarn_status status = content(&text);
    if (status != TARN_OK) {
        log_error("%s", tarn_strerror(status));
        return EXIT_STATUS_FAILED;
    }
    return output_write(&text) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}

static int unknown_command(const char *name)
{
    const char *names[LENGTH_OF(commands)];
    for (size_t i = 0; i < command_count; i++)
        names[i] = commands[i].name;
    const char *nearest = nearest_name(name, names, command_count);
    if (nearest)
        log_error("unknown command '%.100s'; did you mean %s?", name, nearest);
    else
        log_error("unknown command '%.100s'; see tarn --help", name);
    return EXIT_STATUS_USAGE;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum tarn_status (*content)(struct text *out);
    } pages[] = { { "--help", help_print },
                  { "-h", help_print },
                  { "help", help_print },
                  { "--version", version_print },
                  { "--man", manual_print } };
    if (argc < 2) {
        log_error("no command; see tarn --help");
        return EXIT_STATUS_USAGE;
    }
    for (size_t i = 0; i < LENGTH_OF(pages); i++)
        if (strcmp(argv[1], pages[i].name) == 0)
            return print(pages[i].content);
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return unknown_command(argv[1]);
}
