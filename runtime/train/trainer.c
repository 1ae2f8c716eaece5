/* trainer.c - the loop: batches in, steps, evaluations, checkpoints, and a clean end whoever asks for it. */
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

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the loop carries from step to step. */
struct loop {
    struct tern_job *job;
    struct tern_step_log log;
    struct tern_step_word mine;
    const struct tern_step_word *words;
    struct tern_step_result result;
    enum tern_notice stop; /* as agreed by all ranks */
    int stop_rank;
    int64_t last_saved; /* step of the newest snapshot, -1 none in this launch */
    double last_save_time;
    bool is_save_due;
    double data_seconds, stall_seconds;
    double last_eval;
};

static bool is_first_rank(const struct loop *loop)
{
    return loop->job->comm->rank == 0;
}

/* ---- checkpoints ---- */

static void report_save(struct loop *loop, const struct tern_saver_event *event)
{
    char size[TERN_TEXT_BYTES_BYTES];
    if (!event->is_done) {
        tern_log_error("the checkpoint of step %lld was not written: %s; training goes on, earlier "
                       "checkpoints are as "
                       "they were",
                       (long long)event->step, event->reason);
        return;
    }
    tern_log_info("checkpoint step %lld committed: %s in %.2f s", (long long)event->step,
                  tern_text_bytes(event->bytes, size), event->seconds);
    (void)!tern_step_log_event(&loop->log, "checkpoint",
                               "\"step\":%lld,\"bytes\":%lld,\"raw_bytes\":%lld,\"seconds\":%.6f",
                               (long long)event->step, (long long)event->bytes,
                               (long long)event->raw_bytes, event->seconds);
}

/* Fetches what the saver has to say; true if a save ended, *ok_out: well. */
static bool hear_saver(struct loop *loop, bool *ok_out)
{
    struct tern_saver_event event;
    if (!tern_saver_poll(loop->job->saver, &event)) {
        return false;
    }
    *ok_out = event.is_done;
    if (is_first_rank(loop)) {
        report_save(loop, &event);
    }
    return true;
}

static tern_status begin_save(struct loop *loop)
{
    struct tern_job *job = loop->job;
    struct tern_text json;
    tern_text_init(&json);
    double started = tern_clock_seconds();
    tern_status status = tern_job_progress(job, &json);
    if (status == TERN_OK) {
        status = tern_saver_begin(job->saver, json.data);
    }
    tern_text_fini(&json);
    loop->stall_seconds = tern_clock_seconds() - started;
    loop->last_saved = job->state.step;
    loop->last_save_time = tern_clock_seconds();
    loop->is_save_due = false;
    return status;
}

/* Makes the state as it is now a committed checkpoint; waits for it. Collective. */
static tern_status save_now(struct loop *loop)
{
    struct tern_job *job = loop->job;
    bool ok = true;
    int64_t verdict = 0;
    TERN_RETURN_IF_ERR(tern_saver_finish(job->saver)); /* one under way */
    bool heard = hear_saver(loop, &ok);
    int64_t current = heard && !ok ? 0 : loop->last_saved == job->state.step;
    int64_t stale = !current;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &stale, 1));
    if (!stale) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(begin_save(loop));
    TERN_RETURN_IF_ERR(tern_saver_finish(job->saver));
    verdict = hear_saver(loop, &ok) && !ok;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &verdict, 1));
    if (verdict) {
        return tern_fail(
            TERN_ERR_IO,
            "the checkpoint of step %lld could not be written; the newest earlier one holds",
            (long long)job->state.step);
    }
    return TERN_OK;
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

static tern_status take_step(struct loop *loop, double lr)
{
    struct tern_job *job = loop->job;
    const int32_t *inputs;
    const int32_t *targets;
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_prefetch_take(job->prefetch, job->state.step, &inputs, &targets));
    loop->data_seconds = tern_clock_seconds() - started;
    tern_fault_pass(TERN_FAULT_STEP_BEGIN);
    loop->is_save_due = is_first_rank(loop) && save_is_due(loop);
    loop->mine.stop = (int32_t)tern_notice_poll();
    loop->mine.wants_save = loop->is_save_due;
    tern_saver_speak(job->saver, &loop->mine);
    TERN_RETURN_IF_ERR(tern_stepper_run(job->stepper, inputs, targets, lr, &loop->mine,
                                        &loop->words, &loop->result));
    tern_saver_listen(job->saver, loop->words);
    for (int rank = 0; rank < job->comm->size; rank++) {
        if (loop->words[rank].stop > (int32_t)loop->stop) {
            loop->stop = (enum tern_notice)loop->words[rank].stop;
            loop->stop_rank = rank;
        }
    }
    return TERN_OK;
}

static tern_status handle_nonfinite(struct loop *loop)
{
    const struct tern_job *job = loop->job;
    const char *what = loop->result.culprit[0] != '\0' ? loop->result.culprit : "the loss";
    if (job->config.train.on_nonfinite == TERN_NONFINITE_STOP) {
        return tern_fail(TERN_ERR_NONFINITE,
                         "step %lld: the gradient of %s is not finite (loss %g); the newest "
                         "checkpoint is from before it. "
                         "Lower optimizer.lr, or set train.on_nonfinite: skip",
                         (long long)job->state.step, what, loop->result.loss);
    }
    if (is_first_rank(loop)) {
        tern_log_warn("step %lld: the gradient of %s is not finite: update skipped",
                      (long long)job->state.step, what);
        return tern_step_log_event(&loop->log, "warning",
                                   "\"step\":%lld,\"skipped\":true,\"tensor\":\"%s\"",
                                   (long long)job->state.step, what);
    }
    return TERN_OK;
}

static tern_status log_step(struct loop *loop, double lr, double step_seconds)
{
    const struct tern_job *job = loop->job;
    if (!is_first_rank(loop)) {
        return TERN_OK;
    }
    double flops = tern_model_train_flops_per_token(&job->model, job->config.train.sequence_length);
    double rate = (double)loop->result.tokens / step_seconds;
    return tern_step_log_step(&loop->log,
                              &(struct tern_step_record){
                                  .step = job->state.step,
                                  .loss = loop->result.loss,
                                  .grad_norm = loop->result.grad_norm,
                                  .lr = lr,
                                  .tokens = loop->result.tokens,
                                  .step_seconds = step_seconds,
                                  .data_seconds = loop->data_seconds,
                                  .comm_seconds = loop->result.comm_seconds,
                                  .checkpoint_stall_seconds = loop->stall_seconds,
                                  .mfu = job->peak_flops > 0 ? rate * flops / job->peak_flops : -1,
                                  .is_skipped = loop->result.is_skipped,
                              });
}

static tern_status evaluate(struct loop *loop)
{
    struct tern_job *job = loop->job;
    double loss;
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_stepper_evaluate(job->stepper, job->val, job->eval_sequences, &loss));
    loop->last_eval = loss;
    if (!is_first_rank(loop)) {
        return TERN_OK;
    }
    tern_log_line("eval %6lld/%lld  loss %.4f  perplexity %.2f", (long long)job->state.step,
                  (long long)job->steps, loss, exp(loss));
    return tern_step_log_event(&loop->log, "eval",
                               "\"step\":%lld,\"loss\":%.9g,\"sequences\":%lld,\"seconds\":%.6f",
                               (long long)job->state.step, loss, (long long)job->eval_sequences,
                               tern_clock_seconds() - started);
}

static bool eval_is_due(const struct tern_job *job)
{
    int64_t every = job->config.train.eval_every;
    return job->val != NULL && every > 0 &&
           (job->state.step % every == 0 || job->state.step == job->steps);
}

/* One step with all that belongs to it. */
static tern_status advance(struct loop *loop)
{
    struct tern_job *job = loop->job;
    double lr = tern_schedule_lr(&job->config.optimizer, job->state.step, job->steps);
    double started = tern_clock_seconds();
    bool ok;
    loop->stall_seconds = 0;
    /* from the second step on nothing may be allocated on this thread */
    tern_mem_freeze(job->state.step > job->first_step);
    tern_status status = take_step(loop, lr);
    tern_mem_freeze(false);
    TERN_RETURN_IF_ERR(status);
    if (loop->result.is_skipped) {
        TERN_RETURN_IF_ERR(handle_nonfinite(loop));
    }
    double step_seconds = tern_clock_seconds() - started;
    hear_saver(loop, &ok);
    if (loop->stop == TERN_NOTICE_NONE && tern_saver_should_begin(job->saver, loop->words)) {
        TERN_RETURN_IF_ERR(begin_save(loop));
    }
    TERN_RETURN_IF_ERR(log_step(loop, lr, step_seconds));
    if (eval_is_due(job) && loop->stop == TERN_NOTICE_NONE) {
        TERN_RETURN_IF_ERR(evaluate(loop));
    }
    tern_fault_pass(TERN_FAULT_STEP_END);
    return TERN_OK;
}

/* ---- the end ---- */

static tern_status end_reclaimed(struct loop *loop, int *exit_code)
{
    struct tern_job *job = loop->job;
    char reason[128];
    snprintf(reason, sizeof reason, "%s on rank %d", tern_notice_name(loop->stop), loop->stop_rank);
    if (is_first_rank(loop)) {
        tern_log_info("%s: stopping after step %lld", reason, (long long)job->state.step);
        TERN_RETURN_IF_ERR(tern_step_log_event(&loop->log, "notice",
                                               "\"step\":%lld,\"reason\":\"%s\"",
                                               (long long)job->state.step, reason));
    }
    TERN_RETURN_IF_ERR(save_now(loop));
    if (is_first_rank(loop)) {
        TERN_RETURN_IF_ERR(tern_notice_clear_file(job->run.path));
        TERN_RETURN_IF_ERR(tern_run_dir_record(&job->run, "reclaimed", job->state.step, reason));
        tern_log_info("checkpoint committed at step %lld of %lld; the same command goes on from "
                      "there (exit code 33)",
                      (long long)job->state.step, (long long)job->steps);
    }
    *exit_code = TERN_EXIT_RECLAIMED;
    return TERN_OK;
}

static tern_status end_finished(struct loop *loop, int *exit_code)
{
    struct tern_job *job = loop->job;
    TERN_RETURN_IF_ERR(save_now(loop));
    if (is_first_rank(loop)) {
        TERN_RETURN_IF_ERR(
            tern_run_dir_record(&job->run, "finished", job->state.step, "all steps done"));
    }
    *exit_code = TERN_EXIT_OK;
    return TERN_OK;
}

static tern_status end_run(struct loop *loop, int *exit_code)
{
    struct tern_job *job = loop->job;
    bool is_done = job->state.step >= job->steps;
    TERN_RETURN_IF_ERR(is_done ? end_finished(loop, exit_code) : end_reclaimed(loop, exit_code));
    if (is_first_rank(loop)) {
        struct tern_mem_stats stats = tern_mem_stats();
        TERN_RETURN_IF_ERR(tern_step_log_event(
            &loop->log, "end",
            "\"state\":\"%s\",\"step\":%lld,\"step_allocations\":%lld,\"rss_peak_bytes\":%lld,"
            "\"bill_bytes\":%lld",
            is_done ? "finished" : "reclaimed", (long long)job->state.step,
            (long long)stats.frozen_violations, (long long)tern_rss_peak_bytes(),
            (long long)tern_bill_total(&job->bill)));
    }
    tern_notice_ignore();
    return tern_comm_barrier(job->comm);
}

static tern_status log_start(struct loop *loop)
{
    struct tern_job *job = loop->job;
    if (!is_first_rank(loop)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_step_log_open(&loop->log, job->run.path, job->state.step, job->steps));
    TERN_RETURN_IF_ERR(tern_step_log_event(
        &loop->log, "start",
        "\"launch\":\"%s\",\"ranks\":%d,\"threads\":%d,\"step\":%lld,\"isa\":\"%s\","
        "\"cpu_features\":\"%s\",\"parameters\":%lld,\"bill_bytes\":%lld",
        job->run.launch_id, job->comm->size, tern_device_threads(job->device),
        (long long)job->state.step, tern_device_isa(job->device), tern_cpu_features(),
        (long long)job->model.params.parameter_count, (long long)tern_bill_total(&job->bill)));
    if (job->resumed_from[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_step_log_event(&loop->log, "resume",
                                               "\"step\":%lld,\"from\":\"%s\"",
                                               (long long)job->state.step, job->resumed_from));
    }
    return TERN_OK;
}

static tern_status run_loop(struct tern_job *job, int *exit_code)
{
    struct loop loop = {.job = job,
                        .last_saved = job->resumed_from[0] != '\0' ? job->state.step : -1,
                        .last_save_time = tern_clock_seconds()};
    TERN_RETURN_IF_ERR(log_start(&loop));
    while (job->state.step < job->steps && loop.stop == TERN_NOTICE_NONE) {
        TERN_RETURN_IF_ERR(advance(&loop));
    }
    return end_run(&loop, exit_code);
}

/* A failure inside the loop: this rank says why, leaves a record, and takes the others along. */
static tern_status fail_run(struct tern_job *job, tern_status status, int *exit_code)
{
    char sentence[TERN_DETAIL_BYTES];
    snprintf(sentence, sizeof sentence, "%s", tern_detail());
    bool is_peer = tern_status_blast(status) == TERN_BLAST_GROUP;
    if (job->run.path[0] != '\0') {
        (void)!tern_run_dir_record(&job->run, is_peer ? "peer_lost" : "failed", job->state.step,
                                   sentence);
    }
    *exit_code = tern_status_exit_code(status);
    if (job->comm != NULL && job->comm->size > 1) {
        tern_log_error("%s", sentence);
        tern_comm_abort(job->comm, *exit_code);
    }
    tern_detail_set(sentence);
    return status;
}

/* A failure that all ranks have agreed on: rank 0 says it, and only then does anybody leave. */
static tern_status fail_agreed(struct tern_job *job, tern_status status, int *exit_code)
{
    *exit_code = tern_status_exit_code(status);
    if (job->run.is_locked) {
        (void)!tern_run_dir_record(&job->run, "failed", job->state.step, tern_detail());
    }
    if (job->comm->size == 1) {
        return status;
    }
    if (job->comm->rank == 0) {
        tern_log_error("%s", tern_detail());
    }
    return tern_comm_barrier(job->comm);
}

tern_status tern_train_run(const struct tern_train_options *options, int *exit_code)
{
    struct tern_job *job = tern_alloc_zero("job", 1, sizeof *job);
    if (job == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a job");
    }
    tern_op_profile_enable(options->profile);
    tern_status status = tern_job_open(job, options);
    if (status != TERN_OK && job->is_agreed) {
        status = fail_agreed(job, status, exit_code);
    } else if (status == TERN_OK && !options->dry_run) {
        status = run_loop(job, exit_code);
        if (status != TERN_OK) {
            status = fail_run(job, status, exit_code);
        }
    }
    if (status == TERN_OK && options->profile && job->comm->rank == 0) {
        tern_profile_print(job->peak_flops);
    }
    tern_job_close(job);
    tern_free(job);
    return status;
}
