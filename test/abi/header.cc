/* SPDX-License-Identifier: Apache-2.0 */
/* tarn.h is C++11: compiled, not run. */
#include "tarn/tarn.h"

int tarn_header_is_cpp();

int tarn_header_is_cpp()
{
    return static_cast<int>(sizeof(struct tarn_connector_ops)) + TARN_OK;
}
