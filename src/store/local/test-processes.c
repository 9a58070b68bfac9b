/* SPDX-License-Identifier: Apache-2.0 */
/* Real processes on one real pool: killed, stopped, too many. The program runs itself as a child:
 * test-processes --child WORK PATH SEED. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/clock.h"
#include "store/local/inspect.h"

enum {
    POOL_BYTES = 96 << 20,
    PAGE_BYTES_MAX = 3 << 20,
    KEYS = 400,
    RUN = 8, /* keys of one lookup */
    KILLS_SHORT = 20,
    KILLS_LONG = 200,
    EXIT_WRONG_BYTES = 3,
    EXIT_FAILED = 4,
};

static char work[] = "work"; /* what a child is to do */
static char hold[] = "hold";
static char directory[64];
static char pool_path[96];

static bool is_long(void)
{
    const char *text = getenv("TARN_TEST_LONG"); // NOLINT(concurrency-mt-unsafe): one thread
    return text && strcmp(text, "1") == 0;
}

/* ---- keys and their bytes ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 33) * UINT64_C(0xff51afd7ed558ccd);
    value = (value ^ value >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return value ^ value >> 33;
}

static uint32_t next(uint64_t *random, uint32_t limit)
{
    *random = mix(*random + 1);
    return (uint32_t)((*random >> 32) * limit >> 32);
}

static size_t key_bytes(uint32_t number)
{
    static const size_t sizes[] = { 100000, 100000, 100000, 524288, 524288, 3000000 };
    return sizes[number % LENGTH_OF(sizes)];
}

static struct store_key key_of(uint32_t space, uint32_t number)
{
    struct store_key key = { .namespace_index = space, .depth = number };
    const uint64_t words[2] = { mix(number + UINT64_C(1)), mix(number + UINT64_C(77777)) };
    memcpy(key.digest.bytes, words, sizeof(words));
    return key;
}

static void page_fill(uint32_t number, uint64_t *words)
{
    for (size_t i = 0; i < key_bytes(number) / sizeof(*words) + 1; i++)
        words[i] = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xff51afd7ed558ccd);
}

/* One worker's memory. */
struct worker {
    struct store *store;
    uint32_t space;
    uint64_t random;
    uint64_t *words;    /* PAGE_BYTES_MAX, and a word */
    uint64_t *expected; /* likewise */
    uint64_t hit_count;
    _Atomic bool is_stopping;
};

static enum tarn_status worker_put(struct worker *worker, uint32_t number)
{
    page_fill(number, worker->words);
    const struct tarn_span span = { worker->words, key_bytes(number) };
    struct store_item item = { .key = key_of(worker->space, number),
                               .spans = &span,
                               .span_count = 1 };
    TRY(store_put(worker->store, &item, 1));
    return item.status;
}

/* Get; false if other bytes came back than were put. */
static bool worker_get(struct worker *worker, uint32_t number)
{
    const struct tarn_span span = { worker->words, key_bytes(number) };
    struct store_item item = { .key = key_of(worker->space, number),
                               .spans = &span,
                               .span_count = 1 };
    if (store_get(worker->store, &item, 1) != TARN_OK || item.status == TARN_CORRUPT)
        return false; /* nothing here damages pages */
    if (item.status != TARN_OK)
        return true;
    worker->hit_count++;
    page_fill(number, worker->expected);
    return memcmp(worker->words, worker->expected, key_bytes(number)) == 0;
}

/* Look a run up and read it under its lease. */
static bool worker_lease(struct worker *worker, uint32_t first)
{
    struct store_key keys[RUN];
    struct store_lease *lease = NULL;
    size_t count = 0;
    for (uint32_t i = 0; i < RUN; i++)
        keys[i] = key_of(worker->space, (first + i) % KEYS);
    if (store_lookup(worker->store, keys, RUN, &lease, &count) != TARN_OK)
        return true;
    bool is_good = true;
    for (uint32_t i = 0; i < count && is_good; i++)
        is_good = worker_get(worker, (first + i) % KEYS);
    store_lease_release(lease);
    return is_good;
}

static bool worker_act(struct worker *worker)
{
    const uint32_t number = next(&worker->random, KEYS);
    switch (next(&worker->random, 4)) {
    case 0:
        return worker_get(worker, number);
    case 1:
        return worker_lease(worker, number);
    default: {
        const enum tarn_status status = worker_put(worker, number);
        return status == TARN_OK || status == TARN_NO_SPACE || status == TARN_AGAIN;
    }
    }
}

static bool worker_init(struct worker *worker, struct store *store, uint64_t seed)
{
    worker->store = store;
    worker->random = seed;
    worker->hit_count = 0;
    atomic_store(&worker->is_stopping, false);
    worker->words = mem_alloc(PAGE_BYTES_MAX + 8, 1);
    worker->expected = mem_alloc(PAGE_BYTES_MAX + 8, 1);
    return worker->words && worker->expected &&
           store_namespace(store, "tarn/processes", &worker->space) == TARN_OK;
}

static void worker_deinit(struct worker *worker)
{
    mem_free(worker->words);
    mem_free(worker->expected);
}

static enum tarn_status pool_get(struct store **out_store)
{
    const struct pool_options options = { .path = pool_path, .size_bytes = POOL_BYTES };
    return pool_open(&options, out_store);
}

/* ---- the child ---- */

static void *large_puts(void *context)
{
    struct worker *worker = context;
    while (!atomic_load(&worker->is_stopping)) /* most of the time it is inside pwrite */
        (void)(worker_put(worker, next(&worker->random, KEYS) / 6 * 6 + 5) == TARN_OK);
    return NULL;
}

/* Open, say so, and work until killed or until standard input ends. */
static int child_work(struct store *store, uint64_t seed)
{
    static struct worker first;
    static struct worker second;
    pthread_t thread;
    if (!worker_init(&first, store, seed) || !worker_init(&second, store, ~seed) ||
        pthread_create(&thread, NULL, large_puts, &second) != 0)
        return EXIT_FAILED;
    (void)fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) != 0) {
        if (!worker_act(&first))
            return EXIT_WRONG_BYTES;
    }
    _exit(first.hit_count > 0
              ? 0
              : EXIT_FAILED); /* the other thread is still at it: as good as a kill */
}

/* Hold a lease on the first run there is until standard input ends. */
static int child_hold(struct store *store)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    store_close(store);
    return 0;
}

static int child_main(const char *duty, const char *path, uint64_t seed)
{
    struct store *store = NULL;
    (void)snprintf(pool_path, sizeof(pool_path), "%s", path);
    log_set_level(LOG_ERROR);
    if (pool_get(&store) != TARN_OK || write(STDOUT_FILENO, "r", 1) != 1)
        return EXIT_FAILED;
    return strcmp(duty, hold) == 0 ? child_hold(store) : child_work(store, seed);
}

/* ---- the parent ---- */

struct child {
    pid_t pid;
    int input; /* the child ends when it is closed */
    int ready; /* a byte comes when it has joined */
};

static struct child child_start(char *duty, uint64_t seed)
{
    int input[2];
    int output[2];
    char seed_text[32];
    char program[] = "test-processes";
    char option[] = "--child";
    char *arguments[] = { program, option, duty, pool_path, seed_text, NULL };
    struct child child = { 0 };
    posix_spawn_file_actions_t actions;
    (void)snprintf(seed_text, sizeof(seed_text), "%llu", (unsigned long long)seed);
    assert_int_equal(pipe2(input, O_CLOEXEC), 0);
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn(&child.pid, "/proc/self/exe", &actions, NULL, arguments, environ),
                     0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(input[0]);
    (void)close(output[1]);
    child.input = input[1];
    child.ready = output[0];
    return child;
}

static void child_await(const struct child *child)
{
    char byte;
    assert_int_equal(read(child->ready, &byte, 1), 1);
}

static int child_end(struct child *child, int signal)
{
    int result = -1;
    if (signal)
        assert_int_equal(kill(child->pid, signal), 0);
    (void)close(child->input);
    assert_int_equal(waitpid(child->pid, &result, 0), child->pid);
    (void)close(child->ready);
    return result;
}

static int directory_make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/dev/shm/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(pool_path, sizeof(pool_path), "%s/p.pool", directory);
    return 0;
}

static int directory_remove(void **state)
{
    (void)state;
    (void)unlink(pool_path);
    return rmdir(directory);
}

/* The pool is valid to the last byte, and nothing is held by the dead. */
static void assert_whole(struct worker *worker)
{
    struct inspection *inspection = NULL;
    struct text text;
    const uint64_t start_ns = clock_now_ns();
    text_init(&text, 1 << 16);
    /* The dead are looked for once a second, by whoever puts. */
    while (clock_now_ns() - start_ns < 1100 * NS_PER_MS)
        assert_int_equal(worker_put(worker, next(&worker->random, KEYS)), TARN_OK);
    assert_int_equal(inspection_open(pool_path, &inspection), TARN_OK);
    inspection_refresh(inspection, true);
    assert_int_equal(inspection_print_stat(inspection, &text), TARN_OK);
    if (!inspection_is_sound(inspection) || !strstr(text_chars(&text), "left        0 slots") ||
        !strstr(text_chars(&text), " 0 reserved,") ||
        !strstr(text_chars(&text), " 0 quarantined; 0 leased"))
        fail_msg("%s", text_chars(&text));
    inspection_close(inspection);
    text_deinit(&text);
}

static void killed_at_random_moments_they_leave_a_valid_pool(void **state)
{
    (void)state;
    struct store *store = NULL;
    struct worker worker;
    assert_int_equal(pool_get(&store), TARN_OK);
    assert_true(worker_init(&worker, store, 1));
    struct child witness = child_start(work, 999); /* lives through it all */
    const uint32_t kill_count = is_long() ? KILLS_LONG : KILLS_SHORT;
    for (uint32_t i = 0; i < kill_count; i++) {
        struct child child = child_start(work, i + 1);
        if (i % 4 != 0)
            child_await(&child); /* the others may die while they open the pool */
        const uint64_t life_ns = next(&worker.random, 30) * NS_PER_MS;
        const uint64_t start_ns = clock_now_ns();
        while (clock_now_ns() - start_ns < life_ns)
            assert_true(worker_act(&worker));
        const int result = child_end(&child, SIGKILL);
        assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
        assert_true(worker_act(&worker));
    }
    assert_int_equal(child_end(&witness, 0), 0);
    assert_true(worker.hit_count > 0);
    assert_whole(&worker);
    worker_deinit(&worker);
    store_close(store);
}

static void a_stopped_process_stops_nobody(void **state)
{
    (void)state;
    struct store *store = NULL;
    struct worker worker;
    assert_int_equal(pool_get(&store), TARN_OK);
    assert_true(worker_init(&worker, store, 2));
    struct child child = child_start(work, 7);
    child_await(&child);
    const uint64_t stop_ns = (is_long() ? 5000 : 300) * NS_PER_MS;
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t j = 0; j < 50; j++)
            assert_true(worker_act(&worker));
        assert_int_equal(kill(child.pid, SIGSTOP), 0);
        const uint64_t start_ns = clock_now_ns();
        uint32_t acts = 0;
        while (clock_now_ns() - start_ns < stop_ns / 5 || acts < 50) {
            assert_true(worker_act(&worker));
            acts++;
        }
        assert_int_equal(kill(child.pid, SIGCONT), 0);
    }
    assert_int_equal(child_end(&child, 0), 0);
    assert_whole(&worker);
    worker_deinit(&worker);
    store_close(store);
}

static void a_65th_process_is_refused_and_a_freed_place_is_taken(void **state)
{
    (void)state;
    enum { PLACES = 64 };
    static struct child children[PLACES];
    struct store *store = NULL;
    for (uint32_t i = 0; i < PLACES; i++) {
        children[i] = child_start(hold, 0);
        child_await(&children[i]);
    }
    assert_int_equal(pool_get(&store), TARN_UNSUPPORTED);
    const int result = child_end(&children[10], SIGKILL);
    assert_true(WIFSIGNALED(result));
    assert_int_equal(pool_get(&store), TARN_OK);
    store_close(store);
    for (uint32_t i = 0; i < PLACES; i++) {
        if (i != 10)
            assert_int_equal(child_end(&children[i], 0), 0);
    }
}

static void threads_of_one_process_share_a_store(void **state)
{
    (void)state;
    /* One puts, one gets, one looks up: as the connector's threads do. */
    enum { THREADS = 3, ACTS = 300 };
    struct store *store = NULL;
    assert_int_equal(pool_get(&store), TARN_OK);
    struct child child = child_start(work, 3);
    child_await(&child);
    static struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        assert_true(worker_init(&workers[i], store, i + 10));
    pthread_t putter;
    assert_int_equal(pthread_create(&putter, NULL, large_puts, &workers[0]), 0);
    for (uint32_t i = 0; i < ACTS; i++) {
        assert_true(worker_act(&workers[1]));
        assert_true(worker_lease(&workers[2], i));
    }
    atomic_store(&workers[0].is_stopping, true);
    assert_int_equal(pthread_join(putter, NULL), 0);
    (void)child_end(&child, SIGKILL);
    assert_whole(&workers[1]);
    for (uint32_t i = 0; i < THREADS; i++)
        worker_deinit(&workers[i]);
    store_close(store);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--child") == 0)
        return child_main(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_at_random_moments_they_leave_a_valid_pool,
                                        directory_make, directory_remove),
        cmocka_unit_test_setup_teardown(a_stopped_process_stops_nobody, directory_make,
                                        directory_remove),
        cmocka_unit_test_setup_teardown(a_65th_process_is_refused_and_a_freed_place_is_taken,
                                        directory_make, directory_remove),
        cmocka_unit_test_setup_teardown(threads_of_one_process_share_a_store, directory_make,
                                        directory_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
