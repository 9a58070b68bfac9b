/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "serve/conn.h"

enum { EVENT_BLOCK_BYTES = 16 << 10, CHAT_TOKENS_DEFAULT = 1024, COMPLETION_TOKENS_DEFAULT = 16 };

static const char json_type[] = "application/json";

static void body_free(void *body)
{
    mem_free(body);
}

/* Send `text`, whose memory becomes the response's. */
static enum MHD_Result respond(struct conn *conn, uint32_t http_status, const char *content_type,
                               struct text *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        text->length_bytes, text->chars, body_free, text->chars);
    if (!response) {
        text_deinit(text);
        return MHD_NO;
    }
    *text = (struct text){ 0 };
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (conn->is_last)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (conn->allowed)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, conn->allowed);
    if (http_status == 503)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const enum MHD_Result result = MHD_queue_response(conn->connection, http_status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result route_error(struct conn *conn, const struct api_error *error)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    if (answer_error(error, &text) != TARN_OK)
        return MHD_NO;
    return respond(conn, error->http_status, json_type, &text);
}

/* Send what `status` says was put into `text`. */
static enum MHD_Result respond_made(struct conn *conn, enum tarn_status status, struct text *text)
{
    if (status == TARN_OK)
        return respond(conn, 200, json_type, text);
    struct api_error error;
    api_error_set(&error, 500, NULL, "the answer could not be made: %s", tarn_strerror(status));
    return route_error(conn, &error);
}

static const struct engine_info *info_of(const struct conn *conn)
{
    return engine_info_of(conn->http->options.engine);
}

/* ---- what is asked about the server ---- */

static enum MHD_Result route_models(struct conn *conn)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    const enum tarn_status status = answer_models(conn->http->options.model, conn->http->start_s,
                                                  info_of(conn)->ctx_tokens, &text);
    return respond_made(conn, status, &text);
}

static enum MHD_Result route_model(struct conn *conn)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    const enum tarn_status status = answer_model(conn->http->options.model, conn->http->start_s,
                                                 info_of(conn)->ctx_tokens, &text);
    return respond_made(conn, status, &text);
}

static enum MHD_Result route_health(struct conn *conn)
{
    static const char *const reasons[] = {
        [LOOP_STALLED] = "there are requests, and no pass was finished for 30 s",
        [LOOP_DEAD] = "the loop has ended; see the log",
    };
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    const enum loop_health health = loop_health_of(conn->http->options.loop);
    const bool is_draining = atomic_load(conn->http->options.is_draining);
    const char *word = health == LOOP_DEAD      ? "dead"
                       : health == LOOP_STALLED ? "stalled"
                       : is_draining            ? "draining"
                                                : "ok";
    const char *reason = health != LOOP_HEALTHY ? reasons[health]
                         : is_draining          ? "the server was told to stop"
                                                : NULL;
    if (answer_status(word, reason, &text) != TARN_OK)
        return MHD_NO;
    return respond(conn, reason ? 503 : 200, json_type, &text);
}

static enum MHD_Result route_version(struct conn *conn)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    const enum tarn_status status = answer_version(tarn_version(), &text);
    return respond_made(conn, status, &text);
}

static enum MHD_Result route_metrics(struct conn *conn)
{
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    if (metrics_print(&text) != TARN_OK)
        return MHD_NO;
    return respond(conn, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

/* ---- tokens ---- */

/* `chars` as tokens; *out_tokens is the caller's. INVALID with `error` set. */
static enum tarn_status tokenize(const struct conn *conn, const struct engine_text *text,
                                 int32_t **out_tokens, uint32_t *out_count)
{
    /* A token is a byte or more; the model's own first and last ones come on top. */
    uint32_t capacity = (uint32_t)text->length_bytes + 16;
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t count = 0;
        int32_t *tokens = mem_alloc(capacity, sizeof(*tokens));
        if (!tokens)
            return TARN_NO_MEMORY;
        const enum tarn_status status =
            engine_tokenize(conn->http->options.engine, text, tokens, capacity, &count);
        if (status == TARN_OK) {
            *out_tokens = tokens;
            *out_count = count;
            return TARN_OK;
        }
        mem_free(tokens);
        if (status != TARN_NO_SPACE)
            return status;
        capacity = count;
    }
    return TARN_NO_SPACE;
}

static enum tarn_status tokens_check(const struct conn *conn, const struct api_request *request,
                                     struct api_error *error)
{
    for (uint32_t i = 0; i < request->token_count; i++) {
        if ((uint32_t)request->tokens[i] >= info_of(conn)->vocab_count) {
            api_error_set(error, 400, request->kind == API_DETOKENIZE ? "tokens" : "prompt",
                          "token %d is not in the vocabulary of %u tokens", request->tokens[i],
                          info_of(conn)->vocab_count);
            return TARN_INVALID;
        }
    }
    return TARN_OK;
}

/* The tokens of what the request holds: ids, text or a chat. */
static enum tarn_status prompt_tokens(const struct conn *conn, struct api_request *request,
                                      int32_t **out_tokens, uint32_t *out_count,
                                      struct api_error *error)
{
    if (request->tokens) {
        TRY(tokens_check(conn, request, error));
        *out_count = request->token_count;
        *out_tokens = TAKE(request->tokens);
        return TARN_OK;
    }
    CLEANUP(text_deinit)
    struct text chat;
    text_init(&chat, ENGINE_CHAT_BYTES_MAX);
    struct engine_text text = { .chars = request->prompt,
                                .length_bytes = request->prompt_bytes,
                                .add_special = request->add_special,
                                .parse_special = request->parse_special };
    if (request->messages) {
        const enum tarn_status status =
            engine_chat_render(conn->http->options.engine, request->messages,
                               request->message_count, request->add_assistant, &chat);
        if (status == TARN_UNSUPPORTED || status == TARN_INVALID) {
            api_error_set(error, 400, "messages",
                          "the model's file has no chat template that can render these messages");
            return TARN_INVALID;
        }
        TRY(status);
        text.chars = text_chars(&chat);
        text.length_bytes = chat.length_bytes;
    }
    return tokenize(conn, &text, out_tokens, out_count);
}

static enum MHD_Result respond_failed(struct conn *conn, enum tarn_status status,
                                      struct api_error *error)
{
    if (status != TARN_INVALID)
        api_error_set(error, 500, NULL, "the request failed: %s", tarn_strerror(status));
    return route_error(conn, error);
}

static void request_release(struct api_request *request)
{
    api_request_deinit(request);
}

static void tokens_release(int32_t **tokens)
{
    mem_free(*tokens);
}

static enum MHD_Result route_tokenize(struct conn *conn)
{
    struct api_error error;
    CLEANUP(request_release)
    struct api_request request = { 0 };
    CLEANUP(tokens_release)
    int32_t *tokens = NULL;
    CLEANUP(text_deinit)
    struct text text;
    uint32_t count = 0;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    enum tarn_status status = api_request_read(API_TOKENIZE, text_chars(&conn->body),
                                               conn->body.length_bytes, &request, &error);
    if (status == TARN_OK)
        status = prompt_tokens(conn, &request, &tokens, &count, &error);
    if (status != TARN_OK)
        return respond_failed(conn, status, &error);
    status = answer_tokens(tokens, count, info_of(conn)->ctx_tokens, &text);
    return respond_made(conn, status, &text);
}

static enum MHD_Result route_detokenize(struct conn *conn)
{
    struct api_error error;
    CLEANUP(request_release)
    struct api_request request = { 0 };
    CLEANUP(text_deinit)
    struct text raw;
    CLEANUP(text_deinit)
    struct text clean;
    CLEANUP(text_deinit)
    struct text text;
    text_init(&raw, HTTP_ANSWER_BYTES_MAX);
    text_init(&clean, HTTP_ANSWER_BYTES_MAX);
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    enum tarn_status status = api_request_read(API_DETOKENIZE, text_chars(&conn->body),
                                               conn->body.length_bytes, &request, &error);
    if (status == TARN_OK)
        status = tokens_check(conn, &request, &error);
    if (status != TARN_OK)
        return respond_failed(conn, status, &error);
    status = engine_detokenize(conn->http->options.engine, request.tokens, request.token_count,
                               true, &raw);
    if (status == TARN_OK)
        status = output_sanitise(text_chars(&raw), raw.length_bytes, &clean);
    if (status == TARN_OK)
        status = answer_prompt(&clean, &text);
    return respond_made(conn, status, &text);
}

/* ---- generation ---- */

static enum tarn_status model_check(const struct conn *conn, const struct api_request *request,
                                    struct api_error *error)
{
    if (!request->model || strcmp(request->model, conn->http->options.model) == 0)
        return TARN_OK;
    api_error_set(error, 404, "model", "there is no model '%.100s' here, only '%.100s'",
                  request->model, conn->http->options.model);
    error->code = "model_not_found";
    return TARN_INVALID;
}

/* The answer's length, within what the prompt leaves of the context. */
static enum tarn_status max_tokens_resolve(const struct conn *conn,
                                           const struct api_request *request, uint32_t token_count,
                                           uint32_t *out_max_tokens, struct api_error *error)
{
    const uint32_t ctx_tokens = info_of(conn)->ctx_tokens;
    if (token_count == 0) {
        api_error_set(error, 400, "prompt", "the prompt has no tokens");
        return TARN_INVALID;
    }
    const uint32_t rest = token_count < ctx_tokens ? ctx_tokens - token_count : 0;
    if (rest == 0 || request->max_tokens > rest) {
        if (rest == 0)
            api_error_set(error, 400, "prompt",
                          "the prompt has %u token%s; the context (--ctx) is %u tokens, prompt "
                          "and answer together",
                          token_count, text_plural(token_count), ctx_tokens);
        else
            api_error_set(error, 400, "max_tokens",
                          "the prompt has %u token%s and max_tokens is %u, together more than the "
                          "context (--ctx) of %u tokens",
                          token_count, text_plural(token_count), request->max_tokens, ctx_tokens);
        error->code = "context_length_exceeded";
        return TARN_INVALID;
    }
    uint32_t max_tokens = request->max_tokens;
    if (max_tokens == 0)
        max_tokens = conn->http->options.max_tokens_default;
    if (max_tokens == 0)
        max_tokens = request->kind == API_CHAT ? CHAT_TOKENS_DEFAULT : COMPLETION_TOKENS_DEFAULT;
    *out_max_tokens = max_tokens < rest ? max_tokens : rest;
    return TARN_OK;
}

static uint32_t seed_draw(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = (uint32_t)clock_now_ns();
    return seed;
}

/* Hand a job to the loop, which answers later. *request and *tokens are taken over. */
static enum tarn_status job_begin(struct conn *conn, struct api_request *request, int32_t **tokens,
                                  uint32_t token_count, uint32_t max_tokens,
                                  struct api_error *error)
{
    struct http *http = conn->http;
    struct job *job = NULL;
    TRY(job_create(request, TAKE(*tokens), token_count, &job));
    job->id = ++http->last_id;
    job->max_tokens = max_tokens;
    job->arrival_ns = clock_now_ns();
    if (!job->request.has_seed)
        job->request.sampling.seed = seed_draw();
    enum tarn_status status =
        sampler_create(http->options.engine, &job->request.sampling, &job->sampler);
    if (status == TARN_OK)
        status = loop_submit(http->options.loop, job);
    if (status != TARN_OK) {
        job_release(job);
        if (status != TARN_NO_SPACE)
            return status;
        const uint32_t alive = loop_job_count(http->options.loop);
        api_error_set(error, 503, NULL, "%u request%s alive already; try again later", alive,
                      alive == 1 ? " is" : "s are");
        return TARN_INVALID;
    }
    conn->job = job;
    conn->head = (struct answer_head){ .kind = job->request.kind,
                                       .server_id = http->server_id,
                                       .id = job->id,
                                       .created_s = (int64_t)time(NULL),
                                       .model = http->options.model };
    atomic_fetch_add(&http->request_count, 1);
    return TARN_OK;
}

static enum tarn_status generation_begin(struct conn *conn, enum api_kind kind,
                                         struct api_error *error)
{
    CLEANUP(request_release)
    struct api_request request = { 0 };
    CLEANUP(tokens_release)
    int32_t *tokens = NULL;
    uint32_t token_count = 0;
    uint32_t max_tokens = 0;
    if (atomic_load(conn->http->options.is_draining)) {
        api_error_set(error, 503, NULL, "the server is about to stop and takes no new requests");
        return TARN_INVALID;
    }
    TRY(api_request_read(kind, text_chars(&conn->body), conn->body.length_bytes, &request, error));
    conn->http->bodies_bytes -= conn->body.length_bytes;
    text_deinit(&conn->body);
    TRY(model_check(conn, &request, error));
    TRY(prompt_tokens(conn, &request, &tokens, &token_count, error));
    TRY(max_tokens_resolve(conn, &request, token_count, &max_tokens, error));
    return job_begin(conn, &request, &tokens, token_count, max_tokens, error);
}

static enum MHD_Result route_generate(struct conn *conn, enum api_kind kind)
{
    struct api_error error;
    const enum tarn_status status = generation_begin(conn, kind, &error);
    if (status != TARN_OK) {
        metric_add(METRIC_REQUESTS_REFUSED, 1);
        return respond_failed(conn, status, &error);
    }
    conn_suspend(conn);
    return MHD_YES;
}

static enum MHD_Result route_completions(struct conn *conn)
{
    return route_generate(conn, API_COMPLETION);
}

static enum MHD_Result route_chat(struct conn *conn)
{
    return route_generate(conn, API_CHAT);
}

/* What the job has for us now; `delta` takes over the text. */
static bool job_take(struct job *job, struct text *delta)
{
    (void)pthread_mutex_lock(&job->lock);
    *delta = job->ready;
    text_init(&job->ready, JOB_TEXT_BYTES_MAX);
    const bool is_done = job->is_done;
    (void)pthread_mutex_unlock(&job->lock);
    return is_done;
}

/* Queue the events for what the job has now. After the end nothing more is queued. */
static enum tarn_status events_queue(struct conn *conn)
{
    const struct job *job = conn->job;
    CLEANUP(text_deinit)
    struct text delta = { 0 };
    const bool is_done = job_take(conn->job, &delta);
    if (!conn->role_is_sent && conn->head.kind == API_CHAT)
        TRY(answer_event_role(&conn->head, &conn->events));
    conn->role_is_sent = true;
    if (delta.length_bytes > 0)
        TRY(answer_event_text(&conn->head, &delta, &conn->events));
    if (!is_done)
        return TARN_OK;
    conn->end_is_queued = true;
    if (job->has_failed)
        return answer_event_error(&job->error, &conn->events);
    TRY(answer_event_finish(&conn->head, job->finish, &conn->events));
    if (job->request.include_usage)
        TRY(answer_event_usage(&conn->head, &job->usage, &conn->events));
    return answer_event_done(&conn->events);
}

static ssize_t on_read(void *context, uint64_t position, char *block, size_t block_bytes)
{
    struct conn *conn = context;
    (void)position;
    if (conn->is_gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (conn->sent_bytes == conn->events.length_bytes && !conn->end_is_queued) {
        text_truncate(&conn->events, 0);
        conn->sent_bytes = 0;
        if (events_queue(conn) != TARN_OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left_bytes = conn->events.length_bytes - conn->sent_bytes;
    if (left_bytes == 0 && conn->end_is_queued)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (left_bytes == 0) {
        conn_suspend(conn);
        return 0;
    }
    const size_t length_bytes = left_bytes < block_bytes ? left_bytes : block_bytes;
    memcpy(block, conn->events.chars + conn->sent_bytes, length_bytes);
    conn->sent_bytes += length_bytes;
    return (ssize_t)length_bytes;
}

static enum MHD_Result respond_stream(struct conn *conn)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BLOCK_BYTES, on_read, conn, NULL);
    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const enum MHD_Result result = MHD_queue_response(conn->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond_whole(struct conn *conn)
{
    const struct job *job = conn->job;
    CLEANUP(text_deinit)
    struct text content = { 0 };
    CLEANUP(text_deinit)
    struct text text;
    text_init(&text, HTTP_ANSWER_BYTES_MAX);
    (void)job_take(conn->job, &content);
    const enum tarn_status status =
        answer_whole(&conn->head, &content, job->finish, &job->usage, &text);
    return respond_made(conn, status, &text);
}

enum MHD_Result route_resumed(struct conn *conn)
{
    struct job *job = conn->job;
    (void)pthread_mutex_lock(&job->lock);
    const bool is_done = job->is_done;
    const bool has_text = job->ready.length_bytes > 0;
    (void)pthread_mutex_unlock(&job->lock);
    if (is_done && job->has_failed && !has_text)
        return route_error(conn, &job->error);
    if (job->request.stream && (is_done || has_text))
        return respond_stream(conn);
    if (is_done)
        return job->has_failed ? route_error(conn, &job->error) : respond_whole(conn);
    conn_suspend(conn);
    return MHD_YES;
}

/* ---- the table ---- */

static const struct route {
    const char *method;
    const char *path;
    enum MHD_Result (*answer)(struct conn *conn);
} routes[] = {
    { "POST", "/v1/chat/completions", route_chat },
    { "POST", "/v1/completions", route_completions },
    { "POST", "/tokenize", route_tokenize },
    { "POST", "/detokenize", route_detokenize },
    { "GET", "/v1/models", route_models },
    { "GET", "/health", route_health },
    { "GET", "/version", route_version },
    { "GET", "/metrics", route_metrics },
};

/* The one path with a part that varies: "/v1/models/NAME" of the model that is served. */
static const struct route model_route = { "GET", "/v1/models/", route_model };

static bool is_model_path(const struct conn *conn, const char *url)
{
    const size_t head = strlen(model_route.path);
    return strncmp(url, model_route.path, head) == 0 &&
           strcmp(url + head, conn->http->options.model) == 0;
}

enum MHD_Result route_request(struct conn *conn, const char *method, const char *url)
{
    struct api_error error;
    const struct route *route = is_model_path(conn, url) ? &model_route : NULL;
    for (size_t i = 0; i < LENGTH_OF(routes) && !route; i++)
        if (strcmp(routes[i].path, url) == 0)
            route = &routes[i];
    if (!route) {
        api_error_set(&error, 404, NULL, "there is no %.200s here", url);
        return route_error(conn, &error);
    }
    const bool is_head = strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0;
    if (strcmp(method, route->method) != 0 && !is_head) {
        conn->allowed = strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method;
        api_error_set(&error, 405, NULL, "%.200s takes %s, not %.20s", url, route->method, method);
        return route_error(conn, &error);
    }
    return route->answer(conn);
}
