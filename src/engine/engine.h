/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - a GGUF model that computes over K/V pages which it does not own.
 *
 * An engine maps one model file, and turns ragged batches of tokens into logits. The caller owns
 * the pages and says, for each sequence, at which addresses its pages lie; the engine writes K and
 * V of the batch's tokens into them and attends over all of them. It keeps no state about a
 * sequence.
 *
 * Threads: open, close, forward and logits belong to one thread, the loop. The vocabulary functions
 * (tokenize, detokenize, token_piece, chat_render, token_is_end) and engine_info_of read only what
 * engine_open built: any thread may call them at any time between open and close, also during a
 * forward. A sampler belongs to one thread at a time.
 *
 * What a page holds: [layer][k|v][token][kv head][dim], contiguous, elements of the K/V type.
 * A fresh page must hold finite numbers (zeroed memory is fine); whatever else it holds is never
 * seen.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/base.h"
#include "base/text.h"

enum {
    ENGINE_NAME_BYTES_MAX = 128,
    ENGINE_MODEL_KEY_BYTES_MAX = 320,
    ENGINE_END_TOKENS_MAX = 32,
    ENGINE_PAGE_TOKENS_MAX = 1024,
    ENGINE_PIECE_BYTES_MAX = 1024, /* of one token's text; longer ones are refused at load */
    ENGINE_CHAT_BYTES_MAX = 64 << 20,
};

enum engine_kv_type { ENGINE_KV_F16, ENGINE_KV_F32 };

/* Which attention code runs. AUTO takes the best that this CPU has; naming one that it has not is
 * refused. */
enum engine_kernel {
    ENGINE_KERNEL_AUTO,
    ENGINE_KERNEL_PORTABLE,
    ENGINE_KERNEL_AVX2,
    ENGINE_KERNEL_AVX512
};

/* Asked now and then during a load, and between operations of a forward, in the thread that called
 * it: true ends it early. */
typedef bool (*engine_stop_fn)(void *context);

/* Zero means the default, everywhere but in model_path. */
struct engine_options {
    const char *model_path;    /* first part of a split file */
    const char *backend_dir;   /* of ggml's modules; default: where Tarn was built with them */
    uint32_t ctx_tokens;       /* longest sequence; default: the model's, at most 8 192 */
    uint32_t page_tokens;      /* T; default 32 */
    uint32_t batch_tokens_max; /* of one forward; default 512 */
    uint32_t sequences_max;    /* of one forward; default 16 */
    uint32_t threads; /* exactly so many; default: up to the cores, less one when there are more
                         than two, and fewer while others keep them busy (pace.h) */
    enum engine_kv_type kv_type;
    enum engine_kernel kernel;
    bool poll;        /* idle compute threads spin */
    bool weight_copy; /* f16 copies of slow quantised weights for large batches: weight-copy.h */
    engine_stop_fn should_stop; /* asked while loading; NULL: nobody ends it */
    void *stop_context;
};

/* What was loaded. Constant from open to close. */
struct engine_info {
    char name[ENGINE_NAME_BYTES_MAX];         /* general.name, or the file's basename */
    char architecture[ENGINE_NAME_BYTES_MAX]; /* general.architecture */
    char weights[ENGINE_NAME_BYTES_MAX];      /* kind of most weights, as "Q4_1" */
    char cpu[ENGINE_NAME_BYTES_MAX]; /* ggml's CPU module and our attention code, for people */
    char model_key[ENGINE_MODEL_KEY_BYTES_MAX]; /* basename-16 hex digits, see identity.h */
    uint64_t parameter_count;
    uint64_t weights_bytes; /* of tensor data in the file */
    uint64_t copy_bytes;    /* of the second copy for large batches, 0: none */
    uint64_t page_bytes;
    uint32_t layer_count;
    uint32_t head_count;
    uint32_t kv_head_count;
    uint32_t head_dim; /* elements of one head of K, and of V */
    uint32_t embedding_dim;
    uint32_t vocab_count;
    uint32_t ctx_train_tokens; /* what the model was made for */
    uint32_t ctx_tokens;
    uint32_t page_tokens;
    uint32_t batch_tokens_max;
    uint32_t sequences_max;
    uint32_t threads;
    enum engine_kv_type kv_type;
    enum engine_kernel kernel; /* never AUTO */
    uint32_t rope_dims;
    float rope_base;
    bool adds_bos; /* tokenising with add_special puts a first token */
    bool has_chat_template;
    int32_t end_tokens[ENGINE_END_TOKENS_MAX];
    uint32_t end_token_count;
};

struct engine;

/*
 * Load a model. What cannot be computed exactly is refused by name, in one line of the log:
 * INVALID (options), IO (file not there or not readable), CORRUPT (not a GGUF file, damaged, cut
 * short), UNSUPPORTED (architecture, sliding window, rotary scaling, a tensor that is missing or of
 * another shape, no backend module for this CPU), NO_MEMORY. Outcomes: AGAIN, should_stop() ended
 * it; not logged.
 */
NODISCARD enum tarn_status engine_open(const struct engine_options *options,
                                       struct engine **out_engine);
void engine_close(struct engine *engine); /* NULL is fine */

const struct engine_info *engine_info_of(const struct engine *engine);

/* What decides, with page_tokens, what a page's bytes mean; its texts are static. */
struct tarn_kv_format engine_kv_format(const struct engine *engine);

/*
 * One sequence's part of a batch: `token_count` tokens from `position` on. pages[i] covers the
 * positions [i*T, (i+1)*T); all of [0, position + token_count) must be covered, and K/V of [0,
 * position) be there. Pages that only earlier positions use are read, never written; two sequences
 * of one batch may share them. A page that this batch writes belongs to one sequence of the batch.
 */
struct engine_sequence {
    const int32_t *tokens;
    uint32_t token_count; /* at least 1 */
    uint32_t position;    /* of tokens[0] */
    void *const *pages;   /* aligned to 64 bytes */
    uint32_t page_count;
    uint32_t output_count; /* logits wanted for the last so many tokens; 0: none */
};

/* For the forwards that follow. */
void engine_set_stop(struct engine *engine, engine_stop_fn should_stop, void *context);

/*
 * Compute one batch. At most sequences_max sequences and batch_tokens_max tokens, together; an
 * empty batch, a token outside the vocabulary, or a position outside the context is INVALID and
 * changes nothing. A failure (NO_MEMORY, IO for one inside ggml) leaves the pages that the batch
 * writes undefined. So does the outcome AGAIN: engine_set_stop()'s function ended it.
 *
 * The logits of a token do not depend on the number of threads, nor on which pages hold its prefix.
 * They are bit-identical for the same batch shape; for other shapes matrix products may sum in
 * another order.
 */
NODISCARD enum tarn_status engine_forward(struct engine *engine,
                                          const struct engine_sequence *sequences, uint32_t count);

/* Logits of one output of the last forward, vocab_count numbers; outputs count in batch order, over
 * all sequences. Valid until the next forward. */
const float *engine_logits(const struct engine *engine, uint32_t output_index);

/* ---- vocabulary: any thread ---- */

struct engine_text {
    const char *chars;
    size_t length_bytes;
    bool add_special;   /* the beginning and end tokens that the model asks for */
    bool parse_special; /* text such as <|im_start|> becomes its control token */
};

/* Outcomes: NO_SPACE when there are more than `capacity` tokens; out_count then says how many
 * (`tokens` is undefined). */
NODISCARD enum tarn_status engine_tokenize(const struct engine *engine,
                                           const struct engine_text *text, int32_t *tokens,
                                           uint32_t capacity, uint32_t *out_count);

/* Append the text of the tokens, control tokens included if `special`. INVALID for a token outside
 * the vocabulary; NO_SPACE when `out` is at its maximum. */
NODISCARD enum tarn_status engine_detokenize(const struct engine *engine, const int32_t *tokens,
                                             uint32_t count, bool special, struct text *out);

/* Bytes of one token, at most ENGINE_PIECE_BYTES_MAX, not terminated. A character of several bytes
 * may be split over tokens: join pieces before looking for characters. Control tokens have no bytes
 * unless `special`. */
NODISCARD enum tarn_status engine_token_piece(const struct engine *engine, int32_t token,
                                              bool special, char *bytes, size_t *out_bytes);

/* True for tokens that end a generation. */
bool engine_token_is_end(const struct engine *engine, int32_t token);

struct engine_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* Append the chat as the model's own template renders it, with the opening of an assistant's turn
 * if asked. UNSUPPORTED: the file has no template, or one that libllama does not know. Tokenise the
 * result with parse_special, and add_special. */
NODISCARD enum tarn_status engine_chat_render(const struct engine *engine,
                                              const struct engine_message *messages, uint32_t count,
                                              bool add_assistant, struct text *out);

#endif
