/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/connector.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/digest.h"
#include "connector/abi.h"
#include "connector/broken.h"
#include "connector/gate.h"
#include "connector/inert.h"
#include "connector/leader.h"
#include "connector/placement.h"
#include "connector/probe.h"
#include "connector/settings.h"
#include "connector/watch.h"
#include "connector/worker.h"
#include "key/namespace.h"
#include "layout/fingerprint.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "store/local/pool.h"
#include "store/mooncake/mooncake.h"

/* A rank has a load's whole time, and one deadline more for messages; who waits for the verdict,
 * one more. */
enum { RANK_DEADLINES = 5 };

enum { CANARY_DEADLINES = 4 }; /* of a load: a canary has as many as a whole load */

_Static_assert((int)GATE_RANKS_MAX == (int)LEADER_RANKS_MAX, "the leader hears all it lets in");

#define SAVE_HOLD_NS (100 * NS_PER_MS) /* from each call while the store is down */

/* Everything of an open connector. */
struct core {
    struct settings settings;
    struct store *store; /* owned */
    struct layout *layout;
    struct device device;
    struct placement placement;
    struct watch watch;
    uint64_t outage_count; /* of the watch, as far as was acted on */
    struct leader leader;
    struct worker worker;
    struct wakeup wakeup;
    uint32_t *namespaces; /* of every rank on the leader: one a group, rank by rank; else its own */
    struct probe probe;
    uint64_t identity;
    uint64_t look_ns; /* when to look at the store next */
    struct inert inert;
    bool is_inert; /* as tarn_pool_inert was last told */
};

struct tarn_connector {
    struct core *core; /* NULL: closed */
};

static struct tarn_connector handles[CONNECTORS_MAX];
static size_t handle_next;
static pthread_mutex_t handle_lock = PTHREAD_MUTEX_INITIALIZER; /* guards both; innermost */

/* ---- life ---- */

static void core_destroy(struct core *core)
{
    if (!core)
        return;
    worker_close(&core->worker);
    store_stop(core->store); /* before memory goes that it may still write to */
    placement_close(&core->placement);
    watch_close(&core->watch);
    leader_deinit(&core->leader);
    layout_destroy(core->layout);
    probe_deinit(&core->probe);
    mem_free(core->namespaces);
    if (core->wakeup.fd >= 0)
        wakeup_deinit(&core->wakeup);
    settings_deinit(&core->settings);
    store_close(core->store);
    mem_free(core);
}

/* Not the store: who fails to open leaves it to the caller. */
static void core_destroy_at(struct core **core)
{
    if (*core)
        (*core)->store = NULL;
    core_destroy(*core);
}

/* The handle that was closed longest ago, so that a stale pointer finds a closed one for long. */
static struct tarn_connector *handle_take(struct core *core)
{
    struct tarn_connector *found = NULL;
    pthread_mutex_lock(&handle_lock);
    for (size_t i = 0; i < CONNECTORS_MAX && !found; i++) {
        struct tarn_connector *handle = &handles[handle_next];
        handle_next = (handle_next + 1) % CONNECTORS_MAX;
        if (!handle->core) {
            handle->core = core;
            found = handle;
        }
    }
    pthread_mutex_unlock(&handle_lock);
    return found;
}

static struct core *handle_core(const struct tarn_connector *connector)
{
    pthread_mutex_lock(&handle_lock);
    struct core *core = connector ? connector->core : NULL;
    pthread_mutex_unlock(&handle_lock);
    return core;
}

static void handle_give_back(struct tarn_connector *connector)
{
    pthread_mutex_lock(&handle_lock);
    connector->core = NULL;
    pthread_mutex_unlock(&handle_lock);
}

/* Takes `settings` over in any case, `store` on OK. */
static enum tarn_status core_open(struct settings *settings, struct store *store,
                                  struct tarn_connector **out_connector)
{
    CLEANUP(core_destroy_at)
    struct core *core = mem_alloc(1, sizeof(*core));
    if (!core) {
        settings_deinit(settings);
        return TARN_NO_MEMORY;
    }
    core->settings = *settings;
    core->wakeup.fd = -1;
    TRY(wakeup_init(&core->wakeup));
    struct tarn_connector *handle = handle_take(core);
    if (!handle) {
        log_error("%d connectors are open in this process, which is the limit", CONNECTORS_MAX);
        return TARN_UNSUPPORTED;
    }
    core->store = store;
    (void)TAKE(core);
    *out_connector = handle;
    return TARN_OK;
}

enum tarn_status connector_open_with(const struct tarn_connector_options *options,
                                     const struct tarn_engine_desc *engine, struct store *store,
                                     struct tarn_connector **out_connector)
{
    struct settings settings;
    TRY(settings_init(&settings, options, engine));
    return core_open(&settings, store, out_connector);
}

/* What a mooncake.json says of the connector counts where its own options say nothing. */
static void options_merge(const struct mooncake_options *file,
                          struct tarn_connector_options *options)
{
    if (!options->cache_prefix && file->cache_prefix[0])
        options->cache_prefix = file->cache_prefix;
    if (options->role == TARN_ROLE_BOTH && file->role > 0)
        options->role = file->role - 1;
    if (options->transfer_batch_size == 0)
        options->transfer_batch_size = file->transfer_batch_size;
    if (options->stage_through_host == TARN_SETTING_UNSET)
        options->stage_through_host = file->stage_through_host;
    if (options->staging_buffer_bytes == 0)
        options->staging_buffer_bytes = file->staging_buffer_bytes;
}

/* The settings of a connector to a distributed pool: `options` and what the pool's file adds. */
static enum tarn_status distributed_settings(struct settings *settings,
                                             const struct tarn_connector_options *given,
                                             const struct tarn_engine_desc *engine)
{
    struct mooncake_options file;
    struct tarn_connector_options options = *given;
    struct tarn_engine_desc known;
    TRY(abi_copy(&known, sizeof(known), engine));
    TRY(mooncake_options_read(options.pool, &file));
    options_merge(&file, &options);
    if ((!known.model_key || !known.model_key[0]) && file.model_key[0])
        known.model_key = file.model_key;
    known.size = sizeof(known);
    return settings_init(settings, &options, &known);
}

/* A pool over many hosts, as its text or its file says, and as fits this connector. */
static enum tarn_status distributed_open(const struct settings *settings, struct store **out_store)
{
    struct mooncake_options options;
    TRY(mooncake_options_read(settings->pool_path, &options));
    options.deadline_ms = (uint32_t)(settings->load_deadline_ns / NS_PER_MS);
    options.is_consumer = settings->role == TARN_ROLE_CONSUMER;
    return mooncake_open(&options, out_store);
}

static enum tarn_status store_open(const struct settings *settings, struct store **out_store)
{
    const struct pool_options pool = { .path = settings->pool_path,
                                       .size_bytes = settings->pool_size_bytes };
    return mooncake_pool_is(settings->pool_path) ? distributed_open(settings, out_store)
                                                 : pool_open(&pool, out_store);
}

/* Gates first: an engine that is refused makes no pool. */
static enum tarn_status pool_attach(const struct tarn_connector_options *options,
                                    const struct tarn_engine_desc *engine,
                                    struct tarn_connector **out_connector)
{
    struct settings settings;
    struct store *store;
    struct tarn_connector_options known = { .size = sizeof(known) };
    if (options)
        TRY(abi_copy(&known, sizeof(known), options));
    known.size = sizeof(known);
    TRY(mooncake_pool_is(known.pool) ? distributed_settings(&settings, &known, engine)
                                     : settings_init(&settings, &known, engine));
    enum tarn_status status = store_open(&settings, &store);
    if (status != TARN_OK) {
        settings_deinit(&settings);
        return status;
    }
    status = core_open(&settings, store, out_connector);
    if (status != TARN_OK)
        store_close(store);
    return status;
}

/* An engine whose open or registration failed goes on without a pool, if it goes on. */
static enum tarn_status connector_open(const struct tarn_connector_options *options,
                                       const struct tarn_engine_desc *engine,
                                       struct tarn_connector **out_connector)
{
    const enum tarn_status status = pool_attach(options, engine, out_connector);
    metric_set(METRIC_POOL_INERT, status != TARN_OK);
    return status;
}

/* ---- registration ---- */

static bool is_leader(const struct core *core)
{
    return core->settings.rank == 0;
}

static bool has_several_ranks(const struct core *core)
{
    return core->settings.rank_count > 1;
}

/* Those of this rank, as the worker needs them. */
static const uint32_t *own_namespaces(const struct core *core)
{
    return core->namespaces; /* the leader's rank is the first */
}

static enum tarn_status namespace_text(const struct core *core, uint32_t rank, uint32_t group,
                                       char out_text[NAMESPACE_TEXT_BYTES_MAX + 1])
{
    return settings_namespace(&core->settings, core->layout, rank, group, out_text);
}

/* What the pages of all ranks mean: the first rank's namespaces, from which the others' follow. */
static enum tarn_status identity_make(const struct core *core, uint64_t *out_identity)
{
    struct digest_stream stream;
    struct tarn_digest digest;
    digest_init(&stream);
    for (uint32_t group = 0; group < core->layout->group_count; group++) {
        char text[NAMESPACE_TEXT_BYTES_MAX + 1];
        TRY(namespace_text(core, 0, group, text));
        digest_update(&stream, text, strlen(text) + 1);
    }
    digest_finish(&stream, &digest);
    memcpy(out_identity, digest.bytes, sizeof(*out_identity));
    return TARN_OK;
}

static enum tarn_status namespaces_intern(struct core *core)
{
    const uint32_t group_count = (uint32_t)core->layout->group_count;
    const uint32_t first = core->settings.rank;
    const uint32_t end = is_leader(core) ? core->settings.rank_count : first + 1;
    core->namespaces = mem_alloc((size_t)(end - first) * group_count, sizeof(*core->namespaces));
    if (!core->namespaces)
        return TARN_NO_MEMORY;
    for (uint32_t rank = first; rank < end; rank++) {
        for (uint32_t group = 0; group < group_count; group++) {
            char text[NAMESPACE_TEXT_BYTES_MAX + 1];
            TRY(namespace_text(core, rank, group, text));
            TRY(store_namespace(core->store, text,
                                &core->namespaces[(rank - first) * group_count + group]));
        }
    }
    return identity_make(core, &core->identity);
}

static void leader_start(struct core *core)
{
    const struct settings *settings = &core->settings;
    const struct leader_config config = {
        .layout = core->layout,
        .absent = &core->worker.absent,
        .identity = core->identity,
        .rank_deadline_ns = RANK_DEADLINES * settings->load_deadline_ns,
        .rank_count = settings->rank_count,
        .request_count_max = settings->request_count_max,
        .request_tokens_max = settings->request_tokens_max,
        .loads = settings->role != TARN_ROLE_PRODUCER,
        .saves = settings->role != TARN_ROLE_CONSUMER,
        .can_rewind = settings->can_rewind,
        .save_generated = settings->save_generated,
        .verify_tokens = settings->verify_tokens,
        .fail_short = settings->fail_short,
    };
    leader_init(&core->leader, &config);
}

/* A quarter of the page memory unless set; at least one block, or nothing would ever be saved. */
static uint64_t pinned_bytes_max(const struct core *core)
{
    uint64_t block_bytes = 0;
    for (size_t i = 0; i < core->layout->group_count; i++)
        block_bytes += core->layout->groups[i].page_bytes;
    const uint64_t bytes = core->settings.pinned_bytes_max ? core->settings.pinned_bytes_max
                                                           : core->layout->memory_bytes / 4;
    return bytes < block_bytes ? block_bytes : bytes;
}

/* Before any thread looks at a page: how pages get to the store. */
static enum tarn_status placement_start(struct core *core)
{
    const struct settings *settings = &core->settings;
    const struct placement_config config = {
        .store = core->store,
        .layout = core->layout,
        .device = &core->device,
        .stage = settings->stage,
        .staging_bytes = settings->staging_bytes,
        .batch_pages = settings->batch_pages,
        .extra_bytes = settings_extra_bytes(settings, core->layout),
        .is_used = { [TARN_TRANSFER_SAVE] = settings->role != TARN_ROLE_CONSUMER,
                     [TARN_TRANSFER_LOAD] = settings->role != TARN_ROLE_PRODUCER },
    };
    return placement_open(&core->placement, &config);
}

static enum tarn_status worker_start(struct core *core)
{
    const struct settings *settings = &core->settings;
    const struct worker_config config = {
        .store = core->store,
        .layout = core->layout,
        .placement = &core->placement,
        .device = &core->device,
        .namespaces = own_namespaces(core),
        .wakeup = &core->wakeup,
        .watch = &core->watch,
        .leader = has_several_ranks(core) ? NULL : &core->leader,
        .identity = core->identity,
        .rank = settings->rank,
        .rank_count = settings->rank_count,
        .extra_bytes = settings_extra_bytes(settings, core->layout),
        .save_queue_pages_max = settings->save_queue_pages_max,
        .pinned_bytes_max = pinned_bytes_max(core),
        .load_bytes_per_step = settings->load_bytes_per_step,
        .load_deadline_ns = settings->load_deadline_ns,
        .verdict_deadline_ns = (RANK_DEADLINES + 1) * settings->load_deadline_ns,
    };
    return worker_open(&core->worker, &config);
}

/* A store of this host is asked for a page that is not there; one beyond it is to show that it
 * keeps what it was given, if this engine gives it anything. */
static enum tarn_status watch_start(struct core *core)
{
    const bool puts =
        store_traits(core->store)->is_beyond_host && core->settings.role != TARN_ROLE_CONSUMER;
    uint32_t namespace_index = own_namespaces(core)[0];
    if (puts) {
        struct key_namespace space = {
            .model = "canary", .world = 1, .tokens_per_block = 1, .page_bytes = CANARY_BYTES
        };
        char text[NAMESPACE_TEXT_BYTES_MAX + 1];
        memcpy(space.prefix, core->settings.cache_prefix, sizeof(space.prefix));
        TRY(namespace_print(&space, text));
        TRY(store_namespace(core->store, text, &namespace_index));
    }
    return watch_open(&core->watch, core->store, namespace_index, puts,
                      CANARY_DEADLINES * core->settings.load_deadline_ns);
}

static enum tarn_status probe_start(struct core *core)
{
    const struct probe probe = {
        .store = core->store,
        .watch = &core->watch,
        .absent = &core->worker.absent,
        .namespaces = core->namespaces,
        .group_count =
            core->layout->group_count * (BROKEN(HIT_ON_ONE_RANK) ? 1 : core->settings.rank_count),
        .layer_group_count = core->layout->group_count,
        .batch_pages = core->settings.batch_pages,
        .deadline_ns = core->settings.lookup_deadline_ns,
    };
    const uint64_t blocks_max =
        core->settings.request_tokens_max / core->layout->tokens_per_block + 1;
    return probe_init(&core->probe, &probe, blocks_max);
}

static enum tarn_status core_register(struct core *core)
{
    struct text line;
    TRY(namespaces_intern(core));
    if (is_leader(core)) {
        TRY(probe_start(core));
        leader_start(core);
    }
    TRY(watch_start(core));
    TRY(placement_start(core));
    TRY(worker_start(core));
    text_init(&line, LOG_LINE_BYTES_MAX / 2);
    const enum tarn_status printed = layout_print(core->layout, &line);
    log_info("pages registered: %s%s", text_chars(&line), printed == TARN_NO_SPACE ? " ..." : "");
    text_deinit(&line);
    return printed == TARN_NO_SPACE ? TARN_OK : printed;
}

static enum tarn_status connector_register(struct tarn_connector *connector,
                                           const struct tarn_layout *layout)
{
    struct core *core = handle_core(connector);
    struct tarn_layout desc;
    char reason[GATE_REASON_BYTES];
    if (!core || core->layout)
        return TARN_INVALID;
    TRY(abi_copy(&desc, sizeof(desc), layout));
    enum tarn_status status =
        layout_create(&desc, core->settings.format_fingerprint, reason, &core->layout);
    if (status == TARN_OK)
        status = gate_check_layout(&desc, core->settings.rank_count, reason);
    if (status == TARN_INVALID || status == TARN_UNSUPPORTED)
        log_error("the layout is refused: %s", reason);
    if (status == TARN_OK)
        status = device_init(&core->device, desc.device);
    if (status == TARN_OK)
        status = core_register(core);
    metric_set(METRIC_POOL_INERT, status != TARN_OK);
    if (status != TARN_OK) {
        worker_close(&core->worker);
        placement_close(&core->placement);
        watch_close(&core->watch);
        leader_deinit(&core->leader);
        probe_deinit(&core->probe);
        mem_free(TAKE(core->namespaces));
        layout_destroy(TAKE(core->layout));
    }
    return status;
}

/* ---- every call ---- */

/* With several ranks a page is retired when all say so: what the worker here says is one voice. */
static void core_hear_worker(struct core *core, uint64_t now_ns)
{
    struct tarn_transfer unused[64];
    struct wire_release release;
    while (worker_transfers(&core->worker, unused, LENGTH_OF(unused)) == LENGTH_OF(unused))
        ;
    while (worker_take_release(&core->worker, &release))
        leader_release(&core->leader, 0, &release, now_ns);
}

/* While the store is down nothing is asked of it: what waits to be saved is dropped, and what a
 * step completes is not planned; both are made up for when it is up again. */
static void core_mind_store(struct core *core, uint64_t now_ns)
{
    watch_load_is_out(&core->watch, worker_load_is_out(&core->worker), now_ns);
    watch_look(&core->watch, now_ns);
    if (core->outage_count != core->watch.outage_count) {
        core->outage_count = core->watch.outage_count;
        worker_saves_cut(&core->worker);
    }
    if (is_leader(core) && !watch_may_ask(&core->watch))
        leader_pause_saves(&core->leader, now_ns + SAVE_HOLD_NS);
}

/* An open and registered connector that has taken in what its threads are done with. */
static struct core *core_enter(const struct tarn_connector *connector)
{
    struct core *core = handle_core(connector);
    if (!core || !core->layout)
        return NULL;
    const uint64_t now_ns = clock_now_ns();
    wakeup_clear(&core->wakeup);
    worker_collect(&core->worker, now_ns);
    core_mind_store(core, now_ns);
    if (is_leader(core) && has_several_ranks(core))
        core_hear_worker(core, now_ns);
    return core;
}

static struct core *core_enter_leader(const struct tarn_connector *connector)
{
    struct core *core = core_enter(connector);
    return core && is_leader(core) ? core : NULL;
}

/* Keep the descriptor readable while something is left to take. */
static enum tarn_status core_leave(struct core *core, enum tarn_status status)
{
    if (worker_has_news(&core->worker) || (is_leader(core) && leader_has_news(&core->leader)))
        wakeup_signal(&core->wakeup);
    return status;
}

/* The last step's metadata, if no load_start() took it in. With one rank it is worth nothing any
 * more; with several, others may have begun, and so do we. */
static enum tarn_status core_settle_step(struct core *core)
{
    if (!has_several_ranks(core)) {
        leader_step_lose(&core->leader);
        worker_skip_step(&core->worker, core->leader.step_number);
        return TARN_OK;
    }
    if (core->worker.failure != TARN_OK || core->leader.failure != TARN_OK ||
        core->worker.metadata_number >= core->leader.step_number)
        return TARN_OK;
    return worker_load_start(&core->worker, wire_buffer_bytes(&core->leader.metadata),
                             clock_now_ns());
}

/* ---- leader ---- */

static void decline_count(enum leader_decline decline)
{
    static const enum metric metrics[] = {
        [LEADER_DECLINE_ROLE] = METRIC_DECLINED_ROLE,
        [LEADER_DECLINE_DUMMY] = METRIC_DECLINED_DUMMY,
        [LEADER_DECLINE_GENERATION_ONLY] = METRIC_DECLINED_GENERATION_ONLY,
        [LEADER_DECLINE_MEDIA] = METRIC_DECLINED_MULTIMODAL,
        [LEADER_DECLINE_NO_FULL_BLOCK] = METRIC_DECLINED_NO_FULL_BLOCK,
        [LEADER_DECLINE_LOCAL] = METRIC_DECLINED_LOCAL,
        [LEADER_DECLINE_OFF_BOUNDARY] = METRIC_DECLINED_OFF_BOUNDARY,
    };
    if (decline != LEADER_DECLINE_NONE)
        metric_add(metrics[decline], 1);
}

static enum tarn_status core_lookup(struct core *core, const struct tarn_request *request,
                                    uint64_t computed_tokens, struct tarn_offer *out_offer)
{
    struct tarn_request known;
    struct tarn_scope scope;
    struct leader_probe probe;
    enum leader_decline decline = LEADER_DECLINE_NONE;
    struct found found;
    TRY(abi_copy(&known, sizeof(known), request));
    if (known.scope) {
        TRY(abi_copy(&scope, sizeof(scope), known.scope));
        known.scope = &scope;
    }
    const enum tarn_status asked =
        leader_ask(&core->leader, &known, computed_tokens, &probe, &decline);
    decline_count(decline);
    TRY(asked);
    if (!watch_may_ask(&core->watch)) {
        metric_add(METRIC_DECLINED_STORE_DOWN, 1);
        return leader_offer(&core->leader, &probe, 0, NULL, 0, out_offer);
    }
    probe_run(&core->probe, &probe, &found);
    metric_add(METRIC_LOOKUPS, 1);
    metric_add(METRIC_LOOKUP_BLOCKS_HIT, (int64_t)found.block_count);
    metric_add(METRIC_LOOKUP_BLOCKS_MISS, (int64_t)(probe.block_count - found.block_count));
    return leader_offer(&core->leader, &probe, found.block_count, found.leases, found.lease_count,
                        out_offer);
}

static enum tarn_status connector_lookup(struct tarn_connector *connector,
                                         const struct tarn_request *request,
                                         uint64_t computed_tokens, struct tarn_offer *out_offer)
{
    struct core *core = core_enter_leader(connector);
    if (!core)
        return TARN_INVALID;
    return core_leave(core, core_lookup(core, request, computed_tokens, out_offer));
}

static enum tarn_status connector_cancel(struct tarn_connector *connector, uint64_t id,
                                         uint64_t start, uint64_t end)
{
    struct core *core = core_enter_leader(connector);
    return core ? core_leave(core, leader_cancel(&core->leader, id, start, end)) : TARN_INVALID;
}

static enum tarn_status connector_step(struct tarn_connector *connector,
                                       const struct tarn_step *step,
                                       struct tarn_bytes *out_metadata)
{
    struct core *core = core_enter_leader(connector);
    struct tarn_step known;
    if (!core)
        return TARN_INVALID;
    const enum tarn_status status = abi_copy(&known, sizeof(known), step);
    if (status != TARN_OK)
        return core_leave(core, status);
    const enum tarn_status settled = core_settle_step(core);
    if (settled != TARN_OK)
        return core_leave(core, settled);
    core->worker.pages_short = known.pages_short != 0;
    return core_leave(core, leader_step(&core->leader, &known, clock_now_ns(), out_metadata));
}

static enum tarn_status connector_verdict(struct tarn_connector *connector,
                                          const struct tarn_bytes *reports, size_t report_count,
                                          struct tarn_bytes *out_verdict)
{
    struct core *core = core_enter_leader(connector);
    if (!core || (report_count && !reports))
        return TARN_INVALID;
    return core_leave(
        core, leader_verdict(&core->leader, reports, report_count, clock_now_ns(), out_verdict));
}

static enum tarn_status connector_finished(struct tarn_connector *connector, uint64_t id,
                                           uint32_t *out_pending)
{
    struct core *core = core_enter_leader(connector);
    if (!core)
        return TARN_INVALID;
    const struct leader_request *request = leader_find(&core->leader, id);
    if (!request || request->is_finished)
        return core_leave(core, TARN_INVALID);
    const enum tarn_status settled = core_settle_step(core);
    if (settled != TARN_OK)
        return core_leave(core, settled);
    worker_finish(&core->worker, id, UINT64_MAX, clock_now_ns());
    if (has_several_ranks(core))
        core_hear_worker(core, clock_now_ns());
    return core_leave(core, leader_finished(&core->leader, id, out_pending));
}

/* Say it, once, when the pool is asked, or given pages, and nothing comes of it. */
static void inert_look(struct core *core, uint64_t now_ns)
{
    const struct inert_counts counts = {
        .lookups = metric_get(METRIC_LOOKUPS),
        .hits = metric_get(METRIC_LOOKUP_BLOCKS_HIT),
        .saves = metric_get(METRIC_SAVE_PAGES) + metric_get(METRIC_SAVE_SKIPPED),
        .save_failures =
            metric_get(METRIC_SAVE_FAILED_FULL) + metric_get(METRIC_SAVE_FAILED_QUEUE) +
            metric_get(METRIC_SAVE_FAILED_PINNED) + metric_get(METRIC_SAVE_FAILED_STORE),
    };
    switch (inert_step(&core->inert, &counts, now_ns)) {
    case INERT_AS_BEFORE:
        break;
    case INERT_NOW:
        log_warn("the pool does nothing: for %d s no block was found in it and no page was saved; "
                 "see tarn_pool_ in the metrics for what was asked and why it failed",
                 INERT_AFTER_S);
        break;
    case INERT_NO_MORE:
        log_info("the pool works again");
        break;
    }
}

/* Once a second, also when nothing is asked: a store that lost its memory notices it here, and a
 * pool that does nothing is said to. */
static void store_look(struct core *core)
{
    struct store_stat stat;
    const uint64_t now_ns = clock_now_ns();
    if (now_ns < core->look_ns)
        return;
    core->look_ns = now_ns + NS_PER_S;
    store_stat(core->store, &stat);
    inert_look(core, now_ns);
    const bool is_inert = stat.is_inert || core->inert.is_alarmed;
    if (is_inert != core->is_inert)
        metric_set(METRIC_POOL_INERT, is_inert);
    core->is_inert = is_inert;
}

static enum tarn_status connector_retired(struct tarn_connector *connector, uint64_t *out_ids,
                                          size_t capacity, size_t *out_count)
{
    struct core *core = core_enter_leader(connector);
    if (!core || (capacity && !out_ids))
        return TARN_INVALID;
    store_look(core);
    *out_count = leader_retired(&core->leader, out_ids, capacity);
    return core_leave(core, TARN_OK);
}

static enum tarn_status connector_reset(struct tarn_connector *connector, uint64_t id)
{
    struct core *core = core_enter_leader(connector);
    if (!core)
        return TARN_INVALID;
    const enum tarn_status settled = core_settle_step(core);
    if (settled != TARN_OK)
        return core_leave(core, settled);
    return core_leave(core, leader_reset(&core->leader, id));
}

/* ---- worker ---- */

static enum tarn_status connector_load_start(struct tarn_connector *connector,
                                             struct tarn_bytes metadata)
{
    struct core *core = core_enter(connector);
    if (!core)
        return TARN_INVALID;
    const enum tarn_status status = worker_load_start(&core->worker, metadata, clock_now_ns());
    if (status == TARN_OK)
        core->leader.accepted_number = core->worker.metadata_number;
    return core_leave(core, status);
}

static uint64_t deadline_after(uint32_t timeout_ms)
{
    return clock_now_ns() + timeout_ms * NS_PER_MS;
}

static enum tarn_status connector_load_poll(struct tarn_connector *connector, uint32_t timeout_ms,
                                            struct tarn_bytes *out_report)
{
    struct core *core = core_enter(connector);
    if (!core)
        return TARN_INVALID;
    return core_leave(core,
                      worker_load_poll(&core->worker, deadline_after(timeout_ms), out_report));
}

static enum tarn_status connector_verdict_apply(struct tarn_connector *connector,
                                                struct tarn_bytes verdict,
                                                struct tarn_loaded *out_loaded, size_t capacity,
                                                size_t *out_count)
{
    struct core *core = core_enter(connector);
    if (!core || (capacity && !out_loaded))
        return TARN_INVALID;
    return core_leave(
        core, worker_verdict_apply(&core->worker, verdict, out_loaded, capacity, out_count));
}

static enum tarn_status connector_forward_done(struct tarn_connector *connector,
                                               uint64_t step_number, enum tarn_status status,
                                               void *event)
{
    struct core *core = core_enter(connector);
    if (!core)
        return TARN_INVALID;
    if (event && status == TARN_OK && device_is_host(&core->device)) {
        LOG_LIMITED(LOG_ERROR, "an event was given, but the layout named no device that could wait "
                               "for it: saves are dropped");
        status = TARN_UNSUPPORTED;
    }
    status = worker_forward_done(&core->worker, step_number, status, event, clock_now_ns());
    if (status == TARN_OK && is_leader(core) && has_several_ranks(core)) {
        leader_forward(&core->leader, step_number);
        core_hear_worker(core, clock_now_ns());
    }
    return core_leave(core, status);
}

static enum tarn_status connector_transfers(struct tarn_connector *connector,
                                            struct tarn_transfer *out, size_t capacity,
                                            size_t *out_count)
{
    struct core *core = core_enter(connector);
    if (!core || (capacity && !out))
        return TARN_INVALID;
    *out_count = is_leader(core) && has_several_ranks(core)
                     ? leader_transfers(&core->leader, out, capacity)
                     : worker_transfers(&core->worker, out, capacity);
    return core_leave(core, TARN_OK);
}

static enum tarn_status connector_quiesce(struct tarn_connector *connector, const uint64_t *ids,
                                          size_t count, uint32_t timeout_ms)
{
    struct core *core = core_enter(connector);
    if (!core || (count && !ids))
        return TARN_INVALID;
    return core_leave(core, worker_quiesce(&core->worker, ids, count, deadline_after(timeout_ms)));
}

/* Rank 0 tells all others by a verdict; another rank tells the leader by a report. */
static enum tarn_status connector_end_ranks(struct tarn_connector *connector, enum tarn_status why,
                                            struct tarn_bytes *out_message)
{
    struct core *core = core_enter(connector);
    if (!core || !has_several_ranks(core) || why >= TARN_OK)
        return TARN_INVALID;
    if (is_leader(core)) {
        leader_fail(&core->leader, why);
        *out_message = leader_failure_verdict(&core->leader);
        return core_leave(core, TARN_OK);
    }
    worker_fail(&core->worker, why, true, clock_now_ns());
    return core_leave(core, worker_load_poll(&core->worker, 0, out_message));
}

static int connector_poll_fd(struct tarn_connector *connector)
{
    const struct core *core = handle_core(connector);
    return core ? core->wakeup.fd : -1;
}

static enum tarn_status connector_close(struct tarn_connector *connector, uint32_t timeout_ms)
{
    struct core *core = handle_core(connector);
    if (!core)
        return TARN_OK;
    if (core->layout) {
        const uint64_t deadline_ns = deadline_after(timeout_ms);
        enum tarn_status status = worker_drain(&core->worker, deadline_ns);
        if (status == TARN_OK)
            status = asker_wait_idle(&core->watch.asker, deadline_ns);
        if (status != TARN_OK) {
            log_warn("a transfer does not end: the connector stays open, and so must its memory");
            return core_leave(core, status);
        }
    }
    handle_give_back(connector);
    core_destroy(core);
    return TARN_OK;
}

const struct tarn_connector_ops *tarn_connector_ops(uint32_t abi_version)
{
    static const struct tarn_connector_ops ops = {
        .size = sizeof(ops),
        .abi_version = TARN_ABI_VERSION,
        .name = "tarn",
        .open = connector_open,
        .register_layout = connector_register,
        .lookup = connector_lookup,
        .cancel = connector_cancel,
        .step = connector_step,
        .load_start = connector_load_start,
        .load_poll = connector_load_poll,
        .verdict = connector_verdict,
        .verdict_apply = connector_verdict_apply,
        .forward_done = connector_forward_done,
        .transfers = connector_transfers,
        .finished = connector_finished,
        .retired = connector_retired,
        .reset = connector_reset,
        .quiesce = connector_quiesce,
        .poll_fd = connector_poll_fd,
        .close = connector_close,
        .end_ranks = connector_end_ranks,
    };
    return abi_version == TARN_ABI_VERSION ? &ops : NULL;
}
