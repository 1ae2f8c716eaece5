/* planner_test.c - what a clean end needs, when it is too much, and what is kept of it. */
#include "runtime/reclaim/planner.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static void test_need(void **state)
{
    (void)state;
    struct tern_planner planner = {0};
    assert_true(tern_planner_need_seconds(&planner) == 1);
    tern_planner_note(&planner, TERN_PLANNER_STEP, 2, 0);
    tern_planner_note(&planner, TERN_PLANNER_COMMIT, 8, 1000);
    assert_true(tern_planner_need_seconds(&planner) == 1 + 1.25 * (4 + 8));
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, 20, 1000);
    assert_true(tern_planner_need_seconds(&planner) == 1 + 1.25 * (4 + 8 + 20));
    /* the worst of the last four */
    for (int i = 0; i < TERN_PLANNER_LAST - 1; i++) {
        tern_planner_note(&planner, TERN_PLANNER_UPLOAD, 4, 1000);
    }
    assert_true(tern_planner_worst(&planner, TERN_PLANNER_UPLOAD) == 20);
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, 4, 1000);
    assert_true(tern_planner_worst(&planner, TERN_PLANNER_UPLOAD) == 4);
    /* what is no time */
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, NAN, 1);
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, INFINITY, 1);
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, -1, 1);
    assert_true(tern_planner_worst(&planner, TERN_PLANNER_UPLOAD) == 4);
    tern_planner_hear(&planner, 500); /* of rank 0 */
    assert_true(tern_planner_need_seconds(&planner) == 500);
}

static void test_short(void **state)
{
    (void)state;
    struct tern_planner planner = {0};
    char text[TERN_PLANNER_TEXT_BYTES];
    struct tern_planner_case what = {
        .source = "azure", .given_seconds = 30, .state_bytes = (int64_t)3 << 30};
    assert_false(tern_planner_is_short(&planner, &what, text)); /* nothing is known */
    what.has_remote = true;
    assert_false(tern_planner_is_short(&planner, &what, text));
    what.remote_rate = 100e6; /* 3 GiB take 32 s */
    assert_true(tern_planner_is_short(&planner, &what, text));
    assert_contains(text, "'azure' leaves 30 s");
    assert_contains(text, "3.0 GiB in 32.2 s");
    assert_contains(text, "bucket");
    what.given_seconds = 120;
    assert_false(tern_planner_is_short(&planner, &what, text));
    /* what was measured counts, and its bytes rather than those of the state */
    tern_planner_note(&planner, TERN_PLANNER_COMMIT, 2, 50000000);
    what.given_seconds = 30;
    assert_false(tern_planner_is_short(&planner, &what, text));
    tern_planner_note(&planner, TERN_PLANNER_UPLOAD, 25, 50000000);
    assert_true(tern_planner_is_short(&planner, &what, text));
    what.has_remote = false;
    assert_false(tern_planner_is_short(&planner, &what, text));
    tern_planner_note(&planner, TERN_PLANNER_STEP, 14, 0);
    assert_true(tern_planner_is_short(&planner, &what, text));
    assert_contains(text, "two steps of 14.00 s");
    assert_contains(text, "on disk");
}

static void write_file(const char *folder, const char *text)
{
    char path[TERN_PATH_BYTES];
    expect_ok(tern_path_join(path, folder, "planner.json"));
    expect_ok(tern_file_replace(path, text, strlen(text)));
}

static void test_file(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    struct tern_planner planner = {0};
    struct tern_planner again = {0};
    make_folder(folder);
    expect_ok(tern_path_join(path, folder, "planner.json"));
    tern_planner_load(&planner, folder); /* none yet */
    expect_ok(tern_planner_keep(&planner, folder));
    assert_false(tern_file_exists(path)); /* nothing to keep */
    tern_planner_note(&planner, TERN_PLANNER_COMMIT, 3, 12345);
    tern_planner_note(&planner, TERN_PLANNER_STEP, 0.5, 0);
    expect_ok(tern_planner_keep(&planner, folder));
    tern_planner_load(&again, folder);
    assert_true(tern_planner_worst(&again, TERN_PLANNER_COMMIT) == 3);
    assert_true(tern_planner_worst(&again, TERN_PLANNER_STEP) == 0.5);
    assert_true(tern_planner_worst(&again, TERN_PLANNER_UPLOAD) == 0);
    assert_int_equal(again.series[TERN_PLANNER_COMMIT].bytes[0], 12345);
    /* little changes are not worth a write */
    expect_ok(tern_file_remove(path));
    tern_planner_note(&planner, TERN_PLANNER_COMMIT, 3.5, 12345);
    expect_ok(tern_planner_keep(&planner, folder));
    assert_false(tern_file_exists(path));
    tern_planner_note(&planner, TERN_PLANNER_COMMIT, 6, 12345);
    expect_ok(tern_planner_keep(&planner, folder));
    assert_true(tern_file_exists(path));
    static const char *const bad[] = {
        "",
        "[]",
        "{\"commit\":3}",
        "{\"commit\":{\"seconds\":\"3\",\"bytes\":1}}",
        "{\"commit\":{\"seconds\":-3,\"bytes\":1}}",
        "{\"commit\":{\"seconds\":1e99,\"bytes\":1}}",
        "{\"commit\":{\"seconds\":3,\"bytes\":-1}}",
        "{\"commit\":{\"seconds\":3",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tern_planner other = {0};
        write_file(folder, bad[i]);
        tern_planner_load(&other, folder);
        assert_true(tern_planner_worst(&other, TERN_PLANNER_COMMIT) == 0);
    }
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_need), CHECKED(test_short), CHECKED(test_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
