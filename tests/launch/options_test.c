/* options_test.c - the option parser on a small table: every kind, its limits, and help made
 * from the same table. */
#include "launch/help.h"
#include "launch/options.h"
#include "tests/base/check.h"

#include <string.h>

enum {
    ARGC_MAX = 128
};

static struct {
    bool flag;
    const char *name;
    struct tern_option_list list;
    int64_t count;
    double rate;
    int64_t bytes;
    int choice;
} g_values;

static const char *const g_words[] = {"red", "green", NULL};

static const struct tern_option g_options[] = {
    {"flag", TERN_OPTION_FLAG, &g_values.flag, NULL, "a switch"},
    {"name", TERN_OPTION_STRING, &g_values.name, "TEXT", "a name (default: none)"},
    {"set", TERN_OPTION_LIST, &g_values.list, "K=V", "a list"},
    {"count", TERN_OPTION_I64, &g_values.count, "N", "how many (default 3)", 1, 10},
    {"rate", TERN_OPTION_F64, &g_values.rate, "X", "how fast", -1, 1},
    {"bytes", TERN_OPTION_BYTES, &g_values.bytes, "SIZE", "how large", 0, 9e18},
    {"color", TERN_OPTION_CHOICE, &g_values.choice, "C", "a color (default: red)",
     .choices = g_words},
};

static const struct tern_command_spec g_spec = {
    .name = "sample",
    .usage = "FILE [options]",
    .summary = "Does nothing.",
    .example = "tern sample a.txt --count 4",
    .options = g_options,
    .option_count = sizeof g_options / sizeof g_options[0],
    .positional_min = 1,
    .positional_max = 2,
};

static tern_status parse(const char *const *words, struct tern_positionals *positionals)
{
    char *argv[ARGC_MAX];
    int argc = 0;
    while (words[argc] != NULL) {
        argv[argc] = (char *)(uintptr_t)words[argc];
        argc++;
    }
    bool is_help;
    memset(&g_values, 0, sizeof g_values);
    return tern_options_parse(&g_spec, argc, argv, positionals, &is_help);
}

static void test_all_kinds(void **state)
{
    (void)state;
    struct tern_positionals at;
    const char *const words[] = {"a.txt",     "--flag",  "--name=x=y", "--set",  "a=1",
                                 "--set=b=2", "--count", "1e1",        "--rate", "-0.5",
                                 "--bytes",   "2K",      "--color",    "green",  "--",
                                 "--count",   NULL};
    assert_int_equal(parse(words, &at), TERN_OK);
    assert_true(g_values.flag);
    assert_string_equal(g_values.name, "x=y");
    assert_int_equal(g_values.list.count, 2);
    assert_string_equal(g_values.list.items[1], "b=2");
    assert_int_equal(g_values.count, 10);
    assert_true(g_values.rate == -0.5);
    assert_int_equal(g_values.bytes, 2048);
    assert_int_equal(g_values.choice, 1);
    assert_int_equal(at.count, 2);
    assert_string_equal(at.items[1], "--count");
    assert_int_equal(parse((const char *const[]){"-", NULL}, &at), TERN_OK); /* standard input */
    assert_string_equal(at.items[0], "-");
    assert_int_equal(parse((const char *const[]){"a", "--name", "--strange", NULL}, &at), TERN_OK);
    assert_string_equal(g_values.name, "--strange");
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        const char *words[6];
        const char *expected;
    } rows[] = {
        {{NULL}, "sample: found 0 of at least 1 arguments, expected: tern sample FILE [options]"},
        {{"a", "b", "c"}, "found one argument too many, 'c', expected at most 2"},
        {{"a", "--cuont", "3"},
         "unknown option '--cuont', nearest is '--count' (see 'tern sample --help')"},
        {{"a", "--cuont=3"}, "unknown option '--cuont', nearest is '--count'"},
        {{"a", "-c"}, "unknown option '-c', nearest is '--"},
        {{"a", "--"}, NULL},
        {{"a", "--count"}, "option --count: found no value, expected --count N"},
        {{"a", "--count", "--flag"}, "option --count: found no value, expected --count N"},
        {{"a", "--count="}, "option --count: found '', expected a whole number from 1 to 10"},
        {{"a", "--count", "11"}, "found '11', expected a whole number from 1 to 10"},
        {{"a", "--rate", "fast"}, "option --rate: found 'fast', expected a number from -1 to 1"},
        {{"a", "--bytes", "-1"}, "option --bytes: found '-1', expected a size such as 512M or 4G"},
        {{"a", "--color", "blue"}, "option --color: found 'blue', expected one of red, green"},
        {{"a", "--flag=1"}, "option --flag: found the value '1', expected none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_positionals at;
        tern_status status = parse(rows[i].words, &at);
        assert_int_equal(status, rows[i].expected == NULL ? TERN_OK : TERN_ERR_USAGE);
        if (rows[i].expected != NULL) {
            assert_contains(tern_detail(), rows[i].expected);
        }
    }
}

static void test_bounds(void **state)
{
    (void)state;
    const char *words[ARGC_MAX] = {"a"};
    struct tern_positionals at;
    for (int i = 0; i <= TERN_OPTION_LIST_MAX; i++) {
        words[1 + i] = "--set=x";
        words[2 + i] = NULL;
        assert_int_equal(parse(words, &at), i < TERN_OPTION_LIST_MAX ? TERN_OK : TERN_ERR_USAGE);
    }
    assert_contains(tern_detail(), "option --set: found more than 64");
}

static void test_help(void **state)
{
    (void)state;
    struct tern_text text;
    tern_text_init(&text);
    assert_int_equal(tern_help_command(&g_spec, &text), TERN_OK);
    const char *const parts[] = {"usage: tern sample FILE [options]\n",
                                 "Does nothing.\n",
                                 "  --flag ",
                                 "  --count N ",
                                 "how many (default 3); from 1 to 10\n",
                                 "one of red, green\n",
                                 "  --help ",
                                 "example:\n  tern sample a.txt --count 4\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_contains(text.data, parts[i]);
    }
    tern_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_all_kinds),
        CHECKED(test_refusals),
        CHECKED(test_bounds),
        CHECKED(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
