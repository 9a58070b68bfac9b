/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct tarn_kv_format format;
static struct tarn_engine_desc engine;
static char reason[GATE_REASON_BYTES];

static int setup(void **state)
{
    (void)state;
    format = (struct tarn_kv_format){ .size = sizeof(format) };
    engine = (struct tarn_engine_desc){ .size = sizeof(engine),
                                        .model_key = "m",
                                        .format = &format,
                                        .flags = TARN_ENGINE_BLOCK_REUSE };
    reason[0] = '\0';
    return 0;
}

static void passes(void)
{
    assert_int_equal(gate_check_engine(&engine, true, reason), TARN_OK);
    assert_int_equal(gate_check_engine(&engine, false, reason), TARN_OK);
    setup(NULL);
}

/* Refused, and the message has the option, its value, why, and what to set instead. */
static void refused(const char *option_and_value, const char *why, const char *instead)
{
    assert_int_equal(gate_check_engine(&engine, true, reason), TARN_UNSUPPORTED);
    assert_non_null(strstr(reason, option_and_value));
    assert_non_null(strstr(reason, why));
    assert_non_null(strstr(reason, instead));
    setup(NULL);
}

static void an_engine_without_peculiarities_passes(void **state)
{
    (void)state;
    passes();
    engine.flags |= TARN_ENGINE_CAN_REWIND | TARN_ENGINE_ROLLS_BACK;
    engine.world_size = engine.tensor_parallel_size = engine.beam_width_max = 1;
    engine.lower_tier = TARN_SETTING_OFF;
    engine.partial_reuse = TARN_SETTING_ON;
    passes();
    engine.flags |= TARN_ENGINE_PREEMPTS | TARN_ENGINE_QUIESCES;
    passes();
}

static void a_sliding_window_is_refused(void **state)
{
    (void)state;
    format.window_tokens = 512;
    refused("window_tokens (sliding-window attention) is 512", "reader's position",
            "a model without sliding-window layers");
    const struct tarn_group groups[] = { { .id = 0 }, { .id = 1, .window_tokens = 1024 } };
    const struct tarn_layout layout = { .groups = groups, .group_count = 2 };
    assert_int_equal(gate_check_layout(&layout, 1, reason), TARN_UNSUPPORTED);
    assert_non_null(strstr(reason, "is 1024"));
    const struct tarn_layout plain = { .groups = groups, .group_count = 1 };
    assert_int_equal(gate_check_layout(&plain, 1, reason), TARN_OK);
}

static void block_reuse_off_is_refused(void **state)
{
    (void)state;
    engine.flags = 0;
    refused("block reuse (TARN_ENGINE_BLOCK_REUSE) is off", "resume", "turn block reuse on");
}

static void beam_search_is_refused(void **state)
{
    (void)state;
    engine.beam_width_max = 4;
    refused("beam_width_max is 4", "rewrite", "set it to 1");
}

static void a_lower_tier_and_a_pool_exclude_each_other(void **state)
{
    (void)state;
    engine.lower_tier = TARN_SETTING_ON;
    assert_int_equal(gate_check_engine(&engine, false, reason), TARN_UNSUPPORTED);
    assert_non_null(strstr(reason, "the default pool is off"));
    refused("lower_tier (a KV tier below the device) is on", "other addresses",
            "either the pool or the tier");
}

static void preemption_without_quiesce_is_refused(void **state)
{
    (void)state;
    engine.flags |= TARN_ENGINE_PREEMPTS;
    refused("preemption (TARN_ENGINE_PREEMPTS) without TARN_ENGINE_QUIESCES is on",
            "reused under a transfer", "call quiesce()");
}

static void what_is_not_in_pages_or_split_otherwise_is_refused(void **state)
{
    (void)state;
    const struct {
        uint32_t flag;
        const char *option;
    } flags[] = { { TARN_ENGINE_RECURRENT, "recurrent state" },
                  { TARN_ENGINE_STATE_OUTSIDE, "state outside the pages" },
                  { TARN_ENGINE_DRAFT_IN_PAGES, "draft layers in pages" },
                  { TARN_ENGINE_ATTENTION_DP, "attention data parallelism" } };
    for (size_t i = 0; i < LENGTH_OF(flags); i++) {
        engine.flags |= flags[i].flag;
        refused(flags[i].option, " is on: ", "--pool none");
    }
    engine.context_parallel_size = 2;
    refused("context_parallel_size is 2", "slice of a sequence", "set it to 1");
    engine.pipeline_parallel_size = 2;
    refused("pipeline_parallel_size is 2", "not tested", "set it to 1");
}

/* Ranks that share every layer's heads pass; what else they may be is not known, and refused. */
static void ranks_are_tensor_parallel_and_numbered(void **state)
{
    (void)state;
    engine.world_size = engine.tensor_parallel_size = 4;
    engine.rank = 3;
    passes();
    engine.tensor_parallel_size = 2;
    refused("tensor_parallel_size is 2", "not known what a rank's pages", "set both");
    engine.world_size = 2;
    refused("tensor_parallel_size is 1", "not known what a rank's pages", "set both");
    engine.world_size = engine.tensor_parallel_size = 65;
    refused("world_size is 65", "at most 64", "set it to 64");
    engine.rank = 1;
    assert_int_equal(gate_check_engine(&engine, true, reason), TARN_INVALID);
    assert_non_null(strstr(reason, "rank is 1, and world_size 1"));
}

static void pages_by_address_are_refused_with_several_ranks(void **state)
{
    (void)state;
    const struct tarn_group group = { .id = 0 };
    const struct tarn_layout layout = { .groups = &group,
                                        .group_count = 1,
                                        .page_form = TARN_PAGES_BY_ADDRESS };
    assert_int_equal(gate_check_layout(&layout, 1, reason), TARN_OK);
    assert_int_equal(gate_check_layout(&layout, 2, reason), TARN_UNSUPPORTED);
    assert_non_null(strstr(reason, "page_form"));
    assert_non_null(strstr(reason, "by slot"));
}

static enum tarn_status settled(enum tarn_setting tier, enum tarn_setting partial,
                                bool pool_is_named, struct gate_settled *out)
{
    engine.lower_tier = tier;
    engine.partial_reuse = partial;
    return gate_settle(&engine, pool_is_named, out, reason);
}

/* All that an engine's user can have said of tier and partial reuse, with a pool that was named and
 * with the default one. */
static void a_pool_turns_tier_and_partial_reuse_off(void **state)
{
    (void)state;
    struct gate_settled out;
    for (int named = 0; named < 2; named++) {
        for (enum tarn_setting partial = TARN_SETTING_UNSET; partial <= TARN_SETTING_ON;
             partial++) {
            assert_int_equal(settled(TARN_SETTING_UNSET, partial, named, &out), TARN_OK);
            assert_int_equal(out.lower_tier, TARN_SETTING_OFF);
            assert_int_equal(out.partial_reuse, TARN_SETTING_OFF);
            assert_true(out.tier_was_unset);
            assert_int_equal(out.partial_was_on, partial != TARN_SETTING_OFF);
            assert_int_equal(settled(TARN_SETTING_OFF, partial, named, &out), TARN_OK);
            assert_false(out.tier_was_unset);
            assert_int_equal(settled(TARN_SETTING_ON, partial, named, &out),
                             named ? TARN_UNSUPPORTED : TARN_MISS);
            assert_non_null(strstr(reason, named ? "either the pool or the tier, not both"
                                                 : "the default pool is off"));
        }
    }
}

/* A page without the identity of its weights is nobody's. */
static void an_engine_without_model_key_or_format_is_refused(void **state)
{
    (void)state;
    engine.model_key = "";
    assert_int_equal(gate_check_engine(&engine, true, reason), TARN_INVALID);
    assert_non_null(strstr(reason, "model_key is not set"));
    engine.model_key = "m";
    engine.format = NULL;
    assert_int_equal(gate_check_engine(&engine, true, reason), TARN_INVALID);
    assert_non_null(strstr(reason, "format is not set"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_engine_without_peculiarities_passes, setup),
        cmocka_unit_test_setup(a_sliding_window_is_refused, setup),
        cmocka_unit_test_setup(block_reuse_off_is_refused, setup),
        cmocka_unit_test_setup(beam_search_is_refused, setup),
        cmocka_unit_test_setup(a_lower_tier_and_a_pool_exclude_each_other, setup),
        cmocka_unit_test_setup(preemption_without_quiesce_is_refused, setup),
        cmocka_unit_test_setup(what_is_not_in_pages_or_split_otherwise_is_refused, setup),
        cmocka_unit_test_setup(ranks_are_tensor_parallel_and_numbered, setup),
        cmocka_unit_test_setup(pages_by_address_are_refused_with_several_ranks, setup),
        cmocka_unit_test_setup(a_pool_turns_tier_and_partial_reuse_off, setup),
        cmocka_unit_test_setup(an_engine_without_model_key_or_format_is_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
