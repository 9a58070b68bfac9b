/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/rank-pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/digest.h"
#include "store/local/pool.h"
#include "store/mooncake/client.h"
#include "store/mooncake/header.h"
#include "store/mooncake/mooncake.h"

enum { BLOCKS_MAX = 64, KEY_BYTES_MAX = 600, CHILD_SECONDS = 120 };

static char folder[64];
static char path[80];

/* A page, or several of a namespace, and what is to be done with them. */
struct task {
    const char *const *spaces;
    size_t space_count;
    const struct tarn_digest *digests;
    uint32_t count;
    const uint8_t *bytes;
    size_t size_bytes;
};

static bool done_in_a_child(bool (*work)(const struct task *task), struct task task)
{
    int result = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(CHILD_SECONDS);
        _exit(work(&task) ? 0 : 1);
    }
    return child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result) &&
           WEXITSTATUS(result) == 0;
}

bool rank_pool_init(void)
{
    (void)snprintf(folder, sizeof(folder), "/dev/shm/tarn-ranks-XXXXXX");
    if (!mkdtemp(folder))
        return false;
    (void)snprintf(path, sizeof(path), "%s/pool", folder);
    return true;
}

bool rank_pool_deinit(void)
{
    (void)unlink(path);
    return rmdir(folder) == 0;
}

bool rank_pool_is_far(void)
{
    return getenv("TARN_MOONCAKE_POOL") != NULL;
}

static enum tarn_status far_options(uint64_t lent_bytes, struct mooncake_options *out_options)
{
    TRY(mooncake_options_read(getenv("TARN_MOONCAKE_POOL"), out_options));
    out_options->global_segment_bytes = lent_bytes;
    out_options->local_buffer_bytes = UINT64_C(16) << 20;
    return TARN_OK;
}

enum tarn_status rank_pool_open(uint64_t lent_bytes, struct store **out_store)
{
    const struct pool_options near = { .path = path, .size_bytes = 64 << 20 };
    struct mooncake_options far;
    if (!rank_pool_is_far())
        return pool_open(&near, out_store);
    TRY(far_options(lent_bytes, &far));
    return mooncake_open(&far, out_store);
}

static bool space_look(struct store *store, const char *space, const struct task *task)
{
    struct store_key keys[BLOCKS_MAX];
    bool present[BLOCKS_MAX] = { false };
    uint32_t index = 0;
    bool has_all = true;
    if (task->count > BLOCKS_MAX || store_namespace(store, space, &index) != TARN_OK)
        return false;
    for (uint32_t i = 0; i < task->count; i++)
        keys[i] = (struct store_key){ task->digests[i], index, i };
    if (store_exists(store, keys, task->count, present) != TARN_OK)
        return false;
    for (uint32_t i = 0; i < task->count; i++) {
        if (!present[i])
            (void)fprintf(stderr, "# block %u is not there: %s\n", i, space);
        has_all = has_all && present[i];
    }
    return has_all;
}

static bool pages_look(const struct task *task)
{
    struct store *store;
    bool has_all = true;
    if (rank_pool_open(0, &store) != TARN_OK)
        return false;
    for (size_t i = 0; i < task->space_count; i++)
        has_all = space_look(store, task->spaces[i], task) && has_all;
    store_close(store);
    return has_all;
}

bool rank_pool_has(const char *const *spaces, size_t space_count, const struct tarn_digest *digests,
                   uint32_t count)
{
    return done_in_a_child(pages_look,
                           (struct task){ spaces, space_count, digests, count, NULL, 0 });
}

/* ---- the local pool ---- */

static bool near_lose(const struct task *task)
{
    struct store *store;
    struct store_key key = { .digest = *task->digests };
    if (rank_pool_open(0, &store) != TARN_OK ||
        store_namespace(store, task->spaces[0], &key.namespace_index) != TARN_OK)
        return false;
    const enum tarn_status status = store_remove(store, &key);
    store_close(store);
    return status == TARN_OK;
}

/* Every page with these bytes, also those that other tests left. */
static bool near_damage(const struct task *task)
{
    struct stat stat = { 0 };
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0)
        return false;
    const size_t pool_bytes = (size_t)stat.st_size;
    uint8_t *pool = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    size_t found_count = 0;
    for (uint8_t *found = pool; pool != MAP_FAILED && found; found_count += found != NULL) {
        found = memmem(found, pool_bytes - (size_t)(found - pool), task->bytes, task->size_bytes);
        if (found)
            found[task->size_bytes / 2] ^= 4;
    }
    return found_count > 0;
}

/* ---- Mooncake's: past Tarn's store, as another program could ---- */

/* Leases hold nothing here: it is forced. */
static bool object_remove(const struct client *client, const struct task *task,
                          char out_key[KEY_BYTES_MAX])
{
    char hex[DIGEST_HEX_BYTES];
    digest_to_hex(task->digests, hex);
    (void)snprintf(out_key, KEY_BYTES_MAX, "%s/%s", task->spaces[0], hex);
    return client->provider.functions.remove(client->handle, out_key, 1) == 0;
}

static bool far_client(struct client *out_client)
{
    struct mooncake_options options;
    if (far_options(0, &options) != TARN_OK)
        return false;
    options.is_consumer = true;
    return client_open(&options, out_client) == TARN_OK;
}

static bool far_lose(const struct task *task)
{
    struct client client;
    char key[KEY_BYTES_MAX];
    if (!far_client(&client))
        return false;
    const bool is_gone = object_remove(&client, task, key);
    client_close(&client);
    return is_gone;
}

/* The header that it has had, and other bytes. */
static bool object_put(const struct client *client, const struct task *task, const char *key,
                       uint8_t *object)
{
    void *buffer = object;
    const size_t object_bytes = HEADER_BYTES + task->size_bytes;
    const struct tarn_span span = { object + HEADER_BYTES, task->size_bytes };
    int result = -1;
    memcpy(span.base, task->bytes, task->size_bytes);
    header_write(key, &span, 1, object);
    object[HEADER_BYTES + task->size_bytes / 2] ^= 4;
    return client->provider.functions.batch_put_from(client->handle, &key, &buffer, &object_bytes,
                                                     1, NULL, &result) == 0 &&
           result == 0;
}

static bool far_damage(const struct task *task)
{
    struct client client;
    char key[KEY_BYTES_MAX];
    void *object = NULL;
    const size_t size = HEADER_BYTES + task->size_bytes;
    if (!far_client(&client))
        return false;
    bool is_good =
        object_remove(&client, task, key) && client_memory_take(&client, size, &object) == TARN_OK;
    is_good = is_good && object_put(&client, task, key, object);
    client_memory_drop(&client, object, size);
    client_stop(&client);
    client_memory_free(&client, object);
    client_close(&client);
    return is_good;
}

bool rank_pool_lose(const char *space, const struct tarn_digest *digest)
{
    return done_in_a_child(rank_pool_is_far() ? far_lose : near_lose,
                           (struct task){ &space, 1, digest, 1, NULL, 0 });
}

bool rank_pool_damage(const char *space, const struct tarn_digest *digest, const uint8_t *bytes,
                      size_t size_bytes)
{
    return done_in_a_child(rank_pool_is_far() ? far_damage : near_damage,
                           (struct task){ &space, 1, digest, 1, bytes, size_bytes });
}
