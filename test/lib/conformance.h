/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conformance.h - what every store must do, as one cmocka group: src/store/store.h in tests.
 */
#ifndef TEST_CONFORMANCE_H
#define TEST_CONFORMANCE_H

#include "store/store.h"

struct conformance {
    const char *name;
    struct store *(*open)(void); /* once for the whole group; NULL fails it */
    uint64_t object_bytes_max;   /* the largest that is tried */
    uint32_t rounds;             /* of each of the threads that put and get at once */
};

/* Returns the number of cases that failed. The store is closed at the end. */
int conformance_run(const struct conformance *conformance);

#endif
