/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    int count;
    enum log_level level;
    char line[LOG_LINE_BYTES_MAX];
};

static void see(void *context, enum log_level level, const char *line)
{
    struct seen *seen = context;
    seen->count++;
    seen->level = level;
    (void)snprintf(seen->line, sizeof(seen->line), "%s", line);
}

static void lines_reach_the_sink_whole_and_below_the_level_only(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    log_set_sink(see, &seen);
    log_debug("not shown");
    assert_int_equal(seen.count, 0);
    log_warn("%d pages of %d", 3, 8);
    assert_int_equal(seen.level, LOG_WARN);
    assert_string_equal(seen.line, "3 pages of 8");
    log_set_level(LOG_ERROR);
    log_warn("not shown");
    log_set_level(LOG_INFO);
    assert_int_equal(seen.count, 1);
    log_set_sink(NULL, NULL);
}

static void a_line_that_is_too_long_ends_in_dots(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    char big[2 * LOG_LINE_BYTES_MAX];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    log_set_sink(see, &seen);
    log_info("%s", big);
    log_set_sink(NULL, NULL);
    const size_t length = strlen(seen.line);
    assert_true(length < LOG_LINE_BYTES_MAX);
    assert_string_equal(seen.line + length - 4, "x...");
}

static void a_limited_line_counts_what_it_left_out(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    struct log_limit limit = { .interval_ms = 3600 * 1000 };
    log_set_sink(see, &seen);
    for (int i = 0; i < 5; i++)
        log_write_limited(&limit, LOG_WARN, "store is full");
    assert_int_equal(seen.count, 1);
    atomic_store(&limit.next_ms, 0); /* the interval is over */
    log_write_limited(&limit, LOG_WARN, "store is full");
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.line, "store is full (4 like it left out)");
    log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_reach_the_sink_whole_and_below_the_level_only),
        cmocka_unit_test(a_line_that_is_too_long_ends_in_dots),
        cmocka_unit_test(a_limited_line_counts_what_it_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
