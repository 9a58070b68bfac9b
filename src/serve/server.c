/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "config/value.h"
#include "obs/metric.h"
#include "os/block.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/stop.h"
#include "os/wakeup.h"
#include "serve/connector.h"
#include "serve/http.h"
#include "serve/listen.h"
#include "serve/loop.h"
#include "serve/memory.h"
#include "serve/pool.h"

enum { DRAIN_POLL_MS = 20, CLOSE_TIMEOUT_MS = 5000, SIZE_TEXT_BYTES = 32, WARM_UP_TOKENS = 8 };

struct server {
    const struct options *options;
    const struct serve_hooks *hooks; /* NULL: none */
    bool has_entered;
    struct engine *engine;
    struct block pages;
    const struct serve_connector *connector;
    struct serve_pool pool;
    struct sched *sched;
    struct wakeup news;
    struct loop *loop;
    struct http *http;
    int listen_fd;
    atomic_bool is_draining;
    char model[ENGINE_NAME_BYTES_MAX];
};

static uint32_t number_of(const struct server *server, enum option option)
{
    return (uint32_t)option_number(server->options, option);
}

/* The file's name without directory and ".gguf", as clients will call it. */
static enum tarn_status model_name(const char *path, char *out, size_t out_bytes)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t length_bytes = strlen(base);
    CLEANUP(text_deinit)
    struct text clean;
    text_init(&clean, 4096);
    if (length_bytes > 5 && strcmp(base + length_bytes - 5, ".gguf") == 0)
        length_bytes -= 5;
    TRY(output_sanitise(base, length_bytes, &clean));
    (void)snprintf(out, out_bytes, "%s", text_chars(&clean));
    return TARN_OK;
}

/* Whether a signal to stop waits to be taken. `context`: none. */
static bool is_told_to_stop(void *context)
{
    (void)context;
    return stop_is_pending();
}

static enum tarn_status engine_start(struct server *server)
{
    const struct options *options = server->options;
    const uint32_t batch_size = number_of(server, OPTION_MAX_BATCH_SIZE);
    const uint32_t batch_tokens = number_of(server, OPTION_MAX_BATCH_TOKENS);
    const uint32_t page_tokens = number_of(server, OPTION_PAGE_TOKENS);
    if (batch_tokens < batch_size + page_tokens) {
        log_error("--max-batch-tokens %u is less than --max-batch-size and --page-tokens together "
                  "(%u + %u = %u); raise it, or lower them",
                  batch_tokens, batch_size, page_tokens, batch_size + page_tokens);
        return TARN_INVALID;
    }
    const struct engine_options engine_options = {
        .model_path = options->model,
        .backend_dir = option_text(options, OPTION_BACKEND_DIR),
        .ctx_tokens = number_of(server, OPTION_CTX),
        .page_tokens = page_tokens,
        .batch_tokens_max = batch_tokens,
        .sequences_max = batch_size,
        .threads = number_of(server, OPTION_THREADS),
        .kv_type = (enum engine_kv_type)option_number(options, OPTION_KV_TYPE),
        .kernel = (enum engine_kernel)option_number(options, OPTION_KERNEL),
        .poll = option_bool(options, OPTION_POLL),
        .weight_copy = option_bool(options, OPTION_WEIGHT_COPY),
        .should_stop = is_told_to_stop,
    };
    return engine_open(&engine_options, &server->engine);
}

static void engine_narrate(const struct server *server)
{
    const struct engine_info *info = engine_info_of(server->engine);
    char weights[SIZE_TEXT_BYTES];
    char copy[SIZE_TEXT_BYTES];
    value_print_size(info->weights_bytes, weights, sizeof(weights));
    value_print_size(info->copy_bytes, copy, sizeof(copy));
    log_info("model: %s (%s), %.1f million parameters, weights %s, %s%s%s", server->model,
             info->architecture, (double)info->parameter_count / 1e6, info->weights, weights,
             info->copy_bytes ? " and a copy for large batches, " : "",
             info->copy_bytes ? copy : "");
    const char *key = option_text(server->options, OPTION_MODEL_KEY);
    log_info("model key: %s (%s)", key ? key : info->model_key,
             key ? option_origin(server->options, OPTION_MODEL_KEY) : "from the file's contents");
    log_info("geometry: %u layer%s, %u head%s, %u KV head%s of %u, vocabulary %u, context %u "
             "token%s (%s; the model was made for %u)",
             info->layer_count, text_plural(info->layer_count), info->head_count,
             text_plural(info->head_count), info->kv_head_count, text_plural(info->kv_head_count),
             info->head_dim, info->vocab_count, info->ctx_tokens, text_plural(info->ctx_tokens),
             option_origin(server->options, OPTION_CTX), info->ctx_train_tokens);
    log_info("compute: %s, %u thread%s (%s), batches of %u request%s and %u tokens", info->cpu,
             info->threads, text_plural(info->threads),
             option_origin(server->options, OPTION_THREADS), info->sequences_max,
             text_plural(info->sequences_max), info->batch_tokens_max);
}

/* A page's headroom, and the page. */
static uint64_t page_stride_bytes(const struct engine_info *info)
{
    return info->page_bytes + TARN_PAGE_HEADROOM_BYTES;
}

static void *page_first(const struct server *server)
{
    return (char *)server->pages.base + TARN_PAGE_HEADROOM_BYTES;
}

static enum tarn_status pages_start(struct server *server)
{
    const struct engine_info *info = engine_info_of(server->engine);
    uint64_t available_bytes = 0;
    if (memory_available(&available_bytes) != TARN_OK)
        available_bytes = 0;
    const struct memory_plan plan =
        memory_plan_make(info, option_number(server->options, OPTION_KV_SIZE),
                         number_of(server, OPTION_MAX_BATCH_SIZE), available_bytes);
    char size[SIZE_TEXT_BYTES];
    const uint64_t size_bytes = plan.page_count * info->page_bytes; /* as told: of pages alone */
    value_print_size(size_bytes, size, sizeof(size));
    log_info("page: %u token%s (%s), %llu bytes of %s", info->page_tokens,
             text_plural(info->page_tokens), option_origin(server->options, OPTION_PAGE_TOKENS),
             (unsigned long long)info->page_bytes, info->kv_type == ENGINE_KV_F32 ? "f32" : "f16");
    log_info("KV memory: %llu page%s x %llu bytes = %llu bytes (%s), %llu tokens, %.1f requests of "
             "the whole context (%s%s)",
             (unsigned long long)plan.page_count, text_plural(plan.page_count),
             (unsigned long long)info->page_bytes, (unsigned long long)size_bytes, size,
             (unsigned long long)(plan.page_count * info->page_tokens),
             (double)plan.page_count * info->page_tokens / info->ctx_tokens,
             option_origin(server->options, OPTION_KV_SIZE),
             plan.is_limited ? ", a quarter of the memory available" : "");
    if (plan.page_count == 0 || plan.page_count > UINT32_MAX) {
        log_error("--kv-size: %llu pages cannot be; a page is %llu bytes",
                  (unsigned long long)plan.page_count, (unsigned long long)info->page_bytes);
        return TARN_INVALID;
    }
    return block_init(&server->pages, plan.page_count * page_stride_bytes(info));
}

static enum tarn_status sched_start(struct server *server)
{
    const struct engine_info *info = engine_info_of(server->engine);
    const struct sched_options sched_options = {
        .page_memory = page_first(server),
        .page_bytes = info->page_bytes,
        .page_stride_bytes = page_stride_bytes(info),
        .page_count = (uint32_t)(server->pages.size_bytes / page_stride_bytes(info)),
        .page_tokens = info->page_tokens,
        .request_tokens_max = info->ctx_tokens,
        .batch_size_max = info->sequences_max,
        .batch_tokens_max = info->batch_tokens_max,
        .waiting_max = number_of(server, OPTION_MAX_WAITING),
        .prefill_cut = number_of(server, OPTION_PREFILL_CUT),
        .ops = server->pool.connector ? server->pool.ops : NULL,
        .connector = server->pool.connector,
    };
    return sched_create(&sched_options, &server->sched);
}

static enum tarn_status threads_start(struct server *server)
{
    const struct loop_options loop_options = {
        .engine = server->engine,
        .sched = server->sched,
        .jobs_max = number_of(server, OPTION_MAX_WAITING),
        .batch_size_max = number_of(server, OPTION_MAX_BATCH_SIZE),
        .news = &server->news,
    };
    TRY(loop_create(&loop_options, &server->loop));
    char address[LISTEN_ADDRESS_BYTES];
    TRY(listen_begin(server->listen_fd, address));
    const struct http_options http_options = {
        .engine = server->engine,
        .loop = server->loop,
        .model = server->model,
        .listen_fd = server->listen_fd,
        .news = &server->news,
        .connections_max = number_of(server, OPTION_MAX_CONNECTIONS),
        .max_tokens_default = number_of(server, OPTION_MAX_TOKENS_DEFAULT),
        .is_draining = &server->is_draining,
    };
    TRY(http_create(&http_options, &server->http));
    server->listen_fd = -1; /* the HTTP server's now */
    TRY(loop_start(server->loop));
    TRY(http_start(server->http));
    log_info("listening on http://%s (%s)", address, option_origin(server->options, OPTION_PORT));
    return TARN_OK;
}

static uint32_t warm_up_tokens(const struct engine_info *info)
{
    uint32_t most = WARM_UP_TOKENS;
    most = info->page_tokens < most ? info->page_tokens : most;
    return info->ctx_tokens < most ? info->ctx_tokens : most;
}

/* A few tokens on the first page, straight to the engine: neither pool nor scheduler see it. Brings
 * weights and graphs in, and finds the number of threads that suits a busy machine, before a client
 * has to wait for that. Outcomes: AGAIN, told to stop. */
static enum tarn_status warm_up(struct server *server)
{
    const struct engine_info *info = engine_info_of(server->engine);
    static const int32_t tokens[WARM_UP_TOKENS];
    const uint32_t count = warm_up_tokens(info);
    void *page = page_first(server);
    const struct engine_sequence parts[] = {
        { .tokens = tokens, .token_count = count - 1, .pages = &page, .page_count = 1 },
        { .tokens = tokens,
          .token_count = 1,
          .position = count - 1,
          .pages = &page,
          .page_count = 1,
          .output_count = 1 },
    };
    const uint64_t start_ns = clock_now_ns();
    engine_set_stop(server->engine, is_told_to_stop, NULL);
    for (size_t i = count > 1 ? 0 : 1; i < LENGTH_OF(parts); i++)
        TRY(engine_forward(server->engine, &parts[i], 1));
    metric_add(METRIC_REQUESTS_WARMUP, 1);
    log_info("warm-up: %u token%s in %.0f ms", count, text_plural(count),
             (double)(clock_now_ns() - start_ns) / (double)NS_PER_MS);
    return TARN_OK;
}

static enum tarn_status model_start(struct server *server)
{
    TRY(engine_start(server));
    engine_narrate(server);
    TRY(pages_start(server));
    return warm_up(server);
}

static enum tarn_status pool_entered(struct server *server)
{
    const struct engine_info *info = engine_info_of(server->engine);
    if (!server->hooks)
        return TARN_OK;
    TRY(server->hooks->entered(server->hooks->context, info->page_bytes, info->page_tokens));
    server->has_entered = true;
    return TARN_OK;
}

/* What can be wrong with address and pool is found out before the model is loaded, which may take
 * minutes; clients are let in after it. Outcomes: AGAIN, told to stop. */
static enum tarn_status server_start(struct server *server)
{
    TRY(model_name(server->options->model, server->model, sizeof(server->model)));
    TRY(listen_bind(option_text(server->options, OPTION_HOST),
                    (uint16_t)option_number(server->options, OPTION_PORT), &server->listen_fd));
    TRY(serve_pool_prepare(server->options, server->connector, &server->pool));
    TRY(model_start(server));
    const struct tarn_span memory = { .base = server->pages.base,
                                      .size_bytes = server->pages.size_bytes };
    TRY(serve_pool_open(&server->pool, server->options, server->engine, memory));
    TRY(pool_entered(server));
    TRY(sched_start(server));
    TRY(wakeup_init(&server->news));
    return threads_start(server);
}

/* Wait up to timeout_ms for a signal to stop. */
static bool signal_wait(const sigset_t *signals, uint64_t timeout_ms)
{
    const struct timespec timeout = { .tv_sec = (time_t)(timeout_ms / 1000),
                                      .tv_nsec = (long)(timeout_ms % 1000 * NS_PER_MS) };
    return sigtimedwait(signals, NULL, &timeout) > 0;
}

/* Let running requests finish. False: told to hurry. */
static bool server_drain(struct server *server, const sigset_t *signals)
{
    const uint64_t deadline_ns =
        clock_now_ns() + option_number(server->options, OPTION_DRAIN_DEADLINE) * NS_PER_MS;
    atomic_store(&server->is_draining, true);
    const uint32_t running = http_request_count(server->http);
    log_info("stopping: no new requests; %u %s still running, a second signal ends %s", running,
             running == 1 ? "is" : "are", running == 1 ? "it" : "them");
    while (http_request_count(server->http) > 0) {
        if (signal_wait(signals, DRAIN_POLL_MS))
            return false;
        if (clock_now_ns() > deadline_ns) {
            const uint32_t left = http_request_count(server->http);
            log_warn("stopping: %u request%s did not finish within --drain-deadline: cut off", left,
                     text_plural(left));
            break;
        }
    }
    return true;
}

/* The page memory stays when a transfer may still touch it: the process is about to end. False: so
 * it is. */
static bool memory_stop(struct server *server, uint32_t timeout_ms)
{
    enum tarn_status status = TARN_OK;
    if (server->sched)
        status = sched_drain(server->sched, timeout_ms);
    sched_destroy(server->sched);
    if (server->has_entered)
        server->hooks->leaving(server->hooks->context);
    const enum tarn_status closed = serve_pool_close(&server->pool, timeout_ms);
    if (status == TARN_OK && closed == TARN_OK) {
        block_deinit(&server->pages);
        return true;
    }
    log_warn("stopping: transfers to the pool did not end in time and are left behind");
    return false;
}

/* False: transfers are left behind. */
static bool server_stop(struct server *server, bool hurry)
{
    if (server->loop)
        loop_stop(server->loop);
    if (server->http)
        http_stop(server->http);
    http_destroy(server->http);
    loop_destroy(server->loop);
    if (server->listen_fd >= 0)
        (void)close(server->listen_fd);
    const bool is_clean = memory_stop(server, hurry ? 0 : CLOSE_TIMEOUT_MS);
    if (server->news.fd >= 0)
        wakeup_deinit(&server->news);
    engine_close(server->engine);
    return is_clean;
}

enum tarn_status serve_run(const struct options *options, const struct serve_connector *connector,
                           const struct serve_hooks *hooks)
{
    struct server server = {
        .options = options,
        .hooks = hooks,
        .connector = connector,
        .listen_fd = -1,
        .news.fd = -1,
    };
    sigset_t signals;
    log_set_level((enum log_level)option_number(options, OPTION_LOG_LEVEL));
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    bool hurry = false;
    enum tarn_status status = server_start(&server);
    if (status == TARN_AGAIN) {
        log_info("stopping: told to before the start was complete");
        status = TARN_OK;
    } else if (status == TARN_OK) {
        while (sigwaitinfo(&signals, NULL) < 0)
            ; /* stopped and continued by someone */
        hurry = !server_drain(&server, &signals);
    }
    const bool is_clean = server_stop(&server, hurry);
    if (status == TARN_OK)
        log_info("stopped");
    return status == TARN_OK && !is_clean ? TARN_AGAIN : status;
}
