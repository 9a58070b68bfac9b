/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - the one way to words that other processes change.
 *
 * Loads and read-modify-writes are sequentially consistent, stores are releases. Each access is one
 * step of the simulator, which is the same code compiled with POOL_SIMULATE; without it a step
 * costs nothing. What a load returns was written by someone else: bounds-check it, and never read
 * it twice for one decision.
 */
#ifndef STORE_LOCAL_SHM_H
#define STORE_LOCAL_SHM_H

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

typedef _Atomic uint64_t shm_word;
typedef _Atomic uint32_t shm_half;

/* Mistakes that the simulator must find: each is compiled in there and chosen at run time. */
enum shm_mistake {
    SHM_MISTAKE_NONE,
    SHM_MISTAKE_COMMIT_FIRST, /* commit before the bytes are written */
    SHM_MISTAKE_BLIND_EVICT,  /* evict without reading pins */
    SHM_MISTAKE_PID_LIVENESS, /* call a process dead while one of its threads still writes */
    SHM_MISTAKE_NO_LAST_LOOK, /* do not read the state again after copying */
    SHM_MISTAKE_COUNT,
};

#ifdef POOL_SIMULATE
void simulator_step(void); /* may switch to another process, or never return */
void simulator_wait(void); /* let others run */
bool simulator_makes(enum shm_mistake mistake);
#define SHM_STEP()         simulator_step()
#define SHM_MAKES(mistake) simulator_makes(mistake)
#else
#define SHM_STEP()         ((void)0)
#define SHM_MAKES(mistake) (false)
#endif

static inline uint64_t shm_load(const shm_word *word)
{
    SHM_STEP();
    return atomic_load(word);
}

static inline void shm_store(shm_word *word, uint64_t value)
{
    SHM_STEP();
    atomic_store_explicit(word, value, memory_order_release);
}

/* Set `word` to `desired` if it is `expected`; false if it was not. */
static inline bool shm_cas(shm_word *word, uint64_t expected, uint64_t desired)
{
    SHM_STEP();
    return atomic_compare_exchange_strong(word, &expected, desired);
}

static inline uint64_t shm_or(shm_word *word, uint64_t bits)
{
    SHM_STEP();
    return atomic_fetch_or(word, bits);
}

static inline uint64_t shm_and(shm_word *word, uint64_t bits)
{
    SHM_STEP();
    return atomic_fetch_and(word, bits);
}

static inline uint64_t shm_add(shm_word *word, uint64_t step)
{
    SHM_STEP();
    return atomic_fetch_add(word, step);
}

static inline uint32_t shm_load_half(const shm_half *half)
{
    SHM_STEP();
    return atomic_load(half);
}

static inline void shm_store_half(shm_half *half, uint32_t value)
{
    SHM_STEP();
    atomic_store_explicit(half, value, memory_order_release);
}

/* Between copying bytes out and reading again the word that says they were whole. */
static inline void shm_read_fence(void)
{
#ifndef __SANITIZE_THREAD__ /* which knows no fences, and sees no data race here: the kernel       \
                               writes */
    atomic_thread_fence(memory_order_acquire);
#endif
}

/* Copy page bytes out of the mapping. They may be changing: only a later look at the page's state
 * tells whether the copy is whole. */
static inline void shm_copy_out(void *target, const void *source, size_t size_bytes)
{
#ifdef POOL_SIMULATE
    enum { STEP_BYTES = 4096 };
    for (size_t done = 0; done < size_bytes; done += STEP_BYTES) {
        const size_t left = size_bytes - done;
        SHM_STEP();
        memcpy((uint8_t *)target + done, (const uint8_t *)source + done,
               left < STEP_BYTES ? left : STEP_BYTES);
    }
#else
    memcpy(target, source, size_bytes);
#endif
}

/* Copy page bytes into the mapping, of a page that is this process's own until it is committed. */
static inline void shm_copy_in(void *target, const void *source, size_t size_bytes)
{
    shm_copy_out(target, source, size_bytes);
}

#endif
