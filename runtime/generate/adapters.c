/* adapters.c - adapters from a checkpoint or from peft's files. */
#include "runtime/generate/adapters.h"

#include "io/file.h"
#include "io/safetensors.h"
#include "kernels/blocks.h"
#include "models/stored.h"
#include "runtime/base/mem.h"

#include <string.h>

/* The tables, and room for the values. */
static tern_status make_tables(const struct tern_model_config *model,
                               const struct tern_peft_config *config,
                               struct tern_adapters *out)
{
    const char *targets[TERN_LORA_TARGETS_MAX];
    for (int i = 0; i < config->target_count; i++) {
        targets[i] = config->targets[i];
    }
    const struct tern_lora_config lora = {
        .rank = config->rank,
        .alpha = config->alpha,
        .targets = targets,
        .target_count = config->target_count,
    };
    *out = (struct tern_adapters){.config = *config};
    TERN_RETURN_IF_ERR(tern_model_init(&out->model, model, TERN_F32));
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_lora_init(&out->lora, &out->model, &lora), fail);
    out->values = tern_alloc("adapters", (size_t)out->lora.params.flat_size * sizeof(float));
    if (out->values == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values of adapters",
                           (long long)out->lora.params.flat_size);
        goto fail;
    }
    return TERN_OK;
fail:
    tern_adapters_close(out);
    return status;
}

tern_status tern_adapters_open_run(const struct tern_model_config *model,
                                   const struct tern_peft_config *config,
                                   struct tern_ckpt_reader *reader,
                                   struct tern_adapters *out)
{
    TERN_RETURN_IF_ERR(make_tables(model, config, out));
    const struct tern_params *params = &out->lora.params;
    tern_status status = tern_stored_check(params, reader, "model");
    for (int i = 0; status == TERN_OK && i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        status = tern_ckpt_read(reader, "model", param->name, 0, param->shape[0],
                                out->values + param->offset);
    }
    if (status != TERN_OK) {
        tern_adapters_close(out);
    }
    return status;
}

static tern_status read_stored(const struct tern_tensor_file *file,
                               const struct tern_param *param,
                               float *dst)
{
    const struct tern_stored_tensor *stored = tern_tensor_file_find(file, param->name);
    if (stored == NULL) {
        return tern_fail(TERN_ERR_INPUT, "%s: expected a tensor %s, which is not there",
                         tern_tensor_file_path(file), param->name);
    }
    if (stored->rank != 2 || stored->shape[0] != param->shape[0] ||
        stored->shape[1] != param->shape[1]) {
        return tern_fail(
            TERN_ERR_INPUT, "%s: tensor %s: found %lld x %lld of rank %d, expected %lld x %lld",
            stored->file, param->name, (long long)stored->shape[0], (long long)stored->shape[1],
            stored->rank, (long long)param->shape[0], (long long)param->shape[1]);
    }
    if (!tern_blocks_can_decode(stored->dtype)) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "%s: tensor %s: found dtype %s, expected a float",
                         stored->file, param->name, tern_dtype_name(stored->dtype));
    }
    tern_blocks_decode(stored->dtype, stored->data, param->size, dst);
    return TERN_OK;
}

/* A tensor that no part of the model takes would be left out in silence. */
static tern_status check_rest(const struct tern_tensor_file *file, const struct tern_params *params)
{
    for (int64_t i = 0; i < tern_tensor_file_count(file); i++) {
        const char *name = tern_tensor_file_at(file, i)->name;
        int k = 0;
        while (k < params->count && strcmp(params->items[k].name, name) != 0) {
            k++;
        }
        if (k == params->count) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: tensor %s belongs to no module that adapter_config.json names",
                             tern_tensor_file_path(file), name);
        }
    }
    return TERN_OK;
}

static tern_status read_file(const char *folder, struct tern_adapters *out)
{
    char path[TERN_PATH_BYTES];
    struct tern_tensor_file *file;
    const struct tern_params *params = &out->lora.params;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "adapter_model.safetensors"));
    TERN_RETURN_IF_ERR(tern_safetensors_open(path, &file));
    tern_status status = TERN_OK;
    for (int i = 0; status == TERN_OK && i < params->count; i++) {
        status = read_stored(file, &params->items[i], out->values + params->items[i].offset);
    }
    status = status == TERN_OK ? check_rest(file, params) : status;
    tern_tensor_file_close(file);
    return status;
}

tern_status tern_adapters_open_peft(const struct tern_model_config *model,
                                    const struct tern_peft_config *config,
                                    const char *folder,
                                    struct tern_adapters *out)
{
    TERN_RETURN_IF_ERR(make_tables(model, config, out));
    tern_status status = read_file(folder, out);
    if (status != TERN_OK) {
        tern_adapters_close(out);
    }
    return status;
}

void tern_adapters_close(struct tern_adapters *adapters)
{
    tern_free(adapters->values);
    tern_lora_fini(&adapters->lora);
    tern_model_fini(&adapters->model);
    *adapters = (struct tern_adapters){0};
}

void tern_adapters_merge(const struct tern_adapters *adapters,
                         const struct tern_param *param,
                         int64_t row,
                         int64_t count,
                         float *rows)
{
    const struct tern_lora *lora = &adapters->lora;
    const struct tern_lora_part *part = tern_lora_find(lora, param);
    if (part == NULL) {
        return;
    }
    bool is_out_in = adapters->model.config.features.is_out_in;
    const float *b = adapters->values + part->b->offset + (is_out_in ? row * lora->rank : 0);
    tern_lora_merge(lora, param, row, count, adapters->values + part->a->offset, b, rows);
}
