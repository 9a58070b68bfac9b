/* SPDX-License-Identifier: Apache-2.0 */
/* client-options.h - what a command's options say of a Mooncake client. */
#ifndef CLUSTER_CLIENT_OPTIONS_H
#define CLUSTER_CLIENT_OPTIONS_H

#include "base/base.h"
#include "config/option.h"
#include "store/mooncake/options.h"

/* A text option into a field, left alone if the option has no value. INVALID: too long, logged with
 * the option's name. */
NODISCARD enum tarn_status client_text_take(const struct options *options, enum option option,
                                            char *out_field, size_t out_bytes);

/* `out_client` of the options of `tarn serve`, but for the master, this host's name and the
 * network device, which have to be found. Fails as client_text_take(). */
NODISCARD enum tarn_status client_from_options(const struct options *options,
                                               struct mooncake_options *out_client);

#endif
