/* tokenizer_stages.c - what surrounds the model in a tokenizer.json: normalizer, pre-tokenizer,
 * decoder, post-processor. */
#include "io/tokenizer_json.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

/* Calls read for each entry of a Sequence's list `key`, or for the stage itself if it is none. */
static tern_status each_part(struct tern_tokenizer_reader *reader,
                             const struct tern_json *stage,
                             const char *what,
                             const char *key,
                             tern_status (*read)(struct tern_tokenizer_reader *reader,
                                                 const struct tern_json *part))
{
    if (strcmp(tern_reader_string(stage, "type"), "Sequence") != 0) {
        return read(reader, stage);
    }
    const struct tern_json *list = tern_json_get(stage, key);
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, list, what, TERN_JSON_ARRAY));
    for (int64_t i = 0; i < tern_json_count(list); i++) {
        const struct tern_json *part = tern_json_item(list, i);
        TERN_RETURN_IF_ERR(tern_reader_expect(reader, part, what, TERN_JSON_OBJECT));
        if (strcmp(tern_reader_string(part, "type"), "Sequence") == 0) {
            return tern_reader_refuse(reader, what, "Sequence in a Sequence", "one Sequence");
        }
        TERN_RETURN_IF_ERR(read(reader, part));
    }
    return TERN_OK;
}

/* The string `key` of a stage, not empty unless it may be. */
static tern_status read_string(const struct tern_tokenizer_reader *reader,
                               const struct tern_json *stage,
                               const char *key,
                               bool may_be_empty,
                               struct tern_string *out)
{
    size_t bytes = 0;
    const char *text = tern_json_string(tern_json_get(stage, key), &bytes);
    if (text == NULL || (bytes == 0 && !may_be_empty) || bytes > TERN_SPECIAL_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: %s.%s: expected a string of %d to %d bytes",
                         reader->file, tern_reader_string(stage, "type"), key, may_be_empty ? 0 : 1,
                         TERN_SPECIAL_BYTES_MAX);
    }
    return tern_string_set(out, text, bytes);
}

/* {"pattern": {"String": ...}} into text; {"Regex": ...} is left to the caller: *regex_out. */
static tern_status read_pattern(const struct tern_tokenizer_reader *reader,
                                const struct tern_json *stage,
                                struct tern_string *text,
                                const char **regex_out)
{
    const struct tern_json *pattern = tern_json_get(stage, "pattern");
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, pattern, "pattern", TERN_JSON_OBJECT));
    *regex_out = tern_json_string(tern_json_get(pattern, "Regex"), NULL);
    return *regex_out != NULL ? TERN_OK : read_string(reader, pattern, "String", false, text);
}

/* ---- normalizer ---- */

static tern_status read_normal_step(struct tern_tokenizer_reader *reader,
                                    const struct tern_json *part)
{
    static const char expected[] = "null, 'NFC', 'Prepend', 'Replace' or a Sequence of them";
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const char *type = tern_reader_string(part, "type");
    if (tokenizer->normal_count == TERN_STEPS_MAX) {
        return tern_reader_refuse(reader, "normalizer with more than 8 steps", type, "fewer");
    }
    struct tern_normal_step *step = &tokenizer->normal[tokenizer->normal_count];
    if (strcmp(type, "NFC") == 0) {
        step->kind = TERN_NORMAL_NFC;
    } else if (strcmp(type, "Prepend") == 0) {
        step->kind = TERN_NORMAL_PREPEND;
        TERN_RETURN_IF_ERR(read_string(reader, part, "prepend", false, &step->to));
    } else if (strcmp(type, "Replace") == 0) {
        const char *regex;
        step->kind = TERN_NORMAL_REPLACE;
        TERN_RETURN_IF_ERR(read_pattern(reader, part, &step->from, &regex));
        if (regex != NULL) {
            return tern_reader_refuse(reader, "normalizer Replace with Regex", regex, "a String");
        }
        TERN_RETURN_IF_ERR(read_string(reader, part, "content", true, &step->to));
    } else {
        return tern_reader_refuse(reader, "normalizer", type, expected);
    }
    tokenizer->normal_count++;
    return TERN_OK;
}

tern_status tern_reader_normalizer(struct tern_tokenizer_reader *reader,
                                   const struct tern_json *stage)
{
    if (tern_reader_is_absent(stage)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, stage, "normalizer", TERN_JSON_OBJECT));
    return each_part(reader, stage, "normalizer", "normalizers", read_normal_step);
}

/* ---- pre-tokenizer ---- */

/* The next free step; at most one of them changes the text. */
static tern_status add_split(struct tern_tokenizer_reader *reader,
                             const char *type,
                             enum tern_split_kind kind,
                             struct tern_split_step **out)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    bool changes = kind == TERN_SPLIT_METASPACE || kind == TERN_SPLIT_PREFIX;
    for (int i = 0; i < tokenizer->split_count && changes; i++) {
        if (tokenizer->splits[i].kind == TERN_SPLIT_METASPACE ||
            tokenizer->splits[i].kind == TERN_SPLIT_PREFIX) {
            return tern_reader_refuse(reader, "pre_tokenizer with a second step that adds blanks",
                                      type, "one");
        }
    }
    if (tokenizer->split_count == TERN_STEPS_MAX) {
        return tern_reader_refuse(reader, "pre_tokenizer with more than 8 steps", type, "fewer");
    }
    struct tern_split_step *step = &tokenizer->splits[tokenizer->split_count++];
    step->kind = kind;
    if (out != NULL) {
        *out = step;
    }
    return TERN_OK;
}

static tern_status read_byte_level(struct tern_tokenizer_reader *reader,
                                   const struct tern_json *part)
{
    if (tern_json_bool(tern_json_get(part, "add_prefix_space"), true)) {
        TERN_RETURN_IF_ERR(add_split(reader, "ByteLevel", TERN_SPLIT_PREFIX, NULL));
    }
    if (tern_json_bool(tern_json_get(part, "use_regex"), true)) {
        TERN_RETURN_IF_ERR(add_split(reader, "ByteLevel", TERN_SPLIT_GPT2, NULL));
    }
    reader->has_byte_level = true;
    return TERN_OK;
}

static tern_status read_behavior(const struct tern_tokenizer_reader *reader,
                                 const char *name,
                                 enum tern_split_behavior *out)
{
    static const char *const names[] = {"Isolated", "MergedWithPrevious", "MergedWithNext"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum tern_split_behavior)i;
            return TERN_OK;
        }
    }
    return tern_reader_refuse(reader, "pre_tokenizer Split.behavior", name,
                              "'Isolated', or with a String 'MergedWithPrevious' or "
                              "'MergedWithNext'");
}

/* Split by a pattern that takes in all text: "Isolated", and "Removed" inverted, come to the same. */
static tern_status read_regex_split(struct tern_tokenizer_reader *reader,
                                    const char *regex,
                                    const char *behavior,
                                    bool invert)
{
    enum tern_split_kind kind = tern_split_by_pattern(regex);
    if (kind == TERN_SPLIT_PATTERN_COUNT) {
        return tern_reader_refuse(reader, "pre_tokenizer Split.pattern", regex, tern_split_known);
    }
    bool is_whole = kind <= TERN_SPLIT_TEKKEN;
    bool is_isolated = strcmp(behavior, "Isolated") == 0 && (!invert || is_whole);
    if (!is_isolated && !(is_whole && invert && strcmp(behavior, "Removed") == 0)) {
        return tern_reader_refuse(reader, "pre_tokenizer Split.behavior", behavior,
                                  "'Isolated' and invert false");
    }
    return add_split(reader, "Split", kind, NULL);
}

static tern_status read_split(struct tern_tokenizer_reader *reader, const struct tern_json *part)
{
    struct tern_string text = {0};
    const char *regex;
    TERN_RETURN_IF_ERR(read_pattern(reader, part, &text, &regex));
    const char *behavior = tern_reader_string(part, "behavior");
    bool invert = tern_json_bool(tern_json_get(part, "invert"), false);
    if (regex != NULL) {
        return read_regex_split(reader, regex, behavior, invert);
    }
    enum tern_split_behavior which = TERN_SPLIT_ISOLATED;
    struct tern_split_step *step = NULL;
    tern_status status = read_behavior(reader, behavior, &which);
    if (status == TERN_OK && invert) {
        status = tern_reader_refuse(reader, "pre_tokenizer Split.invert", "true", "false");
    }
    if (status == TERN_OK) {
        status = add_split(reader, "Split", TERN_SPLIT_STRING, &step);
    }
    if (status != TERN_OK) {
        tern_free(text.data);
        return status;
    }
    step->text = text;
    step->behavior = which;
    return TERN_OK;
}

/* prepend_scheme of a Metaspace stage; in old files add_prefix_space. */
static tern_status read_prepend(const struct tern_tokenizer_reader *reader,
                                const struct tern_json *part,
                                enum tern_prepend *out)
{
    static const char *const names[] = {"first", "always", "never"};
    const char *scheme = tern_reader_string(part, "prepend_scheme");
    if (scheme[0] == '\0') {
        bool adds = tern_json_bool(tern_json_get(part, "add_prefix_space"), true);
        *out = adds ? TERN_PREPEND_ALWAYS : TERN_PREPEND_NEVER;
        return TERN_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(scheme, names[i]) == 0) {
            *out = (enum tern_prepend)i;
            return TERN_OK;
        }
    }
    return tern_reader_refuse(reader, "Metaspace.prepend_scheme", scheme,
                              "'first', 'always' or 'never'");
}

static tern_status read_metaspace(struct tern_tokenizer_reader *reader,
                                  const struct tern_json *part)
{
    struct tern_split_step *step;
    TERN_RETURN_IF_ERR(add_split(reader, "Metaspace", TERN_SPLIT_METASPACE, &step));
    TERN_RETURN_IF_ERR(read_string(reader, part, "replacement", false, &step->text));
    step->splits = tern_json_bool(tern_json_get(part, "split"), true);
    return read_prepend(reader, part, &step->prepend);
}

static tern_status read_split_step(struct tern_tokenizer_reader *reader,
                                   const struct tern_json *part)
{
    const char *type = tern_reader_string(part, "type");
    if (reader->has_byte_level) {
        return tern_reader_refuse(reader, "pre_tokenizer with a step after ByteLevel", type,
                                  "ByteLevel last");
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(reader, part);
    }
    if (strcmp(type, "Split") == 0) {
        return read_split(reader, part);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace(reader, part);
    }
    if (strcmp(type, "Digits") == 0) {
        bool alone = tern_json_bool(tern_json_get(part, "individual_digits"), false);
        return add_split(reader, type, alone ? TERN_SPLIT_DIGIT : TERN_SPLIT_DIGITS, NULL);
    }
    return tern_reader_refuse(reader, "pre_tokenizer", type,
                              "'ByteLevel', 'Split', 'Metaspace', 'Digits' or a Sequence of them");
}

tern_status tern_reader_pre_tokenizer(struct tern_tokenizer_reader *reader,
                                      const struct tern_json *stage)
{
    if (tern_reader_is_absent(stage)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, stage, "pre_tokenizer", TERN_JSON_OBJECT));
    return each_part(reader, stage, "pre_tokenizer", "pretokenizers", read_split_step);
}

/* ---- decoder ---- */

static tern_status read_decode_replace(struct tern_tokenizer_reader *reader,
                                       const struct tern_json *part)
{
    struct tern_decode_rules *rules = &reader->tokenizer->decode;
    const char *regex;
    if (rules->replace_count == TERN_STEPS_MAX || rules->has_bytes) {
        return tern_reader_refuse(reader, "decoder with Replace", "here",
                                  "at most 8 of them, before ByteFallback");
    }
    int index = rules->replace_count;
    TERN_RETURN_IF_ERR(read_pattern(reader, part, &rules->from[index], &regex));
    if (regex != NULL) {
        return tern_reader_refuse(reader, "decoder Replace with Regex", regex, "a String");
    }
    TERN_RETURN_IF_ERR(read_string(reader, part, "content", true, &rules->to[index]));
    rules->replace_count++;
    return TERN_OK;
}

static tern_status read_decode_strip(struct tern_tokenizer_reader *reader,
                                     const struct tern_json *part)
{
    int64_t start = -1, stop = -1;
    bool is_known = tern_json_i64(tern_json_get(part, "start"), &start) &&
                    tern_json_i64(tern_json_get(part, "stop"), &stop) && start >= 0 && stop == 0 &&
                    strcmp(tern_reader_string(part, "content"), " ") == 0;
    if (!is_known || !reader->is_fused) {
        return tern_reader_refuse(reader, "decoder", "Strip",
                                  "one of blanks from the start, after Fuse");
    }
    reader->tokenizer->first_rule = TERN_FIRST_STRIPS;
    reader->tokenizer->strip_blanks = (size_t)start;
    return TERN_OK;
}

/* Metaspace: marks are blanks, those of the first token are nothing. */
static tern_status read_decode_metaspace(struct tern_tokenizer_reader *reader,
                                         const struct tern_json *part)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    struct tern_decode_rules *rules = &tokenizer->decode;
    enum tern_prepend prepend;
    if (rules->replace_count > 0 || rules->has_bytes || reader->is_fused) {
        return tern_reader_refuse(reader, "decoder", "Metaspace in a Sequence", "it alone");
    }
    TERN_RETURN_IF_ERR(read_string(reader, part, "replacement", false, &rules->from[0]));
    TERN_RETURN_IF_ERR(tern_string_set(&rules->to[0], " ", 1));
    rules->replace_count = 1;
    reader->is_fused = true; /* nothing may follow */
    TERN_RETURN_IF_ERR(read_prepend(reader, part, &prepend));
    tokenizer->first_rule =
        prepend == TERN_PREPEND_NEVER ? TERN_FIRST_PLAIN : TERN_FIRST_DROPS_MARKS;
    return TERN_OK;
}

static tern_status read_decode_step(struct tern_tokenizer_reader *reader,
                                    const struct tern_json *part)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const char *type = tern_reader_string(part, "type");
    if (strcmp(type, "Strip") == 0) {
        return read_decode_strip(reader, part);
    }
    if (reader->is_fused) {
        return tern_reader_refuse(reader, "decoder with a step after Fuse or Metaspace", type,
                                  "'Strip' at most");
    }
    if (strcmp(type, "Replace") == 0) {
        return read_decode_replace(reader, part);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_decode_metaspace(reader, part);
    }
    if (strcmp(type, "Fuse") == 0) {
        reader->is_fused = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        tokenizer->decode.has_bytes = true;
    } else if (strcmp(type, "ByteLevel") == 0 && tokenizer->decode.replace_count == 0 &&
               !tokenizer->decode.has_bytes) {
        tokenizer->decode.is_byte_level = true;
    } else {
        return tern_reader_refuse(reader, "decoder", type,
                                  "'ByteLevel', 'Metaspace', or a Sequence of 'Replace', "
                                  "'ByteFallback', 'Fuse', 'Strip'");
    }
    return TERN_OK;
}

tern_status tern_reader_decoder(struct tern_tokenizer_reader *reader, const struct tern_json *stage)
{
    if (tern_reader_is_absent(stage)) {
        if (reader->tokenizer->model == TERN_MODEL_BYTES) {
            return TERN_OK;
        }
        return tern_reader_refuse(reader, "decoder", "null",
                                  "one: tokens would be joined by blanks");
    }
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, stage, "decoder", TERN_JSON_OBJECT));
    TERN_RETURN_IF_ERR(each_part(reader, stage, "decoder", "decoders", read_decode_step));
    bool is_byte_level = reader->tokenizer->decode.is_byte_level;
    if (is_byte_level != (reader->tokenizer->model == TERN_MODEL_BYTES)) {
        return tern_reader_refuse(reader, "decoder", tern_reader_string(stage, "type"),
                                  is_byte_level ? "none of ByteLevel: the pre_tokenizer has none"
                                                : "'ByteLevel', as in pre_tokenizer");
    }
    return TERN_OK;
}

/* ---- post-processor ---- */

enum {
    TEMPLATE_IDS_MAX = 1024
};

/* Appends the ids that a template's special token `name` stands for. */
static tern_status append_template_ids(struct tern_tokenizer_reader *reader,
                                       const char *name,
                                       int32_t **ids,
                                       int *count)
{
    const struct tern_json *list =
        tern_json_get(tern_json_get(reader->special_tokens, name), "ids");
    int64_t added = tern_json_count(list);
    if (added == 0 || *count + added > TEMPLATE_IDS_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: post_processor: special token '%.64s' has %" PRId64
                         " ids in special_tokens; expected 1 to %d in all",
                         reader->file, name, added, TEMPLATE_IDS_MAX);
    }
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
                "%s: post_processor: special token '%.64s' has an id outside the vocabulary",
                reader->file, name);
        }
        grown[(*count)++] = (int32_t)id;
    }
    return TERN_OK;
}

static tern_status read_template(struct tern_tokenizer_reader *reader,
                                 const struct tern_json *stage)
{
    struct tern_tokenizer *tokenizer = reader->tokenizer;
    const struct tern_json *single = tern_json_get(stage, "single");
    TERN_RETURN_IF_ERR(
        tern_reader_expect(reader, single, "post_processor.single", TERN_JSON_ARRAY));
    reader->special_tokens = tern_json_get(stage, "special_tokens");
    bool is_after = false;
    for (int64_t i = 0; i < tern_json_count(single); i++) {
        const struct tern_json *item = tern_json_item(single, i);
        const struct tern_json *token = tern_json_get(item, "SpecialToken");
        if (token != NULL) {
            TERN_RETURN_IF_ERR(append_template_ids(
                reader, tern_reader_string(token, "id"),
                is_after ? &tokenizer->suffix_ids : &tokenizer->prefix_ids,
                is_after ? &tokenizer->suffix_count : &tokenizer->prefix_count));
        } else if (tern_json_get(item, "Sequence") != NULL && !is_after) {
            is_after = true;
        } else {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: post_processor.single[%" PRId64
                             "]: expected a SpecialToken, or the one Sequence",
                             reader->file, i);
        }
    }
    if (!is_after) {
        return tern_fail(TERN_ERR_INPUT, "%s: post_processor.single: found no Sequence",
                         reader->file);
    }
    return TERN_OK;
}

static tern_status read_post_step(struct tern_tokenizer_reader *reader,
                                  const struct tern_json *part)
{
    const char *type = tern_reader_string(part, "type");
    if (strcmp(type, "ByteLevel") == 0) {
        return TERN_OK; /* moves offsets, not ids */
    }
    if (strcmp(type, "TemplateProcessing") != 0) {
        return tern_reader_refuse(reader, "post_processor", type,
                                  "'ByteLevel', 'TemplateProcessing' or a Sequence of them");
    }
    return read_template(reader, part);
}

tern_status tern_reader_post_processor(struct tern_tokenizer_reader *reader,
                                       const struct tern_json *stage)
{
    if (tern_reader_is_absent(stage)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_reader_expect(reader, stage, "post_processor", TERN_JSON_OBJECT));
    return each_part(reader, stage, "post_processor", "processors", read_post_step);
}
