/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/value.h"
#include "os/clock.h"
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
};

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

static enum tarn_status client_setup(struct client *client, const struct mooncake_options *options)
{
    char hostname[ADDRESS_HOST_BYTES_MAX + 1];
    char result_text[RESULT_BYTES];
    char segment[SIZE_BYTES];
    char buffer[SIZE_BYTES];
    TRY(hostname_find(options, hostname));
    if (options->tenant_id[0] && !client->provider.functions.setup_tenant) {
        log_error("mooncake: tenant_id is '%s', and %s cannot pass it on: use the wheel, or leave "
                  "tenant_id out",
                  options->tenant_id, client->provider.path);
        return TARN_UNSUPPORTED;
    }
    const uint64_t start_ns = clock_now_ns();
    const int result = setup_call(client, options, hostname);
    if (result != 0) {
        log_error("mooncake: setup of the client failed after %" PRIu64 " ms: %s. Does a "
                  "mooncake_master of this version (%s%s) listen at %s, and are %" PRIu64
                  " + %" PRIu64
                  " bytes of memory free here (global_segment_size, local_buffer_size)?",
                  (clock_now_ns() - start_ns) / NS_PER_MS,
                  result_print(result, result_text, sizeof(result_text)),
                  client->version[0] ? "Mooncake " : client->provider.path, client->version,
                  options->master_server_address, options->global_segment_bytes,
                  options->local_buffer_bytes);
        return TARN_IO;
    }
    if (client->provider.functions.get_hostname(client->handle, client->hostname,
                                                sizeof(client->hostname)) != 0)
        (void)snprintf(client->hostname, sizeof(client->hostname), "%s", hostname);
    value_print_size(options->global_segment_bytes, segment, sizeof(segment));
    value_print_size(options->local_buffer_bytes, buffer, sizeof(buffer));
    log_info("mooncake: joined the master at %s as %s through %s%s%s: protocol %s, lends %" PRIu64
             " bytes (%s), buffer of %" PRIu64 " bytes (%s)",
             options->master_server_address, client->hostname, client->provider.path,
             client->version[0] ? ", Mooncake " : "", client->version, options->protocol,
             options->global_segment_bytes, segment, options->local_buffer_bytes, buffer);
    return TARN_OK;
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

/* Again while there is no space, until `deadline_ns`; an RPC that fails is tried twice. */
static int canary_put_patiently(const struct canary *canary, uint64_t deadline_ns)
{
    uint64_t pause_ms = RETRY_MS_FIRST;
    bool is_retried = false;
    for (;;) {
        const int result = canary_put(canary);
        const bool again = result_is_rpc(result) ? !is_retried : result == MOONCAKE_NO_SPACE;
        is_retried |= result_is_rpc(result);
        if (!again || clock_now_ns() + pause_ms * NS_PER_MS > deadline_ns)
            return result;
        wait_ms(pause_ms);
        pause_ms = pause_ms * 2 < RETRY_MS_MAX ? pause_ms * 2 : RETRY_MS_MAX;
    }
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

static enum tarn_status canary_read(const struct canary *canary)
{
    const int64_t got = canary_get(canary);
    if (got != HEADER_BYTES + CANARY_BYTES)
        return canary_fail_move(canary, "get", got);
    return canary_compare(canary);
}

static enum tarn_status canary_of_producer(struct canary *canary,
                                           const struct mooncake_options *options)
{
    const struct client *client = canary->client;
    const uint64_t now_ns = clock_now_ns();
    (void)snprintf(canary->key, sizeof(canary->key), "tarn/canary/%.64s/%d-%" PRIu64,
                   client->hostname, (int)getpid(), now_ns);
    const int asked = canary_exists(canary);
    if (asked != 0)
        return canary_fail(canary, "exists before put", asked);
    const int put = canary_put_patiently(canary, now_ns + options->master_timeout_ms * NS_PER_MS);
    if (put == MOONCAKE_NO_SPACE) {
        log_warn("mooncake: the pool has had no space for %" PRIu64 " ms (master_timeout): nobody "
                 "lends it memory yet, or it is full of pages in use",
                 options->master_timeout_ms);
        return TARN_OK;
    }
    if (put != 0)
        return canary_fail_move(canary, "put", put);
    const int found = canary_exists(canary);
    if (found != 1)
        return canary_fail(canary, "exists", found);
    TRY(canary_read(canary));
    const int removed = client->provider.functions.remove(client->handle, canary->key, 1);
    if (removed != 0 && removed != MOONCAKE_NOT_FOUND)
        return canary_fail(canary, "remove", removed);
    (void)snprintf(canary->key, sizeof(canary->key), CANARY_KEPT_KEY);
    (void)canary_put(canary); /* for consumers, if there is room */
    return TARN_OK;
}

static enum tarn_status canary_of_consumer(struct canary *canary)
{
    (void)snprintf(canary->key, sizeof(canary->key), CANARY_KEPT_KEY);
    const int found = canary_exists(canary);
    if (found < 0)
        return canary_fail(canary, "exists", found);
    if (found == 0 && canary_get(canary) == MOONCAKE_NOT_FOUND) { /* a master that is understood */
        log_info("mooncake: the pool holds no object to try reads with yet");
        return TARN_OK;
    }
    return canary_read(canary);
}

static enum tarn_status health_look(const struct client *client,
                                    const struct mooncake_options *options)
{
    const int health = client->provider.functions.health_check(client->handle);
    if (health == 0)
        return TARN_OK;
    log_error("mooncake: the health check says %d: %s (master %s)", health,
              health == 1   ? "the client is not initialised"
              : health == 2 ? "the master cannot be reached"
                            : "an answer that is not known",
              options->master_server_address);
    return TARN_IO;
}

static enum tarn_status client_try(struct client *client, const struct mooncake_options *options)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    const size_t size = HEADER_BYTES + CANARY_BYTES;
    char text[RESULT_BYTES];
    TRY(health_look(client, options));
    if (options->is_donor)
        return TARN_OK;
    client->canary = mem_alloc(size, 1);
    if (!client->canary)
        return TARN_NO_MEMORY;
    struct canary canary = { .client = client, .bytes = client->canary };
    const int result = functions->register_buffer(client->handle, canary.bytes, size);
    enum tarn_status status = TARN_IO;
    if (result != 0)
        log_error("mooncake: %zu bytes of memory cannot be registered: %s", size,
                  result_print(result, text, sizeof(text)));
    else
        status = options->is_consumer ? canary_of_consumer(&canary)
                                      : canary_of_producer(&canary, options);
    if (result == 0)
        (void)functions->unregister_buffer(client->handle, canary.bytes);
    return status;
}

/* ---- life ---- */

enum tarn_status client_open(const struct mooncake_options *options, struct client *out_client)
{
    struct client *client = out_client;
    *client = (struct client){ .handle = NULL };
    if (options->client != MOONCAKE_EMBEDDED) {
        log_error("mooncake: client is standalone, which this version of Tarn does not offer: "
                  "leave it out, or set it to embedded");
        return TARN_UNSUPPORTED;
    }
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
    mem_free(TAKE(client->canary));
}
