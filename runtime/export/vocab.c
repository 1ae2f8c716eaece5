/* vocab.c - reads a tokenizer.json for its lists. */
#include "runtime/export/vocab.h"

#include "io/file.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 256 << 20
};

/* Patterns that cut a text, and GGUF's names for them. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern, *name;
} g_patterns[] = {
    {CONTRACTIONS "\\p{N}{1,3}" REST, "llama-bpe"},
    {CONTRACTIONS "\\p{N}" REST, "qwen2"},
};

const char *tern_vocab_pattern(const char *pre)
{
    for (size_t i = 0; i < sizeof g_patterns / sizeof *g_patterns; i++) {
        if (strcmp(pre, g_patterns[i].name) == 0) {
            return g_patterns[i].pattern;
        }
    }
    return NULL;
}

static const char *type_of(const struct tern_json *object)
{
    const char *type = tern_json_string(tern_json_get(object, "type"), NULL);
    return type != NULL ? type : "";
}

static bool is_type(const struct tern_json *object, const char *type)
{
    return strcmp(type_of(object), type) == 0;
}

/* Item `index` of a Sequence, or the thing itself as its only item. */
static const struct tern_json *step(const struct tern_json *object, const char *list, int64_t index)
{
    if (is_type(object, "Sequence")) {
        return tern_json_item(tern_json_get(object, list), index);
    }
    return index == 0 && tern_json_kind_of(object) == TERN_JSON_OBJECT ? object : NULL;
}

static tern_status no_name(const struct tern_vocab *vocab, const char *what, const char *found)
{
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "%s: %s: found '%.80s', which GGUF has no name for that is known here; "
                     "expected those of GPT-2, Llama 3, Qwen 2, SmolLM, or SentencePiece's",
                     vocab->path, what, found);
}

/* How a byte-level tokenizer cuts a text: one of a few arrangements, each with a name. */
static tern_status find_pre(struct tern_vocab *vocab, const struct tern_json *pre)
{
    bool has_digits = false;
    const struct tern_json *item;
    for (int64_t i = 0; (item = step(pre, "pretokenizers", i)) != NULL; i++) {
        const char *pattern =
            tern_json_string(tern_json_get(tern_json_get(item, "pattern"), "Regex"), NULL);
        if (is_type(item, "Digits") && i == 0 &&
            tern_json_bool(tern_json_get(item, "individual_digits"), false)) {
            has_digits = true;
        } else if (is_type(item, "ByteLevel")) {
            bool cuts = tern_json_bool(tern_json_get(item, "use_regex"), true);
            if (cuts && vocab->pre == NULL) {
                vocab->pre = has_digits ? "smollm" : "gpt-2";
            }
        } else if (is_type(item, "Split") && pattern != NULL && i == 0) {
            for (size_t k = 0; k < sizeof g_patterns / sizeof *g_patterns; k++) {
                if (strcmp(pattern, g_patterns[k].pattern) == 0) {
                    vocab->pre = g_patterns[k].name;
                }
            }
            if (vocab->pre == NULL) {
                return no_name(vocab, "pre_tokenizer", pattern);
            }
        } else {
            return no_name(vocab, "pre_tokenizer", type_of(item));
        }
    }
    return vocab->pre != NULL ? TERN_OK : no_name(vocab, "pre_tokenizer", "none");
}

static bool has_step(const struct tern_json *object, const char *list, const char *type)
{
    const struct tern_json *item;
    for (int64_t i = 0; (item = step(object, list, i)) != NULL; i++) {
        if (is_type(item, type)) {
            return true;
        }
    }
    return false;
}

static tern_status find_kind(struct tern_vocab *vocab)
{
    const struct tern_json *model = tern_json_get(vocab->root, "model");
    const struct tern_json *pre = tern_json_get(vocab->root, "pre_tokenizer");
    const struct tern_json *normalizer = tern_json_get(vocab->root, "normalizer");
    const char *type = type_of(model);
    bool has_list = tern_json_kind_of(tern_json_get(model, "merges")) == TERN_JSON_ARRAY;
    if (strcmp(type, "BPE") != 0 && !(type[0] == '\0' && has_list)) {
        return no_name(vocab, "model.type", type);
    }
    if (has_step(pre, "pretokenizers", "ByteLevel")) {
        return find_pre(vocab, pre);
    }
    if (!tern_json_bool(tern_json_get(model, "byte_fallback"), false)) {
        return no_name(vocab, "model", "BPE without bytes");
    }
    const char *scheme = tern_json_string(tern_json_get(pre, "prepend_scheme"), NULL);
    vocab->is_spm = true;
    vocab->pre = "default";
    vocab->adds_space =
        has_step(normalizer, "normalizers", "Prepend") ||
        (is_type(pre, "Metaspace") && (scheme == NULL || strcmp(scheme, "never") != 0));
    return TERN_OK;
}

/* ---- tokens ---- */

static tern_status set_token(struct tern_vocab *vocab,
                             int64_t id,
                             const char *text,
                             size_t bytes,
                             enum tern_vocab_kind kind)
{
    if (id < 0 || id >= vocab->count) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: token '%.40s' has the id %lld, expected below the model's vocabulary "
                         "of %lld",
                         vocab->path, text, (long long)id, (long long)vocab->count);
    }
    struct tern_vocab_token *token = &vocab->tokens[id];
    if (token->text != NULL && (token->bytes != bytes || memcmp(token->text, text, bytes) != 0)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: id %lld is that of '%.40s' and of '%.40s', expected one token",
                         vocab->path, (long long)id, token->text, text);
    }
    *token = (struct tern_vocab_token){text, bytes, 0, kind};
    return TERN_OK;
}

/* "<0x0A>" */
static bool is_byte(const char *text, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    return bytes == 6 && memcmp(text, "<0x", 3) == 0 && strchr(digits, text[3]) != NULL &&
           strchr(digits, text[4]) != NULL && text[5] == '>';
}

static tern_status add_token(void *context,
                             const char *key,
                             size_t key_bytes,
                             const struct tern_json *value)
{
    struct tern_vocab *vocab = context;
    int64_t id;
    bool is_special = vocab->is_spm && is_byte(key, key_bytes);
    if (!tern_json_i64(value, &id)) {
        return tern_fail(TERN_ERR_INPUT, "%s: model.vocab: token '%.40s' has %s, expected an id",
                         vocab->path, key, tern_json_kind_name(tern_json_kind_of(value)));
    }
    return set_token(vocab, id, key, key_bytes, is_special ? TERN_VOCAB_BYTE : TERN_VOCAB_NORMAL);
}

static tern_status add_added(struct tern_vocab *vocab)
{
    const struct tern_json *added = tern_json_get(vocab->root, "added_tokens");
    for (int64_t i = 0; i < tern_json_count(added); i++) {
        const struct tern_json *item = tern_json_item(added, i);
        bool is_special = tern_json_bool(tern_json_get(item, "special"), false);
        size_t bytes;
        const char *text = tern_json_string(tern_json_get(item, "content"), &bytes);
        int64_t id;
        if (text == NULL || !tern_json_i64(tern_json_get(item, "id"), &id)) {
            return tern_fail(TERN_ERR_INPUT, "%s: added_tokens[%lld]: expected a content and an id",
                             vocab->path, (long long)i);
        }
        TERN_RETURN_IF_ERR(set_token(vocab, id, text, bytes,
                                     is_special ? TERN_VOCAB_CONTROL : TERN_VOCAB_USER_DEFINED));
    }
    const char *unknown =
        tern_json_string(tern_json_get(tern_json_get(vocab->root, "model"), "unk_token"), NULL);
    int64_t id = unknown != NULL && vocab->is_spm ? tern_vocab_find(vocab, unknown) : -1;
    if (id >= 0) {
        vocab->tokens[id].kind = TERN_VOCAB_UNKNOWN;
    }
    return TERN_OK;
}

tern_status tern_vocab_merge(const struct tern_vocab *vocab, int64_t index, struct tern_text *out)
{
    const struct tern_json *merge = tern_json_item(vocab->merges, index);
    size_t bytes, right_bytes;
    const char *both = tern_json_string(merge, &bytes);
    if (both != NULL) {
        return tern_text_append(out, both, bytes);
    }
    const char *left = tern_json_string(tern_json_item(merge, 0), &bytes);
    const char *right = tern_json_string(tern_json_item(merge, 1), &right_bytes);
    if (left == NULL || right == NULL || tern_json_count(merge) != 2) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges[%lld]: expected a pair of tokens, or both with a blank "
                         "between them",
                         vocab->path, (long long)index);
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, left, bytes));
    TERN_RETURN_IF_ERR(tern_text_append(out, " ", 1));
    return tern_text_append(out, right, right_bytes);
}

/* SentencePiece merges what has the highest score: that is the order in which the results first
 * appear among the merges. What no merge makes comes last. */
static tern_status score(struct tern_vocab *vocab)
{
    const struct tern_json *list = tern_json_get(tern_json_get(vocab->root, "model"), "vocab");
    struct tern_text pair;
    tern_status status = TERN_OK;
    for (int64_t id = 0; id < vocab->count; id++) {
        vocab->tokens[id].score =
            vocab->tokens[id].kind == TERN_VOCAB_NORMAL ? -(float)(vocab->merge_count + 1) : 0;
    }
    tern_text_init(&pair);
    for (int64_t i = 0; i < vocab->merge_count; i++) {
        int64_t id;
        pair.length = 0;
        TERN_GOTO_IF_ERR(status, tern_vocab_merge(vocab, i, &pair), out);
        char *blank = strchr(pair.data, ' ');
        if (blank == NULL) {
            continue;
        }
        memmove(blank, blank + 1, strlen(blank));
        if (tern_json_i64(tern_json_get(list, pair.data), &id) && id >= 0 && id < vocab->count &&
            vocab->tokens[id].score == -(float)(vocab->merge_count + 1)) {
            vocab->tokens[id].score = -(float)i;
        }
    }
out:
    tern_text_fini(&pair);
    return status;
}

static tern_status read_lists(struct tern_vocab *vocab)
{
    const struct tern_json *model = tern_json_get(vocab->root, "model");
    const struct tern_json *list = tern_json_get(model, "vocab");
    TERN_RETURN_IF_ERR(find_kind(vocab));
    vocab->merges = tern_json_get(model, "merges");
    vocab->merge_count = tern_json_count(vocab->merges);
    if (tern_json_kind_of(list) != TERN_JSON_OBJECT) {
        return tern_fail(TERN_ERR_INPUT, "%s: model.vocab: found %s, expected an object",
                         vocab->path, tern_json_kind_name(tern_json_kind_of(list)));
    }
    for (int64_t id = 0; id < vocab->count; id++) {
        vocab->tokens[id].kind = TERN_VOCAB_UNUSED;
    }
    TERN_RETURN_IF_ERR(tern_json_each(list, add_token, vocab));
    TERN_RETURN_IF_ERR(add_added(vocab));
    return vocab->is_spm ? score(vocab) : TERN_OK;
}

tern_status tern_vocab_open(const char *path, int64_t count, struct tern_vocab *out)
{
    char *text = NULL;
    size_t bytes;
    tern_status status;
    *out = (struct tern_vocab){.count = count};
    out->path = tern_strdup("vocab", path);
    out->tokens = tern_alloc_zero("vocab", (size_t)count, sizeof *out->tokens);
    if (out->path == NULL || out->tokens == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a list of %lld tokens", path,
                           (long long)count);
        goto fail;
    }
    TERN_GOTO_IF_ERR(status, tern_file_read(path, FILE_BYTES_MAX, &text, &bytes), fail);
    status = tern_json_parse(path, text, bytes, &out->root);
    tern_free(text);
    TERN_GOTO_IF_ERR(status, status, fail);
    TERN_GOTO_IF_ERR(status, read_lists(out), fail);
    return TERN_OK;
fail:
    tern_vocab_fini(out);
    return status;
}

void tern_vocab_fini(struct tern_vocab *vocab)
{
    tern_json_close(vocab->root);
    tern_free(vocab->tokens);
    tern_free(vocab->path);
    *vocab = (struct tern_vocab){0};
}

int64_t tern_vocab_find(const struct tern_vocab *vocab, const char *text)
{
    size_t bytes = strlen(text);
    for (int64_t id = 0; id < vocab->count; id++) {
        const struct tern_vocab_token *token = &vocab->tokens[id];
        if (token->text != NULL && token->bytes == bytes && memcmp(token->text, text, bytes) == 0) {
            return id;
        }
    }
    return -1;
}
