/* SPDX-License-Identifier: Apache-2.0 */
/* broken.h - a simulation is worth what it catches: each fault that can be built in must be seen.
 */
#ifndef TEST_BROKEN_H
#define TEST_BROKEN_H

#include "base/base.h"

struct broken_suite {
    const char *const *texts; /* what each fault leaves out; the first is none */
    int count;                /* of texts */
    uint64_t seeds;           /* tried for each, from 1 */
    /* One life with a fault built in. NULL: nothing was seen. */
    const char *(*live)(int broken, uint64_t seed);
};

/* Try every fault in a child of its own, where an assertion may catch it too; the test fails for
 * each that nothing has caught. */
void broken_all_are_caught(const struct broken_suite *suite);

#endif
