/* peft.c - a folder of adapters as the Python package peft reads it: adapter_config.json and
 * adapter_model.safetensors, with the tokenizer beside them. */
#include "models/peft.h"

#include "io/safetensors_write.h"
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"

#include <stdio.h>

static tern_status write_config(const struct tern_export *export,
                                const struct tern_adapters *adapters)
{
    struct tern_text text = {0};
    char path[TERN_PATH_BYTES];
    struct tern_peft_config config = adapters->config;
    snprintf(config.base, sizeof config.base, "%s",
             tern_weights_path(tern_weights_base(export->weights)));
    TERN_RETURN_IF_ERR(tern_path_join(path, export->work, "adapter_config.json"));
    tern_status status =
        tern_peft_config_print(&config, adapters->model.config.features.is_out_in, &text);
    if (status == TERN_OK) {
        status = tern_file_replace(path, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

/* The tensors as they lie in memory, in the order of the table. */
static tern_status append_all(struct tern_export *export,
                              const struct tern_adapters *adapters,
                              struct tern_safetensors_writer *writer)
{
    const struct tern_params *params = &adapters->lora.params;
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        size_t bytes = (size_t)param->size * sizeof(float);
        TERN_RETURN_IF_ERR(
            tern_safetensors_append(writer, adapters->values + param->offset, bytes));
        export->parameters += param->size;
        export->bytes += (int64_t)bytes;
    }
    return TERN_OK;
}

static tern_status write_values(struct tern_export *export, const struct tern_adapters *adapters)
{
    const struct tern_params *params = &adapters->lora.params;
    struct tern_safetensors_writer *writer;
    struct tern_stored_tensor *stored =
        tern_alloc_zero("export", (size_t)params->count, sizeof *stored);
    if (stored == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %d tensors", params->count);
    }
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        stored[i] = (struct tern_stored_tensor){.name = param->name,
                                                .dtype = TERN_F32,
                                                .rank = 2,
                                                .shape = {param->shape[0], param->shape[1]}};
    }
    tern_status status =
        tern_safetensors_create(export->work, stored, params->count, INT64_MAX, &writer);
    if (status == TERN_OK) {
        status = append_all(export, adapters, writer);
        if (status == TERN_OK) {
            status = tern_safetensors_finish(writer);
        } else {
            tern_safetensors_abandon(writer);
        }
    }
    tern_free(stored);
    return status;
}

tern_status tern_export_peft(struct tern_export *export)
{
    char plain[TERN_PATH_BYTES];
    char named[TERN_PATH_BYTES];
    const struct tern_adapters *adapters = tern_weights_adapters(export->weights);
    if (adapters == NULL) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s has no adapters of its own, which is what --format peft writes; "
                         "expected hf or gguf",
                         export->options->model);
    }
    TERN_RETURN_IF_ERR(tern_file_make_folder(export->work));
    TERN_RETURN_IF_ERR(write_config(export, adapters));
    TERN_RETURN_IF_ERR(write_values(export, adapters));
    TERN_RETURN_IF_ERR(tern_path_join(plain, export->work, "model.safetensors"));
    TERN_RETURN_IF_ERR(tern_path_join(named, export->work, "adapter_model.safetensors"));
    TERN_RETURN_IF_ERR(tern_file_rename(plain, named));
    return tern_export_tokenizer(export);
}
