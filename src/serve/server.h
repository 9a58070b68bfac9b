/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - a whole `tarn serve`: from options to a server that runs until it is told to stop.
 */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "base/base.h"
#include "config/option.h"
#include "serve/connector.h"

/* What the caller has to do around the life of the pool; in the main thread. */
struct serve_hooks {
    void *context;
    /* The pool is open, or none is wanted; the port is not answered yet. A page is page_tokens
     * tokens. A failure ends the start; AGAIN: told to stop. */
    enum tarn_status (*entered)(void *context, uint64_t page_bytes, uint32_t page_tokens);
    /* After `entered` was OK: saves have ended, and the pool is about to be closed. */
    void (*leaving)(void *context);
};

/*
 * Open model, memory, pool and port, say what came of it in the log, and serve until SIGTERM or
 * SIGINT; then refuse new requests, let running ones finish within --drain-deadline, and close
 * everything. A second signal ends it after the current pass. A signal that comes while the model
 * is loaded ends the start: OK, as nothing failed. To be called once, from the main
 * thread, before other threads are started: it blocks these signals, and ignores SIGPIPE.
 *
 * `connector` is borrowed until the end. `hooks` NULL: none. OK: it served and stopped. AGAIN: so
 * it did, but transfers to the pool have not ended, and threads are in a library: the process is to
 * end without that library's handlers at exit (_exit), which would take away what they use.
 * Failures are logged: INVALID (options that do not go together), IO (model, port), and what
 * engine_open() and the connector's open() return.
 */
NODISCARD enum tarn_status serve_run(const struct options *options,
                                     const struct serve_connector *connector,
                                     const struct serve_hooks *hooks);

#endif
