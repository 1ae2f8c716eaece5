/* process.c - fork, exec, two pipes read together. */
#include "tests/launch/process.h"

#include "tests/base/check.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SECONDS_MAX = 60
};

static void become(const char *program,
                   const char *const *args,
                   const char *env,
                   const char *folder)
{
    char *argv[ARGS_MAX + 2] = {(char *)(uintptr_t)program};
    for (int i = 0; i < ARGS_MAX && args[i] != NULL; i++) {
        argv[i + 1] = (char *)(uintptr_t)args[i]; /* execv does not write to them */
    }
    const char *const names[] = {"TERN_BACKEND", "TERN_THREADS",    "TERN_CPU_ISA",   "TERN_LOG",
                                 "TERN_FAULT",   "TERN_MPI_PLUGIN", "TERN_MEM_FREEZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    if (env != NULL) {
        putenv((char *)(uintptr_t)env);
    }
    if (folder != NULL && chdir(folder) != 0) {
        _exit(99);
    }
    alarm(SECONDS_MAX);
    execvp(program, argv);
    _exit(98);
}

/* Reads what is there; false at the end. */
static bool drain(int fd, char *text, size_t *used)
{
    char rest[4096];
    size_t room = OUTPUT_BYTES - 1 - *used;
    ssize_t got = read(fd, room > 0 ? text + *used : rest, room > 0 ? room : sizeof rest);
    if (got <= 0) {
        return false;
    }
    *used += room > 0 ? (size_t)got : 0;
    text[*used] = '\0';
    return true;
}

void run_program(const char *program,
                 const char *const *args,
                 const char *env,
                 const char *folder,
                 struct outcome *out)
{
    int out_ends[2];
    int err_ends[2];
    memset(out, 0, sizeof *out);
    assert_int_equal(pipe2(out_ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_ends, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        dup2(out_ends[1], STDOUT_FILENO);
        dup2(err_ends[1], STDERR_FILENO);
        become(program, args, env, folder);
    }
    close(out_ends[1]);
    close(err_ends[1]);
    struct pollfd ends[2] = {{.fd = out_ends[0], .events = POLLIN},
                             {.fd = err_ends[0], .events = POLLIN}};
    size_t used[2] = {0};
    char *texts[2] = {out->out, out->err};
    while ((ends[0].fd >= 0 || ends[1].fd >= 0) && poll(ends, 2, -1) > 0) {
        for (int i = 0; i < 2; i++) {
            if (ends[i].revents != 0 && !drain(ends[i].fd, texts[i], &used[i])) {
                close(ends[i].fd);
                ends[i].fd = -1;
            }
        }
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    out->exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : 1000 + WTERMSIG(code);
}

const char *last_line(const char *text)
{
    static char line[4096];
    size_t end = strlen(text);
    while (end > 0 && text[end - 1] == '\n') {
        end--;
    }
    size_t start = end;
    while (start > 0 && text[start - 1] != '\n') {
        start--;
    }
    snprintf(line, sizeof line, "%.*s", (int)(end - start), text + start);
    return line;
}
