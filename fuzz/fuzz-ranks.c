/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever another rank says, a leader and a worker that have a load under way go on or refuse it,
 * and close. The first byte chooses whom a message is for and how many bytes of the header are made
 * right first, so that the rest of it is looked at; more messages may follow, each behind a byte
 * for itself and two for its length.
 */
#include <string.h>

#include "connector/rank-machine.h"
#include "connector/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { RANKS = 2, T = 4, TOKENS = 20, BLOCKS = 4, MESSAGE_MAX = 4096, MESSAGES_MAX = 8 };

static const struct tarn_connector_ops *ops;
static struct tarn_connector *connectors[RANKS];
static uint8_t header[WIRE_HEADER_BYTES]; /* of the leader's own message */

static bool anything_goes(uint32_t rank, uint64_t id, tarn_page slot)
{
    return rank < RANKS && id != UINT64_MAX && slot < MACHINE_SLOTS;
}

static void quiet(void *context, int level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static void engine_open(void)
{
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
    };
    struct tarn_engine_desc engine = { .size = sizeof(engine),
                                       .model_key = "m",
                                       .format = &format,
                                       .flags = TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                       .world_size = RANKS,
                                       .tensor_parallel_size = RANKS,
                                       .request_count_max = 8,
                                       .request_tokens_max = 64 };
    const struct tarn_connector_options options = { .size = sizeof(options),
                                                    .transfer_batch_size = 2,
                                                    .save_queue_pages_max = 16 };
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tarn_layout layout;
        engine.rank = i;
        enum tarn_status status =
            connector_open_with(&options, &engine, machine_store(i), &connectors[i]);
        ASSERT(status == TARN_OK);
        machine_layout(i, &layout);
        status = ops->register_layout(connectors[i], &layout);
        ASSERT(status == TARN_OK);
    }
}

/* Request 1 loads on both ranks what it can. */
static void load_begin(void)
{
    int32_t tokens[TOKENS];
    struct tarn_chain *chain = NULL;
    tarn_page slots[BLOCKS];
    const tarn_page *const pages[] = { slots, slots };
    struct tarn_offer offer;
    struct tarn_bytes metadata;
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = i;
    for (tarn_page i = 0; i < BLOCKS; i++)
        slots[i] = 3 + i;
    enum tarn_status status = tarn_chain_create(NULL, T, &chain);
    if (status == TARN_OK)
        status = tarn_chain_extend(chain, tokens, TOKENS);
    ASSERT(status == TARN_OK);
    for (size_t i = 0; i < BLOCKS; i++)
        machine_pool_fill(&tarn_chain_digests(chain)[i]);
    tarn_chain_destroy(chain);
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = tokens, .token_count = TOKENS
    };
    status = ops->lookup(connectors[0], &request, 0, &offer);
    ASSERT(status == TARN_OK);
    const struct tarn_step_request part = {
        .id = 1, .pages = pages, .block_count = BLOCKS, .load = 1
    };
    const struct tarn_step step = {
        .size = sizeof(step), .number = 1, .requests = &part, .request_count = 1
    };
    status = ops->step(connectors[0], &step, &metadata);
    ASSERT(status == TARN_OK && metadata.size_bytes > sizeof(header));
    memcpy(header, metadata.data, sizeof(header));
    for (uint32_t i = 0; i < RANKS; i++) {
        status = ops->load_start(connectors[i], metadata);
        ASSERT(status == TARN_OK);
        (void)machine_load(i);
    }
}

/* Magic, version and identity are the leader's own; the kind is what the receiver expects. */
static void message_repair(uint8_t *message, size_t size_bytes, enum wire_kind kind)
{
    if (size_bytes < sizeof(header))
        return;
    memcpy(message, header, 8);
    message[6] = (uint8_t)kind;
    memcpy(message + 16, header + 16, 8);
    if (kind == WIRE_METADATA)
        memcpy(message + 48, header + 48, 8); /* groups, and what is behind a block */
    else
        memset(message + 48, 0, 8);
}

static void message_give(uint8_t choice, const uint8_t *data, size_t size_bytes)
{
    uint8_t message[MESSAGE_MAX];
    struct tarn_bytes out;
    struct tarn_loaded loaded[64];
    size_t count;
    const enum wire_kind kind = (enum wire_kind)(choice % 3 + 1);
    if (size_bytes > sizeof(message))
        size_bytes = sizeof(message);
    if (size_bytes)
        memcpy(message, data, size_bytes);
    if (choice & 0x80)
        message_repair(message, size_bytes, kind);
    const struct tarn_bytes bytes = { message, size_bytes };
    struct tarn_connector *to = connectors[kind == WIRE_REPORT ? 0 : choice >> 2 & 1];
    if (kind == WIRE_METADATA)
        (void)!ops->load_start(to, bytes);
    else if (kind == WIRE_VERDICT)
        (void)!ops->verdict_apply(to, bytes, loaded, LENGTH_OF(loaded), &count);
    else
        (void)!ops->verdict(to, &bytes, 1, &out);
}

static void engine_close(void)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tarn_transfer transfers[64];
        struct tarn_bytes report;
        size_t count;
        (void)!ops->load_poll(connectors[i], 0, &report);
        (void)!ops->forward_done(connectors[i], 1, TARN_OK, NULL);
        while (machine_load(i) || machine_save(i))
            (void)!ops->transfers(connectors[i], transfers, LENGTH_OF(transfers), &count);
        const enum tarn_status status = ops->close(connectors[i], 0);
        ASSERT(status == TARN_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    ops = tarn_connector_ops(TARN_ABI_VERSION);
    tarn_log_to(quiet, NULL);
    machine_init(1, anything_goes);
    engine_open();
    load_begin();
    for (size_t i = 0; i < MESSAGES_MAX && size_bytes >= 3; i++) {
        const uint8_t choice = data[0];
        size_t length = (size_t)data[1] | (size_t)data[2] << 8;
        data += 3;
        size_bytes -= 3;
        if (length > size_bytes)
            length = size_bytes;
        message_give(choice, data, length);
        data += length;
        size_bytes -= length;
    }
    engine_close();
    ASSERT(machine_lease_count() == 0);
    machine_deinit();
    return 0;
}
