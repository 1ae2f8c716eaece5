/* grammar_test.c - grammars: the mask against byte-by-byte trial over whole vocabularies, what is accepted and refused,
 * schemas that are wrong or hostile, copies, frames, starting again within the budget. */
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "runtime/serve/grammar.h"
#include "runtime/serve/grammar_impl.h"
#include "tests/runtime/fixture.h"
#include "tests/runtime/serve/byte_tokenizer.h"

static struct tern_tokenizer *g_tokenizer;
static struct tern_grammar_vocab *g_vocab;
static int64_t g_vocab_size;
static int32_t g_end_id;

static void open_vocab(const char *name)
{
    char path[TERN_PATH_BYTES];
    if (strcmp(name, "made") == 0) {
        expect_ok(byte_tokenizer_open(byte_tokenizer_next, NULL, &g_tokenizer));
    } else {
        snprintf(path, sizeof path, "%s/tokenizers/%s.json", TERN_GOLDEN, name);
        expect_ok(tern_tokenizer_open(path, &g_tokenizer));
    }
    g_end_id = (int32_t)tern_tokenizer_vocab_size(g_tokenizer) + 2;
    g_vocab_size = g_end_id + 3; /* padded, as models' vocabularies are */
    expect_ok(tern_grammar_vocab_create(g_tokenizer, g_vocab_size, &g_end_id, 1, &g_vocab));
}

static void close_vocab(void)
{
    tern_grammar_vocab_release(g_vocab);
    tern_tokenizer_close(g_tokenizer);
}

static int set_up(void **state)
{
    (void)state;
    open_vocab("smollm");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_vocab();
    assert_int_equal(tern_mem_stats().live_blocks, 0);
    return 0;
}

static tern_status compile(const char *schema, struct tern_grammar **out)
{
    struct tern_json *json;
    *out = NULL;
    TERN_RETURN_IF_ERR(tern_json_parse("schema", schema, strlen(schema), &json));
    tern_status status = tern_grammar_compile_schema(g_vocab, json, out);
    tern_json_close(json);
    return status;
}

static struct tern_grammar *compiled(const char *schema)
{
    struct tern_grammar *grammar;
    if (compile(schema, &grammar) != TERN_OK) {
        fail_msg("%s: %s", schema, tern_detail());
    }
    return grammar;
}

static int32_t byte_id(unsigned char byte)
{
    for (int32_t id = 0; id < g_vocab_size; id++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(g_tokenizer, id, &bytes);
        if (bytes == 1 && (unsigned char)piece[0] == byte &&
            !tern_tokenizer_is_special(g_tokenizer, id)) {
            return id;
        }
    }
    return -1;
}

/* -1: whole; else the byte at which it is refused, its length when it is only a beginning. */
static int64_t refused_at(struct tern_grammar *grammar, const char *text)
{
    struct tern_grammar_state *state;
    expect_ok(tern_grammar_state_create(grammar, &state));
    size_t at = 0, length = strlen(text);
    while (at < length && tern_grammar_accept(state, byte_id((unsigned char)text[at]))) {
        at++;
    }
    bool is_whole = at == length && tern_grammar_is_complete(state);
    tern_grammar_state_destroy(state);
    return is_whole ? -1 : (int64_t)at;
}

/* By hand: each row is a schema, texts that are documents (separated by |), and texts that are not. */
static void test_documents(void **unused)
{
    (void)unused;
    static const struct {
        const char *schema, *yes, *no;
    } rows[] = {
        {"true", "1|-0.5e+10|\"\"|[]|{}|null| true|[1, [2]]|{\"a\":{\"b\":[]}}|\n\t 1",
         "01|1.|.5|+1|nul|[1,]|{\"a\"}|{a:1}|'a'|1 |  1|\"\t\"|\"\\x\"|NaN"},
        {"{\"type\":\"string\"}",
         "\"\\u00e9\\n\"|\"\xC3\xA9\xF0\x9F\x99\x82\"|\"\\ud83d\\ude42\"|\"\x7F\"",
         "\"\xC3\"|\"\xED\xA0\x80\"|\"\xC0\x80\"|\"\xF5\x80\x80\x80\"|\"\\ud83d\"|\"\\ude42\"|"
         "\"\\ud83dx\"|\"a|\"\n\"|\"\\u12g4\"|\"\\ud83d\\u0041\""},
        {"{\"type\":\"object\"}", "{}|{ }|{\"a\" :1}|{\"a\":1,\"a\":2}|{\n  \"a\": 1\n}",
         "[]|{,}|1"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":"
         "[\"b\"]}",
         "{\"a\":1,\"b\":2}|{\"b\":[{}]}|{ \"b\" : 1 }",
         "{}|{\"a\":1}|{\"b\":1,\"a\":1}|{\"b\":1,\"c\":1}|{\"a\":1.5,\"b\":1}|{\"\\u0061\":1}"},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
         "\"boolean\"}}",
         "{}|{\"a\":1}|{\"a\":1,\"b\":true}|{\"b\":true,\"ab\":false}|{\"\":true}|{\"A\":true}",
         "{\"a\":true}|{\"b\":true,\"a\":true}|{\"b\":1}|{\"b\":true,\"a\":1}|{\"\\u0061\":true}"},
        {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}", "-12|-1|0|9|10|305|299|99",
         "-13|306|-0|00|1.0|1e2|-|400|1000"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":8.5,\"exclusiveMaximum\":12}", "9|10|11",
         "8|12|7|1|90"},
        {"{\"type\":\"integer\",\"minimum\":9223372036854775806}",
         "9223372036854775806|9223372036854775807", "9223372036854775805|9223372036854775808|1"},
        {"{\"type\":\"integer\",\"maximum\":-9223372036854775807}",
         "-9223372036854775808|-9223372036854775807", "-9223372036854775809|-1|0"},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "0|1|0.5|1.0|1.000|0.0|0.000001",
         "-0|-0.1|1.01|2|1e0|1.0000000000000001"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":-2.25,\"exclusiveMaximum\":0.1}",
         "-2.2|-2.2499|-1|0|0.09|-0.5|0.0999", "-2.25|-2.250|-3|0.1|0.10|0.11|1"},
        {"{\"type\":\"number\",\"minimum\":12.5}", "12.5|12.50|13|99999.5|12.6",
         "12|12.4|1|-13|12.49"},
        {"{\"type\":\"number\",\"multipleOf\":1,\"minimum\":1,\"maximum\":3}", "1|2|3", "1.0|0|4"},
        {"{\"enum\":[1,\"a\",\"ab\",null,[1,{\"k\":\"v\"}],1.5,{}]}",
         "1|\"a\"|\"ab\"|null|[1,{\"k\":\"v\"}]|[ 1, {\"k\": \"v\"}]|1.5|{}",
         "2|\"b\"|[]|true|\"abc\"|1.50"},
        {"{\"const\":\"q\\\"\\n\xC3\xA9\"}", "\"q\\\"\\n\xC3\xA9\"",
         "\"q\\u0022\\n\xC3\xA9\"|\"q\""},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1,2]|[1,2,3]|[ 1 , 2 ]", "[]|[1]|[1,2,3,4]|[1,2,]|[\"a\",1]"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}",
         "[]|[1]|[1,2]", "[2]|[1,2,3]|[1,1]"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":9},\"minItems\":"
         "2,"
         "\"maxItems\":4}",
         "[1,9]|[1,9,9]|[1,9,9,9]", "[1]|[9,9]|[1,9,9,9,9]"},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]|[ ]", "[1]|[,]"},
        {"{\"items\":{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":1}}",
         "[]|[[]]|[[null],[]]|[[null],[null],[]]", "[[null,null]]|[null]"},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         "\"ab\"|\"\xC3\xA9\xC3\xA9\"|\"\\n\\u0041\"|\"\xF0\x9F\x99\x82\xF0\x9F\x99\x82x\"|"
         "\"\\ud83d\\ude42a\"",
         "\"\"|\"a\"|\"abcd\"|\"\\ud83d\\ude42\""},
        {"{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"maxLength\":3}",
         "\"a\"|\"aab\"|\"aaa\"|\"ab\"", "\"\"|\"b\"|\"aaaa\"|\"aaab\"|\"abb\""},
        {"{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":3}",
         "\"abc\"|\"bbb\"|\"\xC3\xA9\xC3\xA9"
         "b\"",
         "\"b\"|\"ab\"|\"aaa\""},
        {"{\"type\":\"string\",\"pattern\":\"^(ab|cd){2,3}$\"}", "\"abcd\"|\"ababab\"",
         "\"ab\"|\"abcdabcd\"|\"abc\""},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\\\\\\\x]$\"}",
         "\"a\"|\"\\\"\"|\"\\n\"|\"\xC3\xA9\"", "\"x\"|\"\\\\\"|\"\"|\"ab\""},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         "\"2024-02-29\"|\"2000-02-29\"|\"2023-12-31\"",
         "\"2023-02-29\"|\"1900-02-29\"|\"2023-04-31\"|\"2023-13-01\"|\"0000-01-01\"|\"2023-1-1\""},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1},{\"type\":"
         "\"array\","
         "\"maxItems\":1,\"items\":{\"type\":\"null\"}}]}",
         "1|\"a\"|[]|[null]", "1.5|\"ab\"|[1]|{}|null"},
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":"
         "\"integer\"}},\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":"
         "{\"const\":\"ab\"},\"v\":{\"type\":\"string\"}},\"required\":[\"k\",\"v\"]}]}",
         "{\"k\":\"a\",\"v\":1}|{\"k\":\"ab\",\"v\":\"x\"}",
         "{\"k\":\"a\",\"v\":\"x\"}|{\"k\":\"ab\",\"v\":1}|{\"k\":\"a\"}"},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}}}]}",
         "{\"a\":5}|{\"a\":7,\"b\":null}", "{}|{\"a\":4}|{\"b\":null}|{\"a\":5.5}"},
        {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\","
         "\"items\":"
         "{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"c\"]}},\"$ref\":\"#/$defs/n\"}",
         "{\"c\":[]}|{\"c\":[{\"c\":[]},{\"c\":[{\"c\":[]}]}]}", "{}|{\"c\":[{}]}|{\"c\":{}}"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "null", "1|{}"},
        {"{\"type\":\"string\",\"nullable\":true,\"title\":\"t\",\"x-own\":[]}", "null|\"\"", "1"},
        {"{\"type\":[\"integer\",\"null\"],\"enum\":[1,\"a\",null,2.5]}", "1|null", "\"a\"|2.5"},
        {"{\"properties\":{\"a~b/c\":{\"$ref\":\"#/$defs/x~1y~0z%20w\"}},\"$defs\":{\"x/y~z w\":"
         "{\"const\":3}}}",
         "{}|{\"a~b/c\":3}", "{\"a~b/c\":4}"},
        {"{\"required\":[\"z\"],\"additionalProperties\":{\"type\":\"integer\"}}",
         "{\"z\":1}|{\"z\":1,\"y\":2}", "{}|{\"y\":1}|{\"z\":null}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_grammar *grammar = compiled(rows[i].schema);
        for (int side = 0; side < 2; side++) {
            char texts[1024];
            snprintf(texts, sizeof texts, "%s", side == 0 ? rows[i].yes : rows[i].no);
            char *rest = texts;
            for (char *text; (text = strsep(&rest, "|")) != NULL;) {
                int64_t at = refused_at(grammar, text);
                if ((at == -1) != (side == 0)) {
                    fail_msg("%s: %s is %s (byte %lld)", rows[i].schema, text,
                             side == 0 ? "refused" : "accepted", (long long)at);
                }
            }
        }
        tern_grammar_release(grammar);
    }
}

/* Schemas that are refused, with what the sentence must say. */
static const struct {
    const char *schema, *says;
} g_refused[] = {
    {"1", ": a schema is a number"},
    {"null", "expected an object or a boolean"},
    {"[]", "expected an object or a boolean"},
    {"{\"type\":\"strin\"}", "\"type\" is a string, expected null, boolean"},
    {"{\"type\":[]}", "\"type\" is an array"},
    {"{\"type\":[\"string\",1]}", "\"type\" is an array"},
    {"{\"not\":{}}", "\"not\" is not supported"},
    {"{\"if\":{},\"then\":{}}", "\"if\" is not supported"},
    {"{\"properties\":{\"a\":{\"not\":{}}}}", "/properties/a: \"not\""},
    {"{\"properties\":{\"a/b~c\":{\"contains\":{}}}}", "/properties/a~1b~0c: \"contains\""},
    {"{\"items\":{\"anyOf\":[{},{\"uniqueItems\":true}]}}", "/items/anyOf/1: \"uniqueItems\""},
    {"{\"patternProperties\":{}}", "\"patternProperties\" is not supported"},
    {"{\"propertyNames\":{}}", "\"propertyNames\" is not supported"},
    {"{\"dependentRequired\":{}}", "\"dependentRequired\" is not supported"},
    {"{\"unevaluatedProperties\":false}", "\"unevaluatedProperties\" is not supported"},
    {"{\"contentEncoding\":\"base64\"}", "\"contentEncoding\" is not supported"},
    {"{\"minProperties\":1}", "\"minProperties\" is a number, expected 0"},
    {"{\"maxProperties\":1}", "\"maxProperties\" is not supported"},
    {"{\"madeUp\":1}", "\"madeUp\" is not supported"},
    {"{\"multipleOf\":0.1}", "expected 1"},
    {"{\"minLength\":-1}", "\"minLength\" is a number, expected a whole number from 0"},
    {"{\"minLength\":1.5}", "whole number"},
    {"{\"maxLength\":99999999999}", "whole number"},
    {"{\"maxItems\":\"3\"}", "\"maxItems\" is a string"},
    {"{\"minimum\":\"3\"}", "\"minimum\" is a string, expected a number"},
    {"{\"exclusiveMinimum\":true}", "\"exclusiveMinimum\" is a boolean"},
    {"{\"type\":\"number\",\"minimum\":1e300}", "bounds of a number"},
    {"{\"required\":\"a\"}", "\"required\" is a string"},
    {"{\"required\":[1]}", "\"required\" is an array, expected an array of strings"},
    {"{\"properties\":[]}", "\"properties\" is an array"},
    {"{\"properties\":{\"a\":1}}", "/properties/a: a schema is a number"},
    {"{\"items\":[{}]}", "\"items\" is an array"},
    {"{\"prefixItems\":{}}", "\"prefixItems\" is an object"},
    {"{\"anyOf\":[]}", "\"anyOf\" is an array"},
    {"{\"anyOf\":{}}", "\"anyOf\" is an object"},
    {"{\"anyOf\":[{}],\"oneOf\":[{}]}", "\"oneOf\" beside \"anyOf\""},
    {"{\"allOf\":[1]}", "\"allOf\" is an array"},
    {"{\"enum\":[]}", "\"enum\" is an array"},
    {"{\"enum\":{}}", "\"enum\" is an object"},
    {"{\"enum\":[1],\"minimum\":0}", "beside keywords"},
    {"{\"$ref\":1}", "\"$ref\" is a number"},
    {"{\"$ref\":\"http://example.org/s\"}", "other documents"},
    {"{\"$ref\":\"#anchor\"}", "anchors are not supported"},
    {"{\"$ref\":\"\"}", "expected \"#\""},
    {"{\"$ref\":\"#/$defs/none\"}", "there is no \"#/$defs/none\""},
    {"{\"$ref\":\"#/a/b~2c\"}", "there is no"},
    {"{\"$ref\":\"#/%zz\"}", "no JSON pointer"},
    {"{\"allOf\":[{}],\"$ref\":\"#/allOf/1\"}", "there is no"},
    {"{\"$ref\":\"#\"}", "no document is valid"},
    {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":"
     "\"#/$defs/a\"}",
     "no document is valid"},
    {"false", "no document is valid"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no document is valid"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no document is valid"},
    {"{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}", "no document is valid"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":3,\"maximum\":3}", "no document is valid"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "no document is valid"},
    {"{\"type\":\"array\",\"minItems\":1,\"items\":false}", "no document is valid"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no document is valid"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "no document is valid"},
    {"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"a\"]}",
     "no document is valid"},
    {"{\"type\":\"string\",\"pattern\":\"^ab$\",\"maxLength\":1}", "no document is valid"},
    {"{\"type\":\"string\",\"pattern\":\"^(ab)*$\",\"minLength\":3,\"maxLength\":3}",
     "no document is valid"},
    {"{\"type\":\"string\",\"format\":\"iri\"}", "\"format\" \"iri\" is not supported"},
    {"{\"pattern\":\"a\",\"format\":\"date\"}", "more than one"},
    {"{\"pattern\":\"(?=a)\"}", "look-around"},
    {"{\"pattern\":\"(?<!a)\"}", "look-around"},
    {"{\"pattern\":\"(a)\\\\1\"}", "back references"},
    {"{\"pattern\":\"a\\\\b\"}", "\\b and \\B"},
    {"{\"pattern\":\"\\\\p{L}\"}", "\\p is not supported"},
    {"{\"pattern\":\"a^b\"}", "^ and $"},
    {"{\"pattern\":\"^a|b$\"}", "need a group"},
    {"{\"pattern\":\"(a\"}", "not closed"},
    {"{\"pattern\":\"a)\"}", "too many"},
    {"{\"pattern\":\"[a\"}", "too early"},
    {"{\"pattern\":\"[b-a]\"}", "backwards"},
    {"{\"pattern\":\"[a-\\\\d]\"}", "cannot end a range"},
    {"{\"pattern\":\"*a\"}", "nothing to repeat"},
    {"{\"pattern\":\"a**\"}", "needs a group"},
    {"{\"pattern\":\"a{3,2}\"}", "wrong way round"},
    {"{\"pattern\":\"a{9999}\"}", "more than 2000"},
    {"{\"pattern\":\"\\\\\"}", "too early"},
    {"{\"pattern\":\"\\\\u12g4\"}", "hexadecimal"},
    {"{\"pattern\":\"\\\\ud800\"}", "half a surrogate"},
    {"{\"pattern\":\"(?i)a\"}", "this kind of group"},
    {"{\"pattern\":\"^(((a{99}){99}){99}){99}$\"}", "too large"},
    {"{\"pattern\":\"(a|b)*a(a|b){40}\"}", "too large"},
    {"{\"pattern\":\"^(.*a){200}$\",\"maxLength\":100000}", "too large"},
    {"{\"pattern\":\"a\",\"maxLength\":2000000}", "too large"},
};

static void test_refusals(void **unused)
{
    (void)unused;
    int64_t before = tern_mem_stats().live_blocks;
    for (size_t i = 0; i < sizeof g_refused / sizeof g_refused[0]; i++) {
        struct tern_grammar *grammar;
        tern_status status = compile(g_refused[i].schema, &grammar);
        if (status != TERN_ERR_INPUT || strstr(tern_detail(), g_refused[i].says) == NULL) {
            fail_msg("%s: %s: \"%s\", expected \"%s\"", g_refused[i].schema,
                     tern_status_name(status), status != TERN_OK ? tern_detail() : "",
                     g_refused[i].says);
        }
        assert_null(grammar);
        assert_int_equal(tern_mem_stats().live_blocks, before);
    }
}

/* before, part as often as count says, after: what grows. */
static char *grown(const char *before, const char *part, int count, const char *after)
{
    struct tern_text text = {0};
    expect_ok(tern_text_append(&text, before, strlen(before)));
    for (int i = 0; i < count; i++) {
        expect_ok(tern_text_printf(&text, part, i));
    }
    expect_ok(tern_text_append(&text, after, strlen(after)));
    return text.data;
}

/* Large ones: an error or a grammar, within the budget, and no deeper than the stack. */
static void test_large(void **unused)
{
    (void)unused;
    static const struct {
        const char *before, *part;
        int count;
        const char *after;
        bool is_refused;
    } rows[] = {
        {"{\"pattern\":\"", "(", 60000, "\"}", true},
        {"{\"pattern\":\"^", "(a", 4000, "\"}", true},
        {"{\"pattern\":\"^", "(a|b%d)?", 100, "$\"}", false},
        {"{\"pattern\":\"^", "a?", 1000, "$\"}", false},
        {"{\"pattern\":\"^", "[a-z]{0,9}", 400, "$\"}", true},
        {"{\"pattern\":\"^", "[a-z]{0,9}", 40, "$\"}", false},
        {"{\"pattern\":\"", "(a*)*", 500, "\"}", false},
        {"{\"properties\":{\"z\":{}", ",\"k%d\":{\"pattern\":\"[a-z]{0,99}x[0-9]{0,99}y\"}", 500,
         "}}", true},
        {"{\"properties\":{\"z\":{}", ",\"k%d\":{\"format\":\"date-time\"}", 100, "}}", false},
        {"", "[", 100000, "", true},
        {"{\"const\":", "[", 1000, "", true},
        {"{\"enum\":[0", ",\"value %d\"", 20000, "]}", false},
        {"{\"enum\":[0", ",{\"k\":%d}", 20000, "]}", true},
        {"{\"properties\":{\"z\":{}", ",\"key%d\":{\"type\":\"integer\"}", 2000, "}}", false},
        {"{\"properties\":{\"z\":{}", ",\"key%d\":{\"type\":\"number\"}", 5000, "}}", true},
        {"{\"anyOf\":[{}", ",{\"const\":%d}", 5000, "]}", false},
        {"{\"allOf\":[{}", ",{\"minimum\":%d}", 100, "]}", true},
        {"{\"allOf\":[{}", ",{\"anyOf\":[{\"minimum\":%d},{\"maximum\":5}]}", 25, "]}", true},
        {"{\"prefixItems\":[{}", ",{\"type\":\"boolean\"}", 3000, "]}", false},
        {"{\"$defs\":{\"d\":{}", ",\"d%d\":{}", 20000, "}}", false},
        {"{\"required\":[\"a\"", ",\"r%d\"", 10000, "]}", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *schema = grown(rows[i].before, rows[i].part, rows[i].count, rows[i].after);
        struct tern_grammar *grammar;
        tern_status status = compile(schema, &grammar);
        if ((status != TERN_OK) != rows[i].is_refused ||
            (status != TERN_OK && status != TERN_ERR_INPUT)) {
            fail_msg("row %zu (%s): %s: %s", i, rows[i].part, tern_status_name(status),
                     status != TERN_OK ? tern_detail() : "");
        }
        tern_grammar_release(grammar);
        tern_free(schema);
    }
    /* counters cost nothing, however large */
    tern_grammar_release(
        compiled("{\"type\":\"array\",\"maxItems\":2000000000,\"minItems\":1000000000}"));
    tern_grammar_release(
        compiled("{\"type\":\"string\",\"maxLength\":2000000000,\"minLength\":5}"));
}

/* References in a chain, schemas in schemas: 700 levels. */
static void test_deep(void **unused)
{
    (void)unused;
    char *open = grown("", "{\"properties\":{\"a\":", 700, "{}");
    char *schema = grown(open, "}}", 700, "");
    tern_grammar_release(compiled(schema));
    tern_free(open);
    tern_free(schema);
    open = grown("", "{\"anyOf\":[", 700, "{}");
    schema = grown(open, "]}", 700, "");
    struct tern_grammar *grammar;
    assert_int_equal(compile(schema, &grammar), TERN_ERR_INPUT);
    assert_non_null(strstr(tern_detail(), "more than 32 schemas apply to one value"));
    tern_free(open);
    tern_free(schema);
}

static void read_mask(struct tern_grammar_state *state, uint32_t *bits)
{
    if (tern_grammar_mask(state, bits) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
}

/* The same by trying: each token on a copy. */
static void check_mask(struct tern_grammar_state *state, const uint32_t *bits, const char *schema)
{
    for (int32_t id = 0; id < g_vocab_size; id++) {
        struct tern_grammar_state *copy;
        expect_ok(tern_grammar_state_copy(state, &copy));
        bool is_allowed = tern_grammar_accept(copy, id);
        tern_grammar_state_destroy(copy);
        if (is_allowed != ((bits[id >> 5] >> (id & 31) & 1) != 0)) {
            size_t bytes;
            const char *piece = tern_tokenizer_piece(g_tokenizer, id, &bytes);
            fail_msg("%s: id %d (\"%.*s\"): mask %d, trial %d", schema, id, (int)bytes, piece,
                     !is_allowed, is_allowed);
        }
    }
}

static const char *const g_walked[] = {
    "true",
    "{\"type\":\"object\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":7},"
    "\"maxItems\":9}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":0.5,\"maximum\":"
    "20},"
    "\"ab\":{\"enum\":[\"x\",\"xy\",1]}},\"additionalProperties\":{\"type\":\"string\",\"pattern\":"
    "\"^[^b]*$\"}}",
    "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":30},{\"type\":\"array\",\"items\":{\"$ref\":"
    "\"#\"}},{\"type\":\"object\",\"additionalProperties\":{\"$ref\":\"#\"}}]}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"the\"},{\"type\":"
    "\"string\",\"minLength\":40,\"maxLength\":300},{\"type\":\"integer\"}]},\"minItems\":20}",
};

/* Without them a vocabulary may have no token for what must come. */
static bool has_all_bytes(void)
{
    for (int byte = 0; byte < 256; byte++) {
        if (byte_id((unsigned char)byte) < 0) {
            return false;
        }
    }
    return true;
}

/* Random walks: at each place the mask is what trying every token gives. */
static void walk(const char *schema, uint64_t seed, int steps)
{
    struct tern_grammar *grammar = compiled(schema);
    struct tern_grammar_state *state;
    uint32_t *bits = calloc((size_t)g_vocab_size / 32 + 1, sizeof *bits);
    expect_ok(tern_grammar_state_create(grammar, &state));
    for (int i = 0; i < steps; i++) {
        read_mask(state, bits);
        check_mask(state, bits, schema);
        int32_t chosen = -1;
        uint64_t count = 0;
        for (int32_t id = 0; id < g_vocab_size; id++) {
            bool is_set = (bits[id >> 5] >> (id & 31) & 1) != 0 && id != g_end_id;
            uint64_t drawn = tern_random_u64(seed, (uint64_t)i, (uint64_t)id);
            if (is_set && drawn % ++count == 0) {
                chosen = id;
            }
        }
        if (chosen < 0) {
            if (!tern_grammar_is_complete(state) && has_all_bytes()) {
                fail_msg("%s: an empty mask", schema);
            }
            break;
        }
        assert_true(tern_grammar_accept(state, chosen));
    }
    tern_grammar_state_destroy(state);
    tern_grammar_release(grammar);
    free(bits);
}

static void test_brute_force(void **unused)
{
    (void)unused;
    static const char *const names[] = {"made",  "smollm",        "llama2",
                                        "gemma", "unigram_bytes", "crossing"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        close_vocab();
        open_vocab(names[n]);
        for (size_t i = 0; i < sizeof g_walked / sizeof g_walked[0]; i++) {
            for (uint64_t seed = 0; seed < (n == 0 ? 30 : 3); seed++) {
                walk(g_walked[i], seed * 100 + i, 40);
            }
        }
    }
    close_vocab();
    open_vocab("smollm");
}

/* The end: only where the document is whole, and nothing behind it. Special tokens and padding never. */
static void test_end(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled("{\"type\":\"integer\"}");
    struct tern_grammar_state *state;
    uint32_t *bits = calloc((size_t)g_vocab_size / 32 + 1, sizeof *bits);
    expect_ok(tern_grammar_state_create(grammar, &state));
    assert_false(tern_grammar_is_complete(state));
    assert_false(tern_grammar_accept(state, g_end_id));
    assert_true(tern_grammar_accept(state, byte_id('7')));
    assert_true(tern_grammar_is_complete(state));
    read_mask(state, bits);
    for (int32_t id = 0; id < g_vocab_size; id++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(g_tokenizer, id, &bytes);
        bool is_digits = bytes > 0 && strspn(piece, "0123456789") >= bytes &&
                         !tern_tokenizer_is_special(g_tokenizer, id);
        assert_int_equal(bits[id >> 5] >> (id & 31) & 1, is_digits || id == g_end_id);
    }
    assert_false(tern_grammar_accept(state, -1));
    assert_false(tern_grammar_accept(state, (int32_t)g_vocab_size));
    assert_false(tern_grammar_accept(state, (int32_t)g_vocab_size - 1));
    assert_true(tern_grammar_accept(state, g_end_id));
    assert_false(tern_grammar_accept(state, byte_id('7')));
    assert_false(tern_grammar_accept(state, g_end_id));
    read_mask(state, bits);
    for (int64_t i = 0; i < g_vocab_size / 32; i++) {
        assert_int_equal(bits[i], 0);
    }
    tern_grammar_state_destroy(state);
    tern_grammar_release(grammar);
    free(bits);
}

/* A copy goes its own way; the grammar lives as long as a state does. */
static void test_copies(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled("{\"enum\":[\"ab\",\"ac\"]}");
    struct tern_grammar_state *one, *two;
    expect_ok(tern_grammar_state_create(grammar, &one));
    tern_grammar_release(grammar);
    assert_true(tern_grammar_accept(one, byte_id('"')));
    assert_true(tern_grammar_accept(one, byte_id('a')));
    expect_ok(tern_grammar_state_copy(one, &two));
    assert_true(tern_grammar_accept(one, byte_id('b')));
    assert_true(tern_grammar_accept(two, byte_id('c')));
    assert_false(tern_grammar_accept(two, byte_id('c')));
    tern_grammar_state_destroy(one);
    assert_true(tern_grammar_accept(two, byte_id('"')));
    assert_true(tern_grammar_is_complete(two));
    tern_grammar_state_destroy(two);
}

static void test_frames(void **unused)
{
    (void)unused;
    struct tern_json *number;
    struct tern_grammar *grammar;
    expect_ok(tern_json_parse("schema", "{\"type\":\"integer\"}", 18, &number));
    struct tern_grammar_frame frames[] = {
        {.prefix = "<call>{\"name\": \"f\", \"arguments\": ", .suffix = "}</call>"},
        {.prefix = "<call>{\"name\": \"fg\", \"arguments\": ",
         .suffix = "}</call>",
         .schema = number},
        {.prefix = "say ", .suffix = "!", .schema = number},
    };
    expect_ok(tern_grammar_compile_frames(g_vocab, frames, 3, &grammar));
    assert_int_equal(
        refused_at(grammar, "<call>{\"name\": \"f\", \"arguments\": {\"a\":1}}</call>"), -1);
    assert_int_equal(refused_at(grammar, "<call>{\"name\": \"fg\", \"arguments\": 7}</call>"), -1);
    assert_int_equal(refused_at(grammar, "say 12!"), -1);
    assert_int_equal(refused_at(grammar, "say 12"), 6);
    assert_int_equal(refused_at(grammar, "say x!"), 4);
    assert_int_equal(refused_at(grammar, " say 1!"), 0);
    assert_int_equal(refused_at(grammar, "<call>{\"name\": \"f\", \"arguments\": 7}</call>"), 33);
    tern_grammar_release(grammar);
    frames[2].prefix = "<call>";
    assert_int_equal(tern_grammar_compile_frames(g_vocab, frames, 3, &grammar), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_grammar_compile_frames(g_vocab, frames, 0, &grammar), TERN_ERR_ARGUMENT);
    expect_ok(tern_grammar_compile_json(g_vocab, &grammar));
    assert_int_equal(refused_at(grammar, "{\"a\": [1, 2.5e-3, null]}"), -1);
    assert_int_equal(refused_at(grammar, "[]"), 0);
    tern_grammar_release(grammar);
    tern_json_close(number);
}

/* When the budget is used up everything is made again under the live sequences, which go on as if nothing was. */
static void test_start_again(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled(g_walked[3]);
    struct tern_grammar_state *states[3];
    uint32_t *bits = calloc((size_t)g_vocab_size / 32 + 1, sizeof *bits);
    static const char *const begun[] = {"{\"a\":1", "{\"ab\":\"x", "{\"abc\":\"q"};
    static const char *const rest[] = {".5}", "y\"}", "\xC3\xA9\",\"z\":\"\"}"};
    for (size_t i = 0; i < 3; i++) {
        expect_ok(tern_grammar_state_create(grammar, &states[i]));
        for (const char *at = begun[i]; *at != '\0'; at++) {
            assert_true(tern_grammar_accept(states[i], byte_id((unsigned char)*at)));
        }
    }
    size_t sets = grammar->dfa.set_count;
    grammar->dfa.bytes = TERN_DFA_BYTES_MAX + 1;
    read_mask(states[0], bits);
    assert_true(grammar->dfa.set_count < sets);
    assert_true(grammar->dfa.bytes < TERN_DFA_BYTES_MAX);
    for (size_t i = 0; i < 3; i++) {
        read_mask(states[i], bits);
        check_mask(states[i], bits, g_walked[3]);
        for (const char *at = rest[i]; *at != '\0'; at++) {
            assert_true(tern_grammar_accept(states[i], byte_id((unsigned char)*at)));
        }
        assert_true(tern_grammar_is_complete(states[i]));
        tern_grammar_state_destroy(states[i]);
    }
    tern_grammar_release(grammar);
    free(bits);
}

/* Blanks end: after the longest run only what goes on may come. */
static void test_blanks(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled("{\"type\":\"array\"}");
    char *text = grown("[\n", " ", 32, "1]"), *longer = grown("[\n", " ", 33, "1]");
    assert_int_equal(refused_at(grammar, text), -1);
    assert_int_equal(refused_at(grammar, longer), 34);
    assert_int_equal(refused_at(grammar, "[  1]"), 2);
    assert_int_equal(refused_at(grammar, "[\n\n1]"), 2);
    assert_int_equal(refused_at(grammar, "[ \n1]"), 2);
    assert_int_equal(refused_at(grammar, "[]\n"), 2);
    tern_free(text);
    tern_free(longer);
    tern_grammar_release(grammar);
}

/* The deepest that the grammar lets one go, then out again: never a place where nothing may follow. */
static void dive(const char *schema, int deepest_min)
{
    static const char wanted[] = "{[\"cd:}],1";
    struct tern_grammar *grammar = compiled(schema);
    struct tern_grammar_state *state;
    uint32_t *bits = calloc((size_t)g_vocab_size / 32 + 1, sizeof *bits);
    int depth = 0, deepest = 0;
    expect_ok(tern_grammar_state_create(grammar, &state));
    for (int i = 0; i < 10000 && !tern_grammar_is_complete(state); i++) {
        const char *next = wanted;
        read_mask(state, bits);
        if (i % 50 == 0) {
            check_mask(state, bits, schema);
        }
        while (*next != '\0' && !tern_grammar_accept(state, byte_id((unsigned char)*next))) {
            next++;
        }
        if (*next == '\0') {
            fail_msg("%s: no way on at step %d, depth %d", schema, i, depth);
        }
        depth += (*next == '{' || *next == '[') - (*next == '}' || *next == ']');
        deepest = depth > deepest ? depth : deepest;
    }
    assert_true(tern_grammar_is_complete(state));
    assert_in_range(deepest, deepest_min, TERN_LEVELS_MAX);
    tern_grammar_state_destroy(state);
    tern_grammar_release(grammar);
    free(bits);
}

static void test_levels(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled("true");
    char *open = grown("", "[", TERN_LEVELS_MAX, ""), *text = grown(open, "]", TERN_LEVELS_MAX, "");
    char *more = grown(open, "[", 1, "");
    assert_int_equal(refused_at(grammar, text), -1);
    assert_int_equal(refused_at(grammar, more), TERN_LEVELS_MAX);
    tern_free(open);
    tern_free(text);
    tern_free(more);
    tern_grammar_release(grammar);
    dive("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", TERN_LEVELS_MAX);
    /* the way out of each level is three levels deep itself, and looks like the way on */
    dive("{\"type\":\"object\",\"properties\":{\"c\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
         "\"object\","
         "\"properties\":{\"c\":{\"type\":\"object\",\"properties\":{\"d\":{\"type\":\"array\","
         "\"maxItems\":0}},"
         "\"required\":[\"d\"]}},\"required\":[\"c\"]}]}},\"required\":[\"c\"]}",
         TERN_LEVELS_MAX - 4);
}

/* One grammar under many sequences at once: each thread's walks end as they do alone. */
static void *walk_alone(void *argument)
{
    struct tern_grammar *grammar = argument;
    static const char text[] = "{\"a\": 3.25, \"ab\": \"xy\", \"q\": \"\xC3\xA9\", \"r\": \"\"}";
    uint32_t *bits = calloc((size_t)g_vocab_size / 32 + 1, sizeof *bits);
    intptr_t wrong = 0;
    for (int i = 0; i < 20; i++) {
        struct tern_grammar_state *state, *copy;
        wrong += tern_grammar_state_create(grammar, &state) != TERN_OK;
        for (const char *at = text; *at != '\0'; at++) {
            int32_t id = byte_id((unsigned char)*at);
            wrong += tern_grammar_mask(state, bits) != TERN_OK;
            wrong += (bits[id >> 5] >> (id & 31) & 1) == 0;
            wrong += tern_grammar_state_copy(state, &copy) != TERN_OK;
            wrong += !tern_grammar_accept(copy, id);
            tern_grammar_state_destroy(state);
            state = copy;
        }
        wrong += !tern_grammar_is_complete(state);
        tern_grammar_state_destroy(state);
    }
    free(bits);
    tern_grammar_release(grammar);
    return (void *)wrong;
}

static void test_threads(void **unused)
{
    (void)unused;
    struct tern_grammar *grammar = compiled(g_walked[3]);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, walk_alone, tern_grammar_retain(grammar)), 0);
    }
    tern_grammar_release(grammar);
    for (size_t i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large),       cmocka_unit_test(test_deep),
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_end),
        cmocka_unit_test(test_copies),      cmocka_unit_test(test_frames),
        cmocka_unit_test(test_start_again), cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_levels),      cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
