/* run_dir_test.c - one writer, launch records that always read back, leftovers removed. */
#include "io/json.h"
#include "runtime/train/run_dir.h"
#include "tests/runtime/fixture.h"

#include <pthread.h>
#include <unistd.h>

static char g_root[TERN_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

/* RUN/launches: the records, parsed. NULL fields: whatever. */
static int count_records(const char *run, const char *state, const char *reason, int64_t step)
{
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    char **names;
    int count;
    expect_ok(tern_path_join(folder, run, "launches"));
    expect_ok(tern_file_list(folder, &names, &count));
    for (int i = 0; i < count; i++) {
        char *text;
        size_t bytes;
        struct tern_json *json;
        int64_t found = -1;
        int64_t ranks = -1;
        assert_string_equal(names[i] + strlen(names[i]) - 5, ".json");
        expect_ok(tern_path_join(path, folder, names[i]));
        expect_ok(tern_file_read(path, 1 << 20, &text, &bytes));
        expect_ok(tern_json_parse(path, text, bytes, &json));
        const struct tern_json *root = (const struct tern_json *)json;
        assert_string_equal(tern_json_string(tern_json_get(root, "state"), NULL), state);
        assert_string_equal(tern_json_string(tern_json_get(root, "reason"), NULL), reason);
        assert_int_equal(strlen(tern_json_string(tern_json_get(root, "time"), NULL)), 24);
        const char *id = tern_json_string(tern_json_get(root, "id"), NULL);
        assert_int_equal(strncmp(id, names[i], strlen(id)), 0);
        assert_true(tern_json_i64(tern_json_get(root, "step"), &found));
        assert_true(tern_json_i64(tern_json_get(root, "ranks"), &ranks));
        assert_int_equal(found, step);
        tern_json_close(json);
        tern_free(text);
    }
    tern_free(names);
    return count;
}

static void test_records(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *read_back;
    } rows[] = {
        {"all steps done", "all steps done"},
        {"", ""},
        {"quote \" backslash \\ slash / tab \t line\nend \x01\x1f", NULL},
        {"\xC3\xA9 \xF0\x9F\x98\x80 \xE2\x80\xA8", NULL},
        {"/data/\xFF\xFE/half \xE2\x82", "/data/\xEF\xBF\xBD\xEF\xBF\xBD/half \xEF\xBF\xBD"},
        {"%s%n {\"state\":\"finished\"}", NULL},
    };
    char run_path[TERN_PATH_BYTES];
    struct tern_run_dir run;
    expect_ok(tern_path_join(run_path, g_root, "deep/er/run"));
    expect_ok(tern_run_dir_open(&run, run_path, 4));
    assert_true(tern_run_dir_is_running(&run)); /* no record yet */
    expect_ok(tern_run_dir_record(&run, 0, "running", 0, "started"));
    assert_true(tern_run_dir_is_running(&run));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_ok(tern_run_dir_record(&run, (int)i, "failed", (int64_t)i << 40, rows[i].reason));
        const char *expected = rows[i].read_back != NULL ? rows[i].read_back : rows[i].reason;
        assert_int_equal(count_records(run_path, "failed", expected, (int64_t)i << 40), 1);
        assert_false(tern_run_dir_is_running(&run));
    }
    tern_run_dir_close(&run);
    tern_run_dir_close(&run); /* twice is fine */
}

struct writer {
    const struct tern_run_dir *run;
    int rank;
    pthread_t thread;
    tern_status status;
};

static void *write_records(void *arg)
{
    struct writer *writer = arg;
    for (int i = 0; i < 20 && writer->status == TERN_OK; i++) {
        /* of very different lengths: a mixture of two would not parse */
        char reason[512];
        memset(reason, 'a' + writer->rank, sizeof reason);
        reason[writer->rank * 60 + 1] = '\0';
        writer->status =
            tern_run_dir_record(writer->run, writer->rank, "peer_lost", writer->rank, reason);
    }
    return NULL;
}

/* All ranks lose the same peer: each writes the one record of the launch at the same moment. */
static void test_many_writers(void **state)
{
    (void)state;
    struct tern_run_dir run;
    struct writer writers[8];
    char **names;
    int count;
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    expect_ok(tern_run_dir_open(&run, g_root, 8));
    for (int i = 0; i < 8; i++) {
        writers[i] = (struct writer){.run = &run, .rank = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_records, &writers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_int_equal(writers[i].status, TERN_OK);
    }
    expect_ok(tern_path_join(folder, g_root, "launches"));
    expect_ok(tern_file_list(folder, &names, &count));
    assert_int_equal(count, 1);
    char *text;
    size_t bytes;
    struct tern_json *json;
    int64_t rank = -1;
    expect_ok(tern_path_join(path, folder, names[0]));
    expect_ok(tern_file_read(path, 1 << 20, &text, &bytes));
    expect_ok(tern_json_parse(path, text, bytes, &json));
    assert_true(tern_json_i64(tern_json_get((const struct tern_json *)json, "step"), &rank));
    size_t length;
    const char *reason =
        tern_json_string(tern_json_get((const struct tern_json *)json, "reason"), &length);
    assert_int_equal(length, rank * 60 + 1);
    assert_int_equal(reason[length - 1], 'a' + rank);
    tern_json_close(json);
    tern_free(text);
    tern_free(names);
    tern_run_dir_close(&run);
}

static void test_lock(void **state)
{
    (void)state;
    struct tern_run_dir first;
    struct tern_run_dir second;
    char pid[32];
    expect_ok(tern_run_dir_open(&first, g_root, 1));
    assert_int_equal(tern_run_dir_open(&second, g_root, 1), TERN_ERR_BUSY);
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    assert_contains(tern_detail(), pid);
    assert_contains(tern_detail(), "choose another");
    assert_false(second.is_locked);
    tern_run_dir_close(&second);
    tern_run_dir_close(&first);
    expect_ok(tern_run_dir_open(&second, g_root, 1));
    assert_true(strcmp(first.launch_id, second.launch_id) <= 0);
    tern_run_dir_close(&second);
}

static void test_leftovers(void **state)
{
    (void)state;
    static const char *const leftovers[] = {"x.json.tmp", "x.rank-0003", "x.rank-0003.tmp"};
    struct tern_run_dir run;
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    char **names;
    int count;
    expect_ok(tern_path_join(folder, g_root, "launches"));
    expect_ok(tern_file_make_folder(folder));
    for (size_t i = 0; i < 3; i++) {
        expect_ok(tern_path_join(path, folder, leftovers[i]));
        expect_ok(tern_file_replace(path, "{", 1));
    }
    expect_ok(tern_path_join(path, folder, "old.json"));
    expect_ok(tern_file_replace(path, "{}", 2));
    expect_ok(tern_run_dir_open(&run, g_root, 1));
    expect_ok(tern_file_list(folder, &names, &count));
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "old.json");
    tern_free(names);
    tern_run_dir_close(&run);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tern_run_dir run;
    char path[TERN_PATH_BYTES];
    char below[TERN_PATH_BYTES];
    assert_int_equal(tern_run_dir_open(&run, "", 1), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "--run-dir");
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(tern_run_dir_open(&run, path, 1), TERN_ERR_USAGE);
    expect_ok(tern_path_join(path, g_root, "file"));
    expect_ok(tern_file_replace(path, "x", 1));
    assert_int_equal(tern_run_dir_open(&run, path, 1), TERN_ERR_IO);
    assert_contains(tern_detail(), "is not a folder");
    assert_contains(tern_detail(), "--run-dir");
    expect_ok(tern_path_join(below, path, "run"));
    assert_int_not_equal(tern_run_dir_open(&run, below, 1), TERN_OK);
    tern_run_dir_close(&run);
    /* a record that cannot be written says which */
    expect_ok(tern_path_join(path, g_root, "run"));
    expect_ok(tern_run_dir_open(&run, path, 1));
    arm("launch.record:enospc");
    assert_int_equal(tern_run_dir_record(&run, 0, "finished", 1, "x"), TERN_ERR_NO_SPACE);
    assert_contains(tern_detail(), run.launch_id);
    arm(NULL);
    tern_run_dir_close(&run);
}

/* Named by a supervisor: that name and no other, once. */
static void test_name(void **state)
{
    (void)state;
    struct tern_run_dir run;
    char path[TERN_PATH_BYTES];
    char longest[TERN_LAUNCH_ID_BYTES + 1];
    static const char *const bad[] = {"", ".", ".hidden", "a/b", "../x", "a b", "a\n", "\xc3\xa4"};
    expect_ok(tern_path_join(path, g_root, "run"));
    expect_ok(tern_run_dir_open(&run, path, 1));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tern_run_dir_name(&run, bad[i]), TERN_ERR_USAGE);
        assert_contains(tern_detail(), "environment TERN_LAUNCH_ID: found");
    }
    memset(longest, 'x', sizeof longest);
    longest[TERN_LAUNCH_ID_BYTES] = '\0';
    assert_int_equal(tern_run_dir_name(&run, longest), TERN_ERR_USAGE);
    longest[TERN_LAUNCH_ID_BYTES - 1] = '\0';
    expect_ok(tern_run_dir_name(&run, longest));
    expect_ok(tern_run_dir_name(&run, "20260131T120000.123Z-0123abcd-7"));
    expect_ok(tern_run_dir_record(&run, 0, "running", 0, "started"));
    expect_ok(tern_path_join(path, g_root, "run/launches/20260131T120000.123Z-0123abcd-7.json"));
    assert_true(tern_file_exists(path));
    assert_int_equal(tern_run_dir_name(&run, "20260131T120000.123Z-0123abcd-7"), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "has no record");
    strcpy(run.leaving, "h\"3"); /* quoted */
    expect_ok(tern_run_dir_record(&run, 0, "reclaimed", 3, "a notice"));
    char *text;
    size_t bytes;
    struct tern_json *json;
    expect_ok(tern_file_read(path, 1 << 20, &text, &bytes));
    expect_ok(tern_json_parse(path, text, bytes, &json));
    assert_string_equal(tern_json_string(tern_json_get(json, "leaving"), NULL), "h\"3");
    tern_json_close(json);
    tern_free(text);
    tern_run_dir_close(&run);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_records),   IN_FOLDER(test_many_writers), IN_FOLDER(test_lock),
        IN_FOLDER(test_leftovers), IN_FOLDER(test_refusals),     IN_FOLDER(test_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
