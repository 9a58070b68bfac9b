/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/mooncake.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/crew.h"
#include "store/mooncake/batch.h"
#include "store/mooncake/client.h"
#include "store/mooncake/result.h"
#include "store/names.h"

enum {
    RESULT_BYTES = 64,
    SHARED_BYTES_MIN = 1 << 20, /* of a batch whose bytes several threads look at */
};

#define RDMA_RANGE_BYTES_MAX (UINT64_C(1) << 40) /* Mooncake's default for MC_MAX_MR_SIZE */

struct mooncake_store {
    struct store base;
    struct client client;
    pid_t process;
    struct batch_pool gets;
    struct batch_pool puts;
    struct batch_pool asks;
    struct crew crew;
    _Atomic uint64_t lease_count;
    pthread_mutex_t names_lock; /* guards adding names; innermost */
    struct names names;
};

static struct mooncake_store *mooncake(struct store *store)
{
    return (struct mooncake_store *)(void *)store;
}

static bool is_dead(const struct mooncake_store *store)
{
    return store->process != getpid();
}

static const struct mooncake_functions *functions_of(const struct mooncake_store *store)
{
    return &store->client.provider.functions;
}

/* ---- namespaces ---- */

static enum tarn_status mooncake_intern(struct store *base, const char *text, uint32_t *out_index)
{
    struct mooncake_store *store = mooncake(base);
    if (is_dead(store) || text[0] == '\0' || strlen(text) > STORE_NAMESPACE_BYTES_MAX)
        return TARN_INVALID;
    (void)pthread_mutex_lock(&store->names_lock);
    const enum tarn_status status = names_add(&store->names, text, NAMES_MAX, out_index);
    (void)pthread_mutex_unlock(&store->names_lock);
    if (status == TARN_NO_SPACE)
        log_warn("mooncake: a process can use %d namespaces of a pool, and this one does",
                 NAMES_MAX);
    return status;
}

/* ---- registration ---- */

static enum tarn_status mooncake_register(struct store *base, void *memory, size_t size)
{
    struct mooncake_store *store = mooncake(base);
    struct rlimit limit = { 0 };
    char text[RESULT_BYTES];
    if (is_dead(store))
        return TARN_INVALID;
    if (!store->base.traits.must_register)
        return TARN_OK;
    const int result = functions_of(store)->register_buffer(store->client.handle, memory, size);
    if (result == 0)
        return TARN_OK;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    log_error("mooncake: %zu bytes of memory at %p cannot be registered: %s; memory that may be "
              "locked (ulimit -l): %" PRIu64 " bytes",
              size, memory, result_print(result, text, sizeof(text)), (uint64_t)limit.rlim_cur);
    return result == MOONCAKE_INVALID ? TARN_INVALID
           : limit.rlim_cur < size    ? TARN_NO_SPACE
                                      : TARN_IO;
}

static void mooncake_unregister(struct store *base, void *memory)
{
    struct mooncake_store *store = mooncake(base);
    char text[RESULT_BYTES];
    if (is_dead(store) || !store->client.handle || !store->base.traits.must_register)
        return;
    const int result = functions_of(store)->unregister_buffer(store->client.handle, memory);
    if (result != 0)
        log_warn("mooncake: memory at %p cannot be unregistered: %s", memory,
                 result_print(result, text, sizeof(text)));
}

/* ---- asking ---- */

/* Ask for the keys of a batch. IO: not answered, which is counted and said. */
static enum tarn_status batch_ask(struct mooncake_store *store, struct batch *batch)
{
    char text[RESULT_BYTES];
    for (size_t i = 0; i < batch->count; i++)
        batch->results[i] = MOONCAKE_RPC_FAILED;
    int result = functions_of(store)->batch_is_exist(store->client.handle, batch->keys,
                                                     batch->count, batch->results);
    for (size_t i = 0; i < batch->count && result >= 0; i++) {
        if (batch->results[i] < 0) {
            metric_add(METRIC_STORE_ASK_FAILED, 1);
            if (result_is_rpc(batch->results[i]) || batch->results[i] == MOONCAKE_FAILED)
                result = batch->results[i];
        }
    }
    if (result >= 0)
        return TARN_OK;
    LOG_LIMITED(LOG_WARN, "mooncake: the pool does not say what is there: %s",
                result_print(result, text, sizeof(text)));
    return TARN_IO;
}

/* Keys from the first on, as far as one batch goes; returns how many. `*out_status`: as above, or
 * INVALID. */
static size_t keys_ask(struct mooncake_store *store, struct batch *batch,
                       const struct store_key *keys, size_t count, enum tarn_status *out_status)
{
    batch->count = 0;
    while (batch->count < count && batch->count < BATCH_OBJECTS_MAX) {
        const char *space = names_get(&store->names, keys[batch->count].namespace_index);
        if (!space) {
            *out_status = TARN_INVALID;
            return 0;
        }
        batch_add_key(batch, space, &keys[batch->count]);
    }
    *out_status = batch_ask(store, batch);
    return batch->count;
}

static enum tarn_status mooncake_exists(struct store *base, const struct store_key *keys,
                                        size_t count, bool *out_present)
{
    struct mooncake_store *store = mooncake(base);
    enum tarn_status status = TARN_OK;
    if (is_dead(store))
        return TARN_INVALID;
    struct batch *batch = batch_take(&store->asks);
    for (size_t done = 0; done < count && status == TARN_OK;) {
        const size_t asked = keys_ask(store, batch, keys + done, count - done, &status);
        for (size_t i = 0; i < asked; i++)
            out_present[done + i] = batch->results[i] > 0;
        done += asked;
    }
    batch_give(&store->asks, batch);
    return status;
}

/* How many of the leading keys are there. The master keeps what it says is there for a while, so
 * that nothing behind a gap is asked for in a further call. */
static enum tarn_status run_ask(struct mooncake_store *store, const struct store_key *keys,
                                size_t count, size_t *out_count)
{
    enum tarn_status status = TARN_OK;
    size_t run = 0;
    struct batch *batch = batch_take(&store->asks);
    for (bool goes_on = true; goes_on && run < count;) {
        const size_t asked = keys_ask(store, batch, keys + run, count - run, &status);
        size_t found = 0;
        while (status == TARN_OK && found < asked && batch->results[found] > 0)
            found++;
        run += found;
        goes_on = status == TARN_OK && found == asked;
    }
    batch_give(&store->asks, batch);
    *out_count = run;
    return status;
}

static enum tarn_status mooncake_lookup(struct store *base, const struct store_key *keys,
                                        size_t count, struct store_lease **out_lease,
                                        size_t *out_count)
{
    struct mooncake_store *store = mooncake(base);
    size_t found = 0;
    if (is_dead(store))
        return TARN_INVALID;
    TRY(run_ask(store, keys, count, &found));
    if (found == 0)
        return TARN_MISS;
    struct store_lease *lease = mem_alloc(1, sizeof(*lease));
    if (!lease)
        return TARN_NO_MEMORY;
    lease->store = base;
    (void)atomic_fetch_add(&store->lease_count, 1);
    metric_add(METRIC_LEASES, 1);
    *out_lease = lease;
    *out_count = found;
    return TARN_OK;
}

static void mooncake_lease_release(struct store_lease *lease)
{
    (void)atomic_fetch_sub(&mooncake(lease->store)->lease_count, 1);
    metric_add(METRIC_LEASES, -1);
    mem_free(lease);
}

/* ---- batches of objects ---- */

/* What is wrong with an item before anything is asked; OK: nothing. */
static enum tarn_status item_fault(struct mooncake_store *store, const struct batch *batch,
                                   const struct store_item *item, bool is_put)
{
    if (!names_get(&store->names, item->key.namespace_index) || item->span_count == 0 ||
        item->span_count > STORE_SPANS_MAX)
        return TARN_INVALID;
    if (store->base.traits.is_contiguous_only && !(item->has_headroom && item->span_count == 1)) {
        LOG_LIMITED(LOG_ERROR, "mooncake: %s moves single buffers with headroom alone",
                    store->client.provider.path);
        return TARN_UNSUPPORTED;
    }
    if (batch_is_large_enough(batch, store_item_bytes(item)))
        return TARN_OK;
    LOG_LIMITED(LOG_ERROR,
                "mooncake: an object of %" PRIu64
                " bytes is larger than a part of the memory shared "
                "with the mooncake_client, %" PRIu64 " bytes: raise local_buffer_size",
                store_item_bytes(item), store->client.area_bytes);
    metric_add(is_put ? METRIC_STORE_PUT_NO_SPACE : METRIC_STORE_GET_OTHER, 1);
    return is_put ? TARN_NO_SPACE : TARN_MISS;
}

/* Items from the first on, as far as one batch goes; those with a fault get their status. Returns
 * how many were taken. */
static size_t batch_fill(struct mooncake_store *store, struct batch *batch,
                         struct store_item *items, size_t count, bool is_put)
{
    size_t taken = 0;
    batch_clear(batch);
    for (; taken < count && batch_has_room(batch, &items[taken]); taken++) {
        struct store_item *item = &items[taken];
        item->was_present = false;
        item->status = item_fault(store, batch, item, is_put);
        if (item->status == TARN_OK)
            batch_add(batch, names_get(&store->names, item->key.namespace_index), item);
    }
    return taken;
}

struct each {
    struct batch *batch;
    void (*work)(struct batch *batch, size_t index);
};

static void each_work(void *context, size_t index)
{
    const struct each *each = context;
    each->work(each->batch, each->batch->count - 1 - index);
}

/* Call work() for each object of a batch, where its bytes are looked at, in several threads. From
 * the last one on: it came last, and is near still; the first one is near when it is sent. */
static void batch_each(struct mooncake_store *store, struct batch *batch,
                       void (*work)(struct batch *batch, size_t index))
{
    struct each each = { batch, work };
    uint64_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += store_item_bytes(batch->items[i]);
    if (bytes >= SHARED_BYTES_MIN) {
        crew_run(&store->crew, batch->count, each_work, &each);
        return;
    }
    for (size_t i = 0; i < batch->count; i++)
        each_work(&each, i);
}

/* ---- get ---- */

static void get_call(struct mooncake_store *store, struct batch *batch)
{
    const struct mooncake_functions *functions = functions_of(store);
    for (size_t i = 0; i < batch->count; i++) {
        batch->get_results[i] = MOONCAKE_RPC_FAILED;
        memset(batch->headers[i], 0, HEADER_BYTES); /* one that is not written is none */
    }
    const int result =
        batch->is_contiguous
            ? functions->batch_get_into(store->client.handle, batch->keys, batch->buffers,
                                        batch->sizes, batch->count, batch->get_results)
            : functions->batch_get_into_multi_buffers(store->client.handle, batch->keys,
                                                      batch->buffers, batch->sizes, batch->counts,
                                                      batch->count, batch->get_results);
    for (size_t i = 0; i < batch->count && result < 0; i++)
        batch->get_results[i] = result;
}

static void batch_get(struct mooncake_store *store, struct batch *batch)
{
    size_t refused_count = 0;
    get_call(store, batch);
    for (size_t i = 0; i < batch->count; i++)
        refused_count += batch->get_results[i] == MOONCAKE_INVALID;
    if (batch->area && refused_count == batch->count && batch_area_renew(batch, &store->client))
        get_call(store, batch);
}

static bool is_whole(const struct batch *batch, size_t index)
{
    return batch->get_results[index] ==
           (int64_t)(store_item_bytes(batch->items[index]) + HEADER_BYTES);
}

static void object_check(struct batch *batch, size_t index)
{
    const struct store_item *item = batch->items[index];
    uint8_t copy[HEADER_BYTES];
    if (!is_whole(batch, index))
        return;
    if (batch->area)
        batch_scatter(batch, index, copy);
    batch->faults[index] = header_check(batch->area ? copy : batch->headers[index],
                                        batch->keys[index], item->spans, item->span_count);
}

/* It is there, and will be until it is removed: a put of its key would write nothing. */
static enum tarn_status object_put_away(struct mooncake_store *store, const char *key,
                                        enum header_fault fault)
{
    char text[RESULT_BYTES];
    const int result = functions_of(store)->remove(store->client.handle, key, 1);
    metric_add(METRIC_STORE_GET_CORRUPT, 1);
    if (result == 0)
        metric_add(METRIC_STORE_REMOVED, 1);
    LOG_LIMITED(LOG_ERROR, "mooncake: the object %.600s is %s; removing it: %s", key,
                header_fault_text(fault),
                result == 0 ? "done" : result_print(result, text, sizeof(text)));
    return TARN_CORRUPT;
}

static enum tarn_status object_judge(struct mooncake_store *store, const struct batch *batch,
                                     size_t index)
{
    const int64_t got = batch->get_results[index];
    char text[RESULT_BYTES];
    if (got < 0) {
        enum metric metric;
        const enum tarn_status status = result_of_get(got, &metric);
        metric_add(metric, 1);
        if (got != MOONCAKE_NOT_FOUND)
            LOG_LIMITED(LOG_WARN, "mooncake: an object was not got: %s",
                        result_print(got, text, sizeof(text)));
        return status;
    }
    if (!is_whole(batch, index)) {
        metric_add(METRIC_STORE_GET_LENGTH, 1);
        return TARN_MISS;
    }
    const enum header_fault fault = batch->faults[index];
    return fault == HEADER_SOUND ? TARN_OK : object_put_away(store, batch->keys[index], fault);
}

static enum tarn_status mooncake_get(struct store *base, struct store_item *items, size_t count)
{
    struct mooncake_store *store = mooncake(base);
    if (is_dead(store))
        return TARN_INVALID;
    struct batch *batch = batch_take(&store->gets);
    for (size_t done = 0; done < count;) {
        done += batch_fill(store, batch, items + done, count - done, false);
        if (batch->count > 0)
            batch_get(store, batch);
        batch_each(store, batch, object_check);
        for (size_t i = 0; i < batch->count; i++)
            batch->items[i]->status = object_judge(store, batch, i);
    }
    batch_give(&store->gets, batch);
    return TARN_OK;
}

/* Mooncake gives a transfer up after a time (60 s over TCP) and leaves it in the queue of a
 * connection that does not come about: when it does, minutes later, the bytes are written. */
static bool mooncake_holds(struct store *base, const struct store_item *item)
{
    struct mooncake_store *store = mooncake(base);
    const char *space = is_dead(store) ? NULL : names_get(&store->names, item->key.namespace_index);
    if (!space || !item->has_headroom)
        return false;
    struct batch *batch = batch_take(&store->asks);
    batch_add_key(batch, space, &item->key);
    const enum header_fault fault =
        header_check((const uint8_t *)item->spans[0].base - HEADER_BYTES, batch->keys[0],
                     item->spans, item->span_count);
    batch_give(&store->asks, batch);
    if (fault != HEADER_SOUND)
        LOG_LIMITED(LOG_WARN, "mooncake: a transfer that was given up came late, into memory that "
                              "held another page by then: that page is computed");
    return fault == HEADER_SOUND;
}

/* ---- put ---- */

static void object_count_put(struct store_item *item, int result)
{
    enum metric metric;
    char text[RESULT_BYTES];
    item->status = result_of_put(result, &metric);
    if (metric == METRIC_COUNT)
        return;
    metric_add(metric, 1);
    LOG_LIMITED(LOG_WARN, "mooncake: an object was not put: %s",
                result_print(result, text, sizeof(text)));
}

/* A put of what is there writes nothing and says 0, so that what is there is asked for, and not
 * given to the put at all. Whatever of the batch is to be put moves to its front. */
static void present_drop(struct batch *batch)
{
    size_t kept = 0;
    size_t kept_spans = 0;
    size_t span = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const size_t span_count = batch->counts[i];
        batch->items[i]->was_present = batch->results[i] > 0;
        if (!batch->items[i]->was_present) {
            batch->items[kept] = batch->items[i];
            batch->keys[kept] = batch->keys[i];
            batch->headers[kept] = batch->headers[i];
            batch->counts[kept] = span_count;
            memmove(&batch->buffers[kept_spans], &batch->buffers[span],
                    span_count * sizeof(batch->buffers[0]));
            memmove(&batch->sizes[kept_spans], &batch->sizes[span],
                    span_count * sizeof(batch->sizes[0]));
            kept++;
            kept_spans += span_count;
        }
        span += span_count;
    }
    batch->count = kept;
    batch->span_count = kept_spans;
}

static void object_prepare(struct batch *batch, size_t index)
{
    const struct store_item *item = batch->items[index];
    header_write(batch->keys[index], item->spans, item->span_count, batch->headers[index]);
    if (batch->area)
        batch_gather(batch, index);
}

static void put_call(struct mooncake_store *store, struct batch *batch)
{
    const struct mooncake_functions *functions = functions_of(store);
    batch_each(store, batch, object_prepare);
    for (size_t i = 0; i < batch->count; i++)
        batch->results[i] = MOONCAKE_RPC_FAILED;
    const int result =
        batch->is_contiguous
            ? functions->batch_put_from(store->client.handle, batch->keys, batch->buffers,
                                        batch->sizes, batch->count, NULL, batch->results)
            : functions->batch_put_from_multi_buffers(store->client.handle, batch->keys,
                                                      batch->buffers, batch->sizes, batch->counts,
                                                      batch->count, NULL, batch->results);
    for (size_t i = 0; i < batch->count && result < 0; i++)
        batch->results[i] = result;
}

static void batch_put(struct mooncake_store *store, struct batch *batch)
{
    size_t refused_count = 0;
    put_call(store, batch);
    for (size_t i = 0; i < batch->count; i++)
        refused_count += batch->results[i] == MOONCAKE_INVALID;
    if (batch->area && refused_count == batch->count && batch_area_renew(batch, &store->client))
        put_call(store, batch);
    for (size_t i = 0; i < batch->count; i++)
        object_count_put(batch->items[i], batch->results[i]);
}

static enum tarn_status mooncake_put(struct store *base, struct store_item *items, size_t count)
{
    struct mooncake_store *store = mooncake(base);
    if (is_dead(store))
        return TARN_INVALID;
    struct batch *batch = batch_take(&store->puts);
    for (size_t done = 0; done < count;) {
        done += batch_fill(store, batch, items + done, count - done, true);
        const enum tarn_status status = batch->count > 0 ? batch_ask(store, batch) : TARN_OK;
        for (size_t i = 0; i < batch->count && status != TARN_OK; i++)
            object_count_put(batch->items[i], MOONCAKE_RPC_FAILED);
        if (status != TARN_OK)
            continue;
        present_drop(batch);
        if (batch->count > 0)
            batch_put(store, batch);
    }
    batch_give(&store->puts, batch);
    return TARN_OK;
}

/* ---- the rest ---- */

static enum tarn_status mooncake_remove(struct store *base, const struct store_key *key)
{
    struct mooncake_store *store = mooncake(base);
    const char *space = is_dead(store) ? NULL : names_get(&store->names, key->namespace_index);
    char text[RESULT_BYTES];
    if (!space)
        return TARN_INVALID;
    struct batch *batch = batch_take(&store->asks);
    batch_add_key(batch, space, key);
    const int result = functions_of(store)->remove(store->client.handle, batch->keys[0], 0);
    batch_give(&store->asks, batch);
    if (result == 0)
        return TARN_OK;
    if (result == MOONCAKE_NOT_FOUND)
        return TARN_MISS;
    if (result == MOONCAKE_LEASED || result == MOONCAKE_NOT_READY)
        return TARN_AGAIN;
    LOG_LIMITED(LOG_WARN, "mooncake: an object cannot be removed: %s",
                result_print(result, text, sizeof(text)));
    return TARN_IO;
}

/* What the pool holds is the master's to say; nothing is asked here, so that this never waits. */
static void mooncake_stat(struct store *base, struct store_stat *out_stat)
{
    struct mooncake_store *store = mooncake(base);
    *out_stat = (struct store_stat){ .lease_count = atomic_load(&store->lease_count),
                                     .is_inert = is_dead(store) };
}

/* Other registrations are forgotten with the client. In a child it is the parent's. */
static void mooncake_stop(struct store *base)
{
    struct mooncake_store *store = mooncake(base);
    if (!is_dead(store) && store->client.handle) {
        batch_pool_drop(&store->gets, &store->client);
        batch_pool_drop(&store->puts, &store->client);
        client_stop(&store->client);
    }
    store->client.handle = NULL;
}

static void mooncake_close(struct store *base)
{
    struct mooncake_store *store = mooncake(base);
    mooncake_stop(base);
    batch_pool_deinit(&store->gets, &store->client);
    batch_pool_deinit(&store->puts, &store->client);
    batch_pool_deinit(&store->asks, &store->client);
    client_close(&store->client);
    if (!is_dead(store))
        crew_close(&store->crew);
    names_deinit(&store->names);
    (void)pthread_mutex_destroy(&store->names_lock);
    mem_free(store);
}

static const struct store_ops mooncake_ops = {
    .name = "mooncake",
    .register_memory = mooncake_register,
    .unregister_memory = mooncake_unregister,
    .intern = mooncake_intern,
    .exists = mooncake_exists,
    .lookup = mooncake_lookup,
    .lease_release = mooncake_lease_release,
    .get = mooncake_get,
    .holds = mooncake_holds,
    .put = mooncake_put,
    .remove = mooncake_remove,
    .stat = mooncake_stat,
    .stop = mooncake_stop,
    .close = mooncake_close,
};

static struct store_traits traits_of(const struct mooncake_options *options,
                                     const struct client *client)
{
    const struct mooncake_functions *functions = &client->provider.functions;
    if (client->area_bytes) /* pages are copied, from and to any memory */
        return (struct store_traits){ .is_beyond_host = true };
    return (struct store_traits){
        .is_beyond_host = true,
        .must_register = true,
        .is_contiguous_only =
            !functions->batch_put_from_multi_buffers || !functions->batch_get_into_multi_buffers,
        .headroom_bytes = HEADER_BYTES,
        .writes_late = true,
        .range_bytes_max = strcmp(options->protocol, "tcp") == 0 ? 0 : RDMA_RANGE_BYTES_MAX,
    };
}

enum tarn_status mooncake_open(const struct mooncake_options *options, struct store **out_store)
{
    struct mooncake_store *store = mem_alloc(1, sizeof(*store));
    if (!store)
        return TARN_NO_MEMORY;
    enum tarn_status status = client_open(options, &store->client);
    if (status != TARN_OK) {
        mem_free(store);
        return status;
    }
    store->base.ops = &mooncake_ops;
    store->base.traits = traits_of(options, &store->client);
    store->process = getpid();
    (void)pthread_mutex_init(&store->names_lock, NULL);
    crew_open(&store->crew, "tarn-check");
    status = batch_pool_init(&store->gets, &store->client, true);
    const enum tarn_status puts = batch_pool_init(&store->puts, &store->client, true);
    const enum tarn_status asks = batch_pool_init(&store->asks, &store->client, false);
    status = status != TARN_OK ? status : puts != TARN_OK ? puts : asks;
    if (status != TARN_OK) {
        mooncake_close(&store->base);
        return status;
    }
    *out_store = &store->base;
    return TARN_OK;
}

const struct client *mooncake_behind(struct store *store)
{
    ASSERT(store->ops == &mooncake_ops);
    return &mooncake(store)->client;
}
