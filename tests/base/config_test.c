/* config_test.c - the YAML reader on a small schema: values, places of problems, overrides, and
 * the way back. */
#include "runtime/base/config.h"
#include "runtime/base/random.h"
#include "tests/base/check.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    int64_t count;
    double rate;
    float narrow;
    bool flag;
    int color;
    char *name;
    char code[8];
    struct tern_config_strings files;
    struct tern_config_doubles shares;
    int64_t low, high; /* one CUSTOM key, "LOW-HIGH" */
};

static const char *const g_colors[] = {"red", "green", "blue", NULL};

static tern_status parse_span(const char *text, void *target)
{
    struct sample *sample = target;
    long long low;
    long long high;
    char rest;
    if (sscanf(text, "%lld-%lld%c", &low, &high, &rest) != 2) {
        return tern_fail(TERN_ERR_CONFIG, "found '%s', expected LOW-HIGH", text);
    }
    sample->low = low;
    sample->high = high;
    return TERN_OK;
}

static tern_status print_span(const void *target, struct tern_text *out)
{
    const struct sample *sample = target;
    return tern_text_printf(out, "%lld-%lld", (long long)sample->low, (long long)sample->high);
}

#define AT(field) offsetof(struct sample, field)

static const struct tern_config_row g_rows[] = {
    {"one", "count", TERN_CONFIG_I64, AT(count), 0, 1, 100, NULL, "5", "things", "how many"},
    {"one", "rate", TERN_CONFIG_F64, AT(rate), 0, TERN_CONFIG_ABOVE_0, TERN_CONFIG_NO_MAX, NULL,
     "0.5", "", "how fast"},
    {"one", "narrow", TERN_CONFIG_F32, AT(narrow), 0, 0, 0, NULL, NULL, "", "a float"},
    {"one", "flag", TERN_CONFIG_BOOL, AT(flag), 0, 0, 0, NULL, "true", "", "a switch"},
    {"one", "color", TERN_CONFIG_ENUM, AT(color), 0, 0, 0, g_colors, "green", "", "a color"},
    {"two", "name", TERN_CONFIG_STRING, AT(name), 0, 0, 0, NULL, "null", "", "a name"},
    {"two", "code", TERN_CONFIG_CHARS, AT(code), 8, 0, 0, NULL, "abc", "", "a short name"},
    {"two", "files", TERN_CONFIG_STRINGS, AT(files), 0, 0, 0, NULL, "[x, y]", "", "names"},
    {"two", "shares", TERN_CONFIG_DOUBLES, AT(shares), 0, 0, 1, NULL, NULL, "", "shares"},
    {"two", "span", TERN_CONFIG_CUSTOM, 0, 0, 0, 0, NULL, "1-2", "LOW-HIGH", "a span", parse_span,
     print_span},
};

static const struct tern_config_schema g_schema = {g_rows, sizeof g_rows / sizeof g_rows[0]};

static tern_status parse(const char *text,
                         size_t bytes,
                         struct sample *sample,
                         struct tern_config_source *source)
{
    memset(sample, 0, sizeof *sample);
    return tern_config_parse(&g_schema, "f.yaml", text, bytes, NULL, 0, sample, source);
}

static void done(struct sample *sample, struct tern_config_source *source)
{
    tern_config_fini(&g_schema, sample);
    tern_config_source_fini(source);
}

static void test_defaults(void **state)
{
    (void)state;
    const char *const empty[] = {"",      "\n\n",         "# only a comment\n",
                                 "---\n", "one:\ntwo:\n", "\xef\xbb\xbf"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        struct sample sample;
        struct tern_config_source source;
        if (parse(empty[i], strlen(empty[i]), &sample, &source) != TERN_OK) {
            fail_msg("text %zu: %s", i, tern_detail());
        }
        assert_int_equal(sample.count, 5);
        assert_true(sample.rate == 0.5 && sample.narrow == 0 && sample.flag);
        assert_int_equal(sample.color, 1);
        assert_null(sample.name);
        assert_string_equal(sample.code, "abc");
        assert_int_equal(sample.files.count, 2);
        assert_string_equal(sample.files.items[1], "y");
        assert_int_equal(sample.shares.count, 0);
        assert_int_equal(sample.high, 2);
        assert_false(tern_config_is_set(&g_schema, &source, "one", "count"));
        done(&sample, &source);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        "one: {count: 1e1, rate: 6e-4, narrow: 0.1, flag: false, color: 'blue'}\n"
        "two:\n"
        "  name: \"null\"   # quoted: a name\n"
        "  code: ~\n"
        "  files:\n"
        "    - a b.txt\n"
        "    - \"\\u00e9\\n\"\n"
        "  shares: [0, 0.25, 1]\n"
        "  span: 7-9\n";
    struct sample sample;
    struct tern_config_source source;
    assert_int_equal(parse(text, strlen(text), &sample, &source), TERN_OK);
    assert_int_equal(sample.count, 10);
    assert_true(sample.rate == 6e-4 && sample.narrow == 0.1F && !sample.flag);
    assert_int_equal(sample.color, 2);
    assert_string_equal(sample.name, "null");
    assert_string_equal(sample.code, "");
    assert_int_equal(sample.files.count, 2);
    assert_string_equal(sample.files.items[0], "a b.txt");
    assert_string_equal(sample.files.items[1], "\xc3\xa9\n");
    assert_int_equal(sample.shares.count, 3);
    assert_true(sample.shares.items[1] == 0.25);
    assert_int_equal(sample.low, 7);
    assert_true(tern_config_is_set(&g_schema, &source, "two", "span"));
    done(&sample, &source);
}

/* One scalar is a list of one. */
static void test_scalar_as_list(void **state)
{
    (void)state;
    static const char text[] = "two:\n  files: a.txt\n  shares: 0.5\n";
    struct sample sample;
    struct tern_config_source source;
    assert_int_equal(parse(text, strlen(text), &sample, &source), TERN_OK);
    assert_int_equal(sample.files.count, 1);
    assert_string_equal(sample.files.items[0], "a.txt");
    assert_true(sample.shares.count == 1 && sample.shares.items[0] == 0.5);
    done(&sample, &source);
}

static const struct {
    const char *text, *place, *found;
} g_bad[] = {
    {"one:\n  count: many\n", "f.yaml:2:10: one.count",
     "found 'many', expected a whole number from 1 to 100"},
    {"one:\n  count: 1.5\n", "f.yaml:2:10", "found '1.5', expected a whole number"},
    {"one:\n  count: 101\n", "f.yaml:2:10", "found '101', expected a whole number from 1 to 100"},
    {"one:\n  count: \"7\"\n", "f.yaml:2:10", "found the quoted text '7'"},
    {"one:\n  count:\n", "f.yaml:2:9", "found nothing, expected a whole number"},
    {"one:\n  count: [1, 2]\n", "f.yaml:2:10", "found a list of 2, expected a whole number"},
    {"one:\n  count: {a: 1}\n", "f.yaml:2:10", "found a mapping, expected a value"},
    {"one:\n  rate: 0\n", "f.yaml:2:9", "found '0', expected a number above 0"},
    {"one:\n  rate: .inf\n", "f.yaml:2:9", "found '.inf', expected a number"},
    {"one:\n  narrow: 1e300\n", "f.yaml:2:11", "found '1e300', expected a number"},
    {"one:\n  flag: yes\n", "f.yaml:2:9", "found 'yes', expected true or false"},
    {"one:\n  color: gren\n", "f.yaml:2:10",
     "expected one of red, green, blue; nearest is 'green'"},
    {"two:\n  name: [a]\n", "f.yaml:2:9", "found a list of 1, expected text or null"},
    {"two:\n  code: abcdefgh\n", "f.yaml:2:9", "expected text of at most 7 bytes"},
    {"two:\n  files: [a, [b]]\n", "f.yaml:2:14", "found a nested list or mapping"},
    {"two:\n  shares: [0.5, 2]\n", "f.yaml:2:11",
     "found '2', expected a list, [a, b], each a number from 0 to 1"},
    {"two:\n  span: wide\n", "f.yaml:2:9: two.span", "found 'wide', expected LOW-HIGH"},
    {"one:\n  cuont: 3\n", "f.yaml:2:3: one.cuont", "unknown key, nearest is 'count'"},
    {"one:\n  span: 1-2\n", "f.yaml:2:3: one.span", "'span' belongs in section 'two'"},
    {"count: 3\n", "f.yaml:1:1",
     "found the key 'count' outside a section, expected it inside 'one:'"},
    {"oen:\n  count: 3\n", "f.yaml:1:1",
     "unknown section 'oen', nearest is 'one'; expected one of one, two"},
    {"one: 3\n", "f.yaml:1:6", "one: found a value, expected 'key: value' lines"},
    {"one:\n- count\n", "f.yaml:2:1", "one: found a list, expected 'key: value' lines"},
    {"one:\n  count: 3\n  count: 4\n", "f.yaml:3:3",
     "found a second time, expected once (first at line 2)"},
    {"one:\n  count: 3\none:\n  rate: 4\n", "f.yaml:3:1", "section 'one': found a second time"},
    {"- one\n", "f.yaml:1:1", "found a list, expected sections"},
    {"hello\n", "f.yaml:1:1", "found a bare value, expected sections"},
    {"one:\n  count: &a 3\n", "f.yaml:2:10", "found the anchor &a"},
    {"one:\n  count: &a 3\n  rate: *a\n", "f.yaml:3:9",
     "found the alias *a, expected the value itself"},
    {"one:\n  count: !!int 3\n", "f.yaml:2:10", "found the tag tag:yaml.org,2002:int"},
    {"one:\n  ? [a]\n  : 3\n", "f.yaml:2:5", "found a list or mapping as a key, expected a name"},
    {"? {a: b}\n: 3\n", "f.yaml:1:3", "found a list or mapping as a section, expected a name"},
    {"one:\n  count: 3\n---\none:\n  count: 4\n", "f.yaml:3:1",
     "found a second document, expected one"},
    {"one:\n\tcount: 3\n", "f.yaml:2:1",
     "not valid YAML: found character that cannot start any token"},
    {"one:\n  count: 3\n rate: 4\n", "f.yaml:3:2", "not valid YAML"},
    {"one: {count: 3\n", "f.yaml:2:1", "not valid YAML"},
    {"two:\n  name: \"open\n", "f.yaml:3:1", "not valid YAML: found unexpected end of stream"},
    {"two:\n  name: \"a\\0b\"\n", "f.yaml:2:9", "found a zero byte inside the text"},
    {"one:\n  count: 3 # \xc3\xa9 \xff\n", "f.yaml:2:16",
     "found the byte 0xff, expected UTF-8 text"},
    {"two:\n  name: \x01\n", "f.yaml:", "not valid YAML: control characters are not allowed"},
    {"[[[[[[[[[[[[[[[[[[[[", "f.yaml:1:17", "found values nested 17 deep, expected at most 16"},
};

static void test_problems(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_bad / sizeof g_bad[0]; i++) {
        struct sample sample;
        struct tern_config_source source;
        tern_status status = parse(g_bad[i].text, strlen(g_bad[i].text), &sample, &source);
        const char *detail = tern_detail();
        if (status != TERN_ERR_CONFIG || strstr(detail, g_bad[i].place) == NULL ||
            strstr(detail, g_bad[i].found) == NULL) {
            fail_msg("text '%s': status %s\n  found    %s\n  expected %s: %s", g_bad[i].text,
                     tern_status_name(status), status == TERN_OK ? "" : detail, g_bad[i].place,
                     g_bad[i].found);
        }
        done(&sample, &source);
    }
}

static void test_zero_bytes_and_size(void **state)
{
    (void)state;
    struct sample sample;
    struct tern_config_source source;
    assert_int_equal(parse("one:\n\0\n", 7, &sample, &source), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), "f.yaml:2:1: found the byte 0x00, expected UTF-8 text");
    done(&sample, &source);

    size_t bytes = TERN_CONFIG_FILE_BYTES_MAX + 1;
    char *huge = tern_alloc("test", bytes);
    memset(huge, '#', bytes);
    assert_int_equal(parse(huge, bytes, &sample, &source), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), "found 1048577 bytes, expected at most 1048576");
    done(&sample, &source);
    tern_free(huge);
}

static void test_all_problems_at_once(void **state)
{
    (void)state;
    static const char text[] = "one:\n  count: x\n  rate: y\n  colour: red\ntwo:\n  span: z\n";
    struct sample sample;
    struct tern_config_source source;
    assert_int_equal(parse(text, strlen(text), &sample, &source), TERN_ERR_CONFIG);
    assert_int_equal(source.problem_count, 4);
    assert_true(tern_config_is_bad(&g_schema, &source, "one", "count"));
    assert_false(tern_config_is_bad(&g_schema, &source, "one", "flag"));
    assert_true(tern_config_is_bad(&g_schema, &source, "two", NULL));
    assert_false(tern_config_is_broken(&source));
    tern_config_problem(&g_schema, &source, "one", "rate", "found %d, expected more", 3);
    tern_config_problem(&g_schema, &source, "two", "files", "missing");
    assert_int_equal(tern_config_finish(&source), TERN_ERR_CONFIG);
    const char *const parts[] = {"f.yaml:2:10: ",
                                 "f.yaml:3:9: ",
                                 "f.yaml:4:3: ",
                                 "f.yaml:6:9: ",
                                 "f.yaml:3:3: one.rate: found 3, expected more\n",
                                 "f.yaml:5:1: two.files: missing\n",
                                 "f.yaml: 6 problems; nothing was started"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_contains(tern_detail(), parts[i]);
    }
    done(&sample, &source);
}

static void test_many_problems_fit(void **state)
{
    (void)state;
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(tern_text_printf(&text, "unknown_section_%d:\n  a: 1\n", i), TERN_OK);
    }
    struct sample sample;
    struct tern_config_source source;
    assert_int_equal(parse(text.data, text.length, &sample, &source), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), "f.yaml: 3000 problems, the first ");
    assert_true(strlen(tern_detail()) < TERN_DETAIL_BYTES - 1);
    done(&sample, &source);
    tern_text_fini(&text);
}

static void test_overrides(void **state)
{
    (void)state;
    static const char text[] = "one:\n  count: 3\n";
    const char *const good[] = {"one.count=4",    "two.name=a: b #c", "two.files=[p, 'q r']",
                                "two.code=\"x\"", "two.shares=0.5",   "two.span=3-4",
                                "one.count=6"};
    struct sample sample = {0};
    struct tern_config_source source;
    assert_int_equal(
        tern_config_parse(&g_schema, "f.yaml", text, strlen(text), good, 7, &sample, &source),
        TERN_OK);
    assert_int_equal(sample.count, 6);
    assert_string_equal(sample.name, "a: b #c");
    assert_int_equal(sample.files.count, 2);
    assert_string_equal(sample.files.items[1], "q r");
    assert_string_equal(sample.code, "x");
    assert_int_equal(sample.high, 4);
    done(&sample, &source);

    const char *const bad[] = {"one.count=x",   "one.cuont=1", "oen.count=1",  "count=1",
                               "one.count",     ".count=1",    "one.=1",       "two.files=[a",
                               "two.name=\xff", "count.one=1", "one.flag=True"};
    const char *const expected[] = {
        "--set one.count=x: one.count: found 'x', expected a whole number",
        "--set one.cuont=1: one.cuont: unknown key, nearest is 'count'",
        "--set oen.count=1: unknown section 'oen', nearest is 'one'",
        "--set count=1: found 'count=1', expected SECTION.KEY=VALUE",
        "--set one.count: found 'one.count', expected SECTION.KEY=VALUE",
        "--set .count=1: found '.count=1', expected SECTION.KEY=VALUE",
        "--set one.=1: found 'one.=1', expected SECTION.KEY=VALUE",
        "--set two.files=[a: not valid YAML",
        "found the byte 0xff, expected UTF-8 text",
        "--set count.one=1: found the key 'count' outside a section, expected it inside 'one:'",
        "--set one.flag=True: one.flag: found 'True', expected true or false",
    };
    memset(&sample, 0, sizeof sample);
    assert_int_equal(
        tern_config_parse(&g_schema, "f.yaml", text, strlen(text), bad, 11, &sample, &source),
        TERN_ERR_CONFIG);
    assert_int_equal(source.problem_count, 11);
    for (int i = 0; i < 11; i++) {
        assert_contains(tern_detail(), expected[i]);
    }
    done(&sample, &source);
}

static void check_round_trip(const struct sample *sample)
{
    struct tern_text text;
    struct sample back;
    struct tern_config_source source;
    tern_text_init(&text);
    assert_int_equal(tern_config_write(&g_schema, sample, &text), TERN_OK);
    if (parse(text.data, text.length, &back, &source) != TERN_OK) {
        fail_msg("what was written is not read: %s\n%s", tern_detail(), text.data);
    }
    assert_int_equal(back.count, sample->count);
    assert_memory_equal(&back.rate, &sample->rate, sizeof back.rate);
    assert_memory_equal(&back.narrow, &sample->narrow, sizeof back.narrow);
    assert_int_equal(back.flag, sample->flag);
    assert_int_equal(back.color, sample->color);
    assert_int_equal(back.name == NULL, sample->name == NULL);
    if (back.name != NULL) {
        assert_string_equal(back.name, sample->name);
    }
    assert_string_equal(back.code, sample->code);
    assert_int_equal(back.files.count, sample->files.count);
    for (int i = 0; i < back.files.count; i++) {
        assert_string_equal(back.files.items[i], sample->files.items[i]);
    }
    assert_int_equal(back.shares.count, sample->shares.count);
    assert_memory_equal(back.shares.items, sample->shares.items,
                        (size_t)back.shares.count * sizeof(double));
    assert_int_equal(back.low, sample->low);
    done(&back, &source);
    tern_text_fini(&text);
}

static void test_texts_round_trip(void **state)
{
    (void)state;
    static char *texts[] = {
        "",
        "null",
        "~",
        "true",
        "No",
        "1e3",
        "0x10",
        "a: b",
        "a #b",
        "#",
        "- a",
        "*.bin",
        "&x",
        "!t",
        "%d",
        "@",
        "'",
        "\"",
        "\\",
        "\\n",
        "a\nb",
        "\t",
        "\x01",
        "\x7f",
        " lead",
        "trail ",
        "[a]",
        "{a}",
        "a,b",
        "é",
        "日本",
        "\xf0\x9f\x90\xa6",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "\xef\xbb\xbf",
        "\xef\xbf\xbf",
        "/a/b-c_d.e",
        "plain",
        "...",
        "---",
        "?",
        ".5",
        "a:",
        "https://x/y",
        "\xc2\xa0x",
        "=",
        "<<",
        "y",
    };
    enum {
        COUNT = sizeof texts / sizeof texts[0]
    };
    double shares[] = {0, 0.1, 1};
    struct sample sample = {.count = 1, .rate = 1, .files = {texts, COUNT}, .shares = {shares, 3}};
    for (size_t i = 0; i < COUNT; i++) {
        sample.name = texts[i];
        check_round_trip(&sample);
    }
    sample.name = NULL;
    sample.files.count = 0;
    sample.shares.count = 0;
    check_round_trip(&sample);
}

static void test_numbers_round_trip(void **state)
{
    (void)state;
    const double special[] = {DBL_MIN, DBL_MAX,       0.1,  1.0 / 3, 6e-4,
                              1e22,    123456789.125, 5e-5, 1e15};
    struct sample sample = {.count = 1, .rate = 1};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        sample.rate = special[i];
        check_round_trip(&sample);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t bits = tern_random_u64(5, TERN_STREAM_TEST, i);
        uint32_t half = (uint32_t)bits;
        memcpy(&sample.rate, &bits, sizeof bits);
        memcpy(&sample.narrow, &half, sizeof half);
        if (sample.rate >= DBL_MIN && sample.rate <= DBL_MAX && sample.narrow >= -FLT_MAX &&
            sample.narrow <= FLT_MAX) {
            check_round_trip(&sample);
        }
    }
    char text[TERN_CONFIG_F64_BYTES];
    assert_string_equal(tern_config_f64_text(6e-4, text), "0.0006");
    assert_string_equal(tern_config_f64_text(0.1, text), "0.1");
    assert_string_equal(tern_config_f64_text(1e-8, text), "1.0e-08"); /* a number to PyYAML too */
}

static void test_help_says_everything(void **state)
{
    (void)state;
    struct tern_text text;
    tern_text_init(&text);
    assert_int_equal(tern_config_help(&g_schema, &text), TERN_OK);
    for (int i = 0; i < g_schema.row_count; i++) {
        assert_contains(text.data, g_rows[i].key);
        assert_contains(text.data, g_rows[i].help);
    }
    assert_contains(text.data, "a whole number from 1 to 100, in things; default: 5");
    assert_contains(text.data, "one of red, green, blue; default: green");
    assert_contains(text.data, "LOW-HIGH; default: 1-2");
    tern_text_fini(&text);
}

/* Damaged files end in values or in problems, never in a crash, a leak or silence. */
static void test_damaged_texts(void **state)
{
    (void)state;
    static const char whole[] = "one:\n  count: 3\n  rate: 1e-3\n  color: red\n"
                                "two:\n  name: \"x\\n\"\n  files: [a, 'b']\n  span: 1-2\n";
    static const char marks[] = "\n\t :-[]{}&*!|>'\"%@`#,?\\\x80\xff\x01~";
    int good = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[sizeof whole];
        memcpy(text, whole, sizeof whole);
        uint32_t draws[4];
        tern_philox4x32(77, TERN_STREAM_TEST, i, draws);
        for (int k = 0; k < 1 + (int)(i % 3); k++) {
            text[draws[k] % (sizeof whole - 1)] = marks[(draws[k] >> 16) % (sizeof marks - 1)];
        }
        size_t bytes = i % 5 == 0 ? draws[3] % sizeof whole : sizeof whole - 1;
        struct sample sample;
        struct tern_config_source source;
        tern_status status = parse(text, bytes, &sample, &source);
        assert_true(status == TERN_OK || status == TERN_ERR_CONFIG);
        assert_int_equal(status == TERN_OK, source.problem_count == 0);
        good += status == TERN_OK;
        done(&sample, &source);
    }
    print_message("%d of 20000 damaged texts were still good\n", good);
    assert_true(good > 100 && good < 19000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_defaults),
        CHECKED(test_values),
        CHECKED(test_scalar_as_list),
        CHECKED(test_problems),
        CHECKED(test_zero_bytes_and_size),
        CHECKED(test_all_problems_at_once),
        CHECKED(test_many_problems_fit),
        CHECKED(test_overrides),
        CHECKED(test_texts_round_trip),
        CHECKED(test_numbers_round_trip),
        CHECKED(test_help_says_everything),
        CHECKED(test_damaged_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
