/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/provision.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cluster/address-file.h"
#include "cluster/capacity.h"
#include "cluster/client-file.h"
#include "cluster/client-options.h"
#include "cluster/device.h"
#include "cluster/find-master.h"
#include "cluster/landing.h"
#include "cluster/lender.h"
#include "cluster/master.h"
#include "cluster/pool-plan.h"
#include "cluster/run-dir.h"
#include "config/value.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/process.h"
#include "os/thread.h"
#include "os/wakeup.h"
#include "store/mooncake/environment.h"
#include "store/mooncake/header.h"
#include "store/mooncake/provider.h"

enum {
    SIZE_BYTES = 32,
    LANDING_TIMEOUT_MS = 2000,
    WATCH_MS = 500,
    RANK_COUNT = 1, /* of tarn serve */
};

struct provision {
    const struct options *options;
    char **environment; /* as it was at the start: what a launched master gets */
    struct pool_plan plan;
    struct run_dir dir;
    struct master master;
    struct thread watch; /* looks at the master until `stopping` is signalled */
    struct wakeup stopping;
    char published[PATH_MAX];     /* where the address is; empty: nowhere */
    char published_too[PATH_MAX]; /* --master-address-file */
    struct found_master found;
    struct mooncake_options client;   /* of the pool, as its mooncake.json says */
    struct mooncake_options donation; /* of the donation's client */
    struct lender lender;
    uint64_t others_bytes;
    char pool[PATH_MAX + 16]; /* empty: --pool as it was */
};

static const char *text_of(const struct provision *provision, enum option option)
{
    return option_text(provision->options, option);
}

static uint64_t number_of(const struct provision *provision, enum option option)
{
    return option_number(provision->options, option);
}

static bool has_pool(const struct provision *provision)
{
    return provision->plan.pool == PLAN_JOIN || provision->plan.pool == PLAN_LAUNCH ||
           provision->plan.pool == PLAN_FILE;
}

/* ---- the plan ---- */

static enum tarn_status plan_find(struct provision *provision)
{
    char error[OPTION_ERROR_BYTES];
    struct pool_plan_input input = { .options = provision->options,
                                     .inherited = process_variable(provision->environment,
                                                                   "MOONCAKE_CONFIG_PATH") };
    if (input.inherited) {
        TRY(mooncake_options_read_file(input.inherited, &provision->client));
        input.inherited_master = provision->client.master_server_address;
    }
    const enum tarn_status status = pool_plan_make(&input, &provision->plan, error);
    if (status != TARN_OK)
        log_error("%s", error);
    else if (provision->plan.note[0])
        log_info("%s", provision->plan.note);
    return status;
}

static enum tarn_status tenant_check(const struct mooncake_options *client)
{
    struct provider provider;
    if (!client->tenant_id[0])
        return TARN_OK;
    TRY(provider_open(client->library, client->wheel, &provider));
    if (provider.functions.setup_tenant)
        return TARN_OK;
    log_error("--tenant-id %s: %s, which is the Mooncake library here, has no tenants: leave "
              "tenant_id out, or use the Python package",
              client->tenant_id, provider.path);
    return TARN_UNSUPPORTED;
}

/* ---- memory ---- */

static uint64_t available_bytes(void)
{
    uint64_t bytes = 0;
    if (memory_available(&bytes) != TARN_OK)
        return 0;
    const uint64_t headroom = memory_group_headroom("/proc/self/cgroup", "/sys/fs/cgroup");
    return headroom < bytes ? headroom : bytes;
}

/* Slots of one rank, for the directions that its role uses. */
static uint64_t staging_bytes(const struct provision *provision)
{
    const uint64_t role = number_of(provision, OPTION_ROLE);
    const uint64_t own_bytes = provision->client.staging_buffer_bytes;
    return (role == TARN_ROLE_BOTH ? 2 : 1) *
           (own_bytes ? own_bytes : number_of(provision, OPTION_STAGING_BUFFER));
}

static struct capacity_input capacity_input_of(const struct provision *provision)
{
    struct capacity_input input = { .rank_count = RANK_COUNT,
                                    .others_bytes = provision->others_bytes,
                                    .available_bytes = available_bytes() };
    if (provision->plan.donates)
        input.donation_bytes = number_of(provision, OPTION_DONATION_SEGMENT_SIZE);
    if (has_pool(provision)) {
        input.segment_bytes = mooncake_lent_bytes(&provision->client);
        input.buffer_bytes = provision->client.local_buffer_bytes;
        if (number_of(provision, OPTION_STAGE_THROUGH_HOST) != TARN_SETTING_OFF)
            input.staging_bytes = staging_bytes(provision);
    }
    return input;
}

static enum tarn_status memory_check(const struct provision *provision)
{
    const struct capacity_input input = capacity_input_of(provision);
    const struct capacity capacity = capacity_compute(&input);
    char taken[SIZE_BYTES];
    char available[SIZE_BYTES];
    char reserve[SIZE_BYTES];
    if (capacity.fits)
        return TARN_OK;
    value_print_size(capacity.taken_bytes, taken, sizeof(taken));
    value_print_size(input.available_bytes, available, sizeof(available));
    value_print_size(capacity.reserve_bytes, reserve, sizeof(reserve));
    log_error("segments plus staging need %" PRIu64 " bytes (%s): %u x (segment %" PRIu64
              " + buffer %" PRIu64 " + staging %" PRIu64 ") + donation %" PRIu64
              "; this host has %" PRIu64 " bytes (%s) available, of which %" PRIu64
              " (%s) are a reserve. Lower --global-segment-size, --local-buffer-size or "
              "--donation-segment-size",
              capacity.taken_bytes, taken, input.rank_count, input.segment_bytes,
              input.buffer_bytes, input.staging_bytes, input.donation_bytes, input.available_bytes,
              available, capacity.reserve_bytes, reserve);
    return TARN_NO_SPACE;
}

static void capacity_say(const struct provision *provision)
{
    const struct capacity_input input = capacity_input_of(provision);
    const struct capacity capacity = capacity_compute(&input);
    char pool[SIZE_BYTES];
    char left[SIZE_BYTES];
    value_print_size(capacity.pool_bytes, pool, sizeof(pool));
    value_print_size(capacity.left_bytes, left, sizeof(left));
    log_info("pool capacity: %u x segment %" PRIu64 " + donation %" PRIu64 " + others %" PRIu64
             " = %" PRIu64 " bytes (%s); of this host's memory %" PRIu64 " bytes (%s) are left, "
             "less a reserve of %" PRIu64,
             input.rank_count, input.segment_bytes, input.donation_bytes, input.others_bytes,
             capacity.pool_bytes, pool, capacity.left_bytes, left, capacity.reserve_bytes);
}

/* ---- what clients are told ---- */

static void client_say(const struct provision *provision)
{
    const struct mooncake_options *client = &provision->client;
    char segment[SIZE_BYTES];
    char buffer[SIZE_BYTES];
    value_print_size(mooncake_lent_bytes(client), segment, sizeof(segment));
    value_print_size(client->local_buffer_bytes, buffer, sizeof(buffer));
    log_info("pool: master %s, metadata %s, protocol %s, device %s, this host is %s%s%s",
             client->master_server_address, client->metadata_server, client->protocol,
             client->device_name[0] ? client->device_name : "(none)",
             client->local_hostname[0] ? client->local_hostname : "(by the route to the master)",
             client->tenant_id[0] ? ", tenant " : "", client->tenant_id);
    log_info("pool: segment %" PRIu64 " bytes (%s), local buffer %" PRIu64 " bytes (%s), in %s",
             mooncake_lent_bytes(client), segment, client->local_buffer_bytes, buffer,
             provision->pool);
}

/* Write mooncake.json, and let --pool be it. */
static enum tarn_status client_publish(struct provision *provision)
{
    struct mooncake_options *client = &provision->client;
    char path[PATH_MAX];
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    (void)snprintf(client->master_server_address, sizeof(client->master_server_address), "%s",
                   provision->found.text);
    TRY(find_local_host(&provision->found, text_of(provision, OPTION_LOCAL_HOSTNAME), host));
    (void)snprintf(client->local_hostname, sizeof(client->local_hostname), "%s", host);
    TRY(device_take(client->protocol, text_of(provision, OPTION_DEVICE_NAME), client->device_name));
    TRY(run_dir_file(&provision->dir, RUN_DIR_CLIENT_FILE, path));
    TRY(client_file_write(client, path));
    (void)snprintf(provision->pool, sizeof(provision->pool), "mooncake:%s", path);
    return TARN_OK;
}

/* ---- a master of our own ---- */

static void master_watch(void *context)
{
    struct provision *provision = context;
    bool is_told = false;
    while (!is_told && !master_has_ended(&provision->master)) {
        const uint64_t deadline_ns = clock_now_ns() + WATCH_MS * NS_PER_MS;
        wakeup_wait(&provision->stopping, deadline_ns);
        is_told = clock_now_ns() < deadline_ns;
    }
    if (!is_told)
        log_error(
            "the pool is lost with its master: everything is a miss from now on, and computed");
}

static enum tarn_status master_launch(struct provision *provision)
{
    char log_path[PATH_MAX];
    char address[ADDRESS_TEXT_BYTES_MAX + 1];
    struct found_master *found = &provision->found;
    const char *too = text_of(provision, OPTION_MASTER_ADDRESS_FILE);
    TRY(run_dir_file(&provision->dir, RUN_DIR_MASTER_LOG, log_path));
    const struct master_options options = {
        .program = text_of(provision, OPTION_MOONCAKE_MASTER),
        .environment = provision->environment,
        .log_path = log_path,
        .listen = text_of(provision, OPTION_MASTER_LISTEN),
        .rpc_port = (uint16_t)number_of(provision, OPTION_MASTER_PORT),
        .http_port = (uint16_t)number_of(provision, OPTION_MASTER_METRICS_PORT),
        .eviction_millionths = (uint32_t)number_of(provision, OPTION_MASTER_EVICTION_RATIO),
        .timeout_ms = number_of(provision, OPTION_MASTER_TIMEOUT),
    };
    TRY(master_address(&options, text_of(provision, OPTION_LOCAL_HOSTNAME), address));
    TRY(master_start(&options, &provision->master));
    TRY(wakeup_init(&provision->stopping));
    TRY(thread_start(&provision->watch, "master-watch", master_watch, provision));
    (void)snprintf(found->text, sizeof(found->text), "%s", address);
    found->is_address = address_parse(address, &found->address) == TARN_OK;
    memcpy(found->route.own, found->address.host, sizeof(found->route.own));
    memcpy(found->route.peer, found->address.host, sizeof(found->route.peer));
    TRY(run_dir_file(&provision->dir, RUN_DIR_ADDRESS, provision->published));
    TRY(address_file_publish(provision->published, found->text));
    if (too) {
        TRY(address_file_publish(too, found->text));
        (void)snprintf(provision->published_too, sizeof(provision->published_too), "%s", too);
    }
    log_info("master: %s, published in %s%s%s", found->text, provision->published,
             too ? " and " : "", too ? too : "");
    return TARN_OK;
}

/* ---- opening ---- */

/* The file of somebody else is used as it is. But a connector takes a role of `both` for one that
 * nobody chose, and lets the file decide: where a flag chose it, the file is copied without. */
static enum tarn_status file_take(struct provision *provision)
{
    char path[PATH_MAX];
    const struct option_value *role = &provision->options->values[OPTION_ROLE];
    if (role->source == OPTION_FROM_DEFAULT || role->number != TARN_ROLE_BOTH ||
        provision->client.role == 0) {
        (void)snprintf(provision->pool, sizeof(provision->pool), "mooncake:%s",
                       provision->plan.file);
        return TARN_OK;
    }
    TRY(run_dir_open(text_of(provision, OPTION_RUN_DIR), &provision->dir));
    TRY(run_dir_file(&provision->dir, RUN_DIR_CLIENT_FILE, path));
    TRY(client_file_write(&provision->client, path));
    (void)snprintf(provision->pool, sizeof(provision->pool), "mooncake:%s", path);
    log_info("pool: %s is %s but for its role, which is both %s", path, provision->plan.file,
             option_origin(provision->options, OPTION_ROLE));
    return TARN_OK;
}

static enum tarn_status pool_open_by_plan(struct provision *provision)
{
    const struct pool_plan *plan = &provision->plan;
    const uint64_t timeout_ms = number_of(provision, OPTION_MASTER_TIMEOUT);
    if (plan->pool == PLAN_FILE) {
        TRY(find_master(provision->client.master_server_address, timeout_ms, &provision->found));
        return file_take(provision);
    }
    TRY(run_dir_open(text_of(provision, OPTION_RUN_DIR), &provision->dir));
    TRY(plan->pool == PLAN_LAUNCH ? master_launch(provision)
                                  : find_master(plan->master, timeout_ms, &provision->found));
    return client_publish(provision);
}

static enum tarn_status donation_prepare(struct provision *provision)
{
    struct mooncake_options *donation = &provision->donation;
    struct found_master found = provision->found;
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    if (provision->plan.donation_master[0])
        TRY(find_master(provision->plan.donation_master,
                        number_of(provision, OPTION_MASTER_TIMEOUT), &found));
    mooncake_options_init(donation);
    (void)snprintf(donation->master_server_address, sizeof(donation->master_server_address), "%s",
                   found.text);
    TRY(client_text_take(provision->options, OPTION_DONATION_METADATA_SERVER,
                         donation->metadata_server, sizeof(donation->metadata_server)));
    TRY(client_text_take(provision->options, OPTION_DONATION_PROTOCOL, donation->protocol,
                         sizeof(donation->protocol)));
    TRY(find_local_host(&found, text_of(provision, OPTION_LOCAL_HOSTNAME), host));
    (void)snprintf(donation->local_hostname, sizeof(donation->local_hostname), "%s", host);
    donation->global_segment_bytes = number_of(provision, OPTION_DONATION_SEGMENT_SIZE);
    donation->local_buffer_bytes = CAPACITY_DONOR_BUFFER_BYTES;
    donation->master_timeout_ms = number_of(provision, OPTION_MASTER_TIMEOUT);
    return device_take(donation->protocol, text_of(provision, OPTION_DONATION_DEVICE_NAME),
                       donation->device_name);
}

static struct landing_source landing_source_of(const struct provision *provision)
{
    return (struct landing_source){
        .host = provision->found.address.host,
        .port = (uint16_t)number_of(provision, OPTION_MASTER_METRICS_PORT),
        .timeout_ms = LANDING_TIMEOUT_MS,
    };
}

/* What the others lend at this moment; a master that does not say is no failure. */
static void others_ask(struct provision *provision)
{
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    const struct landing_source source = landing_source_of(provision);
    if (!provision->found.is_address)
        return;
    if (landing_fetch(&source, &landing, reason) != TARN_OK) {
        log_warn("the master does not say who lends memory: http://%s:%u: %s; name its port with "
                 "--master-metrics-port",
                 source.host, source.port, reason);
        return;
    }
    provision->others_bytes = landing.capacity_bytes;
    landing_deinit(&landing);
}

static enum tarn_status all_open(struct provision *provision)
{
    const struct pool_plan *plan = &provision->plan;
    TRY(plan_find(provision));
    if (has_pool(provision) || plan->donates)
        mooncake_environment_prepare((uint32_t)number_of(provision, OPTION_LOAD_DEADLINE));
    if (plan->pool == PLAN_JOIN || plan->pool == PLAN_LAUNCH)
        TRY(client_from_options(provision->options, &provision->client));
    if (plan->pool == PLAN_FILE)
        TRY(mooncake_options_read_file(plan->file, &provision->client));
    if (has_pool(provision))
        TRY(tenant_check(&provision->client));
    if (has_pool(provision) || plan->donates)
        TRY(memory_check(provision));
    if (has_pool(provision)) {
        TRY(pool_open_by_plan(provision));
        others_ask(provision);
        client_say(provision);
    }
    if (plan->donates)
        TRY(donation_prepare(provision));
    if (has_pool(provision))
        capacity_say(provision);
    if (plan->pool == PLAN_NO_POOL) {
        log_info("pool: none; this server lends memory, and a donation alone attaches no pool");
        (void)snprintf(provision->pool, sizeof(provision->pool), "none");
    }
    return TARN_OK;
}

enum tarn_status provision_open(const struct options *options, char *const *environment,
                                struct provision **out_provision)
{
    static const char *const none[] = { NULL };
    struct provision *provision = mem_alloc(1, sizeof(*provision));
    if (!provision)
        return TARN_NO_MEMORY;
    provision->options = options;
    provision->dir.lock_fd = -1;
    provision->stopping.fd = -1;
    enum tarn_status status = process_environment(environment, none, &provision->environment);
    if (status == TARN_OK)
        status = all_open(provision);
    if (status != TARN_OK) {
        provision_close(provision);
        return status;
    }
    *out_provision = provision;
    return TARN_OK;
}

/* A value of the file, unless the option has one of its own. */
static void value_apply(struct options *options, enum option option, bool is_there,
                        const char *text, uint64_t number)
{
    struct option_value *value = &options->values[option];
    if (!is_there || value->source != OPTION_FROM_DEFAULT)
        return;
    value->source = OPTION_FROM_ENVIRONMENT; /* of MOONCAKE_CONFIG_PATH, most likely */
    value->is_set = true;
    value->text = text;
    value->number = number;
}

void provision_apply(const struct provision *provision, struct options *options)
{
    const struct mooncake_options *file = &provision->client;
    if (provision->pool[0])
        options->values[OPTION_POOL].text = provision->pool;
    if (provision->plan.pool != PLAN_FILE)
        return;
    value_apply(options, OPTION_CACHE_PREFIX, file->cache_prefix[0] != '\0', file->cache_prefix, 1);
    value_apply(options, OPTION_MODEL_KEY, file->model_key[0] != '\0', file->model_key, 1);
    value_apply(options, OPTION_ROLE, file->role > 0, "(file)", file->role - 1);
    value_apply(options, OPTION_TRANSFER_BATCH_SIZE, file->transfer_batch_size > 0, "(file)",
                file->transfer_batch_size);
    value_apply(options, OPTION_STAGE_THROUGH_HOST, file->stage_through_host != TARN_SETTING_UNSET,
                "(file)", file->stage_through_host);
    value_apply(options, OPTION_STAGING_BUFFER, file->staging_buffer_bytes > 0, "(file)",
                file->staging_buffer_bytes);
}

/* ---- while the server runs ---- */

enum tarn_status provision_entered(struct provision *provision, uint64_t block_bytes,
                                   uint32_t block_tokens)
{
    if (provision->plan.donates)
        TRY(lender_open(&provision->donation, &provision->lender));
    if (!has_pool(provision) || block_bytes == 0)
        return TARN_OK;
    struct capacity_input input = capacity_input_of(provision);
    input.block_bytes = block_bytes + HEADER_BYTES;
    input.block_tokens = block_tokens;
    const struct capacity capacity = capacity_compute(&input);
    log_info("pool capacity: %" PRIu64 " bytes / (%u x %" PRIu64 " bytes a block) x %u tokens = "
             "%" PRIu64 " tokens fit",
             capacity.pool_bytes, input.rank_count, input.block_bytes, block_tokens,
             capacity.token_count);
    return TARN_OK;
}

void provision_leave(struct provision *provision)
{
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    const struct landing_source source = landing_source_of(provision);
    if (has_pool(provision) && provision->found.is_address) {
        const enum tarn_status status = landing_fetch(&source, &landing, reason);
        if (status == TARN_OK) {
            landing_log(&landing);
            landing_deinit(&landing);
        } else {
            log_warn("where blocks landed is not known: http://%s:%u: %s", source.host, source.port,
                     reason);
        }
    }
    if (provision->lender.size_bytes > 0)
        log_info("the donation ends: blocks that lie in it are lost to the pool");
    lender_close(&provision->lender);
}

void provision_close(struct provision *provision)
{
    if (!provision)
        return;
    lender_close(&provision->lender);
    if (provision->published[0])
        address_file_withdraw(provision->published, provision->found.text);
    if (provision->published_too[0])
        address_file_withdraw(provision->published_too, provision->found.text);
    if (provision->stopping.fd >= 0) {
        wakeup_signal(&provision->stopping);
        thread_join(&provision->watch);
        wakeup_deinit(&provision->stopping);
    }
    master_stop(&provision->master);
    run_dir_close(&provision->dir);
    mem_free(provision->environment);
    mem_free(provision);
}
