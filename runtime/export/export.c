/* export.c - opens the model, picks a temporary name beside the output, and renames when all is on
 * storage. */
#include "runtime/export/export.h"

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"
#include "runtime/plan/compute.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS_MAX = 64
};

/* The type that a model's weights have, as far as it is a plain one. */
static enum tern_dtype own_type(const struct tern_export *export)
{
    const struct tern_pretrained *pretrained = tern_weights_pretrained(export->weights);
    enum tern_dtype dtype =
        pretrained != NULL ? pretrained->dtype : tern_weights_dtype(export->weights);
    return dtype == TERN_BF16 || dtype == TERN_F16 ? dtype : TERN_F32;
}

static enum tern_dtype type_of(const struct tern_export *export)
{
    switch (export->options->weights) {
    case TERN_EXPORT_F32:
        return TERN_F32;
    case TERN_EXPORT_BF16:
        return TERN_BF16;
    case TERN_EXPORT_F16:
        return TERN_F16;
    case TERN_EXPORT_Q8_0:
        return TERN_Q8_0;
    case TERN_EXPORT_Q4_0:
        return TERN_Q4_0;
    case TERN_EXPORT_Q4_K_M:
        return TERN_Q4_K;
    default:
        return own_type(export);
    }
}

static tern_status check_options(const struct tern_export *export)
{
    const struct tern_export_options *options = export->options;
    bool is_block = tern_dtype_block_elements(export->dtype) > 1;
    if (options->format == TERN_EXPORT_HF && is_block) {
        return tern_fail(TERN_ERR_USAGE,
                         "--dtype %s is a type of GGUF; expected f32, bf16 or f16 with --format hf",
                         tern_dtype_name(export->dtype));
    }
    if (options->format == TERN_EXPORT_PEFT && options->weights != TERN_EXPORT_AUTO &&
        options->weights != TERN_EXPORT_F32) {
        return tern_fail(TERN_ERR_USAGE,
                         "--dtype %s: expected f32 with --format peft, as adapters were trained",
                         tern_dtype_name(export->dtype));
    }
    if (options->imatrix != NULL && !is_block) {
        return tern_fail(TERN_ERR_USAGE,
                         "--imatrix is for block types; expected --dtype q8_0, q4_0 or q4_k_m with "
                         "it, found %s",
                         tern_dtype_name(export->dtype));
    }
    return TERN_OK;
}

/* OUT without trailing slashes, and ".partial" behind it. */
static tern_status name_work(struct tern_export *export, char out[TERN_PATH_BYTES])
{
    size_t length = strlen(export->options->out);
    while (length > 1 && export->options->out[length - 1] == '/') {
        length--;
    }
    if (length + sizeof ".partial" > TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "the output path is longer than %d bytes",
                         TERN_PATH_BYTES - (int)sizeof ".partial");
    }
    snprintf(out, TERN_PATH_BYTES, "%.*s", (int)length, export->options->out);
    snprintf(export->work, TERN_PATH_BYTES, "%.*s.partial", (int)length, export->options->out);
    if (access(out, F_OK) == 0) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s is there already, expected a name that is free: nothing is "
                         "overwritten",
                         out);
    }
    return tern_file_remove_tree(export->work); /* of an export that was interrupted */
}

static tern_status write_model(struct tern_export *export)
{
    char out[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(name_work(export, out));
    static tern_status (*const writers[])(struct tern_export *) = {
        [TERN_EXPORT_HF] = tern_export_hf,
        [TERN_EXPORT_GGUF] = tern_export_gguf,
        [TERN_EXPORT_PEFT] = tern_export_peft,
    };
    tern_status status = writers[export->options->format](export);
    if (status == TERN_OK) {
        status = tern_file_rename(export->work, out);
    }
    if (status == TERN_OK) {
        return TERN_OK;
    }
    char kept[512]; /* removing must not replace the reason */
    snprintf(kept, sizeof kept, "%s", tern_detail());
    if (tern_file_remove_tree(export->work) != TERN_OK) {
        return tern_fail(status, "%s (and %s is left behind)", kept, export->work);
    }
    return tern_fail(status, "%s", kept);
}

static tern_status count_threads(struct tern_export *export)
{
    struct tern_compute compute;
    TERN_RETURN_IF_ERR(tern_compute_choose(NULL, &compute));
    export->threads = compute.threads < 1             ? 1
                      : compute.threads > THREADS_MAX ? THREADS_MAX
                                                      : compute.threads;
    return TERN_OK;
}

tern_status tern_export(const struct tern_export_options *options,
                        struct tern_export_result *result_out)
{
    struct tern_export export = {.options = options};
    double start = tern_clock_seconds();
    tern_status status;
    TERN_RETURN_IF_ERR(tern_weights_open(options->model, &export.weights));
    export.config = tern_weights_config(export.weights);
    export.dtype = type_of(&export);
    TERN_GOTO_IF_ERR(status, check_options(&export), out);
    TERN_GOTO_IF_ERR(status, count_threads(&export), out);
    TERN_GOTO_IF_ERR(status, tern_params_init(&export.params, export.config), out);
    TERN_GOTO_IF_ERR(status, tern_weights_check(export.weights, &export.params), out);
    if (options->imatrix != NULL) {
        TERN_GOTO_IF_ERR(status, tern_export_imatrix_open(options->imatrix, &export.imatrix), out);
    }
    TERN_GOTO_IF_ERR(status, write_model(&export), out);
    if (result_out != NULL) {
        const struct tern_adapters *adapters = tern_weights_adapters(export.weights);
        int64_t tensors =
            options->format == TERN_EXPORT_PEFT ? adapters->lora.params.count : export.params.count;
        *result_out = (struct tern_export_result){tensors, export.parameters, export.bytes,
                                                  tern_clock_seconds() - start};
    }
out:
    tern_export_imatrix_close(export.imatrix);
    tern_params_fini(&export.params);
    tern_weights_close(export.weights);
    return status;
}
