/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/backend.h"

#include <llama.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* How long a thread that ran out of work spins before it sleeps: 131 072 pauses a level, of 100.
 * One level, some milliseconds, reaches from one step to the next, so that threads are awake while
 * text is generated; without it each step waits for the scheduler to bring them back. */
enum { POLL_LEVEL = 50 /* ggml's default */, POLL_LEVEL_SHORT = 1 };

typedef struct ggml_threadpool *(*pool_new_fn)(struct ggml_threadpool_params *params);
typedef void (*pool_free_fn)(struct ggml_threadpool *pool);
typedef void (*pool_set_fn)(ggml_backend_t backend, struct ggml_threadpool *pool);

/* Lines of ggml and libllama come with their newline, and continuations in pieces of their own. */
static void backend_log(enum ggml_log_level level, const char *text, void *context)
{
    (void)context;
    const size_t length_bytes = strcspn(text, "\n");
    if (length_bytes == 0 || level == GGML_LOG_LEVEL_CONT)
        return;
    log_debug("ggml: %.*s", (int)length_bytes, text);
}

static void backend_abort(const char *message)
{
    log_error("ggml stopped the process, which means a fault in ggml or in how Tarn uses it: %s",
              message);
}

enum tarn_status backend_load(const char *folder)
{
    (void)ggml_set_abort_callback(backend_abort);
    llama_log_set(backend_log, NULL); /* ggml's as well */
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        if (folder && folder[0] != '\0')
            ggml_backend_load_all_from_path(folder);
        else
            ggml_backend_load_all();
    }
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        log_error("no module of ggml for this CPU in %s",
                  folder && folder[0] != '\0' ? folder : "ggml's own folder");
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

/* POSIX lets what dlsym() found be called; C has no cast for it. */
static void entry_get(ggml_backend_reg_t reg, const char *name, void *out_function)
{
    void *found = ggml_backend_reg_get_proc_address(reg, name);
    memcpy(out_function, (const void *)&found, sizeof(found));
}

static void features_describe(ggml_backend_reg_t reg, char *text, size_t text_bytes)
{
    static const char *const shown[] = { "AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16" };
    ggml_backend_get_features_t get_features = NULL;
    size_t used_bytes = 0;
    entry_get(reg, "ggml_backend_get_features", (void *)&get_features);
    text[0] = '\0';
    if (!get_features)
        return;
    for (const struct ggml_backend_feature *f = get_features(reg); f->name; f++) {
        for (size_t i = 0; i < LENGTH_OF(shown); i++) {
            if (strcmp(f->name, shown[i]) != 0 || used_bytes + strlen(f->name) + 2 > text_bytes)
                continue;
            const int bytes = snprintf(text + used_bytes, text_bytes - used_bytes, "%s%s",
                                       used_bytes ? " " : "", f->name);
            used_bytes += bytes > 0 ? (size_t)bytes : 0;
        }
    }
}

enum tarn_status backend_init(struct backend *backend, uint32_t threads, bool poll)
{
    *backend = (struct backend){ 0 };
    backend->device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ASSERT(backend->device);
    backend->ggml = ggml_backend_dev_init(backend->device, NULL);
    if (!backend->ggml)
        return TARN_NO_MEMORY;

    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(backend->device);
    ggml_backend_set_n_threads_t set_threads = NULL;
    pool_new_fn pool_new = NULL;
    pool_free_fn pool_free = NULL;
    pool_set_fn pool_set = NULL;
    ggml_backend_set_abort_callback_t set_stop = NULL;
    entry_get(reg, "ggml_backend_set_n_threads", (void *)&set_threads);
    entry_get(reg, "ggml_threadpool_new", (void *)&pool_new);
    entry_get(reg, "ggml_threadpool_free", (void *)&pool_free);
    entry_get(reg, "ggml_backend_cpu_set_threadpool", (void *)&pool_set);
    entry_get(reg, "ggml_backend_set_abort_callback", (void *)&set_stop);
    if (!set_threads || !pool_new || !pool_free || !pool_set || !set_stop) {
        log_error("ggml's CPU module lacks functions that Tarn needs: it is of a version that is "
                  "not known");
        backend_deinit(backend);
        return TARN_UNSUPPORTED;
    }
    backend->set_threads = set_threads;
    backend->set_stop = set_stop;
    backend->pool_free = pool_free;
    struct ggml_threadpool_params params = ggml_threadpool_params_default((int)threads);
    params.poll = poll ? POLL_LEVEL : POLL_LEVEL_SHORT;
    backend->pool = pool_new(&params);
    if (!backend->pool) {
        backend_deinit(backend);
        return TARN_NO_MEMORY;
    }
    backend_use_threads(backend, threads);
    pool_set(backend->ggml, backend->pool);
    features_describe(reg, backend->features, sizeof(backend->features));
    return TARN_OK;
}

void backend_use_threads(struct backend *backend, uint32_t threads)
{
    backend->set_threads(backend->ggml, (int)threads);
}

void backend_set_stop(struct backend *backend, ggml_abort_callback should_stop, void *context)
{
    backend->set_stop(backend->ggml, should_stop, context);
}

void backend_deinit(struct backend *backend)
{
    if (backend->ggml)
        ggml_backend_free(backend->ggml);
    if (backend->pool)
        backend->pool_free(backend->pool);
    *backend = (struct backend){ 0 };
}
