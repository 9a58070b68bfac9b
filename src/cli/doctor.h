/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - `tarn doctor`: looks at all that a server with these options needs, and says what it
 * found in plain words.
 *
 * Each check adds findings; the worst decides the exit status. Checks change nothing but what they
 * say: a pool that is there gets a few small pages, a pool that is not is not made.
 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "base/base.h"
#include "base/text.h"
#include "config/option.h"

enum doctor_result {
    DOCTOR_OK,
    DOCTOR_NOTE,    /* good to know */
    DOCTOR_WARNING, /* works, but not as it should */
    DOCTOR_FAILED,  /* a server with these options would not work */
};

enum { DOCTOR_FINDINGS_MAX = 48, DOCTOR_TEXT_BYTES = 512 };

struct doctor_finding {
    const char *check;
    enum doctor_result result;
    char text[DOCTOR_TEXT_BYTES];
    const char *advice; /* NULL: none */
};

struct doctor {
    const struct options *options;
    const struct pool_option *pool;
    struct doctor_finding findings[DOCTOR_FINDINGS_MAX];
    size_t finding_count;
    char last_error[DOCTOR_TEXT_BYTES]; /* of what was logged between catch and release */
};

/* Add a finding. More than DOCTOR_FINDINGS_MAX are dropped. */
PRINTF_LIKE(5, 6)
void doctor_say(struct doctor *doctor, const char *check, enum doctor_result result,
                const char *advice, const char *format, ...);

/* What is logged goes to doctor->last_error, the last error alone, in place of standard error. */
void doctor_log_catch(struct doctor *doctor);
void doctor_log_release(struct doctor *doctor);

enum doctor_result doctor_worst(const struct doctor *doctor);

/* For people: a line a finding, with its advice below. */
NODISCARD enum tarn_status doctor_print(const struct doctor *doctor, struct text *out);

/* For programs: {"ok": bool, "checks": [{"check", "result", "text", "advice"?}]} */
NODISCARD enum tarn_status doctor_print_json(const struct doctor *doctor, struct text *out);

/* The host (doctor-host.c). */
void doctor_check_memory(struct doctor *doctor);
void doctor_check_shared_memory(struct doctor *doctor, const char *directory,
                                uint64_t wanted_bytes);
void doctor_check_memlock(struct doctor *doctor);
void doctor_check_huge_pages(struct doctor *doctor);
void doctor_check_clock(struct doctor *doctor);

/* Model, port, connector, and pages through it (doctor-pool.c). */
void doctor_check_model(struct doctor *doctor);
void doctor_check_port(struct doctor *doctor);
void doctor_check_pool(struct doctor *doctor);

/* A pool of many hosts (doctor-mooncake.c). False: the options mean none, and a pool on this host
 * is to be looked at. */
bool doctor_check_distributed(struct doctor *doctor, const struct tarn_connector_ops *ops);

/* Save and load through the connector on a pool (NULL: the options' own; size_bytes of one to be
 * made); `where` is what it is called. */
void doctor_probe(struct doctor *doctor, const struct tarn_connector_ops *ops, const char *pool,
                  const char *where);

int doctor_command(int argc, char **argv);

#endif
