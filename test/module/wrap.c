/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap.c - a connector module: Tarn's own table, wrapped, as a shared object of its own.
 *
 * It links libtarn.so for tarn_connector_ops(); loaded by a program that exports tarn.h itself, as
 * `tarn` does, it gets that program's. The other functions return tables that must be refused.
 */
#include <stdio.h>
#include <string.h>

#include "tarn/tarn.h"

TARN_API const struct tarn_connector_ops *wrap_entry(uint32_t abi_version);
TARN_API const struct tarn_connector_ops *wrap_other(uint32_t abi_version);
TARN_API const struct tarn_connector_ops *wrap_nothing(uint32_t abi_version);
TARN_API const struct tarn_connector_ops *wrap_short(uint32_t abi_version);
TARN_API const struct tarn_connector_ops *wrap_old(uint32_t abi_version);
TARN_API const struct tarn_connector_ops *wrap_without_open(uint32_t abi_version);

static const struct tarn_connector_ops *inner;

static enum tarn_status wrap_open(const struct tarn_connector_options *options,
                                  const struct tarn_engine_desc *engine,
                                  struct tarn_connector **out_connector)
{
    fprintf(stderr, "wrap: open for %s\n", engine->name ? engine->name : "an engine");
    return inner->open(options, engine, out_connector);
}

static enum tarn_status wrap_lookup(struct tarn_connector *connector,
                                    const struct tarn_request *request, uint64_t computed_tokens,
                                    struct tarn_offer *out_offer)
{
    const enum tarn_status status = inner->lookup(connector, request, computed_tokens, out_offer);
    if (status == TARN_OK)
        fprintf(stderr, "wrap: offer of %d tokens\n", (int)out_offer->token_count);
    return status;
}

/* Tarn's table with our functions in front; NULL for a version that we do not know. */
static struct tarn_connector_ops wrapped(uint32_t abi_version)
{
    struct tarn_connector_ops table;
    inner = tarn_connector_ops(abi_version);
    memset(&table, 0, sizeof(table));
    if (!inner)
        return table;
    memcpy(&table, inner, inner->size < sizeof(table) ? inner->size : sizeof(table));
    table.size = sizeof(table);
    table.open = wrap_open;
    table.lookup = wrap_lookup;
    return table;
}

const struct tarn_connector_ops *wrap_entry(uint32_t abi_version)
{
    static struct tarn_connector_ops table;
    table = wrapped(abi_version);
    return inner ? &table : NULL;
}

const struct tarn_connector_ops *wrap_other(uint32_t abi_version)
{
    static struct tarn_connector_ops table;
    table = wrapped(abi_version);
    table.name = "other";
    return inner ? &table : NULL;
}

const struct tarn_connector_ops *wrap_nothing(uint32_t abi_version)
{
    (void)abi_version;
    return NULL;
}

const struct tarn_connector_ops *wrap_short(uint32_t abi_version)
{
    static struct tarn_connector_ops table;
    table = wrapped(abi_version);
    table.size = offsetof(struct tarn_connector_ops, close);
    return &table;
}

const struct tarn_connector_ops *wrap_old(uint32_t abi_version)
{
    static struct tarn_connector_ops table;
    table = wrapped(abi_version);
    table.abi_version = 99;
    return &table;
}

const struct tarn_connector_ops *wrap_without_open(uint32_t abi_version)
{
    static struct tarn_connector_ops table;
    table = wrapped(abi_version);
    table.open = NULL;
    return &table;
}
