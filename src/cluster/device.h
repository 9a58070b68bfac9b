/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - which network devices a protocol uses.
 *
 * Reads class/infiniband/DEVICE/ports/PORT/{state,link_layer,rate} as the kernel has it in sysfs
 * (Documentation/ABI/stable/sysfs-class-infiniband).
 */
#ifndef CLUSTER_DEVICE_H
#define CLUSTER_DEVICE_H

#include "base/base.h"

enum { DEVICE_NAMES_BYTES = 512, DEVICE_NOTE_BYTES = 512 };

struct device_choice {
    char names[DEVICE_NAMES_BYTES]; /* "mlx5_0,mlx5_1"; empty: the library's own choice */
    char note[DEVICE_NOTE_BYTES];   /* how it came to be, for the log; empty: nothing to say */
    bool is_warning;
};

/* `sysfs` is "/sys" except in tests. `wanted` other than "auto" is taken as it is. With rdma, auto
 * is every device with an active InfiniBand port at the fastest rate there is, in the order of
 * their numbers; none: empty, with a warning. With another protocol it is empty. NO_SPACE: there
 * are more names than fit (logged). */
NODISCARD enum tarn_status device_choose(const char *sysfs, const char *protocol,
                                         const char *wanted, struct device_choice *out_choice);

/* Choose on this host, and log how it came to be. `wanted` may be `out_names`. Fails as
 * device_choose(). */
NODISCARD enum tarn_status device_take(const char *protocol, const char *wanted,
                                       char out_names[DEVICE_NAMES_BYTES]);

#endif
