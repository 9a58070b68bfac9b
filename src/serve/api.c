/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static const struct {
    uint32_t http_status;
    const char *type;
    const char *code;
} status_rows[] = {
    { 400, "invalid_request_error", NULL },
    { 404, "invalid_request_error", "not_found" },
    { 405, "invalid_request_error", "method_not_allowed" },
    { 413, "invalid_request_error", "request_too_large" },
    { 500, "server_error", "internal_error" },
    { 503, "server_error", "overloaded" },
};

void api_error_set(struct api_error *error, uint32_t http_status, const char *param,
                   const char *format, ...)
{
    *error = (struct api_error){ .http_status = http_status, .param = param };
    for (size_t i = 0; i < LENGTH_OF(status_rows); i++) {
        if (status_rows[i].http_status == http_status) {
            error->type = status_rows[i].type;
            error->code = status_rows[i].code;
        }
    }
    ASSERT(error->type);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
}

/* What reads a field: the body, and where to say what is wrong with it. */
struct reading {
    struct api_request *request;
    struct api_error *error;
};

static enum tarn_status wrong_kind(const struct reading *r, const char *name, const char *wanted,
                                   const struct json *found)
{
    api_error_set(r->error, 400, name, "'%s' must be %s, not %s", name, wanted,
                  json_kind_name(json_kind_of(found)));
    return TARN_INVALID;
}

static enum tarn_status out_of_range(const struct reading *r, const char *name, const char *range)
{
    api_error_set(r->error, 400, name, "'%s' must be %s", name, range);
    return TARN_INVALID;
}

/* A member that is there and not null, else NULL. */
static const struct json *field(const struct reading *r, const char *name)
{
    const struct json *member = json_member(r->request->body, name);
    return json_kind_of(member) == JSON_IS_NULL ? NULL : member;
}

/* The readers of one field leave the target as it is when the field is absent. */
static enum tarn_status read_bool(const struct reading *r, const char *name, bool *target)
{
    const struct json *value = field(r, name);
    if (!value)
        return TARN_OK;
    if (json_kind_of(value) != JSON_IS_BOOL)
        return wrong_kind(r, name, "a boolean", value);
    *target = json_bool(value);
    return TARN_OK;
}

static enum tarn_status read_text(const struct reading *r, const char *name, const char **target)
{
    const struct json *value = field(r, name);
    if (!value)
        return TARN_OK;
    if (json_kind_of(value) != JSON_IS_TEXT)
        return wrong_kind(r, name, "a string", value);
    *target = json_text(value);
    return TARN_OK;
}

static enum tarn_status read_number(const struct reading *r, const char *name, double *target)
{
    const struct json *value = field(r, name);
    if (!value)
        return TARN_OK;
    if (json_kind_of(value) != JSON_IS_INTEGER && json_kind_of(value) != JSON_IS_REAL)
        return wrong_kind(r, name, "a number", value);
    *target = json_number(value);
    return TARN_OK;
}

static enum tarn_status read_integer(const struct reading *r, const char *name, int64_t *target)
{
    const struct json *value = field(r, name);
    if (!value)
        return TARN_OK;
    if (json_kind_of(value) != JSON_IS_INTEGER)
        return wrong_kind(r, name, "an integer", value);
    *target = json_int(value);
    return TARN_OK;
}

/* Fields of OpenAI's API that are not supported: only the value that asks for nothing passes. */
enum nothing { NOTHING_ONE, NOTHING_ZERO, NOTHING_FALSE, NOTHING_EMPTY, NOTHING_AT_ALL };

static const struct {
    const char *name;
    enum nothing nothing;
    const char *allowed;
} unsupported_rows[] = {
    { "n", NOTHING_ONE, "1" },
    { "best_of", NOTHING_ONE, "1" },
    { "echo", NOTHING_FALSE, "false" },
    { "logprobs", NOTHING_FALSE, "absent or false" },
    { "top_logprobs", NOTHING_ZERO, "absent or 0" },
    { "suffix", NOTHING_AT_ALL, "absent" },
    { "presence_penalty", NOTHING_ZERO, "0" },
    { "frequency_penalty", NOTHING_ZERO, "0" },
    { "repetition_penalty", NOTHING_ONE, "1" },
    { "min_p", NOTHING_ZERO, "0" },
    { "logit_bias", NOTHING_EMPTY, "empty" },
    { "tools", NOTHING_EMPTY, "empty" },
    { "functions", NOTHING_EMPTY, "empty" },
};

static bool asks_for_nothing(enum nothing nothing, const struct json *value)
{
    const enum json_kind kind = json_kind_of(value);
    const bool is_number = kind == JSON_IS_INTEGER || kind == JSON_IS_REAL;
    switch (nothing) {
    case NOTHING_ONE:
        return is_number && fabs(json_number(value) - 1.0) < 1e-9;
    case NOTHING_ZERO:
        return is_number && fabs(json_number(value)) < 1e-9;
    case NOTHING_FALSE:
        return kind == JSON_IS_BOOL && !json_bool(value);
    case NOTHING_EMPTY:
        return (kind == JSON_IS_ARRAY || kind == JSON_IS_OBJECT) && json_count(value) == 0;
    case NOTHING_AT_ALL:
        break;
    }
    return false;
}

static enum tarn_status check_unsupported(const struct reading *r)
{
    for (size_t i = 0; i < LENGTH_OF(unsupported_rows); i++) {
        const char *name = unsupported_rows[i].name;
        const struct json *value = field(r, name);
        if (value && !asks_for_nothing(unsupported_rows[i].nothing, value)) {
            api_error_set(r->error, 400, name, "'%s' is not supported: it must be %s", name,
                          unsupported_rows[i].allowed);
            r->error->code = "unsupported_parameter";
            return TARN_INVALID;
        }
    }
    const struct json *type = json_member(field(r, "response_format"), "type");
    if (type && (json_kind_of(type) != JSON_IS_TEXT || strcmp(json_text(type), "text") != 0)) {
        api_error_set(r->error, 400, "response_format",
                      "'response_format' is not supported: its type must be text");
        r->error->code = "unsupported_parameter";
        return TARN_INVALID;
    }
    return TARN_OK;
}

static enum tarn_status read_sampling(const struct reading *r)
{
    double temperature = 1.0;
    double top_p = 1.0;
    int64_t top_k = 0;
    int64_t seed = 0;
    TRY(read_number(r, "temperature", &temperature));
    if (!(temperature >= 0.0 && temperature <= 2.0))
        return out_of_range(r, "temperature", "between 0 and 2");
    TRY(read_number(r, "top_p", &top_p));
    if (!(top_p > 0.0 && top_p <= 1.0))
        return out_of_range(r, "top_p", "above 0 and at most 1");
    TRY(read_integer(r, "top_k", &top_k));
    if (top_k < -1 || top_k > INT32_MAX)
        return out_of_range(r, "top_k", "a number of tokens; 0 or -1 is all");
    TRY(read_integer(r, "seed", &seed));
    r->request->has_seed = field(r, "seed") != NULL;
    r->request->sampling = (struct sampler_params){
        .temperature = (float)temperature,
        .top_p = (float)top_p,
        .top_k = top_k < 0 ? 0 : (int32_t)top_k,
        .seed = (uint32_t)((uint64_t)seed ^ ((uint64_t)seed >> 32)),
    };
    return TARN_OK;
}

static enum tarn_status read_max_tokens(const struct reading *r, const char *name)
{
    const struct json *value = field(r, name);
    int64_t max_tokens = 0;
    if (!value)
        return TARN_OK;
    TRY(read_integer(r, name, &max_tokens));
    if (max_tokens < 1)
        return out_of_range(r, name, "at least 1");
    r->request->max_tokens = max_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)max_tokens;
    return TARN_OK;
}

static enum tarn_status read_stop(const struct reading *r, const struct json *value)
{
    struct api_request *request = r->request;
    if (json_kind_of(value) != JSON_IS_TEXT)
        return wrong_kind(r, "stop", "a string or an array of strings", value);
    if (request->stop_count == API_STOPS_MAX)
        return out_of_range(r, "stop", "at most 4 strings");
    if (json_text_bytes(value) == 0 || json_text_bytes(value) > API_STOP_BYTES_MAX)
        return out_of_range(r, "stop", "strings of 1 to 256 bytes");
    request->stops[request->stop_count++] =
        (struct api_stop){ json_text(value), json_text_bytes(value) };
    return TARN_OK;
}

static enum tarn_status read_stops(const struct reading *r)
{
    const struct json *value = field(r, "stop");
    if (!value)
        return TARN_OK;
    if (json_kind_of(value) != JSON_IS_ARRAY)
        return read_stop(r, value);
    for (size_t i = 0; i < json_count(value); i++)
        TRY(read_stop(r, json_item(value, i)));
    return TARN_OK;
}

static enum tarn_status read_stream(const struct reading *r)
{
    TRY(read_bool(r, "stream", &r->request->stream));
    const struct json *options = field(r, "stream_options");
    if (!options)
        return TARN_OK;
    if (json_kind_of(options) != JSON_IS_OBJECT)
        return wrong_kind(r, "stream_options", "an object", options);
    if (!r->request->stream) {
        api_error_set(r->error, 400, "stream_options",
                      "'stream_options' is for requests with 'stream' true");
        return TARN_INVALID;
    }
    const struct json *include_usage = json_member(options, "include_usage");
    if (json_kind_of(include_usage) > JSON_IS_BOOL)
        return wrong_kind(r, "stream_options.include_usage", "a boolean", include_usage);
    r->request->include_usage = json_bool(include_usage);
    return TARN_OK;
}

static enum tarn_status read_salt(const struct reading *r)
{
    TRY(read_text(r, "cache_salt", &r->request->cache_salt));
    const char *salt = r->request->cache_salt;
    if (salt && strlen(salt) > API_SALT_BYTES_MAX)
        return out_of_range(r, "cache_salt", "at most 256 bytes");
    if (salt && salt[0] == '\0')
        r->request->cache_salt = NULL;
    return TARN_OK;
}

/* The token ids of an array whose first item is an integer. */
static enum tarn_status read_tokens(const struct reading *r, const char *name,
                                    const struct json *array)
{
    const size_t count = json_count(array);
    int32_t *tokens = mem_alloc(count, sizeof(*tokens));
    if (!tokens)
        return TARN_NO_MEMORY;
    r->request->tokens = tokens;
    r->request->token_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const struct json *item = json_item(array, i);
        if (json_kind_of(item) != JSON_IS_INTEGER)
            return wrong_kind(r, name, "token ids throughout", item);
        if (json_int(item) < 0 || json_int(item) > INT32_MAX)
            return out_of_range(r, name, "token ids of the vocabulary");
        tokens[i] = (int32_t)json_int(item);
    }
    return TARN_OK;
}

/* A text, an array of token ids, or an array of exactly one of these. */
static enum tarn_status read_prompt(const struct reading *r, const char *name)
{
    const struct json *value = field(r, name);
    static const char *const wanted = "a string or an array of token ids";
    if (json_kind_of(value) == JSON_IS_ARRAY && json_kind_of(json_item(value, 0)) > JSON_IS_REAL) {
        if (json_count(value) > 1) {
            api_error_set(r->error, 400, name, "'%s' must be one prompt, not %zu", name,
                          json_count(value));
            return TARN_INVALID;
        }
        value = json_item(value, 0);
    }
    if (json_kind_of(value) == JSON_IS_TEXT) {
        r->request->prompt = json_text(value);
        r->request->prompt_bytes = json_text_bytes(value);
        return TARN_OK;
    }
    if (json_kind_of(value) != JSON_IS_ARRAY)
        return wrong_kind(r, name, wanted, value);
    if (json_count(value) == 0)
        return out_of_range(r, name, "at least one token long");
    return read_tokens(r, name, value);
}

/* Add up, then join, the texts of a content that came in parts. */
static enum tarn_status join_parts(const struct reading *r, const struct json *parts, size_t index)
{
    size_t length_bytes = 0;
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *type = json_member(json_item(parts, i), "type");
        const struct json *text = json_member(json_item(parts, i), "text");
        if (json_kind_of(type) != JSON_IS_TEXT || strcmp(json_text(type), "text") != 0 ||
            json_kind_of(text) != JSON_IS_TEXT) {
            api_error_set(r->error, 400, "messages",
                          "messages[%zu].content[%zu] must be {\"type\": \"text\", \"text\": ...}: "
                          "other parts are not supported",
                          index, i);
            return TARN_INVALID;
        }
        length_bytes += json_text_bytes(text);
    }
    char *joined = mem_alloc(length_bytes + 1, 1);
    if (!joined)
        return TARN_NO_MEMORY;
    r->request->joined[index] = joined;
    r->request->messages[index].content = joined;
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *text = json_member(json_item(parts, i), "text");
        memcpy(joined, json_text(text), json_text_bytes(text));
        joined += json_text_bytes(text);
    }
    return TARN_OK;
}

static enum tarn_status read_role(const struct reading *r, const struct json *role, size_t index)
{
    static const struct {
        const char *said;
        const char *meant;
    } roles[] = { { "system", "system" },
                  { "developer", "system" },
                  { "user", "user" },
                  { "assistant", "assistant" } };
    for (size_t i = 0; json_kind_of(role) == JSON_IS_TEXT && i < LENGTH_OF(roles); i++) {
        if (strcmp(json_text(role), roles[i].said) == 0) {
            r->request->messages[index].role = roles[i].meant;
            return TARN_OK;
        }
    }
    api_error_set(r->error, 400, "messages",
                  "messages[%zu].role must be system, developer, user or assistant", index);
    return TARN_INVALID;
}

static enum tarn_status read_message(const struct reading *r, const struct json *message,
                                     size_t index)
{
    if (json_kind_of(message) != JSON_IS_OBJECT) {
        api_error_set(r->error, 400, "messages", "messages[%zu] must be an object, not %s", index,
                      json_kind_name(json_kind_of(message)));
        return TARN_INVALID;
    }
    TRY(read_role(r, json_member(message, "role"), index));
    const struct json *content = json_member(message, "content");
    if (json_kind_of(content) == JSON_IS_ARRAY)
        return join_parts(r, content, index);
    if (json_kind_of(content) != JSON_IS_TEXT) {
        api_error_set(r->error, 400, "messages",
                      "messages[%zu].content must be a string or an array of parts, not %s", index,
                      json_kind_name(json_kind_of(content)));
        return TARN_INVALID;
    }
    r->request->messages[index].content = json_text(content);
    return TARN_OK;
}

static enum tarn_status read_messages(const struct reading *r)
{
    const struct json *messages = field(r, "messages");
    if (json_kind_of(messages) != JSON_IS_ARRAY)
        return wrong_kind(r, "messages", "an array", messages);
    const size_t count = json_count(messages);
    if (count == 0 || count > API_MESSAGES_MAX)
        return out_of_range(r, "messages", "1 to 4096 messages");
    struct api_request *request = r->request;
    request->message_count = (uint32_t)count;
    request->joined = mem_alloc(count, sizeof(*request->joined));
    request->messages = mem_alloc(count, sizeof(*request->messages));
    if (!request->joined || !request->messages)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        TRY(read_message(r, json_item(messages, i), i));
    return TARN_OK;
}

static enum tarn_status read_generation(const struct reading *r)
{
    TRY(check_unsupported(r));
    TRY(read_sampling(r));
    TRY(read_max_tokens(r, "max_tokens"));
    if (r->request->kind == API_CHAT)
        TRY(read_max_tokens(r, "max_completion_tokens"));
    TRY(read_stops(r));
    TRY(read_stream(r));
    return read_salt(r);
}

static enum tarn_status read_tokenize(const struct reading *r)
{
    TRY(read_bool(r, "add_special", &r->request->add_special));
    TRY(read_bool(r, "add_special_tokens", &r->request->add_special));
    TRY(read_bool(r, "parse_special", &r->request->parse_special));
    TRY(read_bool(r, "add_generation_prompt", &r->request->add_assistant));
    if (field(r, "messages"))
        return read_messages(r);
    const char *name = field(r, "content") ? "content" : "prompt";
    const struct json *value = field(r, name);
    if (json_kind_of(value) != JSON_IS_TEXT)
        return wrong_kind(r, name, "a string", value);
    r->request->prompt = json_text(value);
    r->request->prompt_bytes = json_text_bytes(value);
    return TARN_OK;
}

static enum tarn_status read_detokenize(const struct reading *r)
{
    const struct json *value = field(r, "tokens");
    if (json_kind_of(value) != JSON_IS_ARRAY)
        return wrong_kind(r, "tokens", "an array of token ids", value);
    return read_tokens(r, "tokens", value);
}

static enum tarn_status read_body(const struct reading *r)
{
    if (json_kind_of(r->request->body) != JSON_IS_OBJECT) {
        api_error_set(r->error, 400, NULL, "the body must be a JSON object, not %s",
                      json_kind_name(json_kind_of(r->request->body)));
        return TARN_INVALID;
    }
    TRY(read_text(r, "model", &r->request->model));
    switch (r->request->kind) {
    case API_COMPLETION:
        TRY(read_prompt(r, "prompt"));
        return read_generation(r);
    case API_CHAT:
        TRY(read_messages(r));
        return read_generation(r);
    case API_TOKENIZE:
        return read_tokenize(r);
    case API_DETOKENIZE:
        return read_detokenize(r);
    }
    return TARN_INVALID;
}

enum tarn_status api_request_read(enum api_kind kind, const char *chars, size_t length_bytes,
                                  struct api_request *out_request, struct api_error *out_error)
{
    char reason[JSON_REASON_BYTES] = "";
    CLEANUP(api_request_deinit)
    struct api_request request = {
        .kind = kind, .add_special = true, .parse_special = true, .add_assistant = true
    };
    const struct reading r = { .request = &request, .error = out_error };
    const enum tarn_status status = json_parse(chars, length_bytes, &request.body, reason);
    if (status == TARN_INVALID)
        api_error_set(out_error, 400, NULL, "the body is not JSON: %s", reason);
    TRY(status);
    TRY(read_body(&r));
    *out_request = request;
    request = (struct api_request){ 0 };
    return TARN_OK;
}

void api_request_deinit(struct api_request *request)
{
    for (uint32_t i = 0; request->joined && i < request->message_count; i++)
        mem_free(request->joined[i]);
    mem_free((void *)request->joined);
    mem_free(request->messages);
    mem_free(request->tokens);
    json_destroy(request->body);
    *request = (struct api_request){ 0 };
}
