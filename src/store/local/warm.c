/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/warm.h"

#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "os/clock.h"
#include "os/memory.h"
#include "store/local/near.h"

enum { REST_PARTS = 4 }; /* of the time that work took */

static const uint64_t REST_NS_MAX = NS_PER_MS;

static bool is_in_use(uint64_t frame_word)
{
    const enum frame_state state = frame_state(frame_word);
    return state == FRAME_ACTIVE || state == FRAME_DRAINING || state == FRAME_TAIL;
}

static void rest(uint64_t worked_ns)
{
    uint64_t rest_ns = worked_ns * REST_PARTS;
    if (rest_ns > REST_NS_MAX)
        rest_ns = REST_NS_MAX;
    const struct timespec pause = { .tv_nsec = (long)rest_ns };
    (void)nanosleep(&pause, NULL);
}

static void warm_say(const struct pool_view *view, uint64_t frame_count)
{
    uint64_t huge_bytes = 0;
    if (frame_count == 0)
        return;
    const enum tarn_status status = memory_mapped_huge(view->data, &huge_bytes);
    log_info("pool: %llu MiB in use are mapped, %llu MiB of them in huge pages%s",
             (unsigned long long)(frame_count * POOL_FRAME_BYTES >> 20),
             (unsigned long long)huge_bytes >> 20, status == TARN_OK ? "" : " (not known)");
}

/* What is in use, a frame at a time; returns how many frames that was. */
static uint64_t frames_walk(struct warm *warm,
                            void (*frame_map)(struct pool_view *view, uint64_t offset))
{
    struct pool_view *view = warm->view;
    uint64_t count = 0;
    for (uint32_t frame = 0; frame < view->geometry.frame_count; frame++) {
        if (atomic_load(&warm->is_stopping))
            break;
        if (!is_in_use(shm_load(&view->frames[frame])))
            continue;
        const uint64_t start_ns = clock_now_ns();
        frame_map(view, (uint64_t)frame * POOL_FRAME_BYTES);
        rest(clock_now_ns() - start_ns);
        count++;
    }
    return count;
}

static void frame_map_read(struct pool_view *view, uint64_t offset)
{
    near_read(view, offset, POOL_FRAME_BYTES);
}

static void frame_map_write(struct pool_view *view, uint64_t offset)
{
    (void)near_write(view, offset, POOL_FRAME_BYTES, true);
}

static void warm_run(void *context)
{
    struct warm *warm = context;
    const uint64_t frame_count = frames_walk(warm, frame_map_read);
    if (!atomic_load(&warm->is_stopping))
        warm_say(warm->view, frame_count);
    atomic_store(&warm->has_read, true);
    while (sem_wait(&warm->wake) != 0)
        ; /* a signal */
    if (!atomic_load(&warm->is_stopping))
        (void)frames_walk(warm, frame_map_write);
    atomic_store(&warm->has_opened, true);
}

/* ThreadSanitizer does not bear threads that begin in a child of a process that had some: there, a
 * child of a process that has had a pool does without. */
static bool may_start(void)
{
#ifdef __SANITIZE_THREAD__
    static _Atomic pid_t first;
    pid_t none = 0;
    return atomic_compare_exchange_strong(&first, &none, getpid()) || none == getpid();
#else
    return true;
#endif
}

void warm_start(struct warm *warm, struct pool_view *view)
{
    warm->view = view;
    if (!may_start())
        return;
    if (sem_init(&warm->wake, 0, 0) != 0)
        return;
    if (thread_start(&warm->thread, "tarn-pool-warm", warm_run, warm) == TARN_OK)
        return;
    log_warn("pool: its memory is mapped as it is used, not ahead");
    (void)sem_destroy(&warm->wake);
}

void warm_open(struct warm *warm)
{
    if (warm->thread.is_started && !atomic_exchange(&warm->is_wanted, true))
        (void)sem_post(&warm->wake);
}

void warm_stop(struct warm *warm)
{
    if (!warm->thread.is_started)
        return;
    atomic_store(&warm->is_stopping, true);
    (void)sem_post(&warm->wake);
    thread_join(&warm->thread);
    (void)sem_destroy(&warm->wake);
}
