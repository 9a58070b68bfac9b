/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bridge.c - Mooncake's C functions over its Python package: the shared library
 * libtarn_mooncake_py.so, which the provider opens when there is no C library.
 *
 * CPython is embedded once a process and never ended: threads of the package run until the process
 * is gone. A process that is Python already is used as it is. Keys are passed as bytes, so that any
 * byte may be in them. The package lets go of the interpreter's lock while it moves data and waits
 * for the master; here it is held only to make lists and to read them.
 *
 * This file knows Python and function-list.h, and nothing else of Tarn.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "store/mooncake/function-list.h"

#define EXPORT __attribute__((visibility("default")))

#define X(name, result, parameters, since) EXPORT result mooncake_store_##name parameters;
MOONCAKE_REQUIRED(X)
MOONCAKE_OPTIONAL(X)
#undef X

enum { PATH_BYTES_MAX = 4096, TEXT_BYTES_MAX = 1024, RESULT_FAILED = -1 };

static pthread_mutex_t begin_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next three */
static char wheel_path[PATH_BYTES_MAX];
static char failure_text[TEXT_BYTES_MAX] = "nothing failed";
static char version_text[TEXT_BYTES_MAX];

/* A client: the Python object, and its methods, looked up once. */
struct handle {
    PyObject *store;
    PyObject *setup;
    PyObject *put;
    PyObject *get;
    PyObject *put_multi;
    PyObject *get_multi;
    PyObject *exist;
};

/* ---- failures ---- */

static void failure_set(const char *what, const char *why)
{
    (void)snprintf(failure_text, sizeof(failure_text), "%s: %s", what, why);
}

/* The Debian package that holds a library which the dynamic linker misses. */
static const char *package_of(const char *message)
{
    static const struct {
        const char *library;
        const char *package;
    } rows[] = {
        { "libibverbs.so", "libibverbs1" },
        { "libnuma.so", "libnuma1" },
        { "libcurl.so", "libcurl4" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strstr(message, rows[i].library))
            return rows[i].package;
    }
    return NULL;
}

/* What Python raised, in words, with what to do. With the interpreter's lock; clears it. */
static void exception_say(const char *what, char *out_text, size_t text_bytes)
{
    PyObject *type = NULL;
    PyObject *value = NULL;
    PyObject *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *message = text ? PyUnicode_AsUTF8(text) : NULL;
    const char *name = type ? ((PyTypeObject *)type)->tp_name : "an error";
    message = message ? message : "no message";
    const char *package = package_of(message);
    (void)snprintf(out_text, text_bytes, "%s: %s: %s%s%s%s", what, name, message,
                   package ? "; install the Debian package " : "", package ? package : "",
                   type && PyErr_GivenExceptionMatches(type, PyExc_ModuleNotFoundError)
                       ? "; install it for the same Python (pip install "
                         "mooncake-transfer-engine-non-cuda), or say where it is (`wheel`)"
                       : "");
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
}

/* A call that raised: on standard error, as the package's own lines are. With the lock. */
static void call_failed(const char *what)
{
    char text[TEXT_BYTES_MAX];
    exception_say(what, text, sizeof(text));
    (void)fprintf(stderr, "tarn: error: mooncake: %s\n", text);
}

int mooncake_store_failure(char *out_text, size_t text_bytes)
{
    (void)pthread_mutex_lock(&begin_lock);
    const int length = snprintf(out_text, text_bytes, "%s", failure_text);
    (void)pthread_mutex_unlock(&begin_lock);
    return length >= 0 && (size_t)length < text_bytes ? 0 : RESULT_FAILED;
}

int mooncake_store_version(char *out_text, size_t text_bytes)
{
    (void)pthread_mutex_lock(&begin_lock);
    const int length = snprintf(out_text, text_bytes, "%s", version_text);
    (void)pthread_mutex_unlock(&begin_lock);
    return length > 0 && (size_t)length < text_bytes ? 0 : RESULT_FAILED;
}

void mooncake_store_use_path(const char *folder)
{
    (void)pthread_mutex_lock(&begin_lock);
    (void)snprintf(wheel_path, sizeof(wheel_path), "%s", folder);
    (void)pthread_mutex_unlock(&begin_lock);
}

/* ---- the interpreter: with begin_lock ---- */

/* Extension modules take Python's symbols from the process, where a library that was opened for one
 * user alone has not put them. */
static bool symbols_share(void)
{
    Dl_info python;
    const void *anchor = NULL;
    PyObject *(*function)(const char *) = PyImport_ImportModule;
    memcpy(&anchor, &function, sizeof(anchor));
    if (dladdr(anchor, &python) != 0 && python.dli_fname &&
        (dlopen(python.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) ||
         dlsym(RTLD_DEFAULT, "PyImport_ImportModule")))
        return true;
    failure_set("libpython cannot be shared with its modules", "dlopen refused");
    return false;
}

static bool python_begin(void)
{
    if (Py_IsInitialized())
        return true;
    if (!symbols_share())
        return false;
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    config.parse_argv = 0;
    config.write_bytecode = 0;
    const PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        failure_set("Python cannot be started", status.err_msg ? status.err_msg : "no reason");
        return false;
    }
    (void)PyEval_SaveThread(); /* calls take the lock themselves */
    return true;
}

/* The folder is searched first, or last. */
static void path_add(const char *folder, bool is_first)
{
    PyObject *path = PySys_GetObject("path"); /* borrowed */
    PyObject *text = folder[0] ? PyUnicode_DecodeFSDefault(folder) : NULL;
    if (path && text && !PySequence_Contains(path, text))
        (void)PyList_Insert(path, is_first ? 0 : PyList_GET_SIZE(path), text);
    Py_XDECREF(text);
    PyErr_Clear();
}

/* What the wheel says of itself; nothing if it is not installed with its records. */
static void version_find(void)
{
    static const char *const names[] = { "mooncake-transfer-engine-non-cuda",
                                         "mooncake-transfer-engine",
                                         "mooncake-transfer-engine-cuda13" };
    PyObject *metadata = PyImport_ImportModule("importlib.metadata");
    for (size_t i = 0; metadata && !version_text[0] && i < sizeof(names) / sizeof(names[0]); i++) {
        PyObject *version = PyObject_CallMethod(metadata, "version", "s", names[i]);
        const char *text = version ? PyUnicode_AsUTF8(version) : NULL;
        (void)snprintf(version_text, sizeof(version_text), "%s", text ? text : "");
        Py_XDECREF(version);
        PyErr_Clear();
    }
    Py_XDECREF(metadata);
    PyErr_Clear();
}

/* The package's class; NULL with failure_text set. With the interpreter's lock. */
static PyObject *class_import(void)
{
    path_add(wheel_path, true);
#ifdef TARN_MOONCAKE_WHEEL
    path_add(TARN_MOONCAKE_WHEEL, false);
#endif
    PyObject *module = PyImport_ImportModule("mooncake.store");
    PyObject *class = module ? PyObject_GetAttrString(module, "MooncakeDistributedStore") : NULL;
    if (!class)
        exception_say("the Python module mooncake.store cannot be imported", failure_text,
                      sizeof(failure_text));
    else if (!version_text[0])
        version_find();
    Py_XDECREF(module);
    return class;
}

/* ---- life ---- */

static void handle_free(struct handle *handle)
{
    PyObject *objects[] = { handle->setup,     handle->put,   handle->get,  handle->put_multi,
                            handle->get_multi, handle->exist, handle->store };
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        Py_XDECREF(objects[i]);
    PyMem_RawFree(handle);
}

static bool method_find(PyObject *store, const char *name, PyObject **out_method)
{
    *out_method = PyObject_GetAttrString(store, name);
    if (!*out_method)
        exception_say("this version of mooncake.store is too old", failure_text,
                      sizeof(failure_text));
    return *out_method != NULL;
}

static struct handle *handle_make(PyObject *class)
{
    struct handle *handle = PyMem_RawCalloc(1, sizeof(*handle));
    if (!handle) {
        failure_set("no memory", "for a client");
        return NULL;
    }
    handle->store = PyObject_CallNoArgs(class);
    if (!handle->store)
        exception_say("MooncakeDistributedStore()", failure_text, sizeof(failure_text));
    if (handle->store && method_find(handle->store, "setup", &handle->setup) &&
        method_find(handle->store, "batch_put_from", &handle->put) &&
        method_find(handle->store, "batch_get_into", &handle->get) &&
        method_find(handle->store, "batch_put_from_multi_buffers", &handle->put_multi) &&
        method_find(handle->store, "batch_get_into_multi_buffers", &handle->get_multi) &&
        method_find(handle->store, "batch_is_exist", &handle->exist))
        return handle;
    handle_free(handle);
    return NULL;
}

void *mooncake_store_create(void)
{
    struct handle *handle = NULL;
    (void)pthread_mutex_lock(&begin_lock);
    if (python_begin()) {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyObject *class = class_import();
        if (class)
            handle = handle_make(class);
        Py_XDECREF(class);
        PyGILState_Release(state);
    }
    (void)pthread_mutex_unlock(&begin_lock);
    return handle;
}

/* The result of a call that returns a number; takes `result` over. With the lock. */
static int64_t number_take(PyObject *result, const char *what)
{
    int64_t number = RESULT_FAILED;
    if (result)
        number = PyLong_AsLongLong(result);
    if (PyErr_Occurred()) {
        call_failed(what);
        number = RESULT_FAILED;
    }
    Py_XDECREF(result);
    return number;
}

void mooncake_store_destroy(void *store)
{
    struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    (void)number_take(PyObject_CallMethod(handle->store, "close", NULL), "close");
    handle_free(handle);
    PyGILState_Release(state);
}

static int setup_call(const struct handle *handle, PyObject *arguments, const char *tenant_id)
{
    PyObject *names = PyDict_New();
    if (names && arguments && tenant_id) {
        PyObject *tenant = PyUnicode_FromString(tenant_id);
        if (tenant)
            (void)PyDict_SetItemString(names, "tenant_id", tenant);
        Py_XDECREF(tenant);
    }
    PyObject *result = names && arguments && !PyErr_Occurred()
                           ? PyObject_Call(handle->setup, arguments, names)
                           : NULL;
    const int number = (int)number_take(result, "setup");
    Py_XDECREF(names);
    Py_XDECREF(arguments);
    return number;
}

/* NOLINTBEGIN(readability-function-size): as Mooncake has them */

int mooncake_store_setup_tenant(void *store, const char *local_hostname,
                                const char *metadata_server, uint64_t global_segment_size,
                                uint64_t local_buffer_size, const char *protocol,
                                const char *device_name, const char *master_server_address,
                                const char *tenant_id)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *arguments = Py_BuildValue(
        "(ssKKsss)", local_hostname, metadata_server, (unsigned long long)global_segment_size,
        (unsigned long long)local_buffer_size, protocol, device_name, master_server_address);
    const int result = setup_call(store, arguments, tenant_id);
    PyGILState_Release(state);
    return result;
}

int mooncake_store_setup(void *store, const char *local_hostname, const char *metadata_server,
                         uint64_t global_segment_size, uint64_t local_buffer_size,
                         const char *protocol, const char *device_name,
                         const char *master_server_address)
{
    return mooncake_store_setup_tenant(store, local_hostname, metadata_server, global_segment_size,
                                       local_buffer_size, protocol, device_name,
                                       master_server_address, NULL);
}

/* NOLINTEND(readability-function-size) */

/* One of the methods that take numbers alone and return one. */
static int64_t method_call(void *store, const char *method, const char *format,
                           unsigned long long first, unsigned long long second)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    const int64_t number =
        number_take(PyObject_CallMethod(handle->store, method, format, first, second), method);
    PyGILState_Release(state);
    return number;
}

int mooncake_store_setup_dummy(void *store, uint64_t mem_pool_size, uint64_t local_buffer_size,
                               const char *address)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    const int result = (int)number_take(
        PyObject_CallMethod(handle->store, "setup_dummy", "KKs", (unsigned long long)mem_pool_size,
                            (unsigned long long)local_buffer_size, address),
        "setup_dummy");
    PyGILState_Release(state);
    return result;
}

void *mooncake_store_alloc_from_mem_pool(void *store, size_t size)
{
    const int64_t address = method_call(store, "alloc_from_mem_pool", "K", size, 0);
    return address > 0 ? (void *)(uintptr_t)address : NULL; /* NOLINT(performance-no-int-to-ptr) */
}

int mooncake_store_health_check(void *store)
{
    return (int)method_call(store, "health_check", NULL, 0, 0);
}

int mooncake_store_register_buffer(void *store, void *buffer, size_t size)
{
    return (int)method_call(store, "register_buffer", "KK", (uintptr_t)buffer, size);
}

int mooncake_store_unregister_buffer(void *store, void *buffer)
{
    return (int)method_call(store, "unregister_buffer", "K", (uintptr_t)buffer, 0);
}

int mooncake_store_get_hostname(void *store, char *out_name, size_t name_bytes)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *name = PyObject_CallMethod(handle->store, "get_hostname", NULL);
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
    const int length = text ? snprintf(out_name, name_bytes, "%s", text) : -1;
    if (PyErr_Occurred())
        call_failed("get_hostname");
    Py_XDECREF(name);
    PyGILState_Release(state);
    return length > 0 && (size_t)length < name_bytes ? 0 : RESULT_FAILED;
}

int mooncake_store_remove(void *store, const char *key, int force)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *bytes = PyBytes_FromString(key);
    PyObject *result = bytes ? PyObject_CallMethod(handle->store, "remove", "OO", bytes,
                                                   force ? Py_True : Py_False)
                             : NULL;
    const int number = (int)number_take(result, "remove");
    Py_XDECREF(bytes);
    PyGILState_Release(state);
    return number;
}

/* ---- batches: all with the interpreter's lock ---- */

/* Lists are filled by whoever made them; a list with a hole is given up whole. */
static PyObject *list_of_keys(const char **keys, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *key = PyBytes_FromString(keys[i]);
        if (!key)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, key);
    }
    return list;
}

static PyObject *list_of_sizes(const size_t *sizes, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *size = PyLong_FromSize_t(sizes[i]);
        if (!size)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, size);
    }
    return list;
}

static PyObject *list_of_buffers(void **buffers, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *buffer = PyLong_FromSize_t((uintptr_t)buffers[i]);
        if (!buffer)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, buffer);
    }
    return list;
}

/* A list of lists: counts[i] of the buffers are those of object i. */
static PyObject *lists_of_buffers(void **buffers, const size_t *counts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0, at = 0; list && i < count; at += counts[i++]) {
        PyObject *inner = list_of_buffers(buffers + at, counts[i]);
        if (!inner)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, inner);
    }
    return list;
}

/* The same of sizes. */
static PyObject *lists_of_sizes(const size_t *sizes, const size_t *counts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0, at = 0; list && i < count; at += counts[i++]) {
        PyObject *inner = list_of_sizes(sizes + at, counts[i]);
        if (!inner)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, inner);
    }
    return list;
}

/* Numbers out of the list that a method returned; takes it over. One too short, or no list, is a
 * failure of all. */
static int results_take(PyObject *list, size_t count, const char *what, int64_t *out_numbers)
{
    int status = list && PyList_Check(list) && PyList_GET_SIZE(list) == (Py_ssize_t)count
                     ? 0
                     : RESULT_FAILED;
    for (size_t i = 0; i < count && status == 0; i++) {
        out_numbers[i] = PyLong_AsLongLong(PyList_GET_ITEM(list, (Py_ssize_t)i));
        if (PyErr_Occurred())
            status = RESULT_FAILED;
    }
    if (PyErr_Occurred())
        call_failed(what);
    Py_XDECREF(list);
    return status;
}

/* Call with up to three lists, which are taken over; NULL among the first `list_count` fails. */
static int lists_call(PyObject *method, PyObject *lists[3], size_t list_count, size_t count,
                      int64_t *out_numbers)
{
    bool is_whole = true;
    for (size_t i = 0; i < list_count; i++)
        is_whole = is_whole && lists[i];
    PyObject *result = is_whole ? PyObject_Vectorcall(method, lists, list_count, NULL) : NULL;
    for (size_t i = 0; i < list_count; i++)
        Py_XDECREF(lists[i]);
    return results_take(result, count, "a call with lists", out_numbers);
}

/* As lists_call(), for results of 32 bits. */
static int lists_call_int(PyObject *method, PyObject *lists[3], size_t list_count, size_t count,
                          int *out_numbers)
{
    int64_t *numbers = PyMem_RawCalloc(count, sizeof(*numbers));
    int status = RESULT_FAILED;
    if (numbers)
        status = lists_call(method, lists, list_count, count, numbers);
    for (size_t i = 0; i < count && status == 0; i++)
        out_numbers[i] = (int)numbers[i];
    PyMem_RawFree(numbers);
    return status;
}

/* NOLINTBEGIN(readability-function-size): as Mooncake has them */

int mooncake_store_batch_is_exist(void *store, const char **keys, size_t count, int *results)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lists[3] = { list_of_keys(keys, count) };
    const int status = lists_call_int(handle->exist, lists, 1, count, results);
    PyGILState_Release(state);
    return status;
}

int mooncake_store_batch_put_from(void *store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count, const void *config,
                                  int *results)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lists[3] = { list_of_keys(keys, count), list_of_buffers(buffers, count),
                           list_of_sizes(sizes, count) };
    (void)config;
    const int status = lists_call_int(handle->put, lists, 3, count, results);
    PyGILState_Release(state);
    return status;
}

int mooncake_store_batch_get_into(void *store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count, int64_t *results)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lists[3] = { list_of_keys(keys, count), list_of_buffers(buffers, count),
                           list_of_sizes(sizes, count) };
    const int status = lists_call(handle->get, lists, 3, count, results);
    PyGILState_Release(state);
    return status;
}

int mooncake_store_batch_put_from_multi_buffers(void *store, const char **keys, void **buffers,
                                                const size_t *sizes, const size_t *counts,
                                                size_t count, const void *config, int *results)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lists[3] = { list_of_keys(keys, count), lists_of_buffers(buffers, counts, count),
                           lists_of_sizes(sizes, counts, count) };
    (void)config;
    const int status = lists_call_int(handle->put_multi, lists, 3, count, results);
    PyGILState_Release(state);
    return status;
}

int mooncake_store_batch_get_into_multi_buffers(void *store, const char **keys, void **buffers,
                                                const size_t *sizes, const size_t *counts,
                                                size_t count, int64_t *results)
{
    const struct handle *handle = store;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *lists[3] = { list_of_keys(keys, count), lists_of_buffers(buffers, counts, count),
                           lists_of_sizes(sizes, counts, count) };
    const int status = lists_call(handle->get_multi, lists, 3, count, results);
    PyGILState_Release(state);
    return status;
}

/* NOLINTEND(readability-function-size) */
