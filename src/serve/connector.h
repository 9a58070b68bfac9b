/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.h - which connector a server uses: a preset, or a module that is loaded.
 *
 * A preset is a name for a module and a symbol, and fills in only what was not set. What counts
 * from there on is what was resolved, not what was named: a module that returns Tarn's own table
 * is Tarn's own connector.
 */
#ifndef SERVE_CONNECTOR_H
#define SERVE_CONNECTOR_H

#include "base/base.h"
#include "config/option.h"

struct serve_connector {
    bool is_there;                   /* else the server runs without a pool */
    bool is_module;                  /* chosen by the user: a server without it will not do */
    bool is_tarn;                    /* Tarn's own */
    struct tarn_connector_ops table; /* whole, also where the module's is shorter */
};

/*
 * `own` is this program's table; NULL: it has none. A module stays loaded. INVALID (no such preset,
 * options that do not go together), UNSUPPORTED (the module, its symbol or its table will not do;
 * options of Tarn's pool for another connector); logged, with file, symbol and version.
 */
NODISCARD enum tarn_status serve_connector_choose(const struct options *options,
                                                  const struct tarn_connector_ops *own,
                                                  struct serve_connector *out_connector);

#endif
