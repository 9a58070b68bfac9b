/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - numbers, sizes, times and booleans as people write them.
 *
 * Everything is strict: what is not understood whole is refused, and the reason says what to write
 * instead. Pure; any thread.
 */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "base/base.h"

enum { VALUE_REASON_BYTES = 160 };

/* Why a value was refused, as a clause without full stop: "is not a number". */
struct value_reason {
    char chars[VALUE_REASON_BYTES];
};

/* Each: INVALID with *out_reason set (it alone) when the text is not such a value. */

/* Decimal digits only. */
NODISCARD enum tarn_status value_count(const char *text, uint64_t *out_count,
                                       struct value_reason *out_reason);

/* Digits and one of B, KiB, MiB, GiB, TiB; a bare number is bytes. KB, MB, GB and TB are refused:
 * programs disagree about what they mean. */
NODISCARD enum tarn_status value_size(const char *text, uint64_t *out_bytes,
                                      struct value_reason *out_reason);

/* Digits and ms or s; a bare number is refused. */
NODISCARD enum tarn_status value_time(const char *text, uint64_t *out_ms,
                                      struct value_reason *out_reason);

/* A decimal fraction above 0 and at most 1, as "0.05", in millionths; at most six places. */
NODISCARD enum tarn_status value_ratio(const char *text, uint64_t *out_millionths,
                                       struct value_reason *out_reason);

/* 1/0, true/false, yes/no, on/off. */
NODISCARD enum tarn_status value_bool(const char *text, bool *out_value,
                                      struct value_reason *out_reason);

/* The place of `text` in `choices` ("f16|f32"), from 0. */
NODISCARD enum tarn_status value_choice(const char *text, const char *choices, uint64_t *out_index,
                                        struct value_reason *out_reason);

/* Where a text has a secret: what stands before the @ of an address, as in redis://me:word@host.
 * *out_start is its first byte; 0: none, and the text may be shown. */
size_t value_secret(const char *text, size_t *out_start);

/* Bytes for people, "1.50 GiB", into `out`; whole units without decimals, "64 MiB". */
void value_print_size(uint64_t bytes, char *out, size_t out_bytes);

#endif
