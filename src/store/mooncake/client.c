/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/value.h"
#include "os/clock.h"
#include "os/stop.h"
#include "store/mooncake/address.h"
#include "store/mooncake/environment.h"
#include "store/mooncake/header.h"
#include "store/mooncake/result.h"

/* The object that stays, for consumers to read; another version of its bytes has another key. */
#define CANARY_KEPT_KEY "tarn/canary/1"

enum {
    CANARY_BYTES = 4096,
    CANARY_KEY_BYTES = 128,
    RESULT_BYTES = 64,
    SIZE_BYTES = 32,
    RETRY_MS_FIRST = 100,
    RETRY_MS_MAX = 1000,
    LOST_HOST_MS = 20000, /* the memory of a host that is gone is still listed for about 10 s */
    SETUP_TRIES = 3,      /* while the master is too busy to answer within an RPC's time-out */
    ATTACH_MS = 5000,     /* until a standalone client's first answer */
    AREA_BYTES_MIN = 4096,
};

#define SPARE_BYTES                                                                                \
    (UINT64_C(1) << 20) /* that a standalone client wants, and Tarn does not use                   \
                         */

/* ---- setup ---- */

static enum tarn_status hostname_find(const struct mooncake_options *options,
                                      char out_name[ADDRESS_HOST_BYTES_MAX + 1])
{
    struct address master;
    if (options->local_hostname[0]) {
        const int length =
            snprintf(out_name, ADDRESS_HOST_BYTES_MAX + 1, "%s", options->local_hostname);
        if (length > ADDRESS_HOST_BYTES_MAX) {
            log_error("mooncake: local_hostname is longer than %d bytes", ADDRESS_HOST_BYTES_MAX);
            return TARN_INVALID;
        }
        return TARN_OK;
    }
    if (address_parse(options->master_server_address, &master) != TARN_OK) {
        log_error("mooncake: master_server_address: '%s' is no HOST:PORT",
                  options->master_server_address);
        return TARN_INVALID;
    }
    return address_of_route(&master, out_name);
}

static int setup_call(const struct client *client, const struct mooncake_options *options,
                      const char *hostname)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    if (client->area_bytes)
        return functions->setup_dummy(client->handle, SPARE_BYTES, SPARE_BYTES,
                                      options->client_address);
    if (options->tenant_id[0])
        return functions->setup_tenant(client->handle, hostname, options->metadata_server,
                                       options->global_segment_bytes, options->local_buffer_bytes,
                                       options->protocol, options->device_name,
                                       options->master_server_address, options->tenant_id);
    return functions->setup(client->handle, hostname, options->metadata_server,
                            options->global_segment_bytes, options->local_buffer_bytes,
                            options->protocol, options->device_name,
                            options->master_server_address);
}

static enum tarn_status handle_create(struct client *client)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    char reason[LOG_LINE_BYTES_MAX / 2] = "it does not say why";
    client->handle = functions->create();
    if (client->handle)
        return TARN_OK;
    if (functions->failure)
        (void)functions->failure(reason, sizeof(reason));
    log_error("mooncake: no client could be made by %s: %s", client->provider.path, reason);
    return TARN_UNSUPPORTED;
}

/* What a setup that failed has left is not set up again. */
static enum tarn_status handle_renew(struct client *client)
{
    client_stop(client);
    return handle_create(client);
}

/* What the provider cannot do. */
static enum tarn_status setup_check(struct client *client, const struct mooncake_options *options)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    if (options->client == MOONCAKE_EMBEDDED) {
        if (!options->tenant_id[0] || functions->setup_tenant)
            return TARN_OK;
        log_error("mooncake: tenant_id is '%s', and %s cannot pass it on: use the wheel, or leave "
                  "tenant_id out",
                  options->tenant_id, client->provider.path);
        return TARN_UNSUPPORTED;
    }
    if (!functions->setup_dummy || !functions->alloc_from_mem_pool) {
        log_error("mooncake: client is standalone, and %s cannot attach to a mooncake_client: use "
                  "the wheel, or set client to embedded",
                  client->provider.path);
        return TARN_UNSUPPORTED;
    }
    if (options->tenant_id[0]) {
        log_error(
            "mooncake: tenant_id is '%s', and client is standalone: the tenant is that of the "
            "mooncake_client (--tenant_id); leave tenant_id out",
            options->tenant_id);
        return TARN_UNSUPPORTED;
    }
    client->area_bytes =
        options->local_buffer_bytes / CLIENT_AREAS / AREA_BYTES_MIN * AREA_BYTES_MIN;
    if (client->area_bytes)
        return TARN_OK;
    log_error("mooncake: local_buffer_size of %" PRIu64 " bytes is too small for a standalone "
              "client: it is divided by %d",
              options->local_buffer_bytes, CLIENT_AREAS);
    return TARN_INVALID;
}

static enum tarn_status setup_fail(const struct client *client,
                                   const struct mooncake_options *options, int result,
                                   uint64_t start_ns)
{
    char text[RESULT_BYTES];
    const uint64_t took_ms = (clock_now_ns() - start_ns) / NS_PER_MS;
    (void)result_print(result, text, sizeof(text));
    if (client->area_bytes)
        log_error("mooncake: attaching to the mooncake_client at %s failed after %" PRIu64
                  " ms: %s. Does it run on this host, in the same network namespace, with "
                  "--port=PORT, and is it of the same version (client_address)?",
                  options->client_address, took_ms, text);
    else
        log_error("mooncake: setup of the client failed after %" PRIu64 " ms: %s. Does a "
                  "mooncake_master of this version (%s%s) listen at %s, and are %" PRIu64
                  " + %" PRIu64
                  " bytes of memory free here (global_segment_size, local_buffer_size)?",
                  took_ms, text, client->version[0] ? "Mooncake " : client->provider.path,
                  client->version, options->master_server_address, options->global_segment_bytes,
                  options->local_buffer_bytes);
    return TARN_IO;
}

static enum tarn_status client_setup(struct client *client, const struct mooncake_options *options)
{
    char hostname[ADDRESS_HOST_BYTES_MAX + 1];
    char segment[SIZE_BYTES];
    char buffer[SIZE_BYTES];
    TRY(setup_check(client, options));
    TRY(hostname_find(options, hostname));
    const uint64_t start_ns = clock_now_ns();
    int result = setup_call(client, options, hostname);
    for (int tries = 1; result == MOONCAKE_RPC_TIMEOUT && tries < SETUP_TRIES; tries++) {
        log_info("mooncake: the master did not answer in time: setting the client up again");
        TRY(handle_renew(client));
        result = setup_call(client, options, hostname);
    }
    if (result != 0)
        return setup_fail(client, options, result, start_ns);
    if (client->provider.functions.get_hostname(client->handle, client->hostname,
                                                sizeof(client->hostname)) != 0)
        (void)snprintf(client->hostname, sizeof(client->hostname), "%s", hostname);
    value_print_size(options->global_segment_bytes, segment, sizeof(segment));
    value_print_size(options->local_buffer_bytes, buffer, sizeof(buffer));
    if (client->area_bytes) {
        log_info(
            "mooncake: attached to the mooncake_client at %s through %s%s%s, for the master at "
            "%s: this process lends nothing; pages pass through %d x %" PRIu64
            " bytes of memory shared with it (local_buffer_size, %s)",
            options->client_address, client->provider.path, client->version[0] ? ", Mooncake " : "",
            client->version, options->master_server_address, CLIENT_AREAS, client->area_bytes,
            buffer);
        return TARN_OK;
    }
    log_info("mooncake: joined the master at %s as %s through %s%s%s: protocol %s, lends %" PRIu64
             " bytes (%s), buffer of %" PRIu64 " bytes (%s)",
             options->master_server_address, client->hostname, client->provider.path,
             client->version[0] ? ", Mooncake " : "", client->version, options->protocol,
             options->global_segment_bytes, segment, options->local_buffer_bytes, buffer);
    return TARN_OK;
}

/* ---- memory ---- */

enum tarn_status client_memory_take(const struct client *client, size_t size_bytes,
                                    void **out_memory)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    char text[RESULT_BYTES];
    void *memory = client->area_bytes ? functions->alloc_from_mem_pool(client->handle, size_bytes)
                                      : mem_alloc(size_bytes, 1);
    if (!memory)
        return TARN_NO_MEMORY;
    const int result = functions->register_buffer(client->handle, memory, size_bytes);
    if (result == 0) {
        *out_memory = memory;
        return TARN_OK;
    }
    log_error("mooncake: %zu bytes of memory cannot be registered: %s", size_bytes,
              result_print(result, text, sizeof(text)));
    if (!client->area_bytes)
        mem_free(memory);
    return TARN_IO;
}

/* A standalone client is not told: closing tells it, once, where each word to one that hangs would
 * take 30 s. */
void client_memory_drop(const struct client *client, void *memory, size_t size_bytes)
{
    if (memory && client->area_bytes)
        (void)madvise(memory, size_bytes, MADV_REMOVE);
    else if (memory)
        (void)client->provider.functions.unregister_buffer(client->handle, memory);
}

void client_memory_free(const struct client *client, void *memory)
{
    if (!client->area_bytes)
        mem_free(memory);
}

/* ---- the canary ---- */

/* A small object, its header before it, in registered memory. */
struct canary {
    const struct client *client;
    uint8_t *bytes; /* HEADER_BYTES and CANARY_BYTES */
    char key[CANARY_KEY_BYTES];
};

static struct tarn_span canary_span(const struct canary *canary)
{
    return (struct tarn_span){ canary->bytes + HEADER_BYTES, CANARY_BYTES };
}

static void canary_fill(const struct canary *canary)
{
    const struct tarn_span span = canary_span(canary);
    uint8_t *bytes = span.base;
    for (uint32_t i = 0; i < CANARY_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    header_write(canary->key, &span, 1, canary->bytes);
}

static int canary_put(const struct canary *canary)
{
    const char *key = canary->key;
    void *buffer = canary->bytes;
    const size_t size = HEADER_BYTES + CANARY_BYTES;
    int result = MOONCAKE_RPC_FAILED;
    canary_fill(canary);
    const int status = canary->client->provider.functions.batch_put_from(
        canary->client->handle, &key, &buffer, &size, 1, NULL, &result);
    return status == 0 ? result : status;
}

static int canary_exists(const struct canary *canary)
{
    const char *key = canary->key;
    int result = MOONCAKE_RPC_FAILED;
    const int status =
        canary->client->provider.functions.batch_is_exist(canary->client->handle, &key, 1, &result);
    return status == 0 ? result : status;
}

static int64_t canary_get(const struct canary *canary)
{
    const char *key = canary->key;
    void *buffer = canary->bytes;
    const size_t size = HEADER_BYTES + CANARY_BYTES;
    int64_t result = MOONCAKE_RPC_FAILED;
    memset(canary->bytes, 0, size);
    const int status = canary->client->provider.functions.batch_get_into(
        canary->client->handle, &key, &buffer, &size, 1, &result);
    return status == 0 ? result : status;
}

static enum tarn_status canary_fail(const struct canary *canary, const char *step, int64_t result)
{
    char text[RESULT_BYTES];
    log_error("mooncake: the pool was tried with a small object, and the step `%s` failed: %s. The "
              "pool is not used; see the master's log",
              step, result_print(result, text, sizeof(text)));
    (void)canary;
    return TARN_IO;
}

/* Questions are answered, and the step that moves an object is not: what versions that differ look
 * like. */
static enum tarn_status canary_fail_move(const struct canary *canary, const char *step,
                                         int64_t result)
{
    char text[RESULT_BYTES];
    const struct client *client = canary->client;
    if (!result_is_rpc(result))
        return canary_fail(canary, step, result);
    log_error("mooncake: the master answers questions, and the step `%s` failed: %s. Client and "
              "master are most likely of different versions of Mooncake, with which no page would "
              "ever be saved or loaded: use the same on all hosts (here: %s%s)",
              step, result_print(result, text, sizeof(text)),
              client->version[0] ? "Mooncake " : client->provider.path, client->version);
    return TARN_UNSUPPORTED;
}

static void wait_ms(uint64_t ms)
{
    const struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
                                    .tv_nsec = (long)(ms % 1000 * NS_PER_MS) };
    (void)nanosleep(&pause, NULL);
}

/* The host that was to hold the object is leaving, or has died: reading from it fails, or the
 * master has forgotten the object with the host's memory. */
static bool is_of_lost_host(int64_t result)
{
    return result == MOONCAKE_TRANSFER_FAILED || result == MOONCAKE_NOT_FOUND;
}

/* How long a step that ended so is tried again. */
static uint64_t patience_ns(int64_t result, const struct mooncake_options *options)
{
    const uint64_t timeout_ms = options->master_timeout_ms;
    if (result == MOONCAKE_NO_SPACE)
        return timeout_ms * NS_PER_MS;
    if (is_of_lost_host(result))
        return (timeout_ms < LOST_HOST_MS ? timeout_ms : LOST_HOST_MS) * NS_PER_MS;
    return 0;
}

/* Tries that go on for a while. */
struct tries {
    uint64_t start_ns;
    uint64_t pause_ms; /* zeroed: the first */
    bool is_rpc_retried;
    bool is_told_to_end; /* the process is; the last word of all tries */
};

/* Whether to try again after this result; waits before. An RPC that fails is tried twice. */
static bool tries_go_on(struct tries *tries, int64_t result, const struct mooncake_options *options)
{
    const bool is_rpc = result_is_rpc(result);
    const bool is_first = tries->pause_ms == 0;
    tries->pause_ms = is_first                             ? RETRY_MS_FIRST
                      : tries->pause_ms * 2 < RETRY_MS_MAX ? tries->pause_ms * 2
                                                           : RETRY_MS_MAX;
    const uint64_t end_ns = clock_now_ns() + tries->pause_ms * NS_PER_MS;
    if (is_rpc ? tries->is_rpc_retried : end_ns > tries->start_ns + patience_ns(result, options))
        return false;
    tries->is_rpc_retried |= is_rpc;
    if (is_first && is_of_lost_host(result))
        log_info(
            "mooncake: memory that the pool lists cannot be reached, as if its host were gone: "
            "waiting until the master has noticed");
    if (is_first && result == MOONCAKE_NO_SPACE)
        log_info("mooncake: the pool has no space yet: waiting for up to %" PRIu64
                 " ms (master_timeout)",
                 options->master_timeout_ms);
    wait_ms(tries->pause_ms);
    tries->is_told_to_end = stop_is_pending();
    return !tries->is_told_to_end;
}

static enum tarn_status canary_compare(const struct canary *canary)
{
    const struct tarn_span span = canary_span(canary);
    const enum header_fault fault = header_check(canary->bytes, canary->key, &span, 1);
    if (fault == HEADER_SOUND)
        return TARN_OK;
    log_error("mooncake: the pool was tried with a small object, and the step `compare` failed: it "
              "is %s. A pool that changes bytes is not used",
              header_fault_text(fault));
    return TARN_IO;
}

struct canary_step {
    const char *name;
    bool moves; /* an object; else it is a question */
};

static const struct canary_step step_ask_before = { "exists before put", false };
static const struct canary_step step_put = { "put", true };
static const struct canary_step step_ask = { "exists", false };
static const struct canary_step step_get = { "get", true };

/* Of the last step that was taken. */
static enum tarn_status canary_judge(const struct canary *canary, const struct canary_step *step,
                                     int64_t result)
{
    if (result == HEADER_BYTES + CANARY_BYTES)
        return canary_compare(canary);
    return step->moves ? canary_fail_move(canary, step->name, result)
                       : canary_fail(canary, step->name, result);
}

/* Put, find and get an object of a new key. The last step, and what it gave: a get's length, if all
 * went well. */
static int64_t canary_move(struct canary *canary, const struct canary_step **out_step)
{
    (void)snprintf(canary->key, sizeof(canary->key), "tarn/canary/%.64s/%d-%" PRIu64,
                   canary->client->hostname, (int)getpid(), clock_now_ns());
    *out_step = &step_ask_before;
    int result = canary_exists(canary);
    if (result != 0)
        return result;
    *out_step = &step_put;
    result = canary_put(canary);
    if (result != 0)
        return result;
    *out_step = &step_ask;
    result = canary_exists(canary);
    if (result != 1)
        return result == 0 ? MOONCAKE_NOT_FOUND : result;
    *out_step = &step_get;
    return canary_get(canary);
}

static enum tarn_status canary_of_producer(struct canary *canary,
                                           const struct mooncake_options *options)
{
    const struct client *client = canary->client;
    struct tries tries = { .start_ns = clock_now_ns() };
    const struct canary_step *step;
    int64_t result;
    do {
        result = canary_move(canary, &step);
    } while (result < 0 && tries_go_on(&tries, result, options));
    if (tries.is_told_to_end)
        return TARN_AGAIN;
    if (result == MOONCAKE_NO_SPACE) {
        log_warn("mooncake: the pool has had no space for %" PRIu64 " ms (master_timeout): nobody "
                 "lends it memory yet, or it is full of pages in use",
                 options->master_timeout_ms);
        return TARN_OK;
    }
    TRY(canary_judge(canary, step, result));
    const int removed = client->provider.functions.remove(client->handle, canary->key, 1);
    if (removed != 0 && removed != MOONCAKE_NOT_FOUND)
        return canary_fail(canary, "remove", removed);
    (void)snprintf(canary->key, sizeof(canary->key), CANARY_KEPT_KEY);
    (void)canary_put(canary); /* for consumers, if there is room */
    return TARN_OK;
}

static enum tarn_status canary_of_consumer(struct canary *canary,
                                           const struct mooncake_options *options)
{
    struct tries tries = { .start_ns = clock_now_ns() };
    (void)snprintf(canary->key, sizeof(canary->key), CANARY_KEPT_KEY);
    for (;;) {
        const int found = canary_exists(canary);
        if (found < 0)
            return canary_judge(canary, &step_ask, found);
        const int64_t got = canary_get(canary);
        if (got == MOONCAKE_NOT_FOUND) { /* by a master that is understood */
            log_info("mooncake: the pool holds no object to try reads with yet");
            return TARN_OK;
        }
        if (got == MOONCAKE_TRANSFER_FAILED && tries_go_on(&tries, got, options))
            continue;
        return tries.is_told_to_end ? TARN_AGAIN : canary_judge(canary, &step_get, got);
    }
}

static enum tarn_status health_look(const struct client *client,
                                    const struct mooncake_options *options)
{
    const uint64_t deadline_ns = clock_now_ns() + (client->area_bytes ? ATTACH_MS : 0) * NS_PER_MS;
    int health = client->provider.functions.health_check(client->handle);
    while (health == 2 && clock_now_ns() < deadline_ns) {
        wait_ms(RETRY_MS_FIRST);
        health = client->provider.functions.health_check(client->handle);
    }
    if (health == 0)
        return TARN_OK;
    log_error("mooncake: the health check says %d: %s (master %s%s%s)", health,
              health == 1   ? "the client is not initialised"
              : health == 2 ? "the master cannot be reached"
                            : "an answer that is not known",
              options->master_server_address, client->area_bytes ? ", mooncake_client " : "",
              client->area_bytes ? options->client_address : "");
    return TARN_IO;
}

static enum tarn_status client_try(struct client *client, const struct mooncake_options *options)
{
    const size_t size = HEADER_BYTES + CANARY_BYTES;
    TRY(health_look(client, options));
    if (options->is_donor)
        return TARN_OK;
    void *memory = NULL;
    TRY(client_memory_take(client, size, &memory));
    client->canary = memory;
    struct canary canary = { .client = client, .bytes = client->canary };
    const enum tarn_status status = options->is_consumer ? canary_of_consumer(&canary, options)
                                                         : canary_of_producer(&canary, options);
    client_memory_drop(client, canary.bytes, size);
    return status;
}

/* ---- life ---- */

enum tarn_status client_open(const struct mooncake_options *options, struct client *out_client)
{
    struct client *client = out_client;
    *client = (struct client){ .handle = NULL };
    mooncake_environment_prepare(options->deadline_ms);
    TRY(provider_open(options->library, options->wheel, &client->provider));
    enum tarn_status status = handle_create(client);
    if (status == TARN_OK) {
        if (client->provider.functions.version)
            (void)client->provider.functions.version(client->version, sizeof(client->version));
        status = client_setup(client, options);
    }
    if (status == TARN_OK)
        status = client_try(client, options);
    if (status != TARN_OK)
        client_close(client);
    return status;
}

void client_stop(struct client *client)
{
    if (client->handle)
        client->provider.functions.destroy(client->handle);
    client->handle = NULL;
}

void client_close(struct client *client)
{
    client_stop(client);
    client_memory_free(client, TAKE(client->canary));
}
