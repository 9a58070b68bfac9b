/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "serve/conn.h"

enum { FD_DAEMON, FD_NEWS, FD_WAKE, FD_WATCHED, POLL_MS_MAX = 1000, STOP_ROUNDS = 50 };

void conn_suspend(struct conn *conn)
{
    MHD_suspend_connection(conn->connection);
    list_push_back(&conn->http->suspended, &conn->link);
}

static void conn_resume(struct conn *conn)
{
    list_remove(&conn->link);
    MHD_resume_connection(conn->connection);
}

static struct conn *conn_create(struct http *http, struct MHD_Connection *connection)
{
    struct conn *conn = mem_alloc(1, sizeof(*conn));
    if (!conn)
        return NULL;
    conn->http = http;
    conn->connection = connection;
    list_init(&conn->link);
    text_init(&conn->body, http->body_bytes_max);
    text_init(&conn->events, HTTP_ANSWER_BYTES_MAX);
    return conn;
}

/* Take in a piece of the body. Past a limit the rest is read and forgotten, since a client that
 * still sends does not see an answer; NO when even that goes on for too long. */
static enum MHD_Result body_add(struct conn *conn, const char *bytes, size_t length_bytes)
{
    struct http *http = conn->http;
    if (conn->body_too_large || conn->is_spare) {
        conn->forgotten_bytes += length_bytes;
        return conn->forgotten_bytes > HTTP_FORGET_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    if (http->bodies_bytes + length_bytes > HTTP_BODIES_BYTES_MAX ||
        text_append_bytes(&conn->body, bytes, length_bytes) != TARN_OK) {
        http->bodies_bytes -= conn->body.length_bytes;
        text_deinit(&conn->body);
        conn->body_too_large = true;
        return MHD_YES;
    }
    http->bodies_bytes += length_bytes;
    return MHD_YES;
}

static enum MHD_Result refuse_body(struct conn *conn)
{
    struct api_error error;
    api_error_set(&error, 413, NULL,
                  "the body is larger than %zu bytes, or too many are being read",
                  conn->http->body_bytes_max);
    return route_error(conn, &error);
}

/* libmicrohttpd keeps a pointer of ours with a connection: not NULL marks a spare one. */
static bool is_spare(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info && info->socket_context;
}

/* Count connections that come and go. One beyond the limit is let in only to be answered so, and is
 * cut off soon if it asks nothing; beyond the spare ones, too, clients wait in the kernel's queue.
 */
static void on_connection(void *context, struct MHD_Connection *connection, void **mark,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *http = context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        *(*mark ? &http->spare_connection_count : &http->connection_count) -= 1;
    } else if (http->connection_count < http->options.connections_max) {
        *mark = NULL;
        http->connection_count++;
    } else {
        *mark = http;
        http->spare_connection_count++;
        (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                        (unsigned)HTTP_SPARE_TIMEOUT_S);
    }
}

static enum MHD_Result refuse_connection(struct conn *conn)
{
    struct api_error error;
    metric_add(METRIC_CONNECTIONS_REFUSED, 1);
    LOG_LIMITED(LOG_WARN, "a request is refused: %u connections are open (--max-connections)",
                conn->http->options.connections_max);
    api_error_set(&error, 503, NULL,
                  "the server's %u connections (--max-connections) are all taken; try again later",
                  conn->http->options.connections_max);
    conn->is_last = true;
    return route_error(conn, &error);
}

static uint64_t content_length(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length ? strtoull(length, NULL, 10) : 0;
}

/* Called once with the header, then with each piece of the body, then with none; again when the
 * connection was resumed without an answer. The signature is libmicrohttpd's. */
/* NOLINTNEXTLINE(readability-function-size) */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    struct conn *conn = *state;
    (void)version;
    if (!conn) {
        conn = conn_create(context, connection);
        if (!conn)
            return MHD_NO;
        *state = conn;
        conn->is_spare = is_spare(connection);
        const uint64_t length_bytes = content_length(connection);
        conn->body_too_large = length_bytes > conn->http->body_bytes_max;
        return length_bytes > HTTP_FORGET_BYTES_MAX ? refuse_body(conn) : MHD_YES;
    }
    if (*upload_bytes > 0) {
        const size_t length_bytes = *upload_bytes;
        *upload_bytes = 0;
        return body_add(conn, upload, length_bytes);
    }
    if (conn->is_gone)
        return MHD_NO;
    if (conn->body_too_large)
        return refuse_body(conn);
    if (conn->is_spare && strcmp(method, "GET") != 0)
        return refuse_connection(conn);
    return conn->job ? route_resumed(conn) : route_request(conn, method, url);
}

/* The request is over, whether it was answered or not. */
static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct http *http = context;
    struct conn *conn = *state;
    (void)connection;
    (void)code;
    if (!conn)
        return;
    *state = NULL;
    if (conn->job) {
        atomic_store(&conn->job->is_cancelled, true); /* of no effect when it is done */
        loop_wake(http->options.loop);
        job_release(conn->job);
        atomic_fetch_sub(&http->request_count, 1);
    }
    ASSERT(!list_is_linked(&conn->link));
    http->bodies_bytes -= conn->body.length_bytes;
    text_deinit(&conn->body);
    text_deinit(&conn->events);
    mem_free(conn);
}

static void on_log(void *context, const char *format, va_list args)
{
    char line[512];
    (void)context;
    (void)vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = '\0';
    log_debug("http: %s", line);
}

static enum tarn_status daemon_start(struct http *http)
{
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
        http, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        http->options.listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)http->options.connections_max + HTTP_SPARE_CONNECTIONS,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)HTTP_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADER_BYTES_MAX,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_END);
    if (http->daemon)
        return TARN_OK;
    log_error("cannot start the HTTP server: %s", strerrordesc_np(errno));
    return TARN_IO;
}

/* What tells this process's answers from those of every other, before and beside it. */
static enum tarn_status server_id_draw(char out[static HTTP_SERVER_ID_BYTES])
{
    uint8_t bytes[(HTTP_SERVER_ID_BYTES - 1) / 2];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        log_error("the system gives no random numbers: %s", strerrordesc_np(errno));
        return TARN_IO;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return TARN_OK;
}

enum tarn_status http_create(const struct http_options *options, struct http **out_http)
{
    struct http *http = mem_alloc(1, sizeof(*http));
    if (!http)
        return TARN_NO_MEMORY;
    http->options = *options;
    http->start_s = (int64_t)time(NULL);
    list_init(&http->suspended);
    const uint64_t wanted_bytes =
        (uint64_t)engine_info_of(options->engine)->ctx_tokens * HTTP_BODY_BYTES_PER_TOKEN;
    http->body_bytes_max = wanted_bytes < HTTP_BODY_BYTES_MIN   ? HTTP_BODY_BYTES_MIN
                           : wanted_bytes > HTTP_BODY_BYTES_MAX ? HTTP_BODY_BYTES_MAX
                                                                : wanted_bytes;
    http->wake.fd = -1;
    http->fds = mem_alloc((size_t)FD_WATCHED + options->connections_max, sizeof(*http->fds));
    http->watched = mem_alloc(options->connections_max, sizeof(void *));
    enum tarn_status status = http->fds && http->watched ? TARN_OK : TARN_NO_MEMORY;
    if (status == TARN_OK)
        status = wakeup_init(&http->wake);
    if (status == TARN_OK)
        status = server_id_draw(http->server_id);
    if (status == TARN_OK)
        status = daemon_start(http);
    if (status != TARN_OK) {
        http_destroy(http);
        return status;
    }
    *out_http = http;
    return TARN_OK;
}

/* Resume the connections whose job has something to send. */
static void news_take(struct http *http)
{
    list_for_each (link, &http->suspended) {
        struct conn *conn = LIST_ITEM(link, struct conn, link);
        struct job *job = conn->job;
        (void)pthread_mutex_lock(&job->lock);
        const bool wanted = job->is_done || (job->request.stream && job->ready.length_bytes > 0);
        (void)pthread_mutex_unlock(&job->lock);
        if (wanted)
            conn_resume(conn);
    }
}

static int poll_timeout_ms(const struct http *http)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms = POLL_MS_MAX;
    if (MHD_get_timeout(http->daemon, &timeout_ms) != MHD_YES || timeout_ms > POLL_MS_MAX)
        timeout_ms = POLL_MS_MAX;
    return (int)timeout_ms;
}

/* Wait for traffic, news, or the end of a suspended connection. */
static void http_wait(struct http *http)
{
    nfds_t count = FD_WATCHED;
    const union MHD_DaemonInfo *daemon =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    http->fds[FD_DAEMON] = (struct pollfd){ .fd = daemon->epoll_fd, .events = POLLIN };
    http->fds[FD_NEWS] = (struct pollfd){ .fd = http->options.news->fd, .events = POLLIN };
    http->fds[FD_WAKE] = (struct pollfd){ .fd = http->wake.fd, .events = POLLIN };
    list_for_each (link, &http->suspended) {
        struct conn *conn = LIST_ITEM(link, struct conn, link);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(conn->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        http->watched[count - FD_WATCHED] = conn;
        http->fds[count++] = (struct pollfd){ .fd = info->connect_fd, .events = POLLRDHUP };
    }
    if (poll(http->fds, count, poll_timeout_ms(http)) < 0)
        return; /* interrupted: the next round looks again */
    for (nfds_t i = FD_WATCHED; i < count; i++) {
        struct conn *conn = http->watched[i - FD_WATCHED];
        if (!http->fds[i].revents)
            continue;
        conn->is_gone = true;
        atomic_store(&conn->job->is_cancelled, true);
        loop_wake(http->options.loop);
        conn_resume(conn);
    }
}

/* Cut off who still waits, and let the daemon notice. */
static void http_cut(struct http *http)
{
    list_for_each (link, &http->suspended) {
        struct conn *conn = LIST_ITEM(link, struct conn, link);
        conn->is_gone = true;
        conn_resume(conn);
    }
    for (int round = 0; round < STOP_ROUNDS && atomic_load(&http->request_count) > 0; round++)
        (void)MHD_run(http->daemon);
}

static void http_main(void *context)
{
    struct http *http = context;
    while (!atomic_load(&http->is_stopping)) {
        http_wait(http);
        wakeup_clear(http->options.news);
        news_take(http);
        if (MHD_run(http->daemon) != MHD_YES)
            LOG_LIMITED(LOG_ERROR, "the HTTP server cannot go on: %s", strerrordesc_np(errno));
    }
    news_take(http);
    (void)MHD_run(http->daemon);
    http_cut(http);
    MHD_stop_daemon(http->daemon);
    http->daemon = NULL;
}

enum tarn_status http_start(struct http *http)
{
    return thread_start(&http->thread, "tarn-http", http_main, http);
}

uint32_t http_request_count(const struct http *http)
{
    return atomic_load(&http->request_count);
}

void http_stop(struct http *http)
{
    atomic_store(&http->is_stopping, true);
    wakeup_signal(&http->wake);
    thread_join(&http->thread);
}

void http_destroy(struct http *http)
{
    if (!http)
        return;
    ASSERT(!http->thread.is_started);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    if (http->wake.fd >= 0)
        wakeup_deinit(&http->wake);
    mem_free(http->fds);
    mem_free((void *)http->watched);
    mem_free(http);
}
