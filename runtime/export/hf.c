/* hf.c - a Hugging Face folder: config.json, generation_config.json, the tokenizer's files, the
 * chat template, and the weights. */
#include "io/json.h"
#include "io/safetensors_write.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/template_find.h"
#include "runtime/export/export_impl.h"

#include <string.h>

enum {
    FILE_BYTES_MAX = 256 << 20 /* of a tokenizer.json */
};

static tern_status write_file(const struct tern_export *export,
                              const char *name,
                              const void *data,
                              size_t bytes)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, export->work, name));
    return tern_file_replace(path, data, bytes);
}

/* A file as it is; one that is not there is skipped. */
static tern_status copy_file(const struct tern_export *export,
                             const char *from,
                             const char *name,
                             bool *done_out)
{
    char *data;
    size_t bytes;
    *done_out = false;
    if (!tern_file_exists(from) || tern_file_is_folder(from)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(from, FILE_BYTES_MAX, &data, &bytes));
    tern_status status = write_file(export, name, data, bytes);
    tern_free(data);
    *done_out = status == TERN_OK;
    return status;
}

/* A file beside the tokenizer, which is where a folder keeps them all. */
static tern_status copy_beside(const struct tern_export *export, const char *name, bool *done_out)
{
    char path[TERN_PATH_BYTES];
    const char *tokenizer = tern_weights_tokenizer(export->weights);
    *done_out = false;
    if (tokenizer[0] == '\0' || tern_gguf_is_file(tokenizer)) {
        return TERN_OK; /* what lies beside a GGUF file need not belong to it */
    }
    size_t folder = strlen(tokenizer);
    while (folder > 0 && tokenizer[folder - 1] != '/') {
        folder--;
    }
    memcpy(path, tokenizer, folder);
    path[folder] = '\0';
    TERN_RETURN_IF_ERR(tern_path_join(path, path, name));
    return copy_file(export, path, name, done_out);
}

static tern_status write_config(const struct tern_export *export)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_hf_config_print(export->config, tern_weights_ids(export->weights),
                                              export->dtype, &text);
    if (status == TERN_OK) {
        status = write_file(export, "config.json", text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status write_generation_config(const struct tern_export *export)
{
    const struct tern_model_ids *ids = tern_weights_ids(export->weights);
    struct tern_text text;
    bool is_copied;
    tern_status status;
    TERN_RETURN_IF_ERR(copy_beside(export, "generation_config.json", &is_copied));
    if (is_copied) {
        return TERN_OK;
    }
    tern_text_init(&text);
    TERN_GOTO_IF_ERR(status, tern_hf_ids_print(ids, &text), out);
    status = write_file(export, "generation_config.json", text.data, text.length);
out:
    tern_text_fini(&text);
    return status;
}

/* The least that AutoTokenizer needs beside a tokenizer.json. */
static tern_status print_tokenizer_config(const struct tern_export *export,
                                          const struct tern_template_texts *texts,
                                          struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out,
                                        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                        "  \"clean_up_tokenization_spaces\": false,\n"
                                        "  \"model_max_length\": %lld",
                                        (long long)export->config->context));
    for (int i = 0; i < TERN_SPECIALS; i++) {
        if (texts->specials[i] != NULL) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ",\n  \"%s\": ", tern_special_names[i]));
            TERN_RETURN_IF_ERR(
                tern_json_quote(out, texts->specials[i], strlen(texts->specials[i])));
        }
    }
    return tern_text_printf(out, "\n}\n");
}

static tern_status write_tokenizer_config(const struct tern_export *export)
{
    struct tern_template_texts texts = {0};
    struct tern_text text;
    bool is_copied;
    tern_status status;
    tern_text_init(&text);
    TERN_GOTO_IF_ERR(status, copy_beside(export, "tokenizer_config.json", &is_copied), out);
    TERN_GOTO_IF_ERR(status, tern_template_find(export->options->model, &texts), out);
    if (!is_copied) {
        TERN_GOTO_IF_ERR(status, print_tokenizer_config(export, &texts, &text), out);
        TERN_GOTO_IF_ERR(status,
                         write_file(export, "tokenizer_config.json", text.data, text.length), out);
    }
    if (texts.plain != NULL) {
        status = write_file(export, "chat_template.jinja", texts.plain, strlen(texts.plain));
    }
out:
    tern_text_fini(&text);
    tern_template_texts_fini(&texts);
    return status;
}

/* A tokenizer.json out of a GGUF file. */
static tern_status convert_tokenizer(const struct tern_export *export, const char *path)
{
    struct tern_gguf *gguf;
    struct tern_text text;
    TERN_RETURN_IF_ERR(tern_gguf_open(path, &gguf));
    tern_text_init(&text);
    tern_status status = tern_export_print_tokenizer(gguf, &text);
    if (status == TERN_OK) {
        status = write_file(export, "tokenizer.json", text.data, text.length);
    }
    tern_text_fini(&text);
    tern_gguf_close(gguf);
    return status;
}

tern_status tern_export_tokenizer(const struct tern_export *export)
{
    static const char *const others[] = {"special_tokens_map.json", "added_tokens.json",
                                         "tokenizer.model", "vocab.json", "merges.txt"};
    const char *tokenizer = tern_weights_tokenizer(export->weights);
    bool is_copied;
    if (tern_gguf_is_file(tokenizer)) {
        TERN_RETURN_IF_ERR(convert_tokenizer(export, tokenizer));
        return write_tokenizer_config(export);
    }
    TERN_RETURN_IF_ERR(copy_beside(export, "tokenizer.json", &is_copied));
    if (!is_copied) {
        tern_log_warn("export: the model has no tokenizer.json; %s gets none",
                      export->options->out);
        return TERN_OK;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        TERN_RETURN_IF_ERR(copy_beside(export, others[i], &is_copied));
    }
    return write_tokenizer_config(export);
}

static tern_status list_tensors(struct tern_export *export,
                                struct tern_export_list *list,
                                struct tern_stored_tensor **stored_out)
{
    for (int i = 0; i < export->params.count; i++) {
        const struct tern_param *param = &export->params.items[i];
        struct tern_export_tensor *tensor = tern_export_list_add(list);
        if (tensor == NULL) {
            return TERN_ERR_MEMORY;
        }
        memcpy(tensor->name, param->name, sizeof tensor->name);
        tensor->param = param;
        tensor->stored = (struct tern_stored_tensor){.dtype = export->dtype,
                                                     .rank = param->rank,
                                                     .shape = {param->shape[0], param->shape[1]}};
    }
    struct tern_stored_tensor *stored = tern_alloc("export", (size_t)list->count * sizeof *stored);
    if (stored == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of tensors");
    }
    for (int64_t i = 0; i < list->count; i++) {
        list->items[i].stored.name = list->items[i].name;
        stored[i] = list->items[i].stored;
    }
    *stored_out = stored;
    return TERN_OK;
}

static tern_status append(void *context, const void *data, size_t bytes)
{
    return tern_safetensors_append(context, data, bytes);
}

static tern_status write_weights(struct tern_export *export)
{
    struct tern_export_list list = {0};
    struct tern_stored_tensor *stored = NULL;
    struct tern_safetensors_writer *writer = NULL;
    tern_status status;
    TERN_GOTO_IF_ERR(status, list_tensors(export, &list, &stored), out);
    TERN_GOTO_IF_ERR(status,
                     tern_safetensors_create(export->work, stored, list.count,
                                             TERN_SAFETENSORS_SHARD_BYTES, &writer),
                     out);
    TERN_GOTO_IF_ERR(status, tern_export_stream(export, &list, append, writer), out);
    status = tern_safetensors_finish(writer);
    writer = NULL;
out:
    tern_safetensors_abandon(writer);
    tern_free(stored);
    tern_export_list_fini(&list);
    return status;
}

tern_status tern_export_hf(struct tern_export *export)
{
    TERN_RETURN_IF_ERR(tern_file_make_folder(export->work));
    TERN_RETURN_IF_ERR(write_config(export));
    TERN_RETURN_IF_ERR(write_generation_config(export));
    TERN_RETURN_IF_ERR(tern_export_tokenizer(export));
    return write_weights(export);
}
