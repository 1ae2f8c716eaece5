/* job.c - opening a run: config, ranks, directory, data, device, memory, state; each failure known
 * to all ranks. */
#include "runtime/train/job.h"

#include "io/hash.h"
#include "io/packs.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/prepare.h"
#include "runtime/observe/step_log.h"
#include "runtime/plan/compute.h"
#include "runtime/reclaim/notice.h"
#include "runtime/train/agree.h"
#include "runtime/train/cursor.h"
#include "runtime/train/fetch.h"
#include "runtime/train/keep.h"
#include "runtime/train/resume.h"
#include "runtime/train/snapshots.h"

#include <inttypes.h>
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

/* ---- data ---- */

/* What a pattern of conversations means: prefixes of what was prepared, one block each. */
static tern_status prepare_chats(const struct tern_job *job,
                                 const struct tern_config_strings *files,
                                 const char *cache,
                                 char **prefixes)
{
    char prefix[TERN_PATH_BYTES];
    for (int i = 0; i < files->count; i++) {
        TERN_RETURN_IF_ERR(
            tern_chat_cache(files->items[i], job->template, job->tokenizer, cache, prefix));
        prefixes[i] = tern_strdup("data", prefix);
        if (prefixes[i] == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate the name of '%s'", files->items[i]);
        }
    }
    return TERN_OK;
}

static void say_packed(const struct tern_job *job,
                       const char *key,
                       const struct tern_tokens *tokens)
{
    struct tern_packs_summary sum;
    char documents[TERN_TEXT_BYTES_BYTES], learned[TERN_TEXT_BYTES_BYTES];
    int64_t length = job->config.train.sequence_length;
    int64_t packs = tern_tokens_epoch_samples(tokens);
    tern_tokens_packed(tokens, &sum);
    tern_log_info("%s: %s conversations in %" PRId64 " sequences (%.1f%% full), %s tokens to learn",
                  key, tern_text_commas(sum.documents, documents), packs,
                  100.0 * (double)sum.places / ((double)packs * (double)length),
                  tern_text_commas(sum.learned, learned));
    if (sum.cut > 0) {
        tern_log_warn("%s: %" PRId64 " conversations are longer than train.sequence_length %" PRId64
                      " and are cut there; %" PRId64
                      " are left out, with nothing to learn before it",
                      key, sum.cut, length, sum.dropped);
    }
}

static tern_status open_tokens(struct tern_job *job,
                               const char *key,
                               const struct tern_config_strings *files,
                               const double *weights,
                               bool shuffle,
                               const char *cache,
                               struct tern_tokens **out)
{
    bool is_chat = job->config.data.format == TERN_DATA_CHAT;
    char **prefixes = tern_alloc_zero("data", (size_t)files->count + 1, sizeof *prefixes);
    tern_status status = TERN_OK;
    if (prefixes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d names", files->count);
    }
    struct tern_tokens_options options = {
        .patterns = (const char *const *)(is_chat ? prefixes : files->items),
        .pattern_count = files->count,
        .weights = weights,
        .tokenizer = job->tokenizer,
        .cache_dir = cache,
        .sequence_length = job->config.train.sequence_length,
        .vocab_size = job->config.model.vocab_size,
        .seed = (uint64_t)job->config.train.seed,
        .shuffle = shuffle,
        .is_packed = is_chat,
    };
    status = is_chat ? prepare_chats(job, files, cache, prefixes) : TERN_OK;
    status = status == TERN_OK ? tern_tokens_open(&options, out) : status;
    for (int i = 0; i < files->count; i++) {
        tern_free(prefixes[i]);
    }
    tern_free(prefixes);
    if (status == TERN_OK && is_chat && job->comm->rank == 0) {
        say_packed(job, key, *out);
    }
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", key);
}

static tern_status open_data_here(struct tern_job *job)
{
    char cache[TERN_PATH_BYTES];
    const struct tern_config_data *data = &job->config.data;
    TERN_RETURN_IF_ERR(tern_path_join(cache, job->run.path, "data"));
    if (data->format == TERN_DATA_CHAT && job->template == NULL) {
        TERN_RETURN_IF_ERR(tern_template_open(data->tokenizer, NULL, &job->template));
    }
    TERN_RETURN_IF_ERR(open_tokens(job, "data.train", &data->train,
                                   data->weights.count > 0 ? data->weights.items : NULL, true,
                                   cache, &job->train));
    tern_tokens_digest(job->train, job->data_id);
    if (data->val.count == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(open_tokens(job, "data.val", &data->val, NULL, false, cache, &job->val));
    int64_t available = tern_tokens_epoch_samples(job->val);
    int64_t wanted = job->config.train.eval_tokens / job->config.train.sequence_length;
    wanted = wanted < 1 ? 1 : wanted;
    job->eval_sequences = wanted < available ? wanted : available;
    return TERN_OK;
}

/* Text is tokenised once, by rank 0, before the others look for the result. */
static tern_status open_data(struct tern_job *job)
{
    tern_status status = job->comm->rank == 0 ? open_data_here(job) : TERN_OK;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    status = job->comm->rank != 0 ? open_data_here(job) : TERN_OK;
    return tern_agree(job->comm, status);
}

/* For a dry run: the files are there; nothing is tokenised. */
static tern_status find_data(const struct tern_job *job)
{
    const struct {
        const char *key;
        const struct tern_config_strings *list;
    } keys[] = {{"data.train", &job->config.data.train}, {"data.val", &job->config.data.val}};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < keys[k].list->count; i++) {
            tern_status status = tern_tokens_find(keys[k].list->items[i]);
            if (status != TERN_OK) {
                return tern_fail_prefix(status, "%s", keys[k].key);
            }
        }
    }
    return TERN_OK;
}

/* ---- device and memory ---- */

static bool has_own_memory(const struct tern_job *job)
{
    return tern_compute_has_memory(&job->devices, NULL);
}

/* Of the device itself, not of the host. */
static tern_status open_queues(struct tern_job *job)
{
    struct tern_device *device = job->devices.device;
    const struct tern_device_table *table = device->ops->device;
    if (!has_own_memory(job)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(table->queue(device, "read", &job->reader));
    TERN_RETURN_IF_ERR(table->queue(device, "batch", &job->uploader));
    return table->queue(device, "copy", &job->copier);
}

static tern_status open_devices(struct tern_job *job)
{
    const struct tern_comm_farewell farewell = {tern_vitals_lose_peer, job};
    TERN_RETURN_IF_ERR(tern_compute_open(job->comm, &farewell, &job->devices));
    return tern_agree(job->comm, open_queues(job));
}

static struct tern_pass_options pass_options(const struct tern_job *job)
{
    return (struct tern_pass_options){
        .batch = job->config.train.micro_batch,
        .sequence = job->config.train.sequence_length,
        .recompute = job->config.train.recompute,
        .logits_bytes = has_own_memory(job) ? TERN_LOGITS_BYTES_GPU : 0,
        .backward = true,
        .lora = job->has_lora ? &job->lora : NULL,
    };
}

static void write_bills(struct tern_job *job, size_t workspace)
{
    struct tern_pass_options options = pass_options(job);
    struct tern_state_bytes state = tern_train_state_bytes(&job->state);
    struct tern_bill *device = has_own_memory(job) ? &job->device_bill : &job->bill;
    struct tern_bill *host = &job->bill;
    job->device_bill.where = "GPU memory";
    int64_t batch = 4 * job->config.train.global_batch * job->config.train.sequence_length *
                    job->state.plan.lane_count / job->config.train.lanes * (int64_t)sizeof(int32_t);
    if (job->has_lora) {
        int64_t size = job->model.params.flat_size * (int64_t)tern_dtype_bytes(job->model.dtype);
        tern_bill_add(device, "frozen weights", size);
    }
    tern_bill_add(device, job->has_lora ? "adapters" : "weights", state.weights);
    tern_bill_add(device, "fp32 master weights", state.master);
    tern_bill_add(device, "AdamW moments", state.moments);
    tern_bill_add(device, "gradients", state.gradients);
    tern_bill_add(device, "activations and logits",
                  (int64_t)tern_pass_bytes(&job->model, &options));
    tern_bill_add(device, "kernel workspace", (int64_t)workspace);
    tern_bill_add(device, "reduction and norm",
                  state.reduce +
                      tern_stepper_bytes(&job->config, &job->state, has_own_memory(job)));
    tern_bill_add(host, "checkpoint staging", tern_job_staging_bytes(job));
    if (job->mirror != NULL) {
        tern_bill_add(host, "uploads", tern_mirror_bytes());
    }
    tern_bill_add(host, "snapshots in memory", job->memory_plan.bytes);
    tern_bill_add(host, "batches", batch);
    tern_bill_add(host, "program and libraries", tern_rss_bytes());
}

static tern_status plan_adapters(struct tern_job *job)
{
    const struct tern_config_lora *lora = &job->config.lora;
    const struct tern_lora_config config = {
        .rank = lora->rank,
        .alpha = lora->alpha,
        .targets = (const char *const *)lora->targets.items,
        .target_count = lora->targets.count,
    };
    if (lora->rank == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_lora_init(&job->lora, &job->model, &config));
    job->has_lora = true;
    return TERN_OK;
}

double tern_job_flops_per_token(const struct tern_job *job)
{
    int64_t sequence = job->config.train.sequence_length;
    return job->has_lora ? tern_lora_train_flops_per_token(&job->lora, sequence)
                         : tern_model_train_flops_per_token(&job->model, sequence);
}

/* What is trained, and which part of it is this rank's. */
static tern_status plan_state(struct tern_job *job)
{
    enum tern_dtype dtype =
        job->config.train.precision == TERN_PRECISION_BF16 ? TERN_BF16 : TERN_F32;
    TERN_RETURN_IF_ERR(tern_model_init(&job->model, &job->config.model, dtype));
    job->has_model = true;
    TERN_RETURN_IF_ERR(plan_adapters(job));
    const struct tern_params *trained = job->has_lora ? &job->lora.params : &job->model.params;
    TERN_RETURN_IF_ERR(tern_train_state_plan(&job->state, trained, dtype, job->comm,
                                             (int)job->config.train.lanes,
                                             has_own_memory(job) ? TERN_LANE_CHUNK_GPU : 0));
    job->has_state = true;
    struct tern_pass_options options = pass_options(job);
    struct tern_op_limits limits = tern_pass_limits(&job->model, &options);
    limits.may_tune = !job->config.train.deterministic;
    enum tern_ledger_kind before = tern_ledger_enter(&job->vitals.ledger, TERN_LEDGER_COMPILE);
    TERN_RETURN_IF_ERR(tern_device_prepare(job->devices.device, &limits, &job->workspace_bytes));
    tern_ledger_enter(&job->vitals.ledger, before);
    return TERN_OK;
}

static void print_plan(const struct tern_job *job, int64_t available, int64_t device_available)
{
    char count[TERN_TEXT_BYTES_BYTES];
    tern_log_line(
        "model %s, %s parameters, %s on %s (%s), %d rank%s x %d thread%s",
        job->config.model.preset[0] != '\0' ? job->config.model.preset
                                            : tern_family_name((int)job->config.model.family),
        tern_text_commas(job->model.params.parameter_count, count),
        job->model.dtype == TERN_BF16 ? "bf16" : "fp32", job->devices.device->ops->device->name,
        tern_device_isa(job->devices.device), job->comm->size, job->comm->size == 1 ? "" : "s",
        tern_device_threads(job->devices.device),
        tern_device_threads(job->devices.device) == 1 ? "" : "s");
    if (job->has_lora) {
        tern_log_line("adapters of rank %lld, %s parameters, are trained; the model is frozen",
                      (long long)job->lora.rank,
                      tern_text_commas(job->lora.params.parameter_count, count));
    }
    if (job->device_bill.count > 0) {
        tern_bill_print(&job->device_bill, 1, device_available);
    }
    tern_bill_print(&job->bill, job->comm->local_size, available);
}

static tern_status check_bills(struct tern_job *job, bool print)
{
    int64_t available = tern_memory_available_bytes();
    int64_t device_available = 0;
    int64_t device_total = 0;
    if (has_own_memory(job)) { /* the workspace is on the bill, and taken */
        TERN_RETURN_IF_ERR(job->devices.device->ops->device->memory(
            job->devices.device, &device_available, &device_total));
        device_available += (int64_t)job->workspace_bytes;
    }
    if (print) {
        print_plan(job, available, device_available);
    }
    if (job->device_bill.count > 0) {
        TERN_RETURN_IF_ERR(tern_bill_check(&job->device_bill, 1, device_available));
    }
    return tern_bill_check(&job->bill, job->comm->local_size, available);
}

/* Snapshots are a choice, training is not: with too little memory for both they are off. */
static tern_status plan_snapshots(struct tern_job *job)
{
    write_bills(job, job->workspace_bytes);
    int64_t block = 0;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_job_block_bytes(job, &block)));
    int64_t needed = tern_bill_total(&job->bill) + 2 * block;
    bool fits = needed < tern_memory_available_bytes() / job->comm->local_size * 95 / 100;
    TERN_RETURN_IF_ERR(tern_job_plan_memory(job, block, fits));
    job->bill.count = job->device_bill.count = 0; /* again, with them */
    write_bills(job, job->workspace_bytes);
    return TERN_OK;
}

static tern_status plan_memory(struct tern_job *job, bool print)
{
    TERN_RETURN_IF_ERR(tern_agree(job->comm, plan_state(job)));
    TERN_RETURN_IF_ERR(plan_snapshots(job));
    return tern_agree(job->comm, check_bills(job, print));
}

static tern_status take_memory(struct tern_job *job)
{
    struct tern_pass_options options = pass_options(job);
    job->state.data_comm = job->devices.data_comm != NULL ? job->devices.data_comm : job->comm;
    job->state.copier = job->copier;
    job->peak_flops =
        tern_device_peak_flops(job->devices.device, job->model.dtype) * job->comm->size;
    TERN_RETURN_IF_ERR(tern_train_state_alloc(&job->state, job->devices.device));
    TERN_RETURN_IF_ERR(tern_train_state_adopt(&job->state));
    TERN_RETURN_IF_ERR(tern_pass_create(&job->model, job->devices.device, &options, &job->pass));
    struct tern_stepper_queues queues = {
        .compute = job->devices.device,
        .comm = job->devices.comm_device,
        .reader = job->reader,
        .uploader = job->uploader,
    };
    return tern_stepper_create(&job->config, &job->state, &queues, job->pass, &job->stepper);
}

/* What keeps the state: memory first. */
static tern_status open_saver(struct tern_job *job)
{
    TERN_RETURN_IF_ERR(tern_job_open_memory(job));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_mirror_start(job->mirror, job->run.path)));
    return tern_agree(job->comm, tern_saver_create(&job->config, job->run.path, &job->state,
                                                   job->memory, &job->saver));
}

/* ---- the start ---- */

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
    TERN_RETURN_IF_ERR(tern_agree(job->comm, find_data(job)));
    return plan_memory(job, job->comm->rank == 0);
}

tern_status tern_job_open(struct tern_job *job, const struct tern_train_options *options)
{
    tern_text_init(&job->config_yaml);
    job->pulled_step = -1;
    TERN_RETURN_IF_ERR(join_ranks(job, options));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_train_fetch_data(&job->config.data)));
    TERN_RETURN_IF_ERR(open_devices(job));
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
    TERN_RETURN_IF_ERR(open_data(job));
    TERN_RETURN_IF_ERR(plan_memory(job, job->comm->rank == 0));
    TERN_RETURN_IF_ERR(tern_agree(job->comm, take_memory(job)));
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
