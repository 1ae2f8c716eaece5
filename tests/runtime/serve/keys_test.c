/* keys_test.c - API keys: files of them, and headers. */
#include "runtime/serve/keys.h"
#include "tests/io/data_fixture.h"

static tern_status read_keys(const char *text, size_t bytes, struct tern_api_keys *out)
{
    write_file("keys.txt", text, bytes);
    return tern_api_keys_read(at("keys.txt"), out);
}

static void test_keys(void **state)
{
    (void)state;
    struct tern_api_keys keys;
    static const char text[] = "# ours\n\nsk-one\r\nsk-two  \n";
    assert_ok(read_keys(text, sizeof text - 1, &keys));
    assert_int_equal(keys.count, 2);
    assert_true(tern_api_keys_admit(&keys, "Bearer sk-one"));
    assert_true(tern_api_keys_admit(&keys, "bearer  sk-two"));
    static const char *const bad[] = {"Bearer sk-on",  "Bearer sk-one2", "Bearer ", "Bearer",
                                      "Basic sk-one",  "sk-one",         "",        "Bearer # ours",
                                      "Bearer sk-one "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(tern_api_keys_admit(&keys, bad[i]));
    }
    assert_false(tern_api_keys_admit(&keys, NULL));
    char longest[600];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "Bearer ", 7);
    longest[sizeof longest - 1] = '\0';
    assert_false(tern_api_keys_admit(&keys, longest));
    tern_api_keys_fini(&keys);
    assert_true(tern_api_keys_admit(&keys, NULL)); /* no keys: nobody needs one */
}

static void test_bad_files(void **state)
{
    (void)state;
    struct tern_api_keys keys;
    char big[400];
    memset(big, 'k', sizeof big);
    const struct {
        const char *text;
        size_t bytes;
        const char *says;
    } cases[] = {{"", 0, "found no key"},
                 {"\n# none\n", 8, "found no key"},
                 {"good\na b\n", 9, "keys.txt:2"},
                 {"good\n\xc3\xa9\n", 8, "keys.txt:2"},
                 {"a\0b", 3, "NUL"},
                 {big, sizeof big, "keys.txt:1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(read_keys(cases[i].text, cases[i].bytes, &keys), TERN_ERR_INPUT);
        assert_non_null(strstr(tern_detail(), cases[i].says));
        tern_api_keys_fini(&keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
