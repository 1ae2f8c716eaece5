/* tokenizer_linear_test.c - ten times the text takes about ten times as long, whatever the text: one letter, blanks,
 * emoji, marks, bytes that are no UTF-8. Processor time of this thread, and a bound between linear and quadratic. */
#include "io/tokenizer.h"
#include "tests/io/data_fixture.h"

#include <time.h>

enum {
    LONG_BYTES = 1 << 20,
    WHOLE_BYTES = 10 << 20, /* of one letter */
    SHORT_BYTES = LONG_BYTES / 10,
    RATIO_MAX = 35, /* linear: 10, and caches that no longer hold it; quadratic: 100 */
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Processor seconds that the ids of text take. */
static double measure(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes)
{
    int32_t *ids;
    int64_t count;
    double started = seconds();
    assert_ok(tern_tokenizer_encode(tokenizer, text, bytes, true, &ids, &count));
    double taken = seconds() - started;
    assert_true(count <= (int64_t)bytes + 4);
    tern_free(ids);
    return taken;
}

static void test_any_text_is_linear(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "qwen2",    "tekken",  "llama2",
                                        "gemma",  "crossing", "unigram", "unigram_bytes"};
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "1",
                                        "\xf0\x9f\x99\x82",
                                        "\xff",
                                        "\xcc\x81",
                                        "\xcc\xa7\xcc\x81",
                                        "\xe2\x96\x81",
                                        "<a",
                                        "<ls> ",
                                        "\xe4\xb8\255A",
                                        "'",
                                        "\xe4\xb8\xad",
                                        " \xe2\x96\x81",
                                        "the ",
                                        "\xe1\x84\x92\xe1\x85\xa1"};
    char *text = tern_alloc("test", LONG_BYTES);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        struct tern_tokenizer *tokenizer;
        snprintf(path, sizeof path, "%s/%s.json", GOLDEN_FOLDER, names[i]);
        assert_ok(tern_tokenizer_open(path, &tokenizer));
        for (size_t j = 0; j < sizeof units / sizeof units[0]; j++) {
            size_t length = strlen(units[j]);
            for (size_t at = 0; at < LONG_BYTES; at++) {
                text[at] = units[j][at % length];
            }
            double few = measure(tokenizer, text, SHORT_BYTES);
            double many = measure(tokenizer, text, LONG_BYTES);
            if (many > few * RATIO_MAX + 0.05) {
                fail_msg("%s, '%s' again and again: %.3f s for %d bytes, %.3f s for %d", names[i],
                         units[j], few, SHORT_BYTES, many, LONG_BYTES);
            }
        }
        tern_tokenizer_close(tokenizer);
    }
    tern_free(text);
}

/* 10 MB of one thing against 10 MB of words. */
static void test_ten_megabytes(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2", "llama2", "unigram"};
    static const char *const units[] = {"the quick brown fox 12, ", "a", " ", "\xf0\x9f\x99\x82",
                                        "\xff"};
    char *text = tern_alloc("test", WHOLE_BYTES);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        struct tern_tokenizer *tokenizer;
        double words = 0;
        snprintf(path, sizeof path, "%s/%s.json", GOLDEN_FOLDER, names[i]);
        assert_ok(tern_tokenizer_open(path, &tokenizer));
        for (size_t j = 0; j < sizeof units / sizeof units[0]; j++) {
            size_t length = strlen(units[j]);
            for (size_t at = 0; at < WHOLE_BYTES; at++) {
                text[at] = units[j][at % length];
            }
            double taken = measure(tokenizer, text, WHOLE_BYTES);
            words = j == 0 ? taken : words;
            if (taken > words * 30) {
                fail_msg("%s, '%s' again and again: %.3f s; words %.3f s", names[i], units[j],
                         taken, words);
            }
        }
        tern_tokenizer_close(tokenizer);
    }
    tern_free(text);
}

/* Every token of equal rank, or a longer one before the shorter: the order in which merges come is the
 * worst there is. A vocabulary of a, aa, aaa, ... whose merges are listed longest first. */
static void test_descending_ranks_are_linear(void **state)
{
    (void)state;
    enum {
        LONGEST = 24
    };
    struct tern_text json;
    tern_text_init(&json);
    assert_ok(tern_text_printf(
        &json, "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\","
               "\"vocab\":{"));
    for (int i = 1; i <= LONGEST; i++) {
        assert_ok(tern_text_printf(&json, "%s\"%.*s\":%d", i > 1 ? "," : "", i,
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i));
    }
    assert_ok(tern_text_printf(&json, "},\"merges\":["));
    for (int i = LONGEST; i > 1; i--) {
        assert_ok(tern_text_printf(&json, "%s\"%.*s a\"", i < LONGEST ? "," : "", i - 1,
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    }
    assert_ok(tern_text_printf(&json, "]}}"));
    write_file("descending.json", json.data, json.length);
    tern_text_fini(&json);
    struct tern_tokenizer *tokenizer;
    assert_ok(tern_tokenizer_open(at("descending.json"), &tokenizer));
    char *text = tern_alloc("test", LONG_BYTES);
    memset(text, 'a', LONG_BYTES);
    double few = measure(tokenizer, text, SHORT_BYTES);
    double many = measure(tokenizer, text, LONG_BYTES);
    assert_true(many <= few * RATIO_MAX + 0.05);
    int32_t *ids;
    int64_t count;
    assert_ok(tern_tokenizer_encode(tokenizer, text, LONGEST * 3 + 1, true, &ids, &count));
    assert_int_equal(count, 4); /* the longest is always finished first */
    tern_free(ids);
    tern_free(text);
    tern_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_text_is_linear),
        cmocka_unit_test(test_ten_megabytes),
        cmocka_unit_test(test_descending_ranks_are_linear),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
