/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - which page goes first. Pure.
 *
 * Least recently used; among pages used together the deepest of its chain, because a head without
 * its tail is worth something and a tail without its head nothing. Another policy changes this file
 * alone.
 */
#ifndef STORE_LOCAL_POLICY_H
#define STORE_LOCAL_POLICY_H

#include "store/local/view.h"

/* Whether `a` is to be evicted before `b`. Stamps wrap: a page unused for 2^31 ticks looks new. */
static inline bool policy_goes_before(const struct candidate *a, const struct candidate *b)
{
    const int32_t age = (int32_t)(a->stamp - b->stamp);
    return age < 0 || (age == 0 && a->depth > b->depth);
}

#endif
