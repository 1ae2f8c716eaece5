/* tokenizer_gguf.c - the tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") and
 * SentencePiece-style BPE ("llama"), as llama.cpp reads them. */
#include "io/gguf.h"
#include "io/hash.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY(name) "tokenizer.ggml." name

enum {
    NONE = -1
};

/* tokenizer.ggml.token_type */
enum token_type {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER_DEFINED = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

struct source {
    const struct tern_gguf *gguf;
    struct tern_tokenizer *tokenizer;
    struct tern_gguf_array tokens, types;
    bool has_types;
};

/* What tokenizer.ggml.pre stands for. Of two steps the first is a run of numbers apart. */
static const struct pre {
    const char *name;
    enum tern_split_kind first, second; /* second PATTERN_COUNT: one step */
    bool composes;                      /* NFC, as the tokenizers that it was made from */
    bool ignores_merges, adds_bos;
} pres[] = {
    {"gpt-2", TERN_SPLIT_GPT2, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"gpt2", TERN_SPLIT_GPT2, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"phi-2", TERN_SPLIT_GPT2, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"mpt", TERN_SPLIT_GPT2, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"olmo", TERN_SPLIT_GPT2, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"smollm", TERN_SPLIT_DIGIT, TERN_SPLIT_GPT2, false, false, false},
    {"starcoder", TERN_SPLIT_DIGIT, TERN_SPLIT_GPT2, false, false, false},
    {"refact", TERN_SPLIT_DIGIT, TERN_SPLIT_GPT2, false, false, false},
    {"command-r", TERN_SPLIT_DIGIT, TERN_SPLIT_GPT2, true, false, false},
    {"llama-bpe", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, true, true},
    {"llama3", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, true, true},
    {"llama-v3", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, true, true},
    {"pixtral", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, true, true},
    {"smaug-bpe", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"dbrx", TERN_SPLIT_LLAMA3, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"qwen2", TERN_SPLIT_QWEN2, TERN_SPLIT_PATTERN_COUNT, true, false, false},
    {"deepseek-r1-qwen", TERN_SPLIT_QWEN2, TERN_SPLIT_PATTERN_COUNT, true, false, false},
    {"qwen35", TERN_SPLIT_QWEN35, TERN_SPLIT_PATTERN_COUNT, false, false, false},
    {"tekken", TERN_SPLIT_TEKKEN, TERN_SPLIT_PATTERN_COUNT, false, true, true},
};

static int64_t type_of(const struct source *source, int64_t id)
{
    return source->has_types ? tern_gguf_array_i64(&source->types, id) : TYPE_NORMAL;
}

/* A flag that may be missing. */
static tern_status flag(const struct source *source, const char *key, bool *value)
{
    return tern_gguf_has(source->gguf, key) ? tern_gguf_bool(source->gguf, key, value) : TERN_OK;
}

/* An id that may be missing (then NONE). */
static tern_status token_id(const struct source *source, const char *key, int32_t *out)
{
    int64_t id = NONE;
    *out = NONE;
    if (!tern_gguf_has(source->gguf, key)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_i64(source->gguf, key, &id));
    if (id < 0 || id >= source->tokens.count) {
        return tern_fail(TERN_ERR_INPUT, "%s: %s: found %" PRId64 ", expected 0 to %" PRId64,
                         tern_gguf_path(source->gguf), key, id, source->tokens.count - 1);
    }
    *out = (int32_t)id;
    return TERN_OK;
}

static bool arch_or_name_has(const struct source *source, const char *what)
{
    static const char *const keys[] = {"general.architecture", "general.name"};
    for (int i = 0; i < 2; i++) {
        const char *text;
        size_t bytes;
        if (tern_gguf_has(source->gguf, keys[i]) &&
            tern_gguf_string(source->gguf, keys[i], &text, &bytes) == TERN_OK) {
            for (size_t at = 0; at + strlen(what) <= bytes; at++) {
                if (strncasecmp(text + at, what, strlen(what)) == 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- tokens ---- */

static tern_status read_arrays(struct source *source)
{
    const struct tern_gguf *gguf = source->gguf;
    TERN_RETURN_IF_ERR(tern_gguf_array(gguf, KEY("tokens"), TERN_GGUF_STRINGS, &source->tokens));
    if (source->tokens.count < 1 || source->tokens.count > TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: " KEY("tokens") ": %" PRId64 " of them; expected 1 to %d",
                         tern_gguf_path(gguf), source->tokens.count, TERN_VOCAB_MAX);
    }
    source->has_types = tern_gguf_has(gguf, KEY("token_type"));
    if (source->has_types) {
        TERN_RETURN_IF_ERR(
            tern_gguf_array(gguf, KEY("token_type"), TERN_GGUF_INTEGERS, &source->types));
        if (source->types.count < source->tokens.count) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: " KEY("token_type") ": %" PRId64 " of them; expected %" PRId64
                                                      ", one a token",
                             tern_gguf_path(gguf), source->types.count, source->tokens.count);
        }
    }
    return TERN_OK;
}

static tern_status add_tokens(const struct source *source)
{
    for (int64_t id = 0; id < source->tokens.count; id++) {
        size_t bytes;
        const char *text = tern_gguf_array_string(&source->tokens, id, &bytes);
        if (bytes > TERN_TOKEN_BYTES_MAX) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: " KEY("tokens") "[%" PRId64 "]: %zu bytes; expected at most %d",
                             tern_gguf_path(source->gguf), id, bytes, TERN_TOKEN_BYTES_MAX);
        }
        if (bytes > 0) { /* an empty one is a place that nothing stands for */
            TERN_RETURN_IF_ERR(
                tern_tokenizer_add_token(source->tokenizer, (int32_t)id, text, bytes));
        }
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_reserve(source->tokenizer, source->tokens.count));
    return tern_tokenizer_index_names(source->tokenizer, source->tokens.count);
}

static bool is_added(int64_t type)
{
    return type == TYPE_CONTROL || type == TYPE_USER_DEFINED || type == TYPE_UNKNOWN;
}

/* Control, unknown and user-defined tokens are found in text as it is written. */
static tern_status add_added(const struct source *source)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    int64_t count = 0;
    for (int64_t id = 0; id < source->tokens.count; id++) {
        count += is_added(type_of(source, id));
    }
    tokenizer->added = tern_alloc_zero("added tokens", (size_t)count, sizeof *tokenizer->added);
    if (tokenizer->added == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " added tokens", count);
    }
    bool strips = tokenizer->model == TERN_MODEL_CHARS &&
                  (arch_or_name_has(source, "phi3") || arch_or_name_has(source, "phi-3"));
    for (int64_t id = 0; id < source->tokens.count; id++) {
        int64_t type = type_of(source, id);
        size_t bytes;
        const char *text = tern_gguf_array_string(&source->tokens, id, &bytes);
        if (!is_added(type) || bytes == 0) {
            continue;
        }
        if (bytes > TERN_SPECIAL_BYTES_MAX) {
            return tern_fail(
                TERN_ERR_INPUT,
                "%s: " KEY("tokens") "[%" PRId64 "], a special one: %zu bytes; expected at most %d",
                tern_gguf_path(source->gguf), id, bytes, TERN_SPECIAL_BYTES_MAX);
        }
        struct tern_added *added = &tokenizer->added[tokenizer->added_count++];
        added->id = (int32_t)id;
        added->is_special = type != TYPE_USER_DEFINED;
        tokenizer->pieces[id].is_special = added->is_special;
        TERN_RETURN_IF_ERR(tern_string_set(&added->text, text, bytes));
        /* Phi-3's own file says so; GGUF has no place for it. */
        added->strips_right = strips && strcmp(added->text.data, "<unk>") != 0 &&
                              strcmp(added->text.data, "<s>") != 0 &&
                              strcmp(added->text.data, "<|endoftext|>") != 0;
    }
    return TERN_OK;
}

/* ---- byte-level BPE ---- */

static tern_status read_pre(const struct source *source, const struct pre **out)
{
    const struct tern_gguf *gguf = source->gguf;
    const char *name = "missing";
    size_t bytes = strlen(name);
    if (tern_gguf_has(gguf, KEY("pre"))) {
        TERN_RETURN_IF_ERR(tern_gguf_string(gguf, KEY("pre"), &name, &bytes));
    } else if (tern_gguf_string_is(gguf, "general.architecture", "gpt2")) {
        name = "gpt-2"; /* files from before the key was there */
        bytes = strlen(name);
    }
    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        if (strlen(pres[i].name) == bytes && memcmp(pres[i].name, name, bytes) == 0) {
            *out = &pres[i];
            return TERN_OK;
        }
    }
    return tern_fail(
        TERN_ERR_UNSUPPORTED,
        "%s: " KEY("pre") " '%.*s' is not supported; expected gpt-2, smollm, llama-bpe, "
                          "qwen2, qwen35, tekken or another name of one of them",
        tern_gguf_path(gguf), (int)(bytes < 64 ? bytes : 64), name);
}

static tern_status read_merge(const struct source *source,
                              const char *text,
                              size_t bytes,
                              int64_t rank)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    const char *blank = bytes > 2 ? memchr(text + 1, ' ', bytes - 1) : NULL;
    if (blank == NULL) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: " KEY("merges") "[%" PRId64 "]: found '%.*s', expected 'left right'",
                         tern_gguf_path(source->gguf), rank, (int)(bytes < 64 ? bytes : 64), text);
    }
    size_t left_bytes = (size_t)(blank - text);
    int32_t left = tern_tokenizer_find_text(tokenizer, text, left_bytes);
    int32_t right = tern_tokenizer_find_text(tokenizer, blank + 1, bytes - left_bytes - 1);
    int32_t result = left >= 0 && right >= 0 ? tern_tokenizer_join(tokenizer, left, right) : NONE;
    if (result < 0) {
        return tern_fail(
            TERN_ERR_INPUT,
            "%s: " KEY("merges") "[%" PRId64
                                 "]: '%.*s': its parts and their sum are not all in " KEY("tokens"),
            tern_gguf_path(source->gguf), rank, (int)(bytes < 64 ? bytes : 64), text);
    }
    tern_tokenizer_add_merge(tokenizer, left, right, (int32_t)rank, result);
    return TERN_OK;
}

static tern_status read_bytes(struct source *source, bool *adds_bos)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    const struct pre *pre = NULL;
    struct tern_gguf_array merges;
    TERN_RETURN_IF_ERR(read_pre(source, &pre));
    tokenizer->model = TERN_MODEL_BYTES;
    tokenizer->decode.is_byte_level = true;
    tokenizer->ignore_merges = pre->ignores_merges;
    *adds_bos = pre->adds_bos;
    tokenizer->splits[tokenizer->split_count++].kind = pre->first;
    if (pre->second != TERN_SPLIT_PATTERN_COUNT) {
        tokenizer->splits[tokenizer->split_count++].kind = pre->second;
    }
    if (pre->composes) {
        tokenizer->normal[tokenizer->normal_count++].kind = TERN_NORMAL_NFC;
    }
    TERN_RETURN_IF_ERR(add_tokens(source));
    tern_tokenizer_find_bytes(tokenizer);
    int missing = tern_tokenizer_missing_byte(tokenizer);
    if (missing >= 0) {
        return tern_fail(
            TERN_ERR_INPUT,
            "%s: " KEY("tokens") ": no token for byte 0x%02x; expected one for each that prints",
            tern_gguf_path(source->gguf), (unsigned)missing);
    }
    TERN_RETURN_IF_ERR(tern_gguf_array(source->gguf, KEY("merges"), TERN_GGUF_STRINGS, &merges));
    if (merges.count > TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: " KEY("merges") ": %" PRId64 " of them; expected at most %d",
                         tern_gguf_path(source->gguf), merges.count, TERN_VOCAB_MAX);
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_reserve_merges(tokenizer, merges.count));
    for (int64_t i = 0; i < merges.count; i++) {
        size_t bytes;
        const char *text = tern_gguf_array_string(&merges, i, &bytes);
        TERN_RETURN_IF_ERR(read_merge(source, text, bytes, i));
    }
    return TERN_OK;
}

/* ---- SentencePiece-style BPE ---- */

struct scored {
    double score;
    int32_t id;
};

static int compare_scored(const void *left, const void *right)
{
    double a = ((const struct scored *)left)->score;
    double b = ((const struct scored *)right)->score;
    return (a < b) - (a > b);
}

/* A token's rank is the place of its score, best first, equal ones together; control tokens, which no
 * merge makes, have none. */
static tern_status rank_tokens(const struct source *source, const struct tern_gguf_array *scores)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    int64_t count = source->tokens.count;
    struct scored *order = tern_alloc("token scores", (size_t)count * sizeof *order);
    tokenizer->token_ranks =
        tern_alloc("token ranks", (size_t)count * sizeof *tokenizer->token_ranks);
    if (order == NULL || tokenizer->token_ranks == NULL) {
        tern_free(order);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the ranks of %" PRId64 " tokens", count);
    }
    tern_status status = TERN_OK;
    for (int64_t id = 0; id < count && status == TERN_OK; id++) {
        order[id] = (struct scored){tern_gguf_array_f64(scores, id), (int32_t)id};
        if (isnan(order[id].score)) {
            status = tern_fail(TERN_ERR_INPUT,
                               "%s: " KEY("scores") "[%" PRId64 "]: found NaN, expected a number",
                               tern_gguf_path(source->gguf), id);
        }
    }
    if (status == TERN_OK) {
        qsort(order, (size_t)count, sizeof *order, compare_scored);
        int32_t rank = 0;
        for (int64_t i = 0; i < count; i++) {
            rank += i > 0 && order[i].score < order[i - 1].score;
            int64_t type = type_of(source, order[i].id);
            bool is_made = type == TYPE_NORMAL || type == TYPE_USER_DEFINED || type == TYPE_UNUSED;
            tokenizer->token_ranks[order[i].id] = is_made ? rank : NONE;
        }
        tokenizer->rank_count = rank + 1;
    }
    tern_free(order);
    return status;
}

static tern_status read_marked_steps(struct source *source)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    bool adds_blank = true;
    TERN_RETURN_IF_ERR(flag(source, KEY("add_space_prefix"), &adds_blank));
    tokenizer->decode.has_bytes = true;
    tokenizer->decode.replace_count = 1;
    TERN_RETURN_IF_ERR(tern_string_set(&tokenizer->decode.from[0], tern_mark, TERN_MARK_BYTES));
    TERN_RETURN_IF_ERR(tern_string_set(&tokenizer->decode.to[0], " ", 1));
    if (adds_blank) {
        tokenizer->first_rule = TERN_FIRST_STRIPS;
        tokenizer->strip_blanks = 1;
        struct tern_normal_step *step = &tokenizer->normal[tokenizer->normal_count++];
        step->kind = TERN_NORMAL_PREPEND;
        TERN_RETURN_IF_ERR(tern_string_set(&step->to, tern_mark, TERN_MARK_BYTES));
    }
    struct tern_normal_step *step = &tokenizer->normal[tokenizer->normal_count++];
    step->kind = TERN_NORMAL_REPLACE;
    TERN_RETURN_IF_ERR(tern_string_set(&step->from, " ", 1));
    return tern_string_set(&step->to, tern_mark, TERN_MARK_BYTES);
}

static tern_status read_marked(struct source *source)
{
    struct tern_tokenizer *tokenizer = source->tokenizer;
    struct tern_gguf_array scores;
    tokenizer->model = TERN_MODEL_CHARS;
    tokenizer->has_fallback = true;
    TERN_RETURN_IF_ERR(read_marked_steps(source));
    TERN_RETURN_IF_ERR(add_tokens(source));
    tern_tokenizer_find_bytes(tokenizer);
    TERN_RETURN_IF_ERR(token_id(source, KEY("unknown_token_id"), &tokenizer->unknown_id));
    bool has_bytes = true;
    for (int byte = 0; byte < 256; byte++) {
        has_bytes = has_bytes && tokenizer->byte_ids[byte] >= 0;
    }
    if (!has_bytes && tokenizer->unknown_id < 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: " KEY("tokens") ": found neither <0x00> to <0xFF> nor " KEY(
                             "unknown_token_id") "; expected one for what is no token",
                         tern_gguf_path(source->gguf));
    }
    TERN_RETURN_IF_ERR(tern_gguf_array(source->gguf, KEY("scores"), TERN_GGUF_FLOATS, &scores));
    if (scores.count < source->tokens.count) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: " KEY("scores") ": %" PRId64 " of them; expected %" PRId64
                                              ", one a token",
                         tern_gguf_path(source->gguf), scores.count, source->tokens.count);
    }
    return rank_tokens(source, &scores);
}

/* ---- around it ---- */

/* A beginning or an end that is put around texts. */
static tern_status frame(const struct source *source,
                         const char *key,
                         bool adds,
                         int32_t id,
                         int32_t **ids_out,
                         int *count_out)
{
    TERN_RETURN_IF_ERR(flag(source, key, &adds));
    if (!adds || (id < 0 && !tern_gguf_has(source->gguf, key))) {
        return TERN_OK;
    }
    if (id < 0) {
        return tern_fail(TERN_ERR_INPUT, "%s: %s is set, but the id of that token is missing",
                         tern_gguf_path(source->gguf), key);
    }
    *ids_out = tern_alloc("template ids", sizeof **ids_out);
    if (*ids_out == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the template's ids");
    }
    (*ids_out)[0] = id;
    *count_out = 1;
    return TERN_OK;
}

/* Of what makes the ids: the file may be 16 GB of weights. */
static tern_status hash_metadata(const struct source *source)
{
    static const char *const lists[] = {KEY("tokens"), KEY("merges")};
    struct tern_hash *hash;
    TERN_RETURN_IF_ERR(tern_hash_create(&hash));
    for (int i = 0; i < 2; i++) {
        struct tern_gguf_array array;
        if (!tern_gguf_has(source->gguf, lists[i]) ||
            tern_gguf_array(source->gguf, lists[i], TERN_GGUF_STRINGS, &array) != TERN_OK) {
            continue;
        }
        for (int64_t j = 0; j < array.count; j++) {
            size_t bytes;
            const char *text = tern_gguf_array_string(&array, j, &bytes);
            tern_hash_update(hash, &bytes, sizeof bytes);
            tern_hash_update(hash, text, bytes);
        }
    }
    const struct tern_tokenizer *tokenizer = source->tokenizer;
    for (int64_t id = 0; id < source->tokens.count; id++) {
        int64_t type = type_of(source, id);
        tern_hash_update(hash, &type, sizeof type);
        if (tokenizer->token_ranks != NULL) {
            tern_hash_update(hash, &tokenizer->token_ranks[id], sizeof *tokenizer->token_ranks);
        }
    }
    int32_t rest[] = {(int32_t)tokenizer->splits[0].kind, tokenizer->split_count,
                      tokenizer->normal_count, tokenizer->ignore_merges};
    tern_hash_update(hash, rest, sizeof rest);
    tern_hash_hex(hash, source->tokenizer->hash);
    tern_hash_destroy(hash);
    return TERN_OK;
}

tern_status tern_tokenizer_parse_gguf(struct tern_tokenizer *tokenizer, const char *path)
{
    struct source source = {.tokenizer = tokenizer};
    struct tern_gguf *gguf = NULL;
    tern_status status;
    bool adds_bos = true;
    TERN_RETURN_IF_ERR(tern_gguf_open(path, &gguf));
    source.gguf = gguf;
    bool is_marked = tern_gguf_string_is(gguf, KEY("model"), "llama");
    if (!is_marked && !tern_gguf_string_is(gguf, KEY("model"), "gpt2")) {
        const char *name = "";
        size_t bytes = 0;
        status = tern_gguf_string(gguf, KEY("model"), &name, &bytes);
        if (status == TERN_OK) {
            status =
                tern_fail(TERN_ERR_UNSUPPORTED,
                          "%s: " KEY("model") " '%.*s' is not supported; expected gpt2 or llama",
                          path, (int)(bytes < 64 ? bytes : 64), name);
        }
        goto close_gguf;
    }
    TERN_GOTO_IF_ERR(status, read_arrays(&source), close_gguf);
    TERN_GOTO_IF_ERR(status, is_marked ? read_marked(&source) : read_bytes(&source, &adds_bos),
                     close_gguf);
    TERN_GOTO_IF_ERR(status, add_added(&source), close_gguf);
    TERN_GOTO_IF_ERR(status, token_id(&source, KEY("bos_token_id"), &tokenizer->bos_id),
                     close_gguf);
    TERN_GOTO_IF_ERR(status, token_id(&source, KEY("eos_token_id"), &tokenizer->eos_id),
                     close_gguf);
    TERN_GOTO_IF_ERR(status,
                     frame(&source, KEY("add_bos_token"), adds_bos, tokenizer->bos_id,
                           &tokenizer->prefix_ids, &tokenizer->prefix_count),
                     close_gguf);
    TERN_GOTO_IF_ERR(status,
                     frame(&source, KEY("add_eos_token"), false, tokenizer->eos_id,
                           &tokenizer->suffix_ids, &tokenizer->suffix_count),
                     close_gguf);
    status = hash_metadata(&source);
close_gguf:
    tern_gguf_close(gguf);
    return status;
}
