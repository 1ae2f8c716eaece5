/* job.c - opening a run: config, ranks, directory, and all that job_parts.h lists, to the first
 * batch; each failure known to all ranks. */
#include "runtime/train/job.h"

#include "io/hash.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/agree.h"
#include "runtime/train/cursor.h"
#include "runtime/train/fetch.h"
#include "runtime/train/job_parts.h"
#include "runtime/train/keep.h"
#include "runtime/train/resume.h"
#include "runtime/train/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_status open_tokenizer(struct tern_job *job)
{
    if (job->config.data.tokenizer == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_open(job->config.data.tokenizer, &job->tokenizer));
    return job->is_finetuned ? tern_origin_check_tokenizer(&job->origin, job->tokenizer,
                                                           job->config.data.tokenizer)
                             : TERN_OK;
}

static tern_status check_config(struct tern_job *job)
{
    struct tern_model_config *model = &job->config.model;
    TERN_RETURN_IF_ERR(open_tokenizer(job));
    int64_t known = job->tokenizer != NULL ? tern_tokenizer_vocab_size(job->tokenizer) : 0;
    if (model->vocab_size == 0) {
        if (known == 0) {
            return tern_fail(TERN_ERR_CONFIG,
                             "model.vocab_size: not set, and data.tokenizer is not given either");
        }
        model->vocab_size = known;
    }
    if (known > model->vocab_size) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.vocab_size: found %lld, expected at least the tokenizer's %lld",
                         (long long)model->vocab_size, (long long)known);
    }
    TERN_RETURN_IF_ERR(tern_model_config_check(model));
    const struct tern_config_train *train = &job->config.train;
    job->steps = tern_train_config_steps(train);
    if (job->comm->size > train->lanes) {
        return tern_fail(TERN_ERR_CONFIG,
                         "train.lanes: found %lld, expected at least the number of ranks (%d); "
                         "more ranks than lanes "
                         "would have nothing to do",
                         (long long)train->lanes, job->comm->size);
    }
    if (job->is_finetuned) {
        TERN_RETURN_IF_ERR(tern_hf_config_print(model, NULL, TERN_F32, &job->model_json));
    }
    return tern_train_config_write(&job->config, &job->config_yaml);
}

uint64_t tern_job_digest_bits(const char *hex)
{
    char head[17];
    memcpy(head, hex, 16);
    head[16] = '\0';
    return strtoull(head, NULL, 16);
}

/* Same program, same configuration on all ranks. */
static tern_status check_ranks_equal(struct tern_job *job)
{
    char binary[TERN_HASH_HEX_BYTES];
    char config[TERN_HASH_HEX_BYTES];
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_hash_file("/proc/self/exe", binary)));
    tern_hash_bytes(job->config_yaml.data, job->config_yaml.length, config);
    TERN_RETURN_IF_ERR(
        tern_comm_check_equal(job->comm, "the tern program", tern_job_digest_bits(binary)));
    return tern_comm_check_equal(job->comm, "the configuration", tern_job_digest_bits(config));
}

/* ---- run directory ---- */

static tern_status open_memory_run(struct tern_job *job, const char *run_id)
{
    char digest[TERN_HASH_HEX_BYTES];
    tern_hash_bytes(job->config_yaml.data, job->config_yaml.length, digest);
    struct tern_memory_name name = {run_id, tern_job_digest_bits(digest) | 1};
    return tern_memory_run_open(job->run.path, job->run.launch_id, &name, &job->memory_run);
}

/* Rank 0: the directory is this launch's from here on; what is in it stays as it is until this
 * launch can train. */
static tern_status prepare_run_dir(struct tern_job *job, const struct tern_train_options *options)
{
    TERN_RETURN_IF_ERR(tern_run_dir_open(&job->run, options->run_dir, job->comm->size));
    if (options->launch_id != NULL && options->launch_id[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_run_dir_name(&job->run, options->launch_id));
    }
    TERN_RETURN_IF_ERR(tern_run_dir_record(&job->run, 0, "running", 0, "started"));
    TERN_RETURN_IF_ERR(tern_mirror_adopt(job->mirror, job->run.path));
    TERN_RETURN_IF_ERR(open_memory_run(job, options->run_id));
    TERN_RETURN_IF_ERR(tern_ckpt_clean(job->run.path));
    int existing = 0;
    TERN_RETURN_IF_ERR(tern_ckpt_list(job->run.path, NULL, 0, &existing));
    if (options->resume == TERN_RESUME_NEVER && existing > 0) {
        return tern_fail(
            TERN_ERR_CONFIG,
            "--resume never: %s holds %d checkpoint%s of an earlier run; choose another --run-dir",
            job->run.path, existing, existing == 1 ? "" : "s");
    }
    return tern_notice_clear_file(job->run.path);
}

static bool has_notice(const struct tern_job *job, const char *name)
{
    const struct tern_config_strings *notices = &job->config.reclaim.notices;
    for (int i = 0; i < notices->count; i++) {
        if (strcmp(notices->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Rank 0 prepares; the others learn its path and launch id. */
static tern_status open_run_dir(struct tern_job *job, const struct tern_train_options *options)
{
    TERN_RETURN_IF_ERR(tern_agree(
        job->comm, tern_mirror_create(&job->config.checkpoint, job->comm, &job->mirror)));
    tern_status status = job->comm->rank == 0 ? prepare_run_dir(job, options) : TERN_OK;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    struct tern_run_dir mine = job->run;
    TERN_RETURN_IF_ERR(tern_comm_broadcast(job->comm, &job->run, sizeof job->run, 0));
    job->run.lock = mine.lock;
    job->run.is_locked = mine.is_locked;
    TERN_RETURN_IF_ERR(tern_comm_broadcast(job->comm, &job->memory_run, sizeof job->memory_run, 0));
    atomic_store(&job->has_record, true);
    if (has_notice(job, "file")) {
        TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_notice_watch_file(job->run.path)));
    }
    return tern_agree(job->comm, tern_reclaim_start(job));
}

/* Rank 0, when the run is sure to go on with them: what it is made of, for whoever serves or
 * resumes it. */
static tern_status keep_inputs(const struct tern_job *job)
{
    char path[TERN_PATH_BYTES];
    if (job->comm->rank != 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_path_join(path, job->run.path, "config.yaml"));
    TERN_RETURN_IF_ERR(tern_file_replace(path, job->config_yaml.data, job->config_yaml.length));
    if (job->config.data.tokenizer != NULL) {
        TERN_RETURN_IF_ERR(tern_keep_tokenizer(job->config.data.tokenizer, job->run.path));
    }
    if (job->is_finetuned) {
        TERN_RETURN_IF_ERR(tern_keep_ids(&job->origin.ids, job->run.path));
        TERN_RETURN_IF_ERR(tern_keep_model(job->model_json.data, job->run.path));
    }
    return TERN_OK;
}

/* ---- the start ---- */

/* What keeps the state: memory first. */
static tern_status open_saver(struct tern_job *job)
{
    TERN_RETURN_IF_ERR(tern_job_open_memory(job));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_mirror_start(job->mirror, job->run.path)));
    return tern_agree(job->comm, tern_saver_create(&job->config, job->run.path, &job->state,
                                                   job->memory, &job->saver));
}

static tern_status start_batches(struct tern_job *job)
{
    const struct tern_config_train *train = &job->config.train;
    int64_t lane_size = train->global_batch / train->lanes;
    job->first_step = job->state.step;
    atomic_store(&job->steps_done, job->state.step);
    return tern_prefetch_start(
        job->train, train->global_batch, job->state.plan.first_lane * lane_size,
        job->state.plan.lane_count * lane_size, job->state.step, &job->prefetch);
}

tern_status tern_job_progress(const struct tern_job *job, struct tern_text *out)
{
    struct tern_cursor cursor = {
        .step = job->state.step,
        .updates = job->state.updates,
        .tokens = job->state.tokens,
        .samples = job->state.step * job->config.train.global_batch,
        .seed = job->config.train.seed,
    };
    snprintf(cursor.isa, sizeof cursor.isa, "%s", tern_device_isa(job->devices.device));
    snprintf(cursor.data_id, sizeof cursor.data_id, "%s", job->data_id);
    snprintf(cursor.base, sizeof cursor.base, "%s", job->base);
    cursor.model = job->model_json.data;
    snprintf(cursor.base_hash, sizeof cursor.base_hash, "%s", job->base_hash);
    return tern_cursor_write(&cursor, job->config_yaml.data, out);
}

static tern_status read_config_file(struct tern_job *job, const struct tern_train_options *options)
{
    if (options->model == NULL) {
        return tern_train_config_read(options->config_path, options->overrides,
                                      options->override_count, &job->config);
    }
    job->is_finetuned = true;
    TERN_RETURN_IF_ERR(tern_origin_open(&job->origin, options->model, options->run_dir));
    const struct tern_train_base base = {
        .name = job->origin.name,
        .model = &job->origin.model,
        .tokenizer = job->origin.tokenizer,
    };
    return tern_finetune_config_read(options->config_path, options->overrides,
                                     options->override_count, &base, &job->config);
}

/* The config is read and signals are caught before anybody waits for anybody. */
static tern_status read_config(struct tern_job *job, const struct tern_train_options *options)
{
    job->has_config = true;
    TERN_RETURN_IF_ERR(read_config_file(job, options));
    return has_notice(job, "signal") && !options->dry_run ? tern_notice_watch_signals() : TERN_OK;
}

/* All ranks, one program, one configuration. */
static tern_status join_ranks(struct tern_job *job, const struct tern_train_options *options)
{
    tern_status status = read_config(job, options);
    char problems[TERN_DETAIL_BYTES];
    snprintf(problems, sizeof problems, "%s", tern_detail());
    TERN_RETURN_IF_ERR(tern_comm_open(&job->comm));
    job->is_agreed = true;
    tern_log_set_rank(job->comm->rank, job->comm->size);
    tern_fault_set_rank(job->comm->rank);
    tern_detail_set(problems);
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, check_config(job)));
    return check_ranks_equal(job);
}

static tern_status open_dry(struct tern_job *job)
{
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_job_find_data(job)));
    return tern_job_plan(job, job->comm->rank == 0);
}

tern_status tern_job_open(struct tern_job *job, const struct tern_train_options *options)
{
    tern_text_init(&job->config_yaml);
    job->pulled_step = -1;
    TERN_RETURN_IF_ERR(join_ranks(job, options));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_train_fetch_data(&job->config.data)));
    TERN_RETURN_IF_ERR(tern_job_open_devices(job));
    if (options->dry_run) {
        return open_dry(job);
    }
    TERN_RETURN_IF_ERR(open_run_dir(job, options));
    TERN_RETURN_IF_ERR(tern_vitals_watch(job));
    TERN_RETURN_IF_ERR(tern_job_find_state(job, options->resume));
    if (job->found.is_there && job->found.step >= job->steps) {
        job->is_done = true;
        job->state.step = job->found.step;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_job_open_data(job));
    TERN_RETURN_IF_ERR(tern_job_plan(job, job->comm->rank == 0));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_job_take_memory(job)));
    TERN_RETURN_IF_ERR(open_saver(job));
    TERN_RETURN_IF_ERR(tern_job_open_state(job));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, keep_inputs(job)));
    tern_reclaim_warn(job);
    return tern_agree(job->comm, start_batches(job));
}

void tern_job_close(struct tern_job *job)
{
    tern_reclaim_settle(job);
    tern_reclaim_stop(&job->reclaim);
    tern_vitals_close(&job->vitals);
    tern_prefetch_stop(job->prefetch);
    tern_mirror_destroy(job->mirror);
    tern_saver_destroy(job->saver);
    tern_memory_destroy(job->memory);
    tern_memory_found_close(job->memory_found);
    tern_stepper_destroy(job->stepper);
    tern_pass_destroy(job->pass);
    tern_comm_close(job->devices.data_comm); /* before the blocks that it knows of */
    job->devices.data_comm = NULL;
    if (job->has_state) {
        tern_train_state_fini(&job->state);
    }
    if (job->has_lora) {
        tern_lora_fini(&job->lora);
    }
    if (job->has_model) {
        tern_model_fini(&job->model);
    }
    tern_origin_close(&job->origin);
    tern_device_close(job->copier);
    tern_device_close(job->uploader);
    tern_device_close(job->reader);
    tern_compute_close(&job->devices);
    tern_tokens_close(job->val);
    tern_tokens_close(job->train);
    tern_tokenizer_close(job->tokenizer);
    tern_template_close(job->template);
    tern_run_dir_close(&job->run);
    tern_comm_close(job->comm);
    if (job->has_config) {
        tern_train_config_fini(&job->config);
    }
    tern_text_fini(&job->config_yaml);
    tern_text_fini(&job->model_json);
}
