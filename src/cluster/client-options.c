/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/client-options.h"

#include <stdio.h>

#include "base/log.h"

enum tarn_status client_text_take(const struct options *options, enum option option,
                                  char *out_field, size_t out_bytes)
{
    const char *text = option_text(options, option);
    if (!text || snprintf(out_field, out_bytes, "%s", text) < (int)out_bytes)
        return TARN_OK;
    log_error("--%s: '%.100s...' is longer than %zu bytes", option_name(option), text,
              out_bytes - 1);
    return TARN_INVALID;
}

#define TEXT_TAKE(option, field) TRY(client_text_take(options, option, field, sizeof(field)))

static bool is_chosen(const struct options *options, enum option option)
{
    return options->values[option].source != OPTION_FROM_DEFAULT;
}

enum tarn_status client_from_options(const struct options *options,
                                     struct mooncake_options *out_client)
{
    struct mooncake_options *client = out_client;
    mooncake_options_init(client);
    TEXT_TAKE(OPTION_METADATA_SERVER, client->metadata_server);
    TEXT_TAKE(OPTION_PROTOCOL, client->protocol);
    TEXT_TAKE(OPTION_TENANT_ID, client->tenant_id);
    TEXT_TAKE(OPTION_MODEL_KEY, client->model_key);
    TEXT_TAKE(OPTION_CLIENT_ADDRESS, client->client_address);
    if (client->client_address[0])
        client->client = MOONCAKE_STANDALONE;
    if (is_chosen(options, OPTION_CACHE_PREFIX))
        TEXT_TAKE(OPTION_CACHE_PREFIX, client->cache_prefix);
    if (is_chosen(options, OPTION_TRANSFER_BATCH_SIZE))
        client->transfer_batch_size = (uint32_t)option_number(options, OPTION_TRANSFER_BATCH_SIZE);
    client->stage_through_host = (uint32_t)option_number(options, OPTION_STAGE_THROUGH_HOST);
    if (is_chosen(options, OPTION_STAGING_BUFFER))
        client->staging_buffer_bytes = option_number(options, OPTION_STAGING_BUFFER);
    client->global_segment_bytes = option_number(options, OPTION_GLOBAL_SEGMENT_SIZE);
    client->local_buffer_bytes = option_number(options, OPTION_LOCAL_BUFFER_SIZE);
    client->master_timeout_ms = option_number(options, OPTION_MASTER_TIMEOUT);
    return TARN_OK;
}
