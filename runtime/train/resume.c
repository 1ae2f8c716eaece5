/* resume.c - the state that a launch begins with, from wherever the newest of it is. */
#include "runtime/train/resume.h"

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/train/agree.h"
#include "runtime/train/snapshots.h"

#include <stdio.h>
#include <string.h>

/* ---- what there is ---- */

/* Rank 0: the newest good checkpoint, on disk or, where that is newer, from the bucket. */
static tern_status find_newest(struct tern_job *job)
{
    struct tern_job_checkpoint *found = &job->found;
    tern_status status = tern_ckpt_find(job->run.path, found->path, &found->step);
    if (job->mirror == NULL ||
        (status != TERN_OK && status != TERN_ERR_NOT_FOUND && status != TERN_ERR_CORRUPT)) {
        return status;
    }
    TERN_RETURN_IF_ERR(
        tern_mirror_pull(job->mirror, job->run.path, status, found->step, &job->pulled_step));
    return tern_ckpt_find(job->run.path, found->path, &found->step);
}

/* Rank 0 looks for the newest good checkpoint; all learn which. Damaged ones are no reason to end yet. */
static tern_status find_checkpoint(struct tern_job *job, enum tern_resume resume, char *problem)
{
    struct tern_job_checkpoint *found = &job->found;
    tern_status status = TERN_OK;
    if (job->comm->rank == 0 && resume == TERN_RESUME_NEVER) {
        status = tern_mirror_check_empty(job->mirror, job->run.path);
    }
    if (job->comm->rank == 0 && resume != TERN_RESUME_NEVER) {
        status = find_newest(job);
        found->is_there = status == TERN_OK;
        found->is_damaged = status == TERN_ERR_CORRUPT;
        snprintf(problem, TERN_DETAIL_BYTES, "%s", status != TERN_OK ? tern_detail() : "");
        bool is_none = status == TERN_ERR_NOT_FOUND || status == TERN_ERR_CORRUPT;
        status = is_none ? TERN_OK : status;
    }
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    return tern_comm_broadcast(job->comm, found, sizeof *found, 0);
}

/* Whether a run may begin anew, now that neither disk nor memory has anything to go on from. */
static tern_status check_none(const struct tern_job *job,
                              enum tern_resume resume,
                              const char *problem)
{
    if (job->found.is_damaged) {
        return tern_fail(TERN_ERR_CORRUPT, "%s; to start anew choose another --run-dir", problem);
    }
    return resume == TERN_RESUME_REQUIRED
               ? tern_fail(TERN_ERR_NOT_FOUND, "--resume required: %s", problem)
               : TERN_OK;
}

tern_status tern_job_find_state(struct tern_job *job, enum tern_resume resume)
{
    char problem[TERN_DETAIL_BYTES] = "";
    const struct tern_job_checkpoint *found = &job->found;
    TERN_RETURN_IF_ERR(find_checkpoint(job, resume, problem));
    bool is_done = found->is_there && found->step >= job->steps;
    if (resume != TERN_RESUME_NEVER && !is_done) {
        TERN_RETURN_IF_ERR(tern_memory_find(
            job->comm, &job->memory_run, found->is_there ? found->step : -1, &job->memory_found));
    }
    tern_memory_sweep(&job->memory_run, job->memory_found);
    bool is_none = !found->is_there && job->memory_found == NULL;
    return is_none ? tern_agree(job->comm, check_none(job, resume, problem)) : TERN_OK;
}

/* ---- from a checkpoint or a snapshot ---- */

static void warn_differences(const struct tern_job *job, const struct tern_cursor *cursor)
{
    if (job->comm->rank != 0) {
        return;
    }
    if (strcmp(cursor->isa, tern_device_isa(job->devices.device)) != 0) {
        tern_log_warn("the checkpoint was computed with CPU level %s, this machine uses %s: the "
                      "run goes on, its bits will "
                      "differ from one that stayed; TERN_CPU_ISA pins a level",
                      cursor->isa, tern_device_isa(job->devices.device));
    }
    if (cursor->seed != job->config.train.seed) {
        tern_log_warn("train.seed is %lld, the checkpoint's was %lld: the order of the data "
                      "changes from here on",
                      (long long)job->config.train.seed, (long long)cursor->seed);
    }
    if (cursor->data_id[0] != '\0' && strcmp(cursor->data_id, job->data_id) != 0) {
        tern_log_warn("data.train is not what the checkpoint was trained on (digest %s, the "
                      "checkpoint's was %s): the run goes on with what is there now",
                      job->data_id, cursor->data_id);
    }
    int64_t samples = cursor->step * job->config.train.global_batch;
    if (cursor->samples != samples) {
        tern_log_warn(
            "train.global_batch is %lld, the checkpoint's %lld steps took %lld sequences: "
            "the run goes on with sequence %lld, so some come again or are left out",
            (long long)job->config.train.global_batch, (long long)cursor->step,
            (long long)cursor->samples, (long long)samples);
    }
}

/* The state that goes with the tensors: whether this run may go on from it, and where it is. */
static tern_status take_cursor(struct tern_job *job, const char *json)
{
    struct tern_cursor cursor;
    TERN_RETURN_IF_ERR(tern_cursor_read(json, &cursor, NULL));
    if (job->is_finetuned && cursor.base[0] == '\0') {
        return tern_fail(TERN_ERR_CONFIG,
                         "is of a run that began from a seed, not as %s; choose "
                         "another --run-dir",
                         job->origin.name);
    }
    if (!job->is_finetuned && cursor.base[0] != '\0') {
        return tern_fail(TERN_ERR_CONFIG,
                         "is of a run that began as %s: 'tern finetune' goes on "
                         "with it",
                         cursor.base);
    }
    snprintf(job->base, sizeof job->base, "%s", cursor.base);
    snprintf(job->base_hash, sizeof job->base_hash, "%s", cursor.base_hash);
    job->state.step = cursor.step;
    job->state.updates = cursor.updates;
    job->state.tokens = cursor.tokens;
    snprintf(job->resumed_from, sizeof job->resumed_from, "step-%08lld", (long long)cursor.step);
    warn_differences(job, &cursor);
    return TERN_OK;
}

static tern_status restore(struct tern_job *job)
{
    struct tern_ckpt_reader *reader = NULL;
    tern_status status = TERN_OK;
    int error = tern_file_fault(TERN_FAULT_CKPT_RESTORE);
    if (error != 0) {
        status = tern_fail_errno(TERN_ERR_IO, error, "cannot read the checkpoint");
        goto out;
    }
    TERN_GOTO_IF_ERR(status, tern_ckpt_open(job->found.path, &reader), out);
    TERN_GOTO_IF_ERR(status, take_cursor(job, tern_ckpt_state_json(reader)), out);
    status = tern_train_state_load(&job->state, reader);
out:
    tern_ckpt_close(reader);
    return status != TERN_OK ? tern_fail_prefix(status, "%s", job->found.path) : TERN_OK;
}

struct filling {
    struct tern_train_state *state;
    int64_t elements; /* of this rank, so far */
};

static tern_status fill(void *context, const struct tern_ckpt_slab *rows)
{
    struct filling *filling = context;
    return tern_train_state_put(filling->state, rows, &filling->elements);
}

static tern_status read_memory(struct tern_job *job)
{
    struct filling filling = {.state = &job->state};
    char *json = NULL;
    tern_status status = tern_memory_found_read(job->memory_found, fill, &filling, &json);
    int64_t expected = tern_train_state_elements(&job->state);
    if (status == TERN_OK && filling.elements != expected) {
        status = tern_fail(TERN_ERR_CORRUPT, "it has %lld values of this rank, expected %lld",
                           (long long)filling.elements, (long long)expected);
    }
    status = status == TERN_OK ? take_cursor(job, json) : status;
    tern_free(json);
    return status != TERN_OK
               ? tern_fail_prefix(status, "the snapshot of step %lld in memory",
                                  (long long)tern_memory_found_step(job->memory_found))
               : TERN_OK;
}

/* The snapshot, if there is one. *is_done_out false: it can't be read, which is no reason to end while there are other
 * ways; one of another configuration is. Collective. */
static tern_status restore_memory(struct tern_job *job, bool *is_done_out)
{
    *is_done_out = false;
    if (job->memory_found == NULL) {
        return TERN_OK;
    }
    tern_status status = tern_agree(job->comm, read_memory(job));
    *is_done_out = status == TERN_OK;
    if (status == TERN_OK || status == TERN_ERR_CONFIG ||
        tern_status_blast(status) == TERN_BLAST_GROUP) {
        return status;
    }
    if (job->comm->rank == 0) {
        tern_log_warn("%s; going on without it", tern_detail());
    }
    tern_job_drop_found(job);
    job->state.step = job->state.updates = job->state.tokens = 0;
    job->base[0] = job->base_hash[0] = job->resumed_from[0] = '\0';
    return tern_train_state_clear(&job->state);
}

/* ---- the start of a run ---- */

/* A run of its own, or the MODEL's weights as they are. */
static tern_status begin(struct tern_job *job)
{
    if (!job->is_finetuned) {
        return tern_train_state_init(&job->state, (uint64_t)job->config.train.seed,
                                     job->devices.compute.threads);
    }
    struct tern_weights *weights = job->origin.weights;
    if (weights == NULL) { /* its checkpoints were there when the config was read */
        return tern_fail(TERN_ERR_CORRUPT, "%s: its checkpoints are gone", job->run.path);
    }
    snprintf(job->base, sizeof job->base, "%s", tern_weights_path(weights));
    if (job->comm->rank == 0) {
        tern_log_info("starting from %s", job->base);
    }
    return job->has_lora ? tern_train_state_init(&job->state, (uint64_t)job->config.train.seed,
                                                 job->devices.compute.threads)
                         : tern_train_state_adopt_model(&job->state, weights);
}

/* Adapters: the model beside them, the same on every rank and the same as ever. */
static tern_status freeze(struct tern_job *job)
{
    if (!job->has_lora) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(
        tern_agree(job->comm, tern_origin_freeze(&job->origin, job->base, &job->model,
                                                 job->devices.device, job->base_hash)));
    tern_pass_freeze(job->pass, job->origin.frozen);
    return tern_comm_check_equal(job->comm, "the model that is adapted",
                                 tern_job_digest_bits(job->base_hash));
}

/* Rank 0, on disk before the first step: whose snapshots count from now on. */
static tern_status record_source(const struct tern_job *job)
{
    const char *launch =
        job->memory_found != NULL ? tern_memory_found_launch(job->memory_found) : NULL;
    return job->comm->rank == 0 ? tern_memory_run_begin(job->run.path, job->run.launch_id, launch)
                                : TERN_OK;
}

/* Every rank has its own part before any waits for the others' parts. */
tern_status tern_job_open_state(struct tern_job *job)
{
    bool is_done;
    TERN_RETURN_IF_ERR(restore_memory(job, &is_done));
    if (is_done) {
        job->source = tern_memory_found_source(job->memory_found);
    } else {
        bool is_pulled = job->comm->rank == 0 && job->pulled_step == job->found.step;
        job->source = is_pulled ? "the bucket" : "disk";
        tern_status status = job->found.is_there ? restore(job) : begin(job);
        TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    }
    TERN_RETURN_IF_ERR(freeze(job));
    tern_origin_close_files(&job->origin);
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_train_state_publish(&job->state)));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, record_source(job)));
    if (job->resumed_from[0] != '\0' && job->comm->rank == 0) {
        tern_log_info("resuming from %s, step %lld of %lld, from %s", job->resumed_from,
                      (long long)job->state.step, (long long)job->steps, job->source);
    }
    return TERN_OK;
}
