/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "obs/metric.h"

/* base 0: free; 1: being filled. The handler reads without a lock: base is set last, reset first.
 */
static struct {
    _Atomic uintptr_t base;
    _Atomic size_t size_bytes;
    atomic_bool is_broken;
} ranges[GUARD_RANGES_MAX];

void guard_add(void *base, size_t size_bytes)
{
    for (size_t i = 0; i < GUARD_RANGES_MAX; i++) {
        uintptr_t nothing = 0;
        if (!atomic_compare_exchange_strong(&ranges[i].base, &nothing, 1))
            continue;
        atomic_store(&ranges[i].size_bytes, size_bytes);
        atomic_store(&ranges[i].is_broken, false);
        atomic_store(&ranges[i].base, (uintptr_t)base);
        return;
    }
}

void guard_remove(void *base)
{
    for (size_t i = 0; i < GUARD_RANGES_MAX; i++) {
        uintptr_t expected = (uintptr_t)base;
        if (atomic_compare_exchange_strong(&ranges[i].base, &expected, 0))
            return;
    }
}

bool guard_is_broken(const void *base)
{
    for (size_t i = 0; base && i < GUARD_RANGES_MAX; i++)
        if (atomic_load(&ranges[i].base) == (uintptr_t)base)
            return atomic_load(&ranges[i].is_broken);
    return false;
}

/* Put zeros in place of the mapping that `address` lies in. System calls and atomics only. */
static bool range_replace(uintptr_t address)
{
    for (size_t i = 0; i < GUARD_RANGES_MAX; i++) {
        const uintptr_t base = atomic_load(&ranges[i].base);
        const size_t size_bytes = atomic_load(&ranges[i].size_bytes);
        if (base <= 1 || address < base || address - base >= size_bytes)
            continue;
        atomic_store(&ranges[i].is_broken, true);
        metric_add(METRIC_POOL_BROKEN, 1);
        void *at = (void *)base; /* NOLINT(performance-no-int-to-ptr) */
        return mmap(at, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return false;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    const int saved_errno = errno;
    (void)context;
    if (!range_replace((uintptr_t)info->si_addr)) {
        struct sigaction fallback = { .sa_handler = SIG_DFL };
        (void)sigaction(number, &fallback, NULL); /* and the access is tried again */
    }
    errno = saved_errno;
}

enum tarn_status guard_install(void)
{
    struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) == 0)
        return TARN_OK;
    log_error("cannot handle SIGBUS: %s", strerrordesc_np(errno));
    return TARN_IO;
}
