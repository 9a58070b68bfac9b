/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake-mooncake.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/mooncake/function-list.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    OBJECTS_MAX = 8192,
    BUFFERS_MAX = 256,
    LATE_MAX = 16,
    HANDLES_MAX = 64,
    LENT_MAX = 1024,
    SCRIBBLED_BYTES = 8 << 10
};

struct object {
    char *key;
    uint8_t *bytes;
    size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long knobs[FAKE_MOONCAKE_KNOBS];
static struct object objects[OBJECTS_MAX];
static struct {
    const bool *handle;
    uint8_t *base;
    size_t size;
} buffers[BUFFERS_MAX];
static struct {
    uint8_t *base;
    const uint8_t *bytes; /* of an object that stays */
    size_t size;
} late[LATE_MAX]; /* writes that are to come */
static size_t late_count;
static bool is_registered(const void *base, size_t size);
static bool handles[HANDLES_MAX]; /* that are open */
static struct {
    uint8_t *base;
    size_t size;
} lent[LENT_MAX]; /* what a standalone client gave: shared with its process */
static size_t lent_count;
static pid_t scribbler;
static size_t waiting_count;
static const char *hold_file; /* of the environment */

#define X(name, result, parameters, since) EXPORT result mooncake_store_##name parameters;
MOONCAKE_REQUIRED(X)
#ifndef FAKE_WITHOUT_MULTI
MOONCAKE_OPTIONAL(X)
#endif
#undef X
EXPORT void fake_mooncake_set(enum fake_mooncake_knob knob, long value);
EXPORT size_t fake_mooncake_count(const char *what);

/* As a call that was given up long ago, and is late. */
static void scribble(bool begins)
{
    if (scribbler > 0) {
        (void)kill(scribbler, SIGKILL);
        (void)waitpid(scribbler, NULL, 0);
    }
    scribbler = begins ? fork() : 0;
    if (!begins || scribbler != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t random = 1;; random = random * 1664525 + 1013904223) {
        volatile uint8_t *base = lent[(random >> 8) % lent_count].base;
        base[(random >> 3) % SCRIBBLED_BYTES]++;
    }
}

void fake_mooncake_set(enum fake_mooncake_knob knob, long value)
{
    pthread_mutex_lock(&lock);
    knobs[knob] = value;
    for (size_t i = 0; i < late_count && knob == FAKE_MOONCAKE_LAND; i++) {
        if (is_registered(late[i].base, late[i].size))
            memcpy(late[i].base, late[i].bytes, late[i].size);
    }
    late_count = knob == FAKE_MOONCAKE_LAND ? 0 : late_count;
    if (knob == FAKE_MOONCAKE_SCRIBBLE)
        scribble(value != 0);
    for (size_t i = 0; i < BUFFERS_MAX && knob == FAKE_MOONCAKE_FORGET && value; i++)
        buffers[i].base = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

size_t fake_mooncake_count(const char *what)
{
    size_t count = 0;
    pthread_mutex_lock(&lock);
    if (strcmp(what, "handles") == 0)
        for (size_t i = 0; i < HANDLES_MAX; i++)
            count += handles[i];
    else if (strcmp(what, "waiting") == 0)
        count = waiting_count;
    for (size_t i = 0; i < OBJECTS_MAX && strcmp(what, "objects") == 0; i++)
        count += objects[i].key != NULL;
    for (size_t i = 0; i < BUFFERS_MAX && strcmp(what, "buffers") == 0; i++)
        count += buffers[i].base != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}

__attribute__((constructor)) static void environment_read(void)
{
    const char *text = getenv("FAKE_MOONCAKE");
    if (text && strncmp(text, "put=", 4) == 0)
        knobs[FAKE_MOONCAKE_PUT] = strtol(text + 4, NULL, 10);
    else if (text && strncmp(text, "hold=", 5) == 0)
        hold_file = text + 5;
}

__attribute__((destructor)) static void objects_free(void)
{
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        free(objects[i].key);
        free(objects[i].bytes);
    }
}

/* ---- with the lock held ---- */

static struct object *object_find(const char *key)
{
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        if (objects[i].key && strcmp(objects[i].key, key) == 0)
            return &objects[i];
    }
    return NULL;
}

static bool is_registered(const void *base, size_t size)
{
    const uint8_t *first = base;
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        if (buffers[i].base && first >= buffers[i].base &&
            first + size <= buffers[i].base + buffers[i].size)
            return true;
    }
    return false;
}

static int object_put(const char *key, void **bases, const size_t *sizes, size_t count)
{
    size_t total = 0;
    if (knobs[FAKE_MOONCAKE_PUT] && knobs[FAKE_MOONCAKE_PUTS_LEFT] == 0)
        return (int)knobs[FAKE_MOONCAKE_PUT];
    knobs[FAKE_MOONCAKE_PUTS_LEFT] -= knobs[FAKE_MOONCAKE_PUTS_LEFT] > 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_registered(bases[i], sizes[i]))
            return -600;
        total += sizes[i];
    }
    if (object_find(key))
        return 0; /* as the real one: nothing is written */
    struct object *object = objects;
    while (object < objects + OBJECTS_MAX && object->key)
        object++;
    if (object == objects + OBJECTS_MAX)
        return -200;
    *object = (struct object){ strdup(key), malloc(total + 1), total };
    for (size_t i = 0, at = 0; i < count; at += sizes[i++])
        memcpy(object->bytes + at, bases[i], sizes[i]);
    const size_t flip = (size_t)knobs[FAKE_MOONCAKE_FLIP];
    if (flip > 0 && flip <= total)
        object->bytes[flip - 1] ^= 1;
    return 0;
}

static int64_t object_get(const char *key, void **bases, const size_t *sizes, size_t count,
                          bool is_exact)
{
    size_t total = 0;
    const long result = knobs[FAKE_MOONCAKE_GET];
    if (result && !knobs[FAKE_MOONCAKE_GET_WRITES])
        return result;
    const struct object *object = object_find(key);
    for (size_t i = 0; i < count; i++) {
        if (!is_registered(bases[i], sizes[i]))
            return -600;
        total += sizes[i];
    }
    if (!object)
        return -704;
    if (total < object->size)
        return -600;
    if (is_exact && total > object->size)
        return -800;
    size_t left = object->size;
    for (size_t i = 0, at = 0; i < count && !knobs[FAKE_MOONCAKE_SILENT]; i++) {
        const size_t part = sizes[i] < left ? sizes[i] : left;
        if (!knobs[FAKE_MOONCAKE_LATE])
            memcpy(bases[i], object->bytes + at, part);
        else if (late_count < LATE_MAX) {
            late[late_count].base = bases[i];
            late[late_count].bytes = object->bytes + at;
            late[late_count++].size = part;
        }
        at += part;
        left -= part;
    }
    if (knobs[FAKE_MOONCAKE_LATE])
        return knobs[FAKE_MOONCAKE_LATE];
    return result ? result : (int64_t)object->size - knobs[FAKE_MOONCAKE_SHORT];
}

static uint64_t buffers_hash(void *const *bases, const size_t *sizes, size_t count)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < sizes[i]; j++)
            hash = (hash ^ ((const uint8_t *)bases[i])[j]) * UINT64_C(1099511628211);
    return hash;
}

/* Wait as long as there is the file; nobody writes into the buffers of a call that has not
 * returned. */
static void hold_by_file(void *const *bases, const size_t *sizes, size_t count)
{
    const struct timespec moment = { .tv_nsec = 1000000 };
    const uint64_t hash = buffers_hash(bases, sizes, count);
    while (access(hold_file, F_OK) == 0) {
        pthread_mutex_unlock(&lock);
        (void)nanosleep(&moment, NULL);
        pthread_mutex_lock(&lock);
    }
    if (buffers_hash(bases, sizes, count) == hash)
        return;
    (void)fprintf(stderr, "fake-mooncake: the buffers of a get were used before it returned\n");
    _exit(99);
}

/* Wait as long as the test wants gets to. */
static void hold(void *const *bases, const size_t *sizes, size_t count)
{
    waiting_count++;
    while (knobs[FAKE_MOONCAKE_HOLD])
        pthread_cond_wait(&changed, &lock);
    if (hold_file && access(hold_file, F_OK) == 0)
        hold_by_file(bases, sizes, count);
    waiting_count--;
}

/* ---- the functions ---- */

/* NOLINTBEGIN(readability-function-size): as Mooncake has them */

void *mooncake_store_create(void)
{
    if (knobs[FAKE_MOONCAKE_CREATE])
        return NULL;
    pthread_mutex_lock(&lock);
    size_t place = 0;
    while (place + 1 < HANDLES_MAX && handles[place])
        place++;
    handles[place] = true;
    pthread_mutex_unlock(&lock);
    return &handles[place];
}

void mooncake_store_destroy(void *store)
{
    pthread_mutex_lock(&lock);
    *(bool *)store = false;
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        if (buffers[i].handle == store)
            buffers[i].base = NULL;
    }
    pthread_mutex_unlock(&lock);
}

int mooncake_store_setup(void *store, const char *local_hostname, const char *metadata_server,
                         uint64_t global_segment_size, uint64_t local_buffer_size,
                         const char *protocol, const char *device_name,
                         const char *master_server_address)
{
    (void)store;
    (void)global_segment_size;
    (void)local_buffer_size;
    if (!local_hostname[0] || !metadata_server[0] || !protocol[0] || !device_name ||
        !master_server_address[0])
        return -600;
    if (knobs[FAKE_MOONCAKE_SETUP_LATE] > 0) {
        knobs[FAKE_MOONCAKE_SETUP_LATE]--;
        return -901;
    }
    return (int)knobs[FAKE_MOONCAKE_SETUP];
}

int mooncake_store_health_check(void *store)
{
    (void)store;
    return (int)knobs[FAKE_MOONCAKE_HEALTH];
}

int mooncake_store_batch_put_from(void *store, const char **keys, void **bases, const size_t *sizes,
                                  size_t count, const void *config, int *results)
{
    (void)store;
    (void)config;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        results[i] = object_put(keys[i], &bases[i], &sizes[i], 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

int mooncake_store_batch_get_into(void *store, const char **keys, void **bases, const size_t *sizes,
                                  size_t count, int64_t *results)
{
    (void)store;
    pthread_mutex_lock(&lock);
    hold(bases, sizes, count);
    for (size_t i = 0; i < count; i++)
        results[i] = object_get(keys[i], &bases[i], &sizes[i], 1, false);
    pthread_mutex_unlock(&lock);
    return 0;
}

int mooncake_store_batch_is_exist(void *store, const char **keys, size_t count, int *results)
{
    (void)store;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        results[i] = knobs[FAKE_MOONCAKE_EXIST] ? (int)knobs[FAKE_MOONCAKE_EXIST]
                                                : object_find(keys[i]) != NULL;
    pthread_mutex_unlock(&lock);
    return 0;
}

int mooncake_store_remove(void *store, const char *key, int force)
{
    int result = (int)knobs[FAKE_MOONCAKE_REMOVE];
    (void)store;
    (void)force;
    pthread_mutex_lock(&lock);
    struct object *object = object_find(key);
    if (result == 0 && !object)
        result = -704;
    if (result == 0) {
        free(object->key);
        free(object->bytes);
        *object = (struct object){ .key = NULL };
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int mooncake_store_get_hostname(void *store, char *out_name, size_t name_bytes)
{
    (void)store;
    return snprintf(out_name, name_bytes, "127.0.0.1:1") > 0 ? 0 : -1;
}

#ifndef FAKE_WITHOUT_REGISTER
int mooncake_store_register_buffer(void *store, void *buffer, size_t size)
{
    int result = (int)knobs[FAKE_MOONCAKE_REGISTER];
    pthread_mutex_lock(&lock);
    size_t place = 0;
    while (place < BUFFERS_MAX && buffers[place].base)
        place++;
    if (result == 0 && (place == BUFFERS_MAX || is_registered(buffer, 1)))
        result = -600;
    if (result == 0) {
        buffers[place].handle = store;
        buffers[place].base = buffer;
        buffers[place].size = size;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
#endif

int mooncake_store_unregister_buffer(void *store, void *buffer)
{
    int result = -600;
    (void)store;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        if (buffers[i].base == buffer) {
            buffers[i].base = NULL;
            result = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#ifndef FAKE_WITHOUT_MULTI
int mooncake_store_setup_dummy(void *store, uint64_t mem_pool_size, uint64_t local_buffer_size,
                               const char *address)
{
    (void)store;
    return mem_pool_size && local_buffer_size && address[0] ? (int)knobs[FAKE_MOONCAKE_SETUP] : -1;
}

void *mooncake_store_alloc_from_mem_pool(void *store, size_t size)
{
    (void)store;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_lock(&lock);
    if (memory != MAP_FAILED && lent_count < LENT_MAX) {
        lent[lent_count].base = memory;
        lent[lent_count++].size = size;
    }
    pthread_mutex_unlock(&lock);
    return memory == MAP_FAILED ? NULL : memory;
}

int mooncake_store_batch_put_from_multi_buffers(void *store, const char **keys, void **bases,
                                                const size_t *sizes, const size_t *counts,
                                                size_t count, const void *config, int *results)
{
    (void)store;
    (void)config;
    pthread_mutex_lock(&lock);
    for (size_t i = 0, at = 0; i < count; at += counts[i++])
        results[i] = object_put(keys[i], &bases[at], &sizes[at], counts[i]);
    pthread_mutex_unlock(&lock);
    return 0;
}

int mooncake_store_batch_get_into_multi_buffers(void *store, const char **keys, void **bases,
                                                const size_t *sizes, const size_t *counts,
                                                size_t count, int64_t *results)
{
    size_t buffer_count = 0;
    (void)store;
    for (size_t i = 0; i < count; i++)
        buffer_count += counts[i];
    pthread_mutex_lock(&lock);
    hold(bases, sizes, buffer_count);
    for (size_t i = 0, at = 0; i < count; at += counts[i++])
        results[i] = object_get(keys[i], &bases[at], &sizes[at], counts[i], true);
    pthread_mutex_unlock(&lock);
    return 0;
}

int mooncake_store_version(char *out_text, size_t text_bytes)
{
    return snprintf(out_text, text_bytes, "0.0-fake") > 0 ? 0 : -1;
}

int mooncake_store_failure(char *out_text, size_t text_bytes)
{
    return snprintf(out_text, text_bytes, "the test wants none") > 0 ? 0 : -1;
}
#endif

/* NOLINTEND(readability-function-size) */
