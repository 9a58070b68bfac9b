/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor-probe.h - pages written and read back through a whole connector: one engine saves a few
 * blocks that nobody saved before, another loads them and compares every byte.
 */
#ifndef CLI_DOCTOR_PROBE_H
#define CLI_DOCTOR_PROBE_H

#include "base/base.h"

enum { PROBE_REASON_BYTES = 256 };

struct probe_result {
    uint32_t block_count;
    uint64_t bytes;
    uint64_t save_ns;
    uint64_t load_ns;
    char reason[PROBE_REASON_BYTES]; /* what went wrong */
};

/* `options` as open() takes them. Not OK: out_result->reason says at which step. The pages stay in
 * the pool and age out. */
NODISCARD enum tarn_status probe_connector(const struct tarn_connector_ops *ops,
                                           const struct tarn_connector_options *options,
                                           struct probe_result *out_result);

#endif
