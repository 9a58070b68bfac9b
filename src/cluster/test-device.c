/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/device.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A made-up sysfs. */
struct tree {
    char root[64];
};

static void folder_make(const struct tree *tree, const char *folder)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", tree->root, folder);
    for (char *at = path + strlen(tree->root) + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
    (void)mkdir(path, 0755);
}

static void line_make(const struct tree *tree, const char *folder, const char *name,
                      const char *line)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s/%s", tree->root, folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", line) > 0);
    assert_int_equal(fclose(file), 0);
}

static void port_make(const struct tree *tree, const char *port, const char *state,
                      const char *link_layer, const char *rate)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof(folder), "class/infiniband/%s", port);
    folder_make(tree, folder);
    line_make(tree, folder, "state", state);
    line_make(tree, folder, "link_layer", link_layer);
    line_make(tree, folder, "rate", rate);
}

static int tree_setup(void **state)
{
    static struct tree tree;
    (void)snprintf(tree.root, sizeof(tree.root), "/tmp/tarn-test-device-XXXXXX");
    if (!mkdtemp(tree.root))
        return -1;
    *state = &tree;
    return 0;
}

static int tree_teardown(void **state)
{
    const struct tree *tree = *state;
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r %s", tree->root);
    return system(command); /* NOLINT(cert-env33-c): its own folder */
}

static struct device_choice choose(const struct tree *tree, const char *protocol,
                                   const char *wanted)
{
    struct device_choice choice;
    assert_int_equal(device_choose(tree->root, protocol, wanted, &choice), TARN_OK);
    return choice;
}

static void every_active_infiniband_port_at_the_fastest_rate_is_taken(void **state)
{
    const struct tree *tree = *state;
    port_make(tree, "mlx5_0/ports/1", "4: ACTIVE", "InfiniBand", "200 Gb/sec (4X HDR)");
    port_make(tree, "mlx5_1/ports/1", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)");
    port_make(tree, "mlx5_2/ports/1", "1: DOWN", "InfiniBand", "400 Gb/sec (4X NDR)");
    port_make(tree, "mlx5_3/ports/1", "4: ACTIVE", "Ethernet", "800 Gb/sec (8X NDR)");
    port_make(tree, "mlx5_10/ports/1", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)");
    const struct device_choice choice = choose(tree, "rdma", "auto");
    assert_string_equal(choice.names, "mlx5_1,mlx5_10");
    assert_false(choice.is_warning);
    assert_non_null(strstr(choice.note, "400 Gb/s"));
}

static void a_device_with_two_such_ports_is_named_once(void **state)
{
    const struct tree *tree = *state;
    port_make(tree, "mlx5_0/ports/1", "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)");
    port_make(tree, "mlx5_0/ports/2", "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)");
    assert_string_equal(choose(tree, "rdma", "auto").names, "mlx5_0");
}

static void rates_with_fractions_are_numbers(void **state)
{
    const struct tree *tree = *state;
    port_make(tree, "a/ports/1", "4: ACTIVE", "InfiniBand", "2.5 Gb/sec (1X SDR)");
    port_make(tree, "b/ports/1", "4: ACTIVE", "InfiniBand", "10 Gb/sec (4X SDR)");
    assert_string_equal(choose(tree, "rdma", "auto").names, "b");
}

static void none_is_empty_with_a_warning(void **state)
{
    const struct tree *tree = *state;
    struct device_choice choice = choose(tree, "rdma", "auto"); /* no such class at all */
    assert_string_equal(choice.names, "");
    assert_true(choice.is_warning);
    port_make(tree, "mlx5_0/ports/1", "1: DOWN", "InfiniBand", "100 Gb/sec (4X EDR)");
    choice = choose(tree, "rdma", "auto");
    assert_string_equal(choice.names, "");
    assert_true(choice.is_warning);
    assert_non_null(strstr(choice.note, "none is active"));
}

static void ports_of_ethernet_are_left_to_the_user(void **state)
{
    const struct tree *tree = *state;
    port_make(tree, "mlx5_0/ports/1", "4: ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)");
    const struct device_choice choice = choose(tree, "rdma", "auto");
    assert_string_equal(choice.names, "");
    assert_true(choice.is_warning);
    assert_non_null(strstr(choice.note, "--device-name"));
}

static void other_protocols_have_no_device_and_a_named_one_is_taken(void **state)
{
    const struct tree *tree = *state;
    port_make(tree, "mlx5_0/ports/1", "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)");
    assert_string_equal(choose(tree, "tcp", "auto").names, "");
    assert_false(choose(tree, "tcp", "auto").is_warning);
    assert_string_equal(choose(tree, "rdma", "mlx5_7,mlx5_8").names, "mlx5_7,mlx5_8");
    assert_string_equal(choose(tree, "tcp", "eth0").names, "eth0");
}

static void half_a_port_is_no_port(void **state)
{
    const struct tree *tree = *state;
    folder_make(tree, "class/infiniband/mlx5_0/ports/1");
    line_make(tree, "class/infiniband/mlx5_0/ports/1", "state", "4: ACTIVE");
    folder_make(tree, "class/infiniband/mlx5_1");
    assert_string_equal(choose(tree, "rdma", "auto").names, "");
}

static void more_names_than_fit_are_refused(void **state)
{
    const struct tree *tree = *state;
    struct device_choice choice;
    for (int i = 0; i < 80; i++) {
        char port[64];
        (void)snprintf(port, sizeof(port), "device_%03d/ports/1", i);
        port_make(tree, port, "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)");
    }
    assert_int_equal(device_choose(tree->root, "rdma", "auto", &choice), TARN_NO_SPACE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_active_infiniband_port_at_the_fastest_rate_is_taken),
        TEST(a_device_with_two_such_ports_is_named_once),
        TEST(rates_with_fractions_are_numbers),
        TEST(none_is_empty_with_a_warning),
        TEST(ports_of_ethernet_are_left_to_the_user),
        TEST(other_protocols_have_no_device_and_a_named_one_is_taken),
        TEST(half_a_port_is_no_port),
        TEST(more_names_than_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
