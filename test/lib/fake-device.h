/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-device.h - a device as an unkind one behaves. Its addresses are no addresses of the CPU;
 * each thread's current device starts at 0; copies happen at synchronise() and not before; copies,
 * synchronise() and events fail when told to, and events complete when told to.
 *
 * A copy by a thread whose current device is not the pages', or in a direction that its ends do not
 * have, ends the test. Any thread may call.
 */
#ifndef TEST_FAKE_DEVICE_H
#define TEST_FAKE_DEVICE_H

#include "base/base.h"

/* Memory on the device lies this far from where a test finds it; not in a process's range. */
#define FAKE_DEVICE_BIAS (UINT64_C(1) << 62)

struct fake_device;

/* The pages' device is the number `home`, which becomes current in this thread alone. */
struct fake_device *fake_device_create(int32_t home);
void fake_device_destroy(struct fake_device *device); /* NULL is fine; current becomes 0 */
const struct tarn_device *fake_device_table(struct fake_device *device);

void fake_device_set_cpu_access(struct fake_device *device, bool has_access);
/* Copies `nth` (from 0, counted from now) and later fail; SIZE_MAX: none. */
void fake_device_fail_copies(struct fake_device *device, size_t nth);
void fake_device_fail_synchronise(struct fake_device *device, bool fails);
void fake_device_fail_set(struct fake_device *device, bool fails);
size_t fake_device_copies(struct fake_device *device); /* begun */

/* An event that was not recorded: waiting fails. */
struct fake_event;
struct fake_event *fake_event_create(struct fake_device *device); /* freed with the device */
void fake_event_record(struct fake_event *event); /* waiting waits for one of these: */
void fake_event_complete(struct fake_event *event, enum tarn_status status);
/* Wait until a thread waits for it; false after 10 s. */
bool fake_event_is_awaited(struct fake_event *event);

#endif
