/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-engine.c - the functions of engine.h and sampler.h without a model, for tests of the server.
 *
 * Its tokens are bytes and four control tokens. A page holds, for each position, the token and a
 * hash of all tokens up to it, spread over the page; a forward checks the pages of the whole
 * prefix, so that a page that holds anything else fails the pass. A prompt with "echo:TEXT|" is
 * answered with TEXT, any other with letters that depend on every token before, without end.
 * "fail-forward" in a prompt makes its forward pass fail. In the environment, TARN_FAKE_TOKEN_US:
 * microseconds a token takes; TARN_FAKE_PAGE_BYTES: the least size of a page;
 * TARN_FAKE_LOAD_UNTIL: loading takes until there is a file of this name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/sampler.h"

enum { TOKEN_END = 257, TOKEN_IM_START = 258, TOKEN_IM_END = 259, VOCAB_COUNT = 260 };

struct fake_cell {
    int32_t token;
    uint32_t hash; /* of the tokens up to here */
};

struct engine {
    struct engine_info info;
    uint64_t token_us;
    int32_t *history; /* ctx_tokens places */
    float *logits;    /* VOCAB_COUNT for each output */
    engine_stop_fn should_stop;
    void *stop_context;
};

static uint64_t environment_number(const char *name)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe) */
    return text ? strtoull(text, NULL, 10) : 0;
}

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

static void info_fill(struct engine_info *info, const struct engine_options *options)
{
    (void)snprintf(info->name, sizeof(info->name), "fake");
    (void)snprintf(info->architecture, sizeof(info->architecture), "fake");
    (void)snprintf(info->weights, sizeof(info->weights), "none");
    (void)snprintf(info->cpu, sizeof(info->cpu), "none");
    (void)snprintf(info->model_key, sizeof(info->model_key), "fake-0123456789abcdef");
    info->page_tokens = or_default(options->page_tokens, 32);
    info->page_bytes = info->page_tokens * sizeof(struct fake_cell);
    if (info->page_bytes < environment_number("TARN_FAKE_PAGE_BYTES"))
        info->page_bytes = environment_number("TARN_FAKE_PAGE_BYTES");
    info->page_bytes = (info->page_bytes + 63) / 64 * 64;
    info->layer_count = 1;
    info->head_count = 1;
    info->kv_head_count = 1;
    info->head_dim = 2;
    info->vocab_count = VOCAB_COUNT;
    info->ctx_train_tokens = 8192;
    info->ctx_tokens = or_default(options->ctx_tokens, 8192);
    info->batch_tokens_max = or_default(options->batch_tokens_max, 512);
    info->sequences_max = or_default(options->sequences_max, 16);
    info->threads = 1;
    info->kernel = ENGINE_KERNEL_PORTABLE;
    info->has_chat_template = true;
    info->end_tokens[0] = TOKEN_END;
    info->end_tokens[1] = TOKEN_IM_END;
    info->end_token_count = 2;
}

/* Outcomes: AGAIN (stopped). */
static enum tarn_status load_wait(const struct engine_options *options)
{
    const struct timespec moment = { .tv_nsec = 1000000 };
    const char *path = getenv("TARN_FAKE_LOAD_UNTIL"); /* NOLINT(concurrency-mt-unsafe) */
    while (path && path[0] && access(path, F_OK) != 0) {
        if (options->should_stop && options->should_stop(options->stop_context))
            return TARN_AGAIN;
        (void)nanosleep(&moment, NULL);
    }
    return TARN_OK;
}

enum tarn_status engine_open(const struct engine_options *options, struct engine **out_engine)
{
    TRY(load_wait(options));
    struct engine *engine = mem_alloc(1, sizeof(*engine));
    if (!engine)
        return TARN_NO_MEMORY;
    info_fill(&engine->info, options);
    engine->token_us = environment_number("TARN_FAKE_TOKEN_US");
    engine->history = mem_alloc(engine->info.ctx_tokens, sizeof(*engine->history));
    engine->logits =
        mem_alloc((size_t)engine->info.sequences_max * VOCAB_COUNT, sizeof(*engine->logits));
    if (!engine->history || !engine->logits) {
        engine_close(engine);
        return TARN_NO_MEMORY;
    }
    *out_engine = engine;
    return TARN_OK;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    mem_free(engine->history);
    mem_free(engine->logits);
    mem_free(engine);
}

const struct engine_info *engine_info_of(const struct engine *engine)
{
    return &engine->info;
}

struct tarn_kv_format engine_kv_format(const struct engine *engine)
{
    return (struct tarn_kv_format){ .size = sizeof(struct tarn_kv_format),
                                    .element_type = "f16",
                                    .order = "token",
                                    .layer_count = engine->info.layer_count,
                                    .head_count = engine->info.kv_head_count,
                                    .key_head_size = engine->info.head_dim,
                                    .value_head_size = engine->info.head_dim };
}

static struct fake_cell *cell_at(const struct engine *engine,
                                 const struct engine_sequence *sequence, uint32_t position)
{
    const uint32_t page_tokens = engine->info.page_tokens;
    const uint64_t cells = engine->info.page_bytes / page_tokens / sizeof(struct fake_cell);
    struct fake_cell *page = sequence->pages[position / page_tokens];
    return page + position % page_tokens * cells;
}

static uint32_t hash_step(uint32_t hash, int32_t token)
{
    return (hash ^ (uint32_t)token) * 2654435761U + 12345U;
}

/* Write the sequence's tokens into its pages; CORRUPT when the pages before do not hold what they
 * should. Leaves the whole history in engine->history. */
static enum tarn_status sequence_write(struct engine *engine,
                                       const struct engine_sequence *sequence)
{
    uint32_t hash = 0;
    for (uint32_t position = 0; position < sequence->position; position++) {
        const struct fake_cell *cell = cell_at(engine, sequence, position);
        hash = hash_step(hash, cell->token);
        if (cell->hash != hash) {
            log_error("fake engine: the page of position %u does not hold its prefix", position);
            return TARN_CORRUPT;
        }
        engine->history[position] = cell->token;
    }
    for (uint32_t i = 0; i < sequence->token_count; i++) {
        hash = hash_step(hash, sequence->tokens[i]);
        *cell_at(engine, sequence, sequence->position + i) =
            (struct fake_cell){ .token = sequence->tokens[i], .hash = hash };
        engine->history[sequence->position + i] = sequence->tokens[i];
    }
    return TARN_OK;
}

/* The place after the last `word` that ends at or before `count`, 0: there is none. */
static uint32_t word_end(const int32_t *history, uint32_t count, const char *word)
{
    const uint32_t length = (uint32_t)strlen(word);
    for (uint32_t end = count; end >= length; end--) {
        uint32_t i = 0;
        while (i < length && history[end - length + i] == (uint8_t)word[i])
            i++;
        if (i == length)
            return end;
    }
    return 0;
}

static int32_t next_token(const struct engine *engine, uint32_t count, uint32_t hash)
{
    const int32_t *history = engine->history;
    uint32_t from = word_end(history, count, "echo:");
    if (from == 0)
        return 'a' + (int32_t)(hash >> 8) % 26;
    uint32_t to = from;
    while (to < count && history[to] != '|')
        to++;
    uint32_t answer = to + 1;
    for (uint32_t i = to; i < count; i++)
        if (history[i] == TOKEN_IM_START)
            answer = i + 1 + (uint32_t)strlen("assistant\n");
    const uint32_t said = count > answer ? count - answer : 0;
    return said < to - from ? history[from + said] : TOKEN_END;
}

void engine_set_stop(struct engine *engine, engine_stop_fn should_stop, void *context)
{
    engine->should_stop = should_stop;
    engine->stop_context = context;
}

/* Take the time that the tokens take. Outcomes: AGAIN (stopped). */
static enum tarn_status tokens_wait(const struct engine *engine, uint32_t token_count)
{
    const struct timespec time = { .tv_sec = (time_t)(engine->token_us / 1000000),
                                   .tv_nsec = (long)(engine->token_us % 1000000 * 1000) };
    for (uint32_t i = 0; i < token_count && engine->token_us > 0; i++) {
        if (engine->should_stop && engine->should_stop(engine->stop_context))
            return TARN_AGAIN;
        (void)nanosleep(&time, NULL);
    }
    return TARN_OK;
}

enum tarn_status engine_forward(struct engine *engine, const struct engine_sequence *sequences,
                                uint32_t count)
{
    uint32_t token_count = 0;
    uint32_t output = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t end = sequences[i].position + sequences[i].token_count;
        ASSERT(end <= engine->info.ctx_tokens && sequences[i].output_count <= 1);
        ASSERT(sequences[i].page_count * engine->info.page_tokens >= end);
        TRY(sequence_write(engine, &sequences[i]));
        if (word_end(engine->history, end, "fail-forward") > 0)
            return TARN_IO;
        token_count += sequences[i].token_count;
        if (sequences[i].output_count == 0)
            continue;
        float *logits = engine->logits + (size_t)output++ * VOCAB_COUNT;
        const uint32_t hash = cell_at(engine, &sequences[i], end - 1)->hash;
        memset(logits, 0, VOCAB_COUNT * sizeof(*logits));
        logits[next_token(engine, end, hash)] = 10.0F;
    }
    ASSERT(token_count <= engine->info.batch_tokens_max && count <= engine->info.sequences_max);
    return tokens_wait(engine, token_count);
}

const float *engine_logits(const struct engine *engine, uint32_t output_index)
{
    return engine->logits + (size_t)output_index * VOCAB_COUNT;
}

static const struct {
    const char *chars;
    int32_t token;
} controls[] = {
    { "<|end|>", TOKEN_END },
    { "<|im_start|>", TOKEN_IM_START },
    { "<|im_end|>", TOKEN_IM_END },
};

/* The control token that begins here, else the byte. */
static int32_t token_read(const struct engine_text *text, size_t *at)
{
    for (size_t i = 0; text->parse_special && i < LENGTH_OF(controls); i++) {
        const size_t length_bytes = strlen(controls[i].chars);
        if (text->length_bytes - *at >= length_bytes &&
            memcmp(text->chars + *at, controls[i].chars, length_bytes) == 0) {
            *at += length_bytes;
            return controls[i].token;
        }
    }
    return (uint8_t)text->chars[(*at)++];
}

enum tarn_status engine_tokenize(const struct engine *engine, const struct engine_text *text,
                                 int32_t *tokens, uint32_t capacity, uint32_t *out_count)
{
    uint32_t count = 0;
    (void)engine;
    for (size_t at = 0; at < text->length_bytes; count++) {
        const int32_t token = token_read(text, &at);
        if (count < capacity)
            tokens[count] = token;
    }
    *out_count = count;
    return count <= capacity ? TARN_OK : TARN_NO_SPACE;
}

enum tarn_status engine_token_piece(const struct engine *engine, int32_t token, bool special,
                                    char *bytes, size_t *out_bytes)
{
    (void)engine;
    if (token < 0 || token >= VOCAB_COUNT)
        return TARN_INVALID;
    *out_bytes = 0;
    if (token < 256) {
        bytes[0] = (char)token;
        *out_bytes = 1;
        return TARN_OK;
    }
    for (size_t i = 0; special && i < LENGTH_OF(controls); i++) {
        if (controls[i].token == token) {
            *out_bytes = strlen(controls[i].chars);
            memcpy(bytes, controls[i].chars, *out_bytes);
        }
    }
    return TARN_OK;
}

enum tarn_status engine_detokenize(const struct engine *engine, const int32_t *tokens,
                                   uint32_t count, bool special, struct text *out)
{
    for (uint32_t i = 0; i < count; i++) {
        char piece[ENGINE_PIECE_BYTES_MAX];
        size_t piece_bytes = 0;
        TRY(engine_token_piece(engine, tokens[i], special, piece, &piece_bytes));
        TRY(text_append_bytes(out, piece, piece_bytes));
    }
    return TARN_OK;
}

bool engine_token_is_end(const struct engine *engine, int32_t token)
{
    (void)engine;
    return token == TOKEN_END || token == TOKEN_IM_END;
}

enum tarn_status engine_chat_render(const struct engine *engine,
                                    const struct engine_message *messages, uint32_t count,
                                    bool add_assistant, struct text *out)
{
    (void)engine;
    for (uint32_t i = 0; i < count; i++)
        TRY(text_append(out, "<|im_start|>%s\n%s<|im_end|>\n", messages[i].role,
                        messages[i].content));
    return add_assistant ? text_append(out, "<|im_start|>assistant\n") : TARN_OK;
}

struct sampler {
    struct sampler_params params;
    uint32_t state;
};

enum tarn_status sampler_create(const struct engine *engine, const struct sampler_params *params,
                                struct sampler **out_sampler)
{
    struct sampler *sampler = mem_alloc(1, sizeof(*sampler));
    (void)engine;
    if (!sampler)
        return TARN_NO_MEMORY;
    *sampler = (struct sampler){ .params = *params, .state = params->seed };
    *out_sampler = sampler;
    return TARN_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    mem_free(sampler);
}

/* The likeliest; with a temperature, now and then a letter drawn from the seed instead. */
int32_t sampler_sample(struct sampler *sampler, const float *logits)
{
    int32_t best = 0;
    for (int32_t token = 1; token < VOCAB_COUNT; token++)
        if (logits[token] > logits[best])
            best = token;
    sampler->state = sampler->state * 1664525U + 1013904223U;
    if (sampler->params.temperature > 0.0F && best >= 'a' && best <= 'z')
        return 'a' + (int32_t)((sampler->state >> 16) % 26);
    return best;
}
