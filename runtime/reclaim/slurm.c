/* slurm.c - the end of a Slurm allocation: SLURM_JOB_END_TIME where it is set, and what scontrol
 * says, asked again each minute: an administrator may move it.
 *
 * Preemption and requeue reach the ranks as signals (notice.h). */
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/dates.h"
#include "runtime/reclaim/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    OUTPUT_BYTES = 16 << 10,
    PERIOD_SECONDS = 60
};

static const double g_limit_seconds = 5; /* for one answer of scontrol */

struct slurm {
    char job[24];
    double end;         /* unix seconds; 0: no end is known */
    bool is_speechless; /* scontrol cannot be run here */
};

extern char **environ;

/* Seconds since 1970; false when it is no such number. */
static bool take_seconds(const char *text, double *out)
{
    int64_t seconds;
    if (text == NULL || !tern_text_to_i64(text, &seconds) || seconds <= 0) {
        return false;
    }
    *out = (double)seconds;
    return true;
}

static tern_status open_slurm(struct tern_metadata *metadata, void **out)
{
    const char *job = getenv("SLURM_JOB_ID");
    int64_t number;
    (void)metadata;
    if (job == NULL || strlen(job) >= sizeof((struct slurm *)0)->job ||
        !tern_text_to_i64(job, &number) || number <= 0) {
        return tern_fail(TERN_ERR_CONFIG,
                         "reclaim.notices: slurm: found SLURM_JOB_ID '%.40s', expected the number "
                         "of the Slurm job that this is",
                         job != NULL ? job : "");
    }
    struct slurm *slurm = tern_alloc_zero("reclaim", 1, sizeof *slurm);
    if (slurm == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a source of notices");
    }
    snprintf(slurm->job, sizeof slurm->job, "%lld", (long long)number);
    (void)take_seconds(getenv("SLURM_JOB_END_TIME"), &slurm->end);
    *out = slurm;
    return TERN_OK;
}

static void close_slurm(void *self)
{
    tern_free(self);
}

/* Starts `scontrol show job -o JOB` with its output in a pipe and times as seconds since 1970. */
static bool start_scontrol(const struct slurm *slurm, pid_t *pid_out, int *fd_out)
{
    int ends[2];
    char job[sizeof slurm->job];
    char *const words[] = {"scontrol", "show", "job", "-o", job, NULL};
    char *variables[512];
    size_t count = 0;
    posix_spawn_file_actions_t actions;
    memcpy(job, slurm->job, sizeof job);
    for (char **entry = environ; *entry != NULL && count + 2 < 512; entry++) {
        if (strncmp(*entry, "SLURM_TIME_FORMAT=", 18) != 0) {
            variables[count++] = *entry;
        }
    }
    variables[count++] = "SLURM_TIME_FORMAT=%s";
    variables[count] = NULL;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(pid_out, words[0], &actions, NULL, words, variables);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        return false;
    }
    *fd_out = ends[0];
    return true;
}

/* What it writes within the limit, NUL-terminated; the process is gone afterwards. */
static bool read_scontrol(pid_t pid, int fd, char output[OUTPUT_BYTES])
{
    double until = tern_clock_seconds() + g_limit_seconds;
    size_t used = 0;
    bool is_whole = false;
    while (!is_whole && used + 1 < OUTPUT_BYTES) {
        double left = until - tern_clock_seconds();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) <= 0) {
            break;
        }
        ssize_t got = read(fd, output + used, OUTPUT_BYTES - 1 - used);
        used += got > 0 ? (size_t)got : 0;
        is_whole = got <= 0 && errno != EINTR;
    }
    output[used] = '\0';
    close(fd);
    if (!is_whole) {
        kill(pid, SIGKILL);
    }
    int result;
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR) {
    }
    return is_whole;
}

/* " EndTime=1700000000 " of one job's line; 0 when it has no end. False when there is no such
 * field. */
static bool take_end(const char *line, double *end_out)
{
    char value[40];
    const char *field = strstr(line, " EndTime=");
    if (field == NULL || sscanf(field, " EndTime=%39[^ \n]", value) != 1) {
        return false;
    }
    if (!take_seconds(value, end_out)) {
        *end_out = 0; /* Unknown, None */
    }
    return true;
}

/* Without scontrol the variable counts. */
static tern_status refresh_end(struct slurm *slurm)
{
    char output[OUTPUT_BYTES];
    pid_t pid;
    int fd;
    if (slurm->is_speechless) {
        return TERN_OK;
    }
    if (!start_scontrol(slurm, &pid, &fd)) {
        slurm->is_speechless = true;
        return slurm->end > 0 ? TERN_OK
                              : tern_fail(TERN_ERR_IO, "scontrol cannot be run, and "
                                                       "SLURM_JOB_END_TIME is not set");
    }
    bool is_whole = read_scontrol(pid, fd, output);
    if (!is_whole || !take_end(output, &slurm->end)) {
        return slurm->end > 0
                   ? TERN_OK
                   : tern_fail(TERN_ERR_IO, "'scontrol show job %s' does not say EndTime",
                               slurm->job);
    }
    return TERN_OK;
}

static tern_status poll_slurm(void *self, double wait_seconds, struct tern_standing *out)
{
    struct slurm *slurm = self;
    char id[40];
    char text[TERN_NOTICE_TEXT_BYTES];
    (void)wait_seconds;
    tern_status status = refresh_end(slurm);
    if (slurm->end > 0) {
        snprintf(id, sizeof id, "%s-%.0f", slurm->job, slurm->end);
        snprintf(text, sizeof text, "job %s ends at %.0f (unix time)", slurm->job, slurm->end);
        tern_standing_add(out, TERN_NOTICE_SLURM_END, tern_date_to_clock(slurm->end), id, text);
        status = TERN_OK;
    }
    return status;
}

const struct tern_source_ops tern_source_slurm = {
    .name = "slurm",
    .period_seconds = PERIOD_SECONDS,
    .is_of_job = true,
    .open = open_slurm,
    .close = close_slurm,
    .poll = poll_slurm,
};
