/* text_test.c - string building, number parsers, nearest names, sizes in words; the clock. */
#include "runtime/base/clock.h"
#include "runtime/base/text.h"
#include "tests/base/check.h"

#include <string.h>

static void test_building(void **state)
{
    (void)state;
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(tern_text_printf(&text, "%03d,", i), TERN_OK);
    }
    assert_int_equal(tern_text_append(&text, "a\0b", 3), TERN_OK);
    assert_int_equal(text.length, 4003);
    assert_memory_equal(text.data + 3996, "999,a\0b", 8);
    tern_text_fini(&text);
    assert_null(text.data);
    assert_int_equal(tern_text_append(&text, "", 0), TERN_OK);
    assert_string_equal(text.data, "");
    tern_text_fini(&text);
}

/* Every character, whole and cut short; then the examples of the Unicode standard (tables 3-8 to 3-11). */
static void test_utf8(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        unsigned char c[4] = {(unsigned char)code};
        size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (size_t i = size; size > 1 && i-- > 0;) {
            uint32_t bits = code >> (6 * (size - 1 - i));
            c[i] = (unsigned char)(i > 0 ? 0x80 | (bits & 0x3F) : (0xF00 >> size & 0xFF) | bits);
        }
        bool is_surrogate = code >= 0xD800 && code < 0xE000;
        for (size_t length = 1; length <= size; length++) {
            enum tern_utf8 kind;
            size_t step = tern_utf8_next((const char *)c, length, &kind);
            enum tern_utf8 expected = is_surrogate && length > 1 ? TERN_UTF8_WRONG
                                      : length < size            ? TERN_UTF8_CUT
                                                                 : TERN_UTF8_WHOLE;
            if (kind != expected || step != (expected == TERN_UTF8_WRONG ? 1 : length)) {
                fail_msg("U+%04X, %zu of %zu bytes: found kind %d and %zu bytes", code, length,
                         size, kind, step);
            }
        }
    }
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"a\xC3\xA9z", "a\xC3\xA9z"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
        {"\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "???b?c??d"},
        {"end\xF0\x9F\x98", "end?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_text text;
        char shown[64] = "";
        tern_text_init(&text);
        assert_int_equal(tern_text_append_utf8(&text, rows[i].from, strlen(rows[i].from)), TERN_OK);
        for (size_t at = 0, used = 0; at < text.length; at++) {
            bool is_mark = memcmp(text.data + at, "\xEF\xBF\xBD", 3) == 0;
            shown[used++] = is_mark ? '?' : text.data[at];
            at += is_mark ? 2 : 0;
        }
        assert_string_equal(shown, rows[i].to);
        tern_text_fini(&text);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    const char *const names[] = {"steps", "tokens", "seed", "sequence_length"};
    assert_string_equal(tern_text_nearest("step", names, 4), "steps");
    assert_string_equal(tern_text_nearest("Tokens", names, 4), "tokens");
    assert_string_equal(tern_text_nearest("seqence_lenght", names, 4), "sequence_length");
    assert_string_equal(tern_text_nearest("", names, 4), "seed");
    char far[400];
    memset(far, 'q', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    assert_non_null(tern_text_nearest(far, names, 4));
}

static void test_whole_numbers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bool is_good;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-7", true, -7},
        {"10e9", true, 10000000000},
        {"1_000_000", true, 1000000},
        {"2.5e1", true, 25},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"1e19", false, 0},
        {"1.5", false, 0},
        {"", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"0x10", false, 0},
        {"ten", false, 0},
        {"_1", false, 0},
        {"1_", false, 0},
        {"nan", false, 0},
        {"--1", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t value = 0;
        if (tern_text_to_i64(rows[i].text, &value) != rows[i].is_good) {
            fail_msg("'%s': expected %s", rows[i].text, rows[i].is_good ? "a number" : "a refusal");
        }
        if (rows[i].is_good) {
            assert_int_equal(value, rows[i].value);
        }
    }
}

static void test_real_numbers(void **state)
{
    (void)state;
    double value;
    assert_true(tern_text_to_f64("6e-4", &value) && value == 6e-4);
    assert_true(tern_text_to_f64("-.5", &value) && value == -0.5);
    assert_true(tern_text_to_f64("1_000.25", &value) && value == 1000.25);
    const char *const bad[] = {"", "inf", "nan", "1e999", "1,5", "e", "1e", "0x1p3", "1 2", "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tern_text_to_f64(bad[i], &value)) {
            fail_msg("'%s' was read as %g", bad[i], value);
        }
    }
}

static void test_sizes(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int64_t bytes; /* -1: refused */
    } rows[] = {
        {"512M", 512LL << 20},
        {"4Gi", 4LL << 30},
        {"1.5GiB", 3LL << 29},
        {"7", 7},
        {"2k", 2048},
        {"1T", 1LL << 40},
        {"100b", 100},
        {"-1M", -1},
        {"M", -1},
        {"", -1},
        {"1X", -1},
        {"99999999T", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t bytes = -1;
        bool is_good = tern_text_to_bytes(rows[i].text, &bytes);
        if (is_good != (rows[i].bytes >= 0) || (is_good && bytes != rows[i].bytes)) {
            fail_msg("'%s': found %lld, expected %lld", rows[i].text, (long long)bytes,
                     (long long)rows[i].bytes);
        }
    }
}

static void test_in_words(void **state)
{
    (void)state;
    char text[TERN_TEXT_BYTES_BYTES];
    assert_string_equal(tern_text_bytes(1023, text), "1023 B");
    assert_string_equal(tern_text_bytes(1536, text), "1.5 KiB");
    assert_string_equal(tern_text_bytes(INT64_C(312) << 30, text), "312 GiB");
    assert_string_equal(tern_text_commas(124439808, text), "124,439,808");
    assert_string_equal(tern_text_commas(-1000, text), "-1,000");
    assert_string_equal(tern_text_commas(-999, text), "-999");
    assert_string_equal(tern_text_commas(0, text), "0");
    assert_string_equal(tern_text_duration(3723.4, text), "01:02:03");
    assert_string_equal(tern_text_duration(-1, text), "--:--:--");
}

static int64_t fixed_time(void)
{
    return 42000000000;
}

static void test_clock(void **state)
{
    (void)state;
    int64_t before = tern_clock_ns();
    tern_clock_sleep_ns(2000000);
    assert_true(tern_clock_ns() - before >= 2000000);
    tern_clock_fake(fixed_time);
    assert_true(tern_clock_seconds() == 42.0);
    tern_clock_fake(NULL);
    assert_true(tern_clock_ns() >= before);
    char stamp[TERN_RFC3339_BYTES];
    tern_clock_rfc3339(stamp);
    assert_int_equal(strlen(stamp), 24);
    assert_true(stamp[10] == 'T' && stamp[19] == '.' && stamp[23] == 'Z');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_building),      CHECKED(test_utf8),         CHECKED(test_nearest),
        CHECKED(test_whole_numbers), CHECKED(test_real_numbers), CHECKED(test_sizes),
        CHECKED(test_in_words),      CHECKED(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
