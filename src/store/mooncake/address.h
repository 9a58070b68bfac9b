/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h - where a master is: HOST:PORT or [V6]:PORT; and this host's own address on the way
 * there.
 */
#ifndef STORE_MOONCAKE_ADDRESS_H
#define STORE_MOONCAKE_ADDRESS_H

#include "base/base.h"

enum { ADDRESS_HOST_BYTES_MAX = 255, ADDRESS_TEXT_BYTES_MAX = ADDRESS_HOST_BYTES_MAX + 8 };

struct address {
    char host[ADDRESS_HOST_BYTES_MAX + 1]; /* without brackets */
    uint16_t port;                         /* not 0 */
};

/* INVALID: not of this form. Pure. */
NODISCARD enum tarn_status address_parse(const char *text, struct address *out_address);

/*
 * The numeric address from which this host's packets to `address` go: what others reach it under.
 * 127.x only if that is where the address is. May ask the name service. IO: the name or the way is
 * not known (logged).
 */
NODISCARD enum tarn_status address_of_route(const struct address *address,
                                            char out_host[ADDRESS_HOST_BYTES_MAX + 1]);

#endif
