/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client-file.h - mooncake.json: what a client of the pool is told. The keys are those that
 * store/mooncake/options.h reads. Unset keys are left out; role is always `both`: what an engine
 * saves and loads is its connector's business.
 */
#ifndef CLUSTER_CLIENT_FILE_H
#define CLUSTER_CLIENT_FILE_H

#include "base/base.h"
#include "base/text.h"
#include "store/mooncake/options.h"

/* Append the file's text. Pure. NO_MEMORY, NO_SPACE. */
NODISCARD enum tarn_status client_file_print(const struct mooncake_options *options,
                                             struct text *out);

/* Write it, new or in place of what was there. IO: logged. */
NODISCARD enum tarn_status client_file_write(const struct mooncake_options *options,
                                             const char *path);

#endif
