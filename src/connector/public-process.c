/* SPDX-License-Identifier: Apache-2.0 */
/* What tarn.h offers of the process as a whole: version, log, metrics. */
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "obs/metric.h"

enum { METRICS_BYTES_MAX = 1 << 20 };

static _Atomic(tarn_log_sink) user_sink;
static _Atomic(void *) user_context;

const char *tarn_version(void)
{
    return TARN_VERSION;
}

static void sink_call(void *context, enum log_level level, const char *line)
{
    (void)context;
    const tarn_log_sink sink = atomic_load(&user_sink);
    if (sink)
        sink(atomic_load(&user_context), (int)level, line);
}

void tarn_log_to(tarn_log_sink sink, void *context)
{
    atomic_store(&user_context, context);
    atomic_store(&user_sink, sink);
    log_set_sink(sink ? sink_call : NULL, NULL);
}

enum tarn_status tarn_metrics(char *buffer, size_t size_bytes, size_t *out_size_bytes)
{
    struct text text;
    text_init(&text, METRICS_BYTES_MAX);
    enum tarn_status status = metrics_print(&text);
    if (status == TARN_OK) {
        *out_size_bytes = text.length_bytes + 1;
        status = text.length_bytes < size_bytes ? TARN_OK : TARN_NO_SPACE;
    }
    if (status == TARN_OK)
        memcpy(buffer, text_chars(&text), text.length_bytes + 1);
    text_deinit(&text);
    return status;
}
