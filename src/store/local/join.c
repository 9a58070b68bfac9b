/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/join.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "os/file.h"
#include "store/local/guard.h"
#include "store/local/process.h"

enum { INIT_WAIT_MS = 5000 };

static pthread_mutex_t pools_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct list pools = { &pools, &pools };

void pools_lock(void)
{
    (void)pthread_mutex_lock(&pools_mutex);
}

void pools_unlock(void)
{
    (void)pthread_mutex_unlock(&pools_mutex);
}

void pools_abandon(void)
{
    list_for_each (link, &pools) {
        struct pool *pool = LIST_ITEM(link, struct pool, link);
        atomic_store(&pool->is_dead, true);
        /* Its addresses may be those of the child's own mapping soon. */
        guard_remove(pool->file.metadata);
        guard_remove(pool->file.data);
        guard_remove(pool->file.window);
        file_abandon(&pool->file);
        list_remove(link);
    }
    pools_unlock();
}

/* Whether no process is alive; if so their bytes are ours. Caller holds the init byte. */
static bool take_all(const struct pool_env *env)
{
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        if (env->process_take(env->context, process))
            continue;
        while (process-- > 0)
            env->process_release(env->context, process);
        return false;
    }
    return true;
}

static bool was_left_cleanly(const struct pool_view *view)
{
    for (uint32_t process = 0; process < POOL_PROCESSES; process++) {
        if (shm_load(&view->processes[process].is_used) != 0)
            return false;
    }
    return true;
}

/* The first opener makes the image good: another boot's or dead processes' leavings are discarded.
 */
static enum tarn_status image_make_good(struct pool_view *view)
{
    uint64_t boot[2];
    TRY(file_boot_id(boot));
    if (!take_all(&view->env))
        return TARN_OK;
    const bool is_new_boot =
        shm_load(&view->live->boot[0]) != boot[0] || shm_load(&view->live->boot[1]) != boot[1];
    if (is_new_boot)
        shm_store(&view->live->holds_foreign, 1);
    if (is_new_boot || !was_left_cleanly(view))
        process_sweep_all(view, is_new_boot);
    shm_store(&view->live->boot[0], boot[0]);
    shm_store(&view->live->boot[1], boot[1]);
    for (uint32_t process = 0; process < POOL_PROCESSES; process++)
        view->env.process_release(view->env.context, process);
    return TARN_OK;
}

static enum tarn_status slot_take(const struct pool_place *place, struct pool *pool)
{
    if (pool->file.is_read_only)
        return TARN_OK;
    if (!file_begin_init(&pool->file, INIT_WAIT_MS)) {
        log_error("pool: %s/%s: another process has been opening it for %d s", place->directory,
                  place->name, INIT_WAIT_MS / 1000);
        return TARN_IO;
    }
    enum tarn_status status = pool->file.is_fresh ? TARN_OK : image_make_good(&pool->view);
    if (status == TARN_OK)
        status = process_join(&pool->view, (uint32_t)getpid());
    file_end_init(&pool->file);
    if (status == TARN_OK)
        (void)process_reclaim(&pool->view, 0); /* what others left: also if this one never puts */
    if (status != TARN_NO_SPACE)
        return status;
    log_error("pool: %s/%s is used by %d processes already, which is the most there can be",
              place->directory, place->name, POOL_PROCESSES);
    return TARN_UNSUPPORTED;
}

static void pool_free(struct pool *pool)
{
    view_deinit(&pool->view);
    mem_free(pool);
}

enum tarn_status pool_join(const struct pool_place *place, struct pool **out_pool)
{
    struct pool *pool = mem_alloc(1, sizeof(*pool));
    if (!pool)
        return TARN_NO_MEMORY;
    list_init(&pool->link);
    pool->reference_count = 1;
    enum tarn_status status = file_open(place, &pool->file);
    if (status != TARN_OK) {
        mem_free(pool);
        return status;
    }
    const struct pool_env env = file_env(&pool->file);
    status =
        view_init(&pool->view, &pool->file.geometry, pool->file.metadata, pool->file.data, &env);
    if (status == TARN_OK)
        status = slot_take(place, pool);
    if (status != TARN_OK) {
        file_close(&pool->file);
        pool_free(pool);
        return status;
    }
    view_seed(&pool->view, view_now_ns(&pool->view) ^ (uint64_t)getpid() << 32);
    pools_lock();
    list_push_back(&pools, &pool->link);
    pools_unlock();
    if (file_is_in_memory(&pool->file))
        warm_start(&pool->warm, &pool->view);
    *out_pool = pool;
    return TARN_OK;
}

void pool_hold(struct pool *pool)
{
    atomic_fetch_add(&pool->reference_count, 1);
}

void pool_drop(struct pool *pool)
{
    if (!pool || atomic_fetch_sub(&pool->reference_count, 1) != 1)
        return;
    if (!atomic_load(&pool->is_dead)) {
        pools_lock();
        list_remove(&pool->link);
        pools_unlock();
        warm_stop(&pool->warm);
        process_leave(&pool->view);
        file_close(&pool->file);
    }
    pool_free(pool);
}
