/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/attend.h"
#include "engine/engine.h"
#include "engine/file-vocabulary.h"

enum { KEY_BYTES_MAX = 160, TENSOR_ALIGNMENT_BYTES = 32 };

static const struct architecture architectures[] = {
    { .name = "llama", .rope_mode = 0, .rope_type = "normal" },
};

/* ---- what a file must have, and must not have ---- */

enum tensor_dim {
    DIM_NONE,
    DIM_EMBEDDING,
    DIM_HEADS, /* all query heads together */
    DIM_KV_HEADS,
    DIM_FEED,
    DIM_VOCAB
};

enum tensor_need { NEEDED, OPTIONAL };

struct tensor_rule {
    const char *name; /* of one in a layer: what follows "blk.N." */
    size_t field;     /* offset in struct model or struct model_layer */
    enum tensor_dim dims[2];
    enum tensor_need need;
};

static const struct tensor_rule model_rules[] = {
    { "token_embd.weight",
      offsetof(struct model, token_embedding),
      { DIM_EMBEDDING, DIM_VOCAB },
      NEEDED },
    { "output_norm.weight", offsetof(struct model, output_norm), { DIM_EMBEDDING }, NEEDED },
    { "output.weight", offsetof(struct model, output), { DIM_EMBEDDING, DIM_VOCAB }, OPTIONAL },
};

#define LAYER(field) offsetof(struct model_layer, field)
static const struct tensor_rule layer_rules[] = {
    { "attn_norm.weight", LAYER(attention_norm), { DIM_EMBEDDING }, NEEDED },
    { "attn_q.weight", LAYER(query), { DIM_EMBEDDING, DIM_HEADS }, NEEDED },
    { "attn_k.weight", LAYER(key), { DIM_EMBEDDING, DIM_KV_HEADS }, NEEDED },
    { "attn_v.weight", LAYER(value), { DIM_EMBEDDING, DIM_KV_HEADS }, NEEDED },
    { "attn_output.weight", LAYER(attention_out), { DIM_HEADS, DIM_EMBEDDING }, NEEDED },
    { "ffn_norm.weight", LAYER(feed_norm), { DIM_EMBEDDING }, NEEDED },
    { "ffn_gate.weight", LAYER(feed_gate), { DIM_EMBEDDING, DIM_FEED }, NEEDED },
    { "ffn_up.weight", LAYER(feed_up), { DIM_EMBEDDING, DIM_FEED }, NEEDED },
    { "ffn_down.weight", LAYER(feed_down), { DIM_FEED, DIM_EMBEDDING }, NEEDED },
};
#undef LAYER

/* Keys, behind "ARCHITECTURE.", that ask for something which is not computed unless they have one
 * of two harmless values. */
static const struct {
    const char *key;
    float harmless[2];
    const char *what;
} refused_keys[] = {
    { "attention.sliding_window", { 0, 0 }, "sliding-window attention" },
    { "rope.scaling.factor", { 0, 1 }, "rotary scaling" },
    { "rope.scale_linear", { 0, 1 }, "rotary scaling" },
    { "rope.scaling.attn_factor", { 0, 1 }, "rotary scaling" },
    { "expert_count", { 0, 0 }, "mixtures of experts" },
    { "attention.causal", { 1, 1 }, "attention to later tokens" },
    { "attention.scale", { 0, 0 }, "a scale of attention of its own" },
    { "attention.clamp_kqv", { 0, 0 }, "clamped attention" },
    { "attention.max_alibi_bias", { 0, 0 }, "attention with linear biases" },
    { "logit_scale", { 0, 1 }, "scaled logits" },
    { "residual_scale", { 0, 1 }, "scaled residuals" },
    { "embedding_scale", { 0, 1 }, "scaled embeddings" },
};

/* ---- files ---- */

static void part_close(struct model_part *part)
{
    if (part->buffer)
        ggml_backend_buffer_free(part->buffer);
    if (part->bytes)
        (void)munmap(part->bytes, part->size_bytes);
    file_header_deinit(&part->header);
    mem_free(part->tensor_used);
    mem_free(part->path);
    *part = (struct model_part){ 0 };
}

static enum tarn_status part_map(struct model_part *part, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        log_error("%s: %s", part->path, strerrordesc_np(errno));
        return TARN_IO;
    }
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        log_error("%s: not a GGUF file, but %s", part->path,
                  S_ISREG(status.st_mode) ? "empty" : "no regular file");
        return TARN_CORRUPT;
    }
    const size_t size_bytes = (size_t)status.st_size;
    void *bytes = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        log_error("%s: cannot map %zu bytes: %s", part->path, size_bytes, strerrordesc_np(errno));
        return errno == ENOMEM ? TARN_NO_MEMORY : TARN_IO;
    }
    part->bytes = bytes;
    part->size_bytes = size_bytes;
    part->status = status;
    (void)madvise(bytes, size_bytes, MADV_WILLNEED);
    return TARN_OK;
}

static enum tarn_status part_open(struct model_part *part, const char *path)
{
    char reason[FILE_REASON_BYTES_MAX] = "";
    const size_t path_bytes = strlen(path) + 1;

    part->path = mem_alloc(path_bytes, 1);
    if (!part->path)
        return TARN_NO_MEMORY;
    memcpy(part->path, path, path_bytes);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        log_error("%s: %s", path, strerrordesc_np(errno));
        return TARN_IO;
    }
    enum tarn_status status = part_map(part, fd);
    (void)close(fd);
    TRY(status);
    status =
        file_header_read(part->bytes, part->size_bytes, part->size_bytes, &part->header, reason);
    if (status == TARN_CORRUPT || status == TARN_UNSUPPORTED)
        log_error("%s: %s", path, reason);
    TRY(status);
    part->tensor_used = mem_alloc(part->header.tensor_count + 1, sizeof(bool));
    part->buffer = ggml_backend_cpu_buffer_from_ptr(part->bytes, part->size_bytes);
    if (!part->tensor_used || !part->buffer)
        return TARN_NO_MEMORY;
    ggml_backend_buffer_set_usage(part->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return TARN_OK;
}

/* Path of part `index` when `path` is the first: NAME-00001-of-0000N.gguf. */
static enum tarn_status split_path(const char *path, uint32_t index, uint32_t count, char *out,
                                   size_t out_bytes)
{
    char suffix[32];
    const int suffix_bytes = snprintf(suffix, sizeof(suffix), "-%05u-of-%05u.gguf", 1U, count);
    const size_t path_bytes = strlen(path);
    if (suffix_bytes < 0 || path_bytes <= (size_t)suffix_bytes ||
        strcmp(path + path_bytes - (size_t)suffix_bytes, suffix) != 0) {
        log_error("%s: it is one of %u parts; name the first, which ends in %s", path, count,
                  suffix);
        return TARN_INVALID;
    }
    const int bytes = snprintf(out, out_bytes, "%.*s-%05u-of-%05u.gguf",
                               (int)(path_bytes - (size_t)suffix_bytes), path, index + 1, count);
    return bytes > 0 && (size_t)bytes < out_bytes ? TARN_OK : TARN_INVALID;
}

static enum tarn_status parts_open(struct model *model, const char *path)
{
    struct model_part first = { 0 };
    const enum tarn_status status = part_open(&first, path);
    uint32_t count = 1;

    if (status == TARN_OK && file_header_u32(&first.header, "split.count", &count) == TARN_CORRUPT)
        count = 0;
    if (count == 0)
        count = 1;
    model->parts = mem_alloc(count <= MODEL_PARTS_MAX ? count : 1, sizeof(*model->parts));
    if (!model->parts || status != TARN_OK) {
        part_close(&first);
        return status == TARN_OK ? TARN_NO_MEMORY : status;
    }
    model->parts[0] = first;
    model->part_count = 1;
    if (count > MODEL_PARTS_MAX) {
        log_error("%s: it says it has %u parts; at most %d are read", path, count, MODEL_PARTS_MAX);
        return TARN_UNSUPPORTED;
    }
    for (uint32_t i = 1; i < count; i++) {
        char name[4096];
        TRY(split_path(path, i, count, name, sizeof(name)));
        model->part_count = i + 1;
        TRY(part_open(&model->parts[i], name));
    }
    return TARN_OK;
}

/* ---- metadata ---- */

static const char *model_path(const struct model *model)
{
    return model->parts[0].path;
}

static const char *model_key(const struct model *model, const char *key, char text[KEY_BYTES_MAX])
{
    (void)snprintf(text, KEY_BYTES_MAX, "%s.%s", model->architecture->name, key);
    return text;
}

/* A number that must be there, at least 1, unless there is a default (above 0). */
static enum tarn_status read_count(const struct model *model, const char *key, uint32_t otherwise,
                                   uint32_t *out_count)
{
    char text[KEY_BYTES_MAX];
    uint32_t count = otherwise;
    const enum tarn_status status =
        file_header_u32(&model->parts[0].header, model_key(model, key, text), &count);
    if (status == TARN_CORRUPT || count == 0) {
        log_error("%s: key '%s' %s", model_path(model), text,
                  status == TARN_MISS ? "is missing" : "is no number that can be used");
        return status == TARN_MISS ? TARN_CORRUPT : TARN_UNSUPPORTED;
    }
    *out_count = count;
    return TARN_OK;
}

static enum tarn_status read_float(const struct model *model, const char *key, float otherwise,
                                   float *out_value)
{
    char text[KEY_BYTES_MAX];
    float value = otherwise;
    const enum tarn_status status =
        file_header_f32(&model->parts[0].header, model_key(model, key, text), &value);
    if (status == TARN_CORRUPT || !(value > 0)) {
        log_error("%s: key '%s' is missing or no number above zero", model_path(model), text);
        return TARN_CORRUPT;
    }
    *out_value = value;
    return TARN_OK;
}

static enum tarn_status read_architecture(struct model *model)
{
    struct file_string name;
    if (file_header_string(&model->parts[0].header, "general.architecture", &name) != TARN_OK) {
        log_error("%s: key 'general.architecture' is missing", model_path(model));
        return TARN_CORRUPT;
    }
    for (size_t i = 0; i < LENGTH_OF(architectures); i++) {
        if (file_string_equal(name, architectures[i].name)) {
            model->architecture = &architectures[i];
            return TARN_OK;
        }
    }
    log_error("%s: architecture '%.*s' is not supported; supported: %s", model_path(model),
              (int)(name.length_bytes < 64 ? name.length_bytes : 64), name.chars,
              architectures[0].name);
    return TARN_UNSUPPORTED;
}

static enum tarn_status check_refused_keys(const struct model *model)
{
    const struct file_header *header = &model->parts[0].header;
    char text[KEY_BYTES_MAX];
    struct file_string scaling;

    if (file_header_string(header, model_key(model, "rope.scaling.type", text), &scaling) ==
            TARN_OK &&
        !file_string_equal(scaling, "none")) {
        log_error("%s: key '%s': rotary scaling is not supported", model_path(model), text);
        return TARN_UNSUPPORTED;
    }
    for (size_t i = 0; i < LENGTH_OF(refused_keys); i++) {
        float value = 0;
        uint32_t count = 0;
        (void)model_key(model, refused_keys[i].key, text);
        enum tarn_status status = file_header_f32(header, text, &value);
        if (status == TARN_CORRUPT) {
            status = file_header_u32(header, text, &count);
            value = (float)count;
        }
        const bool harmless =
            status == TARN_OK && !(value < refused_keys[i].harmless[0]) &&
            (!(value > refused_keys[i].harmless[0]) ||
             (!(value < refused_keys[i].harmless[1]) && !(value > refused_keys[i].harmless[1])));
        if (status == TARN_MISS || harmless)
            continue;
        log_error("%s: key '%s': %s is not supported", model_path(model), text,
                  refused_keys[i].what);
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

static enum tarn_status check_heads(const struct model *model, uint32_t value_dim,
                                    uint32_t rope_dims)
{
    const char *wrong = NULL;
    if (model->head_count % model->kv_head_count != 0)
        wrong = "query heads are no multiple of K/V heads";
    else if (model->head_count / model->kv_head_count > ATTEND_GROUP_MAX)
        wrong = "too many query heads share a K/V head";
    else if (value_dim != model->head_dim || rope_dims != model->head_dim)
        wrong = "heads whose K, V and rotary parts differ in size";
    else if (model->head_dim > ATTEND_DIM_MAX || model->head_dim % 2 != 0)
        wrong = "heads of this size";
    else if (model->layer_count > MODEL_LAYERS_MAX)
        wrong = "so many layers";
    if (!wrong)
        return TARN_OK;
    log_error("%s: not supported: %s (%u layers, %u heads of %u on %u)", model_path(model), wrong,
              model->layer_count, model->head_count, model->head_dim, model->kv_head_count);
    return TARN_UNSUPPORTED;
}

static enum tarn_status read_metadata(struct model *model)
{
    uint32_t value_dim = 0;
    uint32_t rope_dims = 0;

    TRY(read_architecture(model));
    TRY(check_refused_keys(model));
    TRY(read_count(model, "block_count", 0, &model->layer_count));
    TRY(read_count(model, "context_length", 0, &model->ctx_train_tokens));
    TRY(read_count(model, "embedding_length", 0, &model->embedding_dim));
    TRY(read_count(model, "feed_forward_length", 0, &model->feed_dim));
    TRY(read_count(model, "attention.head_count", 0, &model->head_count));
    TRY(read_count(model, "attention.head_count_kv", model->head_count, &model->kv_head_count));
    const uint32_t even = model->embedding_dim / model->head_count;
    TRY(read_count(model, "attention.key_length", even, &model->head_dim));
    TRY(read_count(model, "attention.value_length", even, &value_dim));
    TRY(read_count(model, "rope.dimension_count", model->head_dim, &rope_dims));
    TRY(read_float(model, "attention.layer_norm_rms_epsilon", 0, &model->norm_epsilon));
    TRY(read_float(model, "rope.freq_base", 10000.0F, &model->rope_base));
    return check_heads(model, value_dim, rope_dims);
}

/* ---- tensors ---- */

static uint64_t dim_of(const struct model *model, enum tensor_dim dim)
{
    switch (dim) {
    case DIM_EMBEDDING:
        return model->embedding_dim;
    case DIM_HEADS:
        return (uint64_t)model->head_count * model->head_dim;
    case DIM_KV_HEADS:
        return (uint64_t)model->kv_head_count * model->head_dim;
    case DIM_FEED:
        return model->feed_dim;
    case DIM_VOCAB:
        return model->vocab_count;
    case DIM_NONE:
    default:
        return 1;
    }
}

static const struct file_tensor *tensor_find(const struct model *model, const char *name,
                                             struct model_part **out_part)
{
    for (uint32_t i = 0; i < model->part_count; i++) {
        const struct file_tensor *found = file_header_tensor(&model->parts[i].header, name);
        if (found) {
            *out_part = &model->parts[i];
            return found;
        }
    }
    return NULL;
}

static enum tarn_status tensor_check(const struct model *model, const struct tensor_rule *rule,
                                     const struct file_tensor *found, const char *name)
{
    const uint64_t dims[FILE_DIMS_MAX] = { dim_of(model, rule->dims[0]),
                                           dim_of(model, rule->dims[1]), 1, 1 };
    const enum ggml_type type = (enum ggml_type)found->type;
    const bool matrix = rule->dims[1] != DIM_NONE;

    if (memcmp(found->dims, dims, sizeof(dims)) != 0) {
        log_error("%s: tensor '%s' is %llu x %llu, it should be %llu x %llu", model_path(model),
                  name, (unsigned long long)found->dims[0], (unsigned long long)found->dims[1],
                  (unsigned long long)dims[0], (unsigned long long)dims[1]);
        return TARN_UNSUPPORTED;
    }
    const bool floats = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    if (matrix ? !floats && !ggml_is_quantized(type) : type != GGML_TYPE_F32) {
        log_error("%s: tensor '%s' has weights of type %s, which is not supported there",
                  model_path(model), name, ggml_type_name(type));
        return TARN_UNSUPPORTED;
    }
    if (found->offset_bytes % TENSOR_ALIGNMENT_BYTES != 0) {
        log_error("%s: tensor '%s' does not lie at a multiple of %d bytes", model_path(model), name,
                  TENSOR_ALIGNMENT_BYTES);
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

static enum tarn_status tensor_open(struct model *model, const struct tensor_rule *rule,
                                    const char *name, void *fields)
{
    struct model_part *part = NULL;
    const struct file_tensor *found = tensor_find(model, name, &part);
    if (!found) {
        if (rule->need == OPTIONAL)
            return TARN_OK;
        log_error("%s: tensor '%s' is missing", model_path(model), name);
        return TARN_UNSUPPORTED;
    }
    TRY(tensor_check(model, rule, found, name));
    struct ggml_tensor *tensor =
        ggml_new_tensor_2d(model->context, (enum ggml_type)found->type, (int64_t)found->dims[0],
                           (int64_t)found->dims[1]);
    (void)ggml_set_name(tensor, name);
    if (ggml_backend_tensor_alloc(part->buffer, tensor,
                                  (char *)part->bytes + found->offset_bytes) != GGML_STATUS_SUCCESS)
        return TARN_NO_MEMORY;
    struct ggml_tensor **slot = (struct ggml_tensor **)(void *)((char *)fields + rule->field);
    *slot = tensor;
    part->tensor_used[found - part->header.tensors] = true;
    model->parameter_count += found->element_count;
    model->weights_bytes += found->size_bytes;
    return TARN_OK;
}

static enum tarn_status check_unused(const struct model *model)
{
    for (uint32_t p = 0; p < model->part_count; p++) {
        const struct model_part *part = &model->parts[p];
        for (size_t i = 0; i < part->header.tensor_count; i++) {
            const struct file_string name = part->header.tensors[i].name;
            if (part->tensor_used[i])
                continue;
            const bool rotary = file_string_equal(name, "rope_freqs.weight");
            log_error("%s: tensor '%.*s' is not supported%s", part->path,
                      (int)(name.length_bytes < 64 ? name.length_bytes : 64), name.chars,
                      rotary ? ": it asks for rotary scaling" : "");
            return TARN_UNSUPPORTED;
        }
    }
    return TARN_OK;
}

static enum tarn_status tensors_open(struct model *model)
{
    const size_t tensor_count_max =
        LENGTH_OF(model_rules) + LENGTH_OF(layer_rules) * model->layer_count;
    const struct ggml_init_params params = { .mem_size = tensor_count_max * ggml_tensor_overhead(),
                                             .no_alloc = true };
    struct model_part *part = NULL;
    const struct file_tensor *embedding = tensor_find(model, model_rules[0].name, &part);

    if (embedding && embedding->dims[1] <= INT32_MAX)
        model->vocab_count = (uint32_t)embedding->dims[1];
    model->context = ggml_init(params);
    model->layers = mem_alloc(model->layer_count, sizeof(*model->layers));
    if (!model->context || !model->layers)
        return TARN_NO_MEMORY;
    for (size_t i = 0; i < LENGTH_OF(model_rules); i++)
        TRY(tensor_open(model, &model_rules[i], model_rules[i].name, model));
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        for (size_t i = 0; i < LENGTH_OF(layer_rules); i++) {
            char name[GGML_MAX_NAME];
            (void)snprintf(name, sizeof(name), "blk.%u.%s", layer, layer_rules[i].name);
            TRY(tensor_open(model, &layer_rules[i], name, &model->layers[layer]));
        }
    }
    if (!model->output)
        model->output = model->token_embedding;
    return check_unused(model);
}

static enum tarn_status check_tokenizer(const struct model *model)
{
    const struct file_header *header = &model->parts[0].header;
    char reason[FILE_REASON_BYTES_MAX] = "";
    const enum tarn_status status = file_vocabulary_check(header, ENGINE_PIECE_BYTES_MAX, reason);
    if (status != TARN_OK) {
        log_error("%s: %s", model_path(model), reason);
        return status;
    }
    const uint64_t token_count = file_header_find(header, "tokenizer.ggml.tokens")->count;
    if (token_count != model->vocab_count) {
        log_error("%s: %llu tokens, but embeddings for %u", model_path(model),
                  (unsigned long long)token_count, model->vocab_count);
        return TARN_UNSUPPORTED;
    }
    return TARN_OK;
}

enum tarn_status model_open(const char *path, struct model *out_model)
{
    CLEANUP(model_close)
    struct model model = { 0 };
    TRY(parts_open(&model, path));
    TRY(read_metadata(&model));
    TRY(tensors_open(&model));
    TRY(check_tokenizer(&model));
    *out_model = model;
    model = (struct model){ 0 };
    return TARN_OK;
}

void model_close(struct model *model)
{
    if (model->context)
        ggml_free(model->context);
    for (uint32_t i = 0; i < model->part_count; i++)
        part_close(&model->parts[i]);
    mem_free(model->parts);
    mem_free(model->layers);
    *model = (struct model){ 0 };
}

enum ggml_type model_weights_type(const struct model *model)
{
    uint64_t bytes[GGML_TYPE_COUNT] = { 0 };
    size_t most = 0;
    for (uint32_t p = 0; p < model->part_count; p++) {
        const struct file_header *header = &model->parts[p].header;
        for (size_t i = 0; i < header->tensor_count; i++)
            bytes[header->tensors[i].type] += header->tensors[i].size_bytes;
    }
    for (size_t type = 0; type < GGML_TYPE_COUNT; type++) {
        if (bytes[type] > bytes[most])
            most = type;
    }
    return (enum ggml_type)most;
}
