/* spawn.c - processes, their output in files, their ends. */
#include "tests/comm/spawn.h"

#include "runtime/base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct folder {
    char path[256];
    char logs[320]; /* beside what the ranks use */
};

static void set_environment(const struct spawn_job *job, int rank)
{
    for (int i = 0; job->environment[i] != NULL; i++) {
        const char *entry = job->environment[i];
        int only = rank;
        if (entry[0] == '#') {
            only = atoi(entry + 1);
            entry = strchr(entry, ' ') + 1;
        }
        if (only == rank) {
            putenv((char *)entry);
        }
    }
}

static pid_t start(const struct spawn_job *job, const struct folder *folder, int rank)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that dies leaves nobody */
    if (getppid() != parent) {
        _exit(127);
    }
    char text[512];
    snprintf(text, sizeof text, "%s/%d", folder->logs, rank);
    int fd = open(text, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", job->ranks);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%s/rendezvous", folder->path);
    setenv("TERN_RENDEZVOUS", text, 1);
    setenv("TMPDIR", folder->path, 1);
    set_environment(job, rank);
    execl(job->program, job->program, job->check, (char *)NULL);
    _exit(127);
}

static void read_output(const struct folder *folder, int rank, struct spawn_rank *out)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%d", folder->logs, rank);
    FILE *file = fopen(path, "re");
    size_t n = file != NULL ? fread(out->output, 1, SPAWN_OUTPUT_BYTES - 1, file) : 0;
    out->output[n] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

/* Removes the files and the folder; returns how many there were. */
static int clear_folder(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        char file[600];
        if (entry->d_name[0] != '.') {
            snprintf(file, sizeof file, "%s/%.255s", path, entry->d_name);
            count += unlink(file) == 0;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    rmdir(path);
    return count;
}

/* Takes note of ends and stops; returns how many ranks neither ended nor stopped. */
static int look(const struct spawn_job *job, pid_t *pids, struct spawn_rank *ranks, double begin)
{
    int running = 0;
    for (int r = 0; r < job->ranks; r++) {
        int status = 0;
        if (pids[r] <= 0) {
            continue;
        }
        pid_t found = waitpid(pids[r], &status, WNOHANG | WUNTRACED);
        if (found == pids[r] && WIFSTOPPED(status)) {
            ranks[r].was_stopped = true;
        } else if (found == pids[r]) {
            ranks[r].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            ranks[r].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            ranks[r].seconds = tern_clock_seconds() - begin;
            pids[r] = 0;
            continue;
        }
        running += !ranks[r].was_stopped;
    }
    return running;
}

bool spawn_run(const struct spawn_job *job, struct spawn_rank *ranks_out, int *files_left_out)
{
    pid_t pids[SPAWN_RANKS_MAX];
    struct folder folder;
    const char *base = getenv("TMPDIR");
    snprintf(folder.path, sizeof folder.path, "%.200s/tern-spawn.XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(folder.path) == NULL) {
        abort();
    }
    snprintf(folder.logs, sizeof folder.logs, "%s.logs", folder.path);
    mkdir(folder.logs, 0700);
    memset(ranks_out, 0, (size_t)job->ranks * sizeof *ranks_out);
    double begin = tern_clock_seconds();
    for (int r = 0; r < job->ranks; r++) {
        ranks_out[r].exit_code = -1;
        pids[r] = start(job, &folder, r);
    }
    while (look(job, pids, ranks_out, begin) > 0 &&
           tern_clock_seconds() - begin < job->seconds_max) {
        tern_clock_sleep_ns(1000000);
    }
    bool all_ended = true;
    for (int r = 0; r < job->ranks; r++) {
        if (pids[r] > 0) {
            all_ended = all_ended && ranks_out[r].was_stopped;
            kill(pids[r], SIGKILL);
            waitpid(pids[r], NULL, 0);
        }
        read_output(&folder, r, &ranks_out[r]);
    }
    clear_folder(folder.logs);
    *files_left_out = clear_folder(folder.path);
    return all_ended;
}

void spawn_print(const struct spawn_job *job, const struct spawn_rank *ranks)
{
    for (int i = 0; job->environment[i] != NULL; i++) {
        fprintf(stderr, "%s ", job->environment[i]);
    }
    fprintf(stderr, "%s %s, %d ranks\n", job->program, job->check, job->ranks);
    for (int r = 0; r < job->ranks; r++) {
        fprintf(stderr, "--- rank %d: exit code %d, signal %d%s, %.2f s\n%s", r, ranks[r].exit_code,
                ranks[r].signal, ranks[r].was_stopped ? ", stopped" : "", ranks[r].seconds,
                ranks[r].output);
    }
}
