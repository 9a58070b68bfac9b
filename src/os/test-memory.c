/* SPDX-License-Identifier: Apache-2.0 */
#include "os/memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/lock.h"

static char root[64];

static int root_make(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/tarn-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

static void path_of(const char *name, char out_path[256])
{
    (void)snprintf(out_path, 256, "%s/%s", root, name);
}

static void folder_put(const char *name)
{
    char path[256];
    path_of(name, path);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void file_put(const char *name, const char *content)
{
    char path[256];
    path_of(name, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int root_remove(void **state)
{
    (void)state;
    static const char *const names[] = {
        "cgroup",
        "a/b/memory.max",
        "a/b/memory.current",
        "a/memory.max",
        "a/memory.current",
        "memory/g/memory.limit_in_bytes",
        "memory/g/memory.usage_in_bytes",
    };
    static const char *const folders[] = { "a/b", "a", "memory/g", "memory", "" };
    char path[256];
    for (size_t i = 0; i < LENGTH_OF(names); i++) {
        path_of(names[i], path);
        (void)unlink(path);
    }
    for (size_t i = 0; i < LENGTH_OF(folders); i++) {
        path_of(folders[i], path);
        (void)rmdir(path);
    }
    return 0;
}

static uint64_t headroom(void)
{
    char path[256];
    path_of("cgroup", path);
    return memory_group_headroom(path, root);
}

static void available_memory_is_told(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_int_equal(memory_available(&bytes), TARN_OK);
    assert_true(bytes > 1 << 20);
}

static void without_groups_nothing_limits(void **state)
{
    (void)state;
    assert_true(headroom() == UINT64_MAX);
    file_put("cgroup", "0::/no/such/group\n");
    assert_true(headroom() == UINT64_MAX);
}

static void the_tightest_ancestor_counts(void **state)
{
    (void)state;
    folder_put("a");
    folder_put("a/b");
    file_put("cgroup", "0::/a/b\n");
    file_put("a/b/memory.max", "max\n");
    file_put("a/b/memory.current", "10\n");
    assert_true(headroom() == UINT64_MAX);
    file_put("a/memory.max", "1000\n");
    file_put("a/memory.current", "400\n");
    assert_int_equal(headroom(), 600);
    file_put("a/b/memory.max", "500\n");
    assert_int_equal(headroom(), 490);
    file_put("a/b/memory.max", "5\n");
    assert_int_equal(headroom(), 0);
}

static void groups_of_version_1_count_too(void **state)
{
    (void)state;
    folder_put("memory");
    folder_put("memory/g");
    file_put("cgroup", "5:cpu:/other\n4:memory:/g\n0::/\n");
    file_put("memory/g/memory.limit_in_bytes", "9000\n");
    file_put("memory/g/memory.usage_in_bytes", "1000\n");
    assert_int_equal(headroom(), 8000);
}

static void a_byte_is_held_by_one_description_and_shows_to_others(void **state)
{
    (void)state;
    char path[256];
    file_put("cgroup", "");
    path_of("cgroup", path);
    const int first = open(path, O_RDWR | O_CLOEXEC);
    const int second = open(path, O_RDWR | O_CLOEXEC);
    const int reader = open(path, O_RDONLY | O_CLOEXEC);
    const uint64_t far = UINT64_C(1) << 62;
    assert_true(lock_take(first, far));
    assert_true(lock_take(first, far)); /* one's own does not exclude */
    assert_false(lock_take(second, far));
    assert_true(lock_take(second, far + 1));
    assert_true(lock_is_held(reader, far));
    assert_true(lock_is_held(second, far));
    assert_false(lock_is_held(first, far));
    assert_false(lock_is_held(reader, far + 2));
    lock_release(first, far);
    assert_true(lock_take(second, far));
    assert_int_equal(close(second), 0);
    assert_true(lock_take(first, far + 1));
    (void)close(first);
    (void)close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(available_memory_is_told),
        cmocka_unit_test_setup_teardown(without_groups_nothing_limits, root_make, root_remove),
        cmocka_unit_test_setup_teardown(the_tightest_ancestor_counts, root_make, root_remove),
        cmocka_unit_test_setup_teardown(groups_of_version_1_count_too, root_make, root_remove),
        cmocka_unit_test_setup_teardown(a_byte_is_held_by_one_description_and_shows_to_others,
                                        root_make, root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
