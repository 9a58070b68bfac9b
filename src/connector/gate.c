/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/gate.h"

#include <inttypes.h>
#include <stdio.h>

static enum tarn_status refuse_setting(char reason[GATE_REASON_BYTES], const char *option,
                                       bool is_on, const char *why, const char *instead)
{
    (void)snprintf(reason, GATE_REASON_BYTES, "%s is %s: %s; %s", option, is_on ? "on" : "off", why,
                   instead);
    return TARN_UNSUPPORTED;
}

static enum tarn_status refuse(char reason[GATE_REASON_BYTES], const char *option, uint64_t value,
                               const char *why, const char *instead)
{
    (void)snprintf(reason, GATE_REASON_BYTES, "%s is %" PRIu64 ": %s; %s", option, value, why,
                   instead);
    return TARN_UNSUPPORTED;
}

#define WITHOUT_POOL "or run without a pool (--pool none)"

static enum tarn_status windows_check(uint32_t window_tokens, char reason[GATE_REASON_BYTES])
{
    if (window_tokens == 0)
        return TARN_OK;
    return refuse(reason, "window_tokens (sliding-window attention)", window_tokens,
                  "whether such a page is valid depends on the reader's position",
                  "use a model without sliding-window layers, " WITHOUT_POOL);
}

struct gate_flag {
    uint32_t flag;
    bool refused_when_set;
    const char *option;
    const char *why;
    const char *instead;
};

static const struct gate_flag gate_flags[] = {
    { TARN_ENGINE_BLOCK_REUSE, false, "block reuse (TARN_ENGINE_BLOCK_REUSE)",
      "the engine cannot resume from pages that it did not compute itself",
      "turn block reuse on, " WITHOUT_POOL },
    { TARN_ENGINE_RECURRENT, true, "recurrent state (TARN_ENGINE_RECURRENT)",
      "the state at a block boundary is not in the pages",
      "use a model of attention layers only, " WITHOUT_POOL },
    { TARN_ENGINE_STATE_OUTSIDE, true, "state outside the pages (TARN_ENGINE_STATE_OUTSIDE)",
      "restored pages, such as index keys, would meet stale state of another sequence, such as "
      "index values",
      "keep that state in registered pages, " WITHOUT_POOL },
    { TARN_ENGINE_DRAFT_IN_PAGES, true, "draft layers in pages (TARN_ENGINE_DRAFT_IN_PAGES)",
      "this geometry is not tested", "turn speculative decoding off, " WITHOUT_POOL },
    { TARN_ENGINE_ATTENTION_DP, true, "attention data parallelism (TARN_ENGINE_ATTENTION_DP)",
      "each owner schedules by itself, so that ranks would not agree",
      "turn attention data parallelism off, " WITHOUT_POOL },
};

static enum tarn_status flags_check(const struct tarn_engine_desc *engine,
                                    char reason[GATE_REASON_BYTES])
{
    for (size_t i = 0; i < LENGTH_OF(gate_flags); i++) {
        const struct gate_flag *row = &gate_flags[i];
        const bool is_set = (engine->flags & row->flag) != 0;
        if (is_set == row->refused_when_set)
            return refuse_setting(reason, row->option, is_set, row->why, row->instead);
    }
    if ((engine->flags & TARN_ENGINE_PREEMPTS) && !(engine->flags & TARN_ENGINE_QUIESCES))
        return refuse_setting(
            reason, "preemption (TARN_ENGINE_PREEMPTS) without TARN_ENGINE_QUIESCES", true,
            "pages of a preempted request would be reused under a transfer",
            "call quiesce() before pages are given up, turn preemption off, " WITHOUT_POOL);
    return TARN_OK;
}

static enum tarn_status parallel_check(const struct tarn_engine_desc *engine,
                                       char reason[GATE_REASON_BYTES])
{
    const struct {
        uint32_t value;
        const char *option;
        const char *why;
        const char *instead;
    } rows[] = {
        { engine->context_parallel_size, "context_parallel_size",
          "a rank holds a slice of a sequence: one key would name different bytes",
          "set it to 1, " WITHOUT_POOL },
        { engine->pipeline_parallel_size, "pipeline_parallel_size",
          "this is not tested, though nothing is known against it", "set it to 1, " WITHOUT_POOL },
        { engine->beam_width_max, "beam_width_max",
          "beams share pages and rewrite them while a save may read them",
          "set it to 1, " WITHOUT_POOL },
    };
    for (size_t i = 0; i < LENGTH_OF(rows); i++) {
        if (rows[i].value > 1)
            return refuse(reason, rows[i].option, rows[i].value, rows[i].why, rows[i].instead);
    }
    return TARN_OK;
}

/* What several ranks are, apart from what was refused above: each has its heads of every layer. */
static enum tarn_status ranks_check(const struct tarn_engine_desc *engine,
                                    char reason[GATE_REASON_BYTES])
{
    const uint32_t world_size = engine->world_size ? engine->world_size : 1;
    const uint32_t tensor_size = engine->tensor_parallel_size ? engine->tensor_parallel_size : 1;
    if (world_size > GATE_RANKS_MAX)
        return refuse(reason, "world_size", world_size, "a leader hears at most 64 ranks",
                      "set it to 64 or less, " WITHOUT_POOL);
    if (tensor_size != world_size)
        return refuse(reason, "tensor_parallel_size", tensor_size,
                      "world_size is another number, so that it is not known what a rank's pages "
                      "hold",
                      "set both to the number of ranks, " WITHOUT_POOL);
    if (engine->rank >= world_size) {
        (void)snprintf(reason, GATE_REASON_BYTES,
                       "rank is %" PRIu32 ", and world_size %" PRIu32
                       ": ranks count from 0; set rank below world_size",
                       engine->rank, world_size);
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status tier_check(const struct tarn_engine_desc *engine, bool pool_is_named,
                                   char reason[GATE_REASON_BYTES])
{
    if (engine->lower_tier != TARN_SETTING_ON)
        return TARN_OK;
    return refuse_setting(
        reason, "lower_tier (a KV tier below the device)", true,
        "moving pages between tiers gives them other addresses than were registered",
        pool_is_named ? "set either the pool or the tier, not both"
                      : "the default pool is off; to use it, do without the tier");
}

enum tarn_status gate_settle(const struct tarn_engine_desc *engine, bool pool_is_named,
                             struct gate_settled *out_settled, char out_reason[GATE_REASON_BYTES])
{
    struct gate_settled settled = { .lower_tier = TARN_SETTING_OFF,
                                    .partial_reuse = TARN_SETTING_OFF };
    const enum tarn_status status = tier_check(engine, pool_is_named, out_reason);
    if (status != TARN_OK)
        return pool_is_named ? status : TARN_MISS;
    settled.tier_was_unset = engine->lower_tier == TARN_SETTING_UNSET;
    settled.partial_was_on = engine->partial_reuse != TARN_SETTING_OFF;
    *out_settled = settled;
    return TARN_OK;
}

enum tarn_status gate_check_engine(const struct tarn_engine_desc *engine, bool pool_is_named,
                                   char out_reason[GATE_REASON_BYTES])
{
    if (!engine->model_key || !engine->model_key[0]) {
        (void)snprintf(out_reason, GATE_REASON_BYTES,
                       "model_key is not set: without the identity of the weights pages of "
                       "different models would be confused; set it (--model-key)");
        return TARN_INVALID;
    }
    if (!engine->format) {
        (void)snprintf(out_reason, GATE_REASON_BYTES,
                       "format is not set: without it pages of one length but another meaning "
                       "would be confused; describe the pages");
        return TARN_INVALID;
    }
    TRY(flags_check(engine, out_reason));
    TRY(parallel_check(engine, out_reason));
    TRY(ranks_check(engine, out_reason));
    TRY(windows_check(engine->format->window_tokens, out_reason));
    return tier_check(engine, pool_is_named, out_reason);
}

enum tarn_status gate_check_layout(const struct tarn_layout *layout, uint32_t rank_count,
                                   char out_reason[GATE_REASON_BYTES])
{
    if (rank_count > 1 && layout->page_form == TARN_PAGES_BY_ADDRESS)
        return refuse(out_reason, "page_form (TARN_PAGES_BY_ADDRESS)", layout->page_form,
                      "the leader names pages for all ranks, and an address means nothing in "
                      "another process",
                      "name pages by slot, " WITHOUT_POOL);
    for (size_t i = 0; i < layout->group_count; i++)
        TRY(windows_check(layout->groups[i].window_tokens, out_reason));
    return TARN_OK;
}
