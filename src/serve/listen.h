/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h - the server's socket. */
#ifndef SERVE_LISTEN_H
#define SERVE_LISTEN_H

#include "base/base.h"

enum { LISTEN_ADDRESS_BYTES = 128 };

/* Bind, so that nobody else can have the port, but do not listen yet. `host` is an address or a
 * name. INVALID: there is no such host; IO: the port is taken, or not ours to take. Logged. */
NODISCARD enum tarn_status listen_bind(const char *host, uint16_t port, int *out_fd);

/* Begin to accept; `out_address` gets "127.0.0.1:8000", LISTEN_ADDRESS_BYTES. IO: logged. */
NODISCARD enum tarn_status listen_begin(int fd, char *out_address);

#endif
