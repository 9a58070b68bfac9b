/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-mooncake.h - a provider for faults that the real one cannot be made to show: a shared
 * library with Mooncake's functions over a table in memory.
 *
 * What it does wrong is told through fake_mooncake_set(), which the test finds with dlsym(), or
 * through the environment variable FAKE_MOONCAKE when it is loaded in another process: "put=RESULT"
 * (-900), or "hold=FILE": gets wait while there is such a file, then write and return, and if their
 * buffers are not as they were, somebody used them meanwhile, and the process ends with that said.
 * Objects are of the process and outlive the handles. Any thread.
 */
#ifndef TEST_FAKE_MOONCAKE_H
#define TEST_FAKE_MOONCAKE_H

#include <stddef.h>

enum fake_mooncake_knob {
    FAKE_MOONCAKE_PUT,        /* all puts end with this result; 0: as usual; so for the next six */
    FAKE_MOONCAKE_GET,        /* all gets; nothing is written */
    FAKE_MOONCAKE_EXIST,      /* all questions */
    FAKE_MOONCAKE_SETUP,      /* */
    FAKE_MOONCAKE_HEALTH,     /* */
    FAKE_MOONCAKE_REMOVE,     /* */
    FAKE_MOONCAKE_REGISTER,   /* */
    FAKE_MOONCAKE_CREATE,     /* not 0: no handle */
    FAKE_MOONCAKE_GET_WRITES, /* not 0: a get that fails has written the bytes nonetheless */
    FAKE_MOONCAKE_SHORT,      /* gets say they brought so many bytes less than they did */
    FAKE_MOONCAKE_FLIP,       /* puts change the byte at this place, counted from 1 */
    FAKE_MOONCAKE_SILENT,     /* not 0: gets say all is well and write nothing */
    FAKE_MOONCAKE_HOLD,       /* not 0: gets wait, then write and return; until it is 0 again */
    FAKE_MOONCAKE_LATE,       /* gets end with this result, and their bytes are still to come */
    FAKE_MOONCAKE_LAND,       /* set to anything: now they come */
    FAKE_MOONCAKE_PUTS_LEFT,  /* so many puts go well before FAKE_MOONCAKE_PUT counts */
    FAKE_MOONCAKE_SETUP_LATE, /* so many setups time out */
    FAKE_MOONCAKE_FORGET,     /* all buffers are forgotten, once */
    FAKE_MOONCAKE_SCRIBBLE,   /* not 0: a process writes into memory that it was given, on and on */
    FAKE_MOONCAKE_KNOBS
};

typedef void (*fake_mooncake_set_fn)(enum fake_mooncake_knob knob, long value);
/* Objects there are, buffers registered, handles open, and gets that wait. */
typedef size_t (*fake_mooncake_count_fn)(const char *what);

#endif
