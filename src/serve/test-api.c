/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

static struct api_request accepted(enum api_kind kind, const char *body)
{
    struct api_request request;
    struct api_error error = { 0 };
    if (api_request_read(kind, body, strlen(body), &request, &error) != TARN_OK)
        fail_msg("%s: %s", body, error.message);
    return request;
}

static void refused(enum api_kind kind, const char *body, const char *param, const char *part)
{
    struct api_request request;
    struct api_error error = { 0 };
    assert_int_equal(api_request_read(kind, body, strlen(body), &request, &error), TARN_INVALID);
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.type, "invalid_request_error");
    if (!strstr(error.message, part))
        fail_msg("'%s' does not say '%s'", error.message, part);
    if (param)
        assert_string_equal(error.param, param);
    else
        assert_null(error.param);
}

#define CHAT(fields)   "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" fields "}"
#define PROMPT(fields) "{\"prompt\":\"Hi\"" fields "}"

static void a_plain_completion_gets_openai_s_defaults(void **state)
{
    (void)state;
    struct api_request r = accepted(API_COMPLETION, "{\"prompt\":\"Hi \\u00e9\"}");
    assert_string_equal(r.prompt, "Hi \xc3\xa9");
    assert_int_equal(r.prompt_bytes, 5);
    assert_null(r.model);
    assert_true(r.sampling.temperature == 1.0F);
    assert_true(r.sampling.top_p == 1.0F);
    assert_int_equal(r.sampling.top_k, 0);
    assert_false(r.has_seed);
    assert_int_equal(r.max_tokens, 0);
    assert_false(r.stream);
    assert_int_equal(r.stop_count, 0);
    assert_null(r.cache_salt);
    api_request_deinit(&r);
}

static void every_field_of_a_chat_is_read(void **state)
{
    (void)state;
    struct api_request r =
        accepted(API_CHAT,
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief\"},"
                 "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                 "{\"type\":\"text\",\"text\":\"bc\"}]}],\"temperature\":0,\"top_p\":0.5,"
                 "\"top_k\":40,\"seed\":7,\"max_tokens\":9,\"max_completion_tokens\":10,"
                 "\"stop\":[\"x\",\"yz\"],\"stream\":true,"
                 "\"stream_options\":{\"include_usage\":true},\"cache_salt\":\"s\",\"n\":1,"
                 "\"user\":\"someone\",\"logprobs\":null,\"frequency_penalty\":0}");
    assert_string_equal(r.model, "m");
    assert_int_equal(r.message_count, 2);
    assert_string_equal(r.messages[0].role, "system");
    assert_string_equal(r.messages[0].content, "Be brief");
    assert_string_equal(r.messages[1].role, "user");
    assert_string_equal(r.messages[1].content, "abc");
    assert_true(r.sampling.temperature == 0.0F);
    assert_true(r.sampling.top_p == 0.5F);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.has_seed);
    assert_int_equal(r.sampling.seed, 7);
    assert_int_equal(r.max_tokens, 10);
    assert_int_equal(r.stop_count, 2);
    assert_string_equal(r.stops[1].chars, "yz");
    assert_true(r.stream);
    assert_true(r.include_usage);
    assert_string_equal(r.cache_salt, "s");
    api_request_deinit(&r);
}

static void a_prompt_may_be_token_ids_or_an_array_of_one(void **state)
{
    (void)state;
    struct api_request r = accepted(API_COMPLETION, "{\"prompt\":[1,2,3]}");
    assert_int_equal(r.token_count, 3);
    assert_int_equal(r.tokens[2], 3);
    api_request_deinit(&r);
    r = accepted(API_COMPLETION, "{\"prompt\":[[4,5]]}");
    assert_int_equal(r.token_count, 2);
    assert_int_equal(r.tokens[0], 4);
    api_request_deinit(&r);
    r = accepted(API_COMPLETION, "{\"prompt\":[\"Hi\"]}");
    assert_string_equal(r.prompt, "Hi");
    api_request_deinit(&r);

    refused(API_COMPLETION, "{\"prompt\":[]}", "prompt", "at least one token");
    refused(API_COMPLETION, "{\"prompt\":[[]]}", "prompt", "at least one token");
    refused(API_COMPLETION, "{\"prompt\":[\"a\",\"b\"]}", "prompt", "one prompt, not 2");
    refused(API_COMPLETION, "{\"prompt\":[1,\"b\"]}", "prompt", "token ids throughout");
    refused(API_COMPLETION, "{\"prompt\":[-1]}", "prompt", "of the vocabulary");
    refused(API_COMPLETION, "{\"prompt\":[1.5]}", "prompt", "token ids");
    refused(API_COMPLETION, "{\"prompt\":[9999999999]}", "prompt", "of the vocabulary");
    refused(API_COMPLETION, "{\"prompt\":7}", "prompt", "not an integer");
    refused(API_COMPLETION, "{}", "prompt", "not absent");
}

static void wrong_types_are_refused_by_name(void **state)
{
    (void)state;
    refused(API_COMPLETION, "[1]", NULL, "must be a JSON object, not an array");
    refused(API_COMPLETION, "{", NULL, "not JSON");
    refused(API_COMPLETION, PROMPT(",\"temperature\":\"hot\""), "temperature", "not a string");
    refused(API_COMPLETION, PROMPT(",\"max_tokens\":1.5"), "max_tokens", "an integer");
    refused(API_COMPLETION, PROMPT(",\"stream\":1"), "stream", "a boolean");
    refused(API_COMPLETION, PROMPT(",\"seed\":\"x\""), "seed", "an integer");
    refused(API_COMPLETION, PROMPT(",\"stop\":5"), "stop", "array of strings");
    refused(API_COMPLETION, PROMPT(",\"stop\":[1]"), "stop", "array of strings");
    refused(API_COMPLETION, PROMPT(",\"model\":[]"), "model", "a string");
    refused(API_COMPLETION, PROMPT(",\"cache_salt\":3"), "cache_salt", "a string");
    refused(API_COMPLETION, PROMPT(",\"stream\":true,\"stream_options\":1"), "stream_options",
            "an object");
    refused(API_CHAT, "{\"messages\":{}}", "messages", "an array, not an object");
    refused(API_CHAT, "{\"messages\":[]}", "messages", "1 to 4096");
    refused(API_CHAT, "{\"messages\":[5]}", "messages", "messages[0] must be an object");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages", "content");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "messages",
            "messages[0].role");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
            "messages", "messages[0].content[0]");
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    refused(API_COMPLETION, PROMPT(",\"temperature\":-0.1"), "temperature", "between 0 and 2");
    refused(API_COMPLETION, PROMPT(",\"temperature\":2.1"), "temperature", "between 0 and 2");
    refused(API_COMPLETION, PROMPT(",\"top_p\":0"), "top_p", "above 0");
    refused(API_COMPLETION, PROMPT(",\"top_p\":1.01"), "top_p", "at most 1");
    refused(API_COMPLETION, PROMPT(",\"top_k\":-2"), "top_k", "0 or -1 is all");
    refused(API_COMPLETION, PROMPT(",\"max_tokens\":0"), "max_tokens", "at least 1");
    refused(API_COMPLETION, PROMPT(",\"stop\":\"\""), "stop", "1 to 256 bytes");
    refused(API_COMPLETION, PROMPT(",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]"), "stop",
            "at most 4");
    struct api_request r =
        accepted(API_COMPLETION, PROMPT(",\"top_k\":-1,\"max_tokens\":99999999999"));
    assert_int_equal(r.sampling.top_k, 0);
    assert_int_equal(r.max_tokens, UINT32_MAX);
    api_request_deinit(&r);
}

static void what_is_not_supported_is_refused_unless_it_asks_for_nothing(void **state)
{
    (void)state;
    refused(API_CHAT, CHAT(",\"n\":2"), "n", "must be 1");
    refused(API_CHAT, CHAT(",\"logprobs\":true"), "logprobs", "not supported");
    refused(API_COMPLETION, PROMPT(",\"logprobs\":3"), "logprobs", "not supported");
    refused(API_COMPLETION, PROMPT(",\"echo\":true"), "echo", "must be false");
    refused(API_COMPLETION, PROMPT(",\"best_of\":3"), "best_of", "must be 1");
    refused(API_COMPLETION, PROMPT(",\"suffix\":\"x\""), "suffix", "must be absent");
    refused(API_CHAT, CHAT(",\"presence_penalty\":0.5"), "presence_penalty", "must be 0");
    refused(API_CHAT, CHAT(",\"logit_bias\":{\"5\":1}"), "logit_bias", "must be empty");
    refused(API_CHAT, CHAT(",\"tools\":[{}]"), "tools", "must be empty");
    refused(API_CHAT, CHAT(",\"response_format\":{\"type\":\"json_object\"}"), "response_format",
            "must be text");
    refused(API_CHAT, CHAT(",\"stream_options\":{\"include_usage\":true}"), "stream_options",
            "'stream' true");
    struct api_request r =
        accepted(API_CHAT, CHAT(",\"n\":1.0,\"logprobs\":false,\"tools\":[],\"logit_bias\":{},"
                                "\"presence_penalty\":0.0,\"response_format\":{\"type\":\"text\"},"
                                "\"suffix\":null"));
    api_request_deinit(&r);
}

static void an_empty_salt_is_no_salt_and_a_long_one_is_refused(void **state)
{
    (void)state;
    struct api_request r = accepted(API_COMPLETION, PROMPT(",\"cache_salt\":\"\""));
    assert_null(r.cache_salt);
    api_request_deinit(&r);
    char body[400];
    char salt[API_SALT_BYTES_MAX + 2];
    memset(salt, 's', sizeof(salt) - 1);
    salt[sizeof(salt) - 1] = '\0';
    (void)snprintf(body, sizeof(body), "{\"prompt\":\"x\",\"cache_salt\":\"%s\"}", salt);
    refused(API_COMPLETION, body, "cache_salt", "at most 256 bytes");
}

static void tokenize_takes_a_text_or_a_chat(void **state)
{
    (void)state;
    struct api_request r = accepted(API_TOKENIZE, "{\"content\":\"x\",\"add_special\":false}");
    assert_string_equal(r.prompt, "x");
    assert_false(r.add_special);
    assert_true(r.parse_special);
    api_request_deinit(&r);
    r = accepted(API_TOKENIZE, CHAT(",\"add_generation_prompt\":false"));
    assert_int_equal(r.message_count, 1);
    assert_false(r.add_assistant);
    api_request_deinit(&r);
    refused(API_TOKENIZE, "{}", "prompt", "not absent");
    r = accepted(API_DETOKENIZE, "{\"tokens\":[]}");
    assert_int_equal(r.token_count, 0);
    api_request_deinit(&r);
    refused(API_DETOKENIZE, "{\"tokens\":\"x\"}", "tokens", "array of token ids");
}

static enum tarn_status read_a_chat(void)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                               "\"text\":\"a\"}]}],\"stop\":\"x\"}";
    struct api_request request;
    struct api_error error;
    TRY(api_request_read(API_CHAT, body, sizeof(body) - 1, &request, &error));
    api_request_deinit(&request);
    return TARN_OK;
}

static enum tarn_status read_tokens(void)
{
    static const char body[] = "{\"prompt\":[1,2,3]}";
    struct api_request request;
    struct api_error error;
    TRY(api_request_read(API_COMPLETION, body, sizeof(body) - 1, &request, &error));
    api_request_deinit(&request);
    return TARN_OK;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(read_a_chat) > 5);
    assert_true(fault_sweep(read_tokens) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_completion_gets_openai_s_defaults),
        cmocka_unit_test(every_field_of_a_chat_is_read),
        cmocka_unit_test(a_prompt_may_be_token_ids_or_an_array_of_one),
        cmocka_unit_test(wrong_types_are_refused_by_name),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(what_is_not_supported_is_refused_unless_it_asks_for_nothing),
        cmocka_unit_test(an_empty_salt_is_no_salt_and_a_long_one_is_refused),
        cmocka_unit_test(tokenize_takes_a_text_or_a_chat),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
