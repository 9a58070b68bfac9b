/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broken.h - faults that can be built in, for a simulation to show that it catches them.
 *
 * A folder's own broken.h says which, as BROKEN_LIST(X) of X(NAME, what is left out), and includes
 * this. BROKEN(NAME) asks for one where the fault would be. They are compiled in only for the
 * simulation's own copy of the folder (TARN_BROKEN); elsewhere BROKEN() is the constant false.
 */
#ifndef BASE_BROKEN_H
#define BASE_BROKEN_H

#include "base/base.h"

enum broken {
    BROKEN_NOTHING,
#define X(name, text) BROKEN_##name,
    BROKEN_LIST(X)
#undef X
        BROKEN_COUNT
};

#ifdef TARN_BROKEN
extern enum broken broken_now;
#define BROKEN(name) (broken_now == BROKEN_##name)
#else
#define BROKEN(name) false
#endif

#endif
