/* tokenizer_json.c - Hugging Face's tokenizer.json into a vocabulary; what we cannot follow
 * exactly is refused. */
#include "io/tokenizer_json.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

const char *tern_reader_string(const struct tern_json *object, const char *key)
{
    const char *text = tern_json_string(tern_json_get(object, key), NULL);
    return text != NULL ? text : "";
}

bool tern_reader_is_absent(const struct tern_json *value)
{
    enum tern_json_kind kind = tern_json_kind_of(value);
    return kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL;
}

tern_status tern_reader_refuse(const struct tern_tokenizer_reader *reader,
                               const char *what,
                               const char *found,
                               const char *expected)
{
    return tern_fail(TERN_ERR_UNSUPPORTED, "%s: %s '%.256s' is not supported; expected %s",
                     reader->file, what, found, expected);
}

tern_status tern_reader_expect(const struct tern_tokenizer_reader *reader,
                               const struct tern_json *value,
                               const char *what,
                               enum tern_json_kind kind)
{
    enum tern_json_kind found = tern_json_kind_of(value);
    if (found != kind) {
        return tern_fail(TERN_ERR_INPUT, "%s: %s: found %s, expected %s", reader->file, what,
                         tern_json_kind_name(found), tern_json_kind_name(kind));
    }
    return TERN_OK;
}

/* ---- vocabulary ---- */

static tern_status add_token(const struct tern_tokenizer_reader *reader,
                             int64_t id,
                             const char *text,
                             size_t bytes)
{
    if (bytes == 0 || bytes > TERN_TOKEN_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.vocab: the token of id %" PRId64
                         " has %zu bytes; expected 1 to %d",
                         reader->file, id, bytes, TERN_TOKEN_BYTES_MAX);
    }
    const struct tern_tokenizer *tokenizer = reader->tokenizer;
    if (id < tokenizer->vocab_size && tokenizer->pieces[id].is_present) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.vocab[\"%.64s\"]: id %" PRId64 " is given twice", reader->file,
                         text, id);
    }
    return tern_tokenizer_add_token(reader->tokenizer, (int32_t)id, text, bytes);
}

static tern_status read_token(void *context,
                              const char *key,
                              size_t key_bytes,
                              const struct tern_json *value)
{
    const struct tern_tokenizer_reader *reader = context;
    int64_t id;
    if (!tern_json_i64(value, &id) || id < 0 || id >= reader->id_limit) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.vocab[\"%.64s\"]: expected an id from 0 to %" PRId64,
                         reader->file, key, reader->id_limit - 1);
    }
    return add_token(reader, id, key, key_bytes);
}

/* ---- merges ---- */

/* Both texts of merge `item` ("a b" or ["a", "b"]); false if it is neither. */
static bool halves_of_merge(const struct tern_json *item, const char *half[2], size_t bytes[2])
{
    size_t whole;
    const char *text = tern_json_string(item, &whole);
    if (text != NULL) {
        const char *blank = memchr(text, ' ', whole);
        if (blank == NULL || memchr(blank + 1, ' ', whole - (size_t)(blank + 1 - text)) != NULL) {
            return false;
        }
        half[0] = text;
        bytes[0] = (size_t)(blank - text);
        half[1] = blank + 1;
        bytes[1] = whole - bytes[0] - 1;
        return bytes[0] > 0 && bytes[1] > 0;
    }
    for (int i = 0; i < 2; i++) {
        half[i] = tern_json_string(tern_json_item(item, i), &bytes[i]);
        if (half[i] == NULL || bytes[i] == 0) {
            return false;
        }
    }
    return tern_json_count(item) == 2;
}

static tern_status read_merge(struct tern_tokenizer_reader *reader,
                              const struct tern_json *item,
                              int64_t rank)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const char *half[2];
    size_t bytes[2];
    int32_t ids[2];
    if (!halves_of_merge(item, half, bytes)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges[%" PRId64
                         "]: expected \"left right\" or [\"left\", \"right\"]",
                         reader->file, rank);
    }
    for (int i = 0; i < 2; i++) {
        ids[i] = tern_tokenizer_find_text(tokenizer, half[i], bytes[i]);
        if (ids[i] < 0) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: model.merges[%" PRId64 "]: '%.*s' is not in model.vocab",
                             reader->file, rank, (int)(bytes[i] < 64 ? bytes[i] : 64), half[i]);
        }
    }
    int32_t result = tern_tokenizer_join(tokenizer, ids[0], ids[1]);
    if (result < 0) {
        return tern_fail(
            TERN_ERR_INPUT, "%s: model.merges[%" PRId64 "]: '%.*s%.64s' is not in model.vocab",
            reader->file, rank, (int)(bytes[0] < 64 ? bytes[0] : 64), half[0], half[1]);
    }
    tern_tokenizer_add_merge(tokenizer, ids[0], ids[1], (int32_t)rank, result);
    return TERN_OK;
}

static tern_status read_merges(struct tern_tokenizer_reader *reader, const struct tern_json *merges)
{
    int64_t count = tern_json_count(merges);
    if (count > TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges: %" PRId64 " merges; expected at most %d", reader->file,
                         count, TERN_VOCAB_MAX);
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_reserve_merges(reader->tokenizer, count));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(read_merge(reader, tern_json_item(merges, i), i));
    }
    return TERN_OK;
}

/* ---- models ---- */

static tern_status read_model_kind(struct tern_tokenizer_reader *reader,
                                   const struct tern_json *model)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, model, "model", TERN_JSON_OBJECT));
    const char *type = tern_reader_string(model, "type");
    bool is_unigram = strcmp(type, "Unigram") == 0;
    if (strcmp(type, "BPE") != 0 && !is_unigram) {
        return tern_reader_refuse(reader, "model.type", type, "'BPE' or 'Unigram'");
    }
    if (is_unigram && reader->has_byte_level) {
        return tern_reader_refuse(reader, "pre_tokenizer", "ByteLevel", "none with 'Unigram'");
    }
    tokenizer->model = is_unigram               ? TERN_MODEL_UNIGRAM
                       : reader->has_byte_level ? TERN_MODEL_BYTES
                                                : TERN_MODEL_CHARS;
    return TERN_OK;
}

static tern_status check_bytes(const struct tern_tokenizer_reader *reader)
{
    int missing = tern_tokenizer_missing_byte(reader->tokenizer);
    if (missing >= 0) {
        return tern_fail(
            TERN_ERR_UNSUPPORTED,
            "%s: model.vocab: no token for byte 0x%02x; expected one for each of the bytes that "
            "print (a byte-level vocabulary)",
            reader->file, (unsigned)missing);
    }
    return TERN_OK;
}

/* unk_token ("" is none), fuse_unk and byte_fallback of a BPE model. */
static tern_status read_unknown(struct tern_tokenizer_reader *reader, const struct tern_json *model)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    size_t bytes = 0;
    const struct tern_json *unknown = tern_json_get(model, "unk_token");
    const char *name = tern_json_string(unknown, &bytes);
    if (name != NULL && bytes > 0) {
        tokenizer->unknown_id = tern_tokenizer_find_text(tokenizer, name, bytes);
        if (tokenizer->unknown_id < 0) {
            return tern_fail(TERN_ERR_INPUT, "%s: model.unk_token '%.64s' is not in model.vocab",
                             reader->file, name);
        }
    } else if (name == NULL && !tern_reader_is_absent(unknown)) {
        return tern_reader_expect(reader, unknown, "model.unk_token", TERN_JSON_STRING);
    }
    tokenizer->fuses_unknown = tern_json_bool(tern_json_get(model, "fuse_unk"), false);
    tokenizer->has_fallback = tern_json_bool(tern_json_get(model, "byte_fallback"), false);
    if (tokenizer->model == TERN_MODEL_BYTES) {
        return TERN_OK;
    }
    if (tokenizer->unknown_id < 0 && !tokenizer->has_fallback) {
        return tern_reader_refuse(reader, "model",
                                  "BPE over characters that leaves out unknown ones",
                                  "byte_fallback, an unk_token, or ByteLevel in pre_tokenizer");
    }
    return TERN_OK;
}

static tern_status read_bpe(struct tern_tokenizer_reader *reader, const struct tern_json *model)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const struct tern_json *dropout = tern_json_get(model, "dropout");
    double chance = 1;
    if (!tern_reader_is_absent(dropout) && !(tern_json_f64(dropout, &chance) && chance == 0)) {
        return tern_reader_refuse(reader, "model.dropout",
                                  tern_json_kind_name(tern_json_kind_of(dropout)),
                                  "null or 0: it would make ids random");
    }
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *text = tern_reader_string(model, affixes[i]);
        if (text[0] != '\0') {
            return tern_reader_refuse(reader, affixes[i], text, "null, as the model families have");
        }
    }
    tokenizer->ignore_merges = tern_json_bool(tern_json_get(model, "ignore_merges"), false);
    const struct tern_json *vocab = tern_json_get(model, "vocab");
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, vocab, "model.vocab", TERN_JSON_OBJECT));
    TERN_RETURN_IF_ERR(tern_json_each(vocab, read_token, reader));
    TERN_RETURN_IF_ERR(tern_tokenizer_index_names(tokenizer, tokenizer->vocab_size));
    tern_tokenizer_find_bytes(tokenizer);
    TERN_RETURN_IF_ERR(read_unknown(reader, model));
    if (tokenizer->model == TERN_MODEL_BYTES) {
        TERN_RETURN_IF_ERR(check_bytes(reader));
    }
    const struct tern_json *merges = tern_json_get(model, "merges");
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, merges, "model.merges", TERN_JSON_ARRAY));
    return read_merges(reader, merges);
}

/* One [text, score] of a unigram vocabulary; its place is its id. */
static tern_status read_scored(struct tern_tokenizer_reader *reader,
                               const struct tern_json *item,
                               int64_t id)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    size_t bytes = 0;
    const char *text = tern_json_string(tern_json_item(item, 0), &bytes);
    double score = 0;
    bool is_pair = tern_json_count(item) == 2 && text != NULL &&
                   tern_json_f64(tern_json_item(item, 1), &score);
    if (!is_pair) {
        return tern_fail(TERN_ERR_INPUT, "%s: model.vocab[%" PRId64 "]: expected [\"text\", score]",
                         reader->file, id);
    }
    TERN_RETURN_IF_ERR(add_token(reader, id, text, bytes));
    tokenizer->scores[id] = score;
    return tern_trie_add(&tokenizer->words, text, bytes, (int32_t)id);
}

static tern_status read_unigram(struct tern_tokenizer_reader *reader, const struct tern_json *model)
{
    enum {
        UNKNOWN_PENALTY = 10 /* below the least score; sentencepiece's kUnkPenalty */
    };
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const struct tern_json *vocab = tern_json_get(model, "vocab");
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, vocab, "model.vocab", TERN_JSON_ARRAY));
    int64_t count = tern_json_count(vocab), unknown = -1;
    if (!tern_json_i64(tern_json_get(model, "unk_id"), &unknown) || unknown < 0 ||
        unknown >= count || count > TERN_VOCAB_MAX) {
        return tern_fail(
            TERN_ERR_INPUT,
            "%s: model.unk_id: expected the place of a token in model.vocab, which has "
            "%" PRId64 " (at most %d)",
            reader->file, count, TERN_VOCAB_MAX);
    }
    tokenizer->unknown_id = (int32_t)unknown;
    tokenizer->scores = tern_alloc_zero("token scores", (size_t)count, sizeof *tokenizer->scores);
    if (tokenizer->scores == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " scores", count);
    }
    for (int64_t id = 0; id < count; id++) {
        TERN_RETURN_IF_ERR(read_scored(reader, tern_json_item(vocab, id), id));
    }
    double least = tokenizer->scores[0];
    for (int64_t id = 1; id < count; id++) {
        least = tokenizer->scores[id] < least ? tokenizer->scores[id] : least;
    }
    tokenizer->unknown_score = least - UNKNOWN_PENALTY;
    tokenizer->has_fallback = tern_json_bool(tern_json_get(model, "byte_fallback"), false);
    TERN_RETURN_IF_ERR(tern_tokenizer_index_names(tokenizer, tokenizer->vocab_size));
    tern_tokenizer_find_bytes(tokenizer);
    return TERN_OK;
}

static tern_status read_model(struct tern_tokenizer_reader *reader, const struct tern_json *model)
{
    return reader->tokenizer->model == TERN_MODEL_UNIGRAM ? read_unigram(reader, model)
                                                          : read_bpe(reader, model);
}

/* ---- added tokens ---- */

static tern_status read_added_token(struct tern_tokenizer_reader *reader,
                                    const struct tern_json *item,
                                    int64_t index)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    int64_t id = -1;
    size_t bytes = 0;
    const char *content = tern_json_string(tern_json_get(item, "content"), &bytes);
    if (content == NULL || bytes == 0 || bytes > TERN_SPECIAL_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: added_tokens[%" PRId64
                         "].content: expected a string of 1 to %d bytes",
                         reader->file, index, TERN_SPECIAL_BYTES_MAX);
    }
    if (!tern_json_i64(tern_json_get(item, "id"), &id) || id < 0 || id >= reader->id_limit) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: added_tokens[%" PRId64 "].id: expected a number from 0 to %" PRId64,
                         reader->file, index, reader->id_limit - 1);
    }
    int32_t known = tern_tokenizer_find_text(tokenizer, content, bytes);
    bool is_taken = id < tokenizer->vocab_size && tokenizer->pieces[id].is_present;
    if ((known >= 0 && known != id) || (is_taken && known != id)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: added_tokens[%" PRId64 "] '%.64s': id %" PRId64
                         " contradicts model.vocab",
                         reader->file, index, content, id);
    }
    if (known < 0) {
        TERN_RETURN_IF_ERR(tern_tokenizer_add_token(tokenizer, (int32_t)id, content, bytes));
    }
    bool is_special = tern_json_bool(tern_json_get(item, "special"), false);
    tokenizer->pieces[id].is_special = is_special;
    struct tern_added *added = &tokenizer->added[tokenizer->added_count++];
    *added = (struct tern_added){
        .id = (int32_t)id,
        .is_special = is_special,
        .is_normalized = tern_json_bool(tern_json_get(item, "normalized"), !is_special),
        .strips_left = tern_json_bool(tern_json_get(item, "lstrip"), false),
        .strips_right = tern_json_bool(tern_json_get(item, "rstrip"), false),
        .is_single_word = tern_json_bool(tern_json_get(item, "single_word"), false),
    };
    return tern_string_set(&added->text, content, bytes);
}

static tern_status read_added(struct tern_tokenizer_reader *reader, const struct tern_json *list)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    if (tern_reader_is_absent(list)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, list, "added_tokens", TERN_JSON_ARRAY));
    int64_t count = tern_json_count(list);
    tokenizer->added = tern_alloc_zero("added tokens", (size_t)count, sizeof *tokenizer->added);
    if (tokenizer->added == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " added tokens", count);
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(read_added_token(reader, tern_json_item(list, i), i));
    }
    return TERN_OK;
}

/* ---- the file ---- */

static tern_status read_stages(struct tern_tokenizer_reader *reader, const struct tern_json *root)
{
    static const char *const others[] = {"truncation", "padding"};
    for (int i = 0; i < 2; i++) {
        if (!tern_reader_is_absent(tern_json_get(root, others[i]))) {
            return tern_reader_refuse(reader, others[i], "set", "null");
        }
    }
    TERN_RETURN_IF_ERR(tern_reader_normalizer(reader, tern_json_get(root, "normalizer")));
    TERN_RETURN_IF_ERR(tern_reader_pre_tokenizer(reader, tern_json_get(root, "pre_tokenizer")));
    TERN_RETURN_IF_ERR(read_model_kind(reader, tern_json_get(root, "model")));
    return tern_reader_decoder(reader, tern_json_get(root, "decoder"));
}

tern_status tern_tokenizer_parse(struct tern_tokenizer *tokenizer,
                                 const char *name,
                                 const char *text,
                                 size_t bytes)
{
    struct tern_tokenizer_reader reader = {.tokenizer = tokenizer, .file = name};
    struct tern_json *root;
    TERN_RETURN_IF_ERR(tern_json_parse(name, text, bytes, &root));
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_reader_expect(&reader, root, "the file", TERN_JSON_OBJECT),
                     close_root);
    int64_t count = tern_json_count(tern_json_get(tern_json_get(root, "model"), "vocab")) +
                    tern_json_count(tern_json_get(root, "added_tokens"));
    reader.id_limit = count < (TERN_VOCAB_MAX - TERN_VOCAB_GAPS) / 2 ? count * 2 + TERN_VOCAB_GAPS
                                                                     : TERN_VOCAB_MAX;
    TERN_GOTO_IF_ERR(status, read_stages(&reader, root), close_root);
    TERN_GOTO_IF_ERR(status, read_model(&reader, tern_json_get(root, "model")), close_root);
    TERN_GOTO_IF_ERR(status, read_added(&reader, tern_json_get(root, "added_tokens")), close_root);
    TERN_GOTO_IF_ERR(status,
                     tern_reader_post_processor(&reader, tern_json_get(root, "post_processor")),
                     close_root);
close_root:
    tern_json_close(root);
    return status;
}
