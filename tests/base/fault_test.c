/* fault_test.c - TERN_FAULT is read or refused in words, and acts on the pass and rank that it
 * names. */
#include "runtime/base/fault.h"
#include "tests/base/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_points_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < TERN_FAULT_POINT_COUNT; i++) {
        assert_non_null(tern_fault_point_name((enum tern_fault_point)i));
        assert_true(strlen(tern_fault_point_help((enum tern_fault_point)i)) > 5);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(tern_fault_point_name((enum tern_fault_point)i),
                                    tern_fault_point_name((enum tern_fault_point)j));
        }
    }
}

#if TERN_FAULTS

static void test_bad_values(void **state)
{
    (void)state;
    const struct {
        const char *value, *expected;
    } rows[] = {
        {"file.wirte:eio", "unknown point 'file.wirte', nearest is 'file.write'"},
        {"file.write", "has no action, expected point[@n][#rank]:action"},
        {"file.write:explode", "unknown action 'explode', expected kill"},
        {"file.write@x:eio", "'x' is not a number"},
        {"file.write#-2:eio", "'-2' is not a number"},
        {"file.write:delay", "action 'delay' needs =SECONDS"},
        {"file.write:delay=soon", "action 'delay' needs =SECONDS"},
        {"file.write:eio=3", "action 'eio' takes no value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("TERN_FAULT", rows[i].value, 1);
        assert_int_equal(tern_fault_init(), TERN_ERR_USAGE);
        assert_contains(tern_detail(), rows[i].expected);
        assert_contains(tern_detail(), "environment TERN_FAULT");
    }
    char long_value[1024];
    memset(long_value, 'a', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    setenv("TERN_FAULT", long_value, 1);
    assert_int_equal(tern_fault_init(), TERN_ERR_USAGE);
}

static void test_acts_on_its_pass_and_rank(void **state)
{
    (void)state;
    setenv("TERN_FAULT", "file.write@3#1:enospc,gradient:nan", 1);
    assert_int_equal(tern_fault_init(), TERN_OK);
    tern_fault_set_rank(0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tern_fault_pass(TERN_FAULT_FILE_WRITE), TERN_FAULT_NONE);
    }
    tern_fault_set_rank(1);
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(tern_fault_pass(TERN_FAULT_FILE_WRITE),
                         i == 3 ? TERN_FAULT_ENOSPC : TERN_FAULT_NONE);
    }
    assert_int_equal(tern_fault_pass(TERN_FAULT_GRADIENT), TERN_FAULT_NAN);
    assert_int_equal(tern_fault_pass(TERN_FAULT_GRADIENT), TERN_FAULT_NONE);
    assert_int_equal(tern_fault_pass(TERN_FAULT_FILE_OPEN), TERN_FAULT_NONE);
}

static int outcome_of(const char *fault)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TERN_FAULT", fault, 1);
        if (tern_fault_init() != TERN_OK) {
            _exit(9);
        }
        (void)tern_fault_pass(TERN_FAULT_STEP_END);
        _exit(0);
    }
    int code;
    assert_int_equal(waitpid(child, &code, WUNTRACED), child);
    if (WIFSTOPPED(code)) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return code;
}

static void test_ends_the_process(void **state)
{
    (void)state;
    int killed = outcome_of("step.end:kill");
    assert_true(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
    int stopped = outcome_of("step.end:stop");
    assert_true(WIFSTOPPED(stopped));
    int ended = outcome_of("step.end:exit");
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == TERN_EXIT_FAILED);
    int later = outcome_of("step.end@2:kill");
    assert_true(WIFEXITED(later) && WEXITSTATUS(later) == 0);
}

#else

static void test_build_has_none(void **state)
{
    (void)state;
    setenv("TERN_FAULT", "step.end:kill", 1);
    assert_int_equal(tern_fault_init(), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "no fault points");
    assert_int_equal(tern_fault_pass(TERN_FAULT_STEP_END), TERN_FAULT_NONE);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_points_are_named),
#if TERN_FAULTS
        CHECKED(test_bad_values),
        CHECKED(test_acts_on_its_pass_and_rank),
        CHECKED(test_ends_the_process),
#else
        CHECKED(test_build_has_none),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
