/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - the thread that speaks HTTP.
 *
 * One thread runs libmicrohttpd and nothing else touches it. A handler parses, tokenises, hands a
 * job to the loop and suspends its connection; news from the loop resume it. The sockets of
 * suspended connections are watched, so that a client that hangs up is noticed at once, in
 * whatever state its request is. A client that closes its sending side counts as gone.
 *
 * Bounded: connections, header bytes, bytes of a body, bytes of all bodies together, jobs alive.
 */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <stdatomic.h>

#include "base/base.h"
#include "engine/engine.h"
#include "serve/loop.h"

struct http;

struct http_options {
    const struct engine *engine; /* borrowed: vocabulary */
    struct loop *loop;           /* borrowed */
    const char *model;           /* what /v1/models calls it; UTF-8, borrowed */
    int listen_fd;               /* listening; taken over by http_create() on OK */
    struct wakeup *news;         /* that the loop signals; borrowed */
    uint32_t connections_max;
    uint32_t max_tokens_default; /* 0: completions 16, chat the rest of the context up to 1 024 */
    const atomic_bool *is_draining; /* set: new generations are answered with 503 */
};

NODISCARD enum tarn_status http_create(const struct http_options *options, struct http **out_http);
NODISCARD enum tarn_status http_start(struct http *http);

/* Any thread: requests that wait for their answer or are getting it. */
uint32_t http_request_count(const struct http *http);

/* End the thread; requests without an answer are cut off. The loop must have stopped. */
void http_stop(struct http *http);
void http_destroy(struct http *http); /* stopped; NULL is fine */

#endif
