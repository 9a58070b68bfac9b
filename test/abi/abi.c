/* SPDX-License-Identifier: Apache-2.0 */
/* A program in plain C99 that links libtarn.so alone: every symbol of its map is there and works as
 * tarn.h says. Prints TAP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tarn/tarn.h"

static int failed;
static int number;

static void ok(int good, const char *what)
{
    failed += !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what);
}

static void chains(void)
{
    struct tarn_chain *chain = NULL;
    struct tarn_digest digest;
    int32_t tokens[100];
    for (int32_t i = 0; i < 100; i++)
        tokens[i] = i;
    ok(tarn_chain_create(NULL, 32, &chain) == TARN_OK, "a chain in the common scope");
    ok(tarn_chain_digests(chain) == NULL && tarn_chain_block_count(chain) == 0, "it is empty");
    ok(tarn_chain_extend(chain, tokens, 100) == TARN_OK && tarn_chain_block_count(chain) == 3,
       "100 tokens are 3 blocks of 32");
    /* docs/key-scheme.md */
    static const unsigned char golden[] = { 0xa8, 0x27, 0x0d, 0x68, 0x39, 0x29, 0xe2, 0x70 };
    ok(memcmp(tarn_chain_digests(chain)[0].bytes, golden, sizeof(golden)) == 0,
       "the first digest is the golden one");
    ok(tarn_chain_extend(chain, tokens, 99) == TARN_INVALID, "a shrinking token list is refused");
    tarn_chain_destroy(chain);
    tarn_chain_destroy(NULL);
    ok(tarn_chain_create(NULL, 0, &chain) == TARN_INVALID, "a block of no tokens is refused");
    struct tarn_scope scope = { 0 };
    ok(tarn_chain_create(&scope, 32, &chain) == TARN_INVALID, "a structure without size as well");
    ok(tarn_digest_of("abc", 3, &digest) == TARN_OK && digest.bytes[0] == 0xcf, "digest of bytes");
    struct tarn_kv_format format = { sizeof(format), "f16", NULL, "kv,dim", 1, 0, 0, 0, 0, 0.0, 0.0,
                                     NULL,           0,     NULL, 0 };
    uint64_t a = 0;
    uint64_t b = 0;
    ok(tarn_kv_format_fingerprint(&format, &a) == TARN_OK, "fingerprint of a format");
    format.element_type = "f32";
    ok(tarn_kv_format_fingerprint(&format, &b) == TARN_OK && a != b,
       "another one for another type");
}

static struct tarn_namespace namespace_of(uint64_t page_bytes)
{
    struct tarn_namespace desc = { 0 };
    desc.size = sizeof(desc);
    desc.model = "abi-test";
    desc.world_size = 1;
    desc.tokens_per_block = 32;
    desc.bytes_per_page = page_bytes;
    return desc;
}

static void child_is_refused(struct tarn_pool *pool, uint32_t index)
{
    struct tarn_digest digest = { { 1 } };
    struct tarn_lease *lease;
    size_t count;
    int result = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(tarn_pool_lookup(pool, index, &digest, 1, &lease, &count) == TARN_INVALID ? 7 : 1);
    waitpid(child, &result, 0);
    ok(WIFEXITED(result) && WEXITSTATUS(result) == 7, "after fork() a child's handle is dead");
}

static void pools(const char *path)
{
    struct tarn_pool_options options = { sizeof(options), path, 64 << 20, 0 };
    struct tarn_pool *pool = NULL;
    struct tarn_namespace desc = namespace_of(10000);
    struct tarn_digest digests[2] = { { { 1 } }, { { 2 } } };
    struct tarn_lease *lease = NULL;
    uint32_t index = 0;
    size_t count = 0;
    static unsigned char in[10000];
    static unsigned char out[10000];
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 7);
    const struct tarn_span whole[] = { { in, sizeof(in) } };
    const struct tarn_span parts[] = { { out, 1 }, { out + 1, 7000 }, { out + 7001, 2999 } };
    ok(tarn_pool_open(&options, &pool) == TARN_OK, "a pool is made");
    ok(tarn_pool_namespace(pool, &desc, &index) == TARN_OK, "a namespace");
    desc.model = NULL;
    ok(tarn_pool_namespace(pool, &desc, &index) == TARN_INVALID, "none without a model");
    ok(tarn_pool_lookup(pool, index, digests, 2, &lease, &count) == TARN_MISS, "nothing yet");
    ok(tarn_pool_get(pool, index, &digests[0], parts, 3) == TARN_MISS, "nor to get");
    ok(tarn_pool_put(pool, index, &digests[0], 0, whole, 1) == TARN_OK, "put");
    ok(tarn_pool_put(pool, index, &digests[0], 0, whole, 1) == TARN_OK, "put again");
    ok(tarn_pool_lookup(pool, index, digests, 2, &lease, &count) == TARN_OK && count == 1,
       "lookup finds the first of two");
    ok(tarn_pool_get(pool, index, &digests[0], parts, 3) == TARN_OK &&
           memcmp(in, out, sizeof(in)) == 0,
       "get brings the same bytes, in other spans");
    ok(tarn_pool_get(pool, index, &digests[0], parts, 2) == TARN_MISS, "another length is a miss");
    ok(tarn_pool_get(pool, index, &digests[0], NULL, 0) == TARN_INVALID, "no spans are refused");
    tarn_lease_release(lease);
    tarn_lease_release(NULL);
    child_is_refused(pool, index);
    tarn_pool_close(pool);
    tarn_pool_close(NULL);
    options.flags = 64;
    ok(tarn_pool_open(&options, &pool) == TARN_UNSUPPORTED, "an unknown flag is refused");
}

static void lines_count(void *context, int level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)context;
}

static void process(void)
{
    size_t needed = 0;
    int lines = 0;
    ok(strcmp(tarn_version(), TARN_TEST_VERSION) == 0, "the version is the build's");
    ok(strcmp(tarn_strerror(TARN_MISS), "not in the pool") == 0, "a text for a status");
    ok(strcmp(tarn_strerror((enum tarn_status)99), "unknown status") == 0, "and for no status");
    ok(tarn_metrics(NULL, 0, &needed) == TARN_NO_SPACE && needed > 1000, "metrics need room");
    char *text = malloc(needed + 100);
    ok(text && tarn_metrics(text, needed + 100, &needed) == TARN_OK && strlen(text) + 1 == needed &&
           strstr(text, "# TYPE tarn_pool_lookups_total counter"),
       "metrics are Prometheus text");
    free(text);
    const struct tarn_connector_ops *ops = tarn_connector_ops(TARN_ABI_VERSION);
    ok(ops && ops->size == sizeof(*ops) && ops->abi_version == TARN_ABI_VERSION, "the table");
    ok(tarn_connector_ops(TARN_ABI_VERSION + 1) == NULL, "another version is not spoken");
    struct tarn_engine_desc engine = { 0 };
    struct tarn_connector *connector;
    engine.size = sizeof(engine);
    tarn_log_to(lines_count, &lines);
    ok(ops->open(NULL, &engine, &connector) == TARN_INVALID && lines == 1,
       "a refusal is one line in the user's log");
    tarn_log_to(NULL, NULL);
}

int main(void)
{
    char folder[] = "/dev/shm/tarn-abi-XXXXXX";
    char path[64];
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/pool", folder);
    chains();
    pools(path);
    process();
    unlink(path);
    ok(rmdir(folder) == 0, "the pool is one file");
    printf("1..%d\n", number);
    return failed != 0;
}
