/* tokenizer_gguf_test.c - tokenizers in GGUF metadata: ids of hand-made vocabularies, and files that are refused. */
#include "io/gguf_write.h"
#include "io/tokenizer.h"
#include "tests/io/data_fixture.h"

#define MARK "\xe2\x96\x81"

/* What a file says; a change makes a hostile one. */
struct recipe {
    const char *model, *pre;
    const char *const *tokens;
    int token_count, type_count, score_count;
    int32_t types[16];
    float scores[16];
    const char *merges[8];
    int merge_count;           /* -1: no list */
    int64_t bos, eos, unknown; /* -1: not there */
    int add_bos, add_space;    /* -1: not there */
    bool tokens_are_numbers;
};

static const char *const words[] = {"<unk>", "<s>",    "</s>", MARK,     "a",      "b",
                                    "ab",    MARK "a", "ba",   "<0x0A>", "<tool>", MARK MARK};

static struct recipe marked(void)
{
    return (struct recipe){
        .model = "llama",
        .tokens = words,
        .token_count = 12,
        .type_count = 12,
        .score_count = 12,
        .types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 4, 1},
        .scores = {0, 0, 0, -9, -9, -9, -1, -2, -1, 0, -100, -3},
        .merge_count = -1,
        .bos = 1,
        .eos = 2,
        .unknown = 0,
        .add_bos = -1,
        .add_space = -1,
    };
}

static void put_flag(struct tern_gguf_writer *writer, const char *key, int value)
{
    if (value >= 0) {
        tern_gguf_put_bool(writer, key, value != 0);
    }
}

static void put_id(struct tern_gguf_writer *writer, const char *key, int64_t id)
{
    if (id >= 0) {
        tern_gguf_put_u32(writer, key, (uint32_t)id);
    }
}

static void write_recipe(const struct recipe *recipe)
{
    struct tern_gguf_writer *writer;
    assert_ok(tern_gguf_create(&writer));
    tern_gguf_put_string(writer, "general.architecture", "llama", 5);
    if (recipe->model != NULL) {
        tern_gguf_put_string(writer, "tokenizer.ggml.model", recipe->model, strlen(recipe->model));
    }
    if (recipe->pre != NULL) {
        tern_gguf_put_string(writer, "tokenizer.ggml.pre", recipe->pre, strlen(recipe->pre));
    }
    if (recipe->tokens_are_numbers) {
        tern_gguf_put_u32(writer, "tokenizer.ggml.tokens", 5);
    } else if (recipe->token_count >= 0) {
        tern_gguf_put_array(writer, "tokenizer.ggml.tokens", TERN_GGUF_STRING, recipe->token_count);
        for (int i = 0; i < recipe->token_count; i++) {
            tern_gguf_put_element_string(writer, recipe->tokens[i], strlen(recipe->tokens[i]));
        }
    }
    tern_gguf_put_array(writer, "tokenizer.ggml.token_type", TERN_GGUF_I32, recipe->type_count);
    for (int i = 0; i < recipe->type_count; i++) {
        tern_gguf_put_element_i32(writer, i < 16 ? recipe->types[i] : 1);
    }
    tern_gguf_put_array(writer, "tokenizer.ggml.scores", TERN_GGUF_F32, recipe->score_count);
    for (int i = 0; i < recipe->score_count; i++) {
        tern_gguf_put_element_f32(writer, i < 16 ? recipe->scores[i] : 0);
    }
    if (recipe->merge_count >= 0) {
        tern_gguf_put_array(writer, "tokenizer.ggml.merges", TERN_GGUF_STRING, recipe->merge_count);
        for (int i = 0; i < recipe->merge_count; i++) {
            tern_gguf_put_element_string(writer, recipe->merges[i], strlen(recipe->merges[i]));
        }
    }
    put_id(writer, "tokenizer.ggml.bos_token_id", recipe->bos);
    put_id(writer, "tokenizer.ggml.eos_token_id", recipe->eos);
    put_id(writer, "tokenizer.ggml.unknown_token_id", recipe->unknown);
    put_flag(writer, "tokenizer.ggml.add_bos_token", recipe->add_bos);
    put_flag(writer, "tokenizer.ggml.add_space_prefix", recipe->add_space);
    unlink(at("test.gguf"));
    assert_ok(tern_gguf_begin(writer, at("test.gguf")));
    assert_ok(tern_gguf_finish(writer));
}

/* ---- ids ---- */

static void assert_encodes(const struct tern_tokenizer *tokenizer,
                           const char *text,
                           bool parse_special,
                           const char *expected)
{
    int32_t *ids;
    int64_t count;
    char found[256] = "";
    assert_ok(tern_tokenizer_encode(tokenizer, text, strlen(text), parse_special, &ids, &count));
    for (int64_t i = 0; i < count; i++) {
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", i > 0 ? " " : "",
                 ids[i]);
    }
    tern_free(ids);
    if (strcmp(found, expected) != 0) {
        fail_msg("'%s' is %s; expected %s", text, found, expected);
    }
}

static void test_marked(void **state)
{
    (void)state;
    struct recipe recipe = marked();
    struct tern_tokenizer *tokenizer;
    write_recipe(&recipe);
    assert_ok(tern_tokenizer_open(at("test.gguf"), &tokenizer));
    /* ab and ba have one score: the leftmost goes first; the mark joins only where that leaves an a */
    assert_encodes(tokenizer, "aba", true, "3 6 4");
    assert_encodes(tokenizer, "baab", true, "3 8 6");
    assert_encodes(tokenizer, "a a", true, "7 7");
    assert_encodes(tokenizer, "a  b", true, "7 11 5");
    assert_encodes(tokenizer, "", true, "");
    assert_encodes(tokenizer, "\n", true, "3 9");
    assert_encodes(tokenizer, "xb", true, "3 0 5");
    assert_encodes(tokenizer, "a<s>a<tool>b", true, "7 1 7 10 3 5");
    assert_encodes(tokenizer, "<tool>", false, "10"); /* user-defined ones always */
    assert_encodes(tokenizer, "a<s>", false,
                   "7 0 0 0"); /* as text, unknown here, one a character */
    int count;
    assert_int_equal(tern_tokenizer_prefix(tokenizer, &count)[0], 1);
    assert_int_equal(count, 1);
    tern_tokenizer_suffix(tokenizer, &count);
    assert_int_equal(count, 0);
    assert_int_equal(tern_tokenizer_bos(tokenizer), 1);
    assert_int_equal(tern_tokenizer_eos(tokenizer), 2);
    const int32_t ids[] = {7, 9, 11, 4};
    char *text;
    size_t bytes;
    assert_ok(tern_tokenizer_decode(tokenizer, ids, 4, false, &text, &bytes));
    assert_string_equal(text, "a\n  a"); /* the blank that was put first goes */
    tern_free(text);
    tern_tokenizer_close(tokenizer);
    recipe.add_space = 0;
    recipe.add_bos = 0;
    write_recipe(&recipe);
    assert_ok(tern_tokenizer_open(at("test.gguf"), &tokenizer));
    assert_encodes(tokenizer, "aba", true, "6 4");
    tern_tokenizer_prefix(tokenizer, &count);
    assert_int_equal(count, 0);
    tern_tokenizer_close(tokenizer);
}

/* ---- files that are refused ---- */

static void assert_refused(const struct recipe *recipe, tern_status status, const char *sentence)
{
    struct tern_tokenizer *tokenizer;
    write_recipe(recipe);
    assert_fails(tern_tokenizer_open(at("test.gguf"), &tokenizer), status, sentence);
    assert_fails(status, status, "test.gguf");
    assert_null(tokenizer);
}

#define REFUSED(change, status, sentence) \
    do { \
        struct recipe recipe = base; \
        change; \
        assert_refused(&recipe, status, sentence); \
    } while (0)

static void test_refused_marked(void **state)
{
    (void)state;
    const struct recipe base = marked();
    REFUSED(recipe.model = NULL, TERN_ERR_INPUT, "tokenizer.ggml.model");
    REFUSED(recipe.model = "bert", TERN_ERR_UNSUPPORTED, "bert|gpt2 or llama");
    REFUSED(recipe.token_count = -1, TERN_ERR_INPUT, "tokenizer.ggml.tokens");
    REFUSED(recipe.token_count = 0, TERN_ERR_INPUT, "tokenizer.ggml.tokens|0 of them");
    REFUSED(recipe.tokens_are_numbers = true, TERN_ERR_INPUT, "tokenizer.ggml.tokens");
    REFUSED(recipe.type_count = 11, TERN_ERR_INPUT, "token_type|11|12");
    REFUSED(recipe.score_count = 3, TERN_ERR_INPUT, "scores|3|12");
    REFUSED(recipe.scores[4] = __builtin_nanf(""), TERN_ERR_INPUT, "scores[4]|NaN");
    REFUSED(recipe.unknown = -1, TERN_ERR_INPUT, "<0x00>|unknown_token_id");
    REFUSED(recipe.unknown = 12, TERN_ERR_INPUT, "unknown_token_id|12|11");
    REFUSED(recipe.bos = 4000000000, TERN_ERR_INPUT, "bos_token_id|4000000000");
    REFUSED(recipe.eos = 12, TERN_ERR_INPUT, "eos_token_id|12");
    REFUSED((recipe.bos = -1, recipe.add_bos = 1), TERN_ERR_INPUT, "add_bos_token|missing");
}

static void test_refused_bytes(void **state)
{
    (void)state;
    static char texts[100][2];
    static const char *tokens[100];
    for (int i = 0; i < 94; i++) {
        texts[i][0] = (char)('!' + i);
        tokens[i] = texts[i];
    }
    tokens[94] = "\xc4\xa0"; /* blank */
    tokens[95] = "\xc4\x8a"; /* newline */
    tokens[96] = "ab";
    const struct recipe base = {
        .model = "gpt2",
        .pre = "gpt-2",
        .tokens = tokens,
        .token_count = 97,
        .type_count = 97,
        .types = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        .merges = {"a b"},
        .merge_count = 1,
        .bos = -1,
        .eos = -1,
        .unknown = -1,
        .add_bos = -1,
        .add_space = -1,
    };
    struct tern_tokenizer *tokenizer;
    write_recipe(&base);
    assert_ok(tern_tokenizer_open(at("test.gguf"), &tokenizer));
    assert_encodes(tokenizer, "abc ab", true, "96 66 94 96");
    assert_encodes(tokenizer, "a\xc3\xa9", true, "64"); /* no token for those bytes */
    tern_tokenizer_close(tokenizer);
    REFUSED(recipe.pre = NULL, TERN_ERR_UNSUPPORTED, "pre|missing|llama-bpe");
    REFUSED(recipe.pre = "default", TERN_ERR_UNSUPPORTED, "pre|'default'|llama-bpe");
    REFUSED(recipe.token_count = 95, TERN_ERR_INPUT, "no token for byte 0x0a");
    REFUSED(recipe.merge_count = -1, TERN_ERR_INPUT, "tokenizer.ggml.merges");
    REFUSED(recipe.merges[0] = "ab", TERN_ERR_INPUT, "merges[0]|left right");
    REFUSED(recipe.merges[0] = "", TERN_ERR_INPUT, "merges[0]|left right");
    REFUSED(recipe.merges[0] = "a ", TERN_ERR_INPUT, "merges[0]|'a '");
    REFUSED(recipe.merges[0] = "b a", TERN_ERR_INPUT, "merges[0]|'b a'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marked),
        cmocka_unit_test(test_refused_marked),
        cmocka_unit_test(test_refused_bytes),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
