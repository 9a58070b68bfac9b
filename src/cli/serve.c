/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cluster/provision.h"
#include "config/option.h"
#include "os/stop.h"
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

static enum tarn_status entered(void *context, uint64_t page_bytes, uint32_t page_tokens)
{
    return provision_entered(context, page_bytes, page_tokens);
}

static void leaving(void *context)
{
    provision_leave(context);
}

/* What the cluster has to do for the server, before it, while it lives and after it. */
static enum tarn_status serve(struct options *options)
{
    struct provision *provision = NULL;
    log_set_level((enum log_level)option_number(options, OPTION_LOG_LEVEL));
    stop_prepare();
    struct serve_connector connector; /* before a master is started for one that will not have it */
    TRY(serve_connector_choose(options, tarn_connector_ops(TARN_ABI_VERSION), &connector));
    enum tarn_status status = provision_open(options, environ, &provision);
    if (status == TARN_AGAIN)
        return TARN_OK; /* told to end before there was anything to serve */
    TRY(status);
    const struct serve_hooks hooks = { .context = provision,
                                       .entered = entered,
                                       .leaving = leaving };
    provision_apply(provision, options);
    status = serve_run(options, &connector, &hooks);
    provision_close(provision);
    if (status == TARN_AGAIN)
        _exit(EXIT_STATUS_OK);
    return status;
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
    return serve(&options) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
