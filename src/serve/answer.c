/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "codec/json.h"
#include "serve/output.h"

enum { ANSWER_ID_BYTES = 80 };

static void root_release(struct json **root)
{
    json_destroy(*root);
}

static const char *finish_name(enum answer_finish finish)
{
    return finish == FINISH_LENGTH ? "length" : "stop";
}

static struct json *finish_value(struct json_builder *b, enum answer_finish finish)
{
    return finish == FINISH_NONE ? json_new_null(b) : json_new_string(b, finish_name(finish));
}

static struct json *head_object(struct json_builder *b, const struct answer_head *head,
                                bool is_event)
{
    char id[ANSWER_ID_BYTES];
    const bool is_chat = head->kind == API_CHAT;
    const char *object = !is_chat   ? "text_completion"
                         : is_event ? "chat.completion.chunk"
                                    : "chat.completion";
    (void)snprintf(id, sizeof(id), "%s-%s-%" PRIu64, is_chat ? "chatcmpl" : "cmpl", head->server_id,
                   head->id);
    struct json *root = json_new_object(b);
    json_put(b, root, "id", json_new_string(b, id));
    json_put(b, root, "object", json_new_string(b, object));
    json_put(b, root, "created", json_new_integer(b, head->created_s));
    json_put(b, root, "model", json_new_string(b, head->model));
    return root;
}

static struct json *usage_object(struct json_builder *b, const struct answer_usage *usage)
{
    struct json *object = json_new_object(b);
    struct json *details = json_new_object(b);
    json_put(b, details, "cached_tokens", json_new_integer(b, usage->cached_tokens));
    json_put(b, object, "prompt_tokens", json_new_integer(b, usage->prompt_tokens));
    json_put(b, object, "completion_tokens", json_new_integer(b, usage->completion_tokens));
    json_put(b, object, "total_tokens",
             json_new_integer(b, (int64_t)usage->prompt_tokens + usage->completion_tokens));
    json_put(b, object, "prompt_tokens_details", details);
    return object;
}

/* Add "choices": [one choice], whose own part is `key`: `value`. */
static void put_choice(struct json_builder *b, struct json *root, const char *key,
                       struct json *value, enum answer_finish finish)
{
    struct json *choices = json_new_array(b);
    struct json *choice = json_new_object(b);
    json_put(b, choice, "index", json_new_integer(b, 0));
    json_put(b, choice, key, value);
    json_put(b, choice, "logprobs", json_new_null(b));
    json_put(b, choice, "finish_reason", finish_value(b, finish));
    json_push(b, choices, choice);
    json_put(b, root, "choices", choices);
}

static struct json *text_value(struct json_builder *b, const struct text *text)
{
    return json_new_text(b, text_chars(text), text->length_bytes);
}

enum tarn_status answer_whole(const struct answer_head *head, const struct text *content,
                              enum answer_finish finish, const struct answer_usage *usage,
                              struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = head_object(&b, head, false);
    if (head->kind == API_CHAT) {
        struct json *message = json_new_object(&b);
        json_put(&b, message, "role", json_new_string(&b, "assistant"));
        json_put(&b, message, "content", text_value(&b, content));
        put_choice(&b, root, "message", message, finish);
    } else {
        put_choice(&b, root, "text", text_value(&b, content), finish);
    }
    json_put(&b, root, "usage", usage_object(&b, usage));
    return json_print(&b, root, out);
}

/* All or nothing: a half event would spoil the stream. */
static enum tarn_status event_append(const struct json_builder *b, const struct json *root,
                                     struct text *out)
{
    const size_t length_before = out->length_bytes;
    enum tarn_status status = text_append(out, "data: ");
    if (status == TARN_OK)
        status = json_print(b, root, out);
    if (status == TARN_OK)
        status = text_append(out, "\n\n");
    if (status != TARN_OK)
        text_truncate(out, length_before);
    return status;
}

enum tarn_status answer_event_role(const struct answer_head *head, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = head_object(&b, head, true);
    struct json *delta = json_new_object(&b);
    json_put(&b, delta, "role", json_new_string(&b, "assistant"));
    json_put(&b, delta, "content", json_new_string(&b, ""));
    put_choice(&b, root, "delta", delta, FINISH_NONE);
    return event_append(&b, root, out);
}

enum tarn_status answer_event_text(const struct answer_head *head, const struct text *delta,
                                   struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = head_object(&b, head, true);
    struct json *content = text_value(&b, delta);
    if (head->kind == API_CHAT) {
        struct json *object = json_new_object(&b);
        json_put(&b, object, "content", content);
        put_choice(&b, root, "delta", object, FINISH_NONE);
    } else {
        put_choice(&b, root, "text", content, FINISH_NONE);
    }
    return event_append(&b, root, out);
}

enum tarn_status answer_event_finish(const struct answer_head *head, enum answer_finish finish,
                                     struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = head_object(&b, head, true);
    if (head->kind == API_CHAT)
        put_choice(&b, root, "delta", json_new_object(&b), finish);
    else
        put_choice(&b, root, "text", json_new_string(&b, ""), finish);
    return event_append(&b, root, out);
}

enum tarn_status answer_event_usage(const struct answer_head *head,
                                    const struct answer_usage *usage, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = head_object(&b, head, true);
    json_put(&b, root, "choices", json_new_array(&b));
    json_put(&b, root, "usage", usage_object(&b, usage));
    return event_append(&b, root, out);
}

static struct json *error_object(struct json_builder *b, const struct api_error *error)
{
    struct json *root = json_new_object(b);
    struct json *object = json_new_object(b);
    CLEANUP(text_deinit)
    struct text message;
    text_init(&message, 4 * sizeof(error->message));
    /* A message may quote what a client sent, cut off inside a character. */
    size_t length_bytes = 0;
    while (length_bytes < sizeof(error->message) && error->message[length_bytes])
        length_bytes++;
    if (output_sanitise(error->message, length_bytes, &message) != TARN_OK)
        b->failed = true;
    json_put(b, object, "message", text_value(b, &message));
    json_put(b, object, "type", json_new_string(b, error->type));
    json_put(b, object, "param",
             error->param ? json_new_string(b, error->param) : json_new_null(b));
    json_put(b, object, "code", error->code ? json_new_string(b, error->code) : json_new_null(b));
    json_put(b, root, "error", object);
    return root;
}

enum tarn_status answer_error(const struct api_error *error, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = error_object(&b, error);
    return json_print(&b, root, out);
}

enum tarn_status answer_event_error(const struct api_error *error, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = error_object(&b, error);
    return event_append(&b, root, out);
}

enum tarn_status answer_event_done(struct text *out)
{
    return text_append(out, "data: [DONE]\n\n");
}

static struct json *model_object(struct json_builder *b, const char *model, int64_t created_s,
                                 uint32_t ctx_tokens)
{
    struct json *object = json_new_object(b);
    json_put(b, object, "id", json_new_string(b, model));
    json_put(b, object, "object", json_new_string(b, "model"));
    json_put(b, object, "created", json_new_integer(b, created_s));
    json_put(b, object, "owned_by", json_new_string(b, "tarn"));
    json_put(b, object, "max_model_len", json_new_integer(b, ctx_tokens));
    return object;
}

enum tarn_status answer_model(const char *model, int64_t created_s, uint32_t ctx_tokens,
                              struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = model_object(&b, model, created_s, ctx_tokens);
    return json_print(&b, root, out);
}

enum tarn_status answer_models(const char *model, int64_t created_s, uint32_t ctx_tokens,
                               struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = json_new_object(&b);
    struct json *list = json_new_array(&b);
    json_push(&b, list, model_object(&b, model, created_s, ctx_tokens));
    json_put(&b, root, "object", json_new_string(&b, "list"));
    json_put(&b, root, "data", list);
    return json_print(&b, root, out);
}

enum tarn_status answer_tokens(const int32_t *tokens, uint32_t count, uint32_t ctx_tokens,
                               struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = json_new_object(&b);
    struct json *list = json_new_array(&b);
    for (uint32_t i = 0; i < count; i++)
        json_push(&b, list, json_new_integer(&b, tokens[i]));
    json_put(&b, root, "count", json_new_integer(&b, count));
    json_put(&b, root, "max_model_len", json_new_integer(&b, ctx_tokens));
    json_put(&b, root, "tokens", list);
    return json_print(&b, root, out);
}

enum tarn_status answer_prompt(const struct text *prompt, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = json_new_object(&b);
    json_put(&b, root, "prompt", text_value(&b, prompt));
    return json_print(&b, root, out);
}

enum tarn_status answer_status(const char *status, const char *reason, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = json_new_object(&b);
    json_put(&b, root, "status", json_new_string(&b, status));
    if (reason)
        json_put(&b, root, "reason", json_new_string(&b, reason));
    return json_print(&b, root, out);
}

enum tarn_status answer_version(const char *version, struct text *out)
{
    struct json_builder b = { 0 };
    CLEANUP(root_release)
    struct json *root = json_new_object(&b);
    json_put(&b, root, "version", json_new_string(&b, version));
    return json_print(&b, root, out);
}
