/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/landing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "lib/fault.h"

#define SEGMENT(name, size, used)                                                                  \
    "{\"segment_name\":\"" name "\",\"size_bytes\":" #size ",\"allocator_used_bytes\":" #used      \
    ",\"status\":\"OK\"}"
#define DETAIL(segments) "{\"total_segments\":0,\"segments\":[" segments "]}"

static enum tarn_status parse(const char *chars, const char *segment, struct landing *out_landing)
{
    char reason[LANDING_REASON_BYTES] = "";
    const enum tarn_status status =
        landing_parse(chars, strlen(chars), segment, out_landing, reason);
    if (status == TARN_INVALID)
        assert_true(reason[0] != '\0');
    return status;
}

static void expect_report(const char *chars, const char *part)
{
    struct landing landing;
    struct text text;
    text_init(&text, 1 << 16);
    assert_int_equal(parse(chars, NULL, &landing), TARN_OK);
    assert_int_equal(landing_print(&landing, &text), TARN_OK);
    if (!strstr(text_chars(&text), part))
        fail_msg("'%s' does not say '%s'", text_chars(&text), part);
    text_deinit(&text);
    landing_deinit(&landing);
}

static void segments_are_added_up_by_host_the_fullest_first(void **state)
{
    (void)state;
    struct landing landing;
    assert_int_equal(parse(DETAIL(SEGMENT("10.0.0.1:12001", 100, 10) "," SEGMENT(
                               "10.0.0.2:12001", 200, 50) "," SEGMENT("10.0.0.1:12002", 100, 20)),
                           "10.0.0.2:12001", &landing),
                     TARN_OK);
    assert_int_equal(landing.host_count, 2);
    assert_string_equal(landing.hosts[0].host, "10.0.0.2");
    assert_int_equal(landing.hosts[0].used_bytes, 50);
    assert_string_equal(landing.hosts[1].host, "10.0.0.1");
    assert_int_equal(landing.hosts[1].used_bytes, 30);
    assert_int_equal(landing.hosts[1].capacity_bytes, 200);
    assert_int_equal(landing.hosts[1].segment_count, 2);
    assert_int_equal(landing.used_bytes, 80);
    assert_int_equal(landing.capacity_bytes, 400);
    assert_int_equal(landing.segment_used_bytes, 50);
    landing_deinit(&landing);
}

static void hosts_are_names_or_addresses_of_both_kinds(void **state)
{
    (void)state;
    struct landing landing;
    assert_int_equal(parse(DETAIL(SEGMENT("[fd00::1]:12", 1, 0) "," SEGMENT(
                               "node-7.cluster:12", 1, 0) "," SEGMENT("no-port", 1, 0)),
                           NULL, &landing),
                     TARN_OK);
    assert_string_equal(landing.hosts[0].host, "fd00::1");
    assert_string_equal(landing.hosts[1].host, "no-port");
    assert_string_equal(landing.hosts[2].host, "node-7.cluster");
    landing_deinit(&landing);
}

static void the_report_says_what_the_hosts_mean(void **state)
{
    (void)state;
    expect_report(DETAIL(""), "no host lends memory");
    expect_report(DETAIL(SEGMENT("a:1", 100, 10)),
                  "one host alone, a, lends memory: donors are absent");
    expect_report(DETAIL(SEGMENT("a:1", 100, 10) "," SEGMENT("a:2", 100, 10)), "donors are absent");
    expect_report(DETAIL(SEGMENT("a:1", 100, 0) "," SEGMENT("b:1", 100, 10)),
                  "one host alone, b, holds blocks: the 1 others lend memory that is unused");
    expect_report(DETAIL(SEGMENT("a:1", 100, 0) "," SEGMENT("b:1", 100, 0)),
                  "none holds blocks yet");
    expect_report(DETAIL(SEGMENT("a:1", 100, 30) "," SEGMENT("b:1", 100, 10)),
                  "2 of 2 hosts hold blocks");
    expect_report(DETAIL(SEGMENT("a:1", 100, 30) "," SEGMENT("b:1", 100, 10)),
                  "blocks on a: 30 bytes (30 B) of 100 bytes (100 B) lent in 1 segment, 75.0 % of");
}

static void what_is_no_such_document_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"segments\":1}",
        DETAIL("1"),
        DETAIL("{}"),
        DETAIL("{\"segment_name\":\"a:1\",\"size_bytes\":1}"),
        DETAIL("{\"segment_name\":1,\"size_bytes\":1,\"allocator_used_bytes\":1}"),
        DETAIL(SEGMENT("a:1", -1, 0)),
        DETAIL(SEGMENT("a:1", 1, 1.5)),
    };
    for (size_t i = 0; i < LENGTH_OF(wrong); i++) {
        struct landing landing;
        assert_int_equal(parse(wrong[i], NULL, &landing), TARN_INVALID);
    }
}

static void objects_are_counted_from_the_metrics(void **state)
{
    (void)state;
    uint64_t count = 0;
    assert_true(
        landing_parse_count("# TYPE master_key_count gauge\nmaster_key_count 42\nx 1\n", &count));
    assert_int_equal(count, 42);
    assert_false(
        landing_parse_count("# HELP master_key_count 7\nmaster_key_count_total 1\n", &count));
    assert_false(landing_parse_count("\nmaster_key_count x\n", &count));
    assert_false(landing_parse_count("", &count));
}

static enum tarn_status parse_and_print(void)
{
    static const char document[] = DETAIL(SEGMENT("a:1", 100, 30) "," SEGMENT("b:1", 100, 10));
    struct landing landing;
    struct text text;
    char reason[LANDING_REASON_BYTES];
    text_init(&text, 1 << 16);
    TRY(landing_parse(document, sizeof(document) - 1, NULL, &landing, reason));
    const enum tarn_status status = landing_print(&landing, &text);
    landing_deinit(&landing);
    text_deinit(&text);
    return status;
}

static char lines[1 << 12];

static void line_keep(void *context, enum log_level level, const char *line)
{
    const size_t length = strlen(lines);
    (void)context;
    (void)level;
    (void)snprintf(lines + length, sizeof(lines) - length, "%s\n", line);
}

static void who_lends_more_or_less_than_before_is_said(void **state)
{
    (void)state;
    struct landing before;
    struct landing now;
    struct landing nobody = { .hosts = NULL };
    assert_int_equal(parse(DETAIL(SEGMENT("a:1", 100, 1) "," SEGMENT("a:2", 100, 0) "," SEGMENT(
                               "b:1", 100, 0) "," SEGMENT("c:1", 100, 0)),
                           NULL, &before),
                     TARN_OK);
    assert_int_equal(
        parse(DETAIL(SEGMENT("a:1", 100, 1) "," SEGMENT("c:1", 100, 50) "," SEGMENT("d:1", 100, 0)),
              NULL, &now),
        TARN_OK);
    log_set_sink(line_keep, NULL);
    landing_log_changes(&before, &now);
    landing_log_changes(&now, &now);
    log_set_sink(NULL, NULL);
    assert_non_null(strstr(lines, "master: a lends 100 bytes less, 100 in all: "));
    assert_non_null(strstr(lines, "master: b lends 100 bytes less, 0 in all: "));
    assert_non_null(strstr(lines, "master: d lends 100 bytes more, 100 in all\n"));
    assert_null(strstr(lines, "master: c"));
    lines[0] = '\0';
    log_set_sink(line_keep, NULL);
    landing_log_changes(&nobody, &nobody);
    log_set_sink(NULL, NULL);
    assert_string_equal(lines, "");
    landing_deinit(&before);
    landing_deinit(&now);
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(parse_and_print) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_added_up_by_host_the_fullest_first),
        cmocka_unit_test(hosts_are_names_or_addresses_of_both_kinds),
        cmocka_unit_test(the_report_says_what_the_hosts_mean),
        cmocka_unit_test(what_is_no_such_document_is_refused),
        cmocka_unit_test(objects_are_counted_from_the_metrics),
        cmocka_unit_test(who_lends_more_or_less_than_before_is_said),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
