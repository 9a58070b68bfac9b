/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are opened, which are refused and with what words; what identifies them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gguf.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/identity.h"
#include "lib/random-model.h"

enum { FILE_BYTES_MAX = 4 << 20, SAID_BYTES = 4096 };

static char folder[64];
static char path[128];
static char said[SAID_BYTES]; /* the lines of errors since it was emptied */

static void listen(void *context, enum log_level level, const char *line)
{
    (void)context;
    const size_t used = strlen(said);
    if (level == LOG_ERROR)
        (void)snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

static const char *backend_dir(void)
{
    return getenv("TARN_BACKEND_DIR"); /* NOLINT(concurrency-mt-unsafe) */
}

static enum tarn_status try_open(const char *model_path, struct engine **out_engine)
{
    const struct engine_options options = { .model_path = model_path,
                                            .backend_dir = backend_dir(),
                                            .ctx_tokens = 128,
                                            .batch_tokens_max = 32,
                                            .sequences_max = 2,
                                            .threads = 1,
                                            .kernel = ENGINE_KERNEL_PORTABLE };
    said[0] = '\0';
    return engine_open(&options, out_engine);
}

/* The file is refused with this status, in one line that has these words. */
static void check_refused(enum tarn_status status, const char *words)
{
    struct engine *engine = NULL;
    const enum tarn_status got = try_open(path, &engine);
    if (got != status || !strstr(said, words)) {
        print_error("got %d '%s', wanted %d '%s'\n", (int)got, said, (int)status, words);
        fail();
    }
    assert_null(engine);
    const char *end = strchr(said, '\n');
    assert_non_null(end);
    assert_int_equal(end[1], '\0');
}

static size_t file_read(uint8_t *bytes)
{
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    const size_t size_bytes = fread(bytes, 1, FILE_BYTES_MAX, file);
    assert_int_equal(fclose(file), 0);
    assert_true(size_bytes > 0 && size_bytes < FILE_BYTES_MAX);
    return size_bytes;
}

static void file_write(const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

static void model_write(enum random_model_flaw flaw)
{
    struct random_model model = random_model_tiny();
    model.flaw = flaw;
    assert_true(random_model_write(&model, path));
}

static void models_that_are_not_supported_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        enum random_model_flaw flaw;
        const char *words;
    } flaws[] = {
        { RANDOM_MODEL_ROPE_SCALING, "rotary scaling is not supported" },
        { RANDOM_MODEL_ROPE_FREQS, "tensor 'rope_freqs.weight' is not supported" },
        { RANDOM_MODEL_SLIDING_WINDOW, "sliding-window attention is not supported" },
        { RANDOM_MODEL_BIAS, "attn_output.bias' is not supported" },
        { RANDOM_MODEL_ARCHITECTURE, "architecture 'gemma3' is not supported; supported: llama" },
        { RANDOM_MODEL_MISSING_TENSOR, "ffn_down.weight' is missing" },
        { RANDOM_MODEL_WRONG_SHAPE, "attn_k.weight' is " },
    };
    assert_int_equal(LENGTH_OF(flaws), RANDOM_MODEL_FLAW_COUNT - 1);
    for (size_t i = 0; i < LENGTH_OF(flaws); i++) {
        model_write(flaws[i].flaw);
        check_refused(TARN_UNSUPPORTED, flaws[i].words);
    }
}

static void files_that_are_no_models_are_refused(void **state)
{
    (void)state;
    uint8_t noise[4096];

    (void)unlink(path);
    check_refused(TARN_IO, "No such file");
    file_write("", 0);
    check_refused(TARN_CORRUPT, "empty");
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 131 + (i >> 5));
    file_write(noise, sizeof(noise));
    check_refused(TARN_CORRUPT, "not a GGUF file");
    file_write("GG", 2);
    check_refused(TARN_CORRUPT, "not a GGUF file");
    (void)unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    check_refused(TARN_CORRUPT, "no regular file");
    assert_int_equal(rmdir(path), 0);
}

static void a_file_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    uint8_t *bytes = mem_alloc(1, FILE_BYTES_MAX);
    struct engine *engine = NULL;

    assert_non_null(bytes);
    model_write(RANDOM_MODEL_SOUND);
    const size_t size_bytes = file_read(bytes);
    for (size_t cut = 4; cut < size_bytes; cut += cut < 4096 ? 97 : size_bytes / 23) {
        file_write(bytes, cut);
        assert_int_equal(try_open(path, &engine), TARN_CORRUPT);
        assert_true(said[0] != '\0');
    }
    file_write(bytes, size_bytes - 1);
    check_refused(TARN_CORRUPT, "cut short");
    file_write(bytes, size_bytes);
    assert_int_equal(try_open(path, &engine), TARN_OK);
    engine_close(engine);
    mem_free(bytes);
}

/* One byte of the header changed, at random: it is refused or it opens, and nothing crashes. */
static void a_damaged_header_never_crashes(void **state)
{
    (void)state;
    uint8_t *bytes = mem_alloc(1, FILE_BYTES_MAX);
    const char *many = getenv("TARN_TEST_LONG"); /* NOLINT(concurrency-mt-unsafe) */
    const uint32_t rounds = many ? 1500 : 150;
    uint64_t random = 4711;
    uint32_t opened = 0;

    assert_non_null(bytes);
    model_write(RANDOM_MODEL_SOUND);
    const size_t size_bytes = file_read(bytes);
    for (uint32_t round = 0; round < rounds; round++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t at = (size_t)(random >> 33) % (round % 2 ? 2000 : 24000);
        const uint8_t before = bytes[at];
        struct engine *engine = NULL;
        bytes[at] ^= (uint8_t)(1U << (random >> 61));
        file_write(bytes, size_bytes);
        if (try_open(path, &engine) == TARN_OK) {
            opened++;
            engine_close(engine);
        } else {
            assert_true(said[0] != '\0');
        }
        bytes[at] = before;
    }
    print_message("# %u of %u damaged files opened\n", opened, rounds);
    mem_free(bytes);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    struct engine *engine = NULL;
    model_write(RANDOM_MODEL_SOUND);
    struct engine_options options = { .model_path = path, .backend_dir = backend_dir() };
    options.page_tokens = ENGINE_PAGE_TOKENS_MAX + 1;
    assert_int_equal(engine_open(&options, &engine), TARN_INVALID);
    options.page_tokens = 0;
    options.threads = 100000;
    assert_int_equal(engine_open(&options, &engine), TARN_INVALID);
    options.threads = 1;
    options.model_path = "";
    assert_int_equal(engine_open(&options, &engine), TARN_INVALID);
    options.model_path = NULL;
    assert_int_equal(engine_open(&options, &engine), TARN_INVALID);
}

/* Says yes when it was asked so often. */
static bool is_enough(void *context)
{
    uint32_t *left = context;
    return (*left)-- == 0;
}

static void a_load_can_be_ended_wherever_it_asks(void **state)
{
    (void)state;
    struct engine *engine = NULL;
    uint32_t stops = 0;
    model_write(RANDOM_MODEL_SOUND);
    for (enum tarn_status status = TARN_AGAIN; status != TARN_OK; stops++) {
        uint32_t left = stops;
        const struct engine_options options = { .model_path = path,
                                                .backend_dir = backend_dir(),
                                                .threads = 1,
                                                .should_stop = is_enough,
                                                .stop_context = &left };
        said[0] = '\0';
        status = engine_open(&options, &engine);
        assert_true(status == TARN_OK ? engine != NULL : engine == NULL);
        assert_true(status == TARN_OK || status == TARN_AGAIN);
        assert_string_equal(said, "");
    }
    engine_close(engine);
    assert_in_range(stops, 5, 100);
}

static void what_was_loaded_is_told(void **state)
{
    (void)state;
    struct engine *engine = NULL;
    const struct random_model model = random_model_tiny();

    model_write(RANDOM_MODEL_SOUND);
    assert_int_equal(try_open(path, &engine), TARN_OK);
    const struct engine_info *info = engine_info_of(engine);
    assert_string_equal(info->architecture, "llama");
    assert_string_equal(info->weights, "f32");
    assert_int_equal(info->layer_count, model.layer_count);
    assert_int_equal(info->kv_head_count, model.kv_head_count);
    assert_int_equal(info->page_bytes,
                     2 * 2 * 32 * 2 * 16 * 2); /* layers, K and V, T, heads, dim */
    assert_int_equal(info->kernel, ENGINE_KERNEL_PORTABLE);
    assert_true(info->end_token_count >= 1);
    const struct tarn_kv_format format = engine_kv_format(engine);
    assert_string_equal(format.element_type, "f16");
    assert_string_equal(format.order, "layer,kv,token,head,dim");
    assert_int_equal(format.head_count, model.kv_head_count);
    assert_int_equal(format.window_tokens, 0);
    engine_close(engine);
}

/* ---- split files ---- */

/* Tensors [first, last) of the model into one of two parts. */
static void part_write(const char *to, struct gguf_context *from, struct ggml_context *tensors,
                       int part)
{
    struct gguf_context *out = gguf_init_empty();
    const int64_t count = gguf_get_n_tensors(from);
    const int64_t middle = count / 2;
    if (part == 0)
        gguf_set_kv(out, from);
    gguf_set_val_u16(out, "split.no", (uint16_t)part);
    gguf_set_val_u16(out, "split.count", 2);
    gguf_set_val_i32(out, "split.tensors.count", (int32_t)count);
    for (int64_t i = part ? middle : 0; i < (part ? count : middle); i++)
        gguf_add_tensor(out, ggml_get_tensor(tensors, gguf_get_tensor_name(from, i)));
    assert_true(gguf_write_to_file(out, to, false));
    gguf_free(out);
}

static float first_logit(struct engine *engine)
{
    static const int32_t tokens[] = { 5, 300, 17 };
    void *page = mem_alloc(1, engine_info_of(engine)->page_bytes);
    assert_non_null(page);
    const struct engine_sequence sequence = {
        .tokens = tokens, .token_count = 3, .pages = &page, .page_count = 1, .output_count = 1
    };
    assert_int_equal(engine_forward(engine, &sequence, 1), TARN_OK);
    const float logit = engine_logits(engine, 0)[3];
    mem_free(page);
    return logit;
}

static void a_file_in_parts_is_one_model(void **state)
{
    (void)state;
    struct ggml_context *tensors = NULL;
    const struct gguf_init_params params = { .ctx = &tensors };
    struct engine *engine = NULL;
    char first[160];
    char second[160];

    model_write(RANDOM_MODEL_SOUND);
    assert_int_equal(try_open(path, &engine), TARN_OK);
    const float whole = first_logit(engine);
    engine_close(engine);
    struct gguf_context *from = gguf_init_from_file(path, params);
    assert_non_null(from);
    (void)snprintf(first, sizeof(first), "%s/split-00001-of-00002.gguf", folder);
    (void)snprintf(second, sizeof(second), "%s/split-00002-of-00002.gguf", folder);
    part_write(first, from, tensors, 0);
    part_write(second, from, tensors, 1);
    gguf_free(from);
    ggml_free(tensors);

    assert_int_equal(try_open(first, &engine), TARN_OK);
    const float parts = first_logit(engine);
    assert_memory_equal(&whole, &parts, sizeof(whole));
    engine_close(engine);
    engine = NULL;
    assert_int_equal(try_open(second, &engine), TARN_INVALID); /* names the first */
    assert_non_null(strstr(said, "-00001-of-00002.gguf"));
    assert_int_equal(unlink(second), 0);
    assert_int_equal(try_open(first, &engine), TARN_IO);
    assert_non_null(strstr(said, "00002-of-00002.gguf: No such file"));
    assert_int_equal(unlink(first), 0);
}

/* ---- identity ---- */

static struct identity_part part_of(const char *bytes, uint64_t inode, long seconds)
{
    struct identity_part part = { .bytes = bytes, .size_bytes = strlen(bytes) };
    part.status.st_ino = inode;
    part.status.st_size = (off_t)part.size_bytes;
    part.status.st_mtim.tv_sec = seconds;
    part.status.st_ctim.tv_sec = seconds;
    return part;
}

static void identify(const struct identity_part *parts, uint32_t count,
                     char out_hex[IDENTITY_HEX_BYTES])
{
    assert_int_equal(identity_of(parts, count, NULL, NULL, out_hex), TARN_OK);
}

static void weights_decide_the_model_key_and_nothing_else(void **state)
{
    (void)state;
    char a[IDENTITY_HEX_BYTES];
    char b[IDENTITY_HEX_BYTES];
    const long now = (long)time(NULL);
    const struct identity_part one = part_of("weights", 1, now);
    const struct identity_part same = part_of("weights", 2, now);
    const struct identity_part other = part_of("weightz", 3, now);
    const struct identity_part halves[] = { part_of("weig", 4, now), part_of("hts", 5, now) };

    identify(&one, 1, a);
    assert_int_equal(strlen(a), 16);
    identify(&same, 1, b);
    assert_string_equal(a, b);
    identify(&other, 1, b);
    assert_string_not_equal(a, b);
    identify(halves, 2, b);
    assert_string_not_equal(a, b);
}

/* The cache is seen at work by lying to it: other bytes under the same status. */
static void a_settled_file_is_read_once_and_one_just_changed_every_time(void **state)
{
    (void)state;
    char a[IDENTITY_HEX_BYTES];
    char b[IDENTITY_HEX_BYTES];
    const long now = (long)time(NULL);
    const struct identity_part old = part_of("weights", 11, now - 100);
    const struct identity_part lie = part_of("weightz", 11, now - 100);
    const struct identity_part fresh = part_of("weights", 12, now);
    const struct identity_part changed = part_of("weightz", 12, now);
    struct identity_part touched = lie;
    touched.status.st_mtim.tv_nsec = 1;

    identify(&old, 1, a);
    identify(&lie, 1, b);
    assert_string_equal(a, b);
    identify(&touched, 1, b);
    assert_string_not_equal(a, b);
    identify(&fresh, 1, a);
    identify(&changed, 1, b);
    assert_string_not_equal(a, b);
}

static void a_model_has_one_key_by_every_path(void **state)
{
    (void)state;
    struct engine *engine = NULL;
    char key[ENGINE_MODEL_KEY_BYTES_MAX];
    char link_path[160];

    model_write(RANDOM_MODEL_SOUND);
    assert_int_equal(try_open(path, &engine), TARN_OK);
    (void)snprintf(key, sizeof(key), "%s", engine_info_of(engine)->model_key);
    engine_close(engine);
    assert_int_equal(strncmp(key, "model.gguf-", 11), 0);
    assert_int_equal(strlen(key), 11 + 16);
    (void)snprintf(link_path, sizeof(link_path), "%s/link.gguf", folder);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(try_open(link_path, &engine), TARN_OK);
    assert_string_equal(engine_info_of(engine)->model_key, key);
    engine_close(engine);
    assert_int_equal(unlink(link_path), 0);
}

static int group_setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/tarn-test-model-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/model.gguf", folder);
    log_set_sink(listen, NULL);
    return setenv("XDG_CACHE_HOME", folder, 1); /* NOLINT(concurrency-mt-unsafe) */
}

static int group_teardown(void **state)
{
    (void)state;
    char command[160];
    log_set_sink(NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a path of ours */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_are_not_supported_are_refused_by_name),
        cmocka_unit_test(files_that_are_no_models_are_refused),
        cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
        cmocka_unit_test(a_damaged_header_never_crashes),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(a_load_can_be_ended_wherever_it_asks),
        cmocka_unit_test(what_was_loaded_is_told),
        cmocka_unit_test(a_file_in_parts_is_one_model),
        cmocka_unit_test(weights_decide_the_model_key_and_nothing_else),
        cmocka_unit_test(a_settled_file_is_read_once_and_one_just_changed_every_time),
        cmocka_unit_test(a_model_has_one_key_by_every_path),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
