/* SPDX-License-Identifier: Apache-2.0 */
/* metric-list.h - every metric there is: X(id, kind, name, labels, help). Rows of one name stand
 * together and share the help of the first. Names: Prometheus' conventions, prefix tarn_. */
#ifndef OBS_METRIC_LIST_H
#define OBS_METRIC_LIST_H

#define METRIC_LIST(X)                                                                             \
    X(REQUESTS_OK, COUNTER, "tarn_requests_total", "outcome=\"ok\"",                               \
      "Requests that ended, by outcome")                                                           \
    X(REQUESTS_CANCELLED, COUNTER, "tarn_requests_total", "outcome=\"cancelled\"", "")             \
    X(REQUESTS_FAILED, COUNTER, "tarn_requests_total", "outcome=\"failed\"", "")                   \
    X(REQUESTS_REFUSED, COUNTER, "tarn_requests_total", "outcome=\"refused\"", "")                 \
    X(CONNECTIONS_REFUSED, COUNTER, "tarn_connections_refused_total", "",                          \
      "Requests refused because their connection was beyond --max-connections")                    \
    X(REQUESTS_WARMUP, COUNTER, "tarn_warmup_requests_total", "",                                  \
      "Warm-up and dummy requests, counted nowhere else")                                          \
    X(REQUESTS_RUNNING, GAUGE, "tarn_requests_running", "", "Requests that hold pages")            \
    X(REQUESTS_WAITING, GAUGE, "tarn_requests_waiting", "", "Requests queued for room")            \
    X(PROMPT_TOKENS_DEVICE, COUNTER, "tarn_prompt_tokens_total", "source=\"device\"",              \
      "Prompt tokens, by where their keys and values came from")                                   \
    X(PROMPT_TOKENS_TIER, COUNTER, "tarn_prompt_tokens_total", "source=\"tier\"", "")              \
    X(PROMPT_TOKENS_POOL, COUNTER, "tarn_prompt_tokens_total", "source=\"pool\"", "")              \
    X(PROMPT_TOKENS_COMPUTED, COUNTER, "tarn_prompt_tokens_total", "source=\"computed\"", "")      \
    X(PROMPT_TOKENS_REQUESTED, COUNTER, "tarn_prompt_tokens_requested_total", "",                  \
      "Prompt tokens of admitted requests; the sources add up to it")                              \
    X(GENERATED_TOKENS, COUNTER, "tarn_generation_tokens_total", "", "Tokens generated")           \
    X(PASSES, COUNTER, "tarn_scheduler_passes_total", "", "Forward passes")                        \
    X(PAGES_TOTAL, GAUGE, "tarn_kv_pages", "state=\"total\"",                                      \
      "Pages of the engine's own KV memory, by state")                                             \
    X(PAGES_FREE, GAUGE, "tarn_kv_pages", "state=\"free\"", "")                                    \
    X(PAGES_LOCKED, GAUGE, "tarn_kv_pages", "state=\"locked\"", "")                                \
    X(PAGES_DROPPABLE, GAUGE, "tarn_kv_pages", "state=\"droppable\"", "")                          \
    X(PAGES_PINNED, GAUGE, "tarn_pages_pinned", "", "Pages under a save or a load")                \
    X(PAGES_ABANDONED, GAUGE, "tarn_pages_abandoned", "",                                          \
      "Pages held by a transfer that outlived its deadline")                                       \
    X(LOOKUPS, COUNTER, "tarn_pool_lookups_total", "", "Lookups that asked the pool")              \
    X(LOOKUP_BLOCKS_HIT, COUNTER, "tarn_pool_blocks_total", "result=\"hit\"",                      \
      "Blocks asked of the pool, by result")                                                       \
    X(LOOKUP_BLOCKS_MISS, COUNTER, "tarn_pool_blocks_total", "result=\"miss\"", "")                \
    X(DECLINED_ROLE, COUNTER, "tarn_pool_declined_total", "reason=\"role\"",                       \
      "Lookups that did not ask the pool, by reason")                                              \
    X(DECLINED_NO_FULL_BLOCK, COUNTER, "tarn_pool_declined_total", "reason=\"no_full_block\"", "") \
    X(DECLINED_DUMMY, COUNTER, "tarn_pool_declined_total", "reason=\"dummy\"", "")                 \
    X(DECLINED_GENERATION_ONLY, COUNTER, "tarn_pool_declined_total", "reason=\"generation_only\"", \
      "")                                                                                          \
    X(DECLINED_MULTIMODAL, COUNTER, "tarn_pool_declined_total", "reason=\"multimodal\"", "")       \
    X(DECLINED_OFF_BOUNDARY, COUNTER, "tarn_pool_declined_total", "reason=\"off_boundary\"", "")   \
    X(DECLINED_LOCAL, COUNTER, "tarn_pool_declined_total", "reason=\"local\"", "")                 \
    X(DECLINED_STORE_DOWN, COUNTER, "tarn_pool_declined_total", "reason=\"store_down\"", "")       \
    X(DECLINED_NOT_WORTH_IT, COUNTER, "tarn_pool_declined_total", "reason=\"not_worth_it\"", "")   \
    X(PROBE_FAILED, COUNTER, "tarn_pool_probe_failures_total", "reason=\"error\"",                 \
      "Probes that failed or were late; they read as a miss")                                      \
    X(PROBE_LATE, COUNTER, "tarn_pool_probe_failures_total", "reason=\"deadline\"", "")            \
    X(STORE_DOWN, GAUGE, "tarn_pool_store_down", "",                                               \
      "1 while the pool is left alone because its calls fail or come too late")                    \
    X(STORE_OUTAGES, COUNTER, "tarn_pool_store_outages_total", "", "How often that began")         \
    X(LOAD_PAGES, COUNTER, "tarn_pool_load_pages_total", "", "Pages loaded and verified")          \
    X(LOAD_BYTES, COUNTER, "tarn_pool_load_bytes_total", "", "Bytes loaded and verified")          \
    X(LOAD_FAILED_MISS, COUNTER, "tarn_pool_load_failures_total", "reason=\"miss\"",               \
      "Pages that could not be loaded, by reason")                                                 \
    X(LOAD_FAILED_CORRUPT, COUNTER, "tarn_pool_load_failures_total", "reason=\"corrupt\"", "")     \
    X(LOAD_FAILED_TOKENS, COUNTER, "tarn_pool_load_failures_total", "reason=\"tokens\"", "")       \
    X(LOAD_FAILED_DEADLINE, COUNTER, "tarn_pool_load_failures_total", "reason=\"deadline\"", "")   \
    X(LOAD_FAILED_STORE, COUNTER, "tarn_pool_load_failures_total", "reason=\"store\"", "")         \
    X(SAVE_PAGES, COUNTER, "tarn_pool_save_pages_total", "", "Pages saved")                        \
    X(SAVE_BYTES, COUNTER, "tarn_pool_save_bytes_total", "", "Bytes saved")                        \
    X(SAVE_SKIPPED, COUNTER, "tarn_pool_save_skipped_total", "",                                   \
      "Pages not saved because the pool had them")                                                 \
    X(SAVE_FAILED_FULL, COUNTER, "tarn_pool_save_failures_total", "reason=\"full\"",               \
      "Pages that could not be saved, by reason")                                                  \
    X(SAVE_FAILED_QUEUE, COUNTER, "tarn_pool_save_failures_total", "reason=\"queue\"", "")         \
    X(SAVE_FAILED_PINNED, COUNTER, "tarn_pool_save_failures_total", "reason=\"pinned\"", "")       \
    X(SAVE_FAILED_FORWARD, COUNTER, "tarn_pool_save_failures_total", "reason=\"forward\"", "")     \
    X(SAVE_FAILED_STORE, COUNTER, "tarn_pool_save_failures_total", "reason=\"store\"", "")         \
    X(SAVE_FAILED_GAP, COUNTER, "tarn_pool_save_failures_total", "reason=\"gap\"", "")             \
    X(SAVE_QUEUE_PAGES, GAUGE, "tarn_pool_save_queue_pages", "", "Pages waiting to be saved")      \
    X(LEASES, GAUGE, "tarn_pool_leases", "", "Leases this process holds on pages of the pool")     \
    X(CONNECTOR_FAILED, COUNTER, "tarn_pool_connector_failures_total", "",                         \
      "Calls of the connector that failed; their requests went on without the pool")               \
    X(POOL_CAPACITY_BYTES, GAUGE, "tarn_pool_capacity_bytes", "", "Room for pages in the pool")    \
    X(POOL_USED_BYTES, GAUGE, "tarn_pool_used_bytes", "",                                          \
      "Bytes of committed pages in the pool (an estimate)")                                        \
    X(POOL_EVICTED, COUNTER, "tarn_pool_evicted_pages_total", "",                                  \
      "Pages this process evicted from the pool")                                                  \
    X(POOL_QUARANTINED, COUNTER, "tarn_pool_quarantined_pages_total", "",                          \
      "Pages this process quarantined because their checksum failed")                              \
    X(POOL_BROKEN, COUNTER, "tarn_pool_broken_mappings_total", "",                                 \
      "Mapped pools that were left because the memory under them went away")                       \
    X(STORE_GET_NOT_FOUND, COUNTER, "tarn_store_get_failures_total", "reason=\"not_found\"",       \
      "Objects of a store beyond this host that a get did not bring, by reason")                   \
    X(STORE_GET_NOT_READY, COUNTER, "tarn_store_get_failures_total", "reason=\"not_ready\"", "")   \
    X(STORE_GET_LEASE_EXPIRED, COUNTER, "tarn_store_get_failures_total",                           \
      "reason=\"lease_expired\"", "")                                                              \
    X(STORE_GET_LENGTH, COUNTER, "tarn_store_get_failures_total", "reason=\"length\"", "")         \
    X(STORE_GET_TRANSFER, COUNTER, "tarn_store_get_failures_total", "reason=\"transfer\"", "")     \
    X(STORE_GET_CORRUPT, COUNTER, "tarn_store_get_failures_total", "reason=\"corrupt\"", "")       \
    X(STORE_GET_RPC, COUNTER, "tarn_store_get_failures_total", "reason=\"rpc\"", "")               \
    X(STORE_GET_OTHER, COUNTER, "tarn_store_get_failures_total", "reason=\"other\"", "")           \
    X(STORE_PUT_NO_SPACE, COUNTER, "tarn_store_put_failures_total", "reason=\"no_space\"",         \
      "Objects that a store beyond this host did not take, by reason")                             \
    X(STORE_PUT_BUSY, COUNTER, "tarn_store_put_failures_total", "reason=\"busy\"", "")             \
    X(STORE_PUT_TRANSFER, COUNTER, "tarn_store_put_failures_total", "reason=\"transfer\"", "")     \
    X(STORE_PUT_RPC, COUNTER, "tarn_store_put_failures_total", "reason=\"rpc\"", "")               \
    X(STORE_PUT_OTHER, COUNTER, "tarn_store_put_failures_total", "reason=\"other\"", "")           \
    X(STORE_ASK_FAILED, COUNTER, "tarn_store_ask_failures_total", "",                              \
      "Questions whether objects are there that such a store did not answer")                      \
    X(STORE_REMOVED, COUNTER, "tarn_store_removed_objects_total", "",                              \
      "Bad objects that this process removed from such a store")                                   \
    X(POOL_INERT, GAUGE, "tarn_pool_inert", "",                                                    \
      "1 when the pool is off or does nothing: see the log")

#define HISTOGRAM_LIST(X)                                                                          \
    X(TIME_TO_FIRST_TOKEN, "tarn_time_to_first_token_seconds", "From arrival to the first token")  \
    X(TIME_PER_OUTPUT_TOKEN, "tarn_time_per_output_token_seconds",                                 \
      "Between tokens of one request")                                                             \
    X(END_TO_END, "tarn_request_seconds", "From arrival to the end of the answer")                 \
    X(QUEUE, "tarn_queue_seconds", "From arrival to admission")                                    \
    X(PREFILL, "tarn_prefill_seconds", "From admission to the first token")                        \
    X(LOAD, "tarn_load_seconds", "Loading a request's prefix from the pool")

#endif
