/* tokenizer_golden_test.c - every kind of tokenizer against what Hugging Face's `tokenizers` made of the same texts
 * (tests/golden/tokenizers, made by tests/oracles/make_tokenizer_golden.py); cuts of those texts change nothing. */
#include "io/json.h"
#include "io/tokenizer.h"
#include "io/tokenizer_split.h"
#include "tests/io/data_fixture.h"

static const char *golden(const char *name, const char *ending)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s%s", GOLDEN_FOLDER, name, ending);
    return path;
}

/* Calls check with each line's object. */
static void each_case(const char *name,
                      void (*check)(void *context, const struct tern_json *line, int number),
                      void *context)
{
    char *text;
    size_t bytes;
    assert_ok(tern_file_read(golden(name, ".cases"), 1 << 20, &text, &bytes));
    int number = 0;
    for (size_t at = 0; at < bytes;) {
        size_t length = (size_t)((char *)memchr(text + at, '\n', bytes - at) - (text + at));
        struct tern_json *line;
        assert_ok(tern_json_parse(name, text + at, length, &line));
        check(context, line, ++number);
        tern_json_close(line);
        at += length + 1;
    }
    assert_true(number >= 40);
    tern_free(text);
}

/* ---- ids and texts ---- */

struct subject {
    const char *name;
    struct tern_tokenizer *tokenizer;
    struct tern_encoder *encoder;
    int cuts;
};

static void assert_ids(const struct subject *subject,
                       int number,
                       const struct tern_json *expected,
                       const int32_t *ids,
                       int64_t count)
{
    for (int64_t i = 0; i < count || i < tern_json_count(expected); i++) {
        int64_t id = -1;
        tern_json_i64(tern_json_item(expected, i), &id);
        if (i >= count || id != ids[i]) {
            fail_msg("%s, case %d: id %lld is %d; expected %lld", subject->name, number,
                     (long long)i, i < count ? ids[i] : -1, (long long)id);
        }
    }
}

/* The ids with what the post-processor adds. */
static void check_framed(const struct subject *subject,
                         int number,
                         const struct tern_json *line,
                         const struct tern_ids *ids)
{
    struct tern_text all;
    int count;
    tern_text_init(&all);
    const int32_t *frame = tern_tokenizer_prefix(subject->tokenizer, &count);
    assert_ok(
        tern_text_append(&all, frame != NULL ? frame : ids->data, (size_t)count * sizeof *frame));
    assert_ok(tern_text_append(&all, ids->data, (size_t)ids->count * sizeof *frame));
    frame = tern_tokenizer_suffix(subject->tokenizer, &count);
    assert_ok(
        tern_text_append(&all, frame != NULL ? frame : ids->data, (size_t)count * sizeof *frame));
    assert_ids(subject, number, tern_json_get(line, "framed"), (const int32_t *)all.data,
               (int64_t)(all.length / sizeof *frame));
    tern_text_fini(&all);
}

/* Blocks cut where tern_tokenizer_cut says give the ids of the whole. */
static void check_cuts(struct subject *subject,
                       int number,
                       const struct tern_json *line,
                       const char *text,
                       size_t bytes)
{
    for (size_t block = 1; block < bytes; block += 1 + bytes / 8) {
        struct tern_ids ids = {0};
        size_t start = 0;
        for (size_t seen = block; start < bytes; seen += block) {
            bool is_all = seen >= bytes;
            size_t length = (is_all ? bytes : seen) - start;
            size_t cut =
                is_all ? length : tern_tokenizer_cut(subject->tokenizer, text + start, length);
            if (cut == 0) {
                continue;
            }
            subject->cuts += !is_all;
            if (start > 0) {
                tern_encoder_continue(subject->encoder);
            }
            assert_ok(tern_encoder_append(subject->encoder, text + start, cut, true, &ids));
            start += cut;
        }
        assert_ids(subject, number, tern_json_get(line, "ids"), ids.data, ids.count);
        tern_free(ids.data);
    }
}

static void check_text(void *context, const struct tern_json *line, int number)
{
    struct subject *subject = context;
    size_t bytes;
    const char *text = tern_json_string(tern_json_get(line, "text"), &bytes);
    struct tern_ids ids = {0};
    assert_ok(tern_encoder_append(subject->encoder, text, bytes, true, &ids));
    assert_ids(subject, number, tern_json_get(line, "ids"), ids.data, ids.count);
    if (ids.count > 0) {
        check_framed(subject, number, line, &ids);
    }
    size_t expected_bytes;
    const char *expected = tern_json_string(tern_json_get(line, "decoded"), &expected_bytes);
    if (expected != NULL) {
        char *back;
        size_t back_bytes;
        assert_ok(tern_tokenizer_decode(subject->tokenizer, ids.data, ids.count, false, &back,
                                        &back_bytes));
        struct tern_text shown;
        tern_text_init(&shown);
        assert_ok(tern_text_append_utf8(&shown, back, back_bytes));
        if (shown.length != expected_bytes ||
            (expected_bytes > 0 && memcmp(shown.data, expected, expected_bytes) != 0)) {
            fail_msg("%s, case %d: decoded '%s'; expected '%s'", subject->name, number, shown.data,
                     expected);
        }
        tern_text_fini(&shown);
        tern_free(back);
    }
    tern_free(ids.data);
    check_cuts(subject, number, line, text, bytes);
}

static void test_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool is_cut; /* some place to cut is found */
    } names[] = {
        {"gpt2", true},           {"llama3", true}, {"qwen2", true},    {"qwen35", true},
        {"tekken", true},         {"smollm", true}, {"llama2", true},   {"metaspace", true},
        {"phi3", true},           {"gemma", true},  {"crossing", true}, {"unigram", true},
        {"unigram_bytes", false},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct subject subject = {.name = names[i].name};
        assert_ok(tern_tokenizer_open(golden(names[i].name, ".json"), &subject.tokenizer));
        assert_ok(tern_encoder_create(subject.tokenizer, &subject.encoder));
        each_case(names[i].name, check_text, &subject);
        if ((subject.cuts > 0) != names[i].is_cut) {
            fail_msg("%s: %d cuts", names[i].name, subject.cuts);
        }
        tern_encoder_destroy(subject.encoder);
        tern_tokenizer_close(subject.tokenizer);
    }
}

/* ---- words ---- */

static void check_words(void *context, const struct tern_json *line, int number)
{
    const struct tern_chars *chars = context;
    size_t bytes;
    const char *pattern = tern_json_string(tern_json_get(line, "pattern"), NULL);
    const char *text = tern_json_string(tern_json_get(line, "text"), &bytes);
    const struct tern_json *words = tern_json_get(line, "words");
    enum tern_split_kind kind = tern_split_by_pattern(pattern);
    assert_true(kind != TERN_SPLIT_PATTERN_COUNT);
    size_t at = 0;
    /* Theirs has no word for what a partial pattern leaves out, ours has: the same. */
    for (int64_t i = 0; i < tern_json_count(words); i++) {
        size_t expected_bytes;
        const char *expected = tern_json_string(tern_json_item(words, i), &expected_bytes);
        size_t word = tern_split_next(chars, kind, (const uint8_t *)text + at, bytes - at);
        if (word != expected_bytes || memcmp(text + at, expected, word) != 0) {
            fail_msg("case %d, %s: word %lld is '%.*s'; expected '%s'", number, pattern,
                     (long long)i, (int)word, text + at, expected);
        }
        at += word;
    }
    assert_int_equal(at, bytes);
}

static void test_patterns(void **state)
{
    (void)state;
    struct tern_chars chars = {0};
    assert_ok(tern_chars_init(&chars));
    each_case("splits", check_words, &chars);
    tern_chars_fini(&chars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
