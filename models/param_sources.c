/* param_sources.c - the table of parameters against a model file's table of contents. */
#include "models/param_sources.h"

#include "kernels/blocks.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    SHAPE_BYTES = 96
};

/* "[320, 32]" */
static const char *shape_text(int rank, const int64_t *shape, char out[SHAPE_BYTES])
{
    size_t used = (size_t)snprintf(out, SHAPE_BYTES, "[");
    for (int i = 0; i < rank; i++) {
        used += (size_t)snprintf(out + used, SHAPE_BYTES - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    }
    snprintf(out + used, SHAPE_BYTES - used, "]");
    return out;
}

/* Tensors that files carry and that a text needs not: buffers of old versions, a head that is the
 * embedding, eyes. */
static bool is_ignored(const struct tern_model_config *config,
                       enum tern_naming naming,
                       const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    static const char *const starts[] = {"vision_tower.", "multi_modal_projector."};
    static const char *const gguf[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                       "rope_factors_short.weight"};
    size_t length = strlen(name);
    if (naming == TERN_NAMING_GGUF) {
        for (size_t i = 0; i < sizeof gguf / sizeof gguf[0]; i++) {
            if (strcmp(name, gguf[i]) == 0) {
                return true;
            }
        }
        return false;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(name + length - end, ends[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (config->family == TERN_FAMILY_GEMMA3 &&
            strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return config->tied_embeddings && strcmp(name, "lm_head.weight") == 0;
}

/* Hugging Face's base models go without the first part of the name, models with more than a text
 * part have one before it. */
static const struct tern_stored_tensor *find_hf(const struct tern_tensor_file *file,
                                                const struct tern_param *param)
{
    const struct tern_stored_tensor *tensor = tern_tensor_file_find(file, param->name);
    char longer[TERN_PARAM_NAME_BYTES + 16];
    if (tensor != NULL) {
        return tensor;
    }
    snprintf(longer, sizeof longer, "language_model.%s", param->name);
    tensor = tern_tensor_file_find(file, longer);
    bool has_first =
        strncmp(param->name, "model.", 6) == 0 || strncmp(param->name, "transformer.", 12) == 0;
    return tensor == NULL && has_first ? tern_tensor_file_find(file, strchr(param->name, '.') + 1)
                                       : tensor;
}

static tern_status check_shape(const struct tern_stored_tensor *tensor,
                               const struct tern_param *param,
                               const struct tern_model_config *config,
                               const struct tern_param_source *source,
                               enum tern_naming naming)
{
    int64_t expected[3] = {param->shape[0], param->shape[1], 1};
    int rank = param->rank;
    if (source->layout == TERN_LAYOUT_TRANSPOSED) {
        expected[0] = param->shape[1];
        expected[1] = param->shape[0];
    }
    if (naming == TERN_NAMING_GGUF && param->expert >= 0) {
        expected[0] = config->experts;
        expected[1] = param->shape[0];
        expected[2] = param->shape[1];
        rank = 3;
    }
    bool is_same = tensor->rank == rank;
    for (int i = 0; i < rank && is_same; i++) {
        is_same = tensor->shape[i] == expected[i];
    }
    char found_text[SHAPE_BYTES];
    char expected_text[SHAPE_BYTES];
    if (!is_same) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: tensor %s at byte %llu: found shape %s, expected %s as the model's "
                         "config has it",
                         tensor->file, tensor->name, (unsigned long long)tensor->offset,
                         shape_text(tensor->rank, tensor->shape, found_text),
                         shape_text(rank, expected, expected_text));
    }
    if (!tern_blocks_can_decode(tensor->dtype)) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: tensor %s: found weights of type %s, expected f32, f16, bf16 or "
                         "a GGUF block type",
                         tensor->file, tensor->name, tern_dtype_name(tensor->dtype));
    }
    return TERN_OK;
}

static tern_status find_one(const struct tern_param *param,
                            const struct tern_model_config *config,
                            enum tern_naming naming,
                            const struct tern_tensor_file *file,
                            struct tern_param_source *out)
{
    char name[TERN_PARAM_NAME_BYTES];
    *out = (struct tern_param_source){0};
    if (naming == TERN_NAMING_HF) {
        out->tensor = find_hf(file, param);
        snprintf(name, sizeof name, "%s", param->name);
    } else {
        out->tensor = tern_tensor_file_find(file, tern_gguf_param_name(config, param, name));
        out->layout = tern_gguf_param_layout(config, param);
        out->first_row = param->expert >= 0 ? param->expert * param->shape[0] : 0;
    }
    if (out->tensor == NULL) {
        char shape[SHAPE_BYTES];
        return tern_fail(TERN_ERR_INPUT, "%s: tensor %s is missing, expected it with shape %s",
                         tern_tensor_file_path(file), name,
                         shape_text(param->rank, param->shape, shape));
    }
    return check_shape(out->tensor, param, config, out, naming);
}

/* Every tensor of the file is somebody's source, or known to be of no use. */
static tern_status check_all_used(const struct tern_params *params,
                                  const struct tern_model_config *config,
                                  enum tern_naming naming,
                                  const struct tern_tensor_file *file,
                                  const struct tern_param_source *sources)
{
    int64_t count = tern_tensor_file_count(file);
    const struct tern_stored_tensor *first = tern_tensor_file_at(file, 0);
    bool *is_used = tern_alloc_zero("sources", (size_t)count + 1, sizeof *is_used);
    if (is_used == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %lld tensors",
                         (long long)count);
    }
    for (int i = 0; i < params->count; i++) {
        is_used[sources[i].tensor - first] = true;
    }
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < count && status == TERN_OK; i++) {
        const struct tern_stored_tensor *tensor = tern_tensor_file_at(file, i);
        char shape[SHAPE_BYTES];
        if (!is_used[i] && !is_ignored(config, naming, tensor->name)) {
            status = tern_fail(
                TERN_ERR_UNSUPPORTED,
                "%s: tensor %s %s at byte %llu: found a tensor that a %s of this "
                "config has not, expected none",
                tensor->file, tensor->name, shape_text(tensor->rank, tensor->shape, shape),
                (unsigned long long)tensor->offset, tern_family_name((int)config->family));
        }
    }
    tern_free(is_used);
    return status;
}

tern_status tern_param_sources_find(const struct tern_params *params,
                                    const struct tern_model_config *config,
                                    enum tern_naming naming,
                                    const struct tern_tensor_file *file,
                                    struct tern_param_source **out)
{
    struct tern_param_source *sources =
        tern_alloc("sources", (size_t)params->count * sizeof *sources);
    if (sources == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %d tensors", params->count);
    }
    tern_status status = TERN_OK;
    for (int i = 0; i < params->count; i++) {
        TERN_GOTO_IF_ERR(status, find_one(&params->items[i], config, naming, file, &sources[i]),
                         fail);
    }
    TERN_GOTO_IF_ERR(status, check_all_used(params, config, naming, file, sources), fail);
    *out = sources;
    return TERN_OK;
fail:
    tern_free(sources);
    return status;
}

/* Row `row` of the stored tensor, seen as a matrix of rows of its last dimension. */
static void decode_row(const struct tern_stored_tensor *tensor, int64_t row, int64_t n, float *dst)
{
    size_t bytes = 0;
    bool is_whole = tern_dtype_row_bytes(tensor->dtype, n, &bytes);
    (void)is_whole; /* the reader of the file has checked it */
    tern_blocks_decode(tensor->dtype, (const char *)tensor->data + (size_t)row * bytes, n, dst);
}

/* Where row r of a head's rows lies when they are paired: pair i is rows 2 i and 2 i + 1. */
static int64_t paired_row(int64_t row, int64_t head_width)
{
    int64_t half = head_width / 2;
    int64_t at = row % head_width;
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

int64_t tern_param_source_row(const struct tern_param_source *source,
                              const struct tern_model_config *config,
                              int64_t row)
{
    int64_t at = source->layout == TERN_LAYOUT_PAIRED ? paired_row(row, config->head_width) : row;
    return source->first_row + at;
}

/* Vectors are small: the whole is decoded, then rearranged. */
static tern_status read_vector(const struct tern_param_source *source,
                               const struct tern_param *param,
                               const struct tern_model_config *config,
                               int64_t first,
                               int64_t count,
                               float *dst)
{
    float *whole = tern_alloc("source", (size_t)param->size * sizeof *whole);
    if (whole == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read %s",
                         (long long)param->size, param->name);
    }
    decode_row(source->tensor, 0, param->size, whole);
    float offset = source->layout == TERN_LAYOUT_PLUS_ONE ? 1 : 0;
    bool is_paired = source->layout == TERN_LAYOUT_PAIRED;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = is_paired ? paired_row(first + i, config->head_width) : first + i;
        dst[i] = whole[at] - offset;
    }
    tern_free(whole);
    return TERN_OK;
}

/* Rows are columns of what is stored: every stored row is decoded, and a run of it kept. */
static tern_status read_transposed(const struct tern_param_source *source,
                                   const struct tern_param *param,
                                   int64_t row,
                                   int64_t count,
                                   float *dst)
{
    float *line = tern_alloc("source", (size_t)param->shape[0] * sizeof *line);
    if (line == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read %s",
                         (long long)param->shape[0], param->name);
    }
    for (int64_t column = 0; column < param->shape[1]; column++) {
        decode_row(source->tensor, column, param->shape[0], line);
        for (int64_t i = 0; i < count; i++) {
            dst[i * param->shape[1] + column] = line[row + i];
        }
    }
    tern_free(line);
    return TERN_OK;
}

tern_status tern_param_source_read(const struct tern_param_source *source,
                                   const struct tern_param *param,
                                   const struct tern_model_config *config,
                                   int64_t row,
                                   int64_t count,
                                   float *dst)
{
    int64_t columns = param->shape[1];
    if (param->rank == 1) {
        return read_vector(source, param, config, row, count, dst);
    }
    if (source->layout == TERN_LAYOUT_TRANSPOSED) {
        return read_transposed(source, param, row, count, dst);
    }
    for (int64_t i = 0; i < count; i++) {
        decode_row(source->tensor, tern_param_source_row(source, config, row + i), columns,
                   dst + i * columns);
    }
    return TERN_OK;
}
