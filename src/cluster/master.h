/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master.h - a mooncake_master that this process runs: started, waited for, watched, stopped.
 *
 * It ends with the thread that started it (os/process.h), so that is the main thread. Afterwards
 * one thread at a time.
 */
#ifndef CLUSTER_MASTER_H
#define CLUSTER_MASTER_H

#include <limits.h>

#include "base/base.h"
#include "os/process.h"
#include "store/mooncake/address.h"

enum { MASTER_LAST_LINES = 20 };

struct master_options {
    const char *program; /* NULL: TARN_MOONCAKE_MASTER, PATH, the wheel */
    char *const *environment;
    const char *log_path;
    const char *listen; /* address of this host, for both ports; NULL, 0.0.0.0, ::: all of them */
    uint16_t rpc_port;
    uint16_t http_port;
    uint32_t eviction_millionths;
    uint64_t timeout_ms;
};

struct master {
    struct process process;
    char program[PATH_MAX];
    char log_path[PATH_MAX];
    bool is_started;
    bool is_mourned; /* it ended by itself, and that was logged */
};

/* Start it and wait until it accepts connections. IO, UNSUPPORTED (there is no such program):
 * logged; of one that ended, how, and its log's last MASTER_LAST_LINES lines. Outcomes: AGAIN (told
 * to end; logged). Nothing is left running unless OK. */
NODISCARD enum tarn_status master_start(const struct master_options *options,
                                        struct master *out_master);

/* In words, for the log. Pure. */
const char *master_place(const char *listen);

/* Where this host reaches a master that listens there (NULL: on all addresses). Pure. */
const char *master_near(const char *listen);

/* HOST:PORT that others find it at: HOST is `wanted` if it is not NULL, else the address that it
 * listens on, else, of a master that listens on all, that of the default route. INVALID: logged. */
NODISCARD enum tarn_status master_address(const struct master_options *options, const char *wanted,
                                          char out_text[ADDRESS_TEXT_BYTES_MAX + 1]);

/* Whether it ended by itself; logged with its last words, once. */
bool master_has_ended(struct master *master);

/* Let it end, for 10 s, then kill it. Zeroed is fine. */
void master_stop(struct master *master);

/* The program that would be run. UNSUPPORTED: logged, with the places that were tried. */
NODISCARD enum tarn_status master_find(const char *program, char *const *environment,
                                       char out_path[PATH_MAX]);

#endif
