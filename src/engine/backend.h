/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - ggml's CPU backend, loaded at run time: the module that fits this CPU best.
 *
 * Modules are loaded once in a process and stay; ggml keeps a registry of its own. A module must
 * never be linked as well: two copies would not know of each other's devices. Loop thread only.
 */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <ggml-backend.h>
#include <ggml.h>

#include "base/base.h"

struct backend {
    ggml_backend_t ggml; /* computes graphs */
    ggml_backend_dev_t device;
    struct ggml_threadpool *pool;
    void (*pool_free)(struct ggml_threadpool *pool);
    void (*set_threads)(ggml_backend_t backend, int threads);
    void (*set_stop)(ggml_backend_t backend, ggml_abort_callback should_stop, void *context);
    char features[64]; /* what the module is built for, in a few words */
};

/* Load the modules in `folder` (empty or NULL: where ggml looks by itself) unless a CPU device is
 * known already, and hand ggml's messages, and what it says before it aborts, to the log.
 * UNSUPPORTED: no module for this CPU there. */
NODISCARD enum tarn_status backend_load(const char *folder);

/* A backend with `threads` threads of its own, after backend_load(). With `poll` they spin long
 * before they sleep. */
NODISCARD enum tarn_status backend_init(struct backend *backend, uint32_t threads, bool poll);

/* Compute with so many of the threads from now on, 1 to what backend_init() was given. */
void backend_use_threads(struct backend *backend, uint32_t threads);

/* Ask `should_stop` between a graph's operations, in the thread that computes it; where it says
 * true the graph ends with GGML_STATUS_ABORTED. */
void backend_set_stop(struct backend *backend, ggml_abort_callback should_stop, void *context);
void backend_deinit(struct backend *backend); /* zeroed is fine */

#endif
