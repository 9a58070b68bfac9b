/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "config/option.h"
#include "serve/server.h"
#include "store/local/guard.h"

enum { OUTPUT_BYTES_MAX = 1 << 20 };

static enum tarn_status help_print(struct text *out)
{
    TRY(text_append(out,
                    "usage: tarn serve MODEL.gguf [options]\n\n"
                    "Serve a model over an OpenAI-compatible HTTP API. Each option can also be "
                    "given in the\nenvironment, as TARN_PORT for --port, or in a file, which may "
                    "name the model, too:\ndocs/configuration.md. Defaults are in brackets.\n"));
    return options_print_help(OPTIONS_OF_SERVE, out);
}

static int print(enum tarn_status status, const struct text *text)
{
    if (status != TARN_OK) {
        log_error("%s", tarn_strerror(status));
        return EXIT_STATUS_FAILED;
    }
    return output_write(text) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}

int serve_command(int argc, char **argv)
{
    CLEANUP(options_deinit)
    struct options options = { 0 };
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    if (options_read(argc - 1, argv + 1, environ, &options) != TARN_OK) {
        log_error("%s", options.error);
        return EXIT_STATUS_USAGE;
    }
    if (option_bool(&options, OPTION_HELP))
        return print(help_print(&text), &text);
    if (option_bool(&options, OPTION_PRINT_CONFIG))
        return print(options_print_config(&options, &text), &text);
    if (!options.model) {
        log_error("which model? usage: tarn serve MODEL.gguf [options], or model.path in "
                  "--config FILE");
        return EXIT_STATUS_USAGE;
    }
    if (guard_install() != TARN_OK)
        return EXIT_STATUS_FAILED;
    const struct tarn_connector_ops *connector = tarn_connector_ops(TARN_ABI_VERSION);
    return serve_run(&options, connector) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
