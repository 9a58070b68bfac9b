/* SPDX-License-Identifier: Apache-2.0 */
/* abi.h - structures of tarn.h that start with their size, as programs built with another version
 * of the header fill them. */
#ifndef CONNECTOR_ABI_H
#define CONNECTOR_ABI_H

#include <string.h>

#include "base/base.h"

/*
 * Copy `in` to `out`, a structure of out_bytes. Members that an older program does not know read as
 * zero. INVALID: no size. UNSUPPORTED: a newer program has set a member that is not known here.
 */
NODISCARD static inline enum tarn_status abi_copy(void *out, size_t out_bytes, const void *in)
{
    size_t size;
    if (!in)
        return TARN_INVALID;
    memcpy(&size, in, sizeof(size));
    if (size < sizeof(size))
        return TARN_INVALID;
    for (size_t i = out_bytes; i < size; i++) {
        if (((const uint8_t *)in)[i])
            return TARN_UNSUPPORTED;
    }
    memset(out, 0, out_bytes);
    memcpy(out, in, size < out_bytes ? size : out_bytes);
    return TARN_OK;
}

#endif
