/* reclaim.c - notices in, one word a step, and the time that is left. */
#include "runtime/train/reclaim.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/reclaim/dates.h"
#include "runtime/train/job.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum {
    STATE_BYTES = 12 /* of a parameter: weight and two moments in fp32 */
};

/* Beyond the deadline, for a copy under way: a machine that is still there can give it. */
static const double g_last_seconds = 2;

/* On the watcher's thread, as the next: the newest snapshot is to be with the peer before this machine is gone. */
static void hurry(void *context)
{
    struct tern_job *job = context;
    tern_memory_hurry(atomic_load(&job->reclaim.memory));
}

static void leave_late(void *context, const char *sentence)
{
    struct tern_job *job = context;
    tern_log_error("%s", sentence);
    tern_vitals_lose_peer(job, sentence);
    double left = tern_notice_seconds_left(job->config.reclaim.deadline_seconds);
    if (!tern_memory_settle(atomic_load(&job->reclaim.memory), fmax(left, g_last_seconds))) {
        tern_log_warn("the newest snapshot is not at its peer yet, and the time is over");
    }
    _exit(TERN_EXIT_PEER_LOST);
}

static struct tern_watch_options watch_options(const struct tern_job *job)
{
    const struct tern_config_reclaim *config = &job->config.reclaim;
    return (struct tern_watch_options){
        .names = (const char *const *)config->notices.items,
        .name_count = config->notices.count,
        .end_unix = job->reclaim.end_unix,
        .is_first = job->comm->rank == 0,
        .is_host_first = job->comm->local_rank == 0,
        .root = "/",
        .poll_seconds = config->poll_seconds,
        .planner = &job->reclaim.planner,
    };
}

tern_status tern_reclaim_start(struct tern_job *job)
{
    struct tern_reclaim *reclaim = &job->reclaim;
    const char *end_time = job->config.reclaim.end_time;
    if (end_time != NULL && !tern_date_parse(end_time, &reclaim->end_unix)) {
        return tern_fail(TERN_ERR_CONFIG, "reclaim.end_time: found '%.60s', expected a moment",
                         end_time);
    }
    tern_planner_load(&reclaim->planner, job->run.path);
    struct tern_watch_options options = watch_options(job);
    options.noticed = hurry;
    options.late = leave_late;
    options.context = job;
    return tern_watch_start(&options, &reclaim->watch);
}

void tern_reclaim_stop(struct tern_reclaim *reclaim)
{
    tern_watch_stop(reclaim->watch);
    reclaim->watch = NULL;
}

void tern_reclaim_warn(const struct tern_job *job)
{
    const struct tern_watch_options options = watch_options(job);
    char text[TERN_PLANNER_TEXT_BYTES];
    const struct tern_params *trained = job->has_lora ? &job->lora.params : &job->model.params;
    struct tern_planner_case what = {
        .has_remote = job->config.checkpoint.remote != NULL,
        .remote_rate = (double)job->config.checkpoint.remote_rate * job->comm->size,
        .state_bytes = STATE_BYTES * trained->parameter_count,
    };
    what.given_seconds =
        tern_watch_given_seconds(&options, job->config.reclaim.deadline_seconds, &what.source);
    if (job->comm->rank == 0 && what.given_seconds > 0 &&
        tern_planner_is_short(&job->reclaim.planner, &what, text)) {
        tern_log_warn("%s", text);
    }
}

void tern_reclaim_speak(const struct tern_job *job, struct tern_step_word *mine)
{
    mine->stop = (int32_t)tern_notice_poll();
    mine->stop_seconds = mine->stop != TERN_NOTICE_NONE
                             ? tern_notice_seconds_left(job->config.reclaim.deadline_seconds)
                             : 0;
    mine->wants_save |= tern_notice_is_save_asked();
    mine->need_seconds = tern_planner_need_seconds(&job->reclaim.planner);
}

void tern_reclaim_listen(struct tern_job *job, const struct tern_step_word *words)
{
    struct tern_reclaim *reclaim = &job->reclaim;
    double now = tern_clock_seconds();
    if (job->comm->rank != 0) {
        tern_planner_hear(&reclaim->planner, words[0].need_seconds);
    }
    for (int rank = 0; rank < job->comm->size; rank++) {
        if (words[rank].stop == TERN_NOTICE_NONE) {
            continue;
        }
        double deadline = now + words[rank].stop_seconds;
        if (reclaim->stop_deadline == 0 || deadline < reclaim->stop_deadline) {
            reclaim->stop_deadline = deadline;
        }
        if (words[rank].stop > (int32_t)reclaim->stop) {
            reclaim->stop = (enum tern_notice)words[rank].stop;
            reclaim->stop_rank = rank;
        }
    }
    if (reclaim->stop != TERN_NOTICE_NONE) {
        tern_watch_hear(reclaim->watch);
        tern_memory_hurry(job->memory);
    }
}

void tern_reclaim_settle(struct tern_job *job)
{
    if (job->reclaim.stop != TERN_NOTICE_NONE) {
        (void)tern_memory_settle(job->memory, tern_reclaim_seconds_left(job));
    }
}

double tern_reclaim_seconds_left(const struct tern_job *job)
{
    double left = job->reclaim.stop_deadline > 0 ? job->reclaim.stop_deadline - tern_clock_seconds()
                                                 : job->config.reclaim.deadline_seconds;
    return fmax(left, 0);
}

void tern_reclaim_note(struct tern_job *job,
                       enum tern_planner_kind kind,
                       double seconds,
                       int64_t bytes)
{
    struct tern_planner *planner = &job->reclaim.planner;
    bool is_first = tern_planner_worst(planner, kind) == 0;
    tern_planner_note(planner, kind, seconds, bytes);
    if (kind == TERN_PLANNER_STEP || job->comm->rank != 0) {
        return;
    }
    if (is_first) {
        tern_reclaim_warn(job);
    }
    if (tern_planner_keep(planner, job->run.path) != TERN_OK) {
        tern_log_warn("planner.json is not written: %s", tern_detail());
    }
}

void tern_reclaim_leaving(const struct tern_job *job, char *out, size_t bytes)
{
    int rank = job->reclaim.stop_rank;
    enum tern_notice_takes takes = tern_notice_takes(job->reclaim.stop);
    snprintf(out, bytes, "%s", takes == TERN_TAKES_ALL ? "*" : "");
    if (takes == TERN_TAKES_HOST && rank == job->comm->rank) {
        gethostname(out, bytes - 1);
    } else if (takes == TERN_TAKES_HOST) {
        snprintf(out, bytes, "%s", tern_heartbeat_host(job->vitals.heartbeat, rank));
    }
    out[bytes - 1] = '\0';
}
