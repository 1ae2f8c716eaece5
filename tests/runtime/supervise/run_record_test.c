/* run_record_test.c - a run directory as launches leave it, whole, torn and hostile; the account that survives its writer. */
#include "io/json.h"
#include "runtime/supervise/run_record.h"
#include "tests/runtime/fixture.h"

#include <unistd.h>

static char g_run[TERN_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES];
    make_folder(g_run);
    expect_ok(tern_path_join(path, g_run, "launches"));
    expect_ok(tern_file_make_folder(path));
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(g_run);
    return check_no_live_blocks(state);
}

static void put(const char *name, const char *text)
{
    char path[TERN_PATH_BYTES];
    expect_ok(tern_path_join(path, g_run, name));
    expect_ok(tern_file_replace(path, text, strlen(text)));
}

static void test_records(void **state)
{
    (void)state;
    struct tern_launch_record record;
    tern_launch_record_read(g_run, "a", &record);
    assert_int_equal(record.state, TERN_LAUNCH_NO_RECORD);
    put("launches/a.json",
        "{\"id\":\"a\",\"state\":\"peer_lost\",\"step\":12,\"reason\":\"rank 2\"}");
    tern_launch_record_read(g_run, "a", &record);
    assert_int_equal(record.state, TERN_LAUNCH_PEER_LOST);
    assert_int_equal(record.step, 12);
    assert_string_equal(record.reason, "rank 2");
    assert_string_equal(record.leaving, "");
    put("launches/a.json", "{\"state\":\"reclaimed\",\"leaving\":\"h3\"}");
    tern_launch_record_read(g_run, "a", &record);
    assert_string_equal(record.leaving, "h3");
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "7",
                                      "{\"state\":7}",
                                      "{\"state\":\"done\"}",
                                      "\xff\xfe",
                                      "{\"state\":null,\"step\":\"x\",\"reason\":[]}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("launches/b.json", bad[i]);
        tern_launch_record_read(g_run, "b", &record);
        assert_int_equal(record.state, TERN_LAUNCH_NO_RECORD);
        assert_string_equal(record.reason, "");
    }
    /* a reason longer than is kept is cut */
    char text[4096];
    memset(text, 'x', sizeof text);
    memcpy(text, "{\"state\":\"failed\",\"reason\":\"", 28);
    memcpy(text + sizeof text - 3, "\"}", 3);
    put("launches/c.json", text);
    tern_launch_record_read(g_run, "c", &record);
    assert_int_equal(record.state, TERN_LAUNCH_FAILED);
    assert_int_equal(strlen(record.reason), TERN_LAUNCH_REASON_BYTES - 1);
}

static void test_progress(void **state)
{
    (void)state;
    assert_int_equal(tern_run_progress(g_run), 0);
    assert_int_equal(tern_run_pulse(g_run), 0);
    put("log.jsonl", "");
    assert_int_equal(tern_run_progress(g_run), 0);
    put("log.jsonl", "{\"kind\":\"start\",\"step\":900}\n{\"kind\":\"step\",\"step\":41}\n"
                     "{\"kind\":\"step\",\"step\":7}\nnot json\n{\"kind\":\"step\",\"step\":99");
    assert_int_equal(tern_run_progress(g_run), 41); /* the last line is torn */
    assert_true(tern_run_pulse(g_run) > 100);
    /* only the end of a long log is read, from the first whole line on */
    struct tern_text log;
    tern_text_init(&log);
    for (int i = 1; i <= 20000; i++) {
        expect_ok(tern_text_printf(&log, "{\"kind\":\"step\",\"step\":%d,\"loss\":1.5}\n", i));
    }
    put("log.jsonl", log.data);
    tern_text_fini(&log);
    assert_int_equal(tern_run_progress(g_run), 20000);
}

static void test_journal(void **state)
{
    (void)state;
    static struct tern_journal first;
    static struct tern_journal second;
    struct tern_journal_launch *launch;
    struct tern_hosts hosts;
    char last[TERN_LAUNCH_ID_ROOM] = "";
    expect_ok(tern_hosts_parse_list("h1:2,h2", &hosts));
    expect_ok(tern_journal_open(g_run, &first));
    assert_int_equal(first.launches, 0);
    assert_int_equal(strlen(first.tag), 8);
    for (int i = 1; i <= 70; i++) { /* more than are kept */
        expect_ok(tern_journal_begin(&first, &launch));
        assert_string_not_equal(launch->id, last);
        assert_true(strlen(launch->id) < 40);
        assert_contains(launch->id, first.tag);
        snprintf(last, sizeof last, "%s", launch->id);
        launch->ranks = i;
        launch->state = TERN_LAUNCH_PEER_LOST;
        launch->verdict = TERN_VERDICT_LOST;
        launch->code = 205;
        snprintf(launch->reason, sizeof launch->reason, "\"quoted\" %d", i);
        tern_clock_rfc3339(launch->ended);
    }
    expect_ok(tern_journal_write(&first, &hosts));
    tern_hosts_fini(&hosts);
    expect_ok(tern_journal_open(g_run, &second));
    assert_string_equal(second.tag, first.tag);
    assert_int_equal(second.launches, 70);
    for (int i = 7; i <= 70; i++) {
        const struct tern_journal_launch *a = &first.items[(i - 1) % TERN_JOURNAL_LAUNCHES];
        const struct tern_journal_launch *b = &second.items[(i - 1) % TERN_JOURNAL_LAUNCHES];
        assert_memory_equal(a->id, b->id, sizeof a->id);
        assert_string_equal(a->reason, b->reason);
        assert_int_equal(b->ranks, i);
        assert_int_equal(b->code, 205);
        assert_int_equal(b->verdict, TERN_VERDICT_LOST);
        assert_int_equal(b->state, TERN_LAUNCH_PEER_LOST);
    }
    expect_ok(tern_journal_begin(&second, &launch));
    char end[24];
    snprintf(end, sizeof end, "-%s-71", first.tag);
    assert_contains(launch->id, end);
}

static void test_hostile_journal(void **state)
{
    (void)state;
    static struct tern_journal journal;
    static const char *const bad[] = {"",
                                      "{}",
                                      "[1]",
                                      "{\"tag\":\"../../..\",\"launches\":1}",
                                      "{\"tag\":\"0123456\",\"launches\":1}",
                                      "{\"tag\":\"01234567\",\"launches\":-1}",
                                      "{\"tag\":\"01234567\",\"launches\":1e99}",
                                      "{\"tag\":\"01234567\",\"launches\":0,\"history\":[{}]}",
                                      "{\"tag\":\"ABCDEF01\",\"launches\":0}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("supervise.json", bad[i]);
        expect_ok(tern_journal_open(g_run, &journal));
        assert_int_equal(journal.launches, 0);
        assert_int_equal(strlen(journal.tag), 8);
        assert_string_not_equal(journal.tag, "01234567");
    }
    put("supervise.json",
        "{\"tag\":\"01234567\",\"launches\":3,\"history\":[{\"id\":7},null,\"x\"]}");
    expect_ok(tern_journal_open(g_run, &journal));
    assert_string_equal(journal.tag, "01234567");
    assert_int_equal(journal.launches, 3);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_records),
        IN_FOLDER(test_progress),
        IN_FOLDER(test_journal),
        IN_FOLDER(test_hostile_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
