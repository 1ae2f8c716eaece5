/* loop_save.c - the loop's checkpoints and snapshots: when, with which words, and the last one. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/loop.h"

#include <stdio.h>

enum {
    LAST_TRIES = 2 /* to write the last checkpoint: storage has its moments, and all steps since the
                      newest hang on it */
};

bool tern_loop_is_first_rank(const struct tern_loop *loop)
{
    return loop->job->comm->rank == 0;
}

static void report_save(struct tern_loop *loop, const struct tern_saver_event *event)
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

void tern_loop_report_upload(struct tern_loop *loop, const struct tern_mirror_event *event)
{
    char size[TERN_TEXT_BYTES_BYTES];
    if (!tern_loop_is_first_rank(loop) || event->step < 0) {
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

void tern_loop_hear(struct tern_loop *loop)
{
    struct tern_saver_event event;
    struct tern_mirror_event upload;
    if (tern_mirror_poll(loop->job->mirror, &upload)) {
        tern_loop_report_upload(loop, &upload);
    }
    tern_snapshots_hear(&loop->snapshots, loop->job,
                        tern_loop_is_first_rank(loop) ? &loop->log : NULL);
    if (!tern_saver_poll(loop->job->saver, &event)) {
        return;
    }
    if (event.is_done) {
        tern_mirror_offer(loop->job->mirror, event.step);
    } else {
        loop->last_saved = -1;
        snprintf(loop->save_failure, sizeof loop->save_failure, "%s", event.reason);
    }
    if (tern_loop_is_first_rank(loop)) {
        report_save(loop, &event);
    }
    if (event.is_done) {
        tern_reclaim_note(loop->job, TERN_PLANNER_COMMIT, event.seconds, event.bytes);
    }
}

/* Copies the state as it is: for disk, or (is_save false) to stay in memory. */
static tern_status keep_state(struct tern_loop *loop, bool is_save)
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

tern_status tern_loop_begin_save(struct tern_loop *loop)
{
    tern_status status = keep_state(loop, true);
    loop->last_saved = loop->job->state.step;
    loop->last_save_time = tern_clock_seconds();
    loop->is_save_due = false;
    tern_notice_clear_save();
    return status;
}

tern_status tern_loop_snapshot(struct tern_loop *loop)
{
    return keep_state(loop, false);
}

/* Waits for the save under way, if any. *is_saved_out: the state as it is now is a committed
 * checkpoint on all ranks. */
static tern_status settle_saves(struct tern_loop *loop, bool *is_saved_out)
{
    struct tern_job *job = loop->job;
    TERN_RETURN_IF_ERR(tern_saver_finish(job->saver));
    tern_loop_hear(loop);
    int64_t is_missing = loop->last_saved != job->state.step;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &is_missing, 1));
    *is_saved_out = !is_missing;
    return TERN_OK;
}

tern_status tern_loop_save_now(struct tern_loop *loop)
{
    struct tern_job *job = loop->job;
    bool is_saved;
    TERN_RETURN_IF_ERR(settle_saves(loop, &is_saved));
    for (int tries = 0; !is_saved && tries < LAST_TRIES; tries++) {
        TERN_RETURN_IF_ERR(tern_loop_begin_save(loop));
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

bool tern_loop_save_is_due(const struct tern_loop *loop)
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
