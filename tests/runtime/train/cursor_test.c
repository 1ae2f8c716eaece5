/* cursor_test.c - the state of a checkpoint as JSON: there and back, and everything that is wrong
 * with it named. */
#include "io/json.h"
#include "runtime/base/mem.h"
#include "runtime/train/cursor.h"
#include "tests/runtime/fixture.h"

static const struct tern_cursor g_cursor = {.step = 1200,
                                            .updates = 1199,
                                            .tokens = INT64_C(9000000000000001),
                                            .samples = 9600,
                                            .seed = 1234,
                                            .isa = "avx512_bf16",
                                            .data_id = "0123456789abcdef0123456789abcdef"};

static void write_it(const struct tern_cursor *cursor, const char *yaml, struct tern_text *out)
{
    tern_text_init(out);
    expect_ok(tern_cursor_write(cursor, yaml, out));
}

static void test_there_and_back(void **state)
{
    (void)state;
    static const char yaml[] =
        "data:\n  train: [\"a \\\"b\\\\c\", '\xC3\xA9\xF0\x9F\x98\x80', \"tab\there\"]\n";
    struct tern_text text;
    struct tern_cursor found;
    char *config = NULL;
    write_it(&g_cursor, yaml, &text);
    expect_ok(tern_cursor_read(text.data, &found, &config));
    assert_int_equal(found.step, g_cursor.step);
    assert_int_equal(found.updates, g_cursor.updates);
    assert_int_equal(found.tokens, g_cursor.tokens);
    assert_int_equal(found.samples, g_cursor.samples);
    assert_int_equal(found.seed, g_cursor.seed);
    assert_string_equal(found.isa, g_cursor.isa);
    assert_string_equal(found.data_id, g_cursor.data_id);
    assert_string_equal(config, yaml);
    tern_free(config);
    expect_ok(tern_cursor_read(text.data, &found, NULL)); /* without the configuration */
    tern_text_fini(&text);
}

/* Two runs are the same run on whatever machine: "cursor" holds where the run is and nothing
 * else. */
static void test_cursor_is_the_same_everywhere(void **state)
{
    (void)state;
    struct tern_cursor other = g_cursor;
    strcpy(other.isa, "avx2");
    strcpy(other.data_id, "");
    struct tern_text texts[2];
    struct tern_json *documents[2];
    write_it(&g_cursor, "a", &texts[0]);
    write_it(&other, "b", &texts[1]);
    for (int i = 0; i < 2; i++) {
        expect_ok(tern_json_parse("state", texts[i].data, texts[i].length, &documents[i]));
    }
    static const char *const keys[] = {"step", "updates", "samples", "tokens"};
    const struct tern_json *places[2];
    for (int i = 0; i < 2; i++) {
        places[i] = tern_json_get((const struct tern_json *)documents[i], "cursor");
        assert_int_equal(tern_json_count(places[i]), 4);
    }
    for (size_t k = 0; k < 4; k++) {
        int64_t values[2] = {-1, -2};
        for (int i = 0; i < 2; i++) {
            assert_true(tern_json_i64(tern_json_get(places[i], keys[k]), &values[i]));
        }
        assert_int_equal(values[0], values[1]);
    }
    for (int i = 0; i < 2; i++) {
        tern_json_close(documents[i]);
        tern_text_fini(&texts[i]);
    }
}

/* Replaces `from` by `to` in a good state; the reader names what is wrong. */
static void refuse(const char *from, const char *to, const char *sentence)
{
    struct tern_text text;
    struct tern_text broken;
    struct tern_cursor found;
    char *config = NULL;
    write_it(&g_cursor, "a: 1", &text);
    char *at = strstr(text.data, from);
    assert_non_null(at);
    tern_text_init(&broken);
    expect_ok(tern_text_printf(&broken, "%.*s%s%s", (int)(at - text.data), text.data, to,
                               at + strlen(from)));
    tern_status status = tern_cursor_read(broken.data, &found, &config);
    if (status != TERN_ERR_CORRUPT && status != TERN_ERR_INPUT) {
        fail_msg("%s: found %s", broken.data, tern_status_name(status));
    }
    assert_contains(tern_detail(), sentence);
    assert_null(config);
    tern_text_fini(&text);
    tern_text_fini(&broken);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("\"format\":1", "\"format\":2", "found format 2, expected 1");
    refuse("\"format\":1", "\"formal\":1", "\"format\": expected a whole number");
    refuse("\"step\":1200", "\"step\":-1", "\"step\"");
    refuse("\"step\":1200", "\"step\":1.5", "\"step\"");
    refuse("\"updates\":1199", "\"updates\":null", "\"updates\"");
    refuse("\"samples\":9600", "\"samples\":\"9600\"", "\"samples\"");
    refuse("\"tokens\":", "\"token\":", "\"tokens\"");
    refuse("\"cursor\":{", "\"cursors\":{", "\"step\"");
    refuse("\"isa\":\"avx512_bf16\"", "\"isa\":7", "\"isa\": expected a string");
    refuse("\"config\":", "\"c\":", "no configuration");
    refuse(",\"seed\"", ",,\"seed\"", "the state of the checkpoint");
    refuse("\"}", "\"", "the state of the checkpoint");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_there_and_back),
        CHECKED(test_cursor_is_the_same_everywhere),
        CHECKED(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
