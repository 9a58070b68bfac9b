/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/device.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "connector/abi.h"

static const char *name_of(const struct device *device)
{
    return device->table.name ? device->table.name : "device";
}

enum tarn_status device_init(struct device *device, const struct tarn_device *given)
{
    *device = (struct device){ .captured = 0 };
    if (!given)
        return TARN_OK;
    TRY(abi_copy(&device->table, sizeof(device->table), given));
    const struct tarn_device *table = &device->table;
    if (!table->current || !table->set || !table->event_wait || !table->copy ||
        !table->synchronise) {
        log_error("the layout's device %s lacks a function: current, set, event_wait, copy and "
                  "synchronise are all needed",
                  name_of(device));
        return TARN_INVALID;
    }
    const enum tarn_status status = table->current(table->context, &device->captured);
    if (status == TARN_OK)
        return TARN_OK;
    log_error("%s cannot say which device is current: %s", name_of(device), tarn_strerror(status));
    return TARN_IO;
}

bool device_is_host(const struct device *device)
{
    return device->table.size == 0;
}

bool device_has_cpu_access(const struct device *device)
{
    return device_is_host(device) || (device->table.flags & TARN_DEVICE_CPU_ACCESS) != 0;
}

enum tarn_status device_adopt(const struct device *device)
{
    if (device_is_host(device))
        return TARN_OK;
    const enum tarn_status status = device->table.set(device->table.context, device->captured);
    if (status == TARN_OK)
        return TARN_OK;
    log_error("a transfer thread cannot work on %s %" PRId32 ": %s", name_of(device),
              device->captured, tarn_strerror(status));
    return TARN_IO;
}

enum tarn_status device_event_wait(const struct device *device, void *event)
{
    if (!event)
        return TARN_OK;
    if (device_is_host(device))
        return TARN_UNSUPPORTED; /* an event that nobody can wait for */
    const enum tarn_status status = device->table.event_wait(device->table.context, event);
    if (status != TARN_OK)
        LOG_LIMITED(LOG_WARN, "%s %" PRId32 ": the event of a forward pass failed: %s",
                    name_of(device), device->captured, tarn_strerror(status));
    return status;
}

static void *stream_of(const struct device *device, enum tarn_copy_direction direction)
{
    return direction == TARN_COPY_TO_HOST ? device->table.save_stream : device->table.load_stream;
}

static const char *direction_name(enum tarn_copy_direction direction)
{
    return direction == TARN_COPY_TO_HOST ? "device to host" : "host to device";
}

/* -1: it cannot say. */
static int32_t device_current(const struct device *device)
{
    int32_t current = -1;
    return device->table.current(device->table.context, &current) == TARN_OK ? current : -1;
}

enum tarn_status device_copy(const struct device *device, void *destination, const void *source,
                             uint64_t size_bytes, enum tarn_copy_direction direction)
{
    if (device_is_host(device)) {
        memcpy(destination, source, size_bytes);
        return TARN_OK;
    }
    const enum tarn_status status =
        device->table.copy(device->table.context, destination, source, size_bytes,
                           (uint32_t)direction, stream_of(device, direction));
    if (status == TARN_OK)
        return TARN_OK;
    LOG_LIMITED(LOG_ERROR,
                "%s: a copy %s failed: %s (destination %p, source %p, %" PRIu64
                " bytes, stream %p, current device %" PRId32 ", pages on %" PRId32 ")",
                name_of(device), direction_name(direction), tarn_strerror(status), destination,
                source, size_bytes, stream_of(device, direction), device_current(device),
                device->captured);
    return TARN_IO;
}

enum tarn_status device_synchronise(const struct device *device, enum tarn_copy_direction direction)
{
    if (device_is_host(device))
        return TARN_OK;
    const enum tarn_status status =
        device->table.synchronise(device->table.context, stream_of(device, direction));
    if (status == TARN_OK)
        return TARN_OK;
    LOG_LIMITED(LOG_ERROR,
                "%s: copies %s failed: %s (stream %p, current device %" PRId32 ", pages on %" PRId32
                ")",
                name_of(device), direction_name(direction), tarn_strerror(status),
                stream_of(device, direction), device_current(device), device->captured);
    return TARN_IO;
}
