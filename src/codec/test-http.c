/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Answers one request with `answer`, in a thread of its own. */
struct answerer {
    const char *answer;
    pthread_t thread;
    int fd;
    uint16_t port;
    char request[1024];
};

static void *answerer_run(void *context)
{
    struct answerer *answerer = context;
    const int fd = accept(answerer->fd, NULL, NULL);
    const ssize_t got = recv(fd, answerer->request, sizeof(answerer->request) - 1, 0);
    answerer->request[got > 0 ? got : 0] = '\0';
    (void)send(fd, answerer->answer, strlen(answerer->answer), MSG_NOSIGNAL);
    (void)close(fd);
    return NULL;
}

static void answerer_listen(struct answerer *answerer, const char *answer)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t address_bytes = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *answerer = (struct answerer){ .answer = answer };
    answerer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(answerer->fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    assert_int_equal(listen(answerer->fd, 1), 0);
    assert_int_equal(getsockname(answerer->fd, (struct sockaddr *)(void *)&address, &address_bytes),
                     0);
    answerer->port = ntohs(address.sin_port);
}

static enum tarn_status get(struct answerer *answerer, const char *answer, struct text *text,
                            char *reason)
{
    answerer_listen(answerer, answer);
    assert_int_equal(pthread_create(&answerer->thread, NULL, answerer_run, answerer), 0);
    const enum tarn_status status =
        http_get("127.0.0.1", answerer->port, "a/b", 20000, text, reason);
    assert_int_equal(pthread_join(answerer->thread, NULL), 0);
    (void)close(answerer->fd);
    return status;
}

static void a_document_is_appended(void **state)
{
    (void)state;
    struct answerer answerer;
    struct text text;
    char reason[HTTP_REASON_BYTES];
    text_init(&text, 64);
    assert_int_equal(text_append(&text, "before "), TARN_OK);
    assert_int_equal(
        get(&answerer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", &text, reason),
        TARN_OK);
    assert_string_equal(text_chars(&text), "before hello");
    assert_int_equal(strncmp(answerer.request, "GET /a/b HTTP/1.1\r\n", 19), 0);
    text_deinit(&text);
}

static void what_is_no_document_leaves_the_text_as_it_was(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        const char *reason;
        enum tarn_status status;
    } cases[] = {
        { "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", "404", TARN_IO },
        { "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "302",
          TARN_IO },
        { "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", "", TARN_IO },
        { "nonsense", "", TARN_IO },
        { "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789",
          "longer than 16 bytes", TARN_NO_SPACE },
    };
    for (size_t i = 0; i < LENGTH_OF(cases); i++) {
        struct answerer answerer;
        struct text text;
        char reason[HTTP_REASON_BYTES];
        text_init(&text, 16);
        assert_int_equal(text_append(&text, "x"), TARN_OK);
        assert_int_equal(get(&answerer, cases[i].answer, &text, reason), cases[i].status);
        assert_string_equal(text_chars(&text), "x");
        assert_true(reason[0] != '\0');
        if (!strstr(reason, cases[i].reason))
            fail_msg("'%s' does not say '%s'", reason, cases[i].reason);
        text_deinit(&text);
    }
}

static void nobody_there_and_no_answer_are_reasons(void **state)
{
    (void)state;
    struct answerer answerer;
    struct text text;
    char reason[HTTP_REASON_BYTES] = "";
    text_init(&text, 16);
    answerer_listen(&answerer, "");
    assert_int_equal(http_get("127.0.0.1", answerer.port, "", 50, &text, reason), TARN_IO);
    assert_non_null(strstr(reason, "timed out"));
    (void)close(answerer.fd);
    assert_int_equal(http_get("127.0.0.1", answerer.port, "", 20000, &text, reason), TARN_IO);
    assert_true(reason[0] != '\0');
    assert_int_equal(http_get("[", 1, "", 20000, &text, reason), TARN_IO);
    assert_int_equal(text.length_bytes, 0);
    text_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_appended),
        cmocka_unit_test(what_is_no_document_leaves_the_text_as_it_was),
        cmocka_unit_test(nobody_there_and_no_answer_are_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
