/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - what a client of a Mooncake pool is told, and the file mooncake.json that says it.
 *
 * A pool's text is one of
 *   mooncake://HOST:PORT   the master, [V6]:PORT as well; everything else has its default
 *   mooncake:PATH          a mooncake.json
 *   mooncake               the file that the environment variable MOONCAKE_CONFIG_PATH names; else
 *                          $TARN_RUN_DIR/mooncake.json
 * mooncake.json is an object with the keys that vLLM's file of that name has, and Tarn's own: see
 * OPTION rows in options.c. Unknown keys are warned about. Sizes are bytes, or a text with B, KiB,
 * MiB, GiB or TiB; units that programs disagree about are refused.
 */
#ifndef STORE_MOONCAKE_OPTIONS_H
#define STORE_MOONCAKE_OPTIONS_H

#include "base/base.h"

enum {
    MOONCAKE_TEXT_BYTES_MAX = 511,
    MOONCAKE_PATH_BYTES_MAX = 4095,
    MOONCAKE_FILE_BYTES_MAX = 1 << 20,
};

enum mooncake_client {
    MOONCAKE_EMBEDDED = 0, /* the segment is this process's */
    MOONCAKE_STANDALONE,   /* a mooncake_client on this host holds it, at client_address */
};

struct mooncake_options {
    char master_server_address[MOONCAKE_TEXT_BYTES_MAX + 1]; /* HOST:PORT; mandatory */
    char metadata_server[MOONCAKE_TEXT_BYTES_MAX + 1];       /* P2PHANDSHAKE */
    char protocol[MOONCAKE_TEXT_BYTES_MAX + 1];              /* tcp */
    char device_name[MOONCAKE_TEXT_BYTES_MAX + 1];           /* empty: what the library finds */
    char local_hostname[MOONCAKE_TEXT_BYTES_MAX + 1]; /* empty: that of the route to the master */
    char tenant_id[MOONCAKE_TEXT_BYTES_MAX + 1];      /* empty: none */
    char client_address[MOONCAKE_TEXT_BYTES_MAX + 1]; /* of a standalone client */
    char library[MOONCAKE_PATH_BYTES_MAX + 1];        /* see provider_open(); as `wheel` */
    char wheel[MOONCAKE_PATH_BYTES_MAX + 1];
    uint64_t global_segment_bytes; /* lent to the pool; 0: none; see mooncake_lent_bytes() */
    uint64_t local_buffer_bytes;   /* of a standalone client: memory shared with it */
    uint64_t master_timeout_ms;
    uint32_t client; /* enum mooncake_client */

    /* Of the connector, where the file has them: empty and 0 are unset. */
    char cache_prefix[MOONCAKE_TEXT_BYTES_MAX + 1];
    char model_key[MOONCAKE_TEXT_BYTES_MAX + 1];
    uint32_t role; /* enum tarn_role, plus 1 */
    uint32_t transfer_batch_size;
    uint32_t stage_through_host; /* enum tarn_setting */
    uint64_t staging_buffer_bytes;

    /* Not of the file. */
    uint32_t deadline_ms; /* RPC time-outs are set below it */
    bool is_donor;        /* lends memory and moves no traffic: the pool is not tried */
    bool is_consumer;     /* puts nothing, and checks the pool accordingly */
};

/* What a client with these options lends to the pool itself. */
static inline uint64_t mooncake_lent_bytes(const struct mooncake_options *options)
{
    return options->client == MOONCAKE_STANDALONE ? 0 : options->global_segment_bytes;
}

/* Everything at its default. */
void mooncake_options_init(struct mooncake_options *options);

/* Whether the text names a pool of this kind (right or wrong). */
bool mooncake_pool_is(const char *pool);

/* From a pool's text. INVALID: logged, with the key, the value and what to do; IO: the file cannot
 * be read (logged). */
NODISCARD enum tarn_status mooncake_options_read(const char *pool,
                                                 struct mooncake_options *out_options);

/* From a mooncake.json. Fails as mooncake_options_read(). */
NODISCARD enum tarn_status mooncake_options_read_file(const char *path,
                                                      struct mooncake_options *out_options);

/* From the text of a mooncake.json; `name` is for messages. As above. */
NODISCARD enum tarn_status mooncake_options_parse(const char *name, const char *text,
                                                  size_t text_bytes,
                                                  struct mooncake_options *out_options);

#endif
