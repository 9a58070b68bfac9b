/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.h - which ranks may still touch which page: what the leader of several ranks tells its
 * engine.
 *
 * A page of a load or save is held from the step that plans it until every rank has let go of it,
 * each in its own time: by finishing, or by never beginning. To the engine it is started once, and
 * retired once, when the last rank has let go. A page that all let go of before it was started is
 * not told of. Pure; one thread.
 */
#ifndef CONNECTOR_HOLD_H
#define CONNECTOR_HOLD_H

#include "base/list.h"
#include "base/map.h"
#include "connector/ring.h"
#include "connector/wire.h"

/* The fields of a hold that name it; nothing lies between them. */
struct hold_key {
    uint64_t id;
    uint64_t step_number;
    uint64_t block;
    uint32_t group;
    uint32_t kind; /* enum tarn_transfer_kind */
};

struct hold {
    struct list link; /* in holds.waiting, holds.started or holds.unused */
    struct hold_key key;
    tarn_page page;
    uint64_t ranks; /* one bit a rank that has not let go */
    bool is_started;
};

struct holds {
    uint64_t every_rank; /* one bit a rank */
    struct map map;      /* of all but the unused */
    struct list waiting; /* saves whose forward pass is not over here, in the order of steps */
    struct list started; /* told to the engine */
    struct list unused;  /* kept: after a while none is made any more */
    size_t unused_count;
    struct ring transfers; /* struct tarn_transfer, for the engine */
};

void holds_init(struct holds *holds, uint32_t rank_count);
void holds_deinit(struct holds *holds); /* zeroed is fine */

/* Room for `count` more. */
NODISCARD enum tarn_status holds_reserve(struct holds *holds, size_t count);

/* All ranks hold this page. Room was reserved, and the key is new. A load is started at once, a
 * save by holds_forward(). */
void holds_add(struct holds *holds, const struct hold_key *key, tarn_page page);

/* The forward pass of this step is over here: saves of it, and of steps before it, are started. */
void holds_forward(struct holds *holds, uint64_t step_number);

enum hold_end {
    HOLD_UNKNOWN, /* this rank does not hold it: nothing was changed */
    HOLD_HELD,    /* others still do */
    HOLD_TOLD,    /* retired: holds_take() will say so */
    HOLD_UNTOLD   /* it was never started: nothing will be said of it */
};

/* A rank let go of a page. */
enum hold_end holds_release(struct holds *holds, uint32_t rank, const struct hold_key *key);

/* The other ranks are gone, and their memory with them. Each page that was never started is taken
 * out: call until it says false; *out_id then is whose page it was. */
bool holds_release_others(struct holds *holds, uint32_t rank, uint64_t *out_id);

size_t holds_take(struct holds *holds, struct tarn_transfer *out, size_t capacity);

#endif
