/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an HTTP request: the first byte chooses the endpoint. What is accepted is within all
 * limits; what is refused has an error to answer with. */
#include <string.h>

#include "base/alloc.h"
#include "serve/answer.h"
#include "serve/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void check_accepted(const struct api_request *request)
{
    const struct sampler_params *sampling = &request->sampling;
    if (request->kind == API_COMPLETION || request->kind == API_CHAT) {
        ASSERT(sampling->temperature >= 0.0F && sampling->temperature <= 2.0F);
        ASSERT(sampling->top_p >= 0.0F && sampling->top_p <= 1.0F && sampling->top_k >= 0);
    }
    ASSERT(request->stop_count <= API_STOPS_MAX);
    for (uint32_t i = 0; i < request->stop_count; i++) {
        ASSERT(request->stops[i].length_bytes > 0);
        ASSERT(request->stops[i].length_bytes <= API_STOP_BYTES_MAX);
    }
    for (uint32_t i = 0; i < request->token_count; i++)
        ASSERT(request->tokens[i] >= 0);
    for (uint32_t i = 0; i < request->message_count; i++)
        ASSERT(request->messages[i].role && request->messages[i].content);
    ASSERT(request->prompt || request->tokens || request->messages);
    ASSERT(!request->cache_salt || strlen(request->cache_salt) <= API_SALT_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct api_request request;
    struct api_error error;
    if (size_bytes == 0)
        return 0;
    const size_t live_count = mem_live_count();
    const enum api_kind kind = (enum api_kind)(data[0] % 4);
    const enum tarn_status status =
        api_request_read(kind, (const char *)data + 1, size_bytes - 1, &request, &error);
    if (status == TARN_OK) {
        check_accepted(&request);
        api_request_deinit(&request);
    } else {
        struct text text;
        ASSERT(status == TARN_INVALID);
        text_init(&text, 1 << 16);
        ASSERT(error.http_status == 400 && answer_error(&error, &text) == TARN_OK);
        text_deinit(&text);
    }
    ASSERT(mem_live_count() == live_count);
    return 0;
}
