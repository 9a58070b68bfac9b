/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - one HTTP request on its way: its body, its job, its answer. Between http.c, which runs
 * the connections, and route.c, which answers; all of it is the HTTP thread's.
 */
#ifndef SERVE_CONN_H
#define SERVE_CONN_H

#include <poll.h>

#include <microhttpd.h>

#include "base/list.h"
#include "base/text.h"
#include "os/thread.h"
#include "serve/http.h"
#include "serve/job.h"

enum {
    HTTP_BODY_BYTES_MIN = 1 << 20,  /* the limit of a body with a small context ... */
    HTTP_BODY_BYTES_MAX = 16 << 20, /* ... and with a large one */
    HTTP_BODY_BYTES_PER_TOKEN = 128,
    HTTP_BODIES_BYTES_MAX = 64 << 20,  /* of all bodies being read */
    HTTP_FORGET_BYTES_MAX = 128 << 20, /* of a body that is read only to answer politely */
    HTTP_HEADER_BYTES_MAX = 32 << 10,
    HTTP_TIMEOUT_S = 60,      /* of a connection on which nothing moves ... */
    HTTP_SPARE_TIMEOUT_S = 2, /* ... and of one that is beyond connections_max */
    HTTP_SPARE_CONNECTIONS = 32,
    HTTP_ANSWER_BYTES_MAX = 512 << 20,
    HTTP_SERVER_ID_BYTES = 33, /* 128 random bits in hex, terminated */
};

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    struct thread thread;
    atomic_bool is_stopping;
    atomic_uint request_count;
    struct wakeup wake;        /* http_stop() */
    struct list suspended;     /* struct conn, by link */
    struct pollfd *fds;        /* 3 + connections_max places; spare ones are never suspended */
    struct conn **watched;     /* of fds[3 + i] */
    uint32_t connection_count; /* open, the spare ones left out */
    uint32_t spare_connection_count; /* open beyond connections_max: to say no, politely */
    size_t bodies_bytes;
    size_t body_bytes_max;
    int64_t start_s; /* Unix time */
    uint64_t last_id;
    char server_id[HTTP_SERVER_ID_BYTES];
};

struct conn {
    struct http *http;
    struct MHD_Connection *connection;
    struct list link; /* in http->suspended while suspended */
    struct text body;
    bool is_spare;       /* of a spare connection: told about the server, or refused */
    bool body_too_large; /* answered with 413 once it has been read and forgotten */
    uint64_t forgotten_bytes;
    bool is_gone;    /* the client hung up: send nothing */
    struct job *job; /* NULL: none yet */
    struct answer_head head;
    bool is_last;        /* the connection is closed after the answer */
    const char *allowed; /* methods, for an answer that says which; NULL: it does not */

    /* A stream. */
    struct text events; /* events to send, from `sent_bytes` on */
    size_t sent_bytes;
    bool role_is_sent;
    bool end_is_queued;
};

/* Stop serving the connection until the loop has news of its job. */
void conn_suspend(struct conn *conn);

/* The request is complete: answer, or start a job and suspend. */
enum MHD_Result route_request(struct conn *conn, const char *method, const char *url);

/* The connection has a job and was resumed. */
enum MHD_Result route_resumed(struct conn *conn);

/* Answer with an error. */
enum MHD_Result route_error(struct conn *conn, const struct api_error *error);

#endif
