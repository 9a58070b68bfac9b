/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - whether something accepts connections at an address, and how this host is seen from
 * there. Any thread. */
#ifndef CLUSTER_PROBE_H
#define CLUSTER_PROBE_H

#include "base/base.h"
#include "store/mooncake/address.h"

enum { PROBE_REASON_BYTES = 160 };

/* Numeric addresses of both ends of a connection. */
struct probe_route {
    char own[ADDRESS_HOST_BYTES_MAX + 1];
    char peer[ADDRESS_HOST_BYTES_MAX + 1];
};

/* Connect, and hang up. Outcomes: MISS (nothing accepts: out_reason, PROBE_REASON_BYTES). */
NODISCARD enum tarn_status probe_connect(const struct address *address, uint32_t timeout_ms,
                                         struct probe_route *out_route, char *out_reason);

/* Whether a server of this host could listen at the port of that address of its own; NULL, 0.0.0.0
 * and :: are all of them. */
bool probe_port_is_free(const char *host, uint16_t port);

/* A port that is free now, as the system chooses; 0: it has none. */
uint16_t probe_port_free(void);

/* The address from which this host reaches others, by its default route; 127.0.0.1 without one. */
void probe_own_host(char out_host[ADDRESS_HOST_BYTES_MAX + 1]);

/* 127.x, ::1 or localhost. Pure. */
bool host_is_loopback(const char *host);

#endif
