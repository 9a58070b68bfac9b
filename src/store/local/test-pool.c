/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/guard.h"
#include "store/local/inspect.h"
#include "store/local/join.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "lib/fault.h"
#include "obs/metric.h"

enum { PAGE_BYTES = 100000, POOL_MIB = 64 };

static char directory[64];
static char pool_path[96];
static char last_line[1024];

static void line_keep(void *context, enum log_level level, const char *line)
{
    (void)context;
    if (level <= LOG_WARN)
        (void)snprintf(last_line, sizeof(last_line), "%s", line);
}

static int directory_make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/dev/shm/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(pool_path, sizeof(pool_path), "%s/a.pool", directory);
    last_line[0] = '\0';
    log_set_sink(line_keep, NULL);
    return 0;
}

static int directory_remove(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    (void)unlink(pool_path);
    return rmdir(directory);
}

static struct store *pool_with(uint64_t mib, bool is_read_only)
{
    const struct pool_options options = { .path = pool_path,
                                          .size_bytes = mib << 20,
                                          .is_read_only = is_read_only };
    struct store *store = NULL;
    assert_int_equal(pool_open(&options, &store), TARN_OK);
    return store;
}

static struct store_key key_of(uint32_t namespace_index, uint32_t number)
{
    struct store_key key = { .namespace_index = namespace_index, .depth = number };
    const uint64_t words[2] = { (number + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15), number };
    memcpy(key.digest.bytes, words, sizeof(words));
    return key;
}

static void page_make(uint8_t *bytes, size_t size_bytes, uint32_t number)
{
    uint64_t value = number * UINT64_C(2654435761) + 1;
    for (size_t i = 0; i < size_bytes; i += sizeof(value)) {
        value = value * UINT64_C(6364136223846793005) + 1442695040888963407;
        memcpy(bytes + i, &value, size_bytes - i < sizeof(value) ? size_bytes - i : sizeof(value));
    }
}

/* A clock for the pool that the test sets. */
static uint64_t clock_ns = UINT64_C(1000000000);

static uint64_t clock_read(void *context)
{
    (void)context;
    return clock_ns;
}

static uint8_t page_bytes[PAGE_BYTES];
static uint8_t read_bytes[PAGE_BYTES];

static enum tarn_status put_sized(struct store *store, struct store_key key, size_t size_bytes,
                                  bool *out_was_present)
{
    const struct tarn_span span = { page_bytes, size_bytes };
    struct store_item item = { .key = key, .spans = &span, .span_count = 1 };
    page_make(page_bytes, size_bytes, key.depth);
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    if (out_was_present)
        *out_was_present = item.was_present;
    return item.status;
}

static enum tarn_status put(struct store *store, struct store_key key)
{
    return put_sized(store, key, PAGE_BYTES, NULL);
}

/* Get into two spans, and check every byte. */
static enum tarn_status get(struct store *store, struct store_key key)
{
    const struct tarn_span spans[] = { { read_bytes, 1000 },
                                       { read_bytes + 1000, PAGE_BYTES - 1000 } };
    struct store_item item = { .key = key, .spans = spans, .span_count = 2 };
    assert_int_equal(store_get(store, &item, 1), TARN_OK);
    if (item.status == TARN_OK) {
        page_make(page_bytes, PAGE_BYTES, key.depth);
        assert_memory_equal(read_bytes, page_bytes, PAGE_BYTES);
    }
    return item.status;
}

static uint32_t name(struct store *store, const char *text)
{
    uint32_t index = UINT32_MAX;
    assert_int_equal(store_namespace(store, text, &index), TARN_OK);
    return index;
}

static void a_page_comes_back_as_it_was_put(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "tarn/m/x");
    bool was_present = true;
    assert_int_equal(get(store, key_of(space, 1)), TARN_MISS);
    assert_int_equal(put_sized(store, key_of(space, 1), PAGE_BYTES, &was_present), TARN_OK);
    assert_false(was_present);
    assert_int_equal(get(store, key_of(space, 1)), TARN_OK);
    assert_int_equal(put_sized(store, key_of(space, 1), PAGE_BYTES, &was_present), TARN_OK);
    assert_true(was_present);
    store_close(store);
}

static void a_page_outlives_the_process_that_put_it(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    assert_int_equal(put(store, key_of(name(store, "n"), 1)), TARN_OK);
    store_close(store);
    store = pool_with(POOL_MIB, false);
    assert_int_equal(get(store, key_of(name(store, "n"), 1)), TARN_OK);
    store_close(store);
}

static void namespaces_do_not_mix(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t first = name(store, "tarn/adapter-a");
    const uint32_t second = name(store, "tarn/adapter-b");
    assert_int_not_equal(first, second);
    assert_int_equal(name(store, "tarn/adapter-a"), first);
    assert_int_equal(put(store, key_of(first, 7)), TARN_OK);
    assert_int_equal(get(store, key_of(second, 7)), TARN_MISS);
    assert_int_equal(get(store, key_of(first, 7)), TARN_OK);
    store_close(store);
}

static void another_length_is_a_miss(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "n");
    assert_int_equal(put_sized(store, key_of(space, 1), PAGE_BYTES - 1, NULL), TARN_OK);
    assert_int_equal(get(store, key_of(space, 1)), TARN_MISS);
    store_close(store);
}

static void senseless_sizes_and_names_are_refused(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "n");
    static char text[STORE_NAMESPACE_BYTES_MAX + 2];
    uint32_t index;
    assert_int_equal(put_sized(store, key_of(space, 1), 0, NULL), TARN_NO_SPACE);
    const struct tarn_span span = { page_bytes, UINT64_C(1) << 40 };
    struct store_item item = { .key = key_of(space, 2), .spans = &span, .span_count = 1 };
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    assert_int_equal(item.status, TARN_NO_SPACE);
    item.key.namespace_index = 99;
    assert_int_equal(store_put(store, &item, 1), TARN_OK);
    assert_int_equal(item.status, TARN_INVALID);
    assert_int_equal(store_namespace(store, "", &index), TARN_INVALID);
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(store_namespace(store, text, &index), TARN_INVALID);
    text[STORE_NAMESPACE_BYTES_MAX] = '\0';
    assert_int_equal(store_namespace(store, text, &index), TARN_OK);
    store_close(store);
}

static void a_lease_covers_the_leading_run_and_keeps_it(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    pool_behind(store)->view.env.now_ns = clock_read;
    const uint32_t space = name(store, "n");
    struct store_key keys[200];
    for (uint32_t i = 0; i < LENGTH_OF(keys); i++) {
        keys[i] = key_of(space, i);
        if (i != 150)
            assert_int_equal(put(store, keys[i]), TARN_OK);
    }
    struct store_lease *lease = NULL;
    size_t count = 0;
    assert_int_equal(store_lookup(store, keys, 200, &lease, &count), TARN_OK);
    assert_int_equal(count, 150);
    assert_int_equal(metric_get(METRIC_LEASES), 1);
    /* More than twice what the pool holds: everything but the leased run goes. */
    for (uint32_t i = 1000; i < 2400; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(get(store, keys[i]), TARN_OK);
    assert_int_equal(store_remove(store, &keys[3]), TARN_AGAIN);
    store_lease_release(lease);
    assert_int_equal(metric_get(METRIC_LEASES), 0);
    assert_int_equal(store_remove(store, &keys[3]), TARN_OK);
    assert_int_equal(store_remove(store, &keys[3]), TARN_MISS);
    assert_int_equal(store_lookup(store, &keys[3], 1, &lease, &count), TARN_MISS);
    store_close(store);
}

static void a_lease_older_than_ten_seconds_protects_nothing_and_breaks_nothing(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const struct store_key key = key_of(name(store, "n"), 1);
    struct store_lease *lease = NULL;
    struct store_lease *younger = NULL;
    size_t count;
    pool_behind(store)->view.env.now_ns = clock_read;
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_OK);
    clock_ns += UINT64_C(9999999999);
    assert_int_equal(store_remove(store, &key), TARN_AGAIN);
    clock_ns += 1;
    assert_int_equal(store_remove(store, &key), TARN_OK);
    assert_int_equal(get(store, key), TARN_MISS);
    /* The slot is used again, and the old lease's end does not take the new one's pin away. */
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(store_lookup(store, &key, 1, &younger, &count), TARN_OK);
    store_lease_release(lease);
    assert_int_equal(store_remove(store, &key), TARN_AGAIN);
    store_lease_release(younger);
    assert_int_equal(store_remove(store, &key), TARN_OK);
    store_close(store);
}

static void a_full_pool_evicts_the_longest_unused(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "n");
    for (uint32_t i = 0; i < 5000; i++) {
        const struct store_key hot = key_of(space, 0);
        struct store_lease *lease = NULL;
        size_t count;
        bool present = false;
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
        assert_int_equal(store_exists(store, &hot, 1, &present), TARN_OK);
        assert_true(present);
        if (i % 16 == 0) {
            assert_int_equal(store_lookup(store, &hot, 1, &lease, &count), TARN_OK);
            store_lease_release(lease);
        }
    }
    struct store_stat stat;
    store_stat(store, &stat);
    assert_true(stat.used_bytes > 0 && stat.used_bytes <= stat.capacity_bytes);
    /* the newest are there, and nearly all of them */
    uint32_t present_count = 0;
    for (uint32_t i = 4800; i < 5000; i++)
        present_count += get(store, key_of(space, i)) == TARN_OK;
    assert_true(present_count > 180);
    store_close(store);
}

static void the_file_never_exceeds_its_size(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "n");
    for (uint32_t i = 0; i < 1500; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
    struct stat file;
    assert_int_equal(stat(pool_path, &file), 0);
    assert_true(file.st_size <= (off_t)POOL_MIB << 20);
    assert_true((uint64_t)file.st_blocks * 512 <= (uint64_t)POOL_MIB << 20);
    assert_int_equal(file.st_mode & 0777, 0600);
    store_close(store);
}

static void pages_of_another_size_take_over_a_full_pool(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "n");
    for (uint32_t i = 0; i < 1500; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
    for (uint32_t i = 5000; i < 5100; i++)
        assert_int_equal(put_sized(store, key_of(space, i), 33000, NULL), TARN_OK);
    bool present = false;
    const struct store_key last = key_of(space, 5099);
    assert_int_equal(store_exists(store, &last, 1, &present), TARN_OK);
    assert_true(present);
    store_close(store);
}

static void opening_twice_gives_one_store_and_one_process_slot(void **state)
{
    (void)state;
    struct store *first = pool_with(POOL_MIB, false);
    struct store *second = pool_with(POOL_MIB, false);
    assert_ptr_equal(first, second);
    store_close(first);
    assert_int_equal(put(second, key_of(name(second, "n"), 1)), TARN_OK);
    store_close(second);
}

static void a_reader_without_a_slot_reads_and_cannot_write(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    assert_int_equal(put(store, key_of(name(store, "n"), 1)), TARN_OK);
    struct store *reader = pool_with(POOL_MIB, true);
    const struct store_key key = key_of(name(reader, "n"), 1);
    struct store_lease *lease = NULL;
    size_t count = 0;
    assert_ptr_not_equal(reader, store);
    assert_int_equal(get(reader, key), TARN_OK);
    assert_int_equal(store_lookup(reader, &key, 1, &lease, &count), TARN_OK);
    store_lease_release(lease);
    assert_int_equal(put(reader, key_of(name(reader, "n"), 2)), TARN_UNSUPPORTED);
    assert_int_equal(store_remove(reader, &key), TARN_UNSUPPORTED);
    store_close(reader);
    store_close(store);
}

/* Find a page's bytes in the file and change one. */
static void page_corrupt(uint32_t number)
{
    page_make(page_bytes, PAGE_BYTES, number);
    const int fd = open(pool_path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    bool changed = false;
    for (off_t at = 0; at < (off_t)POOL_MIB << 20 && !changed; at += 4096) {
        uint8_t head[64];
        assert_int_equal(pread(fd, head, sizeof(head), at), sizeof(head));
        if (memcmp(head, page_bytes, sizeof(head)) != 0)
            continue;
        head[0] = (uint8_t)(page_bytes[50000] ^ 1);
        assert_int_equal(pwrite(fd, head, 1, at + 50000), 1);
        changed = true;
    }
    assert_true(changed);
    (void)close(fd);
}

static void a_flipped_byte_is_never_served_and_is_quarantined(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const struct store_key key = key_of(name(store, "n"), 1);
    assert_int_equal(put(store, key), TARN_OK);
    page_corrupt(1);
    const int64_t before = metric_get(METRIC_POOL_QUARANTINED);
    assert_int_equal(get(store, key), TARN_CORRUPT);
    assert_int_equal(metric_get(METRIC_POOL_QUARANTINED), before + 1);
    assert_int_equal(get(store, key), TARN_MISS);
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(get(store, key), TARN_OK);
    store_close(store);
}

static void a_removed_file_is_noticed_and_replaced(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const struct store_key key = key_of(name(store, "n"), 1);
    struct store_lease *lease = NULL;
    size_t count;
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_OK);
    assert_int_equal(unlink(pool_path), 0);
    while (access(pool_path, F_OK) != 0) /* within a second of the next call */
        (void)put(store, key_of(0, 2));
    assert_int_equal(get(store, key), TARN_MISS);
    assert_int_equal(put(store, key), TARN_OK);
    store_lease_release(lease); /* of the old file */
    assert_int_equal(get(store, key), TARN_OK);
    store_close(store);
}

/* In a process of its own, with the guard: the file is cut short under it. */
static int cut_short(void)
{
    struct store *store = NULL;
    struct store_stat stat;
    const struct pool_options options = { .path = pool_path, .size_bytes = UINT64_C(64) << 20 };
    (void)snprintf(pool_path, sizeof(pool_path), "%s/other.pool", directory);
    if (guard_install() != TARN_OK || pool_open(&options, &store) != TARN_OK)
        return 1;
    const struct store_key key = key_of(name(store, "n"), 1);
    if (put(store, key) != TARN_OK || get(store, key) != TARN_OK || truncate(pool_path, 0) != 0)
        return 2;
    if (get(store, key) != TARN_MISS)
        return 3;
    while (put(store, key) != TARN_IO) /* noticed within a second; the file is no pool now */
        ;
    store_stat(store, &stat);
    if (metric_get(METRIC_POOL_BROKEN) == 0 || !stat.is_inert)
        return 4;
    store_close(store);
    return unlink(pool_path);
}

static void a_file_cut_short_under_a_guarded_process_reads_as_misses(void **state)
{
    (void)state;
    int result = -1;
    /* The child's mapping may come to lie where its parent's was: that one must not be meant. */
    struct store *store = pool_with(POOL_MIB, false);
    const pid_t child = fork();
    if (child == 0)
        _exit(cut_short());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    store_close(store);
}

static void a_child_cannot_touch_its_parents_leases(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const struct store_key key = key_of(name(store, "n"), 1);
    struct store_lease *lease = NULL;
    size_t count;
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_OK);
    const pid_t child = fork();
    if (child == 0) {
        bool is_good = store_remove(store, &key) == TARN_INVALID;
        bool present;
        is_good = is_good && store_exists(store, &key, 1, &present) == TARN_INVALID;
        store_lease_release(lease);
        store_close(store);
        /* and a child may open its own */
        const struct pool_options options = { .path = pool_path };
        struct store *own = NULL;
        is_good = is_good && pool_open(&options, &own) == TARN_OK;
        uint32_t index;
        is_good = is_good && store_namespace(own, "n", &index) == TARN_OK;
        is_good = is_good && store_remove(own, &key) == TARN_AGAIN; /* still leased */
        store_close(own);
        _exit(is_good ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(get(store, key), TARN_OK);
    assert_int_equal(store_remove(store, &key), TARN_AGAIN);
    store_lease_release(lease);
    assert_int_equal(store_remove(store, &key), TARN_OK);
    store_close(store);
}

static void an_inspection_tells_what_is_there_and_what_is_damaged(void **state)
{
    (void)state;
    struct inspection *inspection = NULL;
    struct text text;
    text_init(&text, 1 << 16);
    assert_int_equal(inspection_open(pool_path, &inspection), TARN_MISS);
    struct store *store = pool_with(POOL_MIB, false);
    const uint32_t space = name(store, "tarn/\tm/w1r0");
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(put(store, key_of(space, i)), TARN_OK);
    assert_int_equal(inspection_open(pool_path, &inspection), TARN_OK);
    inspection_refresh(inspection, true);
    assert_true(inspection_is_sound(inspection));
    assert_int_equal(inspection_print_stat(inspection, &text), TARN_OK);
    assert_non_null(strstr(text_chars(&text), "pages       10 committed, 1.0 MiB"));
    assert_non_null(strstr(text_chars(&text), "processes   1 of 64"));
    assert_non_null(
        strstr(text_chars(&text), "     100 KiB        1        20        10        1.0"));
    assert_non_null(strstr(text_chars(&text), "verified    10 pages, 0 failed"));
    assert_non_null(strstr(text_chars(&text), "verdict     valid"));
    text_deinit(&text);
    assert_int_equal(inspection_print_names(inspection, &text), TARN_NO_SPACE);
    text_init(&text, 1 << 16);
    assert_int_equal(inspection_print_names(inspection, &text), TARN_OK);
    assert_non_null(strstr(text_chars(&text), "        10        1.0  tarn/?m/w1r0\n"));
    text_deinit(&text);

    page_corrupt(3);
    text_init(&text, 1 << 16);
    inspection_refresh(inspection, false);
    assert_true(inspection_is_sound(inspection));
    inspection_refresh(inspection, true);
    assert_false(inspection_is_sound(inspection));
    assert_int_equal(inspection_print_stat(inspection, &text), TARN_OK);
    assert_non_null(strstr(text_chars(&text), "NOT VALID: 1 fault, the first: a page failed"));
    text_deinit(&text);
    inspection_close(inspection);
    store_close(store);
}

static enum tarn_status inspect_once(void)
{
    struct inspection *inspection = NULL;
    TRY(inspection_open(pool_path, &inspection));
    inspection_refresh(inspection, true);
    inspection_close(inspection);
    return TARN_OK;
}

static void an_inspection_survives_every_failed_allocation(void **state)
{
    (void)state;
    store_close(pool_with(POOL_MIB, false));
    assert_true(fault_sweep(inspect_once) >= 5);
}

/* ---- opening what is no pool ---- */

static enum tarn_status open_status(void)
{
    const struct pool_options options = { .path = pool_path, .size_bytes = UINT64_C(64) << 20 };
    struct store *store = NULL;
    const enum tarn_status status = pool_open(&options, &store);
    store_close(store);
    return status;
}

static void file_put(const char *path, const void *bytes, size_t size_bytes)
{
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size_bytes), size_bytes);
    (void)close(fd);
}

static void a_file_of_random_bytes_is_refused_and_left_alone(void **state)
{
    (void)state;
    page_make(page_bytes, PAGE_BYTES, 1);
    file_put(pool_path, page_bytes, PAGE_BYTES);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, "it is no Tarn pool"));
    const int fd = open(pool_path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, read_bytes, PAGE_BYTES), PAGE_BYTES);
    assert_memory_equal(read_bytes, page_bytes, PAGE_BYTES);
    (void)close(fd);
}

static void an_empty_file_is_refused(void **state)
{
    (void)state;
    file_put(pool_path, "", 0);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, "too short"));
}

static void a_pool_of_another_version_is_refused(void **state)
{
    (void)state;
    assert_int_equal(open_status(), TARN_OK);
    const int fd = open(pool_path, O_WRONLY | O_CLOEXEC);
    const uint32_t version = 77;
    assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
    (void)close(fd);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, "another format version"));
}

static void a_damaged_first_block_is_refused(void **state)
{
    (void)state;
    assert_int_equal(open_status(), TARN_OK);
    const int fd = open(pool_path, O_WRONLY | O_CLOEXEC);
    const uint64_t frame_count = 3;
    assert_int_equal(pwrite(fd, &frame_count, sizeof(frame_count), 32), sizeof(frame_count));
    (void)close(fd);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, "first block is damaged"));
}

static void a_pool_cut_short_is_refused(void **state)
{
    (void)state;
    assert_int_equal(open_status(), TARN_OK);
    assert_int_equal(truncate(pool_path, 1 << 20), 0);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
    assert_non_null(strstr(last_line, "shorter than it says"));
}

static void a_symbolic_link_is_not_followed(void **state)
{
    (void)state;
    assert_int_equal(symlink("/dev/null", pool_path), 0);
    assert_int_equal(open_status(), TARN_UNSUPPORTED);
}

static void a_pool_too_small_is_refused_with_the_arithmetic(void **state)
{
    (void)state;
    const struct pool_options options = { .path = pool_path, .size_bytes = 1 << 20 };
    struct store *store = NULL;
    assert_int_equal(pool_open(&options, &store), TARN_NO_SPACE);
    assert_non_null(strstr(last_line, "64 MiB"));
}

static void a_missing_directory_is_said(void **state)
{
    (void)state;
    const struct pool_options options = { .path = "/dev/shm/tarn-no-such-directory/a.pool" };
    struct store *store = NULL;
    assert_int_equal(pool_open(&options, &store), TARN_IO);
    assert_non_null(strstr(last_line, "cannot open directory"));
}

/* ---- allocation ---- */

static enum tarn_status open_intern_close(void)
{
    const struct pool_options options = { .path = pool_path, .size_bytes = UINT64_C(64) << 20 };
    struct store *store = NULL;
    TRY(pool_open(&options, &store));
    uint32_t index;
    const enum tarn_status status = store_namespace(store, "n", &index);
    store_close(store);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(open_intern_close) >= 5);
}

static void the_data_path_allocates_nothing(void **state)
{
    (void)state;
    struct store *store = pool_with(POOL_MIB, false);
    const struct store_key key = key_of(name(store, "n"), 1);
    struct store_lease *lease = NULL;
    size_t count;
    const size_t before = mem_live_count();
    assert_int_equal(put(store, key), TARN_OK);
    assert_int_equal(store_lookup(store, &key, 1, &lease, &count), TARN_OK);
    assert_int_equal(get(store, key), TARN_OK);
    assert_int_equal(mem_live_count(), before);
    store_lease_release(lease);
    store_close(store);
}

#define POOL_TEST(function)                                                                        \
    cmocka_unit_test_setup_teardown(function, directory_make, directory_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_page_comes_back_as_it_was_put),
        POOL_TEST(a_page_outlives_the_process_that_put_it),
        POOL_TEST(namespaces_do_not_mix),
        POOL_TEST(another_length_is_a_miss),
        POOL_TEST(senseless_sizes_and_names_are_refused),
        POOL_TEST(a_lease_covers_the_leading_run_and_keeps_it),
        POOL_TEST(a_lease_older_than_ten_seconds_protects_nothing_and_breaks_nothing),
        POOL_TEST(a_full_pool_evicts_the_longest_unused),
        POOL_TEST(the_file_never_exceeds_its_size),
        POOL_TEST(pages_of_another_size_take_over_a_full_pool),
        POOL_TEST(opening_twice_gives_one_store_and_one_process_slot),
        POOL_TEST(a_reader_without_a_slot_reads_and_cannot_write),
        POOL_TEST(a_flipped_byte_is_never_served_and_is_quarantined),
        POOL_TEST(a_removed_file_is_noticed_and_replaced),
        POOL_TEST(a_file_cut_short_under_a_guarded_process_reads_as_misses),
        POOL_TEST(a_child_cannot_touch_its_parents_leases),
        POOL_TEST(an_inspection_tells_what_is_there_and_what_is_damaged),
        POOL_TEST(an_inspection_survives_every_failed_allocation),
        POOL_TEST(a_file_of_random_bytes_is_refused_and_left_alone),
        POOL_TEST(an_empty_file_is_refused),
        POOL_TEST(a_pool_of_another_version_is_refused),
        POOL_TEST(a_damaged_first_block_is_refused),
        POOL_TEST(a_pool_cut_short_is_refused),
        POOL_TEST(a_symbolic_link_is_not_followed),
        POOL_TEST(a_pool_too_small_is_refused_with_the_arithmetic),
        POOL_TEST(a_missing_directory_is_said),
        POOL_TEST(every_failed_allocation_is_a_status_and_no_leak),
        POOL_TEST(the_data_path_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
