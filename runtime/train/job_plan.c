/* job_plan.c - the devices of a run and the memory on them: planned, printed as a bill, checked,
 * and only then taken. */
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/plan/compute.h"
#include "runtime/train/agree.h"
#include "runtime/train/job_parts.h"
#include "runtime/train/snapshots.h"

enum {
    SNAPSHOT_PERCENT = 95 /* of the available memory, for a bill with snapshots */
};

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

tern_status tern_job_open_devices(struct tern_job *job)
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

/* Anew, of what is planned now. */
static void write_bills(struct tern_job *job)
{
    struct tern_pass_options options = pass_options(job);
    struct tern_state_bytes state = tern_train_state_bytes(&job->state);
    struct tern_bill *device = has_own_memory(job) ? &job->device_bill : &job->bill;
    struct tern_bill *host = &job->bill;
    job->bill.count = job->device_bill.count = 0;
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
    tern_bill_add(device, "kernel workspace", (int64_t)job->workspace_bytes);
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

/* Snapshots are a choice, training is not: where the bill with them, copies for other hosts included, is more than the
 * memory of any rank, they are off. */
static tern_status plan_snapshots(struct tern_job *job)
{
    int64_t block = 0;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, tern_job_block_bytes(job, &block)));
    TERN_RETURN_IF_ERR(tern_job_plan_memory(job, block, true));
    write_bills(job);
    int64_t room = tern_memory_available_bytes() / job->comm->local_size / 100 * SNAPSHOT_PERCENT;
    int64_t is_short = job->memory_plan.is_on && tern_bill_total(&job->bill) > room;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &is_short, 1));
    if (is_short) {
        TERN_RETURN_IF_ERR(tern_job_plan_memory(job, block, false));
        write_bills(job);
    }
    return TERN_OK;
}

tern_status tern_job_plan(struct tern_job *job, bool print)
{
    TERN_RETURN_IF_ERR(tern_agree(job->comm, plan_state(job)));
    TERN_RETURN_IF_ERR(plan_snapshots(job));
    return tern_agree(job->comm, check_bills(job, print));
}

tern_status tern_job_take_memory(struct tern_job *job)
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
