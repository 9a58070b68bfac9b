/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function-list.h - the functions of Mooncake's C interface that Tarn calls:
 *   X(name, result, parameters, since)
 * The exported name is mooncake_store_NAME; the first parameter of all but create() is what that
 * returned. `since`: the first version of Mooncake that has it. Source of the required ones:
 * mooncake-store/include/store_c.h of Mooncake 0.3.13. The first three optional ones are what
 * Mooncake offers to Python alone, and the bridge (bridge.c) to C; the others are of the bridge.
 *
 * Numbers of bytes and results: 0 or more is good, below zero is one of Mooncake's codes
 * (result.h). `config` is how to replicate; NULL: its default, one copy.
 */
#ifndef STORE_MOONCAKE_FUNCTION_LIST_H
#define STORE_MOONCAKE_FUNCTION_LIST_H

#include <stddef.h>
#include <stdint.h>

#define MOONCAKE_REQUIRED(X)                                                                       \
    X(create, void *, (void), "0.3.10.post2")                                                      \
    X(destroy, void, (void *store), "0.3.10.post2")                                                \
    X(setup, int,                                                                                  \
      (void *store, const char *local_hostname, const char *metadata_server,                       \
       uint64_t global_segment_size, uint64_t local_buffer_size, const char *protocol,             \
       const char *device_name, const char *master_server_address),                                \
      "0.3.10.post2")                                                                              \
    X(health_check, int, (void *store), "0.3.10.post2")                                            \
    X(batch_put_from, int,                                                                         \
      (void *store, const char **keys, void **buffers, const size_t *sizes, size_t count,          \
       const void *config, int *results),                                                          \
      "0.3.10.post2")                                                                              \
    X(batch_get_into, int,                                                                         \
      (void *store, const char **keys, void **buffers, const size_t *sizes, size_t count,          \
       int64_t *results),                                                                          \
      "0.3.10.post2")                                                                              \
    X(batch_is_exist, int, (void *store, const char **keys, size_t count, int *results),           \
      "0.3.10.post2")                                                                              \
    X(remove, int, (void *store, const char *key, int force), "0.3.10.post2")                      \
    X(get_hostname, int, (void *store, char *out_name, size_t name_bytes), "0.3.10.post2")         \
    X(register_buffer, int, (void *store, void *buffer, size_t size), "0.3.10.post2")              \
    X(unregister_buffer, int, (void *store, void *buffer), "0.3.10.post2")

/* Object i is counts[i] buffers, one after the other, of buffers[] and sizes[], which hold those of
 * all objects in order. A get fails unless the sizes add up to the object's. */
#define MOONCAKE_OPTIONAL(X)                                                                       \
    X(batch_put_from_multi_buffers, int,                                                           \
      (void *store, const char **keys, void **buffers, const size_t *sizes, const size_t *counts,  \
       size_t count, const void *config, int *results),                                            \
      "")                                                                                          \
    X(batch_get_into_multi_buffers, int,                                                           \
      (void *store, const char **keys, void **buffers, const size_t *sizes, const size_t *counts,  \
       size_t count, int64_t *results),                                                            \
      "")                                                                                          \
    X(setup_tenant, int,                                                                           \
      (void *store, const char *local_hostname, const char *metadata_server,                       \
       uint64_t global_segment_size, uint64_t local_buffer_size, const char *protocol,             \
       const char *device_name, const char *master_server_address, const char *tenant_id),         \
      "")                                                                                          \
    X(setup_dummy, int,                                                                            \
      (void *store, uint64_t mem_pool_size, uint64_t local_buffer_size, const char *address), "")  \
    X(alloc_from_mem_pool, void *, (void *store, size_t size), "")                                 \
    X(use_path, void, (const char *folder), "")                                                    \
    X(version, int, (char *out_text, size_t text_bytes), "")                                       \
    X(failure, int, (char *out_text, size_t text_bytes), "")

#endif
