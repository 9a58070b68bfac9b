/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - refuse at start what could give a wrong answer later.
 *
 * Each refusal names the option, its value, why, and what to set instead. Pure.
 */
#ifndef CONNECTOR_GATE_H
#define CONNECTOR_GATE_H

#include "base/base.h"

enum { GATE_REASON_BYTES = 512, GATE_RANKS_MAX = 64 };

/* `engine` is complete. UNSUPPORTED: refused; INVALID: something mandatory is missing. Either way
 * `out_reason` has one sentence. pool_is_named: by the user, not this host's default. */
NODISCARD enum tarn_status gate_check_engine(const struct tarn_engine_desc *engine,
                                             bool pool_is_named,
                                             char out_reason[GATE_REASON_BYTES]);

/* What a pool turns off in an engine's own cache. */
struct gate_settled {
    enum tarn_setting lower_tier;
    enum tarn_setting partial_reuse;
    bool tier_was_unset; /* so that turning it off is said */
    bool partial_was_on; /* or unset */
};

/* As tarn_engine_settle(). Not OK: out_reason is set. Outcomes: MISS. UNSUPPORTED. */
NODISCARD enum tarn_status gate_settle(const struct tarn_engine_desc *engine, bool pool_is_named,
                                       struct gate_settled *out_settled,
                                       char out_reason[GATE_REASON_BYTES]);

/* Of a layout that has been checked, on each of so many ranks. */
NODISCARD enum tarn_status gate_check_layout(const struct tarn_layout *layout, uint32_t rank_count,
                                             char out_reason[GATE_REASON_BYTES]);

#endif
