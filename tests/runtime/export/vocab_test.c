/* vocab_test.c - a tokenizer.json as GGUF's lists, and GGUF's lists as a tokenizer.json that encodes the same. */
#include "io/file.h"
#include "io/gguf_write.h"
#include "io/tokenizer.h"
#include "runtime/export/export_impl.h"
#include "runtime/export/vocab.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char g_folder[] = "/tmp/tern-vocab-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[TERN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", g_folder, name);
    return path;
}

#define BYTES "\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true"
#define LISTS \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":4},\"merges\":[\"a b\"]}," \
    "\"added_tokens\":[{\"id\":4,\"content\":\"<e>\",\"special\":true}," \
    "{\"id\":5,\"content\":\"<u>\",\"special\":false}]"
#define BPE "{\"model\":{\"type\":\"BPE\"," LISTS

static tern_status open_text(const char *text, struct tern_vocab *out)
{
    assert_int_equal(tern_file_replace(path_of("t.json"), text, strlen(text)), TERN_OK);
    return tern_vocab_open(path_of("t.json"), 7, out);
}

static void test_byte_level(void **state)
{
    (void)state;
    static const struct {
        const char *pre_tokenizer, *pre;
    } rows[] = {
        {"{" BYTES ",\"use_regex\":true}", "gpt-2"},
        {"{" BYTES "}", "gpt-2"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
         "true},{" BYTES "}]}",
         "smollm"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        struct tern_vocab vocab;
        struct tern_text merge;
        snprintf(text, sizeof text, BPE ",\"pre_tokenizer\":%s}", rows[i].pre_tokenizer);
        assert_int_equal(open_text(text, &vocab), TERN_OK);
        assert_string_equal(vocab.pre, rows[i].pre);
        assert_false(vocab.is_spm);
        assert_int_equal(vocab.count, 7);
        assert_int_equal(vocab.tokens[2].kind, TERN_VOCAB_NORMAL);
        assert_int_equal(vocab.tokens[3].kind, TERN_VOCAB_UNUSED);
        assert_null(vocab.tokens[3].text);
        assert_int_equal(vocab.tokens[4].kind, TERN_VOCAB_CONTROL);
        assert_int_equal(vocab.tokens[5].kind, TERN_VOCAB_USER_DEFINED);
        assert_int_equal(tern_vocab_find(&vocab, "<u>"), 5);
        assert_int_equal(tern_vocab_find(&vocab, "c"), -1);
        tern_text_init(&merge);
        assert_int_equal(tern_vocab_merge(&vocab, 0, &merge), TERN_OK);
        assert_string_equal(merge.data, "a b");
        tern_text_fini(&merge);
        tern_vocab_fini(&vocab);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-bpe", "qwen2"};
    for (int i = 0; i < 2; i++) {
        struct tern_text text;
        struct tern_vocab vocab;
        const char *pattern = tern_vocab_pattern(names[i]);
        tern_text_init(&text);
        assert_int_equal(
            tern_text_printf(&text,
                             BPE ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":"),
            TERN_OK);
        assert_int_equal(tern_json_quote(&text, pattern, strlen(pattern)), TERN_OK);
        assert_int_equal(tern_text_printf(&text, "}},{" BYTES ",\"use_regex\":false}]}}"), TERN_OK);
        assert_int_equal(open_text(text.data, &vocab), TERN_OK);
        assert_string_equal(vocab.pre, names[i]);
        tern_vocab_fini(&vocab);
        tern_text_fini(&text);
    }
    assert_null(tern_vocab_pattern("gpt-2"));
}

/* What a merge makes scores the higher the earlier the merge; what none makes comes last. */
static void test_sentencepiece(void **state)
{
    (void)state;
    struct tern_vocab vocab;
    assert_int_equal(
        open_text(
            "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":"
            "{\"<unk>\":0,\"<0x0A>\":1,\"a\":2,\"b\":3,\"ab\":4,\"aab\":5},"
            "\"merges\":[[\"a\",\"b\"],[\"a\",\"ab\"]]},"
            "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
            "\"prepend\":\"\\u2581\"}]},\"pre_tokenizer\":null}",
            &vocab),
        TERN_OK);
    assert_true(vocab.is_spm);
    assert_true(vocab.adds_space);
    assert_int_equal(vocab.tokens[0].kind, TERN_VOCAB_UNKNOWN);
    assert_int_equal(vocab.tokens[1].kind, TERN_VOCAB_BYTE);
    assert_true(vocab.tokens[4].score > vocab.tokens[5].score);
    assert_true(vocab.tokens[5].score > vocab.tokens[2].score);
    tern_vocab_fini(&vocab);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"{\"model\":{\"type\":\"WordPiece\"}}", "model.type: found 'WordPiece'"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "model.type: found 'Unigram'"},
        {BPE ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "model: found 'BPE without bytes'"},
        {BPE ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
             "\"pattern\":"
             "{\"Regex\":\"x+\"}},{" BYTES ",\"use_regex\":false}]}}",
         "pre_tokenizer: found 'x+'"},
        {BPE ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\"}"
             ",{" BYTES "}]}}",
         "pre_tokenizer: found 'Metaspace'"},
        {BPE ",\"pre_tokenizer\":{" BYTES ",\"use_regex\":false}}", "pre_tokenizer: found 'none'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]},\"pre_tokenizer\":{" BYTES "}}",
         "model.vocab: found an array, expected an object"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9},\"merges\":[]},\"pre_tokenizer\":{" BYTES
         "}}",
         "token 'a' has the id 9, expected below the model's vocabulary of 7"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]},\"pre_tokenizer\":"
         "{" BYTES "}}",
         "has the id -1"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"},\"merges\":[]},\"pre_tokenizer\":"
         "{" BYTES "}}",
         "token 'a' has a string, expected an id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]},\"pre_"
         "tokenizer\":{" BYTES "}}",
         "id 1 is that of 'a' and of 'b'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{" BYTES "},"
         "\"added_tokens\":[{\"id\":1}]}",
         "added_tokens[0]: expected a content and an id"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tern_vocab vocab;
        tern_status status = open_text(rows[i].text, &vocab);
        assert_int_equal(tern_status_exit_code(status), 2);
        assert_contains(tern_detail(), "t.json");
        assert_contains(tern_detail(), rows[i].said);
    }
}

/* ---- GGUF to tokenizer.json ---- */

static void put_strings(struct tern_gguf_writer *writer,
                        const char *key,
                        const char *const *texts,
                        int count)
{
    tern_gguf_put_array(writer, key, TERN_GGUF_STRING, count);
    for (int i = 0; i < count; i++) {
        tern_gguf_put_element_string(writer, texts[i], strlen(texts[i]));
    }
}

/* All 256 bytes as GPT-2 writes them, a few merges, two tokens with a meaning. */
static void make_byte_level(const char *path, const char *pre)
{
    static const char *const merges[] = {"h e", "l l", "he ll", "\xc4\xa0 w"};
    static char names[256][4];
    const char *tokens[262];
    struct tern_gguf_writer *writer;
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool is_shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        unsigned code = is_shown ? (unsigned)b : (unsigned)next++;
        if (code < 128) {
            snprintf(names[b], 4, "%c", (char)code);
        } else {
            snprintf(names[b], 4, "%c%c", (char)(0xc0 | code >> 6), (char)(0x80 | (code & 63)));
        }
        tokens[b] = names[b];
    }
    static const char *const more[] = {"he", "ll", "hell", "\xc4\xa0w", "<|end|>", "<user>"};
    memcpy(tokens + 256, more, sizeof more);
    assert_int_equal(tern_gguf_create(&writer), TERN_OK);
    tern_gguf_put_string(writer, "tokenizer.ggml.model", "gpt2", 4);
    tern_gguf_put_string(writer, "tokenizer.ggml.pre", pre, strlen(pre));
    put_strings(writer, "tokenizer.ggml.tokens", tokens, 262);
    put_strings(writer, "tokenizer.ggml.merges", merges, 4);
    tern_gguf_put_array(writer, "tokenizer.ggml.token_type", TERN_GGUF_I32, 262);
    for (int i = 0; i < 262; i++) {
        tern_gguf_put_element_i32(writer, i == 260 ? 3 : i == 261 ? 4 : 1);
    }
    tern_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 260);
    tern_gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", true);
    assert_int_equal(tern_gguf_begin(writer, path), TERN_OK);
    assert_int_equal(tern_gguf_finish(writer), TERN_OK);
}

static void make_spm(const char *path)
{
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "<0x0A>",
                                         "\xe2\x96\x81",
                                         "h",
                                         "e",
                                         "l",
                                         "he",
                                         "ll",
                                         "hell",
                                         "o",
                                         "\xe2\x96\x81"
                                         "h",
                                         "\xe2\x96\x81"
                                         "he",
                                         "lo"};
    static const int kinds[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, 0, -9, -9, -9, -9, -1, -2, -3, -9, -5, -4, -6};
    struct tern_gguf_writer *writer;
    assert_int_equal(tern_gguf_create(&writer), TERN_OK);
    tern_gguf_put_string(writer, "tokenizer.ggml.model", "llama", 5);
    put_strings(writer, "tokenizer.ggml.tokens", tokens, 15);
    tern_gguf_put_array(writer, "tokenizer.ggml.token_type", TERN_GGUF_I32, 15);
    for (int i = 0; i < 15; i++) {
        tern_gguf_put_element_i32(writer, kinds[i]);
    }
    tern_gguf_put_array(writer, "tokenizer.ggml.scores", TERN_GGUF_F32, 15);
    for (int i = 0; i < 15; i++) {
        tern_gguf_put_element_f32(writer, scores[i]);
    }
    tern_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    tern_gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    assert_int_equal(tern_gguf_begin(writer, path), TERN_OK);
    assert_int_equal(tern_gguf_finish(writer), TERN_OK);
}

/* The first few are of characters that both kinds of vocabulary have. */
enum {
    COMMON_TEXTS = 5,
    TEXTS = 8
};

static void compare_encoding(const struct tern_tokenizer *a,
                             const struct tern_tokenizer *b,
                             int text_count)
{
    static const char *const texts[TEXTS] = {
        "hello",          "hell he hello\n", "", "lo lohell", "  hhee ll  ", " w\xc3\xa9 123 45",
        "<|end|>x<user>", "he<|end|> he"};
    for (int i = 0; i < text_count; i++) {
        int32_t *x, *y;
        int64_t n, m;
        assert_int_equal(tern_tokenizer_encode(a, texts[i], strlen(texts[i]), true, &x, &n),
                         TERN_OK);
        assert_int_equal(tern_tokenizer_encode(b, texts[i], strlen(texts[i]), true, &y, &m),
                         TERN_OK);
        if (n != m || memcmp(x, y, (size_t)n * sizeof *x) != 0) {
            fail_msg("'%s' is %lld tokens, and by the printed file %lld others", texts[i],
                     (long long)n, (long long)m);
        }
        tern_free(x);
        tern_free(y);
    }
}

/* The file itself, and the tokenizer.json that is made of it, give the same ids. */
static void check_printed(const char *gguf_path, int text_count)
{
    struct tern_gguf *gguf;
    struct tern_text text;
    struct tern_tokenizer *first, *second;
    char json[TERN_PATH_BYTES];
    int before, count;
    tern_text_init(&text);
    assert_int_equal(tern_gguf_open(gguf_path, &gguf), TERN_OK);
    assert_int_equal(tern_export_print_tokenizer(gguf, &text), TERN_OK);
    tern_gguf_close(gguf);
    snprintf(json, sizeof json, "%s/tokenizer.json", g_folder);
    assert_int_equal(tern_file_replace(json, text.data, text.length), TERN_OK);
    tern_text_fini(&text);
    assert_int_equal(tern_tokenizer_open(gguf_path, &first), TERN_OK);
    if (tern_tokenizer_open(json, &second) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    compare_encoding(first, second, text_count);
    const int32_t *x = tern_tokenizer_prefix(first, &before);
    const int32_t *y = tern_tokenizer_prefix(second, &count);
    assert_int_equal(before, 1);
    assert_int_equal(count, 1);
    assert_int_equal(x[0], y[0]);
    tern_tokenizer_close(first);
    tern_tokenizer_close(second);
}

static void test_printed_tokenizers(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    char path[TERN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/v.gguf", g_folder);
    for (int i = 0; i < 4; i++) {
        make_byte_level(path, pres[i]);
        check_printed(path, TEXTS);
    }
    make_spm(path);
    check_printed(path, COMMON_TEXTS);
    struct tern_gguf *gguf;
    struct tern_text text;
    make_byte_level(path, "tekken");
    tern_text_init(&text);
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_OK);
    assert_int_equal(tern_export_print_tokenizer(gguf, &text), TERN_ERR_UNSUPPORTED);
    assert_contains(tern_detail(), "tokenizer.ggml.pre is 'tekken'");
    tern_text_fini(&text);
    tern_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_byte_level), CHECKED(test_patterns),           CHECKED(test_sentencepiece),
        CHECKED(test_refusals),   CHECKED(test_printed_tokenizers),
    };
    if (mkdtemp(g_folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return tern_file_remove_tree(g_folder) == TERN_OK ? failed : 1;
}
