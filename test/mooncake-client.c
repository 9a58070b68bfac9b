/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncake-client.c - one client of a crowd on a Mooncake pool: random puts and gets of pages that
 * any client may have put, every byte compared. Usage: mooncake-client POOL SECONDS SEED MIB [KEYS]
 *
 * Lends MIB to the pool. Prints what came of it as name=value, and ends with 1 if a byte was wrong.
 * SIGTERM ends it early. Between steps it waits for a line if SECONDS is 0: "put N", "get N" (pages
 * from 0 to N), each answered with the same counts.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "os/clock.h"
#include "store/mooncake/mooncake.h"

enum { PAGE_BYTES_MIN = 1000, PAGE_BYTES_MAX = 512 << 10, BATCH = 8, HEADROOM = 64, KEYS = 1500 };

static volatile sig_atomic_t is_over;

struct counts {
    uint64_t put;
    uint64_t present;
    uint64_t full;
    uint64_t put_failed;
    uint64_t got;
    uint64_t missed;
    uint64_t failed;
    uint64_t corrupt;
    uint64_t wrong;
};

struct client {
    struct store *store;
    uint8_t *memory; /* BATCH pages, each with headroom */
    uint32_t space;
    uint32_t keys;
    uint64_t random;
    struct counts counts;
};

static void end(int signal)
{
    (void)signal;
    is_over = 1;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t page_bytes(uint32_t number)
{
    return PAGE_BYTES_MIN + mix(number + UINT64_C(99)) % (PAGE_BYTES_MAX - PAGE_BYTES_MIN);
}

static uint8_t *slot(const struct client *client, uint32_t index)
{
    return client->memory + (uint64_t)index * (PAGE_BYTES_MAX + 2 * HEADROOM) + HEADROOM;
}

static void page_fill(uint8_t *bytes, uint32_t number)
{
    const uint64_t size_bytes = page_bytes(number);
    for (uint64_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
        const uint64_t value = mix(((uint64_t)number << 32) + i);
        memcpy(bytes + i, &value, size_bytes - i < sizeof(value) ? size_bytes - i : sizeof(value));
    }
}

static bool page_is(const uint8_t *bytes, uint32_t number)
{
    const uint64_t size_bytes = page_bytes(number);
    for (uint64_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
        const uint64_t value = mix(((uint64_t)number << 32) + i);
        if (memcmp(bytes + i, &value,
                   size_bytes - i < sizeof(value) ? size_bytes - i : sizeof(value)) != 0)
            return false;
    }
    return true;
}

static void put_count(struct counts *counts, const struct store_item *item)
{
    counts->present += item->status == TARN_OK && item->was_present;
    counts->put += item->status == TARN_OK && !item->was_present;
    counts->full += item->status == TARN_NO_SPACE;
    counts->put_failed += item->status != TARN_OK && item->status != TARN_NO_SPACE;
}

static void get_count(struct counts *counts, const struct store_item *item, bool is_right)
{
    counts->got += item->status == TARN_OK;
    counts->wrong += item->status == TARN_OK && !is_right;
    counts->missed += item->status == TARN_MISS;
    counts->corrupt += item->status == TARN_CORRUPT;
    counts->failed += item->status != TARN_OK && item->status != TARN_MISS;
}

/* Put or get up to BATCH pages; with `spread` each is two spans without headroom. */
static void pages_move(struct client *client, const uint32_t *numbers, uint32_t count, bool puts,
                       bool spread)
{
    struct store_item items[BATCH];
    struct tarn_span spans[BATCH][2];
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t size_bytes = page_bytes(numbers[i]);
        const uint64_t first = spread ? size_bytes / 3 : size_bytes;
        spans[i][0] = (struct tarn_span){ slot(client, i), first };
        spans[i][1] = (struct tarn_span){ slot(client, i) + first, size_bytes - first };
        items[i] = (struct store_item){ .spans = spans[i],
                                        .span_count = spread ? 2 : 1,
                                        .has_headroom = !spread };
        items[i].key.namespace_index = client->space;
        memcpy(items[i].key.digest.bytes, &numbers[i], sizeof(numbers[i]));
        if (puts)
            page_fill(slot(client, i), numbers[i]);
        else
            memset(slot(client, i), 0xa5, size_bytes);
    }
    const enum tarn_status status =
        puts ? store_put(client->store, items, count) : store_get(client->store, items, count);
    if (status != TARN_OK)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        if (puts)
            put_count(&client->counts, &items[i]);
        else
            get_count(&client->counts, &items[i],
                      items[i].status == TARN_OK && page_is(slot(client, i), numbers[i]));
    }
}

static void counts_print(const struct counts *counts)
{
    (void)printf("put=%" PRIu64 " present=%" PRIu64 " full=%" PRIu64 " put_failed=%" PRIu64
                 " got=%" PRIu64 " missed=%" PRIu64 " failed=%" PRIu64 " corrupt=%" PRIu64
                 " wrong=%" PRIu64 "\n",
                 counts->put, counts->present, counts->full, counts->put_failed, counts->got,
                 counts->missed, counts->failed, counts->corrupt, counts->wrong);
    (void)fflush(stdout);
}

static void crowd_run(struct client *client, uint64_t seconds)
{
    const uint64_t until_ns = clock_now_ns() + seconds * NS_PER_S;
    while (!is_over && clock_now_ns() < until_ns) {
        uint32_t numbers[BATCH];
        const uint64_t choice = mix(client->random++);
        const uint32_t first = (uint32_t)(choice % client->keys);
        const uint32_t count = 1 + (uint32_t)(choice >> 40) % BATCH;
        for (uint32_t i = 0; i < count; i++)
            numbers[i] = (first + i) % client->keys;
        pages_move(client, numbers, count, (choice >> 50) % 2, (choice >> 51) % 2);
    }
    counts_print(&client->counts);
}

static void orders_run(struct client *client)
{
    char word[8];
    unsigned int pages = 0;
    while (scanf("%7s %u", word, &pages) == 2) { /* NOLINT(cert-err34-c) */
        client->counts = (struct counts){ .put = 0 };
        for (uint32_t i = 0; i < pages; i += BATCH) {
            uint32_t numbers[BATCH];
            const uint32_t count = pages - i < BATCH ? pages - i : BATCH;
            for (uint32_t j = 0; j < count; j++)
                numbers[j] = i + j;
            pages_move(client, numbers, count, strcmp(word, "put") == 0, true);
        }
        counts_print(&client->counts);
    }
}

int main(int argc, char **argv)
{
    struct mooncake_options options;
    struct client client = { .keys = KEYS };
    const size_t memory_bytes = (size_t)BATCH * (PAGE_BYTES_MAX + 2 * HEADROOM);
    if (argc < 5 || mooncake_options_read(argv[1], &options) != TARN_OK)
        return 2;
    options.global_segment_bytes = strtoull(argv[4], NULL, 10) << 20;
    options.local_buffer_bytes = UINT64_C(16) << 20;
    client.random = strtoull(argv[3], NULL, 10) << 40;
    if (argc > 5)
        client.keys = (uint32_t)strtoul(argv[5], NULL, 10);
    (void)signal(SIGTERM, end);
    client.memory =
        mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (client.memory == MAP_FAILED || mooncake_open(&options, &client.store) != TARN_OK ||
        store_register(client.store, client.memory, memory_bytes) != TARN_OK ||
        store_namespace(client.store, "tarn/crowd", &client.space) != TARN_OK)
        return 2;
    (void)printf("ready\n");
    (void)fflush(stdout);
    const uint64_t seconds = strtoull(argv[2], NULL, 10);
    if (seconds > 0)
        crowd_run(&client, seconds);
    else
        orders_run(&client);
    store_unregister(client.store, client.memory);
    store_close(client.store);
    return client.counts.wrong == 0 ? 0 : 1;
}
