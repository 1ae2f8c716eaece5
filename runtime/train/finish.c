/* finish.c - the ends of a run. What they have in common: how it ended is on record, and all ranks
 * leave together. */
#include "runtime/train/finish.h"

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/observe/step_log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/agree.h"
#include "runtime/train/job.h"
#include "runtime/train/loop.h"

#include <stdio.h>

/* Everybody goes at once. How the launch ended is on record: what happens to a peer now changes
 * nothing. */
static tern_status leave(struct tern_job *job, int exit_code)
{
    tern_heartbeat_rest(job->vitals.heartbeat);
    if (tern_comm_barrier(job->comm) != TERN_OK) {
        tern_log_warn("after the end: %s", tern_detail());
        tern_comm_abort(job->comm, exit_code);
    }
    return TERN_OK;
}

/* ---- after a step ---- */

/* The bucket gets the checkpoint that is on disk now, in `seconds` at most (0: however long it
 * takes). Collective. A bucket that lacks it is no failure of the run: it is said. */
static tern_status finish_uploads(struct tern_loop *loop, double seconds)
{
    struct tern_mirror_event event;
    TERN_RETURN_IF_ERR(tern_mirror_finish(loop->job->mirror, seconds, &event));
    loop->job->reclaim.is_safe = event.is_done;
    tern_loop_report_upload(loop, &event);
    return TERN_OK;
}

static tern_status end_reclaimed(struct tern_loop *loop)
{
    struct tern_job *job = loop->job;
    char reason[128];
    snprintf(reason, sizeof reason, "%s on rank %d", tern_notice_name(job->reclaim.stop),
             job->reclaim.stop_rank);
    if (tern_loop_is_first_rank(loop)) {
        tern_log_info("%s: stopping after step %lld, %.0f s left", reason,
                      (long long)job->state.step, tern_reclaim_seconds_left(job));
        tern_step_log_text(&loop->log, "notice", job->state.step, "reason", reason);
    }
    tern_vitals_enter(job, TERN_PHASE_DRAIN);
    TERN_RETURN_IF_ERR(tern_loop_save_now(loop));
    double left = tern_reclaim_seconds_left(job);
    TERN_RETURN_IF_ERR(finish_uploads(loop, left > 0 ? left : 0.001));
    tern_ledger_enter(&job->vitals.ledger, TERN_LEDGER_IDLE_AFTER_NOTICE);
    if (!tern_loop_is_first_rank(loop)) {
        return TERN_OK;
    }
    if (tern_notice_clear_file(job->run.path) != TERN_OK) {
        tern_log_warn("the stop file stays: %s", tern_detail());
    }
    tern_reclaim_leaving(job, job->run.leaving, sizeof job->run.leaving);
    TERN_RETURN_IF_ERR(tern_run_dir_record(&job->run, 0, "reclaimed", job->state.step, reason));
    tern_log_info("checkpoint committed at step %lld of %lld; the same command goes on from "
                  "there (exit code 33)",
                  (long long)job->state.step, (long long)job->steps);
    return TERN_OK;
}

static tern_status end_finished(struct tern_loop *loop)
{
    struct tern_job *job = loop->job;
    tern_vitals_enter(job, TERN_PHASE_CHECKPOINT);
    TERN_RETURN_IF_ERR(tern_loop_save_now(loop));
    TERN_RETURN_IF_ERR(finish_uploads(loop, 0));
    return tern_loop_is_first_rank(loop)
               ? tern_run_dir_record(&job->run, 0, "finished", job->state.step, "all steps done")
               : TERN_OK;
}

tern_status tern_run_end(struct tern_loop *loop, int *exit_code)
{
    struct tern_job *job = loop->job;
    bool is_done = job->state.step >= job->steps;
    TERN_RETURN_IF_ERR(is_done ? end_finished(loop) : end_reclaimed(loop));
    *exit_code = is_done ? TERN_EXIT_OK : TERN_EXIT_RECLAIMED;
    tern_notice_ignore();
    tern_vitals_end(job, &loop->log,
                    is_done                                   ? TERN_LEDGER_FINISHED
                    : job->reclaim.stop == TERN_NOTICE_SIGINT ? TERN_LEDGER_STOPPED
                                                              : TERN_LEDGER_RECLAIMED);
    if (tern_loop_is_first_rank(loop)) {
        struct tern_mem_stats stats = tern_mem_stats();
        tern_step_log_event(
            &loop->log, "end",
            "\"state\":\"%s\",\"step\":%lld,\"step_allocations\":%lld,\"rss_peak_bytes\":%lld,"
            "\"bill_bytes\":%lld,\"snapshot_stall_seconds\":%.6f",
            is_done ? "finished" : "reclaimed", (long long)job->state.step,
            (long long)stats.frozen_violations, (long long)tern_rss_peak_bytes(),
            (long long)tern_bill_total(&job->bill), loop->snapshots.stall_total);
    }
    tern_job_forget_memory(job);
    TERN_RETURN_IF_ERR(leave(job, *exit_code));
    if (!is_done && job->reclaim.is_safe && job->config.reclaim.approve) {
        tern_watch_approve(job->reclaim.watch);
    }
    return TERN_OK;
}

/* ---- without a step ---- */

/* A run that had ended before its bucket had everything: now it gets the rest. Collective. */
static tern_status send_rest(struct tern_job *job)
{
    struct tern_mirror_event event;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_mirror_start(job->mirror, job->run.path)));
    tern_mirror_offer(job->mirror, job->found.step);
    TERN_RETURN_IF_ERR(tern_mirror_finish(job->mirror, 0, &event));
    if (job->comm->rank == 0 && !event.is_done) {
        tern_log_warn("the bucket lacks the checkpoint of step %lld: %s", (long long)event.step,
                      event.reason);
    }
    return TERN_OK;
}

tern_status tern_run_end_at_once(struct tern_job *job, int *exit_code)
{
    char reason[128];
    snprintf(reason, sizeof reason, "nothing to do: the checkpoint is at step %lld of %lld",
             (long long)job->found.step, (long long)job->steps);
    tern_status status = TERN_OK;
    TERN_RETURN_IF_ERR(send_rest(job));
    if (job->comm->rank == 0) {
        status = tern_run_dir_record(&job->run, 0, "finished", job->found.step, reason);
        tern_log_info("%s; to train on raise train.steps, to start anew choose another --run-dir",
                      reason);
    }
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    tern_ledger_close(&job->vitals.ledger, TERN_LEDGER_FINISHED);
    *exit_code = TERN_EXIT_OK;
    return leave(job, *exit_code);
}

/* ---- failures ---- */

/* This rank fails and the others do not know: it says why, leaves a record, and takes them along.
 * Who only lost a peer leaves the last word to the one that knows more. */
static tern_status fail_alone(struct tern_job *job, tern_status status, int *exit_code)
{
    char sentence[TERN_DETAIL_BYTES];
    snprintf(sentence, sizeof sentence, "%s", tern_detail());
    bool is_peer = tern_status_blast(status) == TERN_BLAST_GROUP;
    tern_vitals_fail(job, is_peer);
    if (job->run.path[0] != '\0' && (!is_peer || tern_run_dir_is_running(&job->run))) {
        (void)!tern_run_dir_record(&job->run, job->comm->rank, is_peer ? "peer_lost" : "failed",
                                   job->state.step, sentence);
    }
    *exit_code = tern_status_exit_code(status);
    if (job->comm != NULL && job->comm->size > 1) {
        if (!tern_heartbeat_is_over(job->vitals.heartbeat)) {
            tern_log_error("%s", sentence);
        }
        tern_comm_abort(job->comm, *exit_code);
    }
    tern_detail_set(sentence);
    return status;
}

/* A failure that all ranks know: rank 0 says it, and only then does anybody leave. */
static tern_status fail_agreed(struct tern_job *job, tern_status status, int *exit_code)
{
    char sentence[TERN_DETAIL_BYTES];
    snprintf(sentence, sizeof sentence, "%s", tern_detail());
    *exit_code = tern_status_exit_code(status);
    tern_vitals_fail(job, false);
    if (job->run.is_locked) {
        (void)!tern_run_dir_record(&job->run, 0, "failed", job->state.step, sentence);
    }
    if (job->comm->size == 1) {
        tern_detail_set(sentence);
        return status;
    }
    if (job->comm->rank == 0) {
        tern_log_error("%s", sentence);
    }
    return leave(job, *exit_code);
}

tern_status tern_run_fail(struct tern_job *job, tern_status status, int *exit_code)
{
    bool is_common = job->is_agreed && tern_status_blast(status) != TERN_BLAST_GROUP;
    return is_common ? fail_agreed(job, status, exit_code) : fail_alone(job, status, exit_code);
}
