/* trainer.c - the loop: batches in, steps, evaluations, checkpoints, and a clean end whoever asks
 * for it. */
#include "runtime/train/trainer.h"

#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/observe/profile.h"
#include "runtime/observe/step_log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/agree.h"
#include "runtime/train/job.h"
#include "runtime/train/schedule.h"
#include "runtime/train/snapshots.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LAST_TRIES = 2 /* to write the last checkpoint: storage has its moments, and all steps since the
                      newest hang on it */
};

/* What is to be logged of a step when its result is there. */
struct launched {
    int64_t step;
    double lr, started, data_seconds;
};

/* What the loop carries from step to step. */
struct loop {
    struct tern_job *job;
    struct tern_step_log log;
    struct tern_step_word mine;
    const struct tern_step_word *words;
    struct tern_step_result result;
    int64_t last_saved; /* step of the newest snapshot or checkpoint that has not failed, -1 none */
    double last_save_time;
    bool is_save_due;
    char save_failure[TERN_STEP_NOTE_BYTES]; /* why the last failed save failed, as far as this rank
                                                knows */
    double data_seconds, stall_seconds;
    struct tern_snapshots snapshots; /* in memory */
    struct launched launched;        /* the newest step that was ended */
    double settled;                  /* when the newest result was read */
};

static bool is_first_rank(const struct loop *loop)
{
    return loop->job->comm->rank == 0;
}

/* ---- checkpoints ---- */

static void report_save(struct loop *loop, const struct tern_saver_event *event)
{
    char size[TERN_TEXT_BYTES_BYTES];
    tern_metrics_http_checkpoint(loop->job->vitals.metrics, event->step, event->is_done,
                                 event->seconds, event->bytes);
    if (!event->is_done) {
        tern_log_error("the checkpoint of step %lld was not written: %s; earlier checkpoints are "
                       "as they were",
                       (long long)event->step, event->reason);
        tern_step_log_text(&loop->log, "warning", event->step, "not_written", event->reason);
        return;
    }
    tern_log_info("checkpoint step %lld committed: %s in %.2f s", (long long)event->step,
                  tern_text_bytes(event->bytes, size), event->seconds);
    tern_step_log_event(&loop->log, "checkpoint",
                        "\"step\":%lld,\"bytes\":%lld,\"raw_bytes\":%lld,\"seconds\":%.6f",
                        (long long)event->step, (long long)event->bytes,
                        (long long)event->raw_bytes, event->seconds);
}

static void report_upload(struct loop *loop, const struct tern_mirror_event *event)
{
    char size[TERN_TEXT_BYTES_BYTES];
    if (!is_first_rank(loop) || event->step < 0) {
        return;
    }
    if (!event->is_done) {
        tern_log_warn("the bucket lacks the checkpoint of step %lld: %s", (long long)event->step,
                      event->reason);
        tern_step_log_text(&loop->log, "warning", event->step, "not_uploaded", event->reason);
        return;
    }
    tern_log_info("checkpoint step %lld is in the bucket: %s in %.2f s", (long long)event->step,
                  tern_text_bytes(event->bytes, size), event->seconds);
    tern_step_log_event(&loop->log, "upload", "\"step\":%lld,\"bytes\":%lld,\"seconds\":%.6f",
                        (long long)event->step, (long long)event->bytes, event->seconds);
    tern_reclaim_note(loop->job, TERN_PLANNER_UPLOAD, event->seconds, event->bytes);
}

/* Fetches what the saver has to say, if anything: a step whose save failed is not saved. */
static void hear_saver(struct loop *loop)
{
    struct tern_saver_event event;
    struct tern_mirror_event upload;
    if (tern_mirror_poll(loop->job->mirror, &upload)) {
        report_upload(loop, &upload);
    }
    tern_snapshots_hear(&loop->snapshots, loop->job, is_first_rank(loop) ? &loop->log : NULL);
    if (!tern_saver_poll(loop->job->saver, &event)) {
        return;
    }
    if (event.is_done) {
        tern_mirror_offer(loop->job->mirror, event.step);
    }
    if (!event.is_done) {
        loop->last_saved = -1;
        snprintf(loop->save_failure, sizeof loop->save_failure, "%s", event.reason);
    }
    if (is_first_rank(loop)) {
        report_save(loop, &event);
    }
    if (event.is_done) {
        tern_reclaim_note(loop->job, TERN_PLANNER_COMMIT, event.seconds, event.bytes);
    }
}

/* Copies the state as it is: for disk, or (is_save false) to stay in memory. */
static tern_status keep_state(struct loop *loop, bool is_save)
{
    struct tern_job *job = loop->job;
    struct tern_text json;
    tern_text_init(&json);
    double started = tern_clock_seconds();
    enum tern_phase phase = tern_vitals_enter(job, TERN_PHASE_CHECKPOINT);
    tern_status status = tern_job_progress(job, &json);
    if (status == TERN_OK) {
        status = is_save ? tern_saver_begin(job->saver, &json)
                         : tern_saver_snapshot(job->saver, &json, loop->words);
    }
    tern_text_fini(&json);
    loop->stall_seconds = tern_clock_seconds() - started;
    tern_snapshots_began(&loop->snapshots, job, loop->stall_seconds);
    tern_vitals_enter(job, phase);
    return status;
}

static tern_status begin_save(struct loop *loop)
{
    tern_status status = keep_state(loop, true);
    loop->last_saved = loop->job->state.step;
    loop->last_save_time = tern_clock_seconds();
    loop->is_save_due = false;
    tern_notice_clear_save();
    return status;
}

/* Waits for the save under way, if any. *is_saved_out: the state as it is now is a committed
 * checkpoint on all ranks. */
static tern_status settle_saves(struct loop *loop, bool *is_saved_out)
{
    struct tern_job *job = loop->job;
    TERN_RETURN_IF_ERR(tern_saver_finish(job->saver));
    hear_saver(loop);
    int64_t is_missing = loop->last_saved != job->state.step;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &is_missing, 1));
    *is_saved_out = !is_missing;
    return TERN_OK;
}

/* Makes the state as it is now a committed checkpoint; waits for it. Collective. */
static tern_status save_now(struct loop *loop)
{
    struct tern_job *job = loop->job;
    bool is_saved;
    TERN_RETURN_IF_ERR(settle_saves(loop, &is_saved));
    for (int tries = 0; !is_saved && tries < LAST_TRIES; tries++) {
        TERN_RETURN_IF_ERR(begin_save(loop));
        TERN_RETURN_IF_ERR(settle_saves(loop, &is_saved));
    }
    if (is_saved) {
        return TERN_OK;
    }
    job->is_agreed = true;
    return tern_fail(
        TERN_ERR_IO,
        "the run ends without a checkpoint of step %lld: %s; clear the cause and start "
        "the same command again: it goes on from the newest checkpoint",
        (long long)job->state.step, loop->save_failure);
}

static bool save_is_due(const struct loop *loop)
{
    const struct tern_config_checkpoint *checkpoint = &loop->job->config.checkpoint;
    int64_t next = loop->job->state.step + 1;
    if (loop->is_save_due) {
        return true;
    }
    if (checkpoint->every_steps > 0 && next % checkpoint->every_steps == 0) {
        return true;
    }
    return checkpoint->every_seconds > 0 &&
           tern_clock_seconds() - loop->last_save_time >= checkpoint->every_seconds;
}

/* ---- one step ---- */

/* Batch in, lanes enqueued. */
static tern_status begin_step(struct loop *loop)
{
    struct tern_job *job = loop->job;
    const int32_t *inputs;
    const int32_t *targets;
    const int32_t *starts;
    double started = tern_clock_seconds();
    tern_vitals_enter(job, TERN_PHASE_DATA);
    TERN_RETURN_IF_ERR(
        tern_prefetch_take(job->prefetch, job->state.step, &inputs, &targets, &starts));
    loop->data_seconds = tern_clock_seconds() - started;
    tern_vitals_enter(job, TERN_PHASE_COMPUTE);
    tern_fault_pass(TERN_FAULT_STEP_BEGIN);
    return tern_stepper_begin(job->stepper, inputs, targets, starts);
}

/* Words exchanged, update enqueued. */
static tern_status end_step(struct loop *loop, double lr, double started)
{
    struct tern_job *job = loop->job;
    loop->is_save_due = is_first_rank(loop) && save_is_due(loop);
    loop->mine.wants_save = loop->is_save_due;
    loop->mine.wants_snapshot =
        is_first_rank(loop) && tern_snapshots_want(&loop->snapshots, job, job->state.step + 1);
    tern_reclaim_speak(job, &loop->mine);
    tern_saver_speak(job->saver, &loop->mine);
    tern_mirror_speak(job->mirror, &loop->mine);
    tern_vitals_enter(job, TERN_PHASE_REDUCE);
    TERN_RETURN_IF_ERR(tern_stepper_end(job->stepper, lr, &loop->mine, &loop->words));
    loop->launched = (struct launched){job->state.step, lr, started, loop->data_seconds};
    atomic_store(&job->steps_done, job->state.step);
    tern_saver_listen(job->saver, loop->words);
    tern_mirror_listen(job->mirror, loop->words);
    tern_reclaim_listen(job, loop->words);
    return TERN_OK;
}

/* All ranks have the same numbers, so all decide alike. */
static tern_status handle_nonfinite(struct loop *loop)
{
    struct tern_job *job = loop->job;
    const char *what = loop->result.culprit[0] != '\0' ? loop->result.culprit : "the loss";
    if (job->config.train.on_nonfinite == TERN_NONFINITE_STOP) {
        job->is_agreed = true;
        return tern_fail(TERN_ERR_NONFINITE,
                         "step %lld: the gradient of %s is not finite (loss %g); the newest "
                         "checkpoint is from before it. "
                         "Lower optimizer.lr, or set train.on_nonfinite: skip",
                         (long long)loop->launched.step, what, loop->result.loss);
    }
    if (is_first_rank(loop)) {
        tern_log_warn("step %lld: the gradient of %s is not finite: update skipped",
                      (long long)loop->launched.step, what);
        tern_step_log_event(&loop->log, "warning",
                            "\"step\":%lld,\"skipped\":true,\"tensor\":\"%s\"",
                            (long long)loop->launched.step, what);
    }
    return TERN_OK;
}

/* step_seconds: since the step was begun, or since the one before was done if that came later. */
static void log_step(struct loop *loop, double step_seconds)
{
    const struct tern_job *job = loop->job;
    if (!is_first_rank(loop)) {
        return;
    }
    double flops = tern_job_flops_per_token(job);
    double rate = (double)loop->result.tokens / step_seconds;
    struct tern_step_record record = {
        .step = loop->launched.step,
        .loss = loop->result.loss,
        .grad_norm = loop->result.grad_norm,
        .lr = loop->launched.lr,
        .tokens = loop->result.tokens,
        .step_seconds = step_seconds,
        .data_seconds = loop->launched.data_seconds,
        .comm_seconds = loop->result.comm_seconds,
        .checkpoint_stall_seconds = loop->stall_seconds,
        .mfu = job->peak_flops > 0 ? rate * flops / job->peak_flops : -1,
        .is_skipped = loop->result.is_skipped,
    };
    tern_step_log_step(&loop->log, &record);
    tern_vitals_step(loop->job, &loop->log, loop->words, &record);
}

/* Waits for the step that was ended last and takes its result; *seconds_out: what it took. */
static tern_status settle_step(struct loop *loop, double *seconds_out)
{
    TERN_RETURN_IF_ERR(tern_stepper_settle(loop->job->stepper, &loop->result));
    if (loop->result.is_skipped) {
        TERN_RETURN_IF_ERR(handle_nonfinite(loop));
    }
    tern_vitals_settled(loop->job, loop->launched.step);
    double now = tern_clock_seconds();
    double since = loop->launched.started;
    *seconds_out = now - (since > loop->settled ? since : loop->settled);
    loop->settled = now;
    tern_reclaim_note(loop->job, TERN_PLANNER_STEP, *seconds_out, 0);
    return TERN_OK;
}

static tern_status evaluate(struct loop *loop)
{
    struct tern_job *job = loop->job;
    double loss;
    double started = tern_clock_seconds();
    tern_vitals_enter(job, TERN_PHASE_EVALUATE);
    TERN_RETURN_IF_ERR(tern_stepper_evaluate(job->stepper, job->val, job->eval_sequences, &loss));
    tern_vitals_eval(job, loss, tern_clock_seconds() - started);
    if (!is_first_rank(loop)) {
        return TERN_OK;
    }
    tern_log_line("eval %6lld/%lld  loss %.4f  perplexity %.2f", (long long)job->state.step,
                  (long long)job->steps, loss, exp(loss));
    char text[TERN_STEP_LOG_NUMBER_BYTES];
    tern_step_log_event(&loop->log, "eval",
                        "\"step\":%lld,\"loss\":%s,\"sequences\":%lld,\"seconds\":%.6f",
                        (long long)job->state.step, tern_step_log_number(loss, text),
                        (long long)job->eval_sequences, tern_clock_seconds() - started);
    return TERN_OK;
}

static bool eval_is_due(const struct tern_job *job)
{
    int64_t every = job->config.train.eval_every;
    return job->val != NULL && every > 0 &&
           (job->state.step % every == 0 || job->state.step == job->steps);
}

/* A step up to its enqueued update. Where the device runs behind the host, the result of the step before is read while it
 * works on this one. */
static tern_status take_step(struct loop *loop, double lr)
{
    double started = tern_clock_seconds();
    double seconds;
    TERN_RETURN_IF_ERR(begin_step(loop));
    if (tern_stepper_is_pending(loop->job->stepper)) {
        TERN_RETURN_IF_ERR(settle_step(loop, &seconds));
        log_step(loop, seconds);
    }
    return end_step(loop, lr, started);
}

/* One step with all that belongs to it. Its result is waited for only where something follows that needs it. */
static tern_status advance(struct loop *loop)
{
    struct tern_job *job = loop->job;
    double lr = tern_schedule_lr(&job->config.optimizer, job->state.step, job->steps);
    double seconds;
    loop->stall_seconds = 0;
    /* from the second step on nothing may be allocated on this thread */
    tern_mem_freeze(job->state.step > job->first_step);
    tern_status status = take_step(loop, lr);
    tern_mem_freeze(false);
    TERN_RETURN_IF_ERR(status);
    hear_saver(loop);
    bool is_stopping = job->reclaim.stop != TERN_NOTICE_NONE;
    bool is_last = is_stopping || job->state.step == job->steps;
    bool saves = !is_stopping && tern_saver_should_begin(job->saver, loop->words);
    bool snapshots = !is_last && !saves && tern_saver_should_snapshot(job->saver, loop->words);
    bool evaluates = !is_stopping && eval_is_due(job);
    if (!tern_stepper_is_late(job->stepper) || is_last || saves || snapshots || evaluates) {
        TERN_RETURN_IF_ERR(settle_step(loop, &seconds));
        tern_interval_note_step(&loop->snapshots.interval, seconds);
        TERN_RETURN_IF_ERR(saves ? begin_save(loop) : TERN_OK);
        TERN_RETURN_IF_ERR(snapshots ? keep_state(loop, false) : TERN_OK);
        log_step(loop, seconds);
    }
    TERN_RETURN_IF_ERR(evaluates ? evaluate(loop) : TERN_OK);
    tern_fault_pass(TERN_FAULT_STEP_END);
    return TERN_OK;
}

/* ---- the end ---- */

/* The bucket gets the checkpoint that is on disk now, in `seconds` at most (0: however long it
 * takes). Collective. A bucket that lacks it is no failure of the run: it is said. */
static tern_status finish_uploads(struct loop *loop, double seconds)
{
    struct tern_mirror_event event;
    TERN_RETURN_IF_ERR(tern_mirror_finish(loop->job->mirror, seconds, &event));
    loop->job->reclaim.is_safe = event.is_done;
    report_upload(loop, &event);
    return TERN_OK;
}

static tern_status end_reclaimed(struct loop *loop)
{
    struct tern_job *job = loop->job;
    char reason[128];
    snprintf(reason, sizeof reason, "%s on rank %d", tern_notice_name(job->reclaim.stop),
             job->reclaim.stop_rank);
    if (is_first_rank(loop)) {
        tern_log_info("%s: stopping after step %lld, %.0f s left", reason,
                      (long long)job->state.step, tern_reclaim_seconds_left(job));
        tern_step_log_text(&loop->log, "notice", job->state.step, "reason", reason);
    }
    tern_vitals_enter(job, TERN_PHASE_DRAIN);
    TERN_RETURN_IF_ERR(save_now(loop));
    double left = tern_reclaim_seconds_left(job);
    TERN_RETURN_IF_ERR(finish_uploads(loop, left > 0 ? left : 0.001));
    tern_ledger_enter(&job->vitals.ledger, TERN_LEDGER_IDLE_AFTER_NOTICE);
    if (!is_first_rank(loop)) {
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

static tern_status end_finished(struct loop *loop)
{
    struct tern_job *job = loop->job;
    tern_vitals_enter(job, TERN_PHASE_CHECKPOINT);
    TERN_RETURN_IF_ERR(save_now(loop));
    TERN_RETURN_IF_ERR(finish_uploads(loop, 0));
    return is_first_rank(loop)
               ? tern_run_dir_record(&job->run, 0, "finished", job->state.step, "all steps done")
               : TERN_OK;
}

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

static tern_status end_run(struct loop *loop, int *exit_code)
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
    if (is_first_rank(loop)) {
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

/* The checkpoint found is at or beyond the last step. */
static tern_status end_at_once(struct tern_job *job, int *exit_code)
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

static tern_status log_start(struct loop *loop)
{
    struct tern_job *job = loop->job;
    if (!is_first_rank(loop)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_step_log_open(&loop->log, job->run.path, job->state.step, job->steps));
    tern_step_log_event(
        &loop->log, "start",
        "\"launch\":\"%s\",\"ranks\":%d,\"threads\":%d,\"step\":%lld,\"isa\":\"%s\","
        "\"cpu_features\":\"%s\",\"parameters\":%lld,\"bill_bytes\":%lld",
        job->run.launch_id, job->comm->size, tern_device_threads(job->devices.device),
        (long long)job->state.step, tern_device_isa(job->devices.device), tern_cpu_features(),
        (long long)job->model.params.parameter_count, (long long)tern_bill_total(&job->bill));
    if (job->resumed_from[0] != '\0') {
        tern_step_log_event(&loop->log, "resume", "\"step\":%lld,\"from\":\"%s\",\"source\":\"%s\"",
                            (long long)job->state.step, job->resumed_from, job->source);
    }
    return TERN_OK;
}

static tern_status run_loop(struct tern_job *job,
                            const struct tern_train_options *options,
                            int *exit_code)
{
    struct loop loop = {.job = job,
                        .last_saved =
                            job->memory_found == NULL && job->found.is_there ? job->state.step : -1,
                        .last_save_time = tern_clock_seconds()};
    TERN_RETURN_IF_ERR(tern_vitals_open(job, options->metrics_host, options->metrics_port));
    job->is_agreed = false;
    tern_snapshots_init(&loop.snapshots, job);
    TERN_RETURN_IF_ERR(log_start(&loop));
    if (job->found.is_there) {
        tern_mirror_offer(job->mirror, job->found.step);
    }
    while (job->state.step < job->steps && job->reclaim.stop == TERN_NOTICE_NONE) {
        TERN_RETURN_IF_ERR(advance(&loop));
    }
    return end_run(&loop, exit_code);
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

static tern_status run(struct tern_job *job,
                       const struct tern_train_options *options,
                       int *exit_code)
{
    TERN_RETURN_IF_ERR(tern_job_open(job, options));
    if (options->dry_run) {
        return TERN_OK;
    }
    return job->is_done ? end_at_once(job, exit_code) : run_loop(job, options, exit_code);
}

tern_status tern_train_run(const struct tern_train_options *options, int *exit_code)
{
    struct tern_job *job = tern_alloc_zero("job", 1, sizeof *job);
    if (job == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a job");
    }
    tern_vitals_start(&job->vitals);
    tern_op_profile_enable(options->profile);
    tern_status status = run(job, options, exit_code);
    if (status == TERN_OK && options->profile && job->comm->rank == 0) {
        tern_profile_print(job->peak_flops);
    }
    if (status != TERN_OK) {
        bool is_common = job->is_agreed && tern_status_blast(status) != TERN_BLAST_GROUP;
        status =
            is_common ? fail_agreed(job, status, exit_code) : fail_alone(job, status, exit_code);
    }
    tern_job_close(job);
    tern_free(job);
    return status;
}
