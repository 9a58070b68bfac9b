/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers over Tarn's own connector and a real pool: what one prefilled, the other replays.
 * The forward pass is a fake that writes a hash of scope and tokens into each position, and checks
 * every position that it reads.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "kv/fake-hash.h"
#include "obs/metric.h"
#include "sched/fake-connector.h"
#include "sched/sched.h"

enum {
    PAGES = 40,
    ENGINES = 2,
    SUBJECTS = 12, /* alive at once, of both engines */
    POOL_BYTES = 64 << 20,
};

struct subject {
    uint64_t id; /* 0: none */
    bool cancel_soon;
    uint32_t prompt_count;
    uint32_t max_tokens;
    uint32_t computed_count;
    struct tarn_scope scope;
    struct fake_text text;
};

struct engine {
    _Alignas(64) uint8_t memory[PAGES][FAKE_PAGE_BYTES];
    struct sched *sched;
    struct tarn_connector *connector;
    struct subject subjects[SUBJECTS];
};

static struct engine engines[ENGINES];
static char directory[64];
static char pool_path[96];
static uint64_t now_ns;
static uint64_t next_id = 1;
static uint64_t dice = 7;

static const struct tarn_connector_ops *ops(void)
{
    return tarn_connector_ops(TARN_ABI_VERSION);
}

static void register_pages(struct engine *engine)
{
    static const uint32_t layer = 0;
    static const struct tarn_buffer buffers[] = { { 0, TARN_KEY }, { 0, TARN_VALUE } };
    const struct tarn_region region = { .size_bytes = FAKE_PAGE_BYTES,
                                        .stride_bytes = FAKE_PAGE_BYTES,
                                        .buffers = buffers,
                                        .buffer_count = 2 };
    const struct tarn_group group = {
        .layers = &layer, .layer_count = 1, .regions = &region, .region_count = 1
    };
    const struct tarn_span memory = { engine->memory, sizeof(engine->memory) };
    const struct tarn_layout layout = { .size = sizeof(layout),
                                        .tokens_per_block = FAKE_T,
                                        .page_form = TARN_PAGES_BY_ADDRESS,
                                        .groups = &group,
                                        .group_count = 1,
                                        .memory = &memory,
                                        .memory_count = 1 };
    assert_int_equal(ops()->register_layout(engine->connector, &layout), TARN_OK);
}

static void engine_open(struct engine *engine)
{
    const struct tarn_kv_format format = { .size = sizeof(format),
                                           .element_type = "f32",
                                           .order = "layer,kv,token,head,dim",
                                           .layer_count = 1,
                                           .head_count = 1,
                                           .key_head_size = 2,
                                           .value_head_size = 2 };
    struct sched_options options = {
        .page_memory = engine->memory,
        .page_bytes = FAKE_PAGE_BYTES,
        .page_count = PAGES,
        .page_tokens = FAKE_T,
        .request_tokens_max = FAKE_TOKENS_MAX,
        .batch_size_max = 4,
        .batch_tokens_max = 24,
        .waiting_max = SUBJECTS,
        .ops = ops(),
    };
    const struct tarn_engine_desc desc = {
        .size = sizeof(desc),
        .name = "test",
        .model_key = "test-0123456789abcdef",
        .format = &format,
        .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
        .request_count_max = sched_request_count_max(&options),
        .request_tokens_max = FAKE_TOKENS_MAX,
    };
    const struct tarn_connector_options connector_options = {
        .size = sizeof(connector_options),
        .pool = pool_path,
        .pool_size_bytes = POOL_BYTES,
        .transfer_batch_size = 4,
        .pinned_bytes_max = (uint64_t)PAGES * FAKE_PAGE_BYTES,
    };
    memset(engine, 0, sizeof(*engine));
    assert_int_equal(ops()->open(&connector_options, &desc, &engine->connector), TARN_OK);
    register_pages(engine);
    options.connector = engine->connector;
    assert_int_equal(sched_create(&options, &engine->sched), TARN_OK);
}

static void engine_close(struct engine *engine)
{
    assert_int_equal(sched_drain(engine->sched, 10000), TARN_OK);
    assert_true(sched_is_idle(engine->sched));
    sched_destroy(engine->sched);
    assert_int_equal(ops()->close(engine->connector, 10000), TARN_OK);
    engine->sched = NULL;
}

static struct subject *subject_find(struct engine *engine, uint64_t id)
{
    for (size_t i = 0; i < SUBJECTS; i++)
        if (engine->subjects[i].id == id)
            return &engine->subjects[i];
    return NULL;
}

static struct subject *subject_of(struct engine *engine, uint64_t id)
{
    struct subject *subject = subject_find(engine, id);
    ASSERT(subject);
    return subject;
}

/* `count` tokens of a family's text, then two of its own. */
static struct subject *submit(struct engine *engine, uint32_t family, uint32_t count,
                              uint32_t max_tokens, const char *salt)
{
    struct subject *subject = subject_of(engine, 0);
    *subject = (struct subject){ .id = next_id++, .max_tokens = max_tokens };
    subject->scope = (struct tarn_scope){ .size = sizeof(subject->scope), .cache_salt = salt };
    fake_text_init(&subject->text, &subject->scope);
    for (uint32_t i = 0; i < count; i++)
        fake_text_add(&subject->text, (int32_t)(fake_hash(family, i) % 1000));
    fake_text_add(&subject->text, (int32_t)(subject->id % 3));
    fake_text_add(&subject->text, (int32_t)(subject->id % 5));
    subject->prompt_count = subject->text.count;
    const struct sched_request request = {
        .id = subject->id,
        .tokens = subject->text.tokens,
        .token_count = subject->text.count,
        .max_tokens = max_tokens,
        .scope = &subject->scope,
        .arrival_ns = now_ns,
    };
    assert_int_equal(sched_submit(engine->sched, &request), TARN_OK);
    return subject;
}

static struct fake_cell *cell_of(const struct sched_item *item, uint32_t position)
{
    struct fake_cell *cells = item->pages[position / FAKE_T];
    return &cells[position % FAKE_T];
}

static void forward(struct engine *engine, const struct sched_item *item)
{
    struct subject *subject = subject_of(engine, item->id);
    const uint32_t end = item->position + item->token_count;
    for (uint32_t i = 0; i < end; i++) {
        const struct fake_cell cell = fake_text_cell(&subject->text, i);
        if (i < item->position)
            assert_memory_equal(cell_of(item, i), &cell, sizeof(cell));
        else
            *cell_of(item, i) = cell;
        subject->computed_count += i >= item->position && i < subject->prompt_count;
    }
}

static void end(struct engine *engine, struct subject *subject)
{
    struct sched_sources sources;
    assert_int_equal(sched_sources(engine->sched, subject->id, &sources), TARN_OK);
    assert_int_equal(sources.device + sources.pool + sources.computed, subject->prompt_count);
    assert_int_equal(sources.computed, subject->computed_count);
    sched_end(engine->sched, subject->id, SCHED_OK);
    subject->id = 0;
}

static void sample(struct engine *engine, const struct sched_item *item)
{
    struct subject *subject = subject_of(engine, item->id);
    const int32_t token = (int32_t)(subject->text.prefix[subject->text.count] % 1000);
    fake_text_add(&subject->text, token);
    assert_int_equal(sched_append(engine->sched, item->id, token), TARN_OK);
    if (subject->text.count == subject->prompt_count + subject->max_tokens)
        end(engine, subject);
}

/* One turn of an engine's loop. Returns whether anything is left to do. */
static bool turn(struct engine *engine)
{
    struct sched_batch batch;
    struct sched_item items[8];
    struct sched_ended ended;
    now_ns += 1000;
    const enum tarn_status status = sched_pass(engine->sched, now_ns, &batch);
    assert_false(sched_take_ended(engine->sched, &ended));
    if (status == TARN_AGAIN) {
        struct pollfd fd = { .fd = sched_poll_fd(engine->sched), .events = POLLIN };
        assert_int_not_equal(batch.wait, SCHED_WAIT_CALLER);
        if (batch.wait == SCHED_WAIT_IDLE)
            return false;
        (void)poll(&fd, 1, 50);
        return true;
    }
    memcpy(items, batch.items, batch.item_count * sizeof(*items));
    for (uint32_t i = 0; i < batch.item_count; i++)
        forward(engine, &items[i]);
    sched_pass_done(engine->sched, TARN_OK, now_ns);
    for (uint32_t i = 0; i < batch.item_count; i++)
        if (items[i].want_logits)
            sample(engine, &items[i]);
    return true;
}

static void run_to_idle(struct engine *engine)
{
    int turns = 0;
    while (turn(engine))
        assert_true(++turns < 20000);
}

static int set_up(void **state)
{
    (void)state;
    log_set_level(LOG_WARN);
    metrics_reset();
    (void)snprintf(directory, sizeof(directory), "/dev/shm/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(pool_path, sizeof(pool_path), "%s/pool", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(pool_path);
    assert_int_equal(rmdir(directory), 0);
    return 0;
}

static void expect_sources(int64_t device, int64_t pool, int64_t computed)
{
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_DEVICE), device);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_POOL), pool);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_COMPUTED), computed);
    assert_int_equal(metric_get(METRIC_PROMPT_TOKENS_REQUESTED), device + pool + computed);
}

static void what_one_engine_prefilled_the_other_replays(void **state)
{
    (void)state;
    engine_open(&engines[0]);
    engine_open(&engines[1]);
    (void)submit(&engines[0], 1, 62, 4, ""); /* 15 blocks of the family's text, 2 tokens, 2 own */
    run_to_idle(&engines[0]);
    expect_sources(0, 0, 64);
    (void)submit(&engines[1], 1, 62, 4, "");
    run_to_idle(&engines[1]);
    expect_sources(0, 60, 64 + 4);
    (void)submit(&engines[1], 1, 62, 4, "");
    run_to_idle(&engines[1]);
    expect_sources(60, 60, 64 + 8);

    engine_close(&engines[0]); /* a restart loses nothing */
    engine_open(&engines[0]);
    (void)submit(&engines[0], 1, 62, 4, "");
    run_to_idle(&engines[0]);
    expect_sources(60, 120, 64 + 12);
    (void)submit(&engines[0], 1, 62, 4, "another tenant");
    run_to_idle(&engines[0]);
    expect_sources(60, 120, 64 + 12 + 64);
    engine_close(&engines[0]);
    engine_close(&engines[1]);
}

/* The engine is told to stop while its last request's pages are on their way. */
static void what_is_being_saved_at_the_end_is_written(void **state)
{
    (void)state;
    for (uint32_t family = 100; family < 150; family++) {
        engine_open(&engines[0]);
        const struct subject *subject = submit(&engines[0], family, 62, 1, "");
        while (subject->id)
            (void)turn(&engines[0]);
        engine_close(&engines[0]);
    }
    assert_int_equal(metric_get(METRIC_SAVE_PAGES), 50 * 64 / FAKE_T);
}

static void submit_some(struct engine *engine)
{
    static const char *const salts[] = { "", "", "tenant" };
    while (subject_find(engine, 0) && fake_chance(&dice, 300)) {
        const uint64_t roll = fake_random(&dice);
        struct subject *subject =
            submit(engine, (uint32_t)(roll % 4), 1 + (uint32_t)(roll >> 8) % 70,
                   1 + (uint32_t)(roll >> 16) % 20, salts[(roll >> 24) % LENGTH_OF(salts)]);
        subject->cancel_soon = (roll >> 32) % 4 == 0;
    }
}

static void cancel_some(struct engine *engine)
{
    for (size_t i = 0; i < SUBJECTS; i++) {
        struct subject *subject = &engine->subjects[i];
        if (!subject->id || !subject->cancel_soon || !fake_chance(&dice, 100))
            continue;
        sched_cancel(engine->sched, subject->id);
        subject->id = 0;
    }
}

static void two_engines_share_one_pool_and_no_page_is_wrong(void **state)
{
    (void)state;
    const char *is_long = getenv("TARN_TEST_LONG"); /* NOLINT(concurrency-mt-unsafe) */
    const int turns = is_long ? 100000 : 10000;
    for (size_t i = 0; i < ENGINES; i++)
        engine_open(&engines[i]);
    for (int i = 0; i < turns; i++) {
        struct engine *engine = &engines[fake_random(&dice) % ENGINES];
        submit_some(engine);
        cancel_some(engine);
        (void)turn(engine);
        if (fake_chance(&dice, 1)) {
            engine_close(engine);
            engine_open(engine);
        }
    }
    for (size_t i = 0; i < ENGINES; i++)
        run_to_idle(&engines[i]);
    assert_true(metric_get(METRIC_PROMPT_TOKENS_POOL) > turns);
    assert_true(metric_get(METRIC_PROMPT_TOKENS_DEVICE) > turns);
    assert_int_equal(metric_get(METRIC_CONNECTOR_FAILED), 0);
    expect_sources(metric_get(METRIC_PROMPT_TOKENS_DEVICE), metric_get(METRIC_PROMPT_TOKENS_POOL),
                   metric_get(METRIC_PROMPT_TOKENS_COMPUTED));
    print_message(
        "# requests: %lld ok, %lld cancelled; prompt tokens: %lld device, %lld pool, %lld "
        "computed\n",
        (long long)metric_get(METRIC_REQUESTS_OK), (long long)metric_get(METRIC_REQUESTS_CANCELLED),
        (long long)metric_get(METRIC_PROMPT_TOKENS_DEVICE),
        (long long)metric_get(METRIC_PROMPT_TOKENS_POOL),
        (long long)metric_get(METRIC_PROMPT_TOKENS_COMPUTED));
    for (size_t i = 0; i < ENGINES; i++)
        engine_close(&engines[i]);
    assert_int_equal(metric_get(METRIC_PAGES_PINNED), 0);
    assert_int_equal(metric_get(METRIC_PAGES_LOCKED), 0);
    assert_int_equal(metric_get(METRIC_LEASES), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_one_engine_prefilled_the_other_replays),
        TEST(what_is_being_saved_at_the_end_is_written),
        TEST(two_engines_share_one_pool_and_no_page_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
