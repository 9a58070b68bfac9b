/* SPDX-License-Identifier: Apache-2.0 */
/* What tarn.h offers an engine before it opens a connector. */
#include "base/log.h"
#include "connector/abi.h"
#include "connector/gate.h"

enum tarn_status tarn_engine_settle(struct tarn_engine_desc *engine, int pool_is_named)
{
    char reason[GATE_REASON_BYTES];
    struct tarn_engine_desc known;
    struct gate_settled settled;
    TRY(abi_copy(&known, sizeof(known), engine));
    if (engine->size <
        offsetof(struct tarn_engine_desc, partial_reuse) + sizeof(known.partial_reuse))
        return TARN_INVALID;
    const enum tarn_status status = gate_settle(&known, pool_is_named != 0, &settled, reason);
    if (status != TARN_OK) {
        const char *name = known.name ? known.name : "this engine";
        if (status == TARN_MISS)
            log_info("no pool for %s: %s", name, reason);
        else
            log_error("the pool is refused for %s: %s", name, reason);
        return status;
    }
    if (settled.tier_was_unset)
        log_info("lower_tier is off while a pool is attached: moving pages between tiers gives "
                 "them other addresses than were registered");
    if (settled.partial_was_on)
        log_info("partial_reuse is off while a pool is attached: matches end on a block's end");
    engine->lower_tier = settled.lower_tier;
    engine->partial_reuse = settled.partial_reuse;
    return TARN_OK;
}
