/* stream_test.c - every way to cut a text into tokens lets the same text out, a whole character at
 * a time. */
#include "runtime/generate/stream.h"
#include "tests/runtime/fixture.h"

enum {
    BYTES_MAX = 16
};

static void start(struct tern_stream *stream, const char *const *stops)
{
    tern_stream_init(stream);
    while (stops[stream->stop_count] != NULL) {
        stream->stops[stream->stop_count] = stops[stream->stop_count];
        stream->stop_count++;
    }
}

static void check_utf8(const struct tern_text *out)
{
    for (size_t at = 0; at < out->length;) {
        enum tern_utf8 kind;
        at += tern_utf8_next(out->data + at, out->length - at, &kind);
        assert_int_equal(kind, TERN_UTF8_WHOLE);
    }
}

/* cuts: bit i set: a token ends after byte i. */
static void check_cut(const char *text,
                      const char *const *stops,
                      const char *expected,
                      unsigned cuts)
{
    size_t length = strlen(text);
    struct tern_stream stream;
    struct tern_text out;
    size_t begin = 0;
    start(&stream, stops);
    tern_text_init(&out);
    for (size_t i = 0; i < length; i++) {
        if (i + 1 < length && (cuts >> i & 1) == 0) {
            continue;
        }
        expect_ok(tern_stream_push(&stream, text + begin, i + 1 - begin, &out));
        begin = i + 1;
        check_utf8(&out);
        if (out.length > strlen(expected) ||
            (out.length > 0 && memcmp(out.data, expected, out.length) != 0)) {
            fail_msg("'%s', cuts %x: let out '%.*s', expected '%s'", text, cuts, (int)out.length,
                     out.data, expected);
        }
    }
    expect_ok(tern_stream_finish(&stream, &out));
    if (out.length != strlen(expected) || (out.length > 0 && strcmp(out.data, expected) != 0)) {
        fail_msg("'%s', cuts %x: found '%.*s', expected '%s'", text, cuts, (int)out.length,
                 out.data, expected);
    }
    tern_stream_fini(&stream);
    tern_text_fini(&out);
}

#define MARK "\xEF\xBF\xBD"

static void test_every_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *stops[4];
        const char *expected;
    } rows[] = {
        {"plain text", {NULL}, "plain text"},
        {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z",
         {NULL},
         "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
        {"cut \xF0\x9F\x98", {NULL}, "cut " MARK},
        {"\x80x\xE2\x82y\xFFz\xC3", {NULL}, MARK "x" MARK "y" MARK "z" MARK},
        {"\xED\xA0\x80\xC0\xAF", {NULL}, MARK MARK MARK MARK MARK},
        {"one END two", {"END"}, "one "},
        {"one EN two", {"END"}, "one EN two"},
        {"EEENDx", {"END"}, "EE"},
        {"ababac", {"abac"}, "ab"},
        {"aaab", {"aab"}, "a"},
        {"xEND", {"END", "xE"}, ""},
        {"abc", {"abc", "b"}, "a"}, /* complete first */
        {"abcd", {"bcd", "abcd"}, ""},
        {"stop", {"stop"}, ""},
        {"end sto", {"stop"}, "end sto"}, /* held back until the end */
        {"\n\nUser", {"\nUser", "\n\n\n"}, "\n"},
        {"e\xCC\x81\xE2\x82\xAC|", {"\xE2\x82\xAC"}, "e\xCC\x81"},
        {"\xC3\xA9\xC3\xA8",
         {"\xC3\xA8"},
         "\xC3\xA9"},                  /* a stop begins like the character before */
        {"\xC3\xA9!", {"\xA9"}, MARK}, /* and may begin inside one */
        {"x\xF0\x9F\x98\x80y", {"\x98\x81"}, "x\xF0\x9F\x98\x80y"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = strlen(rows[i].text);
        assert_true(length <= BYTES_MAX);
        for (unsigned cuts = 0; cuts < 1U << (length - 1); cuts++) {
            check_cut(rows[i].text, rows[i].stops, rows[i].expected, cuts);
        }
    }
}

/* What cannot become anything else is let out at once: nobody waits for the next token. */
static void test_prompt(void **state)
{
    (void)state;
    static const struct {
        const char *pushed, *out;
    } rows[] = {{"abc", "abc"}, {"\xE2\x82", ""}, {"\xAC", "\xE2\x82\xAC"}, {"hello EN", "hello "},
                {"X", "ENX"},   {"\xF0", ""},     {"q", MARK "q"},          {"E", ""},
                {"", ""},       {"E", "E"},       {"ND gone", ""},          {"more", ""}};
    const char *stops[] = {"END", NULL};
    struct tern_stream stream;
    start(&stream, stops);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_text out;
        tern_text_init(&out);
        expect_ok(tern_stream_push(&stream, rows[i].pushed, strlen(rows[i].pushed), &out));
        assert_string_equal(out.data != NULL ? out.data : "", rows[i].out);
        tern_text_fini(&out);
    }
    assert_true(stream.is_stopped);
    tern_stream_fini(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_every_cut), CHECKED(test_prompt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
