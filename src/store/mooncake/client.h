/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - a client of a Mooncake pool: a provider, set up with a master, and known to work.
 *
 * After client_open() any thread may call the provider's functions with the client's handle.
 */
#ifndef STORE_MOONCAKE_CLIENT_H
#define STORE_MOONCAKE_CLIENT_H

#include "store/mooncake/options.h"
#include "store/mooncake/provider.h"

struct client {
    struct provider provider;
    void *handle;                               /* NULL: not open */
    uint8_t *canary;                            /* memory that gets may write to until the stop */
    char hostname[MOONCAKE_TEXT_BYTES_MAX + 1]; /* as the pool knows it */
    char version[64];                           /* of the provider; empty: it does not say */
    uint64_t area_bytes; /* of each of CLIENT_AREAS; 0: the client is embedded */
};

/* A standalone client's process reaches no memory of this one but what it gave: objects pass
 * through so many areas of it, local_buffer_size together. */
enum { CLIENT_AREAS = 8 };

/*
 * Set up, check the master's health, then see that the pool works: put a small object under a key
 * of its own, find it, get it, compare it, remove it. Puts that find no space are repeated until
 * master_timeout has passed, which is a warning only: the pool has no memory yet; those that meet
 * the memory of a host that is gone, until the master has noticed. A consumer puts nothing, and
 * reads an object of that kind if there is one. In a process that is told to end (SIGTERM or
 * SIGINT, blocked) it does not wait: AGAIN. Every other failure is logged, with the step and what
 * to do: UNSUPPORTED (no provider, or one that lacks what is asked for; client and master do not
 * understand each other), IO (no master, or it does not answer, or the pool does not give back what
 * was put), NO_MEMORY.
 */
NODISCARD enum tarn_status client_open(const struct mooncake_options *options,
                                       struct client *out_client);

/* Memory that the pool's calls can read and write, zeroed and registered: NO_MEMORY, IO (logged).
 * What it holds is dropped while the client is open; it is freed once that is stopped. A standalone
 * client's stays mapped, since its process may yet write there. NULL is fine. */
NODISCARD enum tarn_status client_memory_take(const struct client *client, size_t size_bytes,
                                              void **out_memory);
void client_memory_drop(const struct client *client, void *memory, size_t size_bytes);
void client_memory_free(const struct client *client, void *memory);

/* No call runs. From the stop on nothing writes to memory that gets were given. Zeroed is fine. */
void client_stop(struct client *client);
void client_close(struct client *client);

#endif
