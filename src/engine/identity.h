/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - which weights a model is, so that pages of other weights never match.
 *
 * A digest (codec/digest.h) over all bytes of all parts of the file: metadata, tensor table, tensor
 * data. Reading them takes seconds for large models, so the digest is remembered in
 * $XDG_CACHE_HOME/tarn/models (else ~/.cache/tarn/models) under everything that changes when a file
 * does: device, inode, size, mtime and ctime in nanoseconds, of every part. A file that changed in
 * the last 2 s is neither looked up nor remembered, since it might change again within one tick of
 * the clock. A cache that cannot be read or written costs time, never an error.
 */
#ifndef ENGINE_IDENTITY_H
#define ENGINE_IDENTITY_H

#include <sys/stat.h>

#include "engine/engine.h"

enum { IDENTITY_HEX_BYTES = 17 }; /* 16 digits and the terminator */

struct identity_part {
    const void *bytes; /* all of the file, mapped */
    size_t size_bytes;
    struct stat status;
};

/* should_stop (NULL: nobody) is asked before every few MiB. Outcomes: AGAIN, it ended the reading.
 */
NODISCARD enum tarn_status identity_of(const struct identity_part *parts, uint32_t count,
                                       engine_stop_fn should_stop, void *stop_context,
                                       char out_hex[IDENTITY_HEX_BYTES]);

#endif
