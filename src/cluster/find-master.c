/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/find-master.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/address-file.h"
#include "cluster/wait.h"

#define FILE_SCHEME "file://"

enum { PROBE_MS = 1000, WHAT_BYTES = MOONCAKE_TEXT_BYTES_MAX + 64 };

static enum tarn_status text_take(const char *wanted, struct found_master *found)
{
    if (snprintf(found->text, sizeof(found->text), "%s", wanted) < (int)sizeof(found->text))
        return TARN_OK;
    log_error("the master's address %.100s... is longer than %zu bytes", wanted,
              sizeof(found->text) - 1);
    return TARN_INVALID;
}

static enum tarn_status file_take(const char *path, uint64_t timeout_ms, struct found_master *found)
{
    char what[WHAT_BYTES];
    char address[ADDRESS_TEXT_BYTES_MAX + 1];
    struct wait wait;
    (void)snprintf(what, sizeof(what), "a master's address in %.500s", path);
    wait_init(&wait, what, timeout_ms);
    TRY(address_file_wait(path, &wait, address));
    log_info("master: %s, from %s", address, path);
    return text_take(address, found);
}

static enum tarn_status accept_wait(uint64_t timeout_ms, struct found_master *found)
{
    char what[WHAT_BYTES];
    char reason[PROBE_REASON_BYTES];
    struct wait wait;
    (void)snprintf(what, sizeof(what), "the master at %s", found->text);
    wait_init(&wait, what, timeout_ms);
    while (probe_connect(&found->address, PROBE_MS, &found->route, reason) != TARN_OK) {
        const enum tarn_status status = wait_pause(&wait, reason);
        if (status == TARN_STALE) {
            log_error(
                "the master at %s does not accept connections: %s, after %" PRIu64
                " ms. Does a mooncake_master (tarn master) run there, is the port right, does "
                "a firewall let it through?",
                found->text, reason, timeout_ms);
            return TARN_IO;
        }
        TRY(status);
    }
    log_info("master: %s accepts connections, after %" PRIu64 " ms", found->text,
             wait_passed_ms(&wait));
    return TARN_OK;
}

enum tarn_status find_master(const char *wanted, uint64_t timeout_ms,
                             struct found_master *out_found)
{
    struct found_master found = { .is_address = false };
    struct wait whole;
    wait_init(&whole, "the master", timeout_ms);
    if (strncmp(wanted, FILE_SCHEME, strlen(FILE_SCHEME)) == 0)
        TRY(file_take(wanted + strlen(FILE_SCHEME), timeout_ms, &found));
    else
        TRY(text_take(wanted, &found));
    found.is_address = address_parse(found.text, &found.address) == TARN_OK;
    if (found.is_address)
        TRY(accept_wait(wait_left_ms(&whole), &found));
    else
        log_warn("the master's address '%s' is no HOST:PORT or [V6]:PORT: it is passed on to the "
                 "Mooncake library as it is, and not tried before",
                 found.text);
    *out_found = found;
    return TARN_OK;
}

enum tarn_status find_local_host(const struct found_master *found, const char *wanted,
                                 char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    const bool is_remote = found->is_address && !host_is_loopback(found->route.own) &&
                           strcmp(found->route.own, found->route.peer) != 0;
    if (wanted && is_remote && host_is_loopback(wanted)) {
        log_error("--local-hostname %s is this host's own name for itself, but the master %s is on "
                  "another: nobody there could reach the memory lent here. Leave it out (%s would "
                  "be used)",
                  wanted, found->text, found->route.own);
        return TARN_INVALID;
    }
    if (wanted &&
        snprintf(out_host, ADDRESS_HOST_BYTES_MAX + 1, "%s", wanted) > ADDRESS_HOST_BYTES_MAX) {
        log_error("--local-hostname is longer than %d bytes", ADDRESS_HOST_BYTES_MAX);
        return TARN_INVALID;
    }
    if (!wanted && found->is_address)
        (void)snprintf(out_host, ADDRESS_HOST_BYTES_MAX + 1, "%s", found->route.own);
    else if (!wanted)
        probe_own_host(out_host);
    return TARN_OK;
}
