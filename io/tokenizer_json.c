/* tokenizer_json.c - Hugging Face's tokenizer.json into a vocabulary; what we cannot follow
 * exactly is refused. */
#include "io/json.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

struct reader {
    struct tern_tokenizer *tokenizer;
    const char *file;
    const struct tern_json *special_tokens; /* of the post-processor's template */
};

static const char *string_of(const struct tern_json *object, const char *key)
{
    const char *text = tern_json_string(tern_json_get(object, key), NULL);
    return text != NULL ? text : "";
}

static bool is_absent(const struct tern_json *value)
{
    enum tern_json_kind kind = tern_json_kind_of(value);
    return kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL;
}

static tern_status refuse(const struct reader *reader,
                          const char *what,
                          const char *found,
                          const char *expected)
{
    return tern_fail(TERN_ERR_UNSUPPORTED, "%s: %s '%s' is not supported; expected %s",
                     reader->file, what, found, expected);
}

static tern_status expect(const struct reader *reader,
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

/* Bytes that a token's text stands for, into out (at least `count` long): byte alphabet undone,
 * or the text as it is when some character is not in that alphabet. */
static size_t bytes_of_token(const char *text, size_t count, char *out)
{
    size_t length = 0;
    for (size_t at = 0; at < count;) {
        uint32_t code;
        int step = tern_utf8_decode((const uint8_t *)text + at, count - at, &code);
        int byte = step == 0 ? -1 : tern_code_to_byte(code);
        if (byte < 0) {
            memcpy(out, text, count);
            return count;
        }
        out[length++] = (char)byte;
        at += (size_t)step;
    }
    return length;
}

enum {
    TOKEN_BYTES_MAX = 1 << 20
};

static tern_status check_token_bytes(const struct reader *reader, const char *what, size_t bytes)
{
    if (bytes == 0 || bytes > TOKEN_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: %s of %zu bytes; expected 1 to %d", reader->file,
                         what, bytes, TOKEN_BYTES_MAX);
    }
    return TERN_OK;
}

/* ---- model ---- */

static tern_status read_token(void *context,
                              const char *key,
                              size_t key_bytes,
                              const struct tern_json *value)
{
    struct reader *reader = context;
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    int64_t id;
    if (!tern_json_i64(value, &id) || id < 0 || id >= TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: model.vocab[\"%.64s\"]: expected an id from 0 to %d",
                         reader->file, key, TERN_VOCAB_MAX - 1);
    }
    TERN_RETURN_IF_ERR(check_token_bytes(reader, "model.vocab: a token", key_bytes));
    if (id < tokenizer->vocab_size && tokenizer->pieces[id].is_present) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.vocab[\"%.64s\"]: id %" PRId64 " is given twice", reader->file,
                         key, id);
    }
    char *bytes = tern_alloc("token text", key_bytes);
    if (bytes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes of token text", key_bytes);
    }
    size_t count = bytes_of_token(key, key_bytes, bytes);
    tern_status status = tern_tokenizer_add_piece(tokenizer, (int32_t)id, bytes, count);
    tern_free(bytes);
    return status;
}

static int32_t find_token(const struct reader *reader,
                          const char *text,
                          size_t bytes,
                          char *scratch)
{
    return tern_tokenizer_find(reader->tokenizer, scratch, bytes_of_token(text, bytes, scratch));
}

static void insert_merge(struct tern_tokenizer *tokenizer,
                         uint64_t key,
                         int32_t rank,
                         int32_t result)
{
    uint64_t slot = tern_word_mix(key) & tokenizer->merge_mask;
    while (tokenizer->merges[slot].key != TERN_MERGE_EMPTY && tokenizer->merges[slot].key != key) {
        slot = (slot + 1) & tokenizer->merge_mask;
    }
    tokenizer->merges[slot] =
        (struct tern_merge){key, rank, result}; /* a pair given again: the last counts */
}

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

static tern_status read_merge(struct reader *reader,
                              const struct tern_json *item,
                              int64_t rank,
                              struct tern_text *scratch)
{
    const char *half[2];
    size_t bytes[2];
    if (!halves_of_merge(item, half, bytes)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges[%" PRId64
                         "]: expected \"left right\" or [\"left\", \"right\"]",
                         reader->file, rank);
    }
    scratch->length = 0;
    TERN_RETURN_IF_ERR(tern_text_append(scratch, half[0], bytes[0]));
    TERN_RETURN_IF_ERR(tern_text_append(scratch, half[1], bytes[1]));
    TERN_RETURN_IF_ERR(tern_text_append(scratch, half[0], bytes[0])); /* room to work in */
    TERN_RETURN_IF_ERR(tern_text_append(scratch, half[1], bytes[1]));
    size_t whole = bytes[0] + bytes[1];
    char *work = scratch->data + whole;
    int32_t left = find_token(reader, half[0], bytes[0], work);
    int32_t right = find_token(reader, half[1], bytes[1], work);
    int32_t result = find_token(reader, scratch->data, whole, work);
    if (left < 0 || right < 0 || result < 0) {
        const char *missing = left < 0 ? half[0] : right < 0 ? half[1] : scratch->data;
        size_t length = left < 0 ? bytes[0] : right < 0 ? bytes[1] : whole;
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges[%" PRId64 "]: '%.*s' is not in model.vocab",
                         reader->file, rank, (int)(length < 64 ? length : 64), missing);
    }
    insert_merge(reader->tokenizer, (uint64_t)(uint32_t)left << 32 | (uint32_t)right, (int32_t)rank,
                 result);
    return TERN_OK;
}

static tern_status read_merges(struct reader *reader, const struct tern_json *merges)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    int64_t count = tern_json_count(merges);
    if (count > TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: model.merges: %" PRId64 " merges; expected at most %d", reader->file,
                         count, TERN_VOCAB_MAX);
    }
    uint64_t slots = 64;
    while (slots < (uint64_t)count * 2) {
        slots *= 2;
    }
    tokenizer->merges = tern_alloc("tokenizer merges", slots * sizeof *tokenizer->merges);
    if (tokenizer->merges == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRIu64 " merges", slots);
    }
    memset(tokenizer->merges, 0xff, slots * sizeof *tokenizer->merges);
    tokenizer->merge_mask = slots - 1;
    tokenizer->merge_count = count;
    struct tern_text scratch;
    tern_text_init(&scratch);
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < count && status == TERN_OK; i++) {
        status = read_merge(reader, tern_json_item(merges, i), i, &scratch);
    }
    tern_text_fini(&scratch);
    return status;
}

static tern_status read_model(struct reader *reader, const struct tern_json *model)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    TERN_RETURN_IF_ERR(expect(reader, model, "model", TERN_JSON_OBJECT));
    const char *type = string_of(model, "type");
    if (strcmp(type, "BPE") != 0) {
        return refuse(reader, "model.type", type, "'BPE'");
    }
    if (!is_absent(tern_json_get(model, "dropout"))) {
        return refuse(reader, "model.dropout", "number", "null: it would make ids random");
    }
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *text = string_of(model, affixes[i]);
        if (text[0] != '\0') {
            return refuse(reader, affixes[i], text, "null, as byte-level vocabularies have");
        }
    }
    tokenizer->ignore_merges = tern_json_bool(tern_json_get(model, "ignore_merges"), false);
    const struct tern_json *vocab = tern_json_get(model, "vocab");
    TERN_RETURN_IF_ERR(expect(reader, vocab, "model.vocab", TERN_JSON_OBJECT));
    TERN_RETURN_IF_ERR(tern_json_each(vocab, read_token, reader));
    TERN_RETURN_IF_ERR(tern_tokenizer_index_names(tokenizer, tokenizer->vocab_size));
    for (int byte = 0; byte < 256; byte++) {
        char name = (char)byte;
        tokenizer->byte_ids[byte] = tern_tokenizer_find(tokenizer, &name, 1);
        if (tokenizer->byte_ids[byte] < 0) {
            return tern_fail(
                TERN_ERR_UNSUPPORTED,
                "%s: model.vocab: no token for byte 0x%02x; expected one for each of the 256 bytes "
                "(a byte-level vocabulary)",
                reader->file, (unsigned)byte);
        }
    }
    const struct tern_json *merges = tern_json_get(model, "merges");
    TERN_RETURN_IF_ERR(expect(reader, merges, "model.merges", TERN_JSON_ARRAY));
    return read_merges(reader, merges);
}

/* ---- added tokens ---- */

static tern_status read_added_token(struct reader *reader,
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
    if (!tern_json_i64(tern_json_get(item, "id"), &id) || id < 0 || id >= TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: added_tokens[%" PRId64 "].id: expected a number from 0 to %d",
                         reader->file, index, TERN_VOCAB_MAX - 1);
    }
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    for (int i = 0; i < 3; i++) {
        if (tern_json_bool(tern_json_get(item, flags[i]), false)) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: added_tokens[%" PRId64 "] '%.64s': %s is not supported",
                             reader->file, index, content, flags[i]);
        }
    }
    char scratch[TERN_SPECIAL_BYTES_MAX];
    int32_t known = find_token(reader, content, bytes, scratch);
    bool is_taken = id < tokenizer->vocab_size && tokenizer->pieces[id].is_present;
    if ((known >= 0 && known != id) || (is_taken && known != id)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: added_tokens[%" PRId64 "] '%.64s': id %" PRId64
                         " contradicts model.vocab",
                         reader->file, index, content, id);
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_add_piece(tokenizer, (int32_t)id, content, bytes));
    bool is_special = tern_json_bool(tern_json_get(item, "special"), false);
    tokenizer->pieces[id].is_special = is_special;
    tokenizer->added[tokenizer->added_count++] = (struct tern_added){
        .id = (int32_t)id,
        .bytes = (uint32_t)bytes,
        .is_special = is_special,
        .is_normalized = tern_json_bool(tern_json_get(item, "normalized"), !is_special),
    };
    return TERN_OK;
}

static tern_status read_added(struct reader *reader, const struct tern_json *list)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    int64_t count = is_absent(list) ? 0 : tern_json_count(list);
    if (!is_absent(list)) {
        TERN_RETURN_IF_ERR(expect(reader, list, "added_tokens", TERN_JSON_ARRAY));
    }
    tokenizer->added = tern_alloc_zero("added tokens", (size_t)count, sizeof *tokenizer->added);
    if (tokenizer->added == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " added tokens", count);
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(read_added_token(reader, tern_json_item(list, i), i));
    }
    tern_tokenizer_index_added(tokenizer);
    return tern_tokenizer_index_names(tokenizer, tokenizer->vocab_size);
}

/* ---- the stages around the model ---- */

static tern_status read_byte_level(struct reader *reader, const struct tern_json *stage)
{
    if (tern_json_bool(tern_json_get(stage, "add_prefix_space"), true)) {
        return refuse(reader, "pre_tokenizer ByteLevel.add_prefix_space", "true", "false");
    }
    if (!tern_json_bool(tern_json_get(stage, "use_regex"), true)) {
        return refuse(reader, "pre_tokenizer ByteLevel.use_regex", "false", "true");
    }
    return TERN_OK;
}

static tern_status read_pre_tokenizer(struct reader *reader, const struct tern_json *stage)
{
    static const char expected[] = "'ByteLevel', or a Sequence of Digits and ByteLevel";
    TERN_RETURN_IF_ERR(expect(reader, stage, "pre_tokenizer", TERN_JSON_OBJECT));
    const char *type = string_of(stage, "type");
    if (strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(reader, stage);
    }
    if (strcmp(type, "Sequence") != 0) {
        return refuse(reader, "pre_tokenizer", type, expected);
    }
    const struct tern_json *list = tern_json_get(stage, "pretokenizers");
    int64_t count = tern_json_count(list);
    for (int64_t i = 0; i < count; i++) {
        const struct tern_json *part = tern_json_item(list, i);
        type = string_of(part, "type");
        if (i == count - 1 && strcmp(type, "ByteLevel") == 0) {
            return read_byte_level(reader, part);
        }
        if (strcmp(type, "Digits") != 0 || count != 2) {
            return refuse(reader, "pre_tokenizer Sequence with", type, expected);
        }
        reader->tokenizer->splitter.split_digits = true;
        reader->tokenizer->splitter.digits_alone =
            tern_json_bool(tern_json_get(part, "individual_digits"), false);
    }
    return refuse(reader, "pre_tokenizer", "Sequence without ByteLevel", expected);
}

/* Appends the ids that a template's special token `name` stands for. */
static tern_status append_template_ids(struct reader *reader,
                                       const char *name,
                                       int32_t **ids,
                                       int *count)
{
    const struct tern_json *list =
        tern_json_get(tern_json_get(reader->special_tokens, name), "ids");
    int64_t added = tern_json_count(list);
    int32_t *grown = tern_realloc("template ids", *ids, (size_t)(*count + added) * sizeof **ids);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the template's ids");
    }
    *ids = grown;
    for (int64_t i = 0; i < added; i++) {
        int64_t id;
        if (!tern_json_i64(tern_json_item(list, i), &id) || id < 0 ||
            id >= reader->tokenizer->vocab_size) {
            return tern_fail(
                TERN_ERR_INPUT,
                "%s: post_processor: special token '%s' has an id outside the vocabulary",
                reader->file, name);
        }
        grown[(*count)++] = (int32_t)id;
    }
    return TERN_OK;
}

static tern_status read_template(struct reader *reader, const struct tern_json *stage)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const struct tern_json *single = tern_json_get(stage, "single");
    TERN_RETURN_IF_ERR(expect(reader, single, "post_processor.single", TERN_JSON_ARRAY));
    reader->special_tokens = tern_json_get(stage, "special_tokens");
    bool is_after = false;
    for (int64_t i = 0; i < tern_json_count(single); i++) {
        const struct tern_json *item = tern_json_item(single, i);
        const struct tern_json *token = tern_json_get(item, "SpecialToken");
        if (token == NULL) {
            is_after = true;
        } else if (is_after) {
            TERN_RETURN_IF_ERR(append_template_ids(
                reader, string_of(token, "id"), &tokenizer->suffix_ids, &tokenizer->suffix_count));
        } else {
            TERN_RETURN_IF_ERR(append_template_ids(
                reader, string_of(token, "id"), &tokenizer->prefix_ids, &tokenizer->prefix_count));
        }
    }
    return TERN_OK;
}

static tern_status read_post_processor(struct reader *reader, const struct tern_json *stage)
{
    if (is_absent(stage)) {
        return TERN_OK;
    }
    const char *type = string_of(stage, "type");
    if (strcmp(type, "ByteLevel") == 0) {
        return TERN_OK; /* moves offsets, not ids */
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return read_template(reader, stage);
    }
    const struct tern_json *list = tern_json_get(stage, "processors");
    if (strcmp(type, "Sequence") != 0) {
        return refuse(reader, "post_processor", type,
                      "'ByteLevel', 'TemplateProcessing' or a Sequence of them");
    }
    for (int64_t i = 0; i < tern_json_count(list); i++) {
        const struct tern_json *part = tern_json_item(list, i);
        if (strcmp(string_of(part, "type"), "Sequence") == 0) {
            return refuse(reader, "post_processor Sequence with", "Sequence",
                          "'ByteLevel' or 'TemplateProcessing'");
        }
        TERN_RETURN_IF_ERR(read_post_processor(reader, part));
    }
    return TERN_OK;
}

static tern_status read_stages(struct reader *reader, const struct tern_json *root)
{
    const struct tern_json *normalizer = tern_json_get(root, "normalizer");
    if (!is_absent(normalizer)) {
        return refuse(reader, "normalizer", string_of(normalizer, "type"), "none");
    }
    static const char *const others[] = {"truncation", "padding"};
    for (int i = 0; i < 2; i++) {
        if (!is_absent(tern_json_get(root, others[i]))) {
            return refuse(reader, others[i], "set", "null");
        }
    }
    const struct tern_json *decoder = tern_json_get(root, "decoder");
    if (!is_absent(decoder) && strcmp(string_of(decoder, "type"), "ByteLevel") != 0) {
        return refuse(reader, "decoder", string_of(decoder, "type"), "'ByteLevel'");
    }
    return read_pre_tokenizer(reader, tern_json_get(root, "pre_tokenizer"));
}

tern_status tern_tokenizer_parse(struct tern_tokenizer *tokenizer,
                                 const char *name,
                                 const char *text,
                                 size_t bytes)
{
    struct reader reader = {.tokenizer = tokenizer, .file = name};
    struct tern_json *root;
    TERN_RETURN_IF_ERR(tern_json_parse(name, text, bytes, &root));
    tern_status status;
    TERN_GOTO_IF_ERR(status, expect(&reader, root, "the file", TERN_JSON_OBJECT), close_root);
    TERN_GOTO_IF_ERR(status, read_stages(&reader, root), close_root);
    TERN_GOTO_IF_ERR(status, read_model(&reader, tern_json_get(root, "model")), close_root);
    TERN_GOTO_IF_ERR(status, read_added(&reader, tern_json_get(root, "added_tokens")), close_root);
    TERN_GOTO_IF_ERR(status, read_post_processor(&reader, tern_json_get(root, "post_processor")),
                     close_root);
close_root:
    tern_json_close(root);
    return status;
}
