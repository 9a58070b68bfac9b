/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/rank-machine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/map.h"
#include "connector/transfer.h"
#include "key/namespace.h"
#include "os/clock.h"

enum { NAMESPACES_MAX = MACHINE_RANKS * MACHINE_GROUPS, KEY_BYTES = 20, COPIES_MAX = 8 };

struct space {
    char text[STORE_NAMESPACE_BYTES_MAX + 1];
    uint32_t rank;
    uint32_t group;
};

struct key {
    uint8_t bytes[KEY_BYTES];
};

/* A save whose page was copied; what came of it follows. */
struct copy {
    struct save_job job;
    uint8_t bytes[MACHINE_PAGE_BYTES];
};

struct rank_machine {
    struct store store;
    struct transfer *transfer; /* of the rank's connector; NULL: not open */
    uint8_t memory[MACHINE_GROUPS][MACHINE_SLOTS][MACHINE_PAGE_BYTES];
    struct copy copies[COPIES_MAX];
    size_t copy_count;
};

uint64_t machine_now_ns;

static struct rank_machine machines[MACHINE_RANKS];
static struct space spaces[NAMESPACES_MAX];
static uint32_t space_count;
static struct map pages; /* uint8_t[MACHINE_PAGE_BYTES] by struct key */
static size_t lease_count;
static uint32_t opened_count;
static uint64_t random_state;
static const char *fault_said;
static machine_may_touch touch_check;

/* ---- clock, chance, faults ---- */

/* The program's clock_gettime(), under a name of its own here. */
int machine_clock(clockid_t id, struct timespec *out_time) __asm__("clock_gettime");

int machine_clock(clockid_t id, struct timespec *out_time)
{
    (void)id;
    out_time->tv_sec = (time_t)(machine_now_ns / NS_PER_S);
    out_time->tv_nsec = (long)(machine_now_ns % NS_PER_S);
    return 0;
}

uint32_t machine_pick(uint32_t count)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % count;
}

const char *machine_fault(void)
{
    return fault_said;
}

void machine_say_fault(const char *fault)
{
    if (!fault_said)
        fault_said = fault;
}

static void page_fill(uint32_t rank, uint32_t group, const struct tarn_digest *digest,
                      uint8_t out_bytes[MACHINE_PAGE_BYTES])
{
    for (size_t i = 0; i < MACHINE_PAGE_BYTES; i++)
        out_bytes[i] = (uint8_t)(digest->bytes[i] ^ (rank * MACHINE_GROUPS + group + 1));
}

/* ---- the pool ---- */

static struct key key_of(uint32_t space, const struct tarn_digest *digest)
{
    struct key key;
    memcpy(key.bytes, &space, sizeof(space));
    memcpy(key.bytes + sizeof(space), digest->bytes, sizeof(digest->bytes));
    return key;
}

static enum tarn_status pool_intern(struct store *store, const char *text, uint32_t *out_index)
{
    (void)store;
    for (uint32_t i = 0; i < space_count; i++) {
        if (strcmp(spaces[i].text, text) == 0) {
            *out_index = i;
            return TARN_OK;
        }
    }
    struct key_namespace named;
    ASSERT(space_count < NAMESPACES_MAX);
    struct space *space = &spaces[space_count];
    const enum tarn_status parsed = namespace_parse(text, strlen(text), &named);
    ASSERT(parsed == TARN_OK);
    (void)snprintf(space->text, sizeof(space->text), "%s", text);
    space->rank = named.rank;
    space->group = named.group;
    *out_index = space_count++;
    return TARN_OK;
}

static bool pool_has(uint32_t space, const struct tarn_digest *digest)
{
    const struct key key = key_of(space, digest);
    return map_get(&pages, &key) != NULL;
}

static enum tarn_status pool_exists(struct store *store, const struct store_key *keys, size_t count,
                                    bool *out_present)
{
    (void)store;
    for (size_t i = 0; i < count; i++)
        out_present[i] = pool_has(keys[i].namespace_index, &keys[i].digest);
    return TARN_OK;
}

static enum tarn_status pool_lookup(struct store *store, const struct store_key *keys, size_t count,
                                    struct store_lease **out_lease, size_t *out_count)
{
    size_t found = 0;
    while (found < count && pool_has(keys[found].namespace_index, &keys[found].digest))
        found++;
    if (found == 0)
        return TARN_MISS;
    struct store_lease *lease = mem_alloc(1, sizeof(*lease));
    ASSERT(lease);
    lease->store = store;
    lease_count++;
    *out_lease = lease;
    *out_count = found;
    return TARN_OK;
}

static void pool_lease_release(struct store_lease *lease)
{
    lease_count--;
    mem_free(lease);
}

static void pool_stat(struct store *store, struct store_stat *out_stat)
{
    (void)store;
    *out_stat = (struct store_stat){ .lease_count = lease_count };
}

static void pool_close(struct store *store)
{
    (void)store;
}

static const struct store_ops pool_ops = {
    .name = "machine",
    .intern = pool_intern,
    .exists = pool_exists,
    .lookup = pool_lookup,
    .lease_release = pool_lease_release,
    .stat = pool_stat,
    .close = pool_close,
};

size_t machine_lease_count(void)
{
    return lease_count;
}

bool machine_pool_has(const struct tarn_digest *digest, uint32_t rank_count)
{
    size_t count = 0;
    for (uint32_t i = 0; i < space_count; i++)
        count += pool_has(i, digest);
    return count == (size_t)rank_count * MACHINE_GROUPS;
}

static void pool_put(uint32_t space, const struct tarn_digest *digest,
                     const uint8_t bytes[MACHINE_PAGE_BYTES])
{
    const struct key key = key_of(space, digest);
    if (map_get(&pages, &key))
        return;
    uint8_t *page = mem_alloc(1, MACHINE_PAGE_BYTES);
    ASSERT(page);
    memcpy(page, bytes, MACHINE_PAGE_BYTES);
    const enum tarn_status status = map_set(&pages, &key, page);
    ASSERT(status == TARN_OK);
}

void machine_pool_fill(const struct tarn_digest *digest)
{
    for (uint32_t i = 0; i < space_count; i++) {
        uint8_t bytes[MACHINE_PAGE_BYTES];
        page_fill(spaces[i].rank, spaces[i].group, digest, bytes);
        pool_put(i, digest, bytes);
    }
}

void machine_pool_lose(const struct tarn_digest *digest, uint32_t rank, uint32_t group)
{
    for (uint32_t i = 0; i < space_count; i++) {
        const struct key key = key_of(i, digest);
        if (spaces[i].rank == rank && spaces[i].group == group)
            mem_free(map_remove(&pages, &key));
    }
}

/* ---- pages of a rank ---- */

struct store *machine_store(uint32_t rank)
{
    return &machines[rank].store;
}

void machine_layout(uint32_t rank, struct tarn_layout *out_layout)
{
    static struct tarn_region regions[MACHINE_GROUPS];
    static struct tarn_group groups[MACHINE_GROUPS];
    for (uint32_t i = 0; i < MACHINE_GROUPS; i++) {
        regions[i] = (struct tarn_region){ .base = (uintptr_t)machines[rank].memory[i],
                                           .size_bytes = MACHINE_PAGE_BYTES,
                                           .stride_bytes = MACHINE_PAGE_BYTES,
                                           .slot_count = MACHINE_SLOTS };
        groups[i] = (struct tarn_group){ .id = i, .regions = &regions[i], .region_count = 1 };
    }
    *out_layout = (struct tarn_layout){ .size = sizeof(*out_layout),
                                        .tokens_per_block = 4,
                                        .page_form = TARN_PAGES_BY_SLOT,
                                        .groups = groups,
                                        .group_count = MACHINE_GROUPS };
}

void machine_compute(uint32_t rank, tarn_page slot, const struct tarn_digest *digest)
{
    for (uint32_t group = 0; group < MACHINE_GROUPS; group++)
        page_fill(rank, group, digest, machines[rank].memory[group][slot]);
}

static bool page_is_right(uint32_t rank, uint32_t group, const struct tarn_digest *digest,
                          const uint8_t *bytes)
{
    uint8_t expected[MACHINE_PAGE_BYTES];
    page_fill(rank, group, digest, expected);
    return memcmp(bytes, expected, sizeof(expected)) == 0;
}

bool machine_is_right(uint32_t rank, tarn_page slot, const struct tarn_digest *digest)
{
    for (uint32_t group = 0; group < MACHINE_GROUPS; group++) {
        if (!page_is_right(rank, group, digest, machines[rank].memory[group][slot]))
            return false;
    }
    return true;
}

bool machine_is_busy(uint32_t rank, tarn_page slot)
{
    const struct transfer *transfer = machines[rank].transfer;
    if (!transfer)
        return false;
    const struct queue *loads = &transfer->load_in;
    for (size_t i = 0; i < loads->count; i++) {
        struct load_batch batch;
        memcpy(&batch, loads->items + (loads->first + i) % loads->capacity * sizeof(batch),
               sizeof(batch));
        for (size_t j = 0; j < batch.count; j++) {
            if (batch.load->pages[batch.first + j].page == slot)
                return true;
        }
    }
    const struct queue *saves = &transfer->save_in;
    for (size_t i = 0; i < saves->count; i++) {
        struct save_job job;
        memcpy(&job, saves->items + (saves->first + i) % saves->capacity * sizeof(job),
               sizeof(job));
        if (job.page == slot)
            return true;
    }
    return false;
}

/* ---- what threads do ---- */

static void touch(uint32_t rank, uint64_t id, tarn_page slot)
{
    if (!touch_check(rank, id, slot))
        machine_say_fault("a transfer touches a page that is not its request's any more");
}

static void page_get(uint32_t rank, uint64_t id, struct load_page *page)
{
    static const enum tarn_status failures[] = { TARN_MISS, TARN_IO, TARN_CORRUPT };
    const uint32_t space = machines[rank].transfer->namespaces[page->group];
    const struct key key = key_of(space, &page->digest);
    uint8_t *memory = machines[rank].memory[page->group][page->page];
    const uint8_t *bytes = map_get(&pages, &key);
    touch(rank, id, page->page);
    page->status = bytes ? TARN_OK : TARN_MISS;
    if (machine_pick(40) == 0)
        page->status = failures[machine_pick(3)];
    if (bytes && page->status == TARN_OK)
        memcpy(memory, bytes, MACHINE_PAGE_BYTES);
    else
        memset(memory, 0xee, MACHINE_PAGE_BYTES); /* whatever was there is gone */
    if (page->status == TARN_CORRUPT)
        machine_pool_lose(&page->digest, rank, page->group);
}

bool machine_load(uint32_t rank)
{
    struct transfer *transfer = machines[rank].transfer;
    struct load_batch batch;
    size_t count;
    if (!transfer || queue_take(&transfer->load_in, &batch, 1, &count) != TARN_OK)
        return false;
    const bool is_cancelled = atomic_load(&batch.load->is_cancelled);
    for (size_t i = 0; i < batch.count; i++) {
        struct load_page *page = &batch.load->pages[batch.first + i];
        if (is_cancelled)
            page->status = TARN_STALE;
        else
            page_get(rank, batch.load->id, page);
    }
    if (!is_cancelled)
        atomic_store(&transfer->load_returned_ns, machine_now_ns);
    const enum tarn_status status = queue_push(&transfer->load_out, &batch);
    ASSERT(status == TARN_OK);
    wakeup_signal(transfer->wakeup);
    return true;
}

static void page_put(uint32_t rank, struct save_job *job, const uint8_t *bytes)
{
    const uint32_t space = machines[rank].transfer->namespaces[job->group];
    job->is_over = true;
    if (machine_pick(40) == 0) {
        job->status = machine_pick(2) ? TARN_IO : TARN_NO_SPACE;
        transfer_request_cut(job->request, job->generation + 1);
        return;
    }
    job->status = TARN_OK;
    job->was_present = pool_has(space, &job->digest);
    if (!page_is_right(rank, job->group, &job->digest, bytes))
        machine_say_fault("a page is saved with other bytes than its block's");
    pool_put(space, &job->digest, bytes);
}

static void save_return(struct transfer *transfer, const struct save_job *job)
{
    const enum tarn_status status = queue_push(&transfer->save_out, job);
    ASSERT(status == TARN_OK);
    wakeup_signal(transfer->wakeup);
}

/* A page that was copied is free; its write comes later. */
static bool copy_take(struct rank_machine *machine, const struct save_job *job,
                      const uint8_t *bytes)
{
    if (machine->copy_count == COPIES_MAX || machine_pick(4) != 0)
        return false;
    struct copy *copy = &machine->copies[machine->copy_count++];
    copy->job = *job;
    copy->job.is_copied = true;
    memcpy(copy->bytes, bytes, sizeof(copy->bytes));
    save_return(machine->transfer, &copy->job);
    return true;
}

bool machine_save(uint32_t rank)
{
    struct rank_machine *machine = &machines[rank];
    struct transfer *transfer = machine->transfer;
    struct save_job job;
    size_t count;
    if (!transfer)
        return false;
    if (machine->copy_count > 0 && (machine_pick(2) || queue_count(&transfer->save_in) == 0)) {
        struct copy copy = machine->copies[0];
        machine->copy_count--;
        memmove(machine->copies, machine->copies + 1, machine->copy_count * sizeof(copy));
        page_put(rank, &copy.job, copy.bytes);
        save_return(transfer, &copy.job);
        return true;
    }
    if (queue_take(&transfer->save_in, &job, 1, &count) != TARN_OK)
        return false;
    const uint8_t *bytes = machine->memory[job.group][job.page];
    if (job.generation < atomic_load(&job.request->saves_cut)) {
        job.status = TARN_STALE;
        job.is_over = true;
    } else {
        touch(rank, job.request->id, job.page);
        if (copy_take(machine, &job, bytes))
            return true;
        page_put(rank, &job, bytes);
    }
    save_return(transfer, &job);
    return true;
}

/* ---- instead of connector/transfer.c ---- */

void transfer_request_cut(struct transfer_request *request, uint32_t generation)
{
    if (atomic_load(&request->saves_cut) < generation)
        atomic_store(&request->saves_cut, generation);
}

bool load_close_scatter(struct load *load)
{
    atomic_store(&load->scatter, SCATTER_CLOSED);
    return true;
}

enum tarn_status transfer_open(struct transfer *transfer, size_t save_count)
{
    ASSERT(opened_count < MACHINE_RANKS);
    TRY(queue_init(&transfer->save_in, sizeof(struct save_job), save_count));
    TRY(queue_init(&transfer->save_out, sizeof(struct save_job), 2 * save_count));
    TRY(queue_init(&transfer->load_in, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    TRY(queue_init(&transfer->load_out, sizeof(struct load_batch), TRANSFER_BATCHES_MAX));
    machines[opened_count++].transfer = transfer;
    return TARN_OK;
}

void transfer_close(struct transfer *transfer)
{
    for (uint32_t i = 0; i < MACHINE_RANKS; i++) {
        if (machines[i].transfer == transfer)
            machines[i].transfer = NULL;
    }
    queue_deinit(&transfer->save_in);
    queue_deinit(&transfer->save_out);
    queue_deinit(&transfer->load_in);
    queue_deinit(&transfer->load_out);
}

/* ---- life ---- */

void machine_init(uint64_t seed, machine_may_touch may_touch)
{
    random_state = seed * 2 + 1;
    machine_now_ns = 1000 * NS_PER_S;
    fault_said = NULL;
    touch_check = may_touch;
    space_count = 0;
    opened_count = 0;
    lease_count = 0;
    map_init(&pages, KEY_BYTES);
    for (int i = 0; i < 8; i++)
        (void)machine_pick(2);
    for (uint32_t i = 0; i < MACHINE_RANKS; i++) {
        memset(&machines[i], 0, sizeof(machines[i]));
        machines[i].store.ops = &pool_ops;
    }
}

void machine_deinit(void)
{
    size_t position = 0;
    for (void *page; (page = map_next(&pages, &position)) != NULL;)
        mem_free(page);
    map_deinit(&pages);
}
