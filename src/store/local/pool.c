/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/pool.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "store/local/join.h"
#include "store/local/lease.h"
#include "store/local/name.h"
#include "store/local/page.h"
#include "store/local/process.h"
#include "store/names.h"

enum { GROUP_KEYS = 64 };

static const uint64_t LOOK_INTERVAL_NS =
    1000000000; /* at the file's link count, and for the dead */
static const uint64_t REOPEN_INTERVAL_NS = 30000000000; /* after a replacement failed */

struct local_store {
    struct store base;
    struct list link;     /* in stores; guarded by stores_lock, as is user_count */
    uint32_t user_count;  /* opens less closes */
    _Atomic bool is_dead; /* in a child after fork */
    struct pool_place place;
    pthread_mutex_t lock; /* guards the rest; never held while waiting for anything but memory */
    struct pool *pool;    /* NULL: lost, and not replaced */
    bool is_off;          /* the view was switched off, and that has been said */
    uint64_t reopen_ns;   /* not before */
    struct names names;
};

static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER; /* before pools_lock */
static struct list stores = { &stores, &stores };

/* ---- fork ---- */

static void fork_prepare(void)
{
    (void)pthread_mutex_lock(&stores_lock);
    pools_lock();
}

static void fork_parent(void)
{
    pools_unlock();
    (void)pthread_mutex_unlock(&stores_lock);
}

static void fork_child(void)
{
    list_for_each (link, &stores) {
        atomic_store(&LIST_ITEM(link, struct local_store, link)->is_dead, true);
        list_remove(link);
    }
    pools_abandon();
    (void)pthread_mutex_unlock(&stores_lock);
}

static void fork_watch(void)
{
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* ---- the pool behind the store ---- */

static struct local_store *local(struct store *store)
{
    return (struct local_store *)(void *)store;
}

/* What /metrics says of the pool in use. */
static void gauges_set(const struct pool *pool)
{
    metric_set(METRIC_POOL_CAPACITY_BYTES,
               (int64_t)pool->view.geometry.frame_count * POOL_FRAME_BYTES);
    metric_set(METRIC_POOL_USED_BYTES, (int64_t)shm_load(&pool->view.live->used_bytes));
}

/* Leave a pool whose file is gone for a new one of the same name. Caller holds store->lock. */
static void pool_replace(struct local_store *store, uint64_t now_ns)
{
    if (store->pool) {
        log_warn("pool: %s/%s was removed or cut short; leaving it for a new one",
                 store->place.directory, store->place.name);
        pool_drop(store->pool);
        store->pool = NULL;
    }
    if (now_ns < store->reopen_ns)
        return;
    store->reopen_ns = now_ns + REOPEN_INTERVAL_NS;
    struct pool *pool = NULL;
    if (pool_join(&store->place, &pool) == TARN_OK)
        store->pool = pool;
    store->is_off = false;
}

static bool is_due(struct pool *pool, uint64_t now_ns)
{
    uint64_t looked_ns = atomic_load_explicit(&pool->looked_ns, memory_order_relaxed);
    return now_ns - looked_ns >= LOOK_INTERVAL_NS &&
           atomic_compare_exchange_strong(&pool->looked_ns, &looked_ns, now_ns);
}

/* Now and then, and when the pool has just been given up: a file that was cut short reads as zeros,
 * which looks like damage to whoever comes by before the length is looked at. */
static bool must_look(const struct local_store *store, uint64_t now_ns)
{
    return is_due(store->pool, now_ns) ||
           (atomic_load(&store->pool->view.is_off) && !store->is_off);
}

/* The pool to work on, held; NULL: everything is a miss. */
static struct pool *store_enter(struct local_store *store)
{
    const uint64_t now_ns = clock_now_ns();
    (void)pthread_mutex_lock(&store->lock);
    if (!store->pool || (must_look(store, now_ns) && file_is_lost(&store->pool->file)))
        pool_replace(store, now_ns);
    struct pool *pool = store->pool;
    if (pool && atomic_load(&pool->view.is_off)) {
        if (!store->is_off)
            log_error("pool: %s/%s is not used any more by this process", store->place.directory,
                      store->place.name);
        store->is_off = true;
        pool = NULL;
    }
    if (pool)
        pool_hold(pool);
    (void)pthread_mutex_unlock(&store->lock);
    return pool;
}

struct pool *pool_behind(struct store *store)
{
    return local(store)->pool;
}

/* ---- namespaces ---- */

/* A pool's id for one of the store's names, in one word: valid (1), epoch (31), id (32). */
static uint64_t id_word(uint64_t epoch, uint32_t id)
{
    return UINT64_C(1) << 63 | (epoch & INT32_MAX) << 32 | id;
}

/* The image's id of a name, looked up again whenever namespaces have changed. Outcomes: MISS,
 * NO_SPACE. */
static enum tarn_status names_resolve(struct local_store *store, struct pool *pool, uint32_t index,
                                      uint64_t epoch, uint32_t *out_id)
{
    const char *text = names_get(&store->names, index);
    if (!text)
        return TARN_INVALID;
    const uint64_t word = atomic_load_explicit(&pool->ids[index], memory_order_relaxed);
    if (word >> 32 == id_word(epoch, 0) >> 32) {
        *out_id = (uint32_t)word;
        return TARN_OK;
    }
    uint32_t id;
    TRY(name_intern(&pool->view, text, &id));
    atomic_store_explicit(&pool->ids[index], id_word(epoch, id), memory_order_relaxed);
    *out_id = id;
    return TARN_OK;
}

static enum tarn_status local_intern(struct store *base, const char *text, uint32_t *out_index)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead) || text[0] == '\0' || strlen(text) > STORE_NAMESPACE_BYTES_MAX)
        return TARN_INVALID;
    uint32_t index = 0;
    (void)pthread_mutex_lock(&store->lock);
    enum tarn_status status = names_add(&store->names, text, POOL_NAMES_MAX, &index);
    (void)pthread_mutex_unlock(&store->lock);
    TRY(status);
    struct pool *pool = store_enter(store);
    if (pool) {
        uint32_t id;
        status = names_resolve(store, pool, index, names_epoch(&pool->view), &id);
        pool_drop(pool);
    }
    if (status == TARN_NO_SPACE)
        LOG_LIMITED(LOG_WARN, "pool: no room for another namespace: all %d have pages",
                    POOL_NAMESPACES);
    TRY(status == TARN_MISS ? TARN_OK : status); /* a reader may find it later */
    *out_index = index;
    return TARN_OK;
}

/* ---- keys ---- */

/* Turn the leading keys whose namespace the image knows into names; returns how many. */
static uint32_t keys_name(struct local_store *store, struct pool *pool,
                          const struct store_key *keys, size_t count, struct page_name *out_names)
{
    const uint64_t epoch = names_epoch(&pool->view);
    uint32_t done = 0;
    for (; done < count && done < GROUP_KEYS; done++) {
        uint32_t id;
        if (names_resolve(store, pool, keys[done].namespace_index, epoch, &id) != TARN_OK)
            break;
        out_names[done] = page_name_make(&keys[done], id);
    }
    return done;
}

static enum tarn_status local_exists(struct store *base, const struct store_key *keys, size_t count,
                                     bool *out_present)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead))
        return TARN_INVALID;
    struct pool *pool = store_enter(store);
    for (size_t i = 0; i < count; i++) {
        struct page_name name;
        uint32_t slot;
        uint64_t ctl;
        out_present[i] = pool && keys_name(store, pool, &keys[i], 1, &name) == 1 &&
                         index_find(&pool->view, &name, &slot, &ctl) == TARN_OK &&
                         ctl_same_page(shm_load(&pool->view.headers[slot].ctl), ctl);
    }
    pool_drop(pool);
    return TARN_OK;
}

static size_t lease_fill(struct local_store *store, struct pool *pool, struct pool_lease *lease,
                         const struct store_key *keys, size_t count)
{
    struct page_name names[GROUP_KEYS];
    const uint32_t stamp = view_tick(&pool->view);
    size_t total = 0;
    while (total < count) {
        uint32_t added = 0;
        const size_t left = count - total;
        const uint32_t named = keys_name(store, pool, keys + total, left, names);
        lease_extend(lease, names, named, stamp, &added);
        total += added;
        if (added < GROUP_KEYS)
            break;
    }
    return total;
}

static enum tarn_status local_lookup(struct store *base, const struct store_key *keys, size_t count,
                                     struct store_lease **out_lease, size_t *out_count)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead))
        return TARN_INVALID;
    struct pool *pool = store_enter(store);
    if (!pool)
        return TARN_MISS;
    struct pool_lease *lease = NULL;
    size_t found = 0;
    enum tarn_status status = lease_begin(&pool->view, &lease);
    if (status == TARN_OK) {
        found = lease_fill(store, pool, lease, keys, count);
        status = found > 0 ? TARN_OK : TARN_MISS;
    }
    if (status != TARN_OK) {
        lease_release(lease);
        pool_drop(pool);
        return status;
    }
    lease->base.store = base; /* and our reference to the pool goes with it */
    metric_add(METRIC_LEASES, 1);
    *out_lease = &lease->base;
    *out_count = found;
    return TARN_OK;
}

static void local_lease_release(struct store_lease *base)
{
    struct pool_lease *lease = (struct pool_lease *)(void *)base;
    struct pool *pool = LIST_ITEM(lease->view, struct pool, view);
    if (atomic_load(&pool->is_dead))
        return; /* the parent's: it will release its own */
    lease_release(lease);
    metric_add(METRIC_LEASES, -1);
    pool_drop(pool);
}

static enum tarn_status item_io(struct local_store *store, struct pool *pool,
                                const struct store_item *item, struct page_io *out_io)
{
    uint32_t id;
    TRY(names_resolve(store, pool, item->key.namespace_index, names_epoch(&pool->view), &id));
    *out_io = (struct page_io){
        .name = page_name_make(&item->key, id),
        .spans = item->spans,
        .span_count = item->span_count,
    };
    return TARN_OK;
}

static enum tarn_status local_get(struct store *base, struct store_item *items, size_t count)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead))
        return TARN_INVALID;
    struct pool *pool = store_enter(store);
    for (size_t i = 0; i < count; i++) {
        struct page_io io;
        items[i].status = pool ? item_io(store, pool, &items[i], &io) : TARN_MISS;
        if (items[i].status == TARN_OK)
            items[i].status = page_get(&pool->view, &io);
    }
    pool_drop(pool);
    return TARN_OK;
}

static enum tarn_status item_put(struct local_store *store, struct pool *pool,
                                 struct store_item *item, uint32_t stamp)
{
    struct page_io io;
    TRY(item_io(store, pool, item, &io));
    return page_put(&pool->view, &io, stamp, &item->was_present);
}

static enum tarn_status local_put(struct store *base, struct store_item *items, size_t count)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead))
        return TARN_INVALID;
    struct pool *pool = store_enter(store);
    const bool can_write = pool && pool->view.process < POOL_PROCESSES;
    if (pool && !can_write)
        pool_drop(pool);
    if (!can_write) {
        for (size_t i = 0; i < count; i++)
            items[i].status = pool ? TARN_UNSUPPORTED : TARN_IO;
        return TARN_OK;
    }
    (void)process_reclaim(&pool->view, LOOK_INTERVAL_NS);
    const uint32_t stamp = view_tick(&pool->view);
    for (size_t i = 0; i < count; i++) {
        items[i].was_present = false;
        items[i].status = item_put(store, pool, &items[i], stamp);
    }
    if (atomic_load_explicit(&pool->view.has_opened, memory_order_relaxed))
        warm_open(&pool->warm);
    gauges_set(pool);
    pool_drop(pool);
    return TARN_OK;
}

static enum tarn_status local_remove(struct store *base, const struct store_key *key)
{
    struct local_store *store = local(base);
    if (atomic_load(&store->is_dead))
        return TARN_INVALID;
    struct pool *pool = store_enter(store);
    if (!pool)
        return TARN_MISS;
    struct page_name name;
    enum tarn_status status = TARN_MISS;
    if (pool->view.process >= POOL_PROCESSES)
        status = TARN_UNSUPPORTED;
    else if (keys_name(store, pool, key, 1, &name) == 1)
        status = page_remove(&pool->view, &name);
    pool_drop(pool);
    return status;
}

static void local_stat(struct store *base, struct store_stat *out_stat)
{
    struct local_store *store = local(base);
    *out_stat = (struct store_stat){ .is_inert = true };
    if (atomic_load(&store->is_dead))
        return;
    struct pool *pool = store_enter(store);
    if (!pool)
        return;
    view_lock(&pool->view.lease_lock);
    const uint32_t lease_count = pool->view.lease_count;
    view_unlock(&pool->view.lease_lock);
    *out_stat = (struct store_stat){
        .capacity_bytes = (uint64_t)pool->view.geometry.frame_count * POOL_FRAME_BYTES,
        .used_bytes = shm_load(&pool->view.live->used_bytes),
        .lease_count = lease_count,
    };
    gauges_set(pool);
    pool_drop(pool);
}

/* ---- opening and closing ---- */

static void store_free(struct local_store *store)
{
    names_deinit(&store->names);
    (void)pthread_mutex_destroy(&store->lock);
    mem_free(store);
}

static void local_close(struct store *base)
{
    struct local_store *store = local(base);
    (void)pthread_mutex_lock(&stores_lock);
    const bool is_last = --store->user_count == 0;
    if (is_last)
        list_remove(&store->link);
    (void)pthread_mutex_unlock(&stores_lock);
    if (!is_last)
        return;
    pool_drop(store->pool);
    store_free(store);
}

static const struct store_ops local_ops = {
    .name = "local",
    .intern = local_intern,
    .exists = local_exists,
    .lookup = local_lookup,
    .lease_release = local_lease_release,
    .get = local_get,
    .put = local_put,
    .remove = local_remove,
    .stat = local_stat,
    .close = local_close,
};

/* A store of this process that is open on the place's file. Caller holds stores_lock. */
static struct local_store *store_find(const struct pool_place *place)
{
    struct stat stat_now;
    char path[2 * POOL_PATH_BYTES + 2];
    (void)snprintf(path, sizeof(path), "%s/%s", place->directory, place->name);
    if (stat(path, &stat_now) != 0)
        return NULL;
    list_for_each (link, &stores) {
        struct local_store *store = LIST_ITEM(link, struct local_store, link);
        (void)pthread_mutex_lock(&store->lock);
        const struct pool *pool = store->pool;
        const bool is_it = pool && pool->file.device == stat_now.st_dev &&
                           pool->file.inode == stat_now.st_ino &&
                           store->place.is_read_only == place->is_read_only;
        (void)pthread_mutex_unlock(&store->lock);
        if (is_it)
            return store;
    }
    return NULL;
}

static enum tarn_status store_create(const struct pool_place *place, struct local_store **out_store)
{
    struct local_store *store = mem_alloc(1, sizeof(*store));
    if (!store)
        return TARN_NO_MEMORY;
    const enum tarn_status status = pool_join(place, &store->pool);
    if (status != TARN_OK) {
        mem_free(store);
        return status;
    }
    store->base.ops = &local_ops;
    store->place = *place;
    (void)pthread_mutex_init(&store->lock, NULL);
    list_init(&store->link);
    list_push_back(&stores, &store->link);
    const struct pool_geometry *geometry = &store->pool->file.geometry;
    gauges_set(store->pool);
    if (place->size_bytes && !store->pool->file.is_fresh &&
        geometry->file_bytes + POOL_FRAME_BYTES < place->size_bytes)
        log_warn("pool: %s/%s exists with %llu MiB: the size asked for is not applied",
                 place->directory, place->name, (unsigned long long)geometry->file_bytes >> 20);
    *out_store = store;
    return TARN_OK;
}

enum tarn_status pool_open(const struct pool_options *options, struct store **out_store)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    struct pool_place place;
    struct local_store *store = NULL;
    (void)pthread_once(&fork_once, fork_watch);
    TRY(place_init(&place, options));
    enum tarn_status status = TARN_OK;
    (void)pthread_mutex_lock(&stores_lock);
    store = store_find(&place);
    if (!store)
        status = store_create(&place, &store);
    if (status == TARN_OK)
        store->user_count++;
    (void)pthread_mutex_unlock(&stores_lock);
    TRY(status);
    *out_store = &store->base;
    return TARN_OK;
}
