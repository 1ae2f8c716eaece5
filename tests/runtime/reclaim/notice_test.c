/* notice_test.c - signals and the stop file become notices; a second SIGINT means it. */
#include "runtime/reclaim/notice.h"
#include "tests/runtime/fixture.h"

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
    const struct CMUnitTest tests[] = {CHECKED(test_signals), CHECKED(test_file),
                                       CHECKED(test_second_interrupt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
