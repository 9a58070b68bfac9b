/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank reports, and what it is told: reports, verdicts, and the end of all ranks. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "connector/broken.h"
#include "connector/worker-parts.h"
#include "obs/metric.h"
#include "os/clock.h"

static struct wire_shape list_shape(const struct worker *worker)
{
    return (struct wire_shape){ .identity = worker->config.identity };
}

static bool has_several_ranks(const struct worker *worker)
{
    return worker->config.rank_count > 1;
}

/* ---- reports ---- */

void worker_tell_release(struct worker *worker, const struct wire_release *release)
{
    if (has_several_ranks(worker))
        ring_push(&worker->releases, release);
}

bool worker_take_release(struct worker *worker, struct wire_release *out_release)
{
    if (worker->releases.count == 0)
        return false;
    ring_pop(&worker->releases, out_release);
    return true;
}

static size_t loads_to_report(const struct worker *worker)
{
    size_t count = 0;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        count += load->is_concluded && !load->is_reported;
    }
    return count;
}

static void releases_write(struct worker *worker, struct wire_writer *writer)
{
    while (worker->releases.count > 0) {
        struct wire_release release;
        ring_pop(&worker->releases, &release);
        wire_add_release(writer, &release);
    }
}

static enum tarn_status report_write(struct worker *worker, size_t item_count,
                                     struct tarn_bytes *out_report)
{
    TRY(wire_buffer_reserve(&worker->report, WIRE_HEADER_BYTES + wire_items_bytes(item_count) +
                                                 wire_releases_bytes(worker->releases.count)));
    struct wire_writer writer = wire_begin(&worker->report, list_shape(worker));
    list_for_each (link, &worker->loads) {
        struct load *load = LIST_ITEM(link, struct load, link);
        if (!load->is_concluded || load->is_reported)
            continue;
        const struct wire_item item = {
            .loaded = { .id = load->id,
                        .first_block = load->first_block,
                        .block_count = load->good_count,
                        .asked_count = load->block_count,
                        .status = load->status },
            .step_number = load->step_number,
        };
        load->is_reported = true;
        wire_add_item(&writer, &item);
    }
    releases_write(worker, &writer);
    const struct wire_head head = {
        .kind = WIRE_REPORT,
        .rank = worker->config.rank,
        .number = ++worker->report_number,
        .status = worker->failure,
    };
    worker->must_tell_failure = false;
    wire_end(&writer, &head);
    *out_report = wire_buffer_bytes(&worker->report);
    return TARN_OK;
}

/* The engine waits and no step comes: the bytes of a step are for the taking again. */
static void loads_grant_if_starved(struct worker *worker)
{
    if (worker->batches_in_flight == 0 && !list_is_empty(&worker->loads)) {
        worker_loads_grant(worker);
        worker_loads_push(worker);
    }
}

static uint64_t loads_due_ns(const struct worker *worker)
{
    uint64_t due_ns = UINT64_MAX;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        const uint64_t load_ns = load->is_concluded ? UINT64_MAX : worker_load_due_ns(worker, load);
        due_ns = load_ns < due_ns ? load_ns : due_ns;
    }
    return due_ns;
}

/* A verdict that does not come: whoever should send it is gone. The leader knows of ranks by
 * itself.
 */
static void leader_check(struct worker *worker, uint64_t now_ns)
{
    if (!has_several_ranks(worker) || worker->config.rank == 0 || worker->failure != TARN_OK ||
        BROKEN(WAIT_FOR_LOST_LEADER))
        return;
    list_for_each (link, &worker->loads) {
        const struct load *load = LIST_ITEM(link, struct load, link);
        if (load->is_judged || now_ns < load->started_ns + worker->config.verdict_deadline_ns)
            continue;
        log_error("no verdict came on the load of request %" PRIu64
                  ": the leader counts as lost, and rank %" PRIu32 " ends",
                  load->id, worker->config.rank);
        worker_fail(worker, TARN_IO, false, now_ns);
        return;
    }
}

enum tarn_status worker_load_poll(struct worker *worker, uint64_t deadline_ns,
                                  struct tarn_bytes *out_report)
{
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        leader_check(worker, now_ns);
        if (worker->failure != TARN_OK && !worker->must_tell_failure)
            return worker->failure;
        const size_t count = loads_to_report(worker);
        if (count > 0 || worker->releases.count > 0 || worker->must_tell_failure)
            return report_write(worker, count, out_report);
        loads_grant_if_starved(worker);
        const uint64_t due_ns = loads_due_ns(worker);
        if (now_ns >= deadline_ns || due_ns == UINT64_MAX)
            return TARN_AGAIN;
        worker_wait(worker, due_ns < deadline_ns ? due_ns : deadline_ns);
    }
}

/* ---- verdicts ---- */

/* The load that an item speaks of; or NULL. */
static struct load *item_load(const struct worker *worker, const struct wire_item *item)
{
    struct load *load = worker_load_find(worker, item->loaded.id);
    return load && load->step_number == item->step_number ? load : NULL;
}

/* No rank uses a page that it has not called good itself. */
static enum tarn_status verdict_check(const struct worker *worker, struct wire_reader reader)
{
    for (uint32_t i = 0; i < reader.counts[0] && !BROKEN(VERDICT_BY_MAXIMUM); i++) {
        struct wire_item item;
        wire_next_item(&reader, &item);
        const struct load *load = item_load(worker, &item);
        if (load && (!load->is_reported || item.loaded.block_count > load->good_count ||
                     item.loaded.first_block != load->first_block ||
                     item.loaded.asked_count != load->block_count))
            return TARN_CORRUPT;
    }
    return TARN_OK;
}

/* Only what a verdict found good counts as loaded. */
static void loaded_count(const struct worker *worker, const struct tarn_loaded *loaded)
{
    for (uint32_t i = 0; i < worker->config.layout->group_count; i++) {
        metric_add(METRIC_LOAD_PAGES, (int64_t)loaded->block_count);
        metric_add(METRIC_LOAD_BYTES,
                   (int64_t)(loaded->block_count * worker_page_bytes(worker, i)));
    }
}

static void item_apply(struct worker *worker, const struct wire_item *item, struct load *load)
{
    const struct tarn_loaded *loaded = &item->loaded;
    load->is_judged = true;
    load_free_if_over(load);
    loaded_count(worker, loaded);
    if (loaded->block_count == loaded->asked_count)
        return;
    worker_planned_drop(worker, &loaded->id, UINT64_MAX, clock_now_ns());
    LOG_LIMITED(
        LOG_WARN, "request %" PRIu64 ": %" PRIu64 " of %" PRIu64 " block%s could be loaded%s",
        loaded->id, loaded->block_count, loaded->asked_count, text_plural(loaded->asked_count),
        loaded->status == TARN_OK ? ", the rest is computed" : "");
}

/* What must be so of a verdict before anything of it is carried out. */
static enum tarn_status verdict_is_due(struct worker *worker, const struct wire_reader *reader)
{
    if (worker->failure != TARN_OK)
        return worker->failure;
    if (reader->head.rank != 0)
        return TARN_CORRUPT;
    if (wire_window_is_stale(&worker->verdicts, reader->head.number))
        return TARN_STALE;
    if (reader->head.status < TARN_OK) {
        log_error("the engine's ranks end: %s", tarn_strerror(reader->head.status));
        worker_fail(worker, reader->head.status, false, clock_now_ns());
        return worker->failure;
    }
    /* It may end a request whose load has not come yet. */
    if (has_several_ranks(worker) && reader->head.previous > worker->metadata_number &&
        !BROKEN(END_BEFORE_STEP))
        return TARN_AGAIN;
    return TARN_OK;
}

enum tarn_status worker_verdict_apply(struct worker *worker, struct tarn_bytes verdict,
                                      struct tarn_loaded *out_loaded, size_t capacity,
                                      size_t *out_count)
{
    struct wire_reader reader;
    size_t count = 0;
    TRY(wire_open(verdict, WIRE_VERDICT, list_shape(worker), &reader));
    TRY(verdict_is_due(worker, &reader));
    if (reader.counts[0] > capacity)
        return TARN_INVALID;
    const enum tarn_status status = verdict_check(worker, reader);
    if (status != TARN_OK) {
        log_error("a verdict calls pages good that this rank (%" PRIu32 ") did not: it is refused",
                  worker->config.rank);
        if (has_several_ranks(worker))
            worker_fail(worker, status, true, clock_now_ns());
        return status;
    }
    wire_window_take(&worker->verdicts, reader.head.number);
    for (uint32_t i = 0; i < reader.counts[0]; i++) {
        struct wire_item item;
        wire_next_item(&reader, &item);
        struct load *load = item_load(worker, &item);
        if (!load)
            continue; /* its request has ended */
        item_apply(worker, &item, load);
        out_loaded[count++] = item.loaded;
    }
    for (uint32_t i = 0; i < reader.counts[1]; i++) {
        struct wire_ended ended;
        wire_next_ended(&reader, &ended);
        worker_finish(worker, ended.id, ended.step_number, clock_now_ns());
    }
    *out_count = count;
    return TARN_OK;
}

/* ---- leases ---- */

/* The leader's ends with the verdict, or before it with the request. A store beyond this host takes
 * one with each get; asking it first would be a call across the network on the loop's time. */
void worker_load_lease(struct worker *worker, struct load *load)
{
    size_t count = 0;
    if (!has_several_ranks(worker) || store_traits(worker->config.store)->is_beyond_host)
        return;
    struct store_key *keys = mem_alloc(load->page_count, sizeof(*keys));
    if (!keys)
        return; /* a lease makes a load likelier, not safer */
    for (size_t i = 0; i < load->page_count; i++) {
        const struct load_page *page = &load->pages[i];
        keys[i] = (struct store_key){
            .digest = page->digest,
            .namespace_index = worker->config.namespaces[page->group],
            .depth = page->block > UINT32_MAX ? UINT32_MAX : (uint32_t)page->block,
        };
    }
    if (store_lookup(worker->config.store, keys, load->page_count, &load->lease, &count) != TARN_OK)
        load->lease = NULL;
    mem_free(keys);
}
