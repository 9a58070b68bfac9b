/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that the real store cannot be made to show, over a double of its library. */
#include "store/mooncake/mooncake.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "lib/fake-pool.h"
#include "lib/fault.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "store/mooncake/client.h"
#include "store/mooncake/header.h"
#include "store/mooncake/provider.h"
#include "store/mooncake/result.h"

enum { PAGE_BYTES = 5000, LINES_BYTES = 1 << 16 };

static char lines[LINES_BYTES]; /* logged since the case began */
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static fake_mooncake_set_fn fake_set;
static fake_mooncake_count_fn fake_count;
static struct store *store;
static uint32_t space;
static uint32_t case_number;
static char space_text[32];
static uint8_t memory[4 * PAGE_BYTES];

static void line_keep(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)pthread_mutex_lock(&lines_lock);
    const size_t length = strlen(lines);
    (void)snprintf(lines + length, sizeof(lines) - length, "%s\n", line);
    (void)pthread_mutex_unlock(&lines_lock);
}

static void expect_said(const char *part)
{
    if (!strstr(lines, part))
        fail_msg("'%s' was not said, but: %s", part, lines);
}

static int fake_find(void **state)
{
    (void)state;
    void *library = dlopen(getenv("TARN_FAKE_MOONCAKE"), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return -1;
    void *found = dlsym(library, "fake_mooncake_set");
    memcpy(&fake_set, (const void *)&found, sizeof(found));
    found = dlsym(library, "fake_mooncake_count");
    memcpy(&fake_count, (const void *)&found, sizeof(found));
    return fake_set && fake_count ? 0 : -1;
}

static void knobs_clear(void)
{
    for (int i = 0; i < FAKE_MOONCAKE_KNOBS; i++)
        fake_set((enum fake_mooncake_knob)i, 0);
}

static int case_begin(void **state)
{
    (void)state;
    lines[0] = '\0';
    log_set_sink(line_keep, NULL);
    knobs_clear();
    metrics_reset();
    store = fake_pool_open("TARN_FAKE_MOONCAKE");
    (void)snprintf(space_text, sizeof(space_text), "tarn/test/%u", ++case_number);
    return store && store_namespace(store, space_text, &space) == TARN_OK &&
                   store_register(store, memory, sizeof(memory)) == TARN_OK
               ? 0
               : -1;
}

static int case_end(void **state)
{
    (void)state;
    knobs_clear();
    store_unregister(store, memory);
    store_close(store);
    log_set_sink(NULL, NULL);
    return fake_count("buffers") == 0 && fake_count("handles") == 0 ? 0 : -1;
}

static struct store_key key_of(uint32_t number)
{
    struct store_key key = { .namespace_index = space, .depth = number };
    key.digest.bytes[0] = (uint8_t)number;
    key.digest.bytes[15] = 1;
    return key;
}

static void page_fill(uint8_t *bytes, uint32_t number)
{
    for (uint32_t i = 0; i < PAGE_BYTES; i++)
        bytes[i] = (uint8_t)(i * 13 + number + (i >> 8));
}

static enum tarn_status put(uint32_t number)
{
    const struct tarn_span spans[] = { { memory, 1000 }, { memory + 1000, PAGE_BYTES - 1000 } };
    struct store_item item = { .key = key_of(number), .spans = spans, .span_count = 2 };
    page_fill(memory, number);
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    return item.status;
}

static enum tarn_status get(uint32_t number)
{
    static uint8_t expected[PAGE_BYTES];
    uint8_t *bytes = memory + (size_t)2 * PAGE_BYTES;
    const struct tarn_span span = { bytes, PAGE_BYTES };
    struct store_item item = { .key = key_of(number), .spans = &span, .span_count = 1 };
    memset(bytes, 0, PAGE_BYTES);
    assert_int_equal(store_get(store, &item, 1), TARN_OK);
    page_fill(expected, number);
    if (item.status == TARN_OK)
        assert_memory_equal(bytes, expected, PAGE_BYTES);
    return item.status;
}

/* ---- results ---- */

static void every_failure_of_a_get_is_counted_by_its_reason(void **state)
{
    (void)state;
    static const struct {
        long result;
        enum metric metric;
        enum tarn_status status;
    } rows[] = {
        { -704, METRIC_STORE_GET_NOT_FOUND, TARN_MISS },
        { -703, METRIC_STORE_GET_NOT_READY, TARN_MISS },
        { -707, METRIC_STORE_GET_LEASE_EXPIRED, TARN_MISS },
        { -800, METRIC_STORE_GET_TRANSFER, TARN_MISS },
        { -801, METRIC_STORE_GET_CORRUPT, TARN_MISS },
        { -10, METRIC_STORE_GET_LENGTH, TARN_MISS },
        { -600, METRIC_STORE_GET_LENGTH, TARN_MISS },
        { -900, METRIC_STORE_GET_RPC, TARN_IO },
        { -901, METRIC_STORE_GET_RPC, TARN_IO },
        { -1010, METRIC_STORE_GET_RPC, TARN_IO },
        { -12345, METRIC_STORE_GET_OTHER, TARN_MISS },
        { -1, METRIC_STORE_GET_OTHER, TARN_MISS },
    };
    assert_int_equal(put(1), TARN_OK);
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        const int64_t before = metric_get(rows[i].metric);
        fake_set(FAKE_MOONCAKE_GET, rows[i].result);
        assert_int_equal(get(1), rows[i].status);
        assert_int_equal(metric_get(rows[i].metric), before + 1);
    }
    fake_set(FAKE_MOONCAKE_GET, 0);
    assert_int_equal(get(1), TARN_OK);
}

static void every_failure_of_a_put_has_a_status_and_a_reason(void **state)
{
    (void)state;
    static const struct {
        long result;
        enum metric metric;
        enum tarn_status status;
    } rows[] = {
        { -200, METRIC_STORE_PUT_NO_SPACE, TARN_NO_SPACE },
        { -703, METRIC_STORE_PUT_BUSY, TARN_AGAIN },
        { -706, METRIC_STORE_PUT_BUSY, TARN_AGAIN },
        { -800, METRIC_STORE_PUT_TRANSFER, TARN_IO },
        { -900, METRIC_STORE_PUT_RPC, TARN_IO },
        { -901, METRIC_STORE_PUT_RPC, TARN_IO },
        { -600, METRIC_STORE_PUT_OTHER, TARN_IO },
    };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        fake_set(FAKE_MOONCAKE_PUT, rows[i].result);
        assert_int_equal(put(1), rows[i].status);
        assert_int_equal(metric_get(rows[i].metric) > 0, true);
        assert_int_equal(get(1), TARN_MISS);
    }
    fake_set(FAKE_MOONCAKE_PUT, -705); /* another was faster */
    assert_int_equal(put(1), TARN_OK);
}

static void bytes_read_past_the_lease_are_thrown_away(void **state)
{
    (void)state;
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_GET, -707);
    fake_set(FAKE_MOONCAKE_GET_WRITES, 1);
    assert_int_equal(get(1), TARN_MISS);
    assert_int_equal(metric_get(METRIC_STORE_GET_LEASE_EXPIRED), 1);
}

static void a_wrong_length_is_a_miss(void **state)
{
    (void)state;
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_SHORT, 1);
    assert_int_equal(get(1), TARN_MISS);
    assert_int_equal(metric_get(METRIC_STORE_GET_LENGTH), 1);
    fake_set(FAKE_MOONCAKE_SHORT, 0);
    assert_int_equal(get(1), TARN_OK);
}

static void a_get_that_wrote_nothing_is_noticed(void **state)
{
    (void)state;
    assert_int_equal(put(1), TARN_OK);
    assert_int_equal(get(1), TARN_OK); /* its header was in the slot that is used next */
    fake_set(FAKE_MOONCAKE_SILENT, 1);
    assert_int_equal(get(1), TARN_CORRUPT);
}

static void a_bad_object_is_removed_and_can_be_put_again(void **state)
{
    (void)state;
    static const long places[] = {
        1, 9, 17, 30, 45, 50, HEADER_BYTES + 1, HEADER_BYTES + 1000, HEADER_BYTES + PAGE_BYTES
    };
    for (size_t i = 0; i < LENGTH_OF(places); i++) {
        const uint32_t number = (uint32_t)i;
        fake_set(FAKE_MOONCAKE_FLIP, places[i]);
        assert_int_equal(put(number), TARN_OK);
        fake_set(FAKE_MOONCAKE_FLIP, 0);
        assert_int_equal(get(number), TARN_CORRUPT);
        assert_int_equal(get(number), TARN_MISS);
        assert_int_equal(put(number), TARN_OK);
        assert_int_equal(get(number), TARN_OK);
    }
    assert_int_equal(metric_get(METRIC_STORE_GET_CORRUPT), LENGTH_OF(places));
    assert_int_equal(metric_get(METRIC_STORE_REMOVED), LENGTH_OF(places));
}

static void a_bad_object_that_cannot_be_removed_stays_corrupt(void **state)
{
    (void)state;
    fake_set(FAKE_MOONCAKE_FLIP, 100);
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_REMOVE, -900);
    assert_int_equal(get(1), TARN_CORRUPT);
    assert_int_equal(get(1), TARN_CORRUPT);
    assert_int_equal(metric_get(METRIC_STORE_REMOVED), 0);
}

static void a_lost_master_is_told_from_what_is_not_there(void **state)
{
    (void)state;
    const struct store_key key = key_of(1);
    struct store_lease *lease = NULL;
    size_t count = 0;
    bool present = false;
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_EXIST, -900);
    assert_int_equal(store_exists(store, &key, 1, &present), TARN_IO);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_IO);
    assert_int_equal(put(2), TARN_IO);
    assert_int_equal(metric_get(METRIC_STORE_ASK_FAILED), 3);
    fake_set(FAKE_MOONCAKE_EXIST, -1); /* of a standalone client */
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_IO);
    fake_set(FAKE_MOONCAKE_EXIST, -600); /* of one key */
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_MISS);
    fake_set(FAKE_MOONCAKE_EXIST, 0);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_OK);
    store_lease_release(lease);
}

static void removing_respects_leases(void **state)
{
    (void)state;
    const struct store_key key = key_of(1);
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_REMOVE, -706);
    assert_int_equal(store_remove(store, &key), TARN_AGAIN);
    fake_set(FAKE_MOONCAKE_REMOVE, -900);
    assert_int_equal(store_remove(store, &key), TARN_IO);
    fake_set(FAKE_MOONCAKE_REMOVE, 0);
    assert_int_equal(store_remove(store, &key), TARN_OK);
    assert_int_equal(store_remove(store, &key), TARN_MISS);
}

static void *late_get(void *context)
{
    *(enum tarn_status *)context = get(1);
    return NULL;
}

static void others_are_served_while_a_get_hangs(void **state)
{
    (void)state;
    pthread_t thread;
    enum tarn_status status = TARN_INVALID;
    const struct store_key key = key_of(1);
    bool present = false;
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_HOLD, 1);
    assert_int_equal(pthread_create(&thread, NULL, late_get, &status), 0);
    while (fake_count("waiting") == 0)
        ;
    assert_int_equal(store_exists(store, &key, 1, &present), TARN_OK);
    assert_true(present);
    assert_int_equal(put(2), TARN_OK);
    fake_set(FAKE_MOONCAKE_HOLD, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status, TARN_OK);
}

/* What the real library does after 60 s: a get that failed writes when its connection comes about,
 * while the memory holds another page already. Whoever copies that page finds out. */
static void a_transfer_that_was_given_up_and_comes_late_is_noticed(void **state)
{
    (void)state;
    const struct tarn_span span = { memory + HEADER_BYTES, PAGE_BYTES };
    struct store_item first = {
        .key = key_of(1), .spans = &span, .span_count = 1, .has_headroom = true
    };
    struct store_item second = first;
    second.key = key_of(2);
    assert_int_equal(put(1), TARN_OK);
    assert_int_equal(put(2), TARN_OK);
    fake_set(FAKE_MOONCAKE_LATE, MOONCAKE_TRANSFER_FAILED);
    assert_int_equal(store_get(store, &first, 1), TARN_OK);
    assert_int_equal(first.status, TARN_MISS);
    assert_int_equal(metric_get(METRIC_STORE_GET_TRANSFER), 1);
    fake_set(FAKE_MOONCAKE_LATE, 0);
    assert_int_equal(store_get(store, &second, 1), TARN_OK);
    assert_int_equal(second.status, TARN_OK);
    assert_true(store_traits(store)->writes_late);
    assert_true(store_holds(store, &second));
    fake_set(FAKE_MOONCAKE_LAND, 1);
    assert_false(store_holds(store, &second));
    expect_said("a transfer that was given up came late");
}

static void a_child_after_fork_has_no_store(void **state)
{
    (void)state;
    int status = -1;
    assert_int_equal(put(1), TARN_OK);
    const pid_t child = fork();
    if (child == 0) {
        const struct store_key key = key_of(1);
        bool present = true;
        struct store_item item = { .key = key };
        const bool is_dead = store_exists(store, &key, 1, &present) == TARN_INVALID &&
                             store_get(store, &item, 1) == TARN_INVALID &&
                             store_put(store, &item, 1) == TARN_INVALID;
        store_close(store);
        _exit(is_dead ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(get(1), TARN_OK);
}

/* ---- opening ---- */

static void expect_no_pool(enum fake_mooncake_knob knob, long value, enum tarn_status status,
                           const char *said)
{
    const struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
    struct store *other = NULL;
    lines[0] = '\0';
    fake_set(knob, value);
    assert_int_equal(mooncake_open(&options, &other), status);
    fake_set(knob, 0);
    expect_said(said);
    assert_int_equal(fake_count("handles"), 1); /* the case's own */
}

static void each_step_of_the_canary_is_named_when_it_fails(void **state)
{
    (void)state;
    expect_no_pool(FAKE_MOONCAKE_CREATE, 1, TARN_UNSUPPORTED, "the test wants none");
    expect_no_pool(FAKE_MOONCAKE_SETUP, -1, TARN_IO, "setup of the client failed");
    expect_no_pool(FAKE_MOONCAKE_HEALTH, 2, TARN_IO, "the master cannot be reached");
    expect_no_pool(FAKE_MOONCAKE_HEALTH, 1, TARN_IO, "not initialised");
    expect_no_pool(FAKE_MOONCAKE_REGISTER, -600, TARN_IO, "cannot be registered");
    expect_no_pool(FAKE_MOONCAKE_EXIST, -901, TARN_IO, "`exists before put`");
    expect_no_pool(FAKE_MOONCAKE_PUT, -800, TARN_IO, "`put`");
    expect_no_pool(FAKE_MOONCAKE_GET, -707, TARN_IO, "`get`");
    expect_no_pool(FAKE_MOONCAKE_SHORT, 1, TARN_IO, "`get`");
    expect_no_pool(FAKE_MOONCAKE_FLIP, 200, TARN_IO, "`compare`");
    expect_no_pool(FAKE_MOONCAKE_REMOVE, -706, TARN_IO, "`remove`");
}

static void other_versions_are_found_by_the_canary_at_once(void **state)
{
    (void)state;
    const uint64_t start_ns = clock_now_ns();
    expect_no_pool(FAKE_MOONCAKE_PUT, -900, TARN_UNSUPPORTED, "different versions");
    assert_true(clock_now_ns() - start_ns < 10 * NS_PER_S);
    expect_said("0.0-fake");
    expect_said("`put`");
}

static void a_pool_without_space_is_waited_for_and_then_used(void **state)
{
    (void)state;
    const struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
    struct store *other = NULL;
    const uint64_t start_ns = clock_now_ns();
    fake_set(FAKE_MOONCAKE_PUT, -200);
    assert_int_equal(mooncake_open(&options, &other), TARN_OK);
    assert_true(clock_now_ns() - start_ns >= options.master_timeout_ms / 2 * NS_PER_MS);
    expect_said("no space for 200 ms");
    store_close(other);
}

/* Another thread's host is noticed to be gone. */
static void *notice(void *context)
{
    (void)context;
    const struct timespec pause = { .tv_nsec = 150 * (long)NS_PER_MS };
    (void)nanosleep(&pause, NULL);
    fake_set(FAKE_MOONCAKE_PUT, 0);
    fake_set(FAKE_MOONCAKE_GET, 0);
    return NULL;
}

static void memory_of_a_lost_host_is_waited_for_until_the_master_has_noticed(void **state)
{
    (void)state;
    /* The last two: it leaves between two steps. */
    const struct {
        enum fake_mooncake_knob knob;
        long result;
        bool is_consumer;
    } rows[] = { { FAKE_MOONCAKE_PUT, -800, false },
                 { FAKE_MOONCAKE_GET, -800, true },
                 { FAKE_MOONCAKE_PUT, -704, false },
                 { FAKE_MOONCAKE_GET, -800, false } };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
        struct store *other = NULL;
        pthread_t thread;
        options.is_consumer = rows[i].is_consumer;
        options.master_timeout_ms = 60000;
        lines[0] = '\0';
        fake_set(rows[i].knob, rows[i].result);
        assert_int_equal(pthread_create(&thread, NULL, notice, NULL), 0);
        assert_int_equal(mooncake_open(&options, &other), TARN_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
        expect_said("waiting until the master has noticed");
        store_close(other);
    }
}

static void a_setup_that_times_out_is_tried_again(void **state)
{
    (void)state;
    const struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
    struct store *other = NULL;
    fake_set(FAKE_MOONCAKE_SETUP_LATE, 2);
    assert_int_equal(mooncake_open(&options, &other), TARN_OK);
    expect_said("setting the client up again");
    store_close(other);
    expect_no_pool(FAKE_MOONCAKE_SETUP_LATE, 3, TARN_IO, "setup of the client failed");
}

static void a_consumer_puts_nothing(void **state)
{
    (void)state;
    struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
    struct store *other = NULL;
    options.is_consumer = true;
    fake_set(FAKE_MOONCAKE_PUT, -900);
    assert_int_equal(mooncake_open(&options, &other), TARN_OK);
    store_close(other);
    fake_set(FAKE_MOONCAKE_GET, -800); /* of the object that the case's own opening left */
    assert_int_equal(mooncake_open(&options, &other), TARN_IO);
    expect_said("`get`");
    fake_set(FAKE_MOONCAKE_GET, -900);
    assert_int_equal(mooncake_open(&options, &other), TARN_UNSUPPORTED);
    expect_said("different versions");
}

static void functions_that_are_missing_are_named(void **state)
{
    (void)state;
    struct provider provider;
    assert_int_equal(provider_open(getenv("TARN_FAKE_MOONCAKE_BROKEN"), NULL, &provider),
                     TARN_UNSUPPORTED);
    expect_said("mooncake_store_register_buffer");
    expect_said("0.3.10.post2");
    assert_int_equal(provider_open("/nowhere/libmooncake_store.so", NULL, &provider),
                     TARN_UNSUPPORTED);
    expect_said("/nowhere/libmooncake_store.so");
}

static void a_provider_is_named_by_the_option_and_then_by_the_environment(void **state)
{
    (void)state;
    struct provider provider;
    (void)setenv("MOONCAKE_STORE_LIBRARY", getenv("TARN_FAKE_MOONCAKE_STAGED"), 1);
    assert_int_equal(provider_open("", NULL, &provider), TARN_OK);
    assert_string_equal(provider.path, getenv("TARN_FAKE_MOONCAKE_STAGED"));
    assert_null(provider.functions.batch_put_from_multi_buffers);
    assert_int_equal(provider_open(getenv("TARN_FAKE_MOONCAKE"), NULL, &provider), TARN_OK);
    assert_string_equal(provider.path, getenv("TARN_FAKE_MOONCAKE"));
    assert_non_null(provider.functions.batch_put_from_multi_buffers);
    (void)unsetenv("MOONCAKE_STORE_LIBRARY");
}

static void a_tenant_needs_a_provider_that_knows_tenants(void **state)
{
    (void)state;
    struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE_STAGED");
    struct store *other = NULL;
    (void)snprintf(options.tenant_id, sizeof(options.tenant_id), "acme");
    assert_int_equal(mooncake_open(&options, &other), TARN_UNSUPPORTED);
    expect_said("tenant_id is 'acme'");
}

/* ---- a standalone client ---- */

enum { STANDALONE_BUFFER = 8 << 20, AREA = STANDALONE_BUFFER / CLIENT_AREAS };

static struct store *embedded; /* the case's own, meanwhile */

static int standalone_begin(void **state)
{
    struct mooncake_options options = fake_standalone_options("TARN_FAKE_MOONCAKE");
    options.local_buffer_bytes = STANDALONE_BUFFER;
    if (case_begin(state) != 0)
        return -1;
    embedded = store;
    return mooncake_open(&options, &store) == TARN_OK &&
                   store_namespace(store, space_text, &space) == TARN_OK
               ? 0
               : -1;
}

static int standalone_end(void **state)
{
    knobs_clear();
    store_close(store);
    store = embedded;
    return case_end(state);
}

static void a_standalone_client_that_cannot_be_had_is_refused(void **state)
{
    (void)state;
    struct mooncake_options options = fake_standalone_options("TARN_FAKE_MOONCAKE_STAGED");
    struct store *other = NULL;
    assert_int_equal(mooncake_open(&options, &other), TARN_UNSUPPORTED);
    expect_said("cannot attach to a mooncake_client");
    options = fake_standalone_options("TARN_FAKE_MOONCAKE");
    options.local_buffer_bytes = 20000;
    assert_int_equal(mooncake_open(&options, &other), TARN_INVALID);
    expect_said("local_buffer_size of 20000 bytes is too small");
    (void)snprintf(options.tenant_id, sizeof(options.tenant_id), "acme");
    assert_int_equal(mooncake_open(&options, &other), TARN_UNSUPPORTED);
    expect_said("the tenant is that of the mooncake_client");
    options = fake_standalone_options("TARN_FAKE_MOONCAKE");
    fake_set(FAKE_MOONCAKE_SETUP, -1);
    assert_int_equal(mooncake_open(&options, &other), TARN_IO);
    expect_said("attaching to the mooncake_client at 127.0.0.1:50052 failed");
}

/* Its process may write to shared memory long after a call was given up. */
static void what_is_written_late_into_shared_memory_is_never_taken_for_a_page(void **state)
{
    (void)state;
    uint32_t good_count = 0;
    uint32_t corrupt_count = 0;
    const uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while ((good_count < 50 || corrupt_count < 50) && clock_now_ns() < deadline_ns) {
        fake_set(FAKE_MOONCAKE_SCRIBBLE, 0);
        assert_int_equal(put(1), TARN_OK);
        assert_int_equal(get(1), TARN_OK);
        fake_set(FAKE_MOONCAKE_SCRIBBLE, 1);
        enum tarn_status status = TARN_OK;
        for (int i = 0; i < 200 && status == TARN_OK; i++) {
            status = get(1); /* compares */
            good_count += status == TARN_OK;
        }
        assert_true(status == TARN_OK || status == TARN_CORRUPT);
        corrupt_count += status == TARN_CORRUPT;
    }
    print_message("# %u gets good, %u found changed\n", good_count, corrupt_count);
    assert_true(good_count >= 50 && corrupt_count >= 50);
}

static void memory_that_a_standalone_client_forgot_is_replaced(void **state)
{
    (void)state;
    assert_int_equal(put(1), TARN_OK);
    fake_set(FAKE_MOONCAKE_FORGET, 1);
    assert_int_equal(get(1), TARN_OK);
    expect_said("has forgotten this process's memory");
    assert_int_equal(put(2), TARN_OK);
    assert_int_equal(get(2), TARN_OK);
    assert_int_equal(metric_get(METRIC_STORE_GET_LENGTH), 0);
}

static void an_object_larger_than_an_area_is_declined(void **state)
{
    (void)state;
    static uint8_t bytes[AREA];
    const struct tarn_span largest = { bytes, AREA - HEADER_BYTES };
    const struct tarn_span larger = { bytes, AREA - HEADER_BYTES + 1 };
    struct store_item items[] = {
        { .key = key_of(1), .spans = &larger, .span_count = 1 },
        { .key = key_of(2), .spans = &largest, .span_count = 1 },
        { .key = key_of(3), .spans = &largest, .span_count = 1 },
    };
    assert_int_equal(store_put(store, items, LENGTH_OF(items)), TARN_OK);
    assert_int_equal(items[0].status, TARN_NO_SPACE);
    assert_int_equal(items[1].status, TARN_OK);
    assert_int_equal(items[2].status, TARN_OK);
    assert_int_equal(metric_get(METRIC_STORE_PUT_NO_SPACE), 1);
    expect_said("raise local_buffer_size");
    assert_int_equal(store_get(store, items, LENGTH_OF(items)), TARN_OK);
    assert_int_equal(items[0].status, TARN_MISS);
    assert_int_equal(items[1].status, TARN_OK);
    assert_int_equal(items[2].status, TARN_OK);
    assert_int_equal(metric_get(METRIC_STORE_GET_OTHER), 1);
}

static enum tarn_status open_and_close(void)
{
    const struct mooncake_options options = fake_pool_options("TARN_FAKE_MOONCAKE");
    struct store *other = NULL;
    struct store_lease *lease = NULL;
    uint32_t index = 0;
    size_t count;
    TRY(mooncake_open(&options, &other));
    enum tarn_status status = store_namespace(other, space_text, &index);
    struct store_key key = key_of(1);
    key.namespace_index = index;
    if (status == TARN_OK)
        status = store_lookup(other, &key, 1, &lease, &count);
    store_lease_release(lease);
    store_close(other);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(put(1), TARN_OK);
    assert_true(fault_sweep(open_and_close) > 4);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, case_begin, case_end)
#define STANDALONE(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, standalone_begin, standalone_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_failure_of_a_get_is_counted_by_its_reason),
        CASE(every_failure_of_a_put_has_a_status_and_a_reason),
        CASE(bytes_read_past_the_lease_are_thrown_away),
        CASE(a_wrong_length_is_a_miss),
        CASE(a_get_that_wrote_nothing_is_noticed),
        CASE(a_bad_object_is_removed_and_can_be_put_again),
        CASE(a_bad_object_that_cannot_be_removed_stays_corrupt),
        CASE(a_lost_master_is_told_from_what_is_not_there),
        CASE(removing_respects_leases),
        CASE(others_are_served_while_a_get_hangs),
        CASE(a_transfer_that_was_given_up_and_comes_late_is_noticed),
        CASE(a_child_after_fork_has_no_store),
        CASE(each_step_of_the_canary_is_named_when_it_fails),
        CASE(other_versions_are_found_by_the_canary_at_once),
        CASE(a_pool_without_space_is_waited_for_and_then_used),
        CASE(memory_of_a_lost_host_is_waited_for_until_the_master_has_noticed),
        CASE(a_setup_that_times_out_is_tried_again),
        CASE(a_consumer_puts_nothing),
        CASE(functions_that_are_missing_are_named),
        CASE(a_provider_is_named_by_the_option_and_then_by_the_environment),
        CASE(a_tenant_needs_a_provider_that_knows_tenants),
        CASE(a_standalone_client_that_cannot_be_had_is_refused),
        STANDALONE(what_is_written_late_into_shared_memory_is_never_taken_for_a_page),
        STANDALONE(memory_that_a_standalone_client_forgot_is_replaced),
        STANDALONE(an_object_larger_than_an_area_is_declined),
        STANDALONE(a_child_after_fork_has_no_store),
        STANDALONE(a_lost_master_is_told_from_what_is_not_there),
        CASE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("mooncake", tests, fake_find, NULL);
}
