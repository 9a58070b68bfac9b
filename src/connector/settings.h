/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - the options of a connector and what it was told of the engine, resolved: every
 * default filled in, every limit and gate checked.
 */
#ifndef CONNECTOR_SETTINGS_H
#define CONNECTOR_SETTINGS_H

#include "key/namespace.h"
#include "layout/layout.h"

enum {
    SETTINGS_PATH_BYTES_MAX = 4096,
    SETTINGS_BATCH_PAGES_MAX = 1 << 16,
    SETTINGS_QUEUE_PAGES_MAX = 1 << 20,
    SETTINGS_DEADLINE_MS_MAX = 3600 * 1000,
    SETTINGS_REQUESTS_MAX = 1 << 20,
    SETTINGS_TOKENS_MAX = 1 << 28,
};

struct settings {
    char *pool_path; /* owned; NULL: the default pool */
    uint64_t pool_size_bytes;
    char cache_prefix[NAMESPACE_FIELD_BYTES_MAX + 1];
    char model_key[NAMESPACE_FIELD_BYTES_MAX + 1];
    uint64_t format_fingerprint;
    uint64_t lookup_deadline_ns;
    uint64_t load_deadline_ns;
    uint64_t load_bytes_per_step;
    uint64_t pinned_bytes_max; /* 0: a quarter of the page memory */
    uint64_t staging_bytes;    /* a direction */
    enum tarn_setting stage;
    uint32_t role;
    uint32_t batch_pages;
    uint32_t save_queue_pages_max;
    uint32_t rank;
    uint32_t rank_count;
    uint32_t request_count_max;
    uint32_t request_tokens_max;
    bool save_generated;
    bool verify_tokens;
    bool can_rewind;
    bool fail_short;
};

/* Each refusal is logged: INVALID (a value out of range, named), UNSUPPORTED (a gate). */
NODISCARD enum tarn_status settings_init(struct settings *settings,
                                         const struct tarn_connector_options *options,
                                         const struct tarn_engine_desc *engine);
void settings_deinit(struct settings *settings); /* zeroed is fine */

/* What is stored behind each page to be compared when it is loaded: 0 unless verify_tokens. */
uint32_t settings_extra_bytes(const struct settings *settings, const struct layout *layout);

/* The namespace of a group's pages on a rank: of the same layout, for all ranks have the same.
 * INVALID: none, for a layout without tokens or bytes. */
NODISCARD enum tarn_status settings_namespace(const struct settings *settings,
                                              const struct layout *layout, uint32_t rank,
                                              uint32_t group,
                                              char out_text[NAMESPACE_TEXT_BYTES_MAX + 1]);

#endif
