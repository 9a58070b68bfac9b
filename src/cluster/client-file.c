/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/client-file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "codec/json.h"

enum { FILE_BYTES_MAX = 1 << 16 };

static void text_put(struct json_builder *builder, struct json *root, const char *key,
                     const char *text)
{
    if (text[0])
        json_put(builder, root, key, json_new_string(builder, text));
}

static void number_put(struct json_builder *builder, struct json *root, const char *key,
                       uint64_t number)
{
    json_put(builder, root, key, json_new_integer(builder, (int64_t)number));
}

enum tarn_status client_file_print(const struct mooncake_options *options, struct text *out)
{
    struct json_builder builder = { 0 };
    struct json *root = json_new_object(&builder);
    text_put(&builder, root, "local_hostname", options->local_hostname);
    text_put(&builder, root, "metadata_server", options->metadata_server);
    text_put(&builder, root, "master_server_address", options->master_server_address);
    text_put(&builder, root, "protocol", options->protocol);
    text_put(&builder, root, "device_name", options->device_name);
    text_put(&builder, root, "tenant_id", options->tenant_id);
    number_put(&builder, root, "global_segment_size", options->global_segment_bytes);
    number_put(&builder, root, "local_buffer_size", options->local_buffer_bytes);
    number_put(&builder, root, "master_timeout", options->master_timeout_ms);
    text_put(&builder, root, "cache_prefix", options->cache_prefix);
    text_put(&builder, root, "model_key", options->model_key);
    if (options->transfer_batch_size)
        number_put(&builder, root, "transfer_batch_size", options->transfer_batch_size);
    if (options->stage_through_host != TARN_SETTING_UNSET)
        text_put(&builder, root, "stage_through_host",
                 options->stage_through_host == TARN_SETTING_ON ? "on" : "off");
    if (options->staging_buffer_bytes)
        number_put(&builder, root, "staging_buffer_bytes", options->staging_buffer_bytes);
    if (options->client == MOONCAKE_STANDALONE)
        text_put(&builder, root, "client", "standalone");
    text_put(&builder, root, "client_address", options->client_address);
    text_put(&builder, root, "library", options->library);
    text_put(&builder, root, "wheel", options->wheel);
    text_put(&builder, root, "role", "both");
    const enum tarn_status status = json_print(&builder, root, out);
    json_destroy(root);
    return status;
}

enum tarn_status client_file_write(const struct mooncake_options *options, const char *path)
{
    struct text text;
    text_init(&text, FILE_BYTES_MAX);
    enum tarn_status status = client_file_print(options, &text);
    FILE *file = status == TARN_OK ? fopen(path, "we") : NULL;
    if (status == TARN_OK) {
        bool is_written = file && fprintf(file, "%s\n", text_chars(&text)) > 0;
        is_written = file && fclose(file) == 0 && is_written;
        if (!is_written) {
            log_error("%s: %s", path, strerrordesc_np(errno));
            status = TARN_IO;
        }
    }
    text_deinit(&text);
    return status;
}
