/* tokenizer_test.c - splitting, merging, round trips, linear time by
 * counting work. */
#include "io/tokenizer.h"
#include "io/tokenizer_internal.h"
#include "tests/io/data_fixture.h"

/* ---- splitting ---- */

/* GPT-2's pattern, hand-checked: words separated by '|'. */
static void test_splits_like_gpt2(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"Hello world", "Hello| world"},
        {"  two  spaces ", " | two| | spaces| "},
        {"a\n\nb", "a|\n|\n|b"},
        {"a \n b", "a| \n| b"},
        {"a   ", "a|   "},
        {"\t\tx", "\t|\t|x"},
        {"don't we'll I'M they've I'd 'sup '", "don|'t| we|'ll| I|'|M| they|'ve| I|'d| '|sup| '"},
        {"'s 're 'x 'lx", "'s| '|re| '|x| '|lx"},
        {"abc123def", "abc|123|def"},
        {" 12.5% (ok)!!", " 12|.|5|%| (|ok|)!!"},
        {"naïve café", "naïve| café"},
        {"中文 字", "中文| 字"},
        {"x²½Ⅷ9", "x|²½Ⅷ9"},
        {"e\xcc\x81x", "e|\xcc\x81|x"}, /* combining acute: neither letter nor number */
        {"a\xc2\xa0"
         "b",
         "a|\xc2\xa0|b"}, /* no-break space is \s, but no ' ' */
        {"a\xe3\x80\x80\xe3\x80\x80"
         "b",
         "a|\xe3\x80\x80|\xe3\x80\x80|b"}, /* ideographic spaces */
        {"\xf0\x9f\x99\x82\xf0\x9f\x99\x82 \xf0\x9f\x99\x82",
         "\xf0\x9f\x99\x82\xf0\x9f\x99\x82| \xf0\x9f\x99\x82"},
        {"a\xff\xfe!b", "a|\xff\xfe!|b"},    /* invalid bytes run with the other signs */
        {"a\xe4\xb8", "a|\xe4\xb8"},         /* cut off */
        {"a\xed\xa0\x80", "a|\xed\xa0\x80"}, /* a surrogate is invalid */
        {"\xc0\xaf", "\xc0\xaf"},            /* overlong */
    };
    struct tern_chars chars = {0};
    assert_ok(tern_chars_init(&chars));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        size_t bytes = strlen(text);
        char found[256] = "";
        for (size_t place = 0; place < bytes;) {
            size_t word = tern_split_next(&chars, TERN_SPLIT_GPT2, (const uint8_t *)text + place,
                                          bytes - place);
            assert_true(word > 0 && word <= bytes - place);
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%.*s",
                     place > 0 ? "|" : "", (int)word, text + place);
            place += word;
        }
        assert_string_equal(found, cases[i].words);
    }
    tern_chars_fini(&chars);
}

static void test_byte_alphabet_is_a_bijection(void **state)
{
    (void)state;
    bool seen[0x144] = {0};
    for (int byte = 0; byte < 256; byte++) {
        uint32_t code = tern_byte_to_code((uint8_t)byte);
        assert_true(code < 0x144 && !seen[code]);
        seen[code] = true;
        assert_int_equal(tern_code_to_byte(code), byte);
    }
    assert_int_equal(tern_byte_to_code(' '), 0x120);
    assert_int_equal(tern_byte_to_code('\n'), 0x10a);
    assert_int_equal(tern_byte_to_code('A'), 'A');
    assert_int_equal(tern_code_to_byte(' '), -1);
    assert_int_equal(tern_code_to_byte(0x144), -1);
}

/* ---- round trips ---- */

static void assert_round_trip(const struct tern_tokenizer *tokenizer,
                              const char *text,
                              size_t bytes,
                              uint64_t seed)
{
    int32_t *ids;
    int64_t count;
    char *back;
    size_t back_bytes;
    assert_ok(tern_tokenizer_encode(tokenizer, text, bytes, true, &ids, &count));
    assert_ok(tern_tokenizer_decode(tokenizer, ids, count, false, &back, &back_bytes));
    if (back_bytes != bytes || memcmp(back, text, bytes) != 0) {
        fail_msg("seed %llu: %zu bytes came back as %zu", (unsigned long long)seed, bytes,
                 back_bytes);
    }
    tern_free(ids);
    tern_free(back);
}

static void test_any_bytes_come_back(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(400);
    char text[600];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        size_t bytes = draw(seed, 0) % sizeof text;
        int kind = (int)(draw(seed, 1) % 3);
        for (size_t i = 0; i < bytes; i++) {
            uint64_t value = draw(seed, i + 2);
            text[i] = (char)(kind == 0   ? value
                             : kind == 1 ? value % 128
                                         : (uint64_t) " the fox's\n\xc3\xa9"[value % 13]);
        }
        assert_round_trip(tokenizer, text, bytes, seed);
    }
    assert_round_trip(tokenizer, "", 0, 0);
    assert_round_trip(tokenizer, "<|endoftext|>the<|user|><|us", 28, 0);
    tern_tokenizer_close(tokenizer);
}

/* The definition of BPE, quadratic: merge the lowest rank, leftmost first, until none applies. */
static int64_t encode_by_definition(const struct tern_tokenizer *tokenizer,
                                    const uint8_t *word,
                                    int64_t count,
                                    int32_t *ids)
{
    for (int64_t i = 0; i < count; i++) {
        ids[i] = tokenizer->byte_ids[word[i]];
    }
    for (;;) {
        int64_t best = -1;
        struct tern_pair chosen = {TERN_PAIR_NONE, -1};
        for (int64_t i = 0; i + 1 < count; i++) {
            struct tern_pair pair = tern_tokenizer_pair(tokenizer, ids[i], ids[i + 1]);
            if (pair.rank < chosen.rank) {
                chosen = pair;
                best = i;
            }
        }
        if (best < 0) {
            return count;
        }
        ids[best] = chosen.result;
        memmove(ids + best + 1, ids + best + 2, (size_t)(count - best - 2) * sizeof *ids);
        count--;
    }
}

/* Words longer than the short path's limit, made of letters that merge often. */
static void test_long_words_merge_by_the_definition(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(330);
    enum {
        WORD_MAX = 700
    };
    char word[WORD_MAX];
    int32_t expected[WORD_MAX];
    for (uint64_t seed = 0; seed < 600; seed++) {
        size_t bytes = 1 + draw(seed, 0) % (WORD_MAX - 1);
        static const char letters[] = "thefoxbegindaquick";
        size_t kinds = 1 + draw(seed, 1) % (sizeof letters - 1);
        for (size_t i = 0; i < bytes; i++) {
            word[i] = letters[draw(seed, i + 2) % kinds];
        }
        int64_t expected_count =
            encode_by_definition(tokenizer, (const uint8_t *)word, (int64_t)bytes, expected);
        int32_t *ids;
        int64_t count;
        assert_ok(tern_tokenizer_encode(tokenizer, word, bytes, true, &ids, &count));
        if (count != expected_count || memcmp(ids, expected, (size_t)count * sizeof *ids) != 0) {
            fail_msg("seed %llu: %zu letters gave %lld ids; expected %lld or others",
                     (unsigned long long)seed, bytes, (long long)count, (long long)expected_count);
        }
        tern_free(ids);
    }
    tern_tokenizer_close(tokenizer);
}

/* A tokenizer.json of the 256 bytes and random merges over "abc", ranks in no order: a merge may have
 * a lower rank than the one that makes its part, and two merges may make the same token. */
static void write_random_merges(const char *name, uint64_t seed)
{
    enum {
        MERGES = 14,
        LETTERS_MAX = 6
    };
    char tokens[3 + MERGES][LETTERS_MAX + 1] = {"a", "b", "c"};
    struct tern_text text, merges;
    tern_text_init(&text);
    tern_text_init(&merges);
    assert_ok(tern_text_printf(
        &text, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{"));
    for (int byte = 0; byte < 256; byte++) {
        char code[4];
        int length = tern_utf8_encode(tern_byte_to_code((uint8_t)byte), code);
        bool escape = byte == '"' || byte == '\\';
        assert_ok(tern_text_printf(&text, "%s\"%s%.*s\":%d", byte > 0 ? "," : "",
                                   escape ? "\\" : "", length, code, byte));
    }
    char lines[MERGES][32];
    int count = 3, made = 0;
    for (uint64_t i = 0; made < MERGES && i < 400; i++) {
        const char *left = tokens[draw(seed, 3 * i) % (uint64_t)count];
        const char *right = tokens[draw(seed, 3 * i + 1) % (uint64_t)count];
        if (strlen(left) + strlen(right) > LETTERS_MAX) {
            continue;
        }
        char whole[2 * LETTERS_MAX + 1];
        snprintf(whole, sizeof whole, "%s%s", left, right);
        snprintf(lines[made++], sizeof lines[0], "\"%s %s\"", left, right);
        int known = 0;
        while (known < count && strcmp(tokens[known], whole) != 0) {
            known++;
        }
        if (known == count) {
            assert_ok(tern_text_printf(&text, ",\"%s\":%d", whole, 256 + count));
            memcpy(tokens[count++], whole, strlen(whole) + 1);
        }
    }
    for (int i = 0; i < made; i++) {
        uint64_t from = tern_random_permute(seed, 0, (uint64_t)made, (uint64_t)i);
        assert_ok(tern_text_printf(&merges, "%s%s", i > 0 ? "," : "", lines[from]));
    }
    assert_ok(tern_text_printf(&text, "},\"merges\":[%s]}}", merges.data));
    write_file(name, text.data, text.length);
    tern_text_fini(&merges);
    tern_text_fini(&text);
}

static void test_merges_out_of_order(void **state)
{
    (void)state;
    char word[300];
    int32_t expected[300];
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct tern_tokenizer *tokenizer;
        write_random_merges("odd.json", seed);
        assert_ok(tern_tokenizer_open(at("odd.json"), &tokenizer));
        for (uint64_t turn = 0; turn < 10; turn++) {
            size_t bytes = 2 + draw(seed, 1000 + turn) % (sizeof word - 2);
            for (size_t i = 0; i < bytes; i++) {
                word[i] = "abc"[draw(seed + turn * 1000, 2000 + i) % 3];
            }
            int64_t expected_count =
                encode_by_definition(tokenizer, (const uint8_t *)word, (int64_t)bytes, expected);
            int32_t *ids;
            int64_t count;
            assert_ok(tern_tokenizer_encode(tokenizer, word, bytes, true, &ids, &count));
            if (count != expected_count ||
                memcmp(ids, expected, (size_t)count * sizeof *ids) != 0) {
                fail_msg("seed %llu, %zu letters: ids differ from the definition",
                         (unsigned long long)seed, bytes);
            }
            tern_free(ids);
        }
        tern_tokenizer_close(tokenizer);
    }
}

/* ---- special tokens ---- */

static void test_special_tokens(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(300);
    int32_t eos = tern_tokenizer_id(tokenizer, "<|endoftext|>");
    assert_int_equal(eos, 0);
    assert_int_equal(tern_tokenizer_eos(tokenizer), eos);
    assert_int_equal(tern_tokenizer_id(tokenizer, "<|user|>"), 1);
    assert_int_equal(tern_tokenizer_id(tokenizer, "no such token"), -1);
    assert_true(tern_tokenizer_is_special(tokenizer, eos));
    assert_false(tern_tokenizer_is_special(tokenizer, 2));
    static const char text[] = "the<|endoftext|><|user|>x";
    int32_t *ids;
    int64_t count;
    assert_ok(tern_tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, &count));
    int specials = 0;
    for (int64_t i = 0; i < count; i++) {
        specials += tern_tokenizer_is_special(tokenizer, ids[i]);
    }
    assert_int_equal(specials, 2);
    char *back;
    size_t bytes;
    assert_ok(tern_tokenizer_decode(tokenizer, ids, count, true, &back, &bytes));
    assert_string_equal(back, "thex");
    tern_free(back);
    tern_free(ids);
    assert_ok(tern_tokenizer_encode(tokenizer, text, sizeof text - 1, false, &ids, &count));
    for (int64_t i = 0; i < count; i++) {
        assert_false(tern_tokenizer_is_special(tokenizer, ids[i]));
    }
    tern_free(ids);
    int32_t bad[] = {3, (int32_t)tern_tokenizer_vocab_size(tokenizer)};
    assert_fails(tern_tokenizer_decode(tokenizer, bad, 2, false, &back, &bytes), TERN_ERR_INPUT,
                 "id 300|position 1");
    tern_tokenizer_close(tokenizer);
}

/* tokenizer_config.json names the first and the last token, as a text or as an object. */
static void test_names_beside(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t bos, eos;
    } good[] = {
        {"{\"eos_token\": \"<|user|>\"}", -1, 1},
        {"{\"eos_token\": {\"content\": \"<|user|>\"}, \"bos_token\": \"<|endoftext|>\"}", 0, 1},
        {"{\"eos_token\": null, \"bos_token\": \"no token\"}", -1, 0},
    };
    tern_tokenizer_close(train_small(300));
    struct tern_tokenizer *tokenizer;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        write_file("tokenizer_config.json", good[i].text, strlen(good[i].text));
        assert_ok(tern_tokenizer_open(g_folder, &tokenizer));
        assert_int_equal(tern_tokenizer_bos(tokenizer), good[i].bos);
        assert_int_equal(tern_tokenizer_eos(tokenizer), good[i].eos);
        tern_tokenizer_close(tokenizer);
    }
    static const char *const bad[] = {"{\"eos_token\": 7}", "{\"eos_token\": {\"content\": []}}",
                                      "{"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file("tokenizer_config.json", bad[i], strlen(bad[i]));
        assert_fails(tern_tokenizer_open(g_folder, &tokenizer), TERN_ERR_INPUT,
                     i < 2 ? "tokenizer_config.json|eos_token" : "tokenizer_config.json|line 1");
        assert_null(tokenizer);
    }
    assert_ok(tern_file_remove(at("tokenizer_config.json")));
}

/* Pieces cut where tern_tokenizer_cut says give the ids of the whole. */
static void test_cuts_change_nothing(void **state)
{
    (void)state;
    static const char text[] = "the fox's  den\n\n is<|endoftext|> <|user|>\xe3\x80\x80 12 34  "
                               "\xff \xc3\xa9 the end of  it ";
    size_t bytes = sizeof text - 1;
    struct tern_tokenizer *tokenizer = train_small(320);
    struct tern_encoder *encoder;
    assert_ok(tern_encoder_create(tokenizer, &encoder));
    struct tern_ids whole = {0};
    assert_ok(tern_encoder_append(encoder, text, bytes, true, &whole));
    int cuts = 0;
    for (size_t block = 1; block <= bytes; block++) {
        struct tern_ids pieces = {0};
        size_t start = 0;
        for (size_t seen = block; start < bytes; seen += block) {
            bool is_all = seen >= bytes;
            size_t length = (is_all ? bytes : seen) - start;
            size_t cut = is_all ? length : tern_tokenizer_cut(tokenizer, text + start, length);
            assert_true(cut <= length);
            cuts += !is_all && cut > 0;
            assert_ok(tern_encoder_append(encoder, text + start, cut, true, &pieces));
            start += cut;
        }
        assert_int_equal(pieces.count, whole.count);
        assert_memory_equal(pieces.data, whole.data, (size_t)whole.count * sizeof *whole.data);
        tern_free(pieces.data);
    }
    assert_true(cuts > 50);
    tern_free(whole.data);
    tern_encoder_destroy(encoder);
    tern_tokenizer_close(tokenizer);
}

/* A cache that overflows many times still answers right, in bounded memory. */
static void test_many_different_words(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(280);
    struct tern_encoder *encoder;
    assert_ok(tern_encoder_create(tokenizer, &encoder));
    struct tern_ids ids = {0};
    for (int i = 0; i < 400000; i++) {
        char word[32];
        int length = snprintf(word, sizeof word, " w%xq%xz", i, i * 7);
        ids.count = 0;
        assert_ok(tern_encoder_append(encoder, word, (size_t)length, true, &ids));
        if (i % 1000 == 0) {
            char *back;
            size_t bytes;
            assert_ok(tern_tokenizer_decode(tokenizer, ids.data, ids.count, false, &back, &bytes));
            assert_string_equal(back, word);
            tern_free(back);
        }
    }
    assert_true(tern_mem_stats().live_bytes < 64 << 20);
    tern_free(ids.data);
    tern_encoder_destroy(encoder);
    tern_tokenizer_close(tokenizer);
}

/* ---- training ---- */

static void test_training_learns_the_most_frequent_pairs(void **state)
{
    (void)state;
    /* a b: 4 times; then " " ab: 3 times, ab c: 1, b c: 1. */
    static const char text[] = "abc abc ab ab bc";
    write_file("tiny.txt", text, sizeof text - 1);
    const char *const paths[] = {at("tiny.txt")};
    assert_ok(tern_tokenizer_train(paths, 1, 258, NULL, 0, at("tiny.json")));
    struct tern_tokenizer *tokenizer;
    assert_ok(tern_tokenizer_open(at("tiny.json"), &tokenizer));
    assert_int_equal(tern_tokenizer_vocab_size(tokenizer), 258);
    assert_int_equal(tern_tokenizer_id(tokenizer, "ab"), 256);
    assert_int_equal(tern_tokenizer_id(tokenizer, " ab"), 257); /* 3 times */
    assert_int_equal(tern_tokenizer_id(tokenizer, "bc"), -1);
    assert_int_equal(tern_tokenizer_eos(tokenizer), -1);
    tern_tokenizer_close(tokenizer);
    /* Small text: fewer tokens than asked for. */
    assert_ok(tern_tokenizer_train(paths, 1, 5000, NULL, 0, at("tiny.json")));
    assert_ok(tern_tokenizer_open(at("tiny.json"), &tokenizer));
    assert_true(tern_tokenizer_vocab_size(tokenizer) < 300);
    tern_tokenizer_close(tokenizer);
}

static void test_training_refusals(void **state)
{
    (void)state;
    write_file("empty.txt", "", 0);
    write_file("some.txt", "some text", 9);
    const char *const empty[] = {at("empty.txt")};
    const char *const some[] = {at("some.txt")};
    const char *const none[] = {at("missing.txt")};
    const char *const twice[] = {"<a>", "<a>"};
    const char *const invalid[] = {"<\xff>"};
    const char *const single[] = {"x"};
    const char *out = at("out.json");
    assert_fails(tern_tokenizer_train(empty, 1, 300, NULL, 0, out), TERN_ERR_INPUT, "empty.txt");
    assert_fails(tern_tokenizer_train(none, 1, 300, NULL, 0, out), TERN_ERR_NOT_FOUND,
                 "missing.txt");
    assert_fails(tern_tokenizer_train(some, 1, 256, twice, 2, out), TERN_ERR_USAGE, "256|258");
    assert_fails(tern_tokenizer_train(some, 1, 300, twice, 2, out), TERN_ERR_USAGE, "<a>|twice");
    assert_fails(tern_tokenizer_train(some, 1, 300, invalid, 1, out), TERN_ERR_USAGE,
                 "UTF-8|byte 1");
    assert_fails(tern_tokenizer_train(some, 1, 300, single, 1, out), TERN_ERR_USAGE,
                 "'x'|1 bytes|2 to");
    assert_fails(tern_tokenizer_train(some, 1, 300, NULL, 0, at("no/such/out.json")),
                 TERN_ERR_NOT_FOUND, "no/such");
    assert_false(tern_file_exists(out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits_like_gpt2),
        cmocka_unit_test(test_byte_alphabet_is_a_bijection),
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_long_words_merge_by_the_definition),
        cmocka_unit_test(test_merges_out_of_order),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_names_beside),
        cmocka_unit_test(test_cuts_change_nothing),
        cmocka_unit_test(test_many_different_words),
        cmocka_unit_test(test_training_learns_the_most_frequent_pairs),
        cmocka_unit_test(test_training_refusals),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
