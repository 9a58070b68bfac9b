/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absent.h - keys that this process treats as absent whatever the store says: those whose get
 * failed, for 15 s, and those that failed verification, until they have been saved again.
 *
 * Holds the last ABSENT_MAX of them. Pure, allocates at the start only; one thread.
 */
#ifndef CONNECTOR_ABSENT_H
#define CONNECTOR_ABSENT_H

#include "base/map.h"

#define ABSENT_NS UINT64_C(15000000000)

enum { ABSENT_MAX = 1024, ABSENT_KEY_BYTES = 20 };

struct absent_entry {
    uint8_t key[ABSENT_KEY_BYTES];
    uint64_t until_ns; /* 0: a free place */
};

struct absent {
    struct map map;
    struct absent_entry *entries;
    size_t next; /* the oldest place */
};

NODISCARD enum tarn_status absent_init(struct absent *absent);
void absent_deinit(struct absent *absent); /* zeroed is fine */

/* until_ns UINT64_MAX: until absent_remove(). */
void absent_add(struct absent *absent, const struct tarn_digest *digest, uint32_t group,
                uint64_t until_ns);
void absent_remove(struct absent *absent, const struct tarn_digest *digest, uint32_t group);
bool absent_has(const struct absent *absent, const struct tarn_digest *digest, uint32_t group,
                uint64_t now_ns);

#endif
