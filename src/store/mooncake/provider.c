/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mooncake/provider.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define LIBRARY_NAME "libmooncake_store.so"
#define BRIDGE_NAME  "libtarn_mooncake_py.so"

/* POSIX lets what dlsym() found be called; C has no cast for it. */
static bool function_find(void *library, const char *name, void *out_function)
{
    void *found = dlsym(library, name);
    memcpy(out_function, (const void *)&found, sizeof(found));
    return found != NULL;
}

static enum tarn_status required_find(struct provider *provider, const char *name,
                                      const char *since, void *out_function)
{
    if (function_find(provider->library, name, out_function))
        return TARN_OK;
    log_error("%s has no function %s, which Mooncake has since %s: install that version or a newer "
              "one, built with WITH_STORE_C_SHARED=ON",
              provider->path, name, since);
    return TARN_UNSUPPORTED;
}

static enum tarn_status functions_find(struct provider *provider)
{
    struct mooncake_functions *functions = &provider->functions;
#define X(name, result, parameters, since)                                                         \
    TRY(required_find(provider, "mooncake_store_" #name, since, &functions->name));
    MOONCAKE_REQUIRED(X)
#undef X
#define X(name, result, parameters, since)                                                         \
    (void)function_find(provider->library, "mooncake_store_" #name, &functions->name);
    MOONCAKE_OPTIONAL(X)
#undef X
    return TARN_OK;
}

/* Why the last library_load() of this thread failed. */
static const char *load_failure(void)
{
    const char *reason = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc keeps it by thread */
    return reason ? reason : "no reason is known";
}

/* Whether it could be loaded. */
static bool library_load(struct provider *provider, const char *path)
{
    (void)snprintf(provider->path, sizeof(provider->path), "%s", path);
    provider->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return provider->library != NULL;
}

/* The folder, with its last slash, of the file that this code is in. The name of a program that was
 * found on the PATH is no path. */
static bool own_folder(char *out_folder, size_t out_bytes)
{
    static const char anchor = 0;
    Dl_info here;
    const char *path = dladdr(&anchor, &here) != 0 ? here.dli_fname : NULL;
    char program[PROVIDER_PATH_BYTES_MAX] = "";
    if (path && !strchr(path, '/') && readlink("/proc/self/exe", program, sizeof(program) - 1) > 0)
        path = program;
    const char *slash = path ? strrchr(path, '/') : NULL;
    const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (length == 0 || length >= out_bytes)
        return false;
    memcpy(out_folder, path, length);
    out_folder[length] = '\0';
    return true;
}

/* The bridge lies beside the program or library that this code is in (as it is built and as it may
 * be moved), or where the system looks for libraries. */
static bool bridge_load(struct provider *provider)
{
    char folder[PROVIDER_PATH_BYTES_MAX - sizeof(BRIDGE_NAME)];
    char beside[PROVIDER_PATH_BYTES_MAX];
    const char *named = getenv("TARN_MOONCAKE_BRIDGE"); /* NOLINT(concurrency-mt-unsafe) */
    provider->is_bridge = true;
    if (named && named[0])
        return library_load(provider, named);
    if (own_folder(folder, sizeof(folder))) {
        (void)snprintf(beside, sizeof(beside), "%s" BRIDGE_NAME, folder);
        if (access(beside, F_OK) == 0)
            return library_load(provider, beside);
    }
    return library_load(provider, BRIDGE_NAME);
}

static enum tarn_status bridge_open(struct provider *provider, const char *wheel)
{
    if (!bridge_load(provider)) {
        log_error("mooncake: there is no %s (a build of Mooncake's C library), and the bridge to "
                  "Mooncake's Python package cannot be loaded: %s. Set MOONCAKE_STORE_LIBRARY to "
                  "the library, or build Tarn where the Debian package python3-dev is installed",
                  LIBRARY_NAME, load_failure());
        return TARN_UNSUPPORTED;
    }
    TRY(functions_find(provider));
    if (wheel && wheel[0] && provider->functions.use_path)
        provider->functions.use_path(wheel);
    return TARN_OK;
}

enum tarn_status provider_open(const char *library, const char *wheel,
                               struct provider *out_provider)
{
    struct provider provider = { .is_bridge = false };
    const char *named = library && library[0]
                            ? library
                            : getenv("MOONCAKE_STORE_LIBRARY"); /* NOLINT(concurrency-mt-unsafe) */
    if (named && named[0]) {
        if (!library_load(&provider, named)) {
            log_error("mooncake: the library %s cannot be loaded: %s", named, load_failure());
            return TARN_UNSUPPORTED;
        }
        TRY(functions_find(&provider));
    } else if (library_load(&provider, LIBRARY_NAME)) {
        TRY(functions_find(&provider));
    } else {
        TRY(bridge_open(&provider, wheel));
    }
    *out_provider = provider;
    return TARN_OK;
}
