/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/landing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/http.h"
#include "codec/json.h"
#include "config/value.h"

enum { SIZE_BYTES = 32, REPORT_BYTES_MAX = 1 << 20 };

/* ---- reading ---- */

/* "host:port" without the port, "[v6]:port" without brackets; a name without a port as it is. */
static void host_print(const char *segment, char out_host[ADDRESS_HOST_BYTES_MAX + 1])
{
    struct address address;
    if (address_parse(segment, &address) == TARN_OK)
        memcpy(out_host, address.host, sizeof(address.host));
    else
        (void)snprintf(out_host, ADDRESS_HOST_BYTES_MAX + 1, "%s", segment);
}

static struct landing_host *host_find(struct landing *landing, const char *host)
{
    for (size_t i = 0; i < landing->host_count; i++)
        if (strcmp(landing->hosts[i].host, host) == 0)
            return &landing->hosts[i];
    struct landing_host *added = &landing->hosts[landing->host_count++];
    (void)snprintf(added->host, sizeof(added->host), "%s", host);
    return added;
}

/* A number of bytes that cannot be: not there, negative. */
static bool bytes_read(const struct json *segment, const char *key, uint64_t *out_bytes)
{
    const struct json *value = json_member(segment, key);
    if (json_kind_of(value) != JSON_IS_INTEGER || json_int(value) < 0)
        return false;
    *out_bytes = (uint64_t)json_int(value);
    return true;
}

static enum tarn_status segment_add(struct landing *landing, const struct json *segment,
                                    const char *wanted, char *out_reason)
{
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    uint64_t capacity_bytes = 0;
    uint64_t used_bytes = 0;
    const char *name = json_text(json_member(segment, "segment_name"));
    if (!name || !bytes_read(segment, "size_bytes", &capacity_bytes) ||
        !bytes_read(segment, "allocator_used_bytes", &used_bytes)) {
        (void)snprintf(out_reason, LANDING_REASON_BYTES,
                       "a segment lacks segment_name, size_bytes or allocator_used_bytes: is the "
                       "master of another version?");
        return TARN_INVALID;
    }
    host_print(name, host);
    if (wanted && strcmp(name, wanted) == 0)
        landing->segment_used_bytes = used_bytes;
    struct landing_host *found = host_find(landing, host);
    found->segment_count++;
    found->capacity_bytes += capacity_bytes;
    found->used_bytes += used_bytes;
    landing->capacity_bytes += capacity_bytes;
    landing->used_bytes += used_bytes;
    return TARN_OK;
}

static int by_use(const void *a, const void *b)
{
    const struct landing_host *left = a;
    const struct landing_host *right = b;
    if (left->used_bytes != right->used_bytes)
        return left->used_bytes < right->used_bytes ? 1 : -1;
    return strcmp(left->host, right->host);
}

static enum tarn_status segments_add(struct landing *landing, const struct json *root,
                                     const char *wanted, char *out_reason)
{
    const struct json *segments = json_member(root, "segments");
    const size_t count = json_count(segments);
    if (json_kind_of(segments) != JSON_IS_ARRAY || count > LANDING_SEGMENTS_MAX) {
        (void)snprintf(out_reason, LANDING_REASON_BYTES,
                       "there is no list of segments, or one of more than %d",
                       LANDING_SEGMENTS_MAX);
        return TARN_INVALID;
    }
    landing->hosts = mem_alloc(count ? count : 1, sizeof(*landing->hosts));
    if (!landing->hosts)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        TRY(segment_add(landing, json_item(segments, i), wanted, out_reason));
    qsort(landing->hosts, landing->host_count, sizeof(*landing->hosts), by_use);
    return TARN_OK;
}

enum tarn_status landing_parse(const char *chars, size_t length_bytes, const char *segment,
                               struct landing *out_landing, char *out_reason)
{
    struct landing landing = { .hosts = NULL };
    struct json *root = NULL;
    char reason[JSON_REASON_BYTES];
    const enum tarn_status parsed = json_parse(chars, length_bytes, &root, reason);
    if (parsed == TARN_INVALID)
        (void)snprintf(out_reason, LANDING_REASON_BYTES, "%s", reason);
    TRY(parsed);
    const enum tarn_status status = segments_add(&landing, root, segment, out_reason);
    json_destroy(root);
    if (status == TARN_OK)
        *out_landing = landing;
    else
        landing_deinit(&landing);
    return status;
}

bool landing_parse_count(const char *chars, uint64_t *out_count)
{
    static const char name[] = "\nmaster_key_count ";
    const char *line = strstr(chars, name);
    char *end = NULL;
    if (!line)
        return false;
    *out_count = strtoull(line + sizeof(name) - 1, &end, 10);
    return end != line + sizeof(name) - 1;
}

enum tarn_status landing_fetch(const struct landing_source *source, struct landing *out_landing,
                               char *out_reason)
{
    char reason[HTTP_REASON_BYTES] = "";
    struct text text;
    text_init(&text, LANDING_DOCUMENT_BYTES_MAX);
    enum tarn_status status = http_get(source->host, source->port, "get_segments_detail",
                                       source->timeout_ms, &text, reason);
    if (status != TARN_OK)
        (void)snprintf(out_reason, LANDING_REASON_BYTES, "%s",
                       reason[0] ? reason : tarn_strerror(status));
    else
        status = landing_parse(text_chars(&text), text.length_bytes, source->segment, out_landing,
                               out_reason);
    text_truncate(&text, 0);
    if (status == TARN_OK)
        out_landing->has_object_count =
            http_get(source->host, source->port, "metrics", source->timeout_ms, &text, reason) ==
                TARN_OK &&
            landing_parse_count(text_chars(&text), &out_landing->object_count);
    text_deinit(&text);
    return status;
}

void landing_deinit(struct landing *landing)
{
    mem_free(landing->hosts);
    *landing = (struct landing){ .hosts = NULL };
}

/* ---- showing ---- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static enum tarn_status host_append(const struct landing_host *host, const struct landing *landing,
                                    struct text *out)
{
    char used[SIZE_BYTES];
    char capacity[SIZE_BYTES];
    value_print_size(host->used_bytes, used, sizeof(used));
    value_print_size(host->capacity_bytes, capacity, sizeof(capacity));
    return text_append(out,
                       "blocks on %s: %" PRIu64 " bytes (%s) of %" PRIu64 " bytes (%s) lent in %u "
                       "segment%s, %.1f %% of the pool's\n",
                       host->host, host->used_bytes, used, host->capacity_bytes, capacity,
                       host->segment_count, host->segment_count == 1 ? "" : "s",
                       percent(host->used_bytes, landing->used_bytes));
}

/* The sentence that an operator reads first. */
static enum tarn_status meaning_append(const struct landing *landing, struct text *out)
{
    size_t holding_count = 0;
    for (size_t i = 0; i < landing->host_count; i++)
        holding_count += landing->hosts[i].used_bytes > 0;
    if (landing->host_count == 0)
        return text_append(out, "no host lends memory: nothing can be saved\n");
    if (landing->host_count == 1)
        return text_append(
            out,
            "one host alone, %s, lends memory: donors are absent, and the pool is no "
            "larger than this host makes it\n",
            landing->hosts[0].host);
    if (holding_count == 1)
        return text_append(out,
                           "one host alone, %s, holds blocks: the %zu others lend memory that is "
                           "unused\n",
                           landing->hosts[0].host, landing->host_count - 1);
    if (holding_count == 0)
        return text_append(out, "%zu hosts lend memory, and none holds blocks yet\n",
                           landing->host_count);
    return text_append(out, "%zu of %zu hosts hold blocks\n", holding_count, landing->host_count);
}

enum tarn_status landing_print(const struct landing *landing, struct text *out)
{
    char used[SIZE_BYTES];
    char capacity[SIZE_BYTES];
    value_print_size(landing->used_bytes, used, sizeof(used));
    value_print_size(landing->capacity_bytes, capacity, sizeof(capacity));
    TRY(text_append(out, "pool: %" PRIu64 " bytes (%s) used of %" PRIu64 " bytes (%s), %.1f %%",
                    landing->used_bytes, used, landing->capacity_bytes, capacity,
                    percent(landing->used_bytes, landing->capacity_bytes)));
    if (landing->has_object_count)
        TRY(text_append(out, ", %" PRIu64 " object%s", landing->object_count,
                        text_plural(landing->object_count)));
    TRY(text_append(out, "\n"));
    for (size_t i = 0; i < landing->host_count; i++)
        TRY(host_append(&landing->hosts[i], landing, out));
    return meaning_append(landing, out);
}

static uint64_t capacity_of(const struct landing *landing, const char *host)
{
    for (size_t i = 0; i < landing->host_count; i++)
        if (strcmp(landing->hosts[i].host, host) == 0)
            return landing->hosts[i].capacity_bytes;
    return 0;
}

static void change_log(const char *host, uint64_t before_bytes, uint64_t now_bytes)
{
    if (now_bytes > before_bytes)
        log_info("master: %s lends %" PRIu64 " bytes more, %" PRIu64 " in all", host,
                 now_bytes - before_bytes, now_bytes);
    if (now_bytes < before_bytes)
        log_warn("master: %s lends %" PRIu64 " bytes less, %" PRIu64 " in all: it left, died or "
                 "cannot be reached; blocks that lay there are lost to the pool",
                 host, before_bytes - now_bytes, now_bytes);
}

void landing_log_changes(const struct landing *before, const struct landing *now)
{
    for (size_t i = 0; i < now->host_count; i++)
        change_log(now->hosts[i].host, capacity_of(before, now->hosts[i].host),
                   now->hosts[i].capacity_bytes);
    for (size_t i = 0; i < before->host_count; i++)
        if (capacity_of(now, before->hosts[i].host) == 0)
            change_log(before->hosts[i].host, before->hosts[i].capacity_bytes, 0);
}

void landing_log(const struct landing *landing)
{
    struct text text;
    text_init(&text, REPORT_BYTES_MAX);
    const enum tarn_status status = landing_print(landing, &text);
    for (const char *line = text_chars(&text); *line;) {
        const int line_bytes = (int)strcspn(line, "\n");
        log_info("%.*s", line_bytes, line);
        line += line_bytes + (line[line_bytes] == '\n');
    }
    if (status != TARN_OK)
        log_warn("where blocks lie: the rest is left out: %s", tarn_strerror(status));
    text_deinit(&text);
}
