/* SPDX-License-Identifier: Apache-2.0 */
/* `tarn master`: a master with a life of its own. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cluster/address-file.h"
#include "cluster/landing.h"
#include "cluster/master.h"
#include "cluster/run-dir.h"
#include "config/option.h"
#include "os/clock.h"
#include "os/stop.h"

enum { OUTPUT_BYTES_MAX = 1 << 16, LOOK_MS = 200, LENDERS_MS = 2000, LANDING_TIMEOUT_MS = 2000 };

struct running {
    const struct options *options;
    struct run_dir dir;
    struct master master;
    struct landing landing; /* as it was last */
    char address[ADDRESS_TEXT_BYTES_MAX + 1];
    char published[PATH_MAX]; /* in the run directory; empty: not yet */
    const char *too;          /* --address-file, once it is there */
};

static uint16_t port_of(const struct running *running, enum option option)
{
    return (uint16_t)option_number(running->options, option);
}

static enum tarn_status start(struct running *running)
{
    const struct options *options = running->options;
    char log_path[PATH_MAX];
    TRY(run_dir_open(option_text(options, OPTION_MASTER_RUN_DIR), &running->dir));
    TRY(run_dir_file(&running->dir, RUN_DIR_MASTER_LOG, log_path));
    const struct master_options master_options = {
        .program = option_text(options, OPTION_MASTER_PROGRAM),
        .environment = environ,
        .log_path = log_path,
        .listen = option_text(options, OPTION_MASTER_LISTEN_HOST),
        .rpc_port = port_of(running, OPTION_MASTER_RPC_PORT),
        .http_port = port_of(running, OPTION_MASTER_HTTP_PORT),
        .eviction_millionths = (uint32_t)option_number(options, OPTION_MASTER_EVICTION),
        .timeout_ms = option_number(options, OPTION_MASTER_START_TIMEOUT),
    };
    TRY(master_address(&master_options, option_text(options, OPTION_MASTER_LOCAL_HOSTNAME),
                       running->address));
    return master_start(&master_options, &running->master);
}

static enum tarn_status publish(struct running *running)
{
    const char *too = option_text(running->options, OPTION_MASTER_PUBLISH);
    TRY(run_dir_file(&running->dir, RUN_DIR_ADDRESS, running->published));
    TRY(address_file_publish(running->published, running->address));
    if (too) {
        TRY(address_file_publish(too, running->address));
        running->too = too;
    }
    log_info("master: %s, published in %s%s%s", running->address, running->published,
             too ? " and " : "", too ? too : "");
    log_info("it has no authentication and no encryption, and listens on %s: let only hosts of the "
             "pool reach ports %u and %u there",
             master_place(option_text(running->options, OPTION_MASTER_LISTEN_HOST)),
             port_of(running, OPTION_MASTER_RPC_PORT), port_of(running, OPTION_MASTER_HTTP_PORT));
    return TARN_OK;
}

static struct landing_source source_of(const struct running *running)
{
    return (struct landing_source){
        .host = master_near(option_text(running->options, OPTION_MASTER_LISTEN_HOST)),
        .port = port_of(running, OPTION_MASTER_HTTP_PORT),
        .timeout_ms = LANDING_TIMEOUT_MS,
    };
}

/* Who lends memory, compared with the time before. A master that does not say is looked at in the
 * heartbeat. */
static void lenders_look(struct running *running)
{
    const struct landing_source source = source_of(running);
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    if (landing_fetch(&source, &landing, reason) != TARN_OK)
        return;
    landing_log_changes(&running->landing, &landing);
    landing_deinit(&running->landing);
    running->landing = landing;
}

static void heartbeat(const struct running *running, uint64_t start_ns)
{
    struct landing landing;
    char reason[LANDING_REASON_BYTES];
    const struct landing_source source = source_of(running);
    log_info("master: %s is alive, for %llu s", running->address,
             (unsigned long long)((clock_now_ns() - start_ns) / NS_PER_S));
    if (landing_fetch(&source, &landing, reason) != TARN_OK) {
        log_warn("master: where blocks lie is not known: http://%s:%u: %s", source.host,
                 source.port, reason);
        return;
    }
    landing_log(&landing);
    landing_deinit(&landing);
}

/* Until it is told to end: OK; or the master ends: IO. */
static enum tarn_status watch(struct running *running)
{
    const uint64_t start_ns = clock_now_ns();
    const uint64_t interval_ns =
        option_number(running->options, OPTION_MASTER_HEARTBEAT) * NS_PER_MS;
    uint64_t next_ns = start_ns + interval_ns;
    uint64_t lenders_ns = start_ns;
    while (!stop_wait(LOOK_MS)) {
        if (master_has_ended(&running->master))
            return TARN_IO;
        if (clock_now_ns() >= lenders_ns) {
            lenders_look(running);
            lenders_ns = clock_now_ns() + LENDERS_MS * NS_PER_MS;
        }
        if (interval_ns > 0 && clock_now_ns() >= next_ns) {
            heartbeat(running, start_ns);
            next_ns += interval_ns;
        }
    }
    log_info("master: told to end");
    return TARN_OK;
}

static void finish(struct running *running)
{
    if (running->published[0])
        address_file_withdraw(running->published, running->address);
    if (running->too)
        address_file_withdraw(running->too, running->address);
    master_stop(&running->master);
    landing_deinit(&running->landing);
    run_dir_close(&running->dir);
}

static enum tarn_status run(const struct options *options)
{
    struct running running = { .options = options, .dir = { .lock_fd = -1 } };
    stop_prepare();
    enum tarn_status status = start(&running);
    if (status == TARN_OK)
        status = publish(&running);
    if (status == TARN_OK)
        status = watch(&running);
    finish(&running);
    return status == TARN_AGAIN ? TARN_OK : status; /* told to end while it started */
}

static int help(void)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, OUTPUT_BYTES_MAX);
    enum tarn_status status = text_append(
        &text, "usage: tarn master [options]\n\nRun mooncake_master, the master of a distributed "
               "pool, until SIGTERM or SIGINT,\nand say where it is. Defaults are in brackets.\n");
    if (status == TARN_OK)
        status = options_print_help(OPTIONS_OF_MASTER, &text);
    if (status == TARN_OK)
        status = output_write(&text);
    return status == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}

int master_command(int argc, char **argv)
{
    struct options options;
    if (options_read_of(OPTIONS_OF_MASTER, argc - 1, argv + 1, &options) != TARN_OK) {
        log_error("%s", options.error);
        return EXIT_STATUS_USAGE;
    }
    if (option_bool(&options, OPTION_MASTER_HELP))
        return help();
    return run(&options) == TARN_OK ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
