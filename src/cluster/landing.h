/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landing.h - where a pool's blocks are, by the host that lends the memory, as its master says on
 * its HTTP port: /get_segments_detail, and master_key_count of /metrics (Mooncake 0.3.13).
 *
 * What a master sends is looked at, not trusted. One thread.
 */
#ifndef CLUSTER_LANDING_H
#define CLUSTER_LANDING_H

#include "base/base.h"
#include "base/text.h"
#include "store/mooncake/address.h"

enum {
    LANDING_SEGMENTS_MAX = 1 << 14,
    LANDING_DOCUMENT_BYTES_MAX = 32 << 20,
    LANDING_REASON_BYTES = 320,
};

struct landing_host {
    char host[ADDRESS_HOST_BYTES_MAX + 1];
    uint32_t segment_count;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
};

struct landing {
    struct landing_host *hosts; /* owned; the fullest first */
    size_t host_count;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t object_count;
    bool has_object_count;
    uint64_t segment_used_bytes; /* of the segment that was asked for; 0: it is not there */
};

/* From the text of /get_segments_detail. `segment`: one by its name (what get_hostname() of its
 * client says), for segment_used_bytes; NULL: none. INVALID: out_reason (LANDING_REASON_BYTES) says
 * why. */
NODISCARD enum tarn_status landing_parse(const char *chars, size_t length_bytes,
                                         const char *segment, struct landing *out_landing,
                                         char *out_reason);

/* master_key_count of the text of /metrics; false: it has none. */
bool landing_parse_count(const char *chars, uint64_t *out_count);

/* A master's HTTP port. */
struct landing_source {
    const char *host;
    uint16_t port;
    uint32_t timeout_ms; /* of one document; there are two */
    const char *segment; /* as landing_parse() */
};

/* Ask it. Not logged: IO, INVALID, NO_SPACE with out_reason. */
NODISCARD enum tarn_status landing_fetch(const struct landing_source *source,
                                         struct landing *out_landing, char *out_reason);
void landing_deinit(struct landing *landing); /* zeroed is fine */

/* A table, and what it means in a sentence. */
NODISCARD enum tarn_status landing_print(const struct landing *landing, struct text *out);

/* The same as lines of the log. */
void landing_log(const struct landing *landing);

/* A line of the log for each host that lends more or less than before. */
void landing_log_changes(const struct landing *before, const struct landing *now);

#endif
