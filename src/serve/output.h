/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - from the pieces of tokens to text that may be sent.
 *
 * A character may be split over tokens, and a stop string too: what could still become either is
 * held back until more is known, so that what was sent is always whole UTF-8 without any part of a
 * stop string. Bytes that are not UTF-8 become U+FFFD. Pure; one thread.
 */
#ifndef SERVE_OUTPUT_H
#define SERVE_OUTPUT_H

#include "base/base.h"
#include "base/text.h"
#include "serve/api.h"

struct output {
    const struct api_stop *stops; /* borrowed */
    uint32_t stop_count;
    struct text held;     /* whole characters that could begin a stop string */
    uint8_t character[4]; /* of a character that is not complete yet */
    uint32_t character_bytes;
    bool stopped; /* a stop string was found: nothing follows */
};

void output_init(struct output *output, const struct api_stop *stops, uint32_t stop_count);
void output_deinit(struct output *output);

/* Add the bytes of one token; append to `ready` what may be sent now. After this
 * output->stopped says whether a stop string ended the text; the string itself is not sent.
 * NO_MEMORY; NO_SPACE when `ready` is at its maximum. */
NODISCARD enum tarn_status output_push(struct output *output, const char *bytes,
                                       size_t length_bytes, struct text *ready);

/* The text is over: append what was held back. */
NODISCARD enum tarn_status output_finish(struct output *output, struct text *ready);

/* Append `bytes` to `out`, with what is not UTF-8 replaced. */
NODISCARD enum tarn_status output_sanitise(const char *bytes, size_t length_bytes,
                                           struct text *out);

#endif
