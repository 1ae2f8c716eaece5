/* hf_vocab.c - a tokenizer.json out of a GGUF file's metadata: byte-level BPE, and SentencePiece's as
 * BPE with bytes as a way out, whose merges follow from the scores. */
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"
#include "runtime/export/vocab.h"

#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* GGUF's names of how a text is cut before it is merged, and what a tokenizer.json says for each. */
static const struct pre {
    const char *name;
    const char
        *like; /* the name that tern_vocab_pattern knows; NULL: GPT-2's, which needs no words */
    bool has_digits, composes, ignores_merges, adds_bos;
} g_pres[] = {
    {"gpt-2", NULL, false, false, false, false},
    {"gpt2", NULL, false, false, false, false},
    {"phi-2", NULL, false, false, false, false},
    {"olmo", NULL, false, false, false, false},
    {"smollm", NULL, true, false, false, false},
    {"starcoder", NULL, true, false, false, false},
    {"refact", NULL, true, false, false, false},
    {"llama-bpe", "llama-bpe", false, false, true, true},
    {"llama3", "llama-bpe", false, false, true, true},
    {"llama-v3", "llama-bpe", false, false, true, true},
    {"qwen2", "qwen2", false, true, false, false},
    {"deepseek-r1-qwen", "qwen2", false, true, false, false},
};

struct piece {
    const char *text;
    size_t bytes;
    int32_t id;
};

struct source {
    const struct tern_gguf *gguf;
    struct tern_gguf_array tokens, kinds, scores;
    bool has_kinds, is_spm;
    const struct pre *pre;
    struct piece *sorted; /* of SentencePiece's kind: normal tokens by text, (sorted_count) */
    int64_t sorted_count;
    struct tern_text *out;
};

static int64_t kind_of(const struct source *s, int64_t id)
{
    return s->has_kinds ? tern_gguf_array_i64(&s->kinds, id) : TERN_VOCAB_NORMAL;
}

static tern_status add(struct source *s, const char *text)
{
    return tern_text_append(s->out, text, strlen(text));
}

static tern_status quote_token(struct source *s, int64_t id)
{
    size_t bytes;
    const char *text = tern_gguf_array_string(&s->tokens, id, &bytes);
    return tern_json_quote(s->out, text, bytes);
}

static tern_status flag(const struct source *s, const char *key, bool fallback, bool *out)
{
    *out = fallback;
    return tern_gguf_has(s->gguf, key) ? tern_gguf_bool(s->gguf, key, out) : TERN_OK;
}

/* ---- what is in the file ---- */

static tern_status find_pre(struct source *s)
{
    const char *name = "";
    size_t bytes = 0;
    if (tern_gguf_has(s->gguf, KEY("pre"))) {
        TERN_RETURN_IF_ERR(tern_gguf_string(s->gguf, KEY("pre"), &name, &bytes));
    }
    for (size_t i = 0; i < sizeof g_pres / sizeof *g_pres; i++) {
        if (tern_gguf_string_is(s->gguf, KEY("pre"), g_pres[i].name)) {
            s->pre = &g_pres[i];
            return TERN_OK;
        }
    }
    return tern_fail(
        TERN_ERR_UNSUPPORTED,
        "%s: key " KEY("pre") " is '%.*s', which has no tokenizer.json that is known "
                              "here; expected gpt-2, smollm, llama-bpe, qwen2 or their like",
        tern_gguf_path(s->gguf), (int)(bytes < 60 ? bytes : 60), name);
}

static tern_status open_source(struct source *s)
{
    TERN_RETURN_IF_ERR(tern_gguf_array(s->gguf, KEY("tokens"), TERN_GGUF_STRINGS, &s->tokens));
    s->has_kinds = tern_gguf_has(s->gguf, KEY("token_type"));
    if (s->has_kinds) {
        TERN_RETURN_IF_ERR(
            tern_gguf_array(s->gguf, KEY("token_type"), TERN_GGUF_INTEGERS, &s->kinds));
    }
    s->is_spm = tern_gguf_string_is(s->gguf, KEY("model"), "llama");
    if (s->is_spm) {
        TERN_RETURN_IF_ERR(tern_gguf_array(s->gguf, KEY("scores"), TERN_GGUF_FLOATS, &s->scores));
    } else if (tern_gguf_string_is(s->gguf, KEY("model"), "gpt2")) {
        TERN_RETURN_IF_ERR(find_pre(s));
    } else {
        return tern_fail(
            TERN_ERR_UNSUPPORTED,
            "%s: key " KEY("model") " is neither 'gpt2' nor 'llama': no tokenizer.json "
                                    "can be made of it",
            tern_gguf_path(s->gguf));
    }
    if ((s->has_kinds && s->kinds.count != s->tokens.count) ||
        (s->is_spm && s->scores.count != s->tokens.count)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: found %lld tokens, %lld types and %lld scores, expected as many of "
                         "each",
                         tern_gguf_path(s->gguf), (long long)s->tokens.count,
                         (long long)s->kinds.count, (long long)s->scores.count);
    }
    return TERN_OK;
}

/* ---- merges of SentencePiece ---- */

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    size_t least = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, least);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static const struct piece *find_piece(const struct source *s, const char *text, size_t bytes)
{
    struct piece key = {text, bytes, 0};
    return bsearch(&key, s->sorted, (size_t)s->sorted_count, sizeof key, compare_pieces);
}

static tern_status sort_pieces(struct source *s)
{
    s->sorted = tern_alloc("vocab", (size_t)s->tokens.count * sizeof *s->sorted);
    if (s->sorted == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot sort %lld tokens", (long long)s->tokens.count);
    }
    for (int64_t id = 0; id < s->tokens.count; id++) {
        int64_t kind = kind_of(s, id);
        if (kind == TERN_VOCAB_NORMAL || kind == TERN_VOCAB_USER_DEFINED) {
            struct piece *piece = &s->sorted[s->sorted_count++];
            piece->text = tern_gguf_array_string(&s->tokens, id, &piece->bytes);
            piece->id = (int32_t)id;
        }
    }
    qsort(s->sorted, (size_t)s->sorted_count, sizeof *s->sorted, compare_pieces);
    return TERN_OK;
}

struct merge {
    float score; /* of the result */
    int32_t left, right;
};

/* Best score first; of one result's the earlier tokens first, as Hugging Face's converter has it. */
static int compare_merges(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    if (x->left != y->left) {
        return x->left < y->left ? -1 : 1;
    }
    return (x->right > y->right) - (x->right < y->right);
}

struct merges {
    struct merge *items;
    int64_t count, capacity;
};

/* Every cut of a token into two others. */
static tern_status cut_token(const struct source *s, int64_t id, struct merges *merges)
{
    size_t bytes;
    const char *text = tern_gguf_array_string(&s->tokens, id, &bytes);
    for (size_t cut = 1; cut < bytes && cut < TERN_STORED_NAME_BYTES; cut++) {
        bool is_inside = ((unsigned char)text[cut] & 0xc0) == 0x80; /* of a character */
        const struct piece *left = is_inside ? NULL : find_piece(s, text, cut);
        const struct piece *right = left == NULL ? NULL : find_piece(s, text + cut, bytes - cut);
        if (right == NULL) {
            continue;
        }
        if (merges->count == merges->capacity) {
            int64_t capacity = merges->capacity > 0 ? 2 * merges->capacity : 4096;
            void *items =
                tern_realloc("vocab", merges->items, (size_t)capacity * sizeof *merges->items);
            if (items == NULL) {
                return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld merges",
                                 (long long)capacity);
            }
            merges->items = items;
            merges->capacity = capacity;
        }
        merges->items[merges->count++] =
            (struct merge){(float)tern_gguf_array_f64(&s->scores, id), left->id, right->id};
    }
    return TERN_OK;
}

static tern_status add_spm_merges(struct source *s)
{
    struct merges merges = {0};
    tern_status status;
    TERN_GOTO_IF_ERR(status, sort_pieces(s), out);
    for (int64_t id = 0; id < s->tokens.count; id++) {
        if (kind_of(s, id) == TERN_VOCAB_NORMAL) {
            TERN_GOTO_IF_ERR(status, cut_token(s, id, &merges), out);
        }
    }
    qsort(merges.items, (size_t)merges.count, sizeof *merges.items, compare_merges);
    for (int64_t i = 0; i < merges.count; i++) {
        TERN_GOTO_IF_ERR(status, add(s, i > 0 ? ",\n[" : "\n["), out);
        TERN_GOTO_IF_ERR(status, quote_token(s, merges.items[i].left), out);
        TERN_GOTO_IF_ERR(status, add(s, ","), out);
        TERN_GOTO_IF_ERR(status, quote_token(s, merges.items[i].right), out);
        TERN_GOTO_IF_ERR(status, add(s, "]"), out);
    }
out:
    tern_free(merges.items);
    tern_free(s->sorted);
    return status;
}

static tern_status add_merges(struct source *s)
{
    struct tern_gguf_array merges;
    if (s->is_spm) {
        return add_spm_merges(s);
    }
    TERN_RETURN_IF_ERR(tern_gguf_array(s->gguf, KEY("merges"), TERN_GGUF_STRINGS, &merges));
    for (int64_t i = 0; i < merges.count; i++) {
        size_t bytes;
        const char *text = tern_gguf_array_string(&merges, i, &bytes);
        const char *blank = memchr(text, ' ', bytes);
        if (blank == NULL) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: " KEY("merges") "[%lld] has no blank, expected one between two "
                                                  "tokens",
                             tern_gguf_path(s->gguf), (long long)i);
        }
        size_t left = (size_t)(blank - text);
        TERN_RETURN_IF_ERR(add(s, i > 0 ? ",\n[" : "\n["));
        TERN_RETURN_IF_ERR(tern_json_quote(s->out, text, left));
        TERN_RETURN_IF_ERR(add(s, ","));
        TERN_RETURN_IF_ERR(tern_json_quote(s->out, blank + 1, bytes - left - 1));
        TERN_RETURN_IF_ERR(add(s, "]"));
    }
    return TERN_OK;
}

/* ---- the parts of the file ---- */

static tern_status add_added_tokens(struct source *s)
{
    bool is_first = true;
    TERN_RETURN_IF_ERR(add(s, "\"added_tokens\":["));
    for (int64_t id = 0; id < s->tokens.count; id++) {
        int64_t kind = kind_of(s, id);
        bool is_special = kind == TERN_VOCAB_CONTROL || kind == TERN_VOCAB_UNKNOWN;
        if (!is_special && kind != TERN_VOCAB_USER_DEFINED) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(
            s->out, "%s\n{\"id\":%lld,\"content\":", is_first ? "" : ",", (long long)id));
        TERN_RETURN_IF_ERR(quote_token(s, id));
        TERN_RETURN_IF_ERR(
            tern_text_printf(s->out,
                             ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                             "\"normalized\":false,\"special\":%s}",
                             is_special ? "true" : "false"));
        is_first = false;
    }
    return add(s, "],\n");
}

#define BYTE_LEVEL(cuts) \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" cuts \
    "}"

static tern_status add_byte_level(struct source *s)
{
    TERN_RETURN_IF_ERR(add(s, s->pre->composes ? "\"normalizer\":{\"type\":\"NFC\"},\n"
                                               : "\"normalizer\":null,\n"));
    if (s->pre->like != NULL) {
        const char *pattern = tern_vocab_pattern(s->pre->like);
        TERN_RETURN_IF_ERR(add(s, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                                  "{\"type\":\"Split\",\"pattern\":{\"Regex\":"));
        TERN_RETURN_IF_ERR(tern_json_quote(s->out, pattern, strlen(pattern)));
        TERN_RETURN_IF_ERR(
            add(s, "},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL("false") "]},\n"));
    } else if (s->pre->has_digits) {
        TERN_RETURN_IF_ERR(
            add(s, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                   "{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL("true") "]},\n"));
    } else {
        TERN_RETURN_IF_ERR(add(s, "\"pre_tokenizer\":" BYTE_LEVEL("true") ",\n"));
    }
    return add(s, "\"decoder\":" BYTE_LEVEL("true") ",\n");
}

#define SPACE "\"\\u2581\""

static tern_status add_spm(struct source *s)
{
    bool adds_space;
    TERN_RETURN_IF_ERR(flag(s, KEY("add_space_prefix"), true, &adds_space));
    TERN_RETURN_IF_ERR(add(s, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["));
    if (adds_space) {
        TERN_RETURN_IF_ERR(add(s, "{\"type\":\"Prepend\",\"prepend\":" SPACE "},"));
    }
    TERN_RETURN_IF_ERR(
        add(s, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":" SPACE "}]},\n"
               "\"pre_tokenizer\":null,\n"
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
               "{\"type\":\"Replace\",\"pattern\":{\"String\":" SPACE "},\"content\":\" \"},"
               "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"));
    if (adds_space) {
        TERN_RETURN_IF_ERR(
            add(s, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"));
    }
    return add(s, "]},\n");
}

/* A BOS before each text, where the file says so or its kind has it. */
static tern_status add_post_processor(struct source *s)
{
    bool adds_bos;
    int64_t id = -1;
    TERN_RETURN_IF_ERR(flag(s, KEY("add_bos_token"), s->is_spm || s->pre->adds_bos, &adds_bos));
    if (adds_bos && tern_gguf_has(s->gguf, KEY("bos_token_id"))) {
        TERN_RETURN_IF_ERR(tern_gguf_i64(s->gguf, KEY("bos_token_id"), &id));
    }
    if (id < 0 || id >= s->tokens.count) {
        return add(s, "\"post_processor\":null,\n");
    }
    static const char *const parts[] = {
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
        "\"id\":",
        ",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"SpecialToken\":"
        "{\"id\":",
        ",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":",
        ",\"type_id\":1}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{",
        ":{\"id\":",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        TERN_RETURN_IF_ERR(add(s, parts[i]));
        TERN_RETURN_IF_ERR(quote_token(s, id));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(s->out, ",\"ids\":[%lld],\"tokens\":[", (long long)id));
    TERN_RETURN_IF_ERR(quote_token(s, id));
    return add(s, "]}}},\n");
}

static tern_status add_model(struct source *s)
{
    bool is_first = true;
    int64_t unknown = -1;
    if (s->is_spm && tern_gguf_has(s->gguf, KEY("unknown_token_id"))) {
        TERN_RETURN_IF_ERR(tern_gguf_i64(s->gguf, KEY("unknown_token_id"), &unknown));
    }
    TERN_RETURN_IF_ERR(add(s, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":"));
    TERN_RETURN_IF_ERR(unknown >= 0 && unknown < s->tokens.count ? quote_token(s, unknown)
                                                                 : add(s, "null"));
    TERN_RETURN_IF_ERR(tern_text_printf(
        s->out,
        ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":%s,"
        "\"byte_fallback\":%s,\"ignore_merges\":%s,\"vocab\":{",
        s->is_spm ? "true" : "false", s->is_spm ? "true" : "false",
        !s->is_spm && s->pre->ignores_merges ? "true" : "false"));
    for (int64_t id = 0; id < s->tokens.count; id++) {
        if (kind_of(s, id) == TERN_VOCAB_UNUSED) {
            continue;
        }
        TERN_RETURN_IF_ERR(add(s, is_first ? "\n" : ",\n"));
        TERN_RETURN_IF_ERR(quote_token(s, id));
        TERN_RETURN_IF_ERR(tern_text_printf(s->out, ":%lld", (long long)id));
        is_first = false;
    }
    TERN_RETURN_IF_ERR(add(s, "},\n\"merges\":["));
    TERN_RETURN_IF_ERR(add_merges(s));
    return add(s, "]}}\n");
}

tern_status tern_export_print_tokenizer(const struct tern_gguf *gguf, struct tern_text *out)
{
    struct source s = {.gguf = gguf, .out = out};
    TERN_RETURN_IF_ERR(open_source(&s));
    TERN_RETURN_IF_ERR(add(&s, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n"));
    TERN_RETURN_IF_ERR(add_added_tokens(&s));
    TERN_RETURN_IF_ERR(s.is_spm ? add_spm(&s) : add_byte_level(&s));
    TERN_RETURN_IF_ERR(add_post_processor(&s));
    return add_model(&s);
}
