/* tools_test.c - calls of tools in answers, however they are cut into pieces. */
#include "runtime/serve/tools.h"
#include "tests/base/check.h"

#include <string.h>

struct heard {
    struct tern_text all; /* text as it is, "{name|" at a call's begin, then its arguments */
    int calls;
};

static tern_status hear_text(void *context, const char *bytes, size_t count)
{
    struct heard *heard = context;
    TERN_RETURN_IF_ERR(tern_text_printf(&heard->all, "T:"));
    TERN_RETURN_IF_ERR(tern_text_append(&heard->all, bytes, count));
    return TERN_OK;
}

static tern_status hear_call(void *context, int call, const char *name)
{
    struct heard *heard = context;
    assert_int_equal(call, heard->calls);
    heard->calls++;
    return tern_text_printf(&heard->all, "<%s>", name);
}

static tern_status hear_arguments(void *context, int call, const char *bytes, size_t count)
{
    struct heard *heard = context;
    assert_int_equal(call, heard->calls - 1);
    return tern_text_append(&heard->all, bytes, count);
}

struct answer {
    enum tern_tool_format format;
    bool is_forced;
    int calls_max;
    const char *text;
    const char *expected; /* pieces of text joined: "T:" once, before the first */
};

static const struct answer g_answers[] = {
    {TERN_TOOLS_NONE, false, 8, "<tool_call>{\"name\":\"f\"}", "T:<tool_call>{\"name\":\"f\"}"},
    {TERN_TOOLS_TAGGED, false, 8, "hello", "T:hello"},
    {TERN_TOOLS_TAGGED, false, 8, "a < b <tool", "T:a < b <tool"},
    {TERN_TOOLS_TAGGED, false, 8,
     "so: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": "
     "\"}\"}]}}\n</tool_call>",
     "T:so: <f>{\"a\": [1, {\"b\": \"}\"}]}"},
    {TERN_TOOLS_TAGGED, false, 8,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
     "tool_call>\n<tool_call>{\"arguments\":{\"x\":1},"
     "\"name\":\"g\"}</tool_call>\nend",
     "<f>{}<g>{\"x\":1}T:\nend"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"name\":\"f\"}</tool_call>", "<f>{}"},
    {TERN_TOOLS_TAGGED, false, 8,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\\"}\"},\"id\":\"7\"}</tool_call>",
     "<f>{\"a\":\"\\\"}\"}"},
    {TERN_TOOLS_TAGGED, false, 8,
     "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>", "<f>{\"a\": 1}"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>",
     "<f>{}"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>nothing</tool_call>",
     "T:<tool_call>nothing</tool_call>"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"a\":1}</tool_call>",
     "T:<tool_call>{\"a\":1}</tool_call>"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"name\":\"\"}</tool_call>",
     "T:<tool_call>{\"name\":\"\"}</tool_call>"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"na", "T:<tool_call>{\"na"},
    {TERN_TOOLS_TAGGED, false, 8, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "<f>{\"a\":"},
    {TERN_TOOLS_TAGGED, false, 1,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\"}",
     "<f>{}"},
    {TERN_TOOLS_TAGGED, true, 8, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "<f>{\"a\": 1}"},
    {TERN_TOOLS_TAGGED, false, 8,
     "<tool_call>{\"name\":\"\\u0066\\n\",\"arguments\":{\"\xc3\xa9\":\"\xf0\x9f\x98\x80\"}}"
     "</tool_call>",
     "<f\n>{\"\xc3\xa9\":\"\xf0\x9f\x98\x80\"}"},
    {TERN_TOOLS_OBJECT, false, 8, "Hello {\"name\":\"f\"}", "T:Hello {\"name\":\"f\"}"},
    {TERN_TOOLS_OBJECT, false, 8, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "<f>{\"a\": 1}"},
    {TERN_TOOLS_OBJECT, false, 8, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "<f>{}"},
    {TERN_TOOLS_OBJECT, false, 8,
     "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
     "\"parameters\": {\"b\": 2}}",
     "<f>{}<g>{\"b\": 2}"},
    {TERN_TOOLS_OBJECT, false, 8, "{\"name\": \"Ann\", \"age\": 7}",
     "T:{\"name\": \"Ann\", \"age\": 7}"},
    {TERN_TOOLS_OBJECT, false, 8, "<|python_code|>", "T:<|python_code|>"},
    {TERN_TOOLS_LIST, false, 8,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "<f>{\"a\": [1]}<g>{}"},
    {TERN_TOOLS_LIST, false, 8, "a list: [1, 2] [TOOL", "T:a list: [1, 2] [TOOL"},
    {TERN_TOOLS_LIST, false, 8,
     "so [TOOL_CALLS]f[ARGS]{\"a\": {\"b\": \"}\"}}[TOOL_CALLS]g-2[ARGS]{} [1] "
     "[TOOL_CALLS]h[ARGS]{}",
     "T:so <f>{\"a\": {\"b\": \"}\"}}<g-2>{}[1] <h>{}"},
    {TERN_TOOLS_LIST, false, 1, "[TOOL_CALLS]f[ARGS]{\"a\":1}[TOOL_CALLS]g[ARGS]{}",
     "<f>{\"a\":1}"},
    {TERN_TOOLS_LIST, false, 8, "[TOOL_CALLS]f[ARGS]{\"a\":[1,", "<f>{\"a\":[1,"},
    {TERN_TOOLS_LIST, false, 8, "[TOOL_CALLS]are what I make [ARGS]{}",
     "T:[TOOL_CALLS]are what I make [ARGS]{}"},
    {TERN_TOOLS_LIST, false, 8, "[TOOL_CALLS]f[ARG", "T:[TOOL_CALLS]f[ARG"},
    {TERN_TOOLS_LIST, true, 8, "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "<f>{\"a\": 1}"},
};

/* Text that comes in several pieces is told in several: "T:" only where the first begins. */
static void join(struct tern_text *all)
{
    char *out = all->data;
    bool is_text = false;
    for (char *at = all->data; *at != '\0';) {
        if (strncmp(at, "T:", 2) == 0) {
            if (!is_text) {
                *out++ = *at++;
                *out++ = *at++;
                is_text = true;
            } else {
                at += 2;
            }
            continue;
        }
        *out++ = *at++;
    }
    *out = '\0';
}

static void hear(const struct answer *answer, size_t piece)
{
    struct heard heard = {0};
    struct tern_tool_parser parser;
    tern_text_init(&heard.all);
    assert_int_equal(tern_text_append(&heard.all, "", 0), TERN_OK);
    const struct tern_tool_sink sink = {hear_text, hear_call, hear_arguments, &heard};
    tern_tool_parser_init(&parser, answer->format, answer->is_forced, answer->calls_max, &sink);
    size_t bytes = strlen(answer->text);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        assert_int_equal(tern_tool_parser_push(&parser, answer->text + at, n), TERN_OK);
    }
    assert_int_equal(tern_tool_parser_finish(&parser), TERN_OK);
    join(&heard.all);
    if (strcmp(heard.all.data != NULL ? heard.all.data : "", answer->expected) != 0) {
        fail_msg("'%s' in pieces of %zu: '%s', expected '%s'", answer->text, piece, heard.all.data,
                 answer->expected);
    }
    tern_text_fini(&heard.all);
    tern_tool_parser_fini(&parser);
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_answers / sizeof g_answers[0]; i++) {
        for (size_t piece = 1; piece < 40; piece++) {
            hear(&g_answers[i], piece);
        }
        hear(&g_answers[i], 1000);
    }
}

static void test_formats(void **state)
{
    (void)state;
    assert_int_equal(tern_tool_format_of("{{ '<tool_call>' }}"), TERN_TOOLS_TAGGED);
    assert_int_equal(tern_tool_format_of("{{ '[TOOL_CALLS]' }}"), TERN_TOOLS_LIST);
    assert_int_equal(tern_tool_format_of("{{ '<|python_tag|>' }}"), TERN_TOOLS_OBJECT);
    assert_int_equal(tern_tool_format_of("{{ messages }}"), TERN_TOOLS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_answers), CHECKED(test_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
