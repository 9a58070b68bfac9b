/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fault.h"

static const struct answer_head chat = {
    .kind = API_CHAT, .server_id = "0af3", .id = 7, .created_s = 99, .model = "m"
};
static const struct answer_head completion = {
    .kind = API_COMPLETION, .server_id = "0af3", .id = 7, .created_s = 99, .model = "m"
};
static const struct answer_usage usage = { .prompt_tokens = 10,
                                           .cached_tokens = 4,
                                           .completion_tokens = 3 };
static const char usage_text[] =
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}";

static struct text text_of(const char *chars)
{
    struct text text;
    text_init(&text, 1000);
    assert_int_equal(text_append(&text, "%s", chars), TARN_OK);
    return text;
}

static void expect_text(struct text *text, const char *wanted)
{
    assert_string_equal(text_chars(text), wanted);
    text_truncate(text, 0);
}

static void whole_answers_have_openai_s_shape(void **state)
{
    (void)state;
    struct text content = text_of("a \"b\"");
    struct text out;
    char wanted[600];
    text_init(&out, 4000);
    assert_int_equal(answer_whole(&chat, &content, FINISH_STOP, &usage, &out), TARN_OK);
    (void)snprintf(
        wanted, sizeof(wanted),
        "{\"id\":\"chatcmpl-0af3-7\",\"object\":\"chat.completion\",\"created\":99,"
        "\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
        "\"content\":\"a \\\"b\\\"\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],%s}",
        usage_text);
    expect_text(&out, wanted);
    assert_int_equal(answer_whole(&completion, &content, FINISH_LENGTH, &usage, &out), TARN_OK);
    (void)snprintf(wanted, sizeof(wanted),
                   "{\"id\":\"cmpl-0af3-7\",\"object\":\"text_completion\",\"created\":99,"
                   "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"a \\\"b\\\"\","
                   "\"logprobs\":null,\"finish_reason\":\"length\"}],%s}",
                   usage_text);
    expect_text(&out, wanted);
    text_deinit(&content);
    text_deinit(&out);
}

static void events_are_framed_and_hold_one_object_each(void **state)
{
    (void)state;
    static const char head[] =
        "data: {\"id\":\"chatcmpl-0af3-7\",\"object\":\"chat.completion.chunk\","
        "\"created\":99,\"model\":\"m\",";
    struct text delta = text_of("line\nbreak");
    struct text out;
    char wanted[600];
    text_init(&out, 4000);
    assert_int_equal(answer_event_role(&chat, &out), TARN_OK);
    (void)snprintf(
        wanted, sizeof(wanted),
        "%s\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
        "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head);
    expect_text(&out, wanted);
    assert_int_equal(answer_event_text(&chat, &delta, &out), TARN_OK);
    (void)snprintf(wanted, sizeof(wanted),
                   "%s\"choices\":[{\"index\":0,\"delta\":{\"content\":\"line\\nbreak\"},"
                   "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                   head);
    expect_text(&out, wanted);
    assert_int_equal(answer_event_finish(&chat, FINISH_LENGTH, &out), TARN_OK);
    (void)snprintf(wanted, sizeof(wanted),
                   "%s\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,"
                   "\"finish_reason\":\"length\"}]}\n\n",
                   head);
    expect_text(&out, wanted);
    assert_int_equal(answer_event_usage(&chat, &usage, &out), TARN_OK);
    (void)snprintf(wanted, sizeof(wanted), "%s\"choices\":[],%s}\n\n", head, usage_text);
    expect_text(&out, wanted);
    assert_int_equal(answer_event_done(&out), TARN_OK);
    expect_text(&out, "data: [DONE]\n\n");
    text_deinit(&delta);
    text_deinit(&out);
}

static void an_event_that_does_not_fit_leaves_the_stream_as_it_was(void **state)
{
    (void)state;
    struct text delta = text_of("something");
    struct text out;
    text_init(&out, 60);
    assert_int_equal(answer_event_done(&out), TARN_OK);
    assert_int_equal(answer_event_text(&completion, &delta, &out), TARN_NO_SPACE);
    assert_string_equal(text_chars(&out), "data: [DONE]\n\n");
    text_deinit(&delta);
    text_deinit(&out);
}

static void errors_have_openai_s_shape_whatever_they_quote(void **state)
{
    (void)state;
    struct api_error error;
    struct text out;
    text_init(&out, 4000);
    api_error_set(&error, 400, "model", "no '%s'", "\xc3\xa9\xc3");
    assert_int_equal(answer_error(&error, &out), TARN_OK);
    expect_text(&out, "{\"error\":{\"message\":\"no '\xc3\xa9\xef\xbf\xbd'\","
                      "\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":null}}");
    api_error_set(&error, 503, NULL, "full");
    assert_int_equal(answer_event_error(&error, &out), TARN_OK);
    expect_text(&out, "data: {\"error\":{\"message\":\"full\",\"type\":\"server_error\","
                      "\"param\":null,\"code\":\"overloaded\"}}\n\n");
    text_deinit(&out);
}

static void small_answers_are_json_objects(void **state)
{
    (void)state;
    static const int32_t tokens[] = { 5, 0, 7 };
    struct text prompt = text_of("p");
    struct text out;
    text_init(&out, 4000);
    assert_int_equal(answer_models("m", 99, 64, &out), TARN_OK);
    expect_text(&out, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","
                      "\"created\":99,\"owned_by\":\"tarn\",\"max_model_len\":64}]}");
    assert_int_equal(answer_tokens(tokens, 3, 64, &out), TARN_OK);
    expect_text(&out, "{\"count\":3,\"max_model_len\":64,\"tokens\":[5,0,7]}");
    assert_int_equal(answer_prompt(&prompt, &out), TARN_OK);
    expect_text(&out, "{\"prompt\":\"p\"}");
    assert_int_equal(answer_status("dead", "why", &out), TARN_OK);
    expect_text(&out, "{\"status\":\"dead\",\"reason\":\"why\"}");
    assert_int_equal(answer_version("1", &out), TARN_OK);
    expect_text(&out, "{\"version\":\"1\"}");
    text_deinit(&prompt);
    text_deinit(&out);
}

static enum tarn_status answer_everything(void)
{
    struct text content;
    struct text out;
    struct api_error error;
    text_init(&content, 100);
    text_init(&out, 10000);
    enum tarn_status status = text_append(&content, "text");
    if (status == TARN_OK)
        status = answer_whole(&chat, &content, FINISH_STOP, &usage, &out);
    if (status == TARN_OK)
        status = answer_event_text(&completion, &content, &out);
    if (status == TARN_OK)
        status = answer_event_usage(&chat, &usage, &out);
    api_error_set(&error, 404, NULL, "nothing");
    if (status == TARN_OK)
        status = answer_error(&error, &out);
    if (status == TARN_OK)
        status = answer_models("m", 99, 64, &out);
    text_deinit(&content);
    text_deinit(&out);
    return status;
}

static void every_failed_allocation_is_a_status_and_no_leak(void **state)
{
    (void)state;
    assert_true(fault_sweep(answer_everything) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers_have_openai_s_shape),
        cmocka_unit_test(events_are_framed_and_hold_one_object_each),
        cmocka_unit_test(an_event_that_does_not_fit_leaves_the_stream_as_it_was),
        cmocka_unit_test(errors_have_openai_s_shape_whatever_they_quote),
        cmocka_unit_test(small_answers_are_json_objects),
        cmocka_unit_test(every_failed_allocation_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
