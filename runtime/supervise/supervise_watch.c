/* supervise_watch.c - one launch while it runs: signals passed on, hosts asked, hangs ended.
 *
 * A launch is asked to stop by SIGUSR2, which mpirun and srun forward within milliseconds, never by SIGTERM, which kills
 * ranks. The question is asked again each second: ranks that are still being started have not heard the first one. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/supervise/process.h"
#include "runtime/supervise/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_NS = 50000000,
    BACK_ANSWERS = 2 /* before a host is taken back */
};
/* mpirun ends its ranks in four steps of odls_base_sigkill_timeout, one second, and takes as long again at worst. */
static const double g_leave_seconds = 6;
static const double g_term_seconds = 2;

enum phase {
    RUNS,
    ASKED,   /* SIGUSR2 each second */
    LEAVING, /* its end is on record: the launcher has only to go */
    TOLD,    /* SIGTERM */
    KILLED
};

struct watch {
    struct tern_supervisor *supervisor;
    pid_t pid;
    enum phase phase;
    double since;     /* clock at which the phase began */
    double last_ask;  /* clock */
    double last_look; /* at record and log */
    double last_probe;
    double last_pulse;           /* when the log was last seen to grow */
    int64_t pulse, pulse_before; /* the log's bytes: now, before this launch */
    bool is_probing;
    struct tern_errands errands;
    struct tern_watch_end *end;
};

static void enter(struct watch *watch, enum phase phase)
{
    watch->phase = phase;
    watch->since = tern_clock_seconds();
    if (phase == TOLD) {
        tern_process_signal(watch->pid, SIGTERM);
        tern_process_signal(watch->pid, SIGCONT); /* one that is stopped hears nothing else */
    } else if (phase == KILLED) {
        tern_process_kill(watch->pid);
    }
}

/* Something is wrong with it: it is not asked for anything any more. */
static void end_it(struct watch *watch, enum phase phase, const char *reason)
{
    if (watch->end->reason[0] == '\0') {
        snprintf(watch->end->reason, sizeof watch->end->reason, "%s", reason);
        tern_log_warn("%s: ending launch %s", reason, watch->supervisor->launch->id);
    }
    enter(watch, phase);
}

static void ask(struct watch *watch)
{
    double now = tern_clock_seconds();
    if (now - watch->last_ask >= 1) {
        watch->last_ask = now;
        tern_process_signal(watch->pid, SIGUSR2);
    }
}

static bool has_end_on_record(const struct watch *watch)
{
    struct tern_launch_record record;
    tern_launch_record_read(watch->supervisor->run_dir, watch->supervisor->launch->id, &record);
    return record.state > TERN_LAUNCH_RUNNING;
}

/* ---- hosts ---- */

/* Those that take part: do they answer? Those that do not take part: are they back, and clean? */
static enum tern_errand_kind kind_of(const struct tern_host *host)
{
    return host->is_used || tern_host_is_leaving(host) ? TERN_ERRAND_PROBE : TERN_ERRAND_FENCE;
}

/* While the log grows, all hosts are there, whatever ssh says. */
static const struct tern_host *find_gone(const struct watch *watch)
{
    const struct tern_hosts *hosts = &watch->supervisor->hosts;
    for (int i = 0; i < hosts->count; i++) {
        const struct tern_host *host = &hosts->items[i];
        if (host->is_used && host->misses >= TERN_HOST_GONE_MISSES &&
            watch->last_pulse < host->missing_at) {
            return host;
        }
    }
    return NULL;
}

/* More ranks could take part than do. */
static bool may_grow(const struct watch *watch)
{
    const struct tern_supervisor *supervisor = watch->supervisor;
    bool has_more = false;
    for (int i = 0; i < supervisor->hosts.count; i++) {
        const struct tern_host *host = &supervisor->hosts.items[i];
        has_more = has_more || (!host->is_used && host->is_up && host->answers >= BACK_ANSWERS);
    }
    int64_t ranks = tern_hosts_ranks(&supervisor->hosts, supervisor->command.ranks);
    return has_more && (ranks == 0 || ranks > supervisor->launch->ranks);
}

static void look_at_hosts(struct watch *watch)
{
    struct tern_supervisor *supervisor = watch->supervisor;
    char reason[TERN_HOST_NAME_BYTES + 64];
    double now = tern_clock_seconds();
    if (supervisor->hosts.count == 0 || watch->phase != RUNS) {
        return;
    }
    if (!watch->is_probing && now - watch->last_probe >= supervisor->options->probe_seconds) {
        watch->last_probe = now;
        watch->is_probing = tern_errands_begin(&supervisor->reach, &supervisor->hosts, kind_of,
                                               &watch->errands) == TERN_OK;
    }
    if (!watch->is_probing || !tern_errands_poll(&watch->errands, &supervisor->hosts)) {
        return;
    }
    tern_errands_end(&watch->errands);
    watch->is_probing = false;
    const struct tern_host *gone = find_gone(watch);
    if (gone != NULL) {
        snprintf(reason, sizeof reason, "host %s does not answer and nothing goes on", gone->name);
        end_it(watch, TOLD, reason);
    } else if (watch->pulse != watch->pulse_before && may_grow(watch)) {
        snprintf(watch->end->reason, sizeof watch->end->reason, "more hosts can take part");
        tern_log_info("%s: asking launch %s for a checkpoint", watch->end->reason,
                      supervisor->launch->id);
        watch->end->is_own = true;
        enter(watch, ASKED);
    }
}

/* ---- time ---- */

static void look_at_run(struct watch *watch)
{
    const struct tern_supervise_options *options = watch->supervisor->options;
    char reason[96];
    double now = tern_clock_seconds();
    if (now - watch->last_look < 0.2) {
        return;
    }
    watch->last_look = now;
    int64_t pulse = tern_run_pulse(watch->supervisor->run_dir);
    if (pulse != watch->pulse) {
        watch->pulse = pulse;
        watch->last_pulse = now;
    }
    if (has_end_on_record(watch)) {
        enter(watch, LEAVING);
    } else if (watch->phase == RUNS && options->hang_seconds > 0 &&
               now - watch->last_pulse > options->hang_seconds) {
        snprintf(reason, sizeof reason, "nothing was logged for %g s", options->hang_seconds);
        end_it(watch, TOLD, reason);
    }
}

/* What was asked of the supervisor, passed on. */
static void look_at_signals(struct watch *watch)
{
    if (watch->phase != RUNS || !tern_supervise_is_asked()) {
        return;
    }
    tern_log_info("asked to stop: asking launch %s for a checkpoint (SIGUSR2)",
                  watch->supervisor->launch->id);
    watch->supervisor->journal.state = "stopping";
    tern_supervise_note(watch->supervisor);
    enter(watch, ASKED);
}

static void advance(struct watch *watch)
{
    char reason[96];
    double past = tern_clock_seconds() - watch->since;
    switch (watch->phase) {
    case RUNS:
        look_at_signals(watch);
        look_at_run(watch);
        look_at_hosts(watch);
        break;
    case ASKED:
        ask(watch);
        look_at_run(watch);
        if (watch->phase == ASKED && past > watch->supervisor->options->stop_seconds) {
            snprintf(reason, sizeof reason, "asked to stop, it did not within %g s",
                     watch->supervisor->options->stop_seconds);
            end_it(watch, TOLD, reason);
        }
        break;
    case LEAVING:
        if (past > g_leave_seconds) {
            end_it(watch, TOLD, "its end is on record and its launcher stays");
        }
        break;
    case TOLD:
        if (past > g_term_seconds) {
            enter(watch, KILLED);
        }
        break;
    case KILLED:
        break;
    }
}

void tern_supervise_watch(struct tern_supervisor *supervisor, pid_t pid, struct tern_watch_end *out)
{
    double now = tern_clock_seconds();
    *out = (struct tern_watch_end){0};
    struct watch watch = {
        .supervisor = supervisor, .pid = pid, .last_probe = now, .last_pulse = now, .end = out};
    watch.pulse_before = watch.pulse = tern_run_pulse(supervisor->run_dir);
    supervisor->reach.launch_id = supervisor->launch->id;
    while (!tern_process_poll(pid, &out->code)) {
        advance(&watch);
        tern_clock_sleep_ns(LOOK_NS);
    }
    if (watch.is_probing) {
        tern_errands_end(&watch.errands);
    }
}
