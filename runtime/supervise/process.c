/* process.c - fork, exec, waitpid. */
#include "runtime/supervise/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: never returns; an errno into `report` if the program cannot be started. */
static void become(const struct tern_process_options *options, pid_t parent, int report)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    dup2(nowhere, STDIN_FILENO);
    if (options->is_quiet) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    if (options->death_signal != 0) {
        prctl(PR_SET_PDEATHSIG, options->death_signal);
        if (getppid() != parent) { /* it died before that */
            _exit(127);
        }
    }
    if (options->name != NULL) {
        setenv(options->name, options->value, 1);
    }
    /* execvp does not write to them */
    execvp(options->argv[0], (char *const *)(uintptr_t)options->argv);
    int error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(127);
}

tern_status tern_process_start(const struct tern_process_options *options, pid_t *pid_out)
{
    int ends[2];
    int error = 0;
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot make a pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        become(options, parent, ends[1]);
    }
    int fork_error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tern_fail_errno(TERN_ERR_IO, fork_error, "cannot start '%s'", options->argv[0]);
    }
    ssize_t got;
    do {
        got = read(ends[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == (ssize_t)sizeof error) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return tern_fail_errno(TERN_ERR_IO, error, "cannot start '%s'", options->argv[0]);
    }
    *pid_out = pid;
    return TERN_OK;
}

bool tern_process_poll(pid_t pid, int *code_out)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) {
        return false;
    }
    *code_out = got < 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

void tern_process_signal(pid_t pid, int signal)
{
    kill(pid, signal);
}

void tern_process_kill(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
}
