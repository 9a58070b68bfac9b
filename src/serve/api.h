/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - what a client asked for: bodies of HTTP requests, read and checked.
 *
 * The shapes are OpenAI's (completions, chat completions), and for /tokenize and /detokenize those
 * that inference servers agree on. A field that would change the answer and is not supported is
 * refused, by name; fields that would not are passed over. Pure; any thread.
 */
#ifndef SERVE_API_H
#define SERVE_API_H

#include "base/base.h"
#include "codec/json.h"
#include "engine/engine.h"
#include "engine/sampler.h"

enum {
    API_STOPS_MAX = 4,
    API_STOP_BYTES_MAX = 256,
    API_SALT_BYTES_MAX = 256,
    API_MESSAGES_MAX = 4096,
    API_MESSAGE_BYTES = 384
};

enum api_kind { API_COMPLETION, API_CHAT, API_TOKENIZE, API_DETOKENIZE };

/* An answer that is not a success, in OpenAI's terms. */
struct api_error {
    uint32_t http_status;
    const char *type;  /* "invalid_request_error" ... */
    const char *code;  /* or NULL */
    const char *param; /* the field, or NULL */
    char message[API_MESSAGE_BYTES];
};

struct api_stop {
    const char *chars;
    size_t length_bytes;
};

struct api_request {
    enum api_kind kind;
    struct json *body; /* owns the texts below */
    const char *model; /* NULL: not said */

    /* The prompt: exactly one of these is there. */
    const char *prompt; /* text, or NULL */
    size_t prompt_bytes;
    int32_t *tokens; /* or NULL */
    uint32_t token_count;
    struct engine_message *messages; /* or NULL */
    uint32_t message_count;

    struct sampler_params sampling;
    bool has_seed;
    uint32_t max_tokens; /* 0: not said */
    struct api_stop stops[API_STOPS_MAX];
    uint32_t stop_count;
    bool stream;
    bool include_usage;
    const char *cache_salt; /* NULL: none */

    bool add_special; /* tokenize */
    bool parse_special;
    bool add_assistant; /* of a chat */

    char **joined; /* contents that came in parts; one place a message */
};

/* Read a body. INVALID: *out_error says what to answer; NO_MEMORY. On OK deinit it. */
NODISCARD enum tarn_status api_request_read(enum api_kind kind, const char *chars,
                                            size_t length_bytes, struct api_request *out_request,
                                            struct api_error *out_error);
void api_request_deinit(struct api_request *request); /* zeroed is fine */

/* Fill in an error of one's own. `param` may be NULL. */
PRINTF_LIKE(4, 5)
void api_error_set(struct api_error *error, uint32_t http_status, const char *param,
                   const char *format, ...);

#endif
