/* SPDX-License-Identifier: Apache-2.0 */
#include "obs/metric.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void counters_and_histograms_appear_as_prometheus_text(void **state)
{
    (void)state;
    metrics_reset();
    metric_add(METRIC_PROMPT_TOKENS_POOL, 1984);
    metric_set(METRIC_LEASES, 3);
    metric_add(METRIC_LEASES, -2);
    histogram_observe(HISTOGRAM_LOAD, 1000000);
    histogram_observe(HISTOGRAM_LOAD, 1000001);
    histogram_observe(HISTOGRAM_LOAD, UINT64_C(200000000000));

    struct text text;
    text_init(&text, 1 << 20);
    assert_int_equal(metrics_print(&text), TARN_OK);
    const char *page = text_chars(&text);
    assert_non_null(strstr(page, "# TYPE tarn_prompt_tokens_total counter\n"));
    assert_non_null(strstr(page, "\ntarn_prompt_tokens_total{source=\"pool\"} 1984\n"));
    assert_non_null(strstr(page, "# TYPE tarn_pool_leases gauge\ntarn_pool_leases 1\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_bucket{le=\"0.001\"} 1\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_bucket{le=\"0.002\"} 2\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_bucket{le=\"100\"} 2\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_sum 200.002000001\n"));
    assert_non_null(strstr(page, "tarn_load_seconds_count 3\n"));
    text_deinit(&text);
}

static void the_help_of_a_family_is_printed_once(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 1 << 20);
    assert_int_equal(metrics_print(&text), TARN_OK);
    const char *first = strstr(text_chars(&text), "# HELP tarn_prompt_tokens_total ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "# HELP tarn_prompt_tokens_total "));
    text_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_histograms_appear_as_prometheus_text),
        cmocka_unit_test(the_help_of_a_family_is_printed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
