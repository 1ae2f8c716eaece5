/* trainer.c - the loop: batches in, steps, evaluations, checkpoints, until all is done or somebody
 * asks for the end. */
#include "runtime/train/trainer.h"

#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/observe/profile.h"
#include "runtime/observe/step_log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/finish.h"
#include "runtime/train/job.h"
#include "runtime/train/loop.h"
#include "runtime/train/schedule.h"

#include <math.h>

/* ---- one step ---- */

/* Batch in, lanes enqueued. */
static tern_status begin_step(struct tern_loop *loop)
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
static tern_status end_step(struct tern_loop *loop, double lr, double started)
{
    struct tern_job *job = loop->job;
    loop->is_save_due = tern_loop_is_first_rank(loop) && tern_loop_save_is_due(loop);
    loop->mine.wants_save = loop->is_save_due;
    loop->mine.wants_snapshot = tern_loop_is_first_rank(loop) &&
                                tern_snapshots_want(&loop->snapshots, job, job->state.step + 1);
    tern_reclaim_speak(job, &loop->mine);
    tern_saver_speak(job->saver, &loop->mine);
    tern_mirror_speak(job->mirror, &loop->mine);
    tern_vitals_enter(job, TERN_PHASE_REDUCE);
    TERN_RETURN_IF_ERR(tern_stepper_end(job->stepper, lr, &loop->mine, &loop->words));
    loop->launched = (struct tern_loop_step){job->state.step, lr, started, loop->data_seconds};
    atomic_store(&job->steps_done, job->state.step);
    tern_saver_listen(job->saver, loop->words);
    tern_mirror_listen(job->mirror, loop->words);
    tern_reclaim_listen(job, loop->words);
    return TERN_OK;
}

/* All ranks have the same numbers, so all decide alike. */
static tern_status handle_nonfinite(struct tern_loop *loop)
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
    if (tern_loop_is_first_rank(loop)) {
        tern_log_warn("step %lld: the gradient of %s is not finite: update skipped",
                      (long long)loop->launched.step, what);
        tern_step_log_event(&loop->log, "warning",
                            "\"step\":%lld,\"skipped\":true,\"tensor\":\"%s\"",
                            (long long)loop->launched.step, what);
    }
    return TERN_OK;
}

/* step_seconds: since the step was begun, or since the one before was done if that came later. */
static void log_step(struct tern_loop *loop, double step_seconds)
{
    const struct tern_job *job = loop->job;
    if (!tern_loop_is_first_rank(loop)) {
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
static tern_status settle_step(struct tern_loop *loop, double *seconds_out)
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

static tern_status evaluate(struct tern_loop *loop)
{
    struct tern_job *job = loop->job;
    double loss;
    double started = tern_clock_seconds();
    tern_vitals_enter(job, TERN_PHASE_EVALUATE);
    TERN_RETURN_IF_ERR(tern_stepper_evaluate(job->stepper, job->val, job->eval_sequences, &loss));
    tern_vitals_eval(job, loss, tern_clock_seconds() - started);
    if (!tern_loop_is_first_rank(loop)) {
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

/* A step up to its enqueued update. Where the device runs behind the host, the result of the step
 * before is read while it works on this one. */
static tern_status take_step(struct tern_loop *loop, double lr)
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

/* One step with all that belongs to it. Its result is waited for only where something follows that
 * needs it. */
static tern_status advance(struct tern_loop *loop)
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
    tern_loop_hear(loop);
    bool is_stopping = job->reclaim.stop != TERN_NOTICE_NONE;
    bool is_last = is_stopping || job->state.step == job->steps;
    bool saves = !is_stopping && tern_saver_should_begin(job->saver, loop->words);
    bool snapshots = !is_last && !saves && tern_saver_should_snapshot(job->saver, loop->words);
    bool evaluates = !is_stopping && eval_is_due(job);
    if (!tern_stepper_is_late(job->stepper) || is_last || saves || snapshots || evaluates) {
        TERN_RETURN_IF_ERR(settle_step(loop, &seconds));
        tern_interval_note_step(&loop->snapshots.interval, seconds);
        TERN_RETURN_IF_ERR(saves ? tern_loop_begin_save(loop) : TERN_OK);
        TERN_RETURN_IF_ERR(snapshots ? tern_loop_snapshot(loop) : TERN_OK);
        log_step(loop, seconds);
    }
    TERN_RETURN_IF_ERR(evaluates ? evaluate(loop) : TERN_OK);
    tern_fault_pass(TERN_FAULT_STEP_END);
    return TERN_OK;
}

/* ---- the run ---- */

static tern_status log_start(struct tern_loop *loop)
{
    struct tern_job *job = loop->job;
    if (!tern_loop_is_first_rank(loop)) {
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
    struct tern_loop loop = {
        .job = job,
        .last_saved = job->memory_found == NULL && job->found.is_there ? job->state.step : -1,
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
    return tern_run_end(&loop, exit_code);
}

static tern_status run(struct tern_job *job,
                       const struct tern_train_options *options,
                       int *exit_code)
{
    TERN_RETURN_IF_ERR(tern_job_open(job, options));
    if (options->dry_run) {
        return TERN_OK;
    }
    return job->is_done ? tern_run_end_at_once(job, exit_code) : run_loop(job, options, exit_code);
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
        status = tern_run_fail(job, status, exit_code);
    }
    tern_job_close(job);
    tern_free(job);
    return status;
}
