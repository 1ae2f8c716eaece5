/* mpi_death_test.c - under a real mpirun: one rank is killed, exits, stops, is late or gives up. All end,
 * with the right words. */
#include "runtime/base/clock.h"
#include "tests/comm/cmocka_all.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct result {
    int exit_code; /* -1: did not end in time */
    double seconds;
    char output[65536];
};

static pid_t start(const char *check, const char *fault, const char *limit, int *output_out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        setenv("TERN_FAULT", fault, 1);
        setenv("TERN_COMM_TIMEOUT", limit, 1);
        execl(TEST_MPIEXEC, TEST_MPIEXEC, "-n", "3", "--oversubscribe", "--bind-to", "none",
              TEST_RANKS, check, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *output_out = ends[0];
    return pid;
}

/* Reads until the ranks and mpirun closed their ends, at most 60 s. */
static struct result *run(const char *check, const char *fault, const char *limit)
{
    static struct result r;
    memset(&r, 0, sizeof r);
    int output;
    double begin = tern_clock_seconds();
    pid_t pid = start(check, fault, limit, &output);
    size_t used = 0;
    bool ended = false;
    while (!ended && tern_clock_seconds() - begin < 60) {
        struct pollfd fd = {.fd = output, .events = POLLIN};
        if (poll(&fd, 1, 100) > 0) {
            ssize_t n = read(output, r.output + used, sizeof r.output - 1 - used);
            ended = n == 0 || (n < 0 && errno != EINTR);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    r.seconds = tern_clock_seconds() - begin;
    if (!ended) {
        kill(-pid, SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    r.exit_code = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close(output);
    print_message("%s %s: exit code %d after %.1f s\n%s\n", check, fault, r.exit_code, r.seconds,
                  r.output);
    return &r;
}

/* mpirun sees it at once and ends the rest. */
static void test_killed(void **state)
{
    (void)state;
    struct result *r = run("failure", "comm.send@60#1:kill", "30");
    assert_non_null(strstr(r->output, "under way"));
    assert_true(r->exit_code > 0);
    assert_true(r->seconds < 30);
}

static void test_exits(void **state)
{
    (void)state;
    struct result *r = run("failure", "comm.send@60#1:exit", "30");
    assert_non_null(strstr(r->output, "under way"));
    assert_true(r->exit_code > 0);
    assert_true(r->seconds < 30);
}

/* Nobody but the time limit notices a rank that is stopped. */
static void test_stops(void **state)
{
    (void)state;
    struct result *r = run("failure", "comm.send@60#1:stop", "2");
    assert_non_null(strstr(r->output, "under way"));
    assert_non_null(strstr(r->output, "timeout: rank "));
    assert_non_null(strstr(r->output, "for rank 1 to "));
    assert_int_equal(r->exit_code, 34);
}

static void test_late(void **state)
{
    (void)state;
    struct result *r = run("late", "", "2");
    assert_non_null(strstr(r->output, "for rank 2 to "));
    assert_int_equal(r->exit_code, 34);
}

static void test_aborts(void **state)
{
    (void)state;
    struct result *r = run("abort", "", "30");
    const char *last = "tern: error: rank 2 gives up\n";
    size_t length = strlen(r->output);
    assert_true(length > strlen(last));
    assert_string_equal(r->output + length - strlen(last), last);
    assert_int_equal(r->exit_code, 7);
    assert_true(r->seconds < 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), cmocka_unit_test(test_exits),  cmocka_unit_test(test_stops),
        cmocka_unit_test(test_late),   cmocka_unit_test(test_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
