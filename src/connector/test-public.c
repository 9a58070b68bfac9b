/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of tarn.h over the real pool: every one survives failed allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "lib/fault.h"

enum { T = 4, SLOTS = 64, PAGE = 4096 };

static char folder[64];
static char path[80];
static uint8_t memory[2][SLOTS * PAGE]; /* of two engines */
static int32_t tokens[100];

static const struct tarn_kv_format format = {
    .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
};

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/dev/shm/tarn-public-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/pool", folder);
    for (int32_t i = 0; i < 100; i++)
        tokens[i] = i * 11;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static enum tarn_status chain_life(void)
{
    const struct tarn_digest adapter = { { 1 } };
    const struct tarn_scope scope = { .size = sizeof(scope),
                                      .cache_salt = "salt",
                                      .adapter = &adapter };
    struct tarn_chain *chain;
    TRY(tarn_chain_create(&scope, T, &chain));
    enum tarn_status status = tarn_chain_extend(chain, tokens, 8);
    if (status == TARN_OK)
        status = tarn_chain_extend(chain, tokens, 100);
    tarn_chain_destroy(chain);
    return status;
}

static enum tarn_status metrics_life(void)
{
    char text[1 << 16];
    size_t size_bytes;
    return tarn_metrics(text, sizeof(text), &size_bytes);
}

static enum tarn_status digests_life(void)
{
    struct tarn_digest digest;
    uint64_t fingerprint;
    TRY(tarn_digest_of(tokens, sizeof(tokens), &digest));
    return tarn_kv_format_fingerprint(&format, &fingerprint);
}

static enum tarn_status pool_use(struct tarn_pool *pool)
{
    const struct tarn_namespace desc = { .size = sizeof(desc),
                                         .model = "m",
                                         .world_size = 1,
                                         .tokens_per_block = T,
                                         .bytes_per_page = PAGE };
    const struct tarn_digest digests[2] = { { { 1 } }, { { 2 } } };
    const struct tarn_span span = { memory[0], PAGE };
    struct tarn_lease *lease;
    uint32_t index;
    size_t count;
    TRY(tarn_pool_namespace(pool, &desc, &index));
    TRY(tarn_pool_put(pool, index, &digests[0], 0, &span, 1));
    TRY(tarn_pool_lookup(pool, index, digests, 2, &lease, &count));
    const enum tarn_status status = tarn_pool_get(pool, index, &digests[0], &span, 1);
    tarn_lease_release(lease);
    return status;
}

static enum tarn_status pool_life(void)
{
    const struct tarn_pool_options options = { .size = sizeof(options),
                                               .path = path,
                                               .size_bytes = 64 << 20 };
    struct tarn_pool *pool;
    TRY(tarn_pool_open(&options, &pool));
    const enum tarn_status status = pool_use(pool);
    tarn_pool_close(pool);
    return status;
}

/* ---- the connector, as an engine with pages named by address uses it ---- */

struct engine {
    const struct tarn_connector_ops *ops;
    struct tarn_connector *connector;
    uint8_t *memory;
    uint64_t step_number;
};

static enum tarn_status engine_open(struct engine *engine, size_t which, const char *model)
{
    const struct tarn_connector_options options = { .size = sizeof(options),
                                                    .pool = path,
                                                    .pool_size_bytes = 64 << 20 };
    const struct tarn_engine_desc desc = { .size = sizeof(desc),
                                           .model_key = model,
                                           .format = &format,
                                           .flags =
                                               TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                           .request_tokens_max = 1000 };
    const struct tarn_region region = { .base = 0, .size_bytes = PAGE };
    const struct tarn_group group = { .regions = &region, .region_count = 1 };
    const struct tarn_span span = { memory[which], sizeof(memory[which]) };
    const struct tarn_layout layout = { .size = sizeof(layout),
                                        .tokens_per_block = T,
                                        .page_form = TARN_PAGES_BY_ADDRESS,
                                        .groups = &group,
                                        .group_count = 1,
                                        .memory = &span,
                                        .memory_count = 1 };
    *engine =
        (struct engine){ .ops = tarn_connector_ops(TARN_ABI_VERSION), .memory = memory[which] };
    TRY(engine->ops->open(&options, &desc, &engine->connector));
    const enum tarn_status status = engine->ops->register_layout(engine->connector, &layout);
    if (status != TARN_OK)
        assert_int_equal(engine->ops->close(engine->connector, 1000), TARN_OK);
    return status;
}

static enum tarn_status engine_step(struct engine *engine, uint64_t computed, uint64_t scheduled,
                                    uint32_t load)
{
    tarn_page list[20];
    const tarn_page *const one[] = { list };
    struct tarn_bytes metadata;
    for (size_t i = 0; i < 20; i++)
        list[i] = (uintptr_t)engine->memory + i * PAGE;
    const struct tarn_step_request part = { .id = 1,
                                            .pages = one,
                                            .block_count = 20,
                                            .computed_tokens = computed,
                                            .scheduled_tokens = scheduled,
                                            .load = load };
    const struct tarn_step step = { sizeof(step), ++engine->step_number, &part, 1, 0 };
    TRY(engine->ops->step(engine->connector, &step, &metadata));
    return engine->ops->load_start(engine->connector, metadata);
}

static void engine_settle(struct engine *engine)
{
    struct tarn_transfer out[16];
    size_t count;
    const uint64_t id = 1;
    assert_int_equal(engine->ops->quiesce(engine->connector, &id, 0, 0), TARN_OK);
    for (int busy = 0;;) {
        assert_int_equal(engine->ops->transfers(engine->connector, out, 16, &count), TARN_OK);
        for (size_t i = 0; i < count; i++)
            busy += out[i].phase == TARN_TRANSFER_STARTED ? 1 : -1;
        if (count == 0 && busy == 0)
            return;
    }
}

static enum tarn_status engine_lookup(struct engine *engine, const struct tarn_scope *scope,
                                      struct tarn_offer *out_offer)
{
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = tokens, .token_count = 42, .scope = scope
    };
    return engine->ops->lookup(engine->connector, &request, 0, out_offer);
}

/* Look a prompt of 10 blocks up, load what there is, compute and save the rest. */
static enum tarn_status engine_use(struct engine *engine, uint64_t *out_loaded)
{
    struct tarn_offer offer;
    struct tarn_bytes report;
    struct tarn_bytes verdict;
    struct tarn_loaded loaded[1024] = { { .block_count = 0 } };
    size_t count;
    const enum tarn_status asked = engine_lookup(engine, NULL, &offer);
    if (asked == TARN_OK) {
        TRY(engine_step(engine, 0, 0, 1));
        TRY(engine->ops->load_poll(engine->connector, 10000, &report));
        TRY(engine->ops->verdict(engine->connector, &report, 1, &verdict));
        TRY(engine->ops->verdict_apply(engine->connector, verdict, loaded, 1024, &count));
        TRY(engine->ops->forward_done(engine->connector, engine->step_number, TARN_OK, NULL));
    } else if (asked != TARN_MISS) {
        return asked;
    }
    const uint64_t computed = loaded[0].block_count * T;
    TRY(engine_step(engine, computed, 42 - computed, 0));
    for (uint64_t block = loaded[0].block_count; block < 10; block++)
        memset(engine->memory + block * PAGE, (int)(block + 1), PAGE);
    TRY(engine->ops->forward_done(engine->connector, engine->step_number, TARN_OK, NULL));
    *out_loaded = loaded[0].block_count;
    return TARN_OK;
}

/* The request is given up once its transfers have ended, comes again under the same id, and takes
 * back the tail of what it is offered. */
static enum tarn_status engine_again(struct engine *engine)
{
    struct tarn_transfer out[64];
    struct tarn_offer offer;
    size_t count;
    const uint64_t id = 1;
    TRY(engine->ops->quiesce(engine->connector, &id, 1, 10000));
    TRY(engine->ops->transfers(engine->connector, out, LENGTH_OF(out), &count));
    assert_in_range(count, 0, LENGTH_OF(out) - 1);
    TRY(engine->ops->reset(engine->connector, id));
    const enum tarn_status asked = engine_lookup(engine, NULL, &offer);
    if (asked == TARN_OK)
        return engine->ops->cancel(engine->connector, id, 8, 42);
    return asked == TARN_MISS ? TARN_OK : asked;
}

static enum tarn_status connector_life(void)
{
    struct engine engine;
    uint64_t loaded;
    uint32_t pending;
    TRY(engine_open(&engine, 0, "m"));
    enum tarn_status status = engine_use(&engine, &loaded);
    if (status == TARN_OK)
        status = engine_again(&engine);
    (void)engine.ops->finished(engine.connector, 1, &pending);
    assert_int_equal(engine.ops->close(engine.connector, 10000), TARN_OK);
    return status;
}

static void every_public_function_survives_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_sweep(digests_life), 0);
    assert_in_range(fault_sweep(chain_life), 3, 10);
    assert_in_range(fault_sweep(metrics_life), 1, 30);
    assert_in_range(fault_sweep(pool_life), 3, 200);
    assert_in_range(fault_sweep(connector_life), 20, 300); /* computes, saves */
    assert_in_range(fault_sweep(connector_life), 20, 300); /* loads */
}

static void pages_named_by_address_go_from_one_engine_to_another(void **state)
{
    (void)state;
    struct engine a;
    struct engine b;
    struct tarn_offer offer;
    uint64_t loaded = 7;
    assert_int_equal(engine_open(&a, 0, "m"), TARN_OK);
    assert_int_equal(engine_open(&b, 1, "m"), TARN_OK);
    assert_int_equal(engine_use(&a, &loaded), TARN_OK);
    assert_int_equal(loaded, 0);
    engine_settle(&a);
    memset(memory[1], 0, sizeof(memory[1]));
    assert_int_equal(engine_use(&b, &loaded), TARN_OK);
    assert_int_equal(loaded, 10);
    assert_memory_equal(memory[0], memory[1], 10 * PAGE);
    engine_settle(&b);

    /* Another tenant's salt finds nothing. */
    uint32_t pending;
    assert_int_equal(b.ops->finished(b.connector, 1, &pending), TARN_OK);
    const struct tarn_scope tenant = { .size = sizeof(tenant), .cache_salt = "tenant-b" };
    assert_int_equal(engine_lookup(&b, &tenant, &offer), TARN_MISS);
    assert_int_equal(a.ops->close(a.connector, 10000), TARN_OK);
    assert_int_equal(b.ops->close(b.connector, 10000), TARN_OK);

    /* Other weights under another key find nothing. */
    assert_int_equal(engine_open(&a, 0, "m-other-weights"), TARN_OK);
    assert_int_equal(engine_lookup(&a, NULL, &offer), TARN_MISS);
    assert_int_equal(a.ops->close(a.connector, 10000), TARN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_public_function_survives_failed_allocations, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(pages_named_by_address_go_from_one_engine_to_another, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
