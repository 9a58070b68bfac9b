/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file: what is accepted has values within their limits and lines of the file; what
 * is refused has a reason with a line; nothing is kept. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "config/option-table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void check_accepted(const struct options *options, size_t size_bytes)
{
    for (enum option option = 0; option < OPTION_COUNT_ALL; option++) {
        const struct option_value *value = &options->values[option];
        const struct option_row *row = &option_rows[option];
        if (value->source != OPTION_FROM_FILE)
            continue;
        ASSERT(option_section(option)[0] && value->is_set);
        ASSERT(value->line > 0 && value->line <= size_bytes + 1);
        ASSERT(value->number >= row->least && (row->most == 0 || value->number <= row->most));
        ASSERT(strlen(value->text) <= 2 * size_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct options options;
    struct text text;
    const size_t live_count = mem_live_count();
    ASSERT(options_read(0, NULL, NULL, &options) == TARN_OK);
    const enum tarn_status status =
        options_apply_file(&options, "f.yaml", (const char *)data, size_bytes);
    if (status == TARN_OK) {
        check_accepted(&options, size_bytes);
        text_init(&text, 1 << 20);
        ASSERT(options_print_config(&options, &text) == TARN_OK);
        text_deinit(&text);
    } else {
        ASSERT(status == TARN_INVALID && strncmp(options.error, "f.yaml:", 7) == 0);
        ASSERT(strlen(options.error) > 10);
    }
    options_deinit(&options);
    ASSERT(mem_live_count() == live_count);
    return 0;
}
