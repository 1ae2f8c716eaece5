/* tokenizer_config.c - the names of the first and last token in the tokenizer_config.json beside a tokenizer.json. What
 * else that file says is for Python's classes: the post-processor in tokenizer.json decides what is put around texts,
 * whatever add_bos_token says. */
#include "io/file.h"
#include "io/json.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    FILE_BYTES_MAX = 64 << 20
};

/* "<s>", or {"content": "<s>", ...}. NONE: null, missing, or no token of the vocabulary. */
static tern_status read_id(const struct tern_tokenizer *tokenizer,
                           const char *path,
                           const struct tern_json *root,
                           const char *key,
                           int32_t *out)
{
    const struct tern_json *value = tern_json_get(root, key);
    enum tern_json_kind kind = tern_json_kind_of(value);
    if (kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL) {
        return TERN_OK;
    }
    const char *text =
        tern_json_string(kind == TERN_JSON_OBJECT ? tern_json_get(value, "content") : value, NULL);
    if (text == NULL) {
        return tern_fail(
            TERN_ERR_INPUT,
            "%s: %s: found %s, expected a token's text, or an object with it as content", path, key,
            tern_json_kind_name(kind));
    }
    *out = tern_tokenizer_id(tokenizer, text);
    return TERN_OK;
}

tern_status tern_tokenizer_read_config(struct tern_tokenizer *tokenizer, const char *json_path)
{
    char path[TERN_PATH_BYTES];
    const char *slash = strrchr(json_path, '/');
    char folder[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(folder, "", json_path));
    folder[slash == NULL ? 0 : slash - json_path] = '\0';
    TERN_RETURN_IF_ERR(tern_path_join(path, slash == NULL ? "." : folder, "tokenizer_config.json"));
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    char *text;
    size_t bytes;
    struct tern_json *root = NULL;
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_json_parse(path, text, bytes, &root);
    tern_free(text);
    TERN_RETURN_IF_ERR(status);
    status = read_id(tokenizer, path, root, "bos_token", &tokenizer->bos_id);
    if (status == TERN_OK) {
        status = read_id(tokenizer, path, root, "eos_token", &tokenizer->eos_id);
    }
    tern_json_close(root);
    return status;
}
