/* tokenizer_encode.c - text to ids: added tokens cut out, the rest normalized, split into words, the
 * words looked up or handed to the model. */
#include "io/tokenizer_encode.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

tern_status tern_encoder_create(const struct tern_tokenizer *tokenizer, struct tern_encoder **out)
{
    *out = NULL;
    struct tern_encoder *encoder = tern_alloc_zero("encoder", 1, sizeof *encoder);
    if (encoder == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an encoder");
    }
    encoder->tokenizer = tokenizer;
    encoder->merger.tokenizer = tokenizer;
    tern_status status = tern_word_cache_init(&encoder->cache);
    if (status != TERN_OK) {
        tern_encoder_destroy(encoder);
        return status;
    }
    *out = encoder;
    return TERN_OK;
}

void tern_encoder_destroy(struct tern_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    tern_word_cache_fini(&encoder->cache);
    tern_merger_fini(&encoder->merger);
    tern_lattice_fini(&encoder->lattice);
    tern_normalizer_fini(&encoder->normalizer);
    tern_text_fini(&encoder->spaced);
    tern_free(encoder);
}

void tern_encoder_continue(struct tern_encoder *encoder)
{
    encoder->continues = true;
}

tern_status tern_ids_reserve(struct tern_ids *ids, int64_t extra)
{
    if (extra <= ids->capacity - ids->count) {
        return TERN_OK;
    }
    int64_t capacity = (ids->count + extra) * 2 + 64;
    int32_t *grown = tern_realloc("token ids", ids->data, (size_t)capacity * sizeof *grown);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " token ids", capacity);
    }
    ids->data = grown;
    ids->capacity = capacity;
    return TERN_OK;
}

/* ---- words ---- */

static tern_status ask_model(struct tern_encoder *encoder,
                             const char *word,
                             size_t bytes,
                             struct tern_ids *ids)
{
    const uint8_t *text = (const uint8_t *)word;
    return encoder->tokenizer->model == TERN_MODEL_UNIGRAM
               ? tern_unigram_append(encoder->tokenizer, &encoder->lattice, text, bytes, ids)
               : tern_bpe_append(&encoder->merger, text, bytes, ids);
}

/* bytes > 0 */
static tern_status append_word(struct tern_encoder *encoder,
                               const char *word,
                               size_t bytes,
                               struct tern_ids *ids)
{
    const struct tern_tokenizer *tokenizer = encoder->tokenizer;
    if (bytes > TERN_CACHED_WORD_BYTES) {
        return ask_model(encoder, word, bytes, ids);
    }
    TERN_RETURN_IF_ERR(tern_ids_reserve(ids, TERN_CACHED_WORD_BYTES));
    if (bytes == 1 && tokenizer->model == TERN_MODEL_BYTES &&
        tokenizer->byte_ids[(uint8_t)word[0]] >= 0) {
        ids->data[ids->count++] = tokenizer->byte_ids[(uint8_t)word[0]];
        return TERN_OK;
    }
    uint64_t hash = tern_word_hash(word, bytes);
    int count;
    const int32_t *known = tern_word_cache_find(&encoder->cache, hash, word, bytes, &count);
    if (known != NULL) {
        for (int i = 0; i < count; i++) {
            ids->data[ids->count + i] = known[i];
        }
        ids->count += count;
        return TERN_OK;
    }
    int64_t before = ids->count;
    TERN_RETURN_IF_ERR(ask_model(encoder, word, bytes, ids));
    return tern_word_cache_add(&encoder->cache, hash, word, bytes, ids->data + before,
                               (int)(ids->count - before));
}

/* Characters between marks are words of their own where no merge crosses: short, and seen before. */
static tern_status append_marked(struct tern_encoder *encoder,
                                 const char *text,
                                 size_t bytes,
                                 struct tern_ids *ids)
{
    const bool *joins = encoder->tokenizer->joins_mark;
    size_t start = 0;
    for (size_t at = 1; at + TERN_MARK_BYTES <= bytes; at++) {
        if (text[at] == tern_mark[0] && text[at + 1] == tern_mark[1] &&
            text[at + 2] == tern_mark[2] && !joins[(uint8_t)text[at - 1]]) {
            TERN_RETURN_IF_ERR(append_word(encoder, text + start, at - start, ids));
            start = at;
        }
    }
    return append_word(encoder, text + start, bytes - start, ids);
}

/* What the pre-tokenizer made of a stretch, one piece. bytes > 0. */
static tern_status append_piece(struct tern_encoder *encoder,
                                const char *text,
                                size_t bytes,
                                struct tern_ids *ids)
{
    const struct tern_tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->ignore_merges && bytes <= (size_t)tokenizer->longest_name_bytes) {
        int32_t whole = tern_tokenizer_find(tokenizer, text, bytes);
        if (whole >= 0) {
            TERN_RETURN_IF_ERR(tern_ids_reserve(ids, 1));
            ids->data[ids->count++] = whole;
            return TERN_OK;
        }
    }
    return tokenizer->breaks_at_marks ? append_marked(encoder, text, bytes, ids)
                                      : append_word(encoder, text, bytes, ids);
}

/* ---- pre-tokenizer ---- */

static tern_status split_from(struct tern_encoder *encoder,
                              int step,
                              const char *text,
                              size_t bytes,
                              bool is_first,
                              struct tern_ids *ids);

/* Words by a fixed string; the string is a word, or goes with the one before or after it. */
static tern_status split_by_string(struct tern_encoder *encoder,
                                   int index,
                                   const struct tern_string *what,
                                   enum tern_split_behavior behavior,
                                   const char *text,
                                   size_t bytes,
                                   bool is_first,
                                   struct tern_ids *ids)
{
    size_t start = 0;
    for (size_t at = 0; at < bytes;) {
        const char *found = memmem(text + at, bytes - at, what->data, what->bytes);
        size_t place = found == NULL ? bytes : (size_t)(found - text);
        size_t behind = found == NULL ? bytes : place + what->bytes;
        size_t end = behavior == TERN_SPLIT_WITH_PREVIOUS ? behind : place;
        if (end > start) {
            TERN_RETURN_IF_ERR(split_from(encoder, index + 1, text + start, end - start,
                                          is_first && start == 0, ids));
            start = end;
        }
        if (behavior == TERN_SPLIT_ISOLATED && behind > place) {
            TERN_RETURN_IF_ERR(split_from(encoder, index + 1, text + place, behind - place,
                                          is_first && place == 0, ids));
            start = behind;
        }
        at = behind;
    }
    return start < bytes ? split_from(encoder, index + 1, text + start, bytes - start,
                                      is_first && start == 0, ids)
                         : TERN_OK;
}

/* A stretch with marks for its blanks, and perhaps one more before it. */
static tern_status split_at_marks(struct tern_encoder *encoder,
                                  int index,
                                  const char *text,
                                  size_t bytes,
                                  bool is_first,
                                  struct tern_ids *ids)
{
    const struct tern_split_step *step = &encoder->tokenizer->splits[index];
    const struct tern_string *mark = &step->text;
    static char blank[] = " ";
    const struct tern_string from = {blank, 1};
    struct tern_text *out = &encoder->spaced;
    bool begins =
        text[0] == ' ' || (bytes >= mark->bytes && memcmp(text, mark->data, mark->bytes) == 0);
    bool is_middle = is_first && encoder->continues;
    bool prepends =
        !begins && !is_middle &&
        (step->prepend == TERN_PREPEND_ALWAYS || (step->prepend == TERN_PREPEND_FIRST && is_first));
    out->length = 0;
    if (prepends) {
        TERN_RETURN_IF_ERR(tern_text_append(out, mark->data, mark->bytes));
    }
    TERN_RETURN_IF_ERR(tern_replace_append(text, bytes, &from, mark, out));
    if (step->splits) {
        return split_by_string(encoder, index, mark, TERN_SPLIT_WITH_NEXT, out->data, out->length,
                               is_first, ids);
    }
    return split_from(encoder, index + 1, out->data, out->length, is_first, ids);
}

/* A blank before a stretch that begins with none. */
static tern_status split_prefixed(struct tern_encoder *encoder,
                                  int index,
                                  const char *text,
                                  size_t bytes,
                                  bool is_first,
                                  struct tern_ids *ids)
{
    if (text[0] == ' ') {
        return split_from(encoder, index + 1, text, bytes, is_first, ids);
    }
    encoder->spaced.length = 0;
    TERN_RETURN_IF_ERR(tern_text_append(&encoder->spaced, " ", 1));
    TERN_RETURN_IF_ERR(tern_text_append(&encoder->spaced, text, bytes));
    return split_from(encoder, index + 1, encoder->spaced.data, encoder->spaced.length, is_first,
                      ids);
}

/* Hands text[0, bytes) to the steps from `index` on, then to the model. bytes > 0. is_first: it is
 * where the text begins. */
static tern_status split_from(struct tern_encoder *encoder,
                              int index,
                              const char *text,
                              size_t bytes,
                              bool is_first,
                              struct tern_ids *ids)
{
    const struct tern_tokenizer *tokenizer = encoder->tokenizer;
    if (index == tokenizer->split_count) {
        return append_piece(encoder, text, bytes, ids);
    }
    const struct tern_split_step *step = &tokenizer->splits[index];
    switch (step->kind) {
    case TERN_SPLIT_STRING:
        return split_by_string(encoder, index, &step->text, step->behavior, text, bytes, is_first,
                               ids);
    case TERN_SPLIT_METASPACE:
        return split_at_marks(encoder, index, text, bytes, is_first, ids);
    case TERN_SPLIT_PREFIX:
        return split_prefixed(encoder, index, text, bytes, is_first, ids);
    default:
        break;
    }
    bool is_last = index + 1 == tokenizer->split_count;
    for (size_t at = 0; at < bytes;) {
        size_t word =
            tern_split_next(&tokenizer->chars, step->kind, (const uint8_t *)text + at, bytes - at);
        TERN_RETURN_IF_ERR(
            is_last ? append_piece(encoder, text + at, word, ids)
                    : split_from(encoder, index + 1, text + at, word, is_first && at == 0, ids));
        at += word;
    }
    return TERN_OK;
}

/* ---- a text ---- */

static tern_status append_id(struct tern_ids *ids, int32_t id)
{
    TERN_RETURN_IF_ERR(tern_ids_reserve(ids, 1));
    ids->data[ids->count++] = id;
    return TERN_OK;
}

/* A stretch without tokens of the first pass: normalized, then those of the second are cut out. */
static tern_status append_stretch(struct tern_encoder *encoder,
                                  const char *text,
                                  size_t bytes,
                                  bool parse_special,
                                  bool is_first,
                                  struct tern_ids *ids)
{
    bool continues = encoder->continues && is_first;
    TERN_RETURN_IF_ERR(
        tern_normalize(encoder->tokenizer, &encoder->normalizer, continues, &text, &bytes));
    struct tern_added_scan scan = {
        .tokenizer = encoder->tokenizer,
        .text = text,
        .bytes = bytes,
        .pass = 1,
        .parse_special = parse_special,
    };
    struct tern_added_match match;
    while (tern_added_next(&scan, &match)) {
        TERN_RETURN_IF_ERR(match.added != NULL
                               ? append_id(ids, match.added->id)
                               : split_from(encoder, 0, text + match.start, match.end - match.start,
                                            is_first && match.start == 0, ids));
    }
    return TERN_OK;
}

static tern_status append_text(struct tern_encoder *encoder,
                               const char *text,
                               size_t bytes,
                               bool parse_special,
                               struct tern_ids *ids)
{
    struct tern_added_scan scan = {
        .tokenizer = encoder->tokenizer,
        .text = text,
        .bytes = bytes,
        .parse_special = parse_special,
    };
    struct tern_added_match match;
    while (tern_added_next(&scan, &match)) {
        TERN_RETURN_IF_ERR(match.added != NULL
                               ? append_id(ids, match.added->id)
                               : append_stretch(encoder, text + match.start,
                                                match.end - match.start, parse_special,
                                                match.start == 0, ids));
    }
    return TERN_OK;
}

tern_status tern_encoder_append(struct tern_encoder *encoder,
                                const char *text,
                                size_t bytes,
                                bool parse_special,
                                struct tern_ids *ids)
{
    tern_status status = append_text(encoder, text, bytes, parse_special, ids);
    encoder->continues = false;
    return status;
}

tern_status tern_tokenizer_encode(const struct tern_tokenizer *tokenizer,
                                  const char *text,
                                  size_t bytes,
                                  bool parse_special,
                                  int32_t **ids_out,
                                  int64_t *count_out)
{
    *ids_out = NULL;
    *count_out = 0;
    struct tern_encoder *encoder;
    TERN_RETURN_IF_ERR(tern_encoder_create(tokenizer, &encoder));
    struct tern_ids ids = {0};
    tern_status status = tern_ids_reserve(&ids, 1); /* no ids: a block all the same */
    if (status == TERN_OK) {
        status = tern_encoder_append(encoder, text, bytes, parse_special, &ids);
    }
    tern_encoder_destroy(encoder);
    if (status != TERN_OK) {
        tern_free(ids.data);
        return status;
    }
    *ids_out = ids.data;
    *count_out = ids.count;
    return TERN_OK;
}

/* ---- streams ---- */

/* A blank at text[at] that ends a word whatever follows, and begins one whatever came before. */
static bool may_cut(const struct tern_tokenizer *tokenizer, const char *text, size_t at)
{
    char c = text[at];
    if (tokenizer->cut_rule == TERN_CUT_MARK) {
        uint8_t before = (uint8_t)(text[at - 1] == ' ' ? tern_mark[2] : text[at - 1]);
        return c == ' ' && !tokenizer->joins_mark[before];
    }
    bool is_white = tokenizer->cut_rule == TERN_CUT_WHITE && c >= '\t' && c <= '\r';
    int length;
    return (c == ' ' || is_white) &&
           (tern_chars_before(&tokenizer->chars, (const uint8_t *)text, at, &length) &
            TERN_CLASS_MASK) != TERN_CLASS_SPACE;
}

size_t tern_tokenizer_cut(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes)
{
    if (tokenizer->cut_rule == TERN_CUT_NEVER) {
        return 0;
    }
    /* a token may begin before at and end within reach */
    size_t reach = (size_t)tokenizer->longest_added_bytes;
    for (size_t at = bytes > reach ? bytes - reach : 0; at > 0; at--) {
        if (at < bytes && may_cut(tokenizer, text, at) &&
            !tern_added_straddles(tokenizer, text, bytes, at)) {
            return at;
        }
    }
    return 0;
}
