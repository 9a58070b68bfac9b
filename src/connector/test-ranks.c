/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of four ranks, each a process with pages of its own, over a real pool: one of this
 * host, or a Mooncake pool (test/lib/rank-pool.h). Its transport is the test's: a socket between
 * the leader and each other rank. The bytes in a page are made from its block, its group and its
 * rank, so that no rank can take another's for its own.
 *
 * Ranks lose pages, find damaged ones, are slow, die. What a verdict calls good holds exactly those
 * bytes on every rank, is the least of what the ranks have, and is the same for all; a page is
 * retired when the last rank has let go of it; and nobody waits past the deadline.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "connector/connector.h"
#include "key/chain.h"
#include "lib/fake-device.h"
#include "lib/rank-pool.h"
#include "os/clock.h"

enum { RANKS = 4, T = 4, BLOCKS = 12, PROMPT = T * BLOCKS + 1, SLOTS = 64, BASE = 20 };
enum { GROUPS = 2 };
enum { KEY_BYTES = 2048, GROUP_A = 2 * KEY_BYTES, GROUP_B = 1024, MESSAGE_MAX = 64 << 10 };
enum { CHILD_SECONDS = 60 }; /* whatever happens, a child is gone by then */

/* What goes wrong on one rank. */
enum fault {
    FAULT_NONE,
    FAULT_MISS,    /* its store no longer finds block `at` */
    FAULT_SLOW,    /* a get takes `at` milliseconds */
    FAULT_TOKENS,  /* block `at` was stored for other tokens */
    FAULT_DIES,    /* on the first step */
    FAULT_ENDS,    /* at its end: killed where others close */
    FAULT_GIVES_UP /* on the first step, and says so */
};

/* How pages go. */
enum way {
    WAY_AS_IT_IS,
    WAY_STAGED,  /* through host memory, both ways */
    WAY_DEVICE,  /* the same, since they lie on a device, whose memory the CPU cannot read */
    WAY_COMPARED /* stored with their tokens */
};

struct script {
    enum fault fault;
    int rank;
    uint32_t at;
    uint32_t deadline_ms;
    enum way way;
    uint64_t lent_bytes; /* by the rank `rank`, to a pool that takes any */
    bool is_deaf;        /* the leader does not see that a socket was closed */
    bool does_fail;      /* the leader says that it cannot go on instead of waiting for a verdict */
};

/* What a rank saw, in memory that all share. */
struct seen {
    enum tarn_status status; /* of its end: OK, or why the ranks ended */
    uint64_t offered;        /* blocks; the leader's */
    uint64_t good;           /* blocks; by the verdict */
    uint64_t end_ns;
    uint64_t saved_count; /* pages retired; the leader's: by all */
    bool has_verdict;
    bool is_right;         /* every good page's bytes, and every page's in the end */
    atomic_bool is_inside; /* its store is reading into pages */
    char error[200];
    char spaces[RANKS * GROUPS][480]; /* the namespaces it asks for; the leader those of all */
    size_t space_count;
};

static struct seen *seen; /* one a rank */
static char prefix[16];   /* of this test's keys */
static struct tarn_digest digests[BLOCKS];
static int32_t tokens[PROMPT];
static struct script script;
static const struct tarn_connector_ops *ops;

/* In a child: the test is over for it. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            give_up(__LINE__, #condition);                                                         \
    } while (0)

static int rank; /* of this child */

_Noreturn static void give_up(int line, const char *what)
{
    (void)snprintf(seen[rank].error, sizeof(seen[rank].error), "rank %d, line %d: %s", rank, line,
                   what);
    _exit(1);
}

/* ---- a store that does what the script says ---- */

struct shim {
    struct store base;
    struct store *real;
};

static struct store *real_of(struct store *store)
{
    return ((struct shim *)(void *)store)->real;
}

static enum tarn_status shim_intern(struct store *store, const char *text, uint32_t *out_index)
{
    if (seen[rank].space_count < RANKS * GROUPS) /* behind them, that of a canary */
        (void)snprintf(seen[rank].spaces[seen[rank].space_count++], sizeof(seen[rank].spaces[0]),
                       "%s", text);
    return store_namespace(real_of(store), text, out_index);
}

static enum tarn_status shim_exists(struct store *store, const struct store_key *keys, size_t count,
                                    bool *out_present)
{
    return store_exists(real_of(store), keys, count, out_present);
}

static enum tarn_status shim_lookup(struct store *store, const struct store_key *keys, size_t count,
                                    struct store_lease **out_lease, size_t *out_count)
{
    return store_lookup(real_of(store), keys, count, out_lease, out_count);
}

static uint8_t group_a[SLOTS][GROUP_A];
static uint8_t group_b[SLOTS][GROUP_B];

/* Not when pages are staged: then a get that is late writes into slots alone. */
static bool lies_in_a_page(const struct store_item *item)
{
    const uint8_t *base = item->spans[0].base;
    return (base >= group_a[0] && base < group_a[SLOTS]) ||
           (base >= group_b[0] && base < group_b[SLOTS]);
}

static enum tarn_status shim_register(struct store *store, void *base, size_t size)
{
    return store_register(real_of(store), base, size);
}

static void shim_unregister(struct store *store, void *base)
{
    store_unregister(real_of(store), base);
}

static enum tarn_status shim_get(struct store *store, struct store_item *items, size_t count)
{
    atomic_store(&seen[rank].is_inside, lies_in_a_page(&items[0]));
    if (script.rank == rank && script.fault == FAULT_SLOW) {
        const struct timespec time = { script.at / 1000, script.at % 1000 * 1000000L };
        (void)nanosleep(&time, NULL);
    }
    const enum tarn_status status = store_get(real_of(store), items, count);
    for (size_t i = 0; i < count; i++) {
        const struct tarn_span *last = &items[i].spans[items[i].span_count - 1];
        if (script.rank != rank || items[i].key.depth != script.at)
            continue;
        if (script.fault == FAULT_MISS)
            items[i].status = TARN_MISS;
        if (script.fault == FAULT_TOKENS)
            ((uint8_t *)last->base)[last->size_bytes - 1] ^= 1;
    }
    atomic_store(&seen[rank].is_inside, false);
    return status;
}

static bool shim_holds(struct store *store, const struct store_item *item)
{
    return store_holds(real_of(store), item);
}

static enum tarn_status shim_put(struct store *store, struct store_item *items, size_t count)
{
    return store_put(real_of(store), items, count);
}

static enum tarn_status shim_remove(struct store *store, const struct store_key *key)
{
    return store_remove(real_of(store), key);
}

static void shim_stat(struct store *store, struct store_stat *out_stat)
{
    store_stat(real_of(store), out_stat);
}

static void shim_stop(struct store *store)
{
    store_stop(real_of(store));
}

static void shim_close(struct store *store)
{
    store_close(real_of(store));
}

static const struct store_ops shim_ops = {
    .name = "shim",
    .register_memory = shim_register,
    .unregister_memory = shim_unregister,
    .intern = shim_intern,
    .exists = shim_exists,
    .lookup = shim_lookup,
    .get = shim_get,
    .holds = shim_holds,
    .put = shim_put,
    .remove = shim_remove,
    .stat = shim_stat,
    .stop = shim_stop,
    .close = shim_close,
};

/* ---- a rank ---- */

enum word { WORD_METADATA, WORD_FORWARD, WORD_VERDICT, WORD_REPORT, WORD_END };

struct message {
    uint64_t word;
    uint64_t step_number; /* FORWARD */
    uint64_t first_block; /* FORWARD: computes from here to the end */
    uint64_t size_bytes;
    uint8_t bytes[MESSAGE_MAX];
};

enum { HEAD_BYTES = offsetof(struct message, bytes) };

static struct message message; /* in */
static struct tarn_connector *connector;
static int sockets[RANKS]; /* the leader's to each; of another rank the one to the leader, at 0 */
static unsigned held[SLOTS];

static void pattern(uint64_t block, uint32_t group, int of_rank, uint8_t *bytes, size_t size_bytes)
{
    const struct tarn_digest *digest = &digests[block];
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(digest->bytes[i % 16] ^ (of_rank * 37 + (int)group * 101)) +
                   (uint8_t)(i / 16);
}

static bool block_is_right(uint64_t block)
{
    uint8_t expected[GROUP_A];
    pattern(block, 0, rank, expected, GROUP_A);
    const uint8_t *slot = group_a[BASE + block];
    if (memcmp(slot, expected, GROUP_A) != 0)
        return false;
    pattern(block, 1, rank, expected, GROUP_B);
    return memcmp(group_b[BASE + block], expected, GROUP_B) == 0;
}

static void rank_open(void)
{
    static struct shim shim = { .base = { .ops = &shim_ops } };
    static const struct tarn_kv_format format = {
        .size = sizeof(format), .element_type = "f16", .order = "kv,dim", .layer_count = 1
    };
    const struct tarn_engine_desc engine = { .size = sizeof(engine),
                                             .model_key = "ranks",
                                             .format = &format,
                                             .flags =
                                                 TARN_ENGINE_BLOCK_REUSE | TARN_ENGINE_ROLLS_BACK,
                                             .rank = (uint32_t)rank,
                                             .world_size = RANKS,
                                             .tensor_parallel_size = RANKS,
                                             .request_count_max = 8,
                                             .request_tokens_max = 1000 };
    const bool stages = script.way == WAY_STAGED || script.way == WAY_DEVICE;
    const struct tarn_connector_options options = {
        .size = sizeof(options),
        .cache_prefix = prefix,
        .lookup_deadline_ms = 10000,
        .load_deadline_ms = script.deadline_ms,
        .transfer_batch_size = 4,
        .stage_through_host = stages ? TARN_SETTING_ON : TARN_SETTING_UNSET,
        .verify_tokens = script.way == WAY_COMPARED ? TARN_SETTING_ON : TARN_SETTING_OFF
    };
    const uint64_t far = script.way == WAY_DEVICE ? FAKE_DEVICE_BIAS : 0;
    const uint64_t base_a = (uintptr_t)group_a + far;
    const struct tarn_region regions_a[] = {
        { base_a, KEY_BYTES, GROUP_A, SLOTS, NULL, 0 },
        { base_a + KEY_BYTES, KEY_BYTES, GROUP_A, SLOTS, NULL, 0 },
    };
    const struct tarn_region region_b = {
        (uintptr_t)group_b + far, GROUP_B, GROUP_B, SLOTS, NULL, 0
    };
    const struct tarn_group groups[] = { { 0, 0, NULL, 0, regions_a, 2 },
                                         { 1, 0, NULL, 0, &region_b, 1 } };
    const struct tarn_layout layout = { sizeof(layout),
                                        T,
                                        TARN_PAGES_BY_SLOT,
                                        groups,
                                        2,
                                        NULL,
                                        0,
                                        far ? fake_device_table(fake_device_create(rank)) : NULL,
                                        0 };
    CHECK(rank_pool_open(rank == script.rank ? script.lent_bytes : 0, &shim.real) == TARN_OK);
    shim.base.traits = *store_traits(shim.real);
    CHECK(connector_open_with(&options, &engine, &shim.base, &connector) == TARN_OK);
    CHECK(ops->register_layout(connector, &layout) == TARN_OK);
}

static void say(int socket, enum word word, struct tarn_bytes bytes, uint64_t step_number,
                uint64_t first_block)
{
    static struct message out;
    CHECK(bytes.size_bytes <= MESSAGE_MAX);
    out.word = word;
    out.step_number = step_number;
    out.first_block = first_block;
    out.size_bytes = bytes.size_bytes;
    if (bytes.size_bytes)
        memcpy(out.bytes, bytes.data, bytes.size_bytes);
    (void)!send(socket, &out, HEAD_BYTES + bytes.size_bytes, MSG_NOSIGNAL); /* it may be dead */
}

/* One message, if there is one. STALE: the other end is closed. */
static enum tarn_status hear(int socket)
{
    const ssize_t size_bytes = recv(socket, &message, sizeof(message), MSG_DONTWAIT);
    if (size_bytes == 0)
        return TARN_STALE;
    if (size_bytes < (ssize_t)HEAD_BYTES)
        return TARN_AGAIN;
    CHECK((uint64_t)size_bytes == HEAD_BYTES + message.size_bytes);
    return TARN_OK;
}

static struct tarn_bytes heard_bytes(void)
{
    return (struct tarn_bytes){ message.bytes, message.size_bytes };
}

static void transfers_take(void)
{
    struct tarn_transfer out[16];
    size_t count;
    do {
        CHECK(ops->transfers(connector, out, 16, &count) == TARN_OK);
        for (size_t i = 0; i < count; i++) {
            CHECK(out[i].page < SLOTS && out[i].page == BASE + out[i].block);
            if (out[i].phase == TARN_TRANSFER_STARTED) {
                held[out[i].page]++;
                continue;
            }
            CHECK(held[out[i].page]-- > 0);
            seen[rank].saved_count += out[i].kind == TARN_TRANSFER_SAVE;
            /* To the leader, retired means that no rank touches it. */
            CHECK(rank != 0 || script.fault != FAULT_SLOW || out[i].kind == TARN_TRANSFER_SAVE ||
                  !atomic_load(&seen[script.rank].is_inside));
        }
    } while (count == 16);
}

static void forward(uint64_t step_number, uint64_t first_block)
{
    for (uint64_t block = first_block; block < BLOCKS; block++) {
        CHECK(held[BASE + block] == 0); /* nobody else may touch what is computed */
        pattern(block, 0, rank, group_a[BASE + block], GROUP_A);
        pattern(block, 1, rank, group_b[BASE + block], GROUP_B);
    }
    CHECK(ops->forward_done(connector, step_number, TARN_OK, NULL) == TARN_OK);
    transfers_take();
}

static enum tarn_status verdict_take(struct tarn_bytes verdict)
{
    struct tarn_loaded loaded[8];
    size_t count;
    const enum tarn_status status = ops->verdict_apply(connector, verdict, loaded, 8, &count);
    if (status != TARN_OK)
        return status;
    CHECK(ops->verdict_apply(connector, verdict, loaded, 8, &count) == TARN_STALE);
    for (size_t i = 0; i < count; i++) {
        CHECK(!seen[rank].has_verdict && loaded[i].id == 1 && loaded[i].first_block == 0);
        seen[rank].has_verdict = true;
        seen[rank].good = loaded[i].block_count;
        for (uint64_t block = 0; block < loaded[i].block_count; block++)
            seen[rank].is_right = seen[rank].is_right && block_is_right(block);
    }
    return TARN_OK;
}

static void rank_close(enum tarn_status status)
{
    seen[rank].status = status;
    seen[rank].end_ns = clock_now_ns();
    for (uint64_t block = 0; block < BLOCKS && status == TARN_OK; block++)
        seen[rank].is_right = seen[rank].is_right && block_is_right(block);
    if (script.rank == rank && script.fault == FAULT_ENDS)
        (void)raise(SIGKILL);
    CHECK(ops->close(connector, 20000) == TARN_OK);
    _exit(0);
}

/* ---- other ranks ---- */

static void follow_metadata(void)
{
    if (script.rank == rank && script.fault == FAULT_DIES)
        (void)raise(SIGKILL);
    CHECK(ops->load_start(connector, heard_bytes()) == TARN_OK);
    CHECK(ops->load_start(connector, heard_bytes()) == TARN_STALE);
    transfers_take();
    if (script.rank == rank && script.fault == FAULT_GIVES_UP) {
        struct tarn_bytes report;
        CHECK(ops->end_ranks(connector, TARN_NO_MEMORY, &report) == TARN_OK);
        say(sockets[0], WORD_REPORT, report, 0, 0);
    }
}

static enum tarn_status follow_word(bool *out_is_over)
{
    switch (message.word) {
    case WORD_METADATA:
        follow_metadata();
        return TARN_OK;
    case WORD_FORWARD:
        forward(message.step_number, message.first_block);
        return TARN_OK;
    case WORD_VERDICT:
        return verdict_take(heard_bytes());
    default:
        *out_is_over = true;
        return TARN_OK;
    }
}

static void news_wait(int socket_count)
{
    struct pollfd news[RANKS + 1] = { { .fd = ops->poll_fd(connector), .events = POLLIN } };
    for (int i = 0; i < socket_count; i++)
        news[1 + i] = (struct pollfd){ .fd = sockets[i], .events = POLLIN };
    (void)poll(news, 1 + (nfds_t)socket_count, 10);
}

/* Obey until told to end; a closed socket alone is not believed: the deadline must do. */
static void follow(void)
{
    enum tarn_status status = TARN_OK;
    bool is_over = false;
    while (!is_over) {
        struct tarn_bytes report;
        news_wait(1);
        while (!is_over && status == TARN_OK && hear(sockets[0]) == TARN_OK)
            status = follow_word(&is_over);
        transfers_take();
        const enum tarn_status polled = ops->load_poll(connector, 0, &report);
        if (polled == TARN_OK)
            say(sockets[0], WORD_REPORT, report, 0, 0);
        else if (polled != TARN_AGAIN && status == TARN_OK)
            status = polled;
        if (status != TARN_OK)
            break;
    }
    rank_close(status);
}

/* ---- the leader ---- */

static void tell(enum word word, struct tarn_bytes bytes, uint64_t step_number,
                 uint64_t first_block)
{
    for (int i = 1; i < RANKS; i++)
        say(sockets[i], word, bytes, step_number, first_block);
}

static enum tarn_status judge(const struct tarn_bytes *report)
{
    struct tarn_bytes verdict;
    const enum tarn_status status = ops->verdict(connector, report, report ? 1 : 0, &verdict);
    if (status == TARN_AGAIN)
        return TARN_OK;
    CHECK(status == TARN_OK);
    tell(WORD_VERDICT, verdict, 0, 0);
    return verdict_take(verdict);
}

/* One pass: what came from everywhere. */
static enum tarn_status lead_pass(void)
{
    struct tarn_bytes report;
    news_wait(RANKS);
    for (int i = 1; i < RANKS; i++) {
        enum tarn_status heard;
        while ((heard = hear(sockets[i])) == TARN_OK) {
            report = heard_bytes();
            TRY(judge(&report));
            struct tarn_bytes verdict;
            const enum tarn_status again = ops->verdict(connector, &report, 1, &verdict);
            CHECK(again == TARN_STALE); /* a report is taken in once */
        }
        if (heard == TARN_STALE && !script.is_deaf) {
            struct tarn_bytes verdict;
            CHECK(ops->end_ranks(connector, TARN_IO, &verdict) == TARN_OK);
            tell(WORD_VERDICT, verdict, 0, 0);
            return verdict_take(verdict);
        }
    }
    if (ops->load_poll(connector, 0, &report) == TARN_OK)
        TRY(judge(&report));
    TRY(judge(NULL));
    transfers_take();
    return TARN_OK;
}

/* Plan a step for all, and take it in here. */
static void lead_step(uint64_t number, const struct tarn_step_request *part)
{
    const struct tarn_step step = { sizeof(step), number, part, 1, 0 };
    struct tarn_bytes metadata;
    CHECK(ops->step(connector, &step, &metadata) == TARN_OK);
    tell(WORD_METADATA, metadata, 0, 0);
    if (script.rank == 0 && script.fault == FAULT_DIES)
        (void)raise(SIGKILL);
    CHECK(ops->load_start(connector, metadata) == TARN_OK);
    transfers_take();
}

static enum tarn_status lead_load(const tarn_page *const *pages)
{
    const struct tarn_step_request part = {
        .id = 1, .pages = pages, .block_count = BLOCKS, .load = 1
    };
    lead_step(1, &part);
    if (script.does_fail) {
        struct tarn_bytes verdict;
        CHECK(ops->end_ranks(connector, TARN_NO_MEMORY, &verdict) == TARN_OK);
        tell(WORD_VERDICT, verdict, 0, 0);
        return verdict_take(verdict);
    }
    while (!seen[0].has_verdict)
        TRY(lead_pass());
    /* What a slow rank may still write into is not computed into. */
    for (bool is_held = true; is_held;) {
        is_held = false;
        for (uint64_t block = seen[0].good; block < BLOCKS; block++)
            is_held = is_held || held[BASE + block] > 0;
        if (is_held)
            TRY(lead_pass());
    }
    return TARN_OK;
}

static enum tarn_status lead_finish(void)
{
    uint32_t pending;
    uint64_t id;
    size_t count = 0;
    CHECK(ops->finished(connector, 1, &pending) == TARN_OK);
    while (pending && count == 0) {
        TRY(lead_pass());
        CHECK(ops->retired(connector, &id, 1, &count) == TARN_OK);
    }
    for (size_t i = 0; i < SLOTS; i++)
        CHECK(held[i] == 0);
    return TARN_OK;
}

static enum tarn_status lead_request(void)
{
    const struct tarn_request request = {
        .size = sizeof(request), .id = 1, .tokens = tokens, .token_count = PROMPT
    };
    tarn_page slots[BLOCKS];
    const tarn_page *const pages[] = { slots, slots };
    struct tarn_offer offer = { 0, 0 };
    for (uint64_t block = 0; block < BLOCKS; block++)
        slots[block] = BASE + block;
    const enum tarn_status looked = ops->lookup(connector, &request, 0, &offer);
    CHECK(looked == TARN_OK || looked == TARN_MISS);
    seen[0].offered = looked == TARN_OK ? offer.token_count / T : 0;
    if (seen[0].offered)
        TRY(lead_load(pages));
    const struct tarn_step_request part = { .id = 1,
                                            .pages = pages,
                                            .block_count = BLOCKS,
                                            .computed_tokens = seen[0].good * T,
                                            .scheduled_tokens = PROMPT - seen[0].good * T };
    lead_step(2, &part);
    tell(WORD_FORWARD, (struct tarn_bytes){ NULL, 0 }, 2, seen[0].good);
    forward(2, seen[0].good);
    return lead_finish();
}

static void lead(void)
{
    const enum tarn_status status = lead_request();
    if (status == TARN_OK)
        tell(WORD_END, (struct tarn_bytes){ NULL, 0 }, 0, 0);
    rank_close(status);
}

/* ---- the group ---- */

_Noreturn static void child_main(int pairs[RANKS][2])
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(CHILD_SECONDS);
    for (int i = 1; i < RANKS; i++) {
        if (rank == 0)
            sockets[i] = pairs[i][0];
        else if (i == rank)
            sockets[0] = pairs[i][1];
        if (rank != 0)
            (void)close(pairs[i][0]);
        if (i != rank)
            (void)close(pairs[i][1]);
    }
    if (rank == 0)
        sockets[0] = -1;
    rank_open();
    /* All begin together, so that no deadline runs while another still opens. */
    const struct message ready = { .word = WORD_END };
    struct pollfd news = { .fd = sockets[rank ? 0 : 1], .events = POLLIN };
    if (rank != 0) {
        CHECK(send(sockets[0], &ready, HEAD_BYTES, 0) == HEAD_BYTES);
    } else {
        for (int i = 1; i < RANKS; i++) {
            news.fd = sockets[i];
            CHECK(poll(&news, 1, CHILD_SECONDS * 1000) == 1 && hear(sockets[i]) == TARN_OK);
        }
    }
    seen[rank].is_right = true;
    if (rank == 0)
        lead();
    follow();
    _exit(1);
}

/* Run the script in four processes; false: one of them failed. */
static bool group_run(struct script what)
{
    int pairs[RANKS][2] = { { -1, -1 } };
    pid_t children[RANKS];
    bool is_good = true;
    script = what;
    memset(seen, 0, RANKS * sizeof(*seen));
    for (int i = 1; i < RANKS; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pairs[i]), 0);
    for (rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0)
            child_main(pairs);
    }
    for (int i = 1; i < RANKS; i++) {
        (void)close(pairs[i][0]);
        (void)close(pairs[i][1]);
    }
    for (int i = 0; i < RANKS; i++) {
        int result = 0;
        assert_int_equal(waitpid(children[i], &result, 0), children[i]);
        if ((what.fault == FAULT_DIES || what.fault == FAULT_ENDS) && what.rank == i)
            continue;
        if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
            print_message("# %s (status %x)\n", seen[i].error, (unsigned)result);
            is_good = false;
        }
    }
    return is_good;
}

/* All went well to the end on all ranks, and the same prefix was good on all. */
static void all_agree(uint64_t offered, uint64_t good)
{
    assert_int_equal(seen[0].offered, offered);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(seen[i].status, TARN_OK);
        assert_int_equal(seen[i].good, good);
        assert_true(seen[i].is_right);
        assert_int_equal(seen[i].has_verdict, offered > 0);
    }
}

/* Whether every page of every rank is there: that a page was retired says only that nobody uses it
 * any more. */
static bool pool_is_full(void)
{
    const char *spaces[RANKS * GROUPS];
    for (size_t i = 0; i < seen[0].space_count; i++)
        spaces[i] = seen[0].spaces[i];
    return seen[0].space_count == LENGTH_OF(spaces) &&
           rank_pool_has(spaces, LENGTH_OF(spaces), digests, BLOCKS);
}

/* Let an engine find nothing, and fill the pool. */
static bool pool_fill(struct script what)
{
    static unsigned int count;
    (void)snprintf(prefix, sizeof(prefix), "ranks%u", count++);
    what.rank = what.fault ? what.rank : -1;
    what.deadline_ms = 5000;
    if (!group_run(what) || seen[0].offered != 0)
        return false;
    for (int i = 0; i < RANKS; i++) {
        if (seen[i].saved_count != (size_t)BLOCKS * GROUPS)
            return false;
    }
    return true;
}

static int setup(void **state)
{
    (void)state;
    return pool_fill((struct script){ .fault = FAULT_NONE }) && pool_is_full() ? 0 : -1;
}

static int setup_all(void **state)
{
    struct chain chain;
    (void)state;
    seen = mmap(NULL, RANKS * sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
    for (int32_t i = 0; i < PROMPT; i++)
        tokens[i] = i * 7;
    if (seen == MAP_FAILED || chain_init(&chain, NULL, T) != TARN_OK ||
        chain_extend(&chain, tokens, PROMPT) != TARN_OK)
        return -1;
    memcpy(digests, chain.blocks, sizeof(digests));
    chain_deinit(&chain);
    return rank_pool_init() ? 0 : -1;
}

static int teardown_all(void **state)
{
    (void)state;
    (void)munmap(seen, RANKS * sizeof(*seen));
    return rank_pool_deinit() ? 0 : -1;
}

/* ---- what they do together ---- */

static void what_four_ranks_saved_four_others_load(void **state)
{
    (void)state;
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
    all_agree(BLOCKS, BLOCKS);
}

/* Take the page of a block out of the pool, on one rank and in one group alone. */
static void page_lose(int of_rank, uint32_t group, uint64_t block)
{
    assert_true(rank_pool_lose(seen[of_rank].spaces[group], &digests[block]));
}

/* Flip a bit of the page of a block in the pool's memory. */
static void page_damage(int of_rank, uint32_t group, uint64_t block)
{
    uint8_t page[GROUP_A];
    const size_t page_bytes = group ? GROUP_B : GROUP_A;
    pattern(block, group, of_rank, page, page_bytes);
    assert_true(rank_pool_damage(seen[of_rank].spaces[group], &digests[block], page, page_bytes));
}

/* A block counts only with every group on every rank: the leader asks for all of them. */
static void a_page_that_one_rank_lost_ends_the_offer_for_all(void **state)
{
    (void)state;
    page_lose(2, 1, 5);
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
    all_agree(5, 5);
    /* It was computed again, and saved by the one that lacked it. */
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
    all_agree(BLOCKS, BLOCKS);
}

static void a_page_that_one_rank_does_not_get_shortens_the_load_for_all(void **state)
{
    (void)state;
    for (int of_rank = 0; of_rank < RANKS; of_rank++) {
        assert_true(group_run((struct script){ .fault = FAULT_MISS,
                                               .rank = of_rank,
                                               .at = (uint32_t)of_rank * 3,
                                               .deadline_ms = 5000 }));
        all_agree(BLOCKS, (uint64_t)of_rank * 3);
    }
}

static void a_damaged_page_on_one_rank_shortens_the_load_for_all_and_is_replaced(void **state)
{
    (void)state;
    page_damage(3, 0, 7);
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
    all_agree(BLOCKS, 7);
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
    all_agree(BLOCKS, BLOCKS);
}

/* The others do not wait for it past its deadline; its pages wait for it. */
static void a_slow_rank_costs_a_prefix_and_nothing_is_freed_under_it(void **state)
{
    (void)state;
    for (int of_rank = 0; of_rank < RANKS; of_rank += 2) {
        assert_true(group_run((struct script){
            .fault = FAULT_SLOW, .rank = of_rank, .at = 1500, .deadline_ms = 600 }));
        assert_int_equal(seen[0].offered, BLOCKS);
        assert_true(seen[0].good < BLOCKS);
        all_agree(BLOCKS, seen[0].good);
    }
}

/* All but `except` ended with `status`, and in time. */
static void all_end(int except, enum tarn_status status, uint64_t began_ns, uint64_t in_ms)
{
    for (int i = 0; i < RANKS; i++) {
        if (i == except)
            continue;
        assert_int_equal(seen[i].status, status);
        assert_false(seen[i].has_verdict);
        print_message("# rank %d ended after %llu ms\n", i,
                      (unsigned long long)((seen[i].end_ns - began_ns) / NS_PER_MS));
        assert_true(seen[i].end_ns - began_ns < in_ms * NS_PER_MS);
    }
}

/* Five deadlines for whoever must report, and one more for whoever waits for the verdict. The rest
 * is for a slow machine: nobody may hang. */
enum { DEADLINE_MS = 200, END_MS = 6 * DEADLINE_MS + 15000 };

static void a_rank_that_dies_ends_all_within_the_deadline(void **state)
{
    (void)state;
    const uint64_t began_ns = clock_now_ns();
    assert_true(group_run((struct script){
        .fault = FAULT_DIES, .rank = 3, .deadline_ms = DEADLINE_MS, .is_deaf = true }));
    all_end(3, TARN_IO, began_ns, END_MS);
    for (int i = 0; i < 3; i++)
        assert_true(seen[i].end_ns - began_ns >= 5 * DEADLINE_MS * NS_PER_MS);
}

static void a_rank_that_is_seen_to_die_ends_all_at_once(void **state)
{
    (void)state;
    const uint64_t began_ns = clock_now_ns();
    assert_true(group_run((struct script){ .fault = FAULT_DIES, .rank = 1, .deadline_ms = 60000 }));
    all_end(1, TARN_IO, began_ns, 30000);
}

static void a_leader_that_dies_ends_all_within_the_deadline(void **state)
{
    (void)state;
    const uint64_t began_ns = clock_now_ns();
    assert_true(
        group_run((struct script){ .fault = FAULT_DIES, .rank = 0, .deadline_ms = DEADLINE_MS }));
    all_end(0, TARN_IO, began_ns, END_MS);
}

static void an_error_at_the_leader_reaches_all_as_a_verdict(void **state)
{
    (void)state;
    const uint64_t began_ns = clock_now_ns();
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 60000, .does_fail = true }));
    all_end(-1, TARN_NO_MEMORY, began_ns, 30000);
}

static void an_error_of_a_rank_reaches_all_through_the_leader(void **state)
{
    (void)state;
    const uint64_t began_ns = clock_now_ns();
    assert_true(
        group_run((struct script){ .fault = FAULT_GIVES_UP, .rank = 2, .deadline_ms = 60000 }));
    all_end(-1, TARN_NO_MEMORY, began_ns, 30000);
}

/* ---- ways that pages go ---- */

/* What one way saved another loads: the objects are the same. */
static void pages_on_a_device_are_staged_and_the_objects_are_the_same(void **state)
{
    (void)state;
    const enum way ways[] = { WAY_DEVICE, WAY_STAGED, WAY_AS_IT_IS, WAY_DEVICE };
    for (size_t i = 0; i < LENGTH_OF(ways); i++) {
        const struct script lacks = { .rank = -1, .deadline_ms = 5000, .way = ways[i] };
        const int of_rank = (int)i % RANKS;
        page_lose(of_rank, i % GROUPS, 3 + i);
        assert_true(group_run(lacks)); /* computes it again, and saves it this way */
        all_agree(3 + i, 3 + i);
    }
    assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000, .way = WAY_STAGED }));
    all_agree(BLOCKS, BLOCKS);
}

static void a_rank_that_is_slow_to_stage_costs_a_prefix(void **state)
{
    (void)state;
    assert_true(group_run((struct script){
        .fault = FAULT_SLOW, .rank = 1, .at = 1500, .deadline_ms = 600, .way = WAY_DEVICE }));
    assert_true(seen[0].good < BLOCKS);
    all_agree(BLOCKS, seen[0].good);
}

/* Such pages have names of their own, and each rank compares. */
static void tokens_are_compared_on_every_rank(void **state)
{
    (void)state;
    const struct script compares = { .rank = -1, .deadline_ms = 5000, .way = WAY_COMPARED };
    assert_true(pool_fill(compares));
    assert_true(pool_is_full());
    assert_true(group_run(compares));
    all_agree(BLOCKS, BLOCKS);
    for (int of_rank = 0; of_rank < RANKS; of_rank += 3) {
        assert_true(group_run((struct script){ .fault = FAULT_TOKENS,
                                               .rank = of_rank,
                                               .at = 4 + (uint32_t)of_rank,
                                               .deadline_ms = 5000,
                                               .way = WAY_COMPARED }));
        all_agree(BLOCKS, 4 + (uint64_t)of_rank);
    }
    page_lose(1, 1, 9);
    assert_true(group_run(compares));
    all_agree(9, 9);
    assert_true(group_run(compares));
    all_agree(BLOCKS, BLOCKS);
}

/* Of a pool in the memory of many: for some seconds the pages that lay there are still listed, and
 * cannot be read, nor new ones written there. */
static void a_rank_that_dies_takes_along_what_it_lent_and_the_pool_fills_again(void **state)
{
    (void)state;
    assert_true(
        pool_fill((struct script){ .fault = FAULT_ENDS, .rank = 3, .lent_bytes = 16 << 20 }));
    const uint64_t deadline_ns = clock_now_ns() + CHILD_SECONDS * NS_PER_S;
    do {
        assert_true(clock_now_ns() < deadline_ns);
        assert_true(group_run((struct script){ .rank = -1, .deadline_ms = 5000 }));
        print_message("# offered %llu blocks, of which %llu were loaded\n",
                      (unsigned long long)seen[0].offered, (unsigned long long)seen[0].good);
        all_agree(seen[0].offered, seen[0].good);
    } while (seen[0].good < BLOCKS);
}

#define RANKS_TEST(name) cmocka_unit_test_setup(name, setup)

/* Arguments: a pattern of the cases to run; all. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(what_four_ranks_saved_four_others_load),
        RANKS_TEST(a_page_that_one_rank_lost_ends_the_offer_for_all),
        RANKS_TEST(a_page_that_one_rank_does_not_get_shortens_the_load_for_all),
        RANKS_TEST(a_damaged_page_on_one_rank_shortens_the_load_for_all_and_is_replaced),
        RANKS_TEST(a_slow_rank_costs_a_prefix_and_nothing_is_freed_under_it),
        RANKS_TEST(pages_on_a_device_are_staged_and_the_objects_are_the_same),
        RANKS_TEST(a_rank_that_is_slow_to_stage_costs_a_prefix),
        cmocka_unit_test(tokens_are_compared_on_every_rank),
        RANKS_TEST(a_rank_that_dies_ends_all_within_the_deadline),
        RANKS_TEST(a_rank_that_is_seen_to_die_ends_all_at_once),
        RANKS_TEST(a_leader_that_dies_ends_all_within_the_deadline),
        RANKS_TEST(an_error_at_the_leader_reaches_all_as_a_verdict),
        RANKS_TEST(an_error_of_a_rank_reaches_all_through_the_leader),
    };
    /* What does not go through the store is seen above. */
    const struct CMUnitTest far_tests[] = {
        RANKS_TEST(what_four_ranks_saved_four_others_load),
        RANKS_TEST(a_page_that_one_rank_lost_ends_the_offer_for_all),
        RANKS_TEST(a_damaged_page_on_one_rank_shortens_the_load_for_all_and_is_replaced),
        RANKS_TEST(a_slow_rank_costs_a_prefix_and_nothing_is_freed_under_it),
        RANKS_TEST(pages_on_a_device_are_staged_and_the_objects_are_the_same),
        cmocka_unit_test(tokens_are_compared_on_every_rank),
        RANKS_TEST(a_rank_that_dies_ends_all_within_the_deadline),
        cmocka_unit_test(a_rank_that_dies_takes_along_what_it_lent_and_the_pool_fills_again),
    };
    ops = tarn_connector_ops(TARN_ABI_VERSION);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return rank_pool_is_far() ? cmocka_run_group_tests(far_tests, setup_all, teardown_all)
                              : cmocka_run_group_tests(tests, setup_all, teardown_all);
}
