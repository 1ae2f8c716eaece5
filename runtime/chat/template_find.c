/* template_find.c - templates and special tokens out of a folder's files or a GGUF file's metadata. */
#include "runtime/chat/template_find.h"

#include "io/file.h"
#include "io/gguf.h"
#include "io/json.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

const char *const tern_special_names[TERN_SPECIALS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

static tern_status copy_text(const char *text, size_t bytes, char **out)
{
    char *copy = tern_alloc("chat template", bytes + 1);
    if (copy == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a text of %zu bytes", bytes);
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    if (strlen(copy) != bytes) {
        tern_free(copy);
        return tern_fail(TERN_ERR_INPUT, "found a NUL byte in a template or a token");
    }
    tern_free(*out);
    *out = copy;
    return TERN_OK;
}

static tern_status set_template(struct tern_template_texts *texts,
                                bool is_tool_use,
                                const char *name,
                                const char *text,
                                size_t bytes)
{
    TERN_RETURN_IF_ERR(copy_text(text, bytes, is_tool_use ? &texts->tool_use : &texts->plain));
    return copy_text(name, strlen(name), is_tool_use ? &texts->tool_use_name : &texts->plain_name);
}

/* ---- folders ---- */

static tern_status read_template(struct tern_template_texts *texts,
                                 bool is_tool_use,
                                 const char *folder,
                                 const char *name)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, name));
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, TERN_TEMPLATE_FILE_BYTES_MAX, &text, &bytes));
    tern_status status = set_template(texts, is_tool_use, path, text, bytes);
    tern_free(text);
    return status;
}

/* "chat_template": a text, or [{"name": ..., "template": ...}, ...]. */
static tern_status templates_of(struct tern_template_texts *texts,
                                const char *path,
                                const struct tern_json *value)
{
    size_t bytes, name_bytes;
    const char *text = tern_json_string(value, &bytes);
    enum tern_json_kind kind = tern_json_kind_of(value);
    if (text != NULL) {
        return set_template(texts, false, path, text, bytes);
    }
    if (kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL) {
        return TERN_OK;
    }
    if (kind != TERN_JSON_ARRAY) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: chat_template: found %s; expected a text or a list of named ones",
                         path, tern_json_kind_name(kind));
    }
    for (int64_t i = 0; i < tern_json_count(value); i++) {
        const struct tern_json *item = tern_json_item(value, i);
        const char *name = tern_json_string(tern_json_get(item, "name"), &name_bytes);
        text = tern_json_string(tern_json_get(item, "template"), &bytes);
        if (name == NULL || text == NULL) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: chat_template[%lld]: expected an object with \"name\" and "
                             "\"template\"",
                             path, (long long)i);
        }
        bool is_tool_use = strcmp(name, "tool_use") == 0;
        if (is_tool_use || strcmp(name, "default") == 0) {
            TERN_RETURN_IF_ERR(set_template(texts, is_tool_use, path, text, bytes));
        }
    }
    return TERN_OK;
}

/* A token is a text, or an object whose "content" is one. */
static tern_status specials_of(struct tern_template_texts *texts, const struct tern_json *root)
{
    for (int i = 0; i < TERN_SPECIALS; i++) {
        size_t bytes;
        const struct tern_json *value = tern_json_get(root, tern_special_names[i]);
        const char *text = tern_json_string(value, &bytes);
        if (text == NULL) {
            text = tern_json_string(tern_json_get(value, "content"), &bytes);
        }
        if (text != NULL) {
            TERN_RETURN_IF_ERR(copy_text(text, bytes, &texts->specials[i]));
        }
    }
    return TERN_OK;
}

/* special_tokens_map.json has the tokens alone; tokenizer_config.json the template too. */
static tern_status read_config(struct tern_template_texts *texts,
                               const char *folder,
                               const char *name,
                               bool has_template)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    struct tern_json *root;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, name));
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, TERN_TEMPLATE_FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_json_parse(path, text, bytes, &root);
    tern_free(text);
    TERN_RETURN_IF_ERR(status);
    if (tern_json_kind_of(root) != TERN_JSON_OBJECT) {
        status = tern_fail(TERN_ERR_INPUT, "%s: found %s; expected an object", path,
                           tern_json_kind_name(tern_json_kind_of(root)));
    }
    if (status == TERN_OK && has_template) {
        status = templates_of(texts, path, tern_json_get(root, "chat_template"));
    }
    status = status == TERN_OK ? specials_of(texts, root) : status;
    tern_json_close(root);
    return status;
}

static tern_status find_in_folder(const char *folder, struct tern_template_texts *texts)
{
    char more[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(read_config(texts, folder, "special_tokens_map.json", false));
    TERN_RETURN_IF_ERR(read_config(texts, folder, "tokenizer_config.json", true));
    TERN_RETURN_IF_ERR(read_template(texts, false, folder, "chat_template.jinja"));
    TERN_RETURN_IF_ERR(tern_path_join(more, folder, "additional_chat_templates"));
    return read_template(texts, true, more, "tool_use.jinja");
}

/* ---- GGUF ---- */

static tern_status gguf_template(const struct tern_gguf *gguf,
                                 const char *key,
                                 bool is_tool_use,
                                 struct tern_template_texts *texts)
{
    const char *text;
    size_t bytes;
    char name[TERN_PATH_BYTES + 64];
    if (!tern_gguf_has(gguf, key)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_string(gguf, key, &text, &bytes));
    snprintf(name, sizeof name, "%s: %s", tern_gguf_path(gguf), key);
    return set_template(texts, is_tool_use, name, text, bytes);
}

/* The text of the token whose id a key has. */
static tern_status gguf_special(const struct tern_gguf *gguf, const char *key, char **out)
{
    struct tern_gguf_array tokens;
    int64_t id;
    size_t bytes;
    if (!tern_gguf_has(gguf, key) || !tern_gguf_has(gguf, "tokenizer.ggml.tokens")) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_i64(gguf, key, &id));
    TERN_RETURN_IF_ERR(tern_gguf_array(gguf, "tokenizer.ggml.tokens", TERN_GGUF_STRINGS, &tokens));
    if (id < 0 || id >= tokens.count) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: %s: found %lld; expected the id of one of %lld tokens",
                         tern_gguf_path(gguf), key, (long long)id, (long long)tokens.count);
    }
    const char *text = tern_gguf_array_string(&tokens, id, &bytes);
    return copy_text(text, bytes, out);
}

static tern_status find_in_gguf(const char *path, struct tern_template_texts *texts)
{
    static const char *const keys[TERN_SPECIALS] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id",
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.cls_token_id",
        "tokenizer.ggml.mask_token_id"};
    struct tern_gguf *gguf;
    tern_status status;
    TERN_RETURN_IF_ERR(tern_gguf_open(path, &gguf));
    TERN_GOTO_IF_ERR(status, gguf_template(gguf, "tokenizer.chat_template", false, texts), close);
    TERN_GOTO_IF_ERR(status, gguf_template(gguf, "tokenizer.chat_template.tool_use", true, texts),
                     close);
    for (int i = 0; i < TERN_SPECIALS; i++) {
        TERN_GOTO_IF_ERR(status, gguf_special(gguf, keys[i], &texts->specials[i]), close);
    }
close:
    tern_gguf_close(gguf);
    return status;
}

/* ---- which of them ---- */

/* A run keeps a GGUF file's tokenizer, its template included, as tokenizer.gguf. */
static tern_status find_kept(const char *folder, struct tern_template_texts *texts)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, "tokenizer.gguf"));
    return texts->plain == NULL && tern_file_exists(path) ? find_in_gguf(path, texts) : TERN_OK;
}

tern_status tern_template_find(const char *model, struct tern_template_texts *out)
{
    char path[TERN_PATH_BYTES], probe[TERN_PATH_BYTES];
    *out = (struct tern_template_texts){0};
    if (!tern_file_exists(model)) {
        return tern_fail(TERN_ERR_NOT_FOUND, "%s: no such file or directory", model);
    }
    if (!tern_file_is_folder(model)) {
        if (tern_gguf_is_file(model)) {
            return find_in_gguf(model, out);
        }
        const char *slash = strrchr(model, '/');
        snprintf(path, sizeof path, "%.*s", slash == NULL ? 1 : (int)(slash - model) + 1,
                 slash == NULL ? "." : model);
        return find_in_folder(path, out);
    }
    TERN_RETURN_IF_ERR(tern_path_join(probe, model, "MANIFEST.json"));
    TERN_RETURN_IF_ERR(tern_path_join(path, model, tern_file_exists(probe) ? "../.." : "."));
    TERN_RETURN_IF_ERR(find_in_folder(path, out));
    return find_kept(path, out);
}

void tern_template_texts_fini(struct tern_template_texts *texts)
{
    tern_free(texts->plain);
    tern_free(texts->tool_use);
    tern_free(texts->plain_name);
    tern_free(texts->tool_use_name);
    for (int i = 0; i < TERN_SPECIALS; i++) {
        tern_free(texts->specials[i]);
    }
    *texts = (struct tern_template_texts){0};
}
