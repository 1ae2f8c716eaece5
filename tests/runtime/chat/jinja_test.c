/* jinja_test.c - the template language against what transformers' jinja makes of the same snippets; budgets. */
#include "io/file.h"
#include "io/json.h"
#include "runtime/chat/jinja.h"
#include "tests/base/check.h"

#include <stdlib.h>
#include <string.h>

enum {
    VARIABLES_MAX = 64
};

struct golden {
    struct tern_json *root;
    struct tern_jinja_variable variables[VARIABLES_MAX];
    int count;
};

static tern_status add_variable(void *context,
                                const char *key,
                                size_t key_bytes,
                                const struct tern_json *value)
{
    struct golden *golden = context;
    (void)key_bytes;
    assert_true(golden->count < VARIABLES_MAX);
    golden->variables[golden->count++] =
        (struct tern_jinja_variable){.name = key, .kind = TERN_JINJA_JSON, .json = value};
    return TERN_OK;
}

static tern_status render(const struct golden *golden,
                          const char *text,
                          size_t bytes,
                          struct tern_jinja_output *out)
{
    struct tern_jinja *jinja;
    TERN_RETURN_IF_ERR(tern_jinja_compile("snippet", text, bytes, &jinja));
    struct tern_jinja_input input = {
        .variables = golden->variables, .variable_count = golden->count, .now = 86400};
    tern_status status = tern_jinja_render(jinja, &input, out);
    tern_jinja_destroy(jinja);
    return status;
}

static void test_equals_transformers(void **state)
{
    (void)state;
    struct golden golden = {0};
    struct tern_jinja_output out = {0};
    char *text;
    size_t bytes;
    int different = 0;
    assert_int_equal(tern_file_read(TERN_GOLDEN "/chat/jinja.json", 64 << 20, &text, &bytes),
                     TERN_OK);
    assert_int_equal(tern_json_parse("jinja.json", text, bytes, &golden.root), TERN_OK);
    tern_free(text);
    assert_int_equal(tern_json_each(tern_json_get(golden.root, "variables"), add_variable, &golden),
                     TERN_OK);
    const struct tern_json *cases = tern_json_get(golden.root, "cases");
    assert_true(tern_json_count(cases) > 600);
    for (int64_t i = 0; i < tern_json_count(cases); i++) {
        size_t template_bytes, wanted_bytes;
        const struct tern_json *row = tern_json_item(cases, i);
        const char *template = tern_json_string(tern_json_item(row, 0), &template_bytes);
        const char *wanted = tern_json_string(tern_json_item(row, 1), &wanted_bytes);
        tern_status status = render(&golden, template, template_bytes, &out);
        bool is_alike = wanted == NULL ? status == TERN_ERR_INPUT || status == TERN_ERR_UNSUPPORTED
                                       : status == TERN_OK && out.text.length == wanted_bytes &&
                                             memcmp(out.text.data, wanted, wanted_bytes) == 0;
        if (!is_alike) {
            print_error("%s\n  expected %s\n  found    %s\n", template,
                        wanted != NULL ? wanted : "a failure",
                        status == TERN_OK ? out.text.data : tern_detail());
            different++;
        }
    }
    tern_jinja_output_fini(&out);
    tern_json_close(golden.root);
    assert_int_equal(different, 0);
}

/* ---- positions, spans, the clock ---- */

static void test_messages_name_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *template, *words;
        tern_status status;
    } rows[] = {
        {"a\n  {{ 1 + 'x' }}", "snippet: line 2, column 8: '+' does not take int and str",
         TERN_ERR_INPUT},
        {"\xC3\xA9{{ x.y }}", "line 1, column 6: 'x' is undefined", TERN_ERR_INPUT},
        {"{% block b %}", "line 1, column 4: the tag {% block %} is not supported",
         TERN_ERR_UNSUPPORTED},
        {"{{ 1 | xmlattr }}", "line 1, column 8: the filter 'xmlattr' is not supported",
         TERN_ERR_UNSUPPORTED},
        {"{{ 1 is bogus }}", "the test 'bogus' is not supported", TERN_ERR_UNSUPPORTED},
        {"{{ f(*a) }}", "'*' before an argument is not supported", TERN_ERR_UNSUPPORTED},
        {"{{ raise_exception('no roles') }}", "refuses this conversation: no roles",
         TERN_ERR_INPUT},
        {"{% if x %}", "found the end of the template; expected {% elif %}", TERN_ERR_INPUT},
        {"{{ 'a", "line 1, column 4: found a string without its end", TERN_ERR_INPUT},
        {"{{ 9223372036854775807 + 1 }}", "64 bits, which is not supported", TERN_ERR_UNSUPPORTED},
        {"\xff", "line 1, column 1: found a byte 0xff", TERN_ERR_INPUT},
    };
    struct golden none = {0};
    struct tern_jinja_output out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tern_status status = render(&none, rows[i].template, strlen(rows[i].template), &out);
        assert_int_equal(status, rows[i].status);
        assert_contains(tern_detail(), rows[i].words);
    }
    tern_jinja_output_fini(&out);
}

static void test_generation_spans(void **state)
{
    (void)state;
    static const char template[] =
        "{% for i in range(3) %}\xC3\xA9{% generation %}<{{ i }}>{% endgeneration %}{% endfor %}";
    struct golden none = {0};
    struct tern_jinja_output out = {0};
    assert_int_equal(render(&none, template, strlen(template), &out), TERN_OK);
    assert_int_equal(out.span_count, 3);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(out.spans[i].start, (size_t)i * 5 + 2);
        assert_int_equal(out.spans[i].end, (size_t)i * 5 + 5);
        assert_memory_equal(out.text.data + out.spans[i].start, "<", 1);
    }
    static const char hidden[] =
        "{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}";
    assert_int_equal(render(&none, hidden, strlen(hidden), &out), TERN_ERR_UNSUPPORTED);
    tern_jinja_output_fini(&out);
}

static void test_clock(void **state)
{
    (void)state;
    static const char template[] = "{{ strftime_now('%Y %d %b') }}|{{ strftime_now('') }}|";
    struct golden none = {0};
    struct tern_jinja_output out = {0};
    setenv("TZ", "UTC", 1);
    assert_int_equal(render(&none, template, strlen(template), &out), TERN_OK);
    assert_string_equal(out.text.data, "1970 02 Jan||");
    tern_jinja_output_fini(&out);
}

/* ---- hostile templates ---- */

/* `part` `count` times, then `end` as often. */
static char *repeated(const char *begin,
                      const char *part,
                      const char *middle,
                      const char *end,
                      int count)
{
    struct tern_text text;
    tern_text_init(&text);
    assert_int_equal(tern_text_append(&text, begin, strlen(begin)), TERN_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tern_text_append(&text, part, strlen(part)), TERN_OK);
    }
    assert_int_equal(tern_text_append(&text, middle, strlen(middle)), TERN_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tern_text_append(&text, end, strlen(end)), TERN_OK);
    }
    return text.data;
}

/* Must end in time and memory, whatever it says; must fail unless it may pass. */
static void assert_harmless(const char *template, bool may_pass)
{
    struct golden none = {0};
    struct tern_jinja_output out = {0};
    int64_t before = tern_mem_stats().live_bytes;
    tern_status status = render(&none, template, strlen(template), &out);
    if (status == TERN_OK ? !may_pass
                          : status != TERN_ERR_INPUT && status != TERN_ERR_UNSUPPORTED) {
        fail_msg("%.200s: status %s (%s)", template, tern_status_name(status), tern_detail());
    }
    tern_jinja_output_fini(&out);
    assert_int_equal(tern_mem_stats().live_bytes, before);
}

static void test_hostile(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) "
        "}}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(l=[0]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{{ [0] * 1000000000000 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ range(9223372036854775807) }}",
        "{{ range(-9223372036854775807, 9223372036854775807) }}",
        "{{ 10 ** 100 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ 'x'.zfill(1000000000000) }}",
        "{{ 'a'|indent(1000000000000, true) }}",
        "{{ [1]|tojson(indent=1000000000000) }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l|tojson }}",
        "{% set ns = namespace(l=[]) %}{% set nt = namespace(l=[]) %}{% for i in range(90000) %}{% "
        "set ns.l = [ns.l] %}{% set nt.l = [nt.l] %}{% endfor %}{{ ns.l == nt.l }}",
        "{% set ns = namespace(t=()) %}{% for i in range(90000) %}{% set ns.t = (ns.t,) %}{% "
        "endfor %}{{ {ns.t: 1} }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a|tojson }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__']['__base__'] }}",
        "{{ [].__class__.__init__.__globals__ }}",
        "{{ range.__globals__.os }}",
        "{{ (1).__class__('x') }}",
        "{{ dict.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ ''|attr('__class__')|attr('__mro__')|first }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(range) }}",
        "{{ '%s'.__mod__(1) }}",
        "{{ messages.append(1) }}",
        "{{ [].append(1) }}",
        "{{ {}.update({}) }}",
        "{{ self.__init__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'x' %}",
        "{% from 'x' import y %}",
        "{% raw %} ",
        "{#",
        "{{",
        "{%",
        "{% set x %}",
        "{% macro m(",
        "{% for x in",
        "{{ '\\",
        "{{ \"\\x4",
        "{{ '\\ud800' }}",
        "{{ [[[ }}",
        "{{ 999999999999999999999999999999 }}",
        "{% for k in range(99999) %}{% set x = 'aaaaaaaaaaaaaaaa' * 60000 in 'aaaaaaaaaaaaaaab' * "
        "60000 %}{% endfor %}",
        "{% set s = 'ab' * 500000 %}{% for k in range(99999) %}{{ s.rfind('b' * 1000) }}{% endfor "
        "%}",
        "{% set s = 'ab' * 500000 %}{% for k in range(99999) %}{% set t = s|upper %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for k in l %}{% set t = l|sort(reverse=true) %}{% "
        "endfor %}",
        "{% set l = range(99999)|list %}{% for k in l %}{{ 100000 in l }}{% endfor %}",
        "{{ range(99999)|unique|list|length }}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_harmless(rows[i], false);
    }
}

static void test_hostile_depth(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *part, *middle, *end;
    } rows[] = {
        {"{{ ", "(", "1", ")"},
        {"{{ ", "[", "", "]"},
        {"{{ ", "{1:", "1", "}"},
        {"{{ ", "-", "1 }}", ""},
        {"{{ ", "not ", "1 }}", ""},
        {"", "{% if 1 %}", "", "{% endif %}"},
        {"", "{% for i in [1] %}", "", "{% endfor %}"},
        {"{{ ", "a[", "0", "]"},
        {"{{ ", "f(", "0", ")"},
        {"", "{% set x %}", "", "{% endset %}"},
        {"{{ 1", "+1", " }}", ""},
        {"{{ 1", "|abs", " }}", ""},
        {"{{ x", ".x", " }}", ""},
        {"{{ 1", " if 1 else 1", " }}", ""},
        {"{{ 1", "", " }}", " "},
        {"", "{% filter upper %}", "", "{% endfilter %}"},
        {"{{ 1 ", "is odd is odd ", "}}", ""},
        {"{% set ", "(", "a", ")"},
        {"", "{% macro m() %}", "", "{% endmacro %}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int count = 100; count <= 20000; count += count < 1000 ? 150 : 19000) {
            char *text = repeated(rows[i].begin, rows[i].part, rows[i].middle, rows[i].end, count);
            assert_harmless(text, true);
            tern_free(text);
        }
    }
    char *large = repeated("", "x", "", "", TERN_JINJA_SOURCE_BYTES_MAX + 1);
    assert_harmless(large, false);
    tern_free(large);
}

static void test_budgets_are_the_callers(void **state)
{
    (void)state;
    struct tern_jinja *jinja;
    struct tern_jinja_output out = {0};
    static const char template[] = "{% for i in range(1000) %}{{ i }}{% endfor %}";
    assert_int_equal(tern_jinja_compile("t", template, strlen(template), &jinja), TERN_OK);
    struct tern_jinja_input input = {.now = 0, .steps_max = 500};
    assert_int_equal(tern_jinja_render(jinja, &input, &out), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "500 steps are used up");
    input = (struct tern_jinja_input){.now = 0, .memory_bytes = 1000};
    assert_int_equal(tern_jinja_render(jinja, &input, &out), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "memory");
    input = (struct tern_jinja_input){.now = 0};
    assert_int_equal(tern_jinja_render(jinja, &input, &out), TERN_OK);
    assert_int_equal(out.text.length, 2890);
    tern_jinja_output_fini(&out);
    tern_jinja_destroy(jinja);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_equals_transformers),
        CHECKED(test_messages_name_the_place),
        CHECKED(test_generation_spans),
        CHECKED(test_clock),
        CHECKED(test_hostile),
        CHECKED(test_hostile_depth),
        CHECKED(test_budgets_are_the_callers),
    };
    return cmocka_run_group_tests_name("jinja", tests, NULL, NULL);
}
