/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pool-plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/mooncake/address.h"

#define MASTER_PREFIX "mooncake://"
#define FILE_PREFIX   "mooncake:"

/* What --pool says, for this purpose. */
enum pool_text {
    POOL_TEXT_UNSET,
    POOL_TEXT_OTHER,
    POOL_TEXT_MASTER,
    POOL_TEXT_FILE,
    POOL_TEXT_ANY
};

struct reading {
    const struct pool_plan_input *input;
    const struct options *options;
    enum pool_text pool_text;
    const char *pool;    /* as written */
    const char *pool_at; /* its master, or its file */
    char *error;
    struct pool_plan *plan;
};

PRINTF_LIKE(2, 3)
static enum tarn_status refuse(const struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reading->error, OPTION_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return TARN_INVALID;
}

PRINTF_LIKE(2, 3) static void note(const struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reading->plan->note, PLAN_NOTE_BYTES, format, arguments);
    va_end(arguments);
}

bool pool_plan_is_same_master(const char *a, const char *b)
{
    struct address left;
    struct address right;
    if (address_parse(a, &left) == TARN_OK && address_parse(b, &right) == TARN_OK)
        return left.port == right.port && strcmp(left.host, right.host) == 0;
    return strcmp(a, b) == 0;
}

static enum option_source source_of(const struct reading *reading, enum option option)
{
    return reading->options->values[option].source;
}

static bool launches(const struct reading *reading)
{
    return option_bool(reading->options, OPTION_LAUNCH_MASTER);
}

static const char *address_of(const struct reading *reading)
{
    return option_text(reading->options, OPTION_MASTER_SERVER_ADDRESS);
}

static void pool_text_read(struct reading *reading)
{
    const char *text = option_text(reading->options, OPTION_POOL);
    reading->pool = text;
    if (!text)
        reading->pool_text = POOL_TEXT_UNSET;
    else if (!mooncake_pool_is(text))
        reading->pool_text = POOL_TEXT_OTHER;
    else if (strncmp(text, MASTER_PREFIX, strlen(MASTER_PREFIX)) == 0)
        reading->pool_text = POOL_TEXT_MASTER;
    else
        reading->pool_text = strlen(text) > strlen(FILE_PREFIX) ? POOL_TEXT_FILE : POOL_TEXT_ANY;
    if (reading->pool_text == POOL_TEXT_MASTER)
        reading->pool_at = text + strlen(MASTER_PREFIX);
    if (reading->pool_text == POOL_TEXT_FILE)
        reading->pool_at = text + strlen(FILE_PREFIX);
    if (reading->pool_at && reading->pool_at[0] == '\0')
        reading->pool_text = POOL_TEXT_ANY;
}

static enum tarn_status text_take(const struct reading *reading, const char *name, const char *text,
                                  char *out_text, size_t out_bytes)
{
    if (snprintf(out_text, out_bytes, "%s", text) < (int)out_bytes)
        return TARN_OK;
    return refuse(reading, "%s: '%.100s...' is longer than %zu bytes", name, text, out_bytes - 1);
}

/* ---- a master named by the options ---- */

/* A pool and a master are named: the stronger source wins; equal ones must not contradict. */
static enum tarn_status pool_beside_master(struct reading *reading)
{
    const enum option other =
        launches(reading) ? OPTION_LAUNCH_MASTER : OPTION_MASTER_SERVER_ADDRESS;
    const enum option_source pool_source = source_of(reading, OPTION_POOL);
    const enum option_source other_source = source_of(reading, other);
    if (!launches(reading) && !address_of(reading))
        return TARN_OK;
    if (other == OPTION_MASTER_SERVER_ADDRESS && reading->pool_text == POOL_TEXT_MASTER &&
        pool_plan_is_same_master(reading->pool_at, address_of(reading)))
        return TARN_OK;
    if (other_source != pool_source) {
        const enum option winner = other_source < pool_source ? OPTION_POOL : other;
        const enum option loser = winner == OPTION_POOL ? other : OPTION_POOL;
        note(reading, "--%s %s (%s) wins over --%s %s (%s)", option_name(winner),
             option_text(reading->options, winner), option_origin(reading->options, winner),
             option_name(loser), option_text(reading->options, loser),
             option_origin(reading->options, loser));
        if (winner != OPTION_POOL)
            reading->pool_text = POOL_TEXT_ANY;
        return TARN_OK;
    }
    if (reading->pool_text == POOL_TEXT_OTHER)
        return refuse(reading, "--%s needs a distributed pool, and --pool is '%.200s': not both",
                      option_name(other), reading->pool);
    return refuse(reading,
                  "--pool %.200s names a master, and so does --%s: not both; leave one of them out",
                  reading->pool, option_name(other));
}

/* The rows that say something about a distributed pool alone. */
static const enum option distributed_rows[] = {
    OPTION_METADATA_SERVER,   OPTION_PROTOCOL,  OPTION_DEVICE_NAME, OPTION_GLOBAL_SEGMENT_SIZE,
    OPTION_LOCAL_BUFFER_SIZE, OPTION_TENANT_ID, OPTION_MASTER_PORT, OPTION_MASTER_EVICTION_RATIO,
    OPTION_CLIENT_ADDRESS,
};

/* The first of them that is set by `least` or a stronger source, else NULL. */
static const char *distributed_row_set(const struct reading *reading, enum option_source least)
{
    for (size_t i = 0; i < LENGTH_OF(distributed_rows); i++)
        if (option_is_set(reading->options, distributed_rows[i]) &&
            source_of(reading, distributed_rows[i]) >= least)
            return option_name(distributed_rows[i]);
    return NULL;
}

static enum tarn_status options_plan(struct reading *reading)
{
    struct pool_plan *plan = reading->plan;
    if (launches(reading) && address_of(reading))
        return refuse(reading,
                      "--launch-master starts a master, and --master-server-address %.200s names "
                      "another: not both; leave one of them out",
                      address_of(reading));
    if (reading->pool_text != POOL_TEXT_UNSET && reading->pool_text != POOL_TEXT_ANY)
        TRY(pool_beside_master(reading));
    switch (reading->pool_text) {
    case POOL_TEXT_OTHER:
        return TARN_OK;
    case POOL_TEXT_MASTER:
        plan->pool = PLAN_JOIN;
        return text_take(reading, "--pool", reading->pool_at, plan->master, sizeof(plan->master));
    case POOL_TEXT_FILE:
        plan->pool = PLAN_FILE;
        return text_take(reading, "--pool", reading->pool_at, plan->file, sizeof(plan->file));
    case POOL_TEXT_UNSET:
    case POOL_TEXT_ANY:
        break;
    }
    if (launches(reading)) {
        plan->pool = PLAN_LAUNCH;
    } else if (address_of(reading)) {
        plan->pool = PLAN_JOIN;
        return text_take(reading, "--master-server-address", address_of(reading), plan->master,
                         sizeof(plan->master));
    }
    return TARN_OK;
}

/* ---- an inherited file ---- */

/* The option that chose the pool by flag or environment, else OPTION_COUNT_ALL. */
static enum option flag_option(const struct reading *reading)
{
    if (reading->pool && source_of(reading, OPTION_POOL) > OPTION_FROM_FILE)
        return OPTION_POOL;
    if (launches(reading) && source_of(reading, OPTION_LAUNCH_MASTER) > OPTION_FROM_FILE)
        return OPTION_LAUNCH_MASTER;
    if (address_of(reading) && source_of(reading, OPTION_MASTER_SERVER_ADDRESS) > OPTION_FROM_FILE)
        return OPTION_MASTER_SERVER_ADDRESS;
    return OPTION_COUNT_ALL;
}

static bool agrees(const struct reading *reading)
{
    const struct pool_plan *plan = reading->plan;
    const char *master = reading->input->inherited_master;
    if (plan->pool == PLAN_JOIN)
        return master && pool_plan_is_same_master(plan->master, master);
    if (plan->pool == PLAN_FILE)
        return strcmp(plan->file, reading->input->inherited) == 0;
    return plan->pool == PLAN_AS_GIVEN && reading->pool_text == POOL_TEXT_ANY;
}

static enum tarn_status inherited_take(struct reading *reading)
{
    struct pool_plan *plan = reading->plan;
    const char *path = reading->input->inherited;
    const char *row = distributed_row_set(reading, OPTION_FROM_ENVIRONMENT);
    if (row)
        return refuse(reading,
                      "--%s is set, and MOONCAKE_CONFIG_PATH=%.200s sets it as well: leave one of "
                      "them out",
                      row, path);
    plan->pool = PLAN_FILE;
    return text_take(reading, "MOONCAKE_CONFIG_PATH", path, plan->file, sizeof(plan->file));
}

static enum tarn_status inherited_plan(struct reading *reading)
{
    const char *path = reading->input->inherited;
    const enum option flag = flag_option(reading);
    if (flag == OPTION_COUNT_ALL) {
        if (reading->pool || reading->plan->pool != PLAN_AS_GIVEN)
            note(reading,
                 "MOONCAKE_CONFIG_PATH=%s, inherited, wins over the pool section of the "
                 "configuration file",
                 path);
        return inherited_take(reading);
    }
    if (flag == OPTION_POOL && strcmp(reading->pool, "none") == 0) {
        note(reading, "MOONCAKE_CONFIG_PATH=%s is not used: --pool is none", path);
        return TARN_OK;
    }
    if (!agrees(reading))
        return refuse(
            reading,
            "--%s %.200s (%s) and the inherited MOONCAKE_CONFIG_PATH=%.200s (master %.200s) "
            "name different pools: unset one of them",
            option_name(flag), option_text(reading->options, flag),
            option_origin(reading->options, flag), path,
            reading->input->inherited_master ? reading->input->inherited_master : "not set");
    note(reading, "MOONCAKE_CONFIG_PATH=%s, inherited, agrees with --%s and is used", path,
         option_name(flag));
    return inherited_take(reading);
}

/* ---- a donation ---- */

static enum tarn_status donation_plan(struct reading *reading)
{
    static const enum option rows[] = { OPTION_DONATION_MASTER_SERVER_ADDRESS,
                                        OPTION_DONATION_PROTOCOL, OPTION_DONATION_DEVICE_NAME,
                                        OPTION_DONATION_METADATA_SERVER };
    struct pool_plan *plan = reading->plan;
    const char *master = option_text(reading->options, OPTION_DONATION_MASTER_SERVER_ADDRESS);
    plan->donates = option_is_set(reading->options, OPTION_DONATION_SEGMENT_SIZE);
    for (size_t i = 0; i < LENGTH_OF(rows) && !plan->donates; i++)
        if (source_of(reading, rows[i]) != OPTION_FROM_DEFAULT)
            return refuse(reading, "a donation needs its size: set --donation-segment-size (in a "
                                   "configuration file: segment_size in section donation)");
    if (!plan->donates)
        return TARN_OK;
    if (master)
        TRY(text_take(reading, "--donation-master-server-address", master, plan->donation_master,
                      sizeof(plan->donation_master)));
    if (plan->pool == PLAN_AS_GIVEN && !master)
        return refuse(reading, "No master to join: a donation without a distributed pool needs "
                               "--donation-master-server-address");
    if (plan->pool == PLAN_AS_GIVEN && !reading->pool)
        plan->pool = PLAN_NO_POOL;
    return TARN_OK;
}

/* ---- all of it ---- */

static enum tarn_status needs_master(const struct reading *reading)
{
    const char *row = distributed_row_set(reading, OPTION_FROM_FILE);
    const bool is_wanted = reading->pool_text == POOL_TEXT_ANY;
    if (!is_wanted && !row)
        return TARN_OK;
    return refuse(reading,
                  "%s%s%s needs a master: launch one with --launch-master on, or name one with "
                  "--pool mooncake://HOST:PORT or --master-server-address",
                  is_wanted ? "--pool " : "--", is_wanted ? reading->pool : row,
                  is_wanted ? "" : " speaks of a distributed pool, which");
}

enum tarn_status pool_plan_make(const struct pool_plan_input *input, struct pool_plan *out_plan,
                                char *error) /* NOLINT(readability-non-const-parameter): written */
{
    struct pool_plan plan = { .pool = PLAN_AS_GIVEN };
    struct reading reading = {
        .input = input, .options = input->options, .error = error, .plan = &plan
    };
    pool_text_read(&reading);
    TRY(options_plan(&reading));
    if (input->inherited)
        TRY(inherited_plan(&reading));
    else if (plan.pool == PLAN_AS_GIVEN)
        TRY(needs_master(&reading));
    if (option_is_set(input->options, OPTION_MASTER_ADDRESS_FILE) && plan.pool != PLAN_LAUNCH)
        return refuse(&reading,
                      "--master-address-file %.200s publishes the address of a launched "
                      "master, and none is launched: set --launch-master on, or leave it "
                      "out (file://PATH in --master-server-address reads such a file)",
                      option_text(input->options, OPTION_MASTER_ADDRESS_FILE));
    TRY(donation_plan(&reading));
    *out_plan = plan;
    return TARN_OK;
}
