/* weights.c - from a path to a checkpoint's tensors. */
#include "runtime/generate/weights.h"

#include "io/checkpoint.h"
#include "io/file.h"
#include "models/stored.h"
#include "runtime/base/mem.h"
#include "runtime/train/config.h"
#include "runtime/train/cursor.h"
#include "runtime/train/keep.h"

#include <stdio.h>
#include <string.h>

enum {
    DEPTH_MAX = 8,           /* of adapters on adapters */
    CHECK_ELEMENTS = 1 << 20 /* read at a time */
};

struct tern_weights {
    /* Of a run: */
    struct tern_ckpt_reader *reader;
    struct tern_train_config config;
    /* Of somebody else's model: */
    bool is_pretrained;
    struct tern_pretrained pretrained;
    int last; /* parameter read last: the next is likely to follow it */
    /* Of adapters: */
    struct tern_weights *base;
    struct tern_adapters adapters;
    char base_hash[TERN_HASH_HEX_BYTES]; /* "": any will do */

    struct tern_model_ids ids;
    char path[TERN_PATH_BYTES];
    char tokenizer[TERN_PATH_BYTES];
};

/* The checkpoint folder that a MODEL argument means, and the run directory it belongs to. */
static tern_status find_checkpoint(const char *model,
                                   char ckpt[TERN_CKPT_PATH_BYTES],
                                   char run[TERN_PATH_BYTES])
{
    char probe[TERN_PATH_BYTES];
    int64_t step;
    if (!tern_file_exists(model)) {
        return tern_fail(TERN_ERR_NOT_FOUND, "%s: no such file or directory", model);
    }
    TERN_RETURN_IF_ERR(tern_path_join(probe, model, "MANIFEST.json"));
    if (tern_file_exists(probe)) {
        size_t length = strlen(model); /* MANIFEST.json fitted behind it, so it fits */
        while (length > 1 && model[length - 1] == '/') {
            length--;
        }
        snprintf(ckpt, TERN_CKPT_PATH_BYTES, "%.*s", (int)length, model);
        TERN_RETURN_IF_ERR(tern_path_join(run, model, "../.."));
        return tern_ckpt_verify(ckpt);
    }
    TERN_RETURN_IF_ERR(tern_path_join(probe, model, "ckpt"));
    if (!tern_file_is_folder(probe)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: is neither a run directory (no ckpt/), nor a checkpoint of one (no "
                         "MANIFEST.json), nor a Hugging Face folder (no config.json), nor adapters "
                         "(no adapter_config.json), nor a GGUF file",
                         model);
    }
    TERN_RETURN_IF_ERR(tern_path_join(run, model, "."));
    return tern_ckpt_find(model, ckpt, &step);
}

static tern_status open_at(const char *model, int depth, struct tern_weights **out);

static tern_status read_config(struct tern_weights *weights,
                               const char *ckpt,
                               struct tern_cursor *cursor)
{
    char *yaml = NULL;
    char *json = NULL;
    struct tern_model_config model;
    const struct tern_train_base base = {.name = ckpt, .model = &model, .tokenizer = ""};
    const char *state = tern_ckpt_state_json(weights->reader);
    TERN_RETURN_IF_ERR(tern_cursor_read(state, cursor, &yaml));
    tern_status status = tern_cursor_read_model(state, &json);
    if (status == TERN_OK && json != NULL) {
        status = tern_hf_config_parse(ckpt, json, strlen(json), &model);
    }
    if (status == TERN_OK) {
        status = tern_finetune_config_parse(ckpt, yaml, strlen(yaml), json != NULL ? &base : NULL,
                                            &weights->config);
    }
    tern_free(json);
    tern_free(yaml);
    return status == TERN_OK ? tern_model_config_check(&weights->config.model) : status;
}

/* The model that adapters name. */
static tern_status open_base(struct tern_weights *weights, const char *base, int depth)
{
    if (depth >= DEPTH_MAX) {
        return tern_fail(TERN_ERR_INPUT, "found adapters of adapters %d times over, expected less",
                         depth);
    }
    if (!tern_file_exists(base)) {
        return tern_fail(TERN_ERR_CONFIG, "the model that the adapters belong to is not there: %s",
                         base);
    }
    TERN_RETURN_IF_ERR(open_at(base, depth + 1, &weights->base));
    weights->ids = weights->base->ids;
    return TERN_OK;
}

static tern_status open_run_adapters(struct tern_weights *weights,
                                     const struct tern_cursor *cursor,
                                     int depth)
{
    const struct tern_config_lora *lora = &weights->config.lora;
    struct tern_peft_config config = {.rank = lora->rank, .alpha = lora->alpha};
    for (; config.target_count < lora->targets.count; config.target_count++) {
        snprintf(config.targets[config.target_count], sizeof config.targets[0], "%s",
                 lora->targets.items[config.target_count]);
    }
    strcpy(weights->base_hash, cursor->base_hash);
    TERN_RETURN_IF_ERR(open_base(weights, cursor->base, depth));
    return tern_adapters_open_run(&weights->config.model, &config, weights->reader,
                                  &weights->adapters);
}

static tern_status open_run(struct tern_weights *weights, const char *model, int depth)
{
    char ckpt[TERN_CKPT_PATH_BYTES];
    char run[TERN_PATH_BYTES];
    struct tern_cursor cursor;
    TERN_RETURN_IF_ERR(find_checkpoint(model, ckpt, run));
    TERN_RETURN_IF_ERR(tern_ckpt_open(ckpt, &weights->reader));
    TERN_RETURN_IF_ERR(read_config(weights, ckpt, &cursor));
    TERN_RETURN_IF_ERR(tern_path_absolute(weights->path, ckpt));
    TERN_RETURN_IF_ERR(tern_kept_tokenizer(run, weights->tokenizer));
    if (weights->config.lora.rank > 0) {
        TERN_RETURN_IF_ERR(open_run_adapters(weights, &cursor, depth));
    }
    return tern_kept_ids(run, &weights->ids);
}

/* Whether a folder holds adapters; path_out: of adapter_config.json. */
static bool is_peft(const char *folder, char path_out[TERN_PATH_BYTES])
{
    return tern_path_join(path_out, folder, "adapter_config.json") == TERN_OK &&
           tern_file_exists(path_out);
}

/* The base is named as its maker saw it: by a path, or by a name beside which it lies here. */
static tern_status open_peft(struct tern_weights *weights, const char *folder, int depth)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    struct tern_peft_config config;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "adapter_config.json"));
    TERN_RETURN_IF_ERR(tern_file_read(path, TERN_CONFIG_FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_peft_config_parse(path, text, bytes, &config);
    tern_free(text);
    TERN_RETURN_IF_ERR(status);
    TERN_RETURN_IF_ERR(tern_path_absolute(weights->path, folder));
    status = open_base(weights, config.base, depth);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "%s: base_model_name_or_path", path);
    }
    TERN_RETURN_IF_ERR(tern_path_join(weights->tokenizer, folder, "tokenizer.json"));
    return tern_adapters_open_peft(tern_weights_config(weights->base), &config, folder,
                                   &weights->adapters);
}

static tern_status open_pretrained(struct tern_weights *weights, const char *model)
{
    weights->is_pretrained = true;
    TERN_RETURN_IF_ERR(tern_pretrained_open(model, &weights->pretrained));
    TERN_RETURN_IF_ERR(tern_path_absolute(weights->path, model));
    weights->ids = weights->pretrained.ids;
    const struct tern_gguf *gguf = weights->pretrained.gguf;
    if (gguf == NULL) {
        return tern_path_join(weights->tokenizer, model, "tokenizer.json");
    }
    bool has_tokenizer = tern_gguf_has(gguf, "tokenizer.ggml.model") &&
                         !tern_gguf_string_is(gguf, "tokenizer.ggml.model", "none");
    return has_tokenizer ? tern_path_absolute(weights->tokenizer, model) : TERN_OK;
}

static tern_status open_any(struct tern_weights *weights, const char *model, int depth)
{
    char path[TERN_PATH_BYTES];
    if (is_peft(model, path)) { /* peft may have written the base's config.json beside it */
        return open_peft(weights, model, depth);
    }
    return tern_pretrained_is(model) ? open_pretrained(weights, model)
                                     : open_run(weights, model, depth);
}

static tern_status open_at(const char *model, int depth, struct tern_weights **out)
{
    struct tern_weights *weights = tern_alloc_zero("weights", 1, sizeof *weights);
    tern_status status;
    if (weights == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a reader of weights");
    }
    weights->ids.bos = -1;
    TERN_GOTO_IF_ERR(status, open_any(weights, model, depth), fail);
    if (!tern_file_exists(weights->tokenizer)) {
        strcpy(weights->tokenizer, weights->base != NULL ? weights->base->tokenizer : "");
    }
    *out = weights;
    return TERN_OK;
fail:
    tern_weights_close(weights);
    return status;
}

tern_status tern_weights_open(const char *model, struct tern_weights **out)
{
    return open_at(model, 0, out);
}

void tern_weights_close(struct tern_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    tern_adapters_close(&weights->adapters);
    tern_weights_close(weights->base);
    tern_ckpt_close(weights->reader);
    tern_pretrained_close(&weights->pretrained);
    tern_train_config_fini(&weights->config);
    tern_free(weights);
}

const char *tern_weights_path(const struct tern_weights *weights)
{
    return weights->path;
}

const struct tern_model_config *tern_weights_config(const struct tern_weights *weights)
{
    if (weights->base != NULL) {
        return tern_weights_config(weights->base);
    }
    return weights->is_pretrained ? &weights->pretrained.config : &weights->config.model;
}

enum tern_dtype tern_weights_dtype(const struct tern_weights *weights)
{
    if (weights->reader == NULL) {
        return weights->base != NULL ? tern_weights_dtype(weights->base) : TERN_F32;
    }
    return weights->config.train.precision == TERN_PRECISION_BF16 ? TERN_BF16 : TERN_F32;
}

const struct tern_model_ids *tern_weights_ids(const struct tern_weights *weights)
{
    return &weights->ids;
}

const struct tern_pretrained *tern_weights_pretrained(const struct tern_weights *weights)
{
    return weights->is_pretrained ? &weights->pretrained : NULL;
}

const struct tern_adapters *tern_weights_adapters(const struct tern_weights *weights)
{
    return weights->base != NULL ? &weights->adapters : NULL;
}

const struct tern_weights *tern_weights_base(const struct tern_weights *weights)
{
    return weights->base;
}

int64_t tern_weights_step(const struct tern_weights *weights)
{
    return weights->reader != NULL ? tern_ckpt_step(weights->reader) : 0;
}

const char *tern_weights_tokenizer(const struct tern_weights *weights)
{
    return weights->tokenizer;
}

/* Index of the same parameter in the table of the file; -1: not there. */
static int find_param(struct tern_weights *weights, const struct tern_param *param)
{
    const struct tern_params *params = &weights->pretrained.params;
    for (int i = 0; i < params->count; i++) {
        int at = (weights->last + i) % params->count;
        if (strcmp(params->items[at].name, param->name) == 0) {
            weights->last = at;
            return at;
        }
    }
    return -1;
}

static tern_status fail_param(const struct tern_weights *weights, const struct tern_param *param)
{
    return tern_fail(TERN_ERR_CONFIG, "%s: there is no tensor %s of %lld values, as expected here",
                     weights->path, param->name, (long long)param->size);
}

/* That the base has the values that the adapters were trained beside. */
static tern_status check_base(struct tern_weights *weights, const struct tern_params *params)
{
    char found[TERN_HASH_HEX_BYTES];
    TERN_RETURN_IF_ERR(tern_weights_check(weights->base, params));
    if (weights->base_hash[0] == '\0') {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_weights_hash(weights->base, params, found));
    return strcmp(found, weights->base_hash) == 0
               ? TERN_OK
               : tern_fail(
                     TERN_ERR_CONFIG,
                     "%s is not the model that the adapters of %s belong to: its weights have "
                     "the hash %s, expected %s",
                     weights->base->path, weights->path, found, weights->base_hash);
}

tern_status tern_weights_check(struct tern_weights *weights, const struct tern_params *params)
{
    if (weights->base != NULL) {
        return check_base(weights, params);
    }
    if (!weights->is_pretrained) {
        return tern_stored_check(params, weights->reader, "model");
    }
    for (int i = 0; i < params->count; i++) {
        int at = find_param(weights, &params->items[i]);
        if (at < 0 || weights->pretrained.params.items[at].size != params->items[i].size) {
            return fail_param(weights, &params->items[i]);
        }
    }
    return TERN_OK;
}

tern_status tern_weights_read(struct tern_weights *weights,
                              const struct tern_param *param,
                              int64_t row,
                              int64_t count,
                              float *dst)
{
    if (weights->base != NULL) {
        TERN_RETURN_IF_ERR(tern_weights_read(weights->base, param, row, count, dst));
        tern_adapters_merge(&weights->adapters, param, row, count, dst);
        return TERN_OK;
    }
    if (!weights->is_pretrained) {
        return tern_ckpt_read(weights->reader, "model", param->name, row, count, dst);
    }
    int at = find_param(weights, param);
    if (at < 0) {
        return fail_param(weights, param);
    }
    return tern_param_source_read(&weights->pretrained.sources[at],
                                  &weights->pretrained.params.items[at],
                                  &weights->pretrained.config, row, count, dst);
}
