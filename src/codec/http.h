/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - one document by HTTP GET, within a time and a length; a fence around libcurl.
 *
 * No proxy, no redirect, no other protocol. libcurl has memory of its own. Any thread.
 */
#ifndef CODEC_HTTP_H
#define CODEC_HTTP_H

#include "base/base.h"
#include "base/text.h"

enum { HTTP_REASON_BYTES = 256 };

/* Append the body of http://HOST:PORT/PATH to `out`, up to its maximum; a host with colons is
 * bracketed here. IO and NO_SPACE (longer than that): out_reason (HTTP_REASON_BYTES) says why, and
 * `out` is as before. */
NODISCARD enum tarn_status http_get(const char *host, uint16_t port, const char *path,
                                    uint32_t timeout_ms, struct text *out, char *out_reason);

#endif
