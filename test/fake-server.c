/* SPDX-License-Identifier: Apache-2.0 */
/* fake-server - `tarn serve` over the engine double of lib/fake-engine.c. Same options. */
#include <unistd.h>

#include "base/log.h"
#include "serve/server.h"
#include "store/local/guard.h"

int main(int argc, char **argv)
{
    struct options options;
    if (options_read(argc - 1, argv + 1, environ, &options) != TARN_OK || !options.model) {
        log_error("%s", options.error);
        return 2;
    }
    if (guard_install() != TARN_OK)
        return 1;
    struct serve_connector connector;
    enum tarn_status status =
        serve_connector_choose(&options, tarn_connector_ops(TARN_ABI_VERSION), &connector);
    if (status == TARN_OK)
        status = serve_run(&options, &connector, NULL);
    options_deinit(&options);
    return status == TARN_OK || status == TARN_AGAIN ? 0 : 1;
}
