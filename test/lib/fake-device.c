/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake-device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPIES_MAX = 4096, EVENTS_MAX = 16 };

struct copy {
    void *destination;
    const void *source;
    size_t size_bytes;
    void *stream;
};

enum event_state { EVENT_NEVER, EVENT_RECORDED, EVENT_OVER };

struct fake_event {
    struct fake_device *device;
    enum event_state state;
    enum tarn_status status;
    size_t waiting;
};

struct fake_device {
    struct tarn_device table;
    int32_t home;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct copy copies[COPIES_MAX]; /* begun, not done */
    size_t copy_count;
    size_t begun_count;
    size_t fail_at;
    bool fails_synchronise;
    bool fails_set;
    struct fake_event events[EVENTS_MAX];
    size_t event_count;
};

static _Thread_local int32_t current_device;

static enum tarn_status fake_current(void *context, int32_t *out_device)
{
    (void)context;
    *out_device = current_device;
    return TARN_OK;
}

static enum tarn_status fake_set(void *context, int32_t number)
{
    const struct fake_device *device = context;
    if (device->fails_set)
        return TARN_INVALID;
    current_device = number;
    return TARN_OK;
}

static enum tarn_status fake_event_wait(void *context, void *which)
{
    struct fake_device *device = context;
    struct fake_event *event = which;
    pthread_mutex_lock(&device->lock);
    event->waiting++;
    pthread_cond_broadcast(&device->changed);
    while (event->state == EVENT_RECORDED)
        pthread_cond_wait(&device->changed, &device->lock);
    event->waiting--;
    const enum tarn_status status = event->state == EVENT_OVER ? event->status : TARN_INVALID;
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* Where the CPU finds what the device's address means. */
static void *device_memory(const void *address)
{
    ASSERT((uintptr_t)address >= FAKE_DEVICE_BIAS);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): a device's address is a number to the CPU */
    return (void *)((uintptr_t)address - FAKE_DEVICE_BIAS);
}

static enum tarn_status fake_copy(void *context, void *destination, const void *source,
                                  uint64_t size_bytes, uint32_t direction, void *stream)
{
    struct fake_device *device = context;
    const bool to_host = direction == TARN_COPY_TO_HOST;
    ASSERT(current_device == device->home);
    ASSERT(stream == (to_host ? device->table.save_stream : device->table.load_stream));
    if (!(device->table.flags & TARN_DEVICE_CPU_ACCESS)) {
        ASSERT((uintptr_t)(to_host ? (const void *)destination : source) < FAKE_DEVICE_BIAS);
        if (to_host)
            source = device_memory(source);
        else
            destination = device_memory(destination);
    }
    pthread_mutex_lock(&device->lock);
    const bool fails = device->begun_count++ >= device->fail_at;
    if (!fails) {
        ASSERT(device->copy_count < COPIES_MAX);
        device->copies[device->copy_count++] =
            (struct copy){ destination, source, size_bytes, stream };
    }
    pthread_mutex_unlock(&device->lock);
    return fails ? TARN_IO : TARN_OK;
}

static enum tarn_status fake_synchronise(void *context, void *stream)
{
    struct fake_device *device = context;
    size_t kept = 0;
    ASSERT(current_device == device->home);
    pthread_mutex_lock(&device->lock);
    const bool fails = device->fails_synchronise;
    for (size_t i = 0; i < device->copy_count; i++) {
        const struct copy *copy = &device->copies[i];
        if (copy->stream != stream)
            device->copies[kept++] = *copy;
        else if (!fails)
            memcpy(copy->destination, copy->source, copy->size_bytes);
    }
    device->copy_count = kept;
    pthread_mutex_unlock(&device->lock);
    return fails ? TARN_IO : TARN_OK;
}

struct fake_device *fake_device_create(int32_t home)
{
    struct fake_device *device = calloc(1, sizeof(*device));
    ASSERT(device);
    device->home = home;
    device->fail_at = SIZE_MAX;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->changed, NULL);
    device->table = (struct tarn_device){
        .size = sizeof(device->table),
        .name = "fake device",
        .context = device,
        .save_stream = &device->begun_count,
        .load_stream = &device->copy_count,
        .current = fake_current,
        .set = fake_set,
        .event_wait = fake_event_wait,
        .copy = fake_copy,
        .synchronise = fake_synchronise,
    };
    current_device = home;
    return device;
}

void fake_device_destroy(struct fake_device *device)
{
    current_device = 0;
    if (!device)
        return;
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

const struct tarn_device *fake_device_table(struct fake_device *device)
{
    return &device->table;
}

void fake_device_set_cpu_access(struct fake_device *device, bool has_access)
{
    device->table.flags = has_access ? TARN_DEVICE_CPU_ACCESS : 0;
}

void fake_device_fail_copies(struct fake_device *device, size_t nth)
{
    pthread_mutex_lock(&device->lock);
    device->fail_at = nth == SIZE_MAX ? SIZE_MAX : device->begun_count + nth;
    pthread_mutex_unlock(&device->lock);
}

void fake_device_fail_synchronise(struct fake_device *device, bool fails)
{
    pthread_mutex_lock(&device->lock);
    device->fails_synchronise = fails;
    pthread_mutex_unlock(&device->lock);
}

void fake_device_fail_set(struct fake_device *device, bool fails)
{
    device->fails_set = fails;
}

size_t fake_device_copies(struct fake_device *device)
{
    pthread_mutex_lock(&device->lock);
    const size_t count = device->begun_count;
    pthread_mutex_unlock(&device->lock);
    return count;
}

struct fake_event *fake_event_create(struct fake_device *device)
{
    ASSERT(device->event_count < EVENTS_MAX);
    struct fake_event *event = &device->events[device->event_count++];
    event->device = device;
    return event;
}

void fake_event_record(struct fake_event *event)
{
    pthread_mutex_lock(&event->device->lock);
    event->state = EVENT_RECORDED;
    pthread_mutex_unlock(&event->device->lock);
}

void fake_event_complete(struct fake_event *event, enum tarn_status status)
{
    pthread_mutex_lock(&event->device->lock);
    event->state = EVENT_OVER;
    event->status = status;
    pthread_cond_broadcast(&event->device->changed);
    pthread_mutex_unlock(&event->device->lock);
}

bool fake_event_is_awaited(struct fake_event *event)
{
    struct fake_device *device = event->device;
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&device->lock);
    while (event->waiting == 0 && error == 0)
        error = pthread_cond_timedwait(&device->changed, &device->lock, &until);
    pthread_mutex_unlock(&device->lock);
    return error == 0;
}
