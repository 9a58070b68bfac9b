/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool-plan.h - what a server's options ask of the cluster: which pool, which master, what
 * donation; and what contradicts itself.
 *
 * Order: the --pool flag (or TARN_POOL, or a master named by flag); an inherited
 * MOONCAKE_CONFIG_PATH; the configuration file's pool section. An inherited file beside a flag is
 * refused unless they agree; beside a section it wins. Pure.
 */
#ifndef CLUSTER_POOL_PLAN_H
#define CLUSTER_POOL_PLAN_H

#include "base/base.h"
#include "config/option.h"
#include "store/mooncake/options.h"

enum pool_plan_kind {
    PLAN_AS_GIVEN, /* no distributed pool: --pool as it stands */
    PLAN_NO_POOL,  /* a donation alone: no pool is attached, not even the default one */
    PLAN_JOIN,     /* the master at plan.master */
    PLAN_LAUNCH,   /* a master of our own */
    PLAN_FILE,     /* as plan.file, a mooncake.json, says */
};

enum { PLAN_NOTE_BYTES = 512 };

struct pool_plan {
    enum pool_plan_kind pool;
    char master[MOONCAKE_TEXT_BYTES_MAX + 1]; /* HOST:PORT, file://PATH, or another text */
    char file[MOONCAKE_PATH_BYTES_MAX + 1];
    bool donates;
    char donation_master[MOONCAKE_TEXT_BYTES_MAX + 1]; /* empty: the pool's */
    char note[PLAN_NOTE_BYTES]; /* what wins over what, for the log; empty: nothing to say */
};

struct pool_plan_input {
    const struct options *options;
    const char *inherited;        /* MOONCAKE_CONFIG_PATH; NULL: not set */
    const char *inherited_master; /* master_server_address in it; NULL: not set */
};

/* INVALID: `error` (OPTION_ERROR_BYTES) names the options, their values and what to do. */
NODISCARD enum tarn_status pool_plan_make(const struct pool_plan_input *input,
                                          struct pool_plan *out_plan, char *error);

/* Whether two texts name one master: as HOST:PORT, else letter by letter. */
bool pool_plan_is_same_master(const char *a, const char *b);

#endif
