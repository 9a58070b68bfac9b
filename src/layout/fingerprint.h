/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.h - what makes pages of one length mean different things, as 64 bits.
 *
 * A digest (codec/digest.h) over tagged, length-framed fields; the fingerprint is its first 8
 * bytes, most significant first, so that a key shows the first 16 digits of it. Pure.
 */
#ifndef LAYOUT_FINGERPRINT_H
#define LAYOUT_FINGERPRINT_H

#include "base/base.h"

/* Of the elements: type, order, heads, rotary parameters, and so on. `format` is complete. INVALID:
 * element_type or order missing, no layers, a text above 256 bytes, a number that is none. */
NODISCARD enum tarn_status fingerprint_of_format(const struct tarn_kv_format *format,
                                                 uint64_t *out_fingerprint);

/* Of one group's pages: the format, the window, the layers, and what lies in which region. Where
 * regions lie, how far apart slots are and how many there are does not change a page's value and
 * does not count. The group has been checked. */
uint64_t fingerprint_of_group(const struct tarn_group *group, uint64_t format_fingerprint);

#endif
