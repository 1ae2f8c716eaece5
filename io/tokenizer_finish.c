/* tokenizer_finish.c - what follows from a whole vocabulary: where words and texts may be cut, what
 * kind of tokenizer it is in words. */
#include "io/tokenizer_internal.h"

#include <string.h>

static bool begins_with_mark(const char *text, size_t bytes)
{
    return bytes >= TERN_MARK_BYTES && memcmp(text, tern_mark, TERN_MARK_BYTES) == 0;
}

/* The same where texts merge: what stands before a mark in some token. */
static void find_breaks_in_tokens(struct tern_tokenizer *tokenizer)
{
    for (int64_t id = 0; id < tokenizer->vocab_size; id++) {
        const struct tern_piece *piece = &tokenizer->pieces[id];
        const char *text = tokenizer->blob.data + piece->name;
        for (size_t at = 1; piece->is_present && at + TERN_MARK_BYTES <= piece->name_bytes; at++) {
            if (begins_with_mark(text + at, TERN_MARK_BYTES)) {
                tokenizer->joins_mark[(uint8_t)text[at - 1]] = true;
            }
        }
    }
    tokenizer->breaks_at_marks = tern_tokenizer_find(tokenizer, tern_mark, TERN_MARK_BYTES) >= 0;
}

/* Which bytes may stand before a mark that a merge joins to them. Only the last byte of a character
 * is looked at: some that never join count as joining. */
static void find_breaks(struct tern_tokenizer *tokenizer)
{
    bool *joins = tokenizer->joins_mark;
    const char *blob = tokenizer->blob.data;
    bool all_join = tern_tokenizer_find(tokenizer, tern_mark, TERN_MARK_BYTES) < 0;
    for (uint64_t i = 0; i <= tokenizer->merge_mask && tokenizer->merges != NULL; i++) {
        const struct tern_merge *merge = &tokenizer->merges[i];
        if (merge->key == TERN_MERGE_EMPTY) {
            continue;
        }
        int32_t left_id = (int32_t)(merge->key >> 32);
        const struct tern_piece *left = &tokenizer->pieces[left_id];
        const struct tern_piece *right = &tokenizer->pieces[merge->key & UINT32_MAX];
        if (!begins_with_mark(blob + right->name, right->name_bytes)) {
            continue;
        }
        all_join = all_join || left_id == tokenizer->unknown_id;
        joins[(uint8_t)blob[left->name + left->name_bytes - 1]] = true;
        for (int byte = 0; byte < 256; byte++) {
            joins[byte] = joins[byte] || tokenizer->byte_ids[byte] == left_id;
        }
    }
    if (all_join) {
        memset(joins, true, 256);
    }
    tokenizer->breaks_at_marks = !all_join;
}

static bool is_blank_to_mark(const struct tern_normal_step *step)
{
    return step->kind == TERN_NORMAL_REPLACE && strcmp(step->from.data, " ") == 0 &&
           strcmp(step->to.data, tern_mark) == 0;
}

static enum tern_cut_rule cut_of_bytes(const struct tern_tokenizer *tokenizer)
{
    enum tern_cut_rule rule = TERN_CUT_NEVER;
    bool is_prefixed = false;
    for (int i = 0; i < tokenizer->normal_count; i++) {
        if (tokenizer->normal[i].kind != TERN_NORMAL_NFC) {
            return TERN_CUT_NEVER;
        }
    }
    for (int i = 0; i < tokenizer->split_count; i++) {
        enum tern_split_kind kind = tokenizer->splits[i].kind;
        if (kind == TERN_SPLIT_STRING || kind == TERN_SPLIT_METASPACE) {
            return TERN_CUT_NEVER;
        }
        is_prefixed = is_prefixed || kind == TERN_SPLIT_PREFIX;
        if (kind <= TERN_SPLIT_TEKKEN) {
            rule =
                kind == TERN_SPLIT_GPT2 && rule != TERN_CUT_BLANK ? TERN_CUT_WHITE : TERN_CUT_BLANK;
        }
    }
    return rule == TERN_CUT_WHITE && is_prefixed ? TERN_CUT_BLANK : rule;
}

/* Of the models whose blanks become marks. */
static enum tern_cut_rule cut_of_marks(struct tern_tokenizer *tokenizer)
{
    const struct tern_split_step *split = &tokenizer->splits[0];
    bool has_marks = false;
    for (int i = 0; i < tokenizer->normal_count; i++) {
        const struct tern_normal_step *step = &tokenizer->normal[i];
        if (step->kind == TERN_NORMAL_REPLACE && !is_blank_to_mark(step)) {
            return TERN_CUT_NEVER;
        }
        has_marks = has_marks || step->kind == TERN_NORMAL_REPLACE;
    }
    if (tokenizer->split_count == 1 && split->kind == TERN_SPLIT_METASPACE &&
        strcmp(split->text.data, tern_mark) == 0) {
        has_marks = true;
        if (split->splits) { /* a mark always begins a word */
            memset(tokenizer->joins_mark, false, 256);
            return TERN_CUT_MARK;
        }
    } else if (tokenizer->split_count > 0 &&
               !(has_marks && tokenizer->split_count == 1 && split->kind == TERN_SPLIT_STRING &&
                 strcmp(split->text.data, " ") == 0)) { /* looks for what is gone */
        return TERN_CUT_NEVER;
    }
    bool is_known = has_marks && tokenizer->breaks_at_marks && !tokenizer->ignore_merges;
    return is_known ? TERN_CUT_MARK : TERN_CUT_NEVER;
}

/* A token of the second pass has a blank or a mark inside; where it is found in normalized text, its
 * place in the text as written is not known. */
static tern_status crosses_blanks(const struct tern_tokenizer *tokenizer,
                                  const struct tern_added *added,
                                  bool *out)
{
    struct tern_normalizer normalizer = {0};
    const char *text = added->text.data;
    size_t bytes = added->text.bytes;
    tern_status status = tern_normalize(tokenizer, &normalizer, false, &text, &bytes);
    if (status == TERN_OK && bytes > 1) {
        *out = *out || memchr(text + 1, ' ', bytes - 1) != NULL ||
               memmem(text + 1, bytes - 1, tern_mark, TERN_MARK_BYTES) != NULL;
    }
    tern_normalizer_fini(&normalizer);
    return status;
}

tern_status tern_tokenizer_finish(struct tern_tokenizer *tokenizer)
{
    TERN_RETURN_IF_ERR(tern_added_index(tokenizer));
    if (tokenizer->model == TERN_MODEL_CHARS) {
        if (tokenizer->token_ranks != NULL) {
            find_breaks_in_tokens(tokenizer);
        } else {
            find_breaks(tokenizer);
        }
    }
    tokenizer->cut_rule =
        tokenizer->model == TERN_MODEL_BYTES ? cut_of_bytes(tokenizer) : cut_of_marks(tokenizer);
    bool crosses = false;
    for (int i = 0; i < tokenizer->added_count && tokenizer->normal_count > 0; i++) {
        if (tokenizer->added[i].is_normalized) {
            TERN_RETURN_IF_ERR(crosses_blanks(tokenizer, &tokenizer->added[i], &crosses));
        }
    }
    if (crosses) {
        tokenizer->cut_rule = TERN_CUT_NEVER;
    }
    return TERN_OK;
}

static const char *name_of_split(const struct tern_split_step *step)
{
    static const char *const names[] = {
        [TERN_SPLIT_GPT2] = "GPT-2's pattern",    [TERN_SPLIT_LLAMA3] = "Llama 3's pattern",
        [TERN_SPLIT_QWEN2] = "Qwen 2's pattern",  [TERN_SPLIT_QWEN35] = "Qwen 3.5's pattern",
        [TERN_SPLIT_TEKKEN] = "Tekken's pattern", [TERN_SPLIT_DIGIT] = "digits alone",
        [TERN_SPLIT_DIGITS] = "digits apart",     [TERN_SPLIT_DIGITS3] = "digits in threes",
        [TERN_SPLIT_STRING] = "a fixed string",   [TERN_SPLIT_METASPACE] = "blanks as marks",
        [TERN_SPLIT_PREFIX] = "a blank first",
    };
    return names[step->kind];
}

tern_status tern_tokenizer_describe(const struct tern_tokenizer *tokenizer, struct tern_text *out)
{
    static const char *const models[] = {
        [TERN_MODEL_BYTES] = "byte-level BPE",
        [TERN_MODEL_CHARS] = "BPE over characters",
        [TERN_MODEL_UNIGRAM] = "unigram",
    };
    static const char *const normals[] = {
        [TERN_NORMAL_NFC] = "NFC",
        [TERN_NORMAL_PREPEND] = "prepend",
        [TERN_NORMAL_REPLACE] = "replace",
    };
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "model       %s%s%s\n", models[tokenizer->model],
                         tokenizer->ignore_merges ? ", whole words first" : "",
                         tokenizer->has_fallback ? ", bytes for what is unknown" : ""));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "normalizer  "));
    for (int i = 0; i < tokenizer->normal_count; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%s%s", i > 0 ? ", " : "", normals[tokenizer->normal[i].kind]));
    }
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "%s\nsplit by    ", tokenizer->normal_count == 0 ? "none" : ""));
    for (int i = 0; i < tokenizer->split_count; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%s%s", i > 0 ? ", " : "", name_of_split(&tokenizer->splits[i])));
    }
    return tern_text_printf(out, "%s\n", tokenizer->split_count == 0 ? "nothing" : "");
}
