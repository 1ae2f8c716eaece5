/* supervise.c - gather hosts, start, watch, judge; and again. */
#include "runtime/supervise/supervise.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/notice.h"
#include "runtime/supervise/process.h"
#include "runtime/supervise/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    CANNOT_START = 126 /* as a shell says it */
};
static const double g_errand_seconds = 10;
static const double g_delay_seconds_max = 60;
static const double g_leaves_seconds =
    600; /* the longest notice that a cloud gives of a spot machine is five minutes */

bool tern_supervise_is_asked(void)
{
    return tern_notice_poll() != TERN_NOTICE_NONE;
}

void tern_supervise_sleep(double seconds)
{
    double until = tern_clock_seconds() + seconds;
    while (!tern_supervise_is_asked() && tern_clock_seconds() < until) {
        tern_clock_sleep_ns(50000000);
    }
}

void tern_supervise_note(const struct tern_supervisor *supervisor)
{
    if (tern_journal_write(&supervisor->journal, &supervisor->hosts) != TERN_OK) {
        tern_log_warn("%s", tern_detail());
    }
}

/* ---- opening ---- */

/* What mpirun itself reaches hosts with, unless --shell says otherwise. */
static tern_status find_shell(struct tern_supervisor *supervisor)
{
    const struct tern_launch_command *command = &supervisor->command;
    const char *agent = command->shell != NULL ? command->shell : "ssh";
    bool is_ssh = strcmp(agent, "ssh") == 0;
    const char *given = supervisor->options->shell;
    int length = given != NULL
                     ? snprintf(supervisor->shell, sizeof supervisor->shell, "%s", given)
                     : snprintf(supervisor->shell, sizeof supervisor->shell, "%s%s %s", agent,
                                is_ssh ? " -n -o BatchMode=yes -o ConnectTimeout=5" : "",
                                command->shell_args != NULL ? command->shell_args : "");
    if (length >= (int)sizeof supervisor->shell ||
        strspn(supervisor->shell, " \t") == (size_t)length) {
        return tern_fail(TERN_ERR_USAGE, "--shell: found %d bytes, expected a command below %d",
                         length, TERN_SHELL_BYTES);
    }
    supervisor->reach.shell = supervisor->shell;
    supervisor->reach.seconds_max = g_errand_seconds;
    return TERN_OK;
}

static tern_status open_run_dir(struct tern_supervisor *supervisor)
{
    char path[TERN_PATH_BYTES];
    const char *run_dir = supervisor->options->run_dir != NULL ? supervisor->options->run_dir
                                                               : supervisor->command.run_dir;
    if (run_dir == NULL || run_dir[0] == '\0') {
        return tern_fail(TERN_ERR_USAGE, "the command has no 'tern train' or 'tern finetune' that "
                                         "says where the run is: give --run-dir DIR before '--'");
    }
    TERN_RETURN_IF_ERR(tern_file_make_folder(run_dir));
    TERN_RETURN_IF_ERR(tern_path_absolute(supervisor->run_dir, run_dir));
    TERN_RETURN_IF_ERR(tern_path_join(path, supervisor->run_dir, "supervise.lock"));
    tern_status status = tern_lock_take(path, &supervisor->lock);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "the run has a supervisor");
    }
    supervisor->is_locked = true;
    TERN_RETURN_IF_ERR(tern_journal_open(supervisor->run_dir, &supervisor->journal));
    memcpy(supervisor->reach.tag, supervisor->journal.tag, TERN_TAG_BYTES);
    supervisor->best_step = tern_run_progress(supervisor->run_dir);
    return TERN_OK;
}

static tern_status open_all(struct tern_supervisor *supervisor)
{
    const struct tern_supervise_options *options = supervisor->options;
    TERN_RETURN_IF_ERR(
        tern_launch_command_read(options->argc, options->argv, &supervisor->command));
    if (options->hostfile != NULL && supervisor->command.is_host_list) {
        return tern_fail(TERN_ERR_USAGE, "found --hostfile and mpirun's --host, expected one list "
                                         "of hosts");
    }
    if (options->hostfile != NULL && supervisor->command.launcher != TERN_LAUNCHER_MPIRUN) {
        return tern_fail(TERN_ERR_USAGE,
                         "--hostfile: found a command without mpirun, which is what "
                         "would read it");
    }
    TERN_RETURN_IF_ERR(find_shell(supervisor));
    TERN_RETURN_IF_ERR(open_run_dir(supervisor));
    return tern_notice_watch_signals();
}

/* ---- one launch ---- */

/* Hosts that are up take part from now on. Writes their hostfile, or their list, into `text`. */
static tern_status choose_hosts(struct tern_supervisor *supervisor,
                                struct tern_launch_shape *shape,
                                struct tern_text *text,
                                char path[TERN_PATH_BYTES])
{
    struct tern_hosts *hosts = &supervisor->hosts;
    if (hosts->count == 0) {
        return TERN_OK;
    }
    int64_t wanted = supervisor->command.ranks;
    shape->ranks = tern_hosts_ranks(hosts, wanted);
    for (int i = 0; i < hosts->count; i++) {
        hosts->items[i].is_used = hosts->items[i].is_up;
        hosts->items[i].misses = hosts->items[i].answers = 0;
    }
    TERN_RETURN_IF_ERR(tern_hosts_write(hosts, wanted, supervisor->command.is_host_list, text));
    shape->hosts = text->data;
    if (supervisor->command.is_host_list) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_path_join(path, supervisor->run_dir, "supervise.hosts"));
    shape->hosts = path;
    return tern_file_replace(path, text->data, text->length);
}

static tern_status start(struct tern_supervisor *supervisor, pid_t *pid_out)
{
    struct tern_launch_shape shape = {0};
    struct tern_text text;
    char path[TERN_PATH_BYTES];
    const char **argv = NULL;
    tern_text_init(&text);
    tern_status status = TERN_OK;
    TERN_GOTO_IF_ERR(status, tern_journal_begin(&supervisor->journal, &supervisor->launch), out);
    TERN_GOTO_IF_ERR(status, choose_hosts(supervisor, &shape, &text, path), out);
    supervisor->launch->ranks = shape.ranks > 0 ? shape.ranks : supervisor->command.ranks;
    supervisor->launch->hosts = tern_hosts_up(&supervisor->hosts);
    supervisor->journal.state = "running";
    tern_supervise_note(supervisor);
    TERN_GOTO_IF_ERR(status, tern_launch_command_write(&supervisor->command, &shape, &argv), out);
    const struct tern_process_options options = {.argv = argv,
                                                 .name = "TERN_LAUNCH_ID",
                                                 .value = supervisor->launch->id,
                                                 .death_signal = SIGUSR2};
    TERN_GOTO_IF_ERR(status, tern_process_start(&options, pid_out), out);
    if (supervisor->hosts.count > 0) {
        tern_log_info("launch %s: %lld ranks on %d of %d hosts", supervisor->launch->id,
                      (long long)supervisor->launch->ranks, supervisor->launch->hosts,
                      supervisor->hosts.count);
    } else {
        tern_log_info("launch %s", supervisor->launch->id);
    }
out:
    tern_free(argv);
    tern_text_fini(&text);
    return status;
}

/* A host of which a cloud says that it takes it away is left out until it was away, or stays for some minutes all the same.
 * True when the supervisor's own machine is meant, or all are. */
static bool note_leaving(struct tern_supervisor *supervisor, const char *name)
{
    if (name[0] == '\0') {
        return false;
    }
    struct tern_host *host = tern_hosts_find(&supervisor->hosts, name);
    if (strcmp(name, "*") == 0 || tern_host_is_here(name) || (host != NULL && host->is_local)) {
        return true;
    }
    if (host == NULL) {
        tern_log_warn("host '%s' is being taken away; the list of hosts has no such name", name);
        return false;
    }
    tern_log_info("host %s is being taken away: it is left out until it was", host->name);
    host->leaves_until = tern_clock_seconds() + g_leaves_seconds;
    return false;
}

/* Files the end of a launch; what it means. */
static void judge(struct tern_supervisor *supervisor,
                  const struct tern_watch_end *end,
                  struct tern_restart_facts *facts)
{
    struct tern_journal_launch *launch = supervisor->launch;
    struct tern_launch_record record;
    tern_launch_record_read(supervisor->run_dir, launch->id, &record);
    const struct tern_ending ending = {.state = record.state, .code = end->code};
    int64_t step = tern_run_progress(supervisor->run_dir);
    step = record.step > step ? record.step : step;
    *facts = (struct tern_restart_facts){.verdict = tern_ending_judge(&ending),
                                         .is_asked = tern_supervise_is_asked(),
                                         .is_own = end->is_own,
                                         .came_ahead = step > supervisor->best_step};
    supervisor->best_step = step > supervisor->best_step ? step : supervisor->best_step;
    facts->is_leaving = note_leaving(supervisor, record.leaving);
    launch->code = end->code;
    launch->state = record.state;
    launch->verdict = facts->verdict;
    launch->step = step;
    tern_clock_rfc3339(launch->ended);
    const char *said = record.state > TERN_LAUNCH_RUNNING ? record.reason : "";
    const char *between = end->reason[0] != '\0' && said[0] != '\0' ? "; " : "";
    snprintf(launch->reason, sizeof launch->reason, "%.250s%s%.250s", end->reason, between, said);
    tern_log_info("launch %s: %s at step %lld (status %d, record '%s')%s%s", launch->id,
                  tern_verdict_name(launch->verdict), (long long)step, end->code,
                  tern_launch_state_name(record.state), launch->reason[0] != '\0' ? ": " : "",
                  launch->reason);
}

static tern_status run_launch(struct tern_supervisor *supervisor, struct tern_restart_facts *facts)
{
    pid_t pid;
    struct tern_watch_end end;
    tern_status status = start(supervisor, &pid);
    if (status == TERN_OK) {
        tern_supervise_watch(supervisor, pid, &end);
    } else if (status == TERN_ERR_IO || status == TERN_ERR_NO_SPACE || status == TERN_ERR_MEMORY) {
        /* A full disk, too many processes: a launch that did not start, like any other. */
        end = (struct tern_watch_end){.code = CANNOT_START};
        snprintf(end.reason, sizeof end.reason, "%.500s", tern_detail());
    } else {
        return status;
    }
    judge(supervisor, &end, facts);
    for (int i = 0; i < supervisor->hosts.count; i++) {
        supervisor->hosts.items[i].is_used = false;
    }
    return TERN_OK;
}

/* ---- the whole ---- */

static tern_status finish(struct tern_supervisor *supervisor, int code, const char *reason)
{
    if (supervisor->launch != NULL && supervisor->launch->verdict != TERN_VERDICT_FINISHED &&
        supervisor->launch->verdict != TERN_VERDICT_RECLAIMED) {
        tern_supervise_clear(supervisor);
    }
    supervisor->journal.state = "ended";
    supervisor->journal.exit_code = code;
    tern_supervise_note(supervisor);
    if (code == TERN_EXIT_OK || code == TERN_EXIT_RECLAIMED || code == TERN_EXIT_PEER_LOST) {
        tern_log_info("%s, at step %lld after %lld launches (exit code %d)", reason,
                      (long long)supervisor->best_step, (long long)supervisor->journal.launches,
                      code);
        return TERN_OK;
    }
    const char *why = supervisor->launch != NULL ? supervisor->launch->reason : "";
    return tern_fail(code == TERN_EXIT_USAGE ? TERN_ERR_USAGE : TERN_ERR_STATE, "%s%s%s", reason,
                     why[0] != '\0' ? "; the last launch said: " : "", why);
}

/* Hosts that never come are no fault of the run: start it again when they are there. */
static tern_status end_without_hosts(struct tern_supervisor *supervisor,
                                     tern_status status,
                                     int last_code,
                                     int *exit_code)
{
    char reason[TERN_LAUNCH_REASON_BYTES];
    if (status != TERN_ERR_TIMEOUT && status != TERN_ERR_CANCELLED) {
        return status;
    }
    snprintf(reason, sizeof reason, "%s", tern_detail());
    *exit_code = last_code;
    return finish(supervisor, last_code, reason);
}

static tern_status run(struct tern_supervisor *supervisor, int *exit_code)
{
    const struct tern_supervise_options *options = supervisor->options;
    const struct tern_restart_limits limits = {.restarts = options->restarts_max,
                                               .stalls = options->stalls_max,
                                               .ends_reclaimed = options->ends_reclaimed,
                                               .delay_seconds_max = g_delay_seconds_max};
    int last_code = TERN_EXIT_PEER_LOST;
    TERN_RETURN_IF_ERR(open_all(supervisor));
    for (;;) {
        struct tern_restart_facts facts;
        tern_status status = tern_supervise_gather(supervisor);
        if (status != TERN_OK) {
            return end_without_hosts(supervisor, status, last_code, exit_code);
        }
        TERN_RETURN_IF_ERR(run_launch(supervisor, &facts));
        last_code = tern_verdict_exit_code(facts.verdict);
        struct tern_restart next = tern_restart_decide(&limits, &facts, &supervisor->journal.count);
        if (!next.starts) {
            *exit_code = next.exit_code;
            return finish(supervisor, next.exit_code, next.reason);
        }
        supervisor->journal.state = "starting";
        tern_supervise_note(supervisor);
        if (next.delay_seconds > 0) {
            tern_log_info("starting again in %g s: %lld launches in a row came no further",
                          next.delay_seconds, (long long)supervisor->journal.count.stalls);
            tern_supervise_sleep(next.delay_seconds);
        }
    }
}

tern_status tern_supervise_run(const struct tern_supervise_options *options, int *exit_code)
{
    struct tern_supervisor *supervisor = tern_alloc_zero("supervisor", 1, sizeof *supervisor);
    if (supervisor == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a supervisor");
    }
    supervisor->options = options;
    supervisor->reach.launch_id = "";
    tern_status status = run(supervisor, exit_code);
    if (supervisor->is_locked) {
        tern_lock_drop(&supervisor->lock);
    }
    tern_hosts_fini(&supervisor->hosts);
    tern_free(supervisor);
    return status;
}
