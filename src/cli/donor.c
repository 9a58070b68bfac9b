/* SPDX-License-Identifier: Apache-2.0 */
/* `tarn donor`: a process that lends memory to a distributed pool and moves no traffic. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cluster/address-file.h"
#include "cluster/capacity.h"
#include "cluster/client-options.h"
#include "cluster/device.h"
#include "cluster/find-master.h"
#include "cluster/landing.h"
#include "cluster/lender.h"
#include "config/option.h"
#include "config/value.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/stop.h"
#include "store/mooncake/environment.h"

enum {
    OUTPUT_BYTES_MAX = 1 << 16,
    LOOK_MS = 500,
    HEALTH_MS = 5000,
    LANDING_TIMEOUT_MS = 2000,
    SIZE_BYTES = 32,
};

struct donor {
    const struct options *options;
    struct mooncake_options client;
    struct found_master found;
    struct lender lender;
    char ready[ADDRESS_FILE_LINE_BYTES]; /* what the ready file holds; empty: nothing */
    bool is_lost;                        /* the master did not answer when it was asked last */
};

/* ---- what is asked for ---- */

static enum tarn_status config_read(struct donor *donor)
{
    const char *named = option_text(donor->options, OPTION_DONOR_CONFIG);
    const char *inherited = getenv("MOONCAKE_CONFIG_PATH"); /* NOLINT(concurrency-mt-unsafe) */
    const char *path = named ? named : inherited;
    mooncake_options_init(&donor->client);
    donor->client.global_segment_bytes = 0;
    if (!path || !path[0])
        return TARN_OK;
    return mooncake_options_read_file(path, &donor->client);
}

#define TEXT_TAKE(option, field) TRY(client_text_take(donor->options, option, field, sizeof(field)))

static enum tarn_status client_fill(struct donor *donor)
{
    struct mooncake_options *client = &donor->client;
    TRY(config_read(donor));
    TEXT_TAKE(OPTION_DONOR_MASTER, client->master_server_address);
    TEXT_TAKE(OPTION_DONOR_METADATA_SERVER, client->metadata_server);
    TEXT_TAKE(OPTION_DONOR_PROTOCOL, client->protocol);
    TEXT_TAKE(OPTION_DONOR_LOCAL_HOSTNAME, client->local_hostname);
    if (option_is_set(donor->options, OPTION_DONOR_SEGMENT_SIZE))
        client->global_segment_bytes = option_number(donor->options, OPTION_DONOR_SEGMENT_SIZE);
    client->local_buffer_bytes = CAPACITY_DONOR_BUFFER_BYTES;
    client->master_timeout_ms = option_number(donor->options, OPTION_DONOR_MASTER_TIMEOUT);
    if (!client->master_server_address[0]) {
        log_error("No master to join: name one with --master HOST:PORT or --master file://PATH, or "
                  "in the file of --config or MOONCAKE_CONFIG_PATH");
        return TARN_INVALID;
    }
    if (client->global_segment_bytes == 0) {
        log_error("how much memory is to be lent? set --segment-size, or global_segment_size in "
                  "the file of --config or MOONCAKE_CONFIG_PATH");
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status memory_check(const struct donor *donor)
{
    struct capacity_input input = { .donation_bytes = donor->client.global_segment_bytes };
    if (memory_available(&input.available_bytes) != TARN_OK)
        return TARN_OK; /* it is not known, and mounting will tell */
    const uint64_t headroom = memory_group_headroom("/proc/self/cgroup", "/sys/fs/cgroup");
    input.available_bytes = headroom < input.available_bytes ? headroom : input.available_bytes;
    const struct capacity capacity = capacity_compute(&input);
    char size[SIZE_BYTES];
    char available[SIZE_BYTES];
    value_print_size(input.donation_bytes, size, sizeof(size));
    value_print_size(input.available_bytes, available, sizeof(available));
    if (capacity.fits)
        return TARN_OK;
    log_error("--segment-size %" PRIu64 " bytes (%s) and a buffer of %" PRIu64
              " bytes are more than this host's available memory, %" PRIu64
              " bytes (%s), less a reserve of %" PRIu64 ": no memory was lent",
              input.donation_bytes, size, CAPACITY_DONOR_BUFFER_BYTES, input.available_bytes,
              available, capacity.reserve_bytes);
    return TARN_NO_SPACE;
}

/* ---- lending ---- */

static enum tarn_status place_find(struct donor *donor)
{
    struct mooncake_options *client = &donor->client;
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    const char *named = option_text(donor->options, OPTION_DONOR_DEVICE);
    const char *device = named ? named : client->device_name;
    TRY(find_master(client->master_server_address, client->master_timeout_ms, &donor->found));
    (void)snprintf(client->master_server_address, sizeof(client->master_server_address), "%s",
                   donor->found.text);
    TRY(find_local_host(&donor->found, client->local_hostname[0] ? client->local_hostname : NULL,
                        host));
    (void)snprintf(client->local_hostname, sizeof(client->local_hostname), "%s", host);
    TRY(device_take(client->protocol, device[0] ? device : "auto", client->device_name));
    log_info("donor: master %s, metadata %s, protocol %s, device %s, this host is %s",
             client->master_server_address, client->metadata_server, client->protocol,
             client->device_name[0] ? client->device_name : "(none)", client->local_hostname);
    return TARN_OK;
}

static enum tarn_status ready_write(struct donor *donor)
{
    const char *path = option_text(donor->options, OPTION_DONOR_READY_FILE);
    char line[ADDRESS_FILE_LINE_BYTES];
    if (!path)
        return TARN_OK;
    (void)snprintf(line, sizeof(line), "%.400s %" PRIu64, donor->client.local_hostname,
                   donor->lender.size_bytes);
    TRY(address_file_publish(path, line));
    memcpy(donor->ready, line, sizeof(line));
    return TARN_OK;
}

/* Bytes of blocks that lie in the segment; false: the master does not say. */
static bool used_ask(const struct donor *donor, uint64_t *out_used_bytes)
{
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    const struct landing_source source = {
        .host = donor->found.address.host,
        .port = (uint16_t)option_number(donor->options, OPTION_DONOR_HTTP_PORT),
        .timeout_ms = LANDING_TIMEOUT_MS,
        .segment = donor->lender.client.hostname,
    };
    if (!donor->found.is_address || landing_fetch(&source, &landing, reason) != TARN_OK)
        return false;
    *out_used_bytes = landing.segment_used_bytes;
    landing_deinit(&landing);
    return true;
}

static void heartbeat(const struct donor *donor, uint64_t start_ns)
{
    uint64_t used_bytes = 0;
    char used[SIZE_BYTES];
    const bool is_known = used_ask(donor, &used_bytes);
    value_print_size(used_bytes, used, sizeof(used));
    log_info("donor: alive for %" PRIu64 " s, lends %" PRIu64 " bytes as %s; %s%s",
             (clock_now_ns() - start_ns) / NS_PER_S, donor->lender.size_bytes,
             donor->lender.client.hostname,
             is_known ? "blocks take " : "the master does not say what blocks lie here",
             is_known ? used : "");
}

static void health_look(struct donor *donor)
{
    const bool is_lost = !lender_is_healthy(&donor->lender);
    if (is_lost && !donor->is_lost)
        log_warn("donor: the master %s does not answer; the memory stays lent, and is offered to "
                 "it again when it is back",
                 donor->client.master_server_address);
    else if (!is_lost && donor->is_lost)
        log_info("donor: the master %s answers again", donor->client.master_server_address);
    donor->is_lost = is_lost;
}

static void idle(struct donor *donor)
{
    const uint64_t start_ns = clock_now_ns();
    const uint64_t interval_ns = option_number(donor->options, OPTION_DONOR_HEARTBEAT) * NS_PER_MS;
    uint64_t beat_ns = start_ns + interval_ns;
    uint64_t health_ns = start_ns + HEALTH_MS * NS_PER_MS;
    while (!stop_wait(LOOK_MS)) {
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= health_ns) {
            health_look(donor);
            health_ns = now_ns + HEALTH_MS * NS_PER_MS;
        }
        if (interval_ns > 0 && now_ns >= beat_ns) {
            heartbeat(donor, start_ns);
            beat_ns += interval_ns;
        }
    }
}

static void leave(struct donor *donor)
{
    uint64_t used_bytes = 0;
    char used[SIZE_BYTES];
    const bool is_known = used_ask(donor, &used_bytes);
    value_print_size(used_bytes, used, sizeof(used));
    if (is_known)
        log_info("donor: leaving; blocks of %" PRIu64 " bytes (%s) that lived here are lost to the "
                 "pool",
                 used_bytes, used);
    else
        log_info("donor: leaving; the blocks that lived here are lost to the pool (the master does "
                 "not say how many)");
    if (donor->ready[0])
        address_file_withdraw(option_text(donor->options, OPTION_DONOR_READY_FILE), donor->ready);
    lender_close(&donor->lender);
    log_info("donor: left");
}

static enum tarn_status lend(struct donor *donor)
{
    TRY(place_find(donor));
    TRY(lender_open(&donor->client, &donor->lender));
    const enum tarn_status status = ready_write(donor);
    if (status == TARN_OK)
        idle(donor);
    leave(donor);
    return status;
}

static int help(void)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    enum tarn_status status = text_append(
        &text, "usage: tarn donor --master ADDRESS --segment-size SIZE [options]\n\nLend memory to "
               "a distributed pool until SIGTERM or SIGINT. It puts and gets nothing.\nDefaults "
               "are in brackets.\n");
    if (status == TARN_OK)
        status = options_print_help(OPTIONS_OF_DONOR, &text);
    if (status == TARN_OK)
        status = output_write(&text);
    return status == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}

int donor_command(int argc, char **argv)
{
    struct options options;
    struct donor donor = { .options = &options };
    if (options_read_of(OPTIONS_OF_DONOR, argc - 1, argv + 1, &options) != TARN_OK) {
        log_error("%s", options.error);
        return EXIT_STATUS_USAGE;
    }
    if (option_bool(&options, OPTION_DONOR_HELP))
        return help();
    stop_prepare();
    if (client_fill(&donor) != TARN_OK)
        return EXIT_STATUS_USAGE;
    mooncake_environment_prepare(donor.client.deadline_ms);
    enum tarn_status status = memory_check(&donor);
    if (status == TARN_OK)
        status = lend(&donor);
    if (status == TARN_AGAIN) /* told to end before anything was lent */
        status = TARN_OK;
    return status == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
