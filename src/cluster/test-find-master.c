/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/find-master.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/address-file.h"
#include "os/stop.h"

static struct found_master found_at(const char *own, const char *peer)
{
    struct found_master found = { .is_address = true };
    (void)snprintf(found.text, sizeof(found.text), "%s:1", peer);
    (void)snprintf(found.route.own, sizeof(found.route.own), "%s", own);
    (void)snprintf(found.route.peer, sizeof(found.route.peer), "%s", peer);
    return found;
}

static void expect_host(const struct found_master *found, const char *wanted, const char *host)
{
    char found_host[ADDRESS_HOST_BYTES_MAX + 1];
    assert_int_equal(find_local_host(found, wanted, found_host), TARN_OK);
    assert_string_equal(found_host, host);
}

static void this_host_is_called_by_its_address_on_the_way_to_the_master(void **state)
{
    (void)state;
    const struct found_master far = found_at("10.0.0.7", "10.0.0.1");
    const struct found_master near = found_at("127.0.0.1", "127.0.0.1");
    expect_host(&far, NULL, "10.0.0.7");
    expect_host(&far, "node7", "node7");
    expect_host(&near, NULL, "127.0.0.1");
    expect_host(&near, "127.0.0.1", "127.0.0.1");
}

static void a_loopback_name_is_refused_when_the_master_is_on_another_host(void **state)
{
    (void)state;
    const struct found_master far = found_at("10.0.0.7", "10.0.0.1");
    const struct found_master here = found_at("10.0.0.7", "10.0.0.7"); /* by its outer address */
    const char *const loopback[] = { "127.0.0.1", "127.0.1.1", "localhost", "::1" };
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    for (size_t i = 0; i < LENGTH_OF(loopback); i++) {
        assert_int_equal(find_local_host(&far, loopback[i], host), TARN_INVALID);
        expect_host(&here, loopback[i], loopback[i]);
    }
}

static void a_master_that_is_no_address_gives_the_default_route(void **state)
{
    (void)state;
    const struct found_master other = { .text = "etcd://somewhere" };
    char own[ADDRESS_HOST_BYTES_MAX + 1];
    probe_own_host(own);
    expect_host(&other, NULL, own);
    expect_host(&other, "node7", "node7");
}

static void text_that_is_no_address_passes(void **state)
{
    (void)state;
    static const char *const texts[] = { "unix:", "no-port", "etcd://a:1,b:1", "h:0", "h:65536" };
    for (size_t i = 0; i < LENGTH_OF(texts); i++) {
        struct found_master found;
        assert_int_equal(find_master(texts[i], 0, &found), TARN_OK);
        assert_false(found.is_address);
        assert_string_equal(found.text, texts[i]);
    }
}

static void nobody_there_is_an_error_once_the_time_is_over(void **state)
{
    (void)state;
    struct found_master found;
    assert_int_equal(find_master("127.0.0.1:1", 60, &found), TARN_IO);
    assert_int_equal(find_master("[::1]:1", 60, &found), TARN_IO);
    assert_int_equal(find_master("no-such-host.invalid:1", 60, &found), TARN_IO);
    assert_int_equal(find_master("file:///nowhere/master.addr", 60, &found), TARN_IO);
}

static void an_address_is_published_whole_and_withdrawn_by_who_published_it(void **state)
{
    (void)state;
    char path[] = "/tmp/tarn-test-address-XXXXXX";
    char address[ADDRESS_TEXT_BYTES_MAX + 1];
    struct wait wait;
    assert_non_null(mkdtemp(path));
    char file[64];
    (void)snprintf(file, sizeof(file), "%s/master.addr", path);
    assert_int_equal(address_file_publish(file, "h:1"), TARN_OK);
    wait_init(&wait, "an address", 1000);
    assert_int_equal(address_file_wait(file, &wait, address), TARN_OK);
    assert_string_equal(address, "h:1");
    assert_int_equal(address_file_publish(file, "h:2"), TARN_OK); /* another master */
    address_file_withdraw(file, "h:1");
    assert_int_equal(address_file_wait(file, &wait, address), TARN_OK);
    assert_string_equal(address, "h:2");
    address_file_withdraw(file, "h:2");
    assert_int_equal(rmdir(path), 0); /* nothing else was left beside it */
    assert_int_equal(address_file_publish(file, "h:1"), TARN_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_host_is_called_by_its_address_on_the_way_to_the_master),
        cmocka_unit_test(a_loopback_name_is_refused_when_the_master_is_on_another_host),
        cmocka_unit_test(a_master_that_is_no_address_gives_the_default_route),
        cmocka_unit_test(text_that_is_no_address_passes),
        cmocka_unit_test(nobody_there_is_an_error_once_the_time_is_over),
        cmocka_unit_test(an_address_is_published_whole_and_withdrawn_by_who_published_it),
    };
    stop_prepare();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
