/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - the memory that pages lie in: the engine's table of functions, or host memory.
 *
 * The device that was current in the thread that registered the pages is captured, and adopted by
 * each thread that copies: a thread's current device is its own and starts at 0. Constant after
 * device_init(); what fails is logged here, with everything that tells which copy it was.
 */
#ifndef CONNECTOR_DEVICE_H
#define CONNECTOR_DEVICE_H

#include "base/base.h"

struct device {
    struct tarn_device table; /* all zero: host memory */
    int32_t captured;
};

/* `given` NULL: host memory. INVALID: a function is missing; IO: it cannot say what is current. */
NODISCARD enum tarn_status device_init(struct device *device, const struct tarn_device *given);

bool device_is_host(const struct device *device);
bool device_has_cpu_access(const struct device *device);

/* Make the calling thread work on the captured device. IO. */
NODISCARD enum tarn_status device_adopt(const struct device *device);

/* Wait for what was recorded in `event`; NULL: it is over. Any other status: it never will be. */
NODISCARD enum tarn_status device_event_wait(const struct device *device, void *event);

/* Begin a copy; both ends stay until device_synchronise() of the direction. IO. */
NODISCARD enum tarn_status device_copy(const struct device *device, void *destination,
                                       const void *source, uint64_t size_bytes,
                                       enum tarn_copy_direction direction);
/* Wait for the copies of one direction. IO: each of them may have failed. */
NODISCARD enum tarn_status device_synchronise(const struct device *device,
                                              enum tarn_copy_direction direction);

#endif
