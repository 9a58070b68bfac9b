/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.h - bodies of HTTP answers: OpenAI's objects as JSON text, and events of a stream.
 *
 * Each appends to `out`: NO_MEMORY, NO_SPACE. Texts must be UTF-8. Pure; any thread.
 */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "base/base.h"
#include "base/text.h"
#include "serve/api.h"

enum answer_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

struct answer_usage {
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt: from the device or the pool */
    uint32_t completion_tokens;
};

/* What all objects of one answer share. */
struct answer_head {
    enum api_kind kind;    /* API_COMPLETION or API_CHAT */
    const char *server_id; /* of this process alone: no two answers anywhere have one id */
    uint64_t id;           /* of the request, as the log has it */
    int64_t created_s;     /* Unix time */
    const char *model;
};

NODISCARD enum tarn_status answer_whole(const struct answer_head *head, const struct text *content,
                                        enum answer_finish finish, const struct answer_usage *usage,
                                        struct text *out);

/* Events of a stream, "data: {...}\n\n". The first one of a chat names the role. */
NODISCARD enum tarn_status answer_event_role(const struct answer_head *head, struct text *out);
NODISCARD enum tarn_status answer_event_text(const struct answer_head *head,
                                             const struct text *delta, struct text *out);
NODISCARD enum tarn_status answer_event_finish(const struct answer_head *head,
                                               enum answer_finish finish, struct text *out);
NODISCARD enum tarn_status answer_event_usage(const struct answer_head *head,
                                              const struct answer_usage *usage, struct text *out);
NODISCARD enum tarn_status answer_event_error(const struct api_error *error, struct text *out);
NODISCARD enum tarn_status answer_event_done(struct text *out); /* "data: [DONE]\n\n" */

NODISCARD enum tarn_status answer_error(const struct api_error *error, struct text *out);
NODISCARD enum tarn_status answer_model(const char *model, int64_t created_s, uint32_t ctx_tokens,
                                        struct text *out);
NODISCARD enum tarn_status answer_models(const char *model, int64_t created_s, uint32_t ctx_tokens,
                                         struct text *out);
NODISCARD enum tarn_status answer_tokens(const int32_t *tokens, uint32_t count, uint32_t ctx_tokens,
                                         struct text *out);
NODISCARD enum tarn_status answer_prompt(const struct text *prompt, struct text *out);
/* {"status": ...} and, when not NULL, {"reason": ...}. */
NODISCARD enum tarn_status answer_status(const char *status, const char *reason, struct text *out);
NODISCARD enum tarn_status answer_version(const char *version, struct text *out);

#endif
