/* notice_test.c - signals, files and what the watcher posts become notices; a second SIGINT means
 * it. */
#include "runtime/base/clock.h"
#include "runtime/reclaim/notice.h"
#include "tests/runtime/fixture.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_signals(void **state)
{
    (void)state;
    expect_ok(tern_notice_watch_signals());
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
    raise(SIGINT);
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SIGINT);
    raise(SIGTERM);
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SIGTERM);
    raise(SIGUSR2); /* the more urgent one stays */
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SIGTERM);
    expect_ok(tern_notice_watch_signals()); /* anew */
    raise(SIGUSR2);
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SIGUSR2);
    assert_string_equal(tern_notice_name(tern_notice_poll()), "signal SIGUSR2");
    assert_string_equal(tern_notice_name((enum tern_notice)99), "unknown");
    expect_ok(tern_notice_watch_signals());
    tern_notice_ignore();
    raise(SIGTERM);
    raise(SIGUSR2);
    raise(SIGINT);
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
}

static void test_file(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    make_folder(folder);
    expect_ok(tern_path_join(path, folder, "stop"));
    expect_ok(tern_notice_watch_signals());
    expect_ok(tern_notice_watch_file(folder));
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
    expect_ok(tern_file_replace(path, "", 0));
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_FILE);
    assert_string_equal(tern_notice_name(TERN_NOTICE_FILE), "stop file");
    raise(SIGINT); /* a signal says more */
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SIGINT);
    expect_ok(tern_notice_watch_signals());
    expect_ok(tern_notice_clear_file(folder));
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
    expect_ok(tern_notice_clear_file(folder)); /* none is fine */
    tern_notice_ignore();
    remove_folder(folder);
}

static int64_t g_now_ns;

static int64_t fake_now(void)
{
    return g_now_ns;
}

static void assert_left(double deadline_seconds, double expected)
{
    double left = tern_notice_seconds_left(deadline_seconds);
    if (fabs(left - expected) > 1e-6) {
        fail_msg("found %g s left, expected %g", left, expected);
    }
}

/* The stronger of two counts, the earlier deadline does. */
static void test_posts(void **state)
{
    (void)state;
    tern_clock_fake(fake_now);
    g_now_ns = 1000000000000; /* 1000 s */
    tern_notice_reset();
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
    assert_true(isinf(tern_notice_seconds_left(25)));
    tern_notice_post(&(struct tern_notice_info){.kind = TERN_NOTICE_SLURM_END, .deadline = 1300});
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_SLURM_END);
    assert_left(25, 300);
    tern_notice_post(
        &(struct tern_notice_info){.kind = TERN_NOTICE_AZURE_PREEMPT, .deadline = 1030});
    tern_notice_post(&(struct tern_notice_info){.kind = TERN_NOTICE_SLURM_END, .deadline = 1200});
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_AZURE_PREEMPT);
    assert_left(25, 30);
    g_now_ns += 20000000000;
    assert_left(25, 10);
    expect_ok(tern_notice_watch_signals());
    raise(SIGUSR2); /* says less, and leaves more time */
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_AZURE_PREEMPT);
    assert_left(25, 10);
    assert_left(5, 5);
    g_now_ns += 100000000000;
    assert_left(25, 0);
    tern_notice_reset();
    tern_notice_post(&(struct tern_notice_info){.kind = TERN_NOTICE_AWS_SCALING, .deadline = -1});
    assert_left(25, 25); /* nobody says when */
    tern_notice_ignore();
    tern_notice_reset();
    tern_clock_fake(NULL);
}

static void test_save(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES];
    char path[TERN_PATH_BYTES];
    make_folder(folder);
    tern_notice_reset();
    assert_false(tern_notice_is_save_asked());
    tern_notice_ask_save();
    assert_true(tern_notice_is_save_asked());
    assert_int_equal(tern_notice_poll(), TERN_NOTICE_NONE);
    tern_notice_clear_save();
    assert_false(tern_notice_is_save_asked());
    expect_ok(tern_notice_watch_file(folder));
    expect_ok(tern_path_join(path, folder, "save"));
    expect_ok(tern_file_replace(path, "", 0));
    assert_true(tern_notice_is_save_asked());
    tern_notice_clear_save();
    assert_false(tern_notice_is_save_asked());
    assert_false(tern_file_exists(path));
    expect_ok(tern_file_replace(path, "", 0));
    expect_ok(tern_notice_clear_file(folder)); /* an old one, when a run begins */
    assert_false(tern_notice_is_save_asked());
    tern_notice_reset();
    remove_folder(folder);
}

/* Every kind has a name of its own; advice never stops. */
static void test_kinds(void **state)
{
    (void)state;
    for (int i = TERN_NOTICE_NONE; i < TERN_NOTICE_COUNT; i++) {
        assert_non_null(tern_notice_name((enum tern_notice)i));
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(tern_notice_name((enum tern_notice)i),
                                    tern_notice_name((enum tern_notice)k));
        }
        bool is_advice = i == TERN_NOTICE_AWS_REBALANCE || i == TERN_NOTICE_AZURE_FREEZE ||
                         i == TERN_NOTICE_GCP_MIGRATE;
        assert_int_equal(tern_notice_is_advice((enum tern_notice)i), is_advice);
    }
}

/* Whether a child that gets SIGINT `times` times lives to its end. */
static void test_second_interrupt(void **state)
{
    (void)state;
    for (int times = 1; times <= 2; times++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (tern_notice_watch_signals() != TERN_OK) {
                _exit(9);
            }
            for (int i = 0; i < times; i++) {
                raise(SIGINT);
            }
            _exit(tern_notice_poll() == TERN_NOTICE_SIGINT ? 0 : 8);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        if (times == 1) {
            assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
        } else {
            assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGINT);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_signals), CHECKED(test_file), CHECKED(test_second_interrupt),
        CHECKED(test_posts),   CHECKED(test_save), CHECKED(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
