/* keep.c - copies of a tokenizer's files, and of the part of a GGUF file that is one. */
#include "runtime/train/keep.h"

#include "io/gguf_write.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    FILE_BYTES_MAX = 256 << 20
};

/* One file under a name of the folder's. */
static tern_status copy_file(const char *from, const char *folder, const char *name)
{
    char to[TERN_PATH_BYTES];
    char *data;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_path_join(to, folder, name));
    TERN_RETURN_IF_ERR(tern_file_read(from, FILE_BYTES_MAX, &data, &bytes));
    tern_status status = tern_file_replace(to, data, bytes);
    tern_free(data);
    return status;
}

/* `name` from beside `path`, where there is one. */
static tern_status copy_beside(const char *path, const char *name, const char *folder)
{
    char from[TERN_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (length + strlen(name) >= sizeof from) {
        return tern_fail(TERN_ERR_ARGUMENT, "%s: the path of %s beside it is too long", path, name);
    }
    memcpy(from, path, length);
    strcpy(from + length, name);
    return tern_file_exists(from) && !tern_file_is_folder(from) ? copy_file(from, folder, name)
                                                                : TERN_OK;
}

/* Keys that tern_tokenizer_open and the chat template need. */
static tern_status copy_keys(const char *from, const char *to)
{
    struct tern_gguf *gguf;
    struct tern_gguf_writer *writer;
    const char *key;
    TERN_RETURN_IF_ERR(tern_gguf_open(from, &gguf));
    tern_status status = tern_gguf_create(&writer);
    for (int64_t i = 0; status == TERN_OK && (key = tern_gguf_key(gguf, i, NULL)) != NULL; i++) {
        if (strncmp(key, "tokenizer.", 10) == 0 || strcmp(key, "general.architecture") == 0) {
            tern_gguf_put_copy(writer, gguf, i);
        }
    }
    if (status == TERN_OK) {
        status = tern_gguf_begin(writer, to);
        if (status == TERN_OK) {
            status = tern_gguf_finish(writer);
        } else {
            tern_gguf_abandon(writer);
        }
    }
    tern_gguf_close(gguf);
    return status;
}

static tern_status keep_gguf(const char *tokenizer, const char *folder)
{
    char partial[TERN_PATH_BYTES];
    char whole[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(partial, folder, "tokenizer.gguf.partial"));
    TERN_RETURN_IF_ERR(tern_path_join(whole, folder, "tokenizer.gguf"));
    TERN_RETURN_IF_ERR(tern_file_remove_tree(partial)); /* of a launch that was killed */
    TERN_RETURN_IF_ERR(copy_keys(tokenizer, partial));
    return tern_file_rename(partial, whole);
}

tern_status tern_keep_tokenizer(const char *tokenizer, const char *folder)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.jinja", "generation_config.json"};
    char kept[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_kept_tokenizer(folder, kept));
    if (strcmp(kept, tokenizer) == 0) {
        return TERN_OK;
    }
    if (tern_gguf_is_file(tokenizer)) {
        return keep_gguf(tokenizer, folder);
    }
    TERN_RETURN_IF_ERR(copy_file(tokenizer, folder, "tokenizer.json"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        TERN_RETURN_IF_ERR(copy_beside(tokenizer, names[i], folder));
    }
    return TERN_OK;
}

tern_status tern_keep_ids(const struct tern_model_ids *ids, const char *folder)
{
    char path[TERN_PATH_BYTES];
    struct tern_text text = {0};
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "generation_config.json"));
    if (tern_file_exists(path) || (ids->bos < 0 && ids->eos_count == 0)) {
        return TERN_OK;
    }
    tern_status status = tern_hf_ids_print(ids, &text);
    if (status == TERN_OK) {
        status = tern_file_replace(path, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

tern_status tern_kept_tokenizer(const char *folder, char path_out[TERN_PATH_BYTES])
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        TERN_RETURN_IF_ERR(tern_path_join(path_out, folder, names[i]));
        if (tern_file_exists(path_out)) {
            return TERN_OK;
        }
    }
    path_out[0] = '\0';
    return TERN_OK;
}

tern_status tern_kept_ids(const char *folder, struct tern_model_ids *ids)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "generation_config.json"));
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_hf_ids_parse(path, text, bytes, ids);
    tern_free(text);
    return status;
}

tern_status tern_keep_model(const char *json, const char *folder)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "model.json"));
    return tern_file_replace(path, json, strlen(json));
}

tern_status tern_kept_model(const char *folder, struct tern_model_config *out, bool *is_there_out)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "model.json"));
    *is_there_out = tern_file_exists(path);
    if (!*is_there_out) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_hf_config_parse(path, text, bytes, out);
    tern_free(text);
    return status;
}
