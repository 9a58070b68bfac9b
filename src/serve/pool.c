/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/pool.h"

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/stop.h"
#include "sched/sched.h"

/* One group, one region: the page of engine.h, [layer][k|v][token][kv head][dim], whole, and before
 * it room for what a store puts there. */
static enum tarn_status layout_register(const struct serve_pool *pool,
                                        const struct engine_info *info, struct tarn_span memory)
{
    const size_t buffer_count = 2 * (size_t)info->layer_count;
    struct tarn_buffer *buffers = mem_alloc(buffer_count, sizeof(*buffers));
    uint32_t *layers = mem_alloc(info->layer_count, sizeof(*layers));
    enum tarn_status status = TARN_NO_MEMORY;
    if (buffers && layers) {
        for (uint32_t i = 0; i < info->layer_count; i++) {
            layers[i] = i;
            buffers[2 * (size_t)i] = (struct tarn_buffer){ .layer = i, .role = TARN_KEY };
            buffers[2 * (size_t)i + 1] = (struct tarn_buffer){ .layer = i, .role = TARN_VALUE };
        }
        const struct tarn_region region = { .size_bytes = info->page_bytes,
                                            .stride_bytes = info->page_bytes,
                                            .buffers = buffers,
                                            .buffer_count = buffer_count };
        const struct tarn_group group = { .layers = layers,
                                          .layer_count = info->layer_count,
                                          .regions = &region,
                                          .region_count = 1 };
        const struct tarn_layout layout = { .size = sizeof(layout),
                                            .tokens_per_block = info->page_tokens,
                                            .page_form = TARN_PAGES_BY_ADDRESS,
                                            .groups = &group,
                                            .group_count = 1,
                                            .memory = &memory,
                                            .memory_count = 1,
                                            .headroom_bytes = TARN_PAGE_HEADROOM_BYTES };
        status = pool->ops->register_layout(pool->connector, &layout);
    }
    mem_free(buffers);
    mem_free(layers);
    return status;
}

void serve_pool_options(const struct options *options, const struct pool_option *choice,
                        struct tarn_connector_options *out_options)
{
    *out_options = (struct tarn_connector_options){
        .size = sizeof(*out_options),
        .pool = choice->path[0] ? choice->path : NULL,
        .pool_size_bytes = choice->size_bytes,
        .cache_prefix = option_text(options, OPTION_CACHE_PREFIX),
        .role = (uint32_t)option_number(options, OPTION_ROLE),
        .transfer_batch_size = (uint32_t)option_number(options, OPTION_TRANSFER_BATCH_SIZE),
        .stage_through_host = (uint32_t)option_number(options, OPTION_STAGE_THROUGH_HOST),
        .staging_buffer_bytes = option_number(options, OPTION_STAGING_BUFFER),
        .lookup_deadline_ms = (uint32_t)option_number(options, OPTION_LOOKUP_DEADLINE),
        .load_deadline_ms = (uint32_t)option_number(options, OPTION_LOAD_DEADLINE),
        .load_bytes_per_step = option_number(options, OPTION_LOAD_BYTES_PER_STEP),
        .load_failure = (uint32_t)option_number(options, OPTION_LOAD_FAILURE),
        .save_generated =
            option_bool(options, OPTION_SAVE_GENERATED) ? TARN_SETTING_ON : TARN_SETTING_OFF,
        .verify_tokens =
            option_bool(options, OPTION_VERIFY_TOKENS) ? TARN_SETTING_ON : TARN_SETTING_OFF,
    };
}

static enum tarn_status connector_open(struct serve_pool *pool, const struct options *options,
                                       const struct engine *engine)
{
    const struct engine_info *info = engine_info_of(engine);
    const struct tarn_kv_format format = engine_kv_format(engine);
    const char *model_key = option_text(options, OPTION_MODEL_KEY);
    const struct sched_options limits = {
        .waiting_max = (uint32_t)option_number(options, OPTION_MAX_WAITING),
        .batch_size_max = info->sequences_max,
    };
    const struct tarn_engine_desc desc = {
        .size = sizeof(desc),
        .name = "tarn serve",
        .model_key = model_key ? model_key : info->model_key,
        .format = &format,
        .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
        .lower_tier = TARN_SETTING_OFF, /* kv/ has neither */
        .partial_reuse = TARN_SETTING_OFF,
        .request_count_max = sched_request_count_max(&limits),
        .request_tokens_max = info->ctx_tokens,
    };
    struct tarn_connector_options connector_options;
    serve_pool_options(options, &pool->choice, &connector_options);
    return pool->ops->open(&connector_options, &desc, &pool->connector);
}

/* The pool cannot be had: a failure if the user named it, else the server does without. */
static enum tarn_status pool_miss(struct serve_pool *pool, enum tarn_status status)
{
    ASSERT(pool->ops || !pool->is_module);
    if (status == TARN_AGAIN && stop_is_pending())
        return status; /* told to end while the pool was waited for */
    if (pool->is_module && pool->choice.choice == POOL_DEFAULT) {
        log_error("pool: connector %s cannot be used, for the reason above; choose another, or "
                  "--pool none",
                  pool->ops->name);
        return status;
    }
    if (pool->choice.choice != POOL_DEFAULT) {
        log_error("pool: %s cannot be used, for the reason above; name another, or --pool none",
                  pool->choice.path);
        return status;
    }
    log_warn("pool: the default pool cannot be used (%s); serving without, nothing is shared",
             tarn_strerror(status));
    metric_set(METRIC_POOL_INERT, 1); /* there is no connector that would say it */
    pool->choice.choice = POOL_NONE;
    return TARN_OK;
}

enum tarn_status serve_pool_prepare(const struct options *options,
                                    const struct serve_connector *connector,
                                    struct serve_pool *out_pool)
{
    char error[OPTION_ERROR_BYTES];
    struct serve_pool pool = { .ops = connector->is_there ? &connector->table : NULL,
                               .is_module = connector->is_module };
    TRY(pool_option_read(option_text(options, OPTION_POOL), &pool.choice, error));
    if (pool.choice.choice == POOL_NONE) {
        log_info("pool: none (%s)", option_origin(options, OPTION_POOL));
        *out_pool = pool;
        return TARN_OK;
    }
    const bool is_elsewhere = connector->is_there && !connector->is_tarn;
    if (is_elsewhere || pool.choice.choice == POOL_DISTRIBUTED) {
        /* Where its pages lie is its own affair; a distributed pool was tried by whoever chose it,
         * and joining it twice would cost memory. */
        *out_pool = pool;
        return TARN_OK;
    }
    const struct tarn_pool_options pool_options = {
        .size = sizeof(pool_options),
        .path = pool.choice.choice == POOL_NAMED ? pool.choice.path : NULL,
        .size_bytes = pool.choice.size_bytes,
    };
    const enum tarn_status status =
        pool.ops ? tarn_pool_open(&pool_options, &pool.held) : TARN_UNSUPPORTED;
    if (status != TARN_OK)
        TRY(pool_miss(&pool, status));
    *out_pool = pool;
    return TARN_OK;
}

enum tarn_status serve_pool_open(struct serve_pool *pool, const struct options *options,
                                 const struct engine *engine, struct tarn_span memory)
{
    if (pool->choice.choice == POOL_NONE)
        return TARN_OK;
    enum tarn_status status = connector_open(pool, options, engine);
    if (status == TARN_OK) {
        status = layout_register(pool, engine_info_of(engine), memory);
        if (status != TARN_OK) {
            if (pool->ops->close(pool->connector, 0) != TARN_OK)
                log_warn("the connector does not close");
            pool->connector = NULL;
        }
    }
    tarn_pool_close(TAKE(pool->held)); /* the connector holds it, or nobody does */
    if (status != TARN_OK)
        return pool_miss(pool, status);
    if (pool->is_module && pool->choice.choice == POOL_DEFAULT)
        log_info("pool: the default one of connector %s", pool->ops->name);
    else
        log_info("pool: %s", pool->choice.choice != POOL_DEFAULT
                                 ? pool->choice.path
                                 : "this user's default on this host");
    return TARN_OK;
}

enum tarn_status serve_pool_close(struct serve_pool *pool, uint32_t timeout_ms)
{
    tarn_pool_close(TAKE(pool->held));
    if (!pool->connector)
        return TARN_OK;
    TRY(pool->ops->close(pool->connector, timeout_ms));
    pool->connector = NULL;
    return TARN_OK;
}
