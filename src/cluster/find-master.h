/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find-master.h - from what a user wrote to a master that answers: a file is waited for, an address
 * is connected to until something accepts there, within one time for both.
 */
#ifndef CLUSTER_FIND_MASTER_H
#define CLUSTER_FIND_MASTER_H

#include "base/base.h"
#include "cluster/probe.h"
#include "store/mooncake/options.h"

struct found_master {
    char text[MOONCAKE_TEXT_BYTES_MAX + 1]; /* for a client: HOST:PORT, or what was written */
    bool is_address;                        /* else the text is no HOST:PORT and was not tried */
    struct address address;                 /* if it is one */
    struct probe_route route;               /* if it is one */
};

/* `wanted`: HOST:PORT, [V6]:PORT, file://PATH; another text passes with a warning. IO: logged.
 * Outcomes: AGAIN (told to end; logged). */
NODISCARD enum tarn_status find_master(const char *wanted, uint64_t timeout_ms,
                                       struct found_master *out_found);

/*
 * What others call this host: `wanted` if it is not NULL, else the address of the route to the
 * master. INVALID: logged; a loopback name while the master is on another host, under which nobody
 * there would find this one.
 */
NODISCARD enum tarn_status find_local_host(const struct found_master *found, const char *wanted,
                                           char out_host[ADDRESS_HOST_BYTES_MAX + 1]);

#endif
