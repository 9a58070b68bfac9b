/* SPDX-License-Identifier: Apache-2.0 */
/* broken.h - the faults that the simulation of ranks must catch, each one line left out. */
#ifndef CONNECTOR_BROKEN_H
#define CONNECTOR_BROKEN_H

#define BROKEN_LIST(X)                                                                             \
    X(HIT_ON_ONE_RANK, "a hit needs the groups of the leader's rank alone")                        \
    X(VERDICT_BY_MAXIMUM, "the verdict is the most that a rank reported")                          \
    X(VERDICT_BY_FIRST_RANK, "the verdict is what the first rank reported")                        \
    X(RETIRE_BY_FIRST_RANK, "a page is retired when the first rank has let go of it")              \
    X(RUN_BEFORE_VERDICT, "a step is taken in before the verdicts that it builds on")              \
    X(TAKE_STEP_TWICE, "a step that was taken in before is taken in again")                        \
    X(TAKE_STEP_EARLY, "a step is taken in before the one before it")                              \
    X(END_BEFORE_STEP, "a verdict is taken in before the steps that it speaks of")                 \
    X(NO_FAREWELL, "the ranks are not told of a request that ended")                               \
    X(WAIT_FOR_LOST_RANK, "a rank that says nothing is waited for")                                \
    X(WAIT_FOR_LOST_LEADER, "a verdict that does not come is waited for")                          \
    X(KEEP_FAILURE, "a failure is no verdict: the leader keeps it to itself")

#include "base/broken.h"

#endif
