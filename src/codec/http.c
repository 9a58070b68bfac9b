/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/http.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <curl/curl.h>

enum { URL_BYTES = 1024, STATUS_OK = 200 };

struct body {
    struct text *out;
    enum tarn_status status;
};

static size_t body_append(char *bytes, size_t size, size_t count, void *context)
{
    struct body *body = context;
    body->status = text_append_bytes(body->out, bytes, size * count);
    return body->status == TARN_OK ? size * count : 0; /* 0 ends the transfer */
}

static void curl_setup(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void curl_setup_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, curl_setup);
}

static bool options_set(CURL *curl, const char *url, uint32_t timeout_ms, struct body *body,
                        char *out_reason)
{
    return curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, out_reason) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_append) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEDATA, body) == CURLE_OK;
}

static enum tarn_status transfer(CURL *curl, struct body *body, char *out_reason)
{
    long status = 0;
    const CURLcode code = curl_easy_perform(curl);
    if (body->status != TARN_OK) {
        (void)snprintf(out_reason, HTTP_REASON_BYTES, "the answer is longer than %zu bytes",
                       body->out->max_bytes);
        return body->status;
    }
    if (code != CURLE_OK) {
        if (out_reason[0] == '\0')
            (void)snprintf(out_reason, HTTP_REASON_BYTES, "%s", curl_easy_strerror(code));
        return TARN_IO;
    }
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != STATUS_OK) {
        (void)snprintf(out_reason, HTTP_REASON_BYTES, "HTTP status %ld", status);
        return TARN_IO;
    }
    return TARN_OK;
}

_Static_assert(HTTP_REASON_BYTES >= CURL_ERROR_SIZE, "libcurl writes its reason there");

enum tarn_status http_get(const char *host, uint16_t port, const char *path, uint32_t timeout_ms,
                          struct text *out, char *out_reason)
{
    char url[URL_BYTES];
    const bool has_colons = strchr(host, ':') != NULL;
    struct body body = { .out = out, .status = TARN_OK };
    const size_t length_before = out->length_bytes;
    out_reason[0] = '\0';
    if (snprintf(url, sizeof(url), "http://%s%s%s:%u/%s", has_colons ? "[" : "", host,
                 has_colons ? "]" : "", port, path) >= (int)sizeof(url)) {
        (void)snprintf(out_reason, HTTP_REASON_BYTES, "the address is too long");
        return TARN_IO;
    }
    curl_setup_once();
    CURL *curl = curl_easy_init();
    if (!curl)
        return TARN_NO_MEMORY;
    enum tarn_status status = TARN_NO_MEMORY;
    if (options_set(curl, url, timeout_ms, &body, out_reason))
        status = transfer(curl, &body, out_reason);
    curl_easy_cleanup(curl);
    if (status != TARN_OK)
        text_truncate(out, length_before);
    return status;
}
