/* SPDX-License-Identifier: Apache-2.0 */
/* Exits 0 if this libllama can be used: it loads, and its ggml has a CPU device. */
#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>

int main(void)
{
    gguf_free(gguf_init_empty());
    ggml_backend_load_all();
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) ? 0 : 1;
}
