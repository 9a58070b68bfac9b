/* SPDX-License-Identifier: Apache-2.0 */
/* Golden vectors: every line that this test makes stands in docs/key-scheme.md, and no other.
 * test/key_scheme.py computes the same lines in Python. */
#include "key/chain.h"
#include "key/namespace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

struct chain_case {
    const char *scope_json;
    const char *salt;
    const char *adapter; /* one byte, repeated 16 times */
    double scale;
    const char *media; /* one digest a byte, each repeated 16 times */
    int32_t first;
    int32_t step;
    uint32_t count;
    uint32_t tokens_per_block;
};

#define ONES "01010101010101010101010101010101"
#define TWOS "02020202020202020202020202020202"

static const struct chain_case chain_cases[] = {
    { "{}", "", NULL, 0, NULL, 0, 1, 31, 32 },
    { "{}", "", NULL, 0, NULL, 0, 1, 32, 32 },
    { "{}", "", NULL, 0, NULL, 0, 1, 100, 32 },
    { "{}", "", NULL, 0, NULL, 0, 1, 260, 128 },
    { "{}", "", NULL, 0, NULL, -3, 1, 8, 4 },
    { "{}", "", NULL, 0, NULL, 2147483647, -715827882, 6, 2 },
    { "{\"salt\": \"tenant-a\"}", "tenant-a", NULL, 0, NULL, 0, 1, 64, 32 },
    { "{\"salt\": \"gr\\u00fcn\"}", "gr\xc3\xbcn", NULL, 0, NULL, 0, 1, 64, 32 },
    { "{\"adapter\": \"" ONES "\", \"scale\": 0.5}", "", "\1", 0.5, NULL, 0, 1, 64, 32 },
    { "{\"adapter\": \"" ONES "\", \"scale\": 2.0}", "", "\1", 2.0, NULL, 0, 1, 64, 32 },
    { "{\"media\": [\"" ONES "\", \"" TWOS "\"]}", "", NULL, 0, "\1\2", 0, 1, 64, 32 },
    { "{\"media\": [\"" TWOS "\", \"" ONES "\"]}", "", NULL, 0, "\2\1", 0, 1, 64, 32 },
    { "{\"salt\": \"s\", \"adapter\": \"" TWOS "\", \"scale\": 1.0, \"media\": [\"" ONES "\"]}",
      "s", "\2", 1.0, "\1", 5, 7, 48, 16 },
};

struct space_case {
    const char *json; /* of the arguments, as Python takes them */
    struct key_namespace space;
};

static const struct space_case space_cases[] = {
    { "{\"prefix\": \"tarn\", \"model\": \"smol-0123456789abcdef\", \"world\": 1, \"rank\": 0, "
      "\"group\": 0, \"tokens_per_block\": 32, \"page_bytes\": 737280, \"layout\": 1}",
      { "tarn", "smol-0123456789abcdef", 1, 0, 0, 32, 737280, 1 } },
    { "{\"prefix\": \"a/b\", \"model\": \"100%\\t\\u007fgr\\u00fcn\", \"world\": 4294967295, "
      "\"rank\": 4294967294, \"group\": 7, \"tokens_per_block\": 128, "
      "\"page_bytes\": 18446744073709551615, \"layout\": 18446744073709551615}",
      { "a/b", "100%\t\x7fgr\xc3\xbcn", UINT32_MAX, UINT32_MAX - 1, 7, 128, UINT64_MAX,
        UINT64_MAX } },
};

static struct text doc;

static int doc_read(void **state)
{
    (void)state;
    char path[4096];
    char line[4096];
    (void)snprintf(path, sizeof(path), "%s/docs/key-scheme.md", getenv("TARN_SOURCE_ROOT"));
    FILE *file = fopen(path, "r");
    text_init(&doc, 1 << 20);
    if (!file)
        return -1;
    while (fgets(line, sizeof(line), file)) {
        if (text_append(&doc, "%s", line) != TARN_OK)
            return -1;
    }
    return fclose(file);
}

static int doc_free(void **state)
{
    (void)state;
    text_deinit(&doc);
    return 0;
}

static void line_is_published(const struct text *line)
{
    if (!strstr(text_chars(&doc), text_chars(line)))
        fail_msg("not in docs/key-scheme.md:\n%s", text_chars(line));
}

static void chain_line(const struct chain_case *c, struct text *line)
{
    struct tarn_digest adapter;
    struct tarn_digest media[2];
    struct tarn_scope scope = { .size = sizeof(scope), .cache_salt = c->salt };
    if (c->adapter) {
        memset(&adapter, c->adapter[0], sizeof(adapter));
        scope.adapter = &adapter;
        scope.adapter_scale = c->scale;
    }
    for (const char *byte = c->media; byte && *byte; byte++)
        memset(&media[scope.media_count++], *byte, sizeof(media[0]));
    scope.media = media;

    int32_t tokens[512];
    for (uint32_t i = 0; i < c->count; i++)
        tokens[i] = (int32_t)(c->first + (int64_t)i * c->step);
    struct chain chain;
    char hex[DIGEST_HEX_BYTES];
    assert_int_equal(chain_init(&chain, &scope, c->tokens_per_block), TARN_OK);
    assert_int_equal(chain_extend(&chain, tokens, c->count), TARN_OK);
    digest_to_hex(&chain.seed, hex);
    assert_int_equal(text_append(line,
                                 "{\"scope\": %s, \"first\": %d, \"step\": %d, \"count\": %u, "
                                 "\"tokens_per_block\": %u, \"seed\": \"%s\", \"blocks\": [",
                                 c->scope_json, c->first, c->step, c->count, c->tokens_per_block,
                                 hex),
                     TARN_OK);
    for (size_t i = 0; i < chain.block_count; i++) {
        digest_to_hex(&chain.blocks[i], hex);
        assert_int_equal(text_append(line, "%s\"%s\"", i ? ", " : "", hex), TARN_OK);
    }
    assert_int_equal(text_append(line, "]}\n"), TARN_OK);
    chain_deinit(&chain);
}

static void the_chains_of_the_golden_vectors_come_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH_OF(chain_cases); i++) {
        struct text line;
        text_init(&line, 1 << 16);
        chain_line(&chain_cases[i], &line);
        line_is_published(&line);
        text_deinit(&line);
    }
}

/* JSON of a key's text: control bytes cannot occur in one, and quotes do not in these. */
static void the_namespaces_of_the_golden_vectors_come_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH_OF(space_cases); i++) {
        char text[NAMESPACE_TEXT_BYTES_MAX + 1];
        struct text line;
        text_init(&line, 1 << 16);
        assert_int_equal(namespace_print(&space_cases[i].space, text), TARN_OK);
        assert_int_equal(text_append(&line, "{\"namespace\": %s, \"text\": \"%s\"}\n",
                                     space_cases[i].json, text),
                         TARN_OK);
        line_is_published(&line);
        text_deinit(&line);
    }
}

static void every_published_vector_is_checked(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *at = text_chars(&doc); (at = strstr(at, "\n{")) != NULL; at++)
        count++;
    assert_int_equal(count, LENGTH_OF(chain_cases) + LENGTH_OF(space_cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chains_of_the_golden_vectors_come_out),
        cmocka_unit_test(the_namespaces_of_the_golden_vectors_come_out),
        cmocka_unit_test(every_published_vector_is_checked),
    };
    return cmocka_run_group_tests(tests, doc_read, doc_free);
}
