/* step_log_test.c - every line of log.jsonl parses, whatever went into it and whatever happened to
 * the file. */
#include "io/json.h"
#include "runtime/observe/step_log.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static char g_root[TERN_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    return 0;
}

static int tear_down(void **state)
{
    arm(NULL);
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

/* The document of one line of the log, from 0; how many lines there are in *count_out. Lines with
 * "broken" in them are what the test itself left. */
static struct tern_json *read_line(int line, int *count_out)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    struct tern_json *wanted = NULL;
    expect_ok(tern_path_join(path, g_root, "log.jsonl"));
    expect_ok(tern_file_read(path, 1 << 20, &text, &bytes));
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    *count_out = 0;
    for (char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        struct tern_json *document;
        size_t length = strcspn(at, "\n");
        if (length >= 6 && memmem(at, length, "broken", 6) != NULL) {
            continue;
        }
        expect_ok(tern_json_parse("log.jsonl", at, length, &document));
        if ((*count_out)++ == line) {
            wanted = document;
        } else {
            tern_json_close(document);
        }
    }
    tern_free(text);
    return wanted;
}

static const struct tern_step_record g_record = {.step = 7,
                                                 .loss = 0.1F,
                                                 .grad_norm = 1.23456789,
                                                 .lr = 6e-4,
                                                 .tokens = 4096,
                                                 .step_seconds = 0.5,
                                                 .mfu = -1};

static double field(const struct tern_json *line, const char *key)
{
    double value = NAN;
    const struct tern_json *member = tern_json_get(line, key);
    assert_non_null(member);
    if (tern_json_kind_of(member) == TERN_JSON_NULL) {
        return NAN;
    }
    assert_true(tern_json_f64(member, &value));
    return value;
}

static void test_steps(void **state)
{
    (void)state;
    struct tern_step_log log;
    int count;
    expect_ok(tern_step_log_open(&log, g_root, 6, 100));
    tern_step_log_step(&log, &g_record);
    struct tern_step_record bad = g_record;
    bad.loss = NAN;
    bad.grad_norm = INFINITY;
    bad.step_seconds = 0; /* a clock that did not move */
    bad.mfu = 0.5;
    bad.is_skipped = true;
    tern_step_log_step(&log, &bad);
    struct tern_json *document = read_line(0, &count);
    const struct tern_json *line = (const struct tern_json *)document;
    assert_int_equal(count, 2);
    assert_string_equal(tern_json_string(tern_json_get(line, "kind"), NULL), "step");
    assert_true((float)field(line, "loss") == 0.1F); /* fp32 comes back */
    assert_true(field(line, "step") == 7);
    assert_true(field(line, "tokens_per_second") == 8192);
    assert_true(isnan(field(line, "mfu")));
    assert_true(field(line, "rss_bytes") > 0);
    assert_null(tern_json_get(line, "skipped"));
    tern_json_close(document);
    document = read_line(1, &count);
    line = (const struct tern_json *)document;
    assert_true(isnan(field(line, "loss")));
    assert_true(isnan(field(line, "grad_norm")));
    assert_true(isnan(field(line, "tokens_per_second")));
    assert_true(field(line, "mfu") == 0.5);
    assert_true(tern_json_bool(tern_json_get(line, "skipped"), false));
    tern_json_close(document);
}

static void test_events(void **state)
{
    (void)state;
    struct tern_step_log log;
    int count;
    char longest[4096];
    memset(longest, 1, sizeof longest - 1); /* each escaped to six bytes */
    longest[sizeof longest - 1] = '\0';
    expect_ok(tern_step_log_open(&log, g_root, 0, 100));
    tern_step_log_event(&log, "resume", "\"step\":%d", 3);
    tern_step_log_event(&log, "eval", "\"step\":%d,\"loss\":%s", 3, "null");
    tern_step_log_text(&log, "warning", 9, "not_written", "disk \"full\" \\ \n \xFF \xC3\xA9");
    tern_step_log_text(&log, "warning", 9, "not_written", longest);
    struct tern_json *document = read_line(2, &count);
    const struct tern_json *line = (const struct tern_json *)document;
    assert_int_equal(count, 4);
    assert_string_equal(tern_json_string(tern_json_get(line, "not_written"), NULL),
                        "disk \"full\" \\ \n \xEF\xBF\xBD \xC3\xA9");
    assert_true(field(line, "step") == 9);
    tern_json_close(document);
}

/* A disk that fills up in the middle of a line, and gets room again; then a launch that starts
 * behind a torn line. */
static void test_torn(void **state)
{
    (void)state;
    struct tern_step_log log;
    int count;
    char path[TERN_PATH_BYTES];
    expect_ok(tern_step_log_open(&log, g_root, 0, 100));
    tern_step_log_step(&log, &g_record);
    arm("file.open:enospc");
    tern_step_log_step(&log, &g_record); /* nothing was written */
    arm("file.write@1:short,file.write@2:enospc");
    tern_step_log_event(&log, "broken", "\"text\":\"%s\"", "0123456789012345678901234567890123");
    assert_int_equal(log.lost, 2);
    arm(NULL);
    tern_step_log_step(&log, &g_record);
    assert_int_equal(log.lost, 0);
    tern_json_close(read_line(0, &count));
    assert_int_equal(count, 2);
    expect_ok(tern_path_join(path, g_root, "log.jsonl"));
    expect_ok(tern_file_append(path, "{\"kind\":\"broken", 15));
    expect_ok(tern_step_log_open(&log, g_root, 0, 100));
    tern_step_log_event(&log, "start", "\"step\":%d", 1);
    tern_step_log_event(&log, "end", "\"step\":%d", 2);
    struct tern_json *document = read_line(2, &count);
    assert_int_equal(count, 4);
    tern_json_close(document);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {IN_FOLDER(test_steps), IN_FOLDER(test_events),
                                       IN_FOLDER(test_torn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
