/* SPDX-License-Identifier: Apache-2.0 */
#include "key/chain.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

enum { TOKENS = 1000, T = 32 };

static int32_t tokens[TOKENS];

static int fill_tokens(void **state)
{
    (void)state;
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7919 % 49152;
    return 0;
}

static void an_incremental_chain_equals_a_batch_chain(void **state)
{
    (void)state;
    struct chain batch;
    assert_int_equal(chain_init(&batch, NULL, T), TARN_OK);
    assert_int_equal(chain_extend(&batch, tokens, TOKENS), TARN_OK);
    assert_int_equal(batch.block_count, TOKENS / T);

    const size_t steps[] = { 1, 31, 32, 33, 500 };
    for (size_t s = 0; s < LENGTH_OF(steps); s++) {
        struct chain chain;
        assert_int_equal(chain_init(&chain, NULL, T), TARN_OK);
        for (size_t count = 0; count <= TOKENS; count += steps[s]) {
            assert_int_equal(chain_extend(&chain, tokens, count), TARN_OK);
            assert_int_equal(chain.block_count, count / T);
        }
        assert_int_equal(chain_extend(&chain, tokens, TOKENS), TARN_OK);
        assert_memory_equal(chain.blocks, batch.blocks, batch.block_count * DIGEST_BYTES);
        chain_deinit(&chain);
    }
    chain_deinit(&batch);
}

static void a_shrinking_token_list_is_refused(void **state)
{
    (void)state;
    struct chain chain;
    assert_int_equal(chain_init(&chain, NULL, T), TARN_OK);
    assert_int_equal(chain_extend(&chain, tokens, 3 * T + 5), TARN_OK);
    const struct tarn_digest last = chain.blocks[2];

    assert_int_equal(chain_extend(&chain, tokens, 3 * T), TARN_INVALID);
    assert_int_equal(chain_extend(&chain, tokens, 2 * T), TARN_INVALID);
    assert_int_equal(chain_extend(&chain, tokens, 0), TARN_INVALID);
    assert_int_equal(chain.block_count, 3);
    assert_true(digest_equal(&chain.blocks[2], &last));

    assert_int_equal(chain_extend(&chain, tokens, 3 * T + 5), TARN_OK);
    assert_int_equal(chain_extend(&chain, NULL, 4 * T), TARN_INVALID);
    chain_deinit(&chain);
    chain_deinit(NULL);
}

/* The first block of `tokens` in a scope. */
static struct tarn_digest first_block(const struct tarn_scope *scope, uint32_t tokens_per_block)
{
    struct chain chain;
    assert_int_equal(chain_init(&chain, scope, tokens_per_block), TARN_OK);
    assert_int_equal(chain_extend(&chain, tokens, tokens_per_block), TARN_OK);
    const struct tarn_digest digest = chain.blocks[0];
    chain_deinit(&chain);
    return digest;
}

static void each_scope_field_alone_changes_the_key(void **state)
{
    (void)state;
    const struct tarn_digest a = { { 1 } };
    const struct tarn_digest b = { { 2 } };
    const struct tarn_digest ab[] = { a, b };
    const struct tarn_digest ba[] = { b, a };
    const struct tarn_scope scopes[] = {
        { .size = sizeof(struct tarn_scope) },
        { .cache_salt = "x" },
        { .cache_salt = "y" },
        { .adapter = &a, .adapter_scale = 1 },
        { .adapter = &b, .adapter_scale = 1 },
        { .adapter = &a, .adapter_scale = 2 },
        { .adapter = &a, .adapter_scale = 0 },
        { .media = &a, .media_count = 1 },
        { .media = &b, .media_count = 1 },
        { .media = ab, .media_count = 2 },
        { .media = ba, .media_count = 2 },
        { .cache_salt = "x", .media = &a, .media_count = 1 },
    };
    struct tarn_digest digests[LENGTH_OF(scopes)];
    for (size_t i = 0; i < LENGTH_OF(scopes); i++) {
        digests[i] = first_block(&scopes[i], T);
        for (size_t j = 0; j < i; j++)
            assert_false(digest_equal(&digests[i], &digests[j]));
    }
}

/* Fields are framed: moving a byte from one to the next, or a field to another tag, is seen. */
static void fields_of_a_scope_cannot_be_shifted_into_each_other(void **state)
{
    (void)state;
    struct tarn_digest text_digest;
    memcpy(&text_digest, "0123456789abcdef", sizeof(text_digest));
    const struct tarn_scope as_salt = { .cache_salt = "0123456789abcdef" };
    const struct tarn_scope as_media = { .media = &text_digest, .media_count = 1 };
    const struct tarn_scope as_adapter = { .adapter = &text_digest };
    const struct tarn_digest a = first_block(&as_salt, T);
    const struct tarn_digest b = first_block(&as_media, T);
    const struct tarn_digest c = first_block(&as_adapter, T);
    assert_false(digest_equal(&a, &b));
    assert_false(digest_equal(&a, &c));
    assert_false(digest_equal(&b, &c));
}

static void an_empty_salt_is_an_absent_salt(void **state)
{
    (void)state;
    const struct tarn_scope empty = { .cache_salt = "" };
    const struct tarn_digest a = first_block(&empty, T);
    const struct tarn_digest b = first_block(NULL, T);
    assert_true(digest_equal(&a, &b));
}

/* There is no digest without the salt in it. */
static void tenants_with_different_salts_share_no_block(void **state)
{
    (void)state;
    const struct tarn_scope scopes[] = { { .cache_salt = "tenant-a" },
                                         { .cache_salt = "tenant-b" } };
    struct chain chains[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(chain_init(&chains[i], &scopes[i], T), TARN_OK);
        assert_int_equal(chain_extend(&chains[i], tokens, TOKENS), TARN_OK);
    }
    for (size_t i = 0; i < chains[0].block_count; i++) {
        for (size_t j = 0; j < chains[1].block_count; j++)
            assert_false(digest_equal(&chains[0].blocks[i], &chains[1].blocks[j]));
    }
    chain_deinit(&chains[0]);
    chain_deinit(&chains[1]);
}

/* An adapter reloaded under its old name with other content has another digest. */
static void an_adapter_is_known_by_its_content(void **state)
{
    (void)state;
    const struct tarn_digest old_content = { { 1 } };
    const struct tarn_digest new_content = { { 2 } };
    const struct tarn_scope before = { .adapter = &old_content, .adapter_scale = 1 };
    const struct tarn_scope after = { .adapter = &new_content, .adapter_scale = 1 };
    const struct tarn_digest a = first_block(&before, T);
    const struct tarn_digest b = first_block(&after, T);
    assert_false(digest_equal(&a, &b));
}

static void a_block_binds_everything_before_it(void **state)
{
    (void)state;
    struct chain chain;
    struct chain other;
    int32_t changed[TOKENS];
    memcpy(changed, tokens, sizeof(changed));
    changed[0]++;
    assert_int_equal(chain_init(&chain, NULL, T), TARN_OK);
    assert_int_equal(chain_init(&other, NULL, T), TARN_OK);
    assert_int_equal(chain_extend(&chain, tokens, TOKENS), TARN_OK);
    assert_int_equal(chain_extend(&other, changed, TOKENS), TARN_OK);
    for (size_t i = 0; i < chain.block_count; i++)
        assert_false(digest_equal(&chain.blocks[i], &other.blocks[i]));
    chain_deinit(&chain);
    chain_deinit(&other);
}

/* Nothing of the process, the locale or the environment goes in. The golden vectors pin the
 * values; here the environment is changed under them. */
static void digests_do_not_depend_on_the_environment(void **state)
{
    (void)state;
    const struct tarn_digest before = first_block(NULL, T);
    assert_int_equal(setenv("PYTHONHASHSEED", "7", 1), 0);
    assert_int_equal(setenv("LC_ALL", "tr_TR.UTF-8", 1), 0);
    const struct tarn_digest after = first_block(NULL, T);
    assert_true(digest_equal(&before, &after));
}

static void wrong_parameters_of_a_chain_are_refused(void **state)
{
    (void)state;
    struct chain chain;
    const struct tarn_digest adapter = { { 1 } };
    const struct tarn_scope not_a_number = { .adapter = &adapter, .adapter_scale = (double)NAN };
    const struct tarn_scope no_media = { .media_count = 1 };
    assert_int_equal(chain_init(&chain, NULL, 0), TARN_INVALID);
    assert_int_equal(chain_init(&chain, NULL, CHAIN_TOKENS_PER_BLOCK_MAX + 1), TARN_INVALID);
    assert_int_equal(chain_init(&chain, &not_a_number, T), TARN_INVALID);
    assert_int_equal(chain_init(&chain, &no_media, T), TARN_INVALID);
}

static enum tarn_status grow_a_chain(void)
{
    struct chain chain;
    enum tarn_status status = chain_init(&chain, NULL, T);
    if (status != TARN_OK)
        return status;
    for (size_t count = T; status == TARN_OK && count <= TOKENS; count += T)
        status = chain_extend(&chain, tokens, count);
    chain_deinit(&chain);
    return status;
}

static enum tarn_status grow_a_reserved_chain(void)
{
    struct chain chain;
    enum tarn_status status = chain_init(&chain, NULL, T);
    if (status == TARN_OK)
        status = chain_reserve(&chain, TOKENS);
    for (size_t count = T; status == TARN_OK && count <= TOKENS; count += T)
        status = chain_extend(&chain, tokens, count);
    chain_deinit(&chain);
    return status;
}

static void a_chain_survives_failed_allocations_and_makes_few(void **state)
{
    (void)state;
    assert_in_range(fault_sweep(grow_a_chain), 1, 10);
    assert_int_equal(fault_sweep(grow_a_reserved_chain), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_incremental_chain_equals_a_batch_chain),
        cmocka_unit_test(a_shrinking_token_list_is_refused),
        cmocka_unit_test(each_scope_field_alone_changes_the_key),
        cmocka_unit_test(fields_of_a_scope_cannot_be_shifted_into_each_other),
        cmocka_unit_test(an_empty_salt_is_an_absent_salt),
        cmocka_unit_test(tenants_with_different_salts_share_no_block),
        cmocka_unit_test(an_adapter_is_known_by_its_content),
        cmocka_unit_test(a_block_binds_everything_before_it),
        cmocka_unit_test(digests_do_not_depend_on_the_environment),
        cmocka_unit_test(wrong_parameters_of_a_chain_are_refused),
        cmocka_unit_test(a_chain_survives_failed_allocations_and_makes_few),
    };
    return cmocka_run_group_tests(tests, fill_tokens, NULL);
}
