/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-wheel.h - the other side of `tarn bench mooncake`: Mooncake's Python package in a Python of
 * its own, as a program in Python uses it.
 *
 * A child process with a client of the same pool. It is told over a socket what to do, and answers
 * how long the package's one call for it took: what is passed to the call is made before, and what
 * came of it is looked at after. Its memory is registered and resident. One thread, the main one
 * (os/process.h).
 */
#ifndef CLI_BENCH_WHEEL_H
#define CLI_BENCH_WHEEL_H

#include "os/process.h"
#include "store/mooncake/options.h"

enum { WHEEL_VERSION_BYTES = 64 };

struct wheel {
    struct process process;
    int fd; /* below 0: there is none */
    char buffer[4096];
    size_t buffer_bytes;
    char version[WHEEL_VERSION_BYTES]; /* of the package; empty: it does not say */
};

struct wheel_options {
    const char *python;       /* the program; NULL: python3 on the PATH */
    char *const *environment; /* of its process */
    const struct mooncake_options *client;
    const char *space;     /* keys are SPACE/NUMBER, the number as 32 hexadecimal digits */
    uint64_t memory_bytes; /* half of it to put from, half to get into; whole MiB */
};

/* What it is asked for. */
enum wheel_work { WHEEL_PUT, WHEEL_GET, WHEEL_EXISTS, WHEEL_REMOVE };

/* Start it, and wait until it has joined. UNSUPPORTED, IO: logged. On failure wheel_stop() is still
 * due. Outcomes: AGAIN (told to end). */
NODISCARD enum tarn_status wheel_start(const struct wheel_options *options,
                                       struct wheel *out_wheel);

/* Do it to `count` keys from number `first` on, with pages of `page_bytes`; all of them have to
 * succeed. IO: logged. Outcomes: AGAIN. */
NODISCARD enum tarn_status wheel_do(struct wheel *wheel, enum wheel_work work, uint64_t first,
                                    uint32_t count, uint64_t page_bytes, double *out_seconds);

void wheel_stop(struct wheel *wheel);

#endif
