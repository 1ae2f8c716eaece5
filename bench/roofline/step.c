/* step.c - a plan's memory, and its step: the state, pass and stepper of a run, on the counting backend. */
#include "runtime/train/step.h"

#include "bench/roofline/roofline.h"
#include "runtime/base/mem.h"

static const double CONTEXT_BYTES = 1e9; /* a CUDA context, cuBLASLt's and NCCL's own */
static const double MARGIN = 0.97;       /* of what is free, as plan/bill.c has it */

/* All of a run, built in this order. */
struct run {
    struct tern_train_config config;
    struct tern_model model;
    struct tern_train_state state;
    struct tern_device *device, *comm_device, *reader, *uploader;
    struct tern_device *host;       /* whose time words between hosts take */
    struct tern_comm *words, *data; /* between hosts; between GPUs */
    struct tern_pass *pass;
    struct tern_stepper *stepper;
    int32_t *tokens; /* (own sequences, T), zeros: inputs and targets alike */
};

static void run_fini(struct run *run)
{
    tern_free(run->tokens);
    tern_stepper_destroy(run->stepper);
    tern_pass_destroy(run->pass);
    if (run->state.buckets != NULL) {
        tern_train_state_fini(&run->state);
    }
    tern_comm_close(run->data);
    tern_comm_close(run->words);
    struct tern_device *queues[] = {run->host, run->uploader, run->reader, run->comm_device,
                                    run->device};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        if (queues[i] != NULL) {
            queues[i]->ops->device->close(queues[i]);
        }
    }
    if (run->model.layers != NULL) {
        tern_model_fini(&run->model);
    }
}

static struct tern_pass_options pass_options(const struct tern_roof_plan *plan)
{
    return (struct tern_pass_options){
        .batch = plan->micro_batch,
        .sequence = plan->sequence,
        .recompute = plan->recompute,
        .logits_bytes = TERN_LOGITS_BYTES_GPU,
        .backward = true,
    };
}

/* Config, model, queues, communicators, ownership: no memory of the GPU's. */
static tern_status run_init(struct run *run, const struct tern_roof_plan *plan)
{
    const struct tern_roof_assumptions *assumed = &plan->gpu.assumed;
    *run = (struct run){
        .config = {.train = {.sequence_length = plan->sequence,
                             .global_batch = plan->global_batch,
                             .micro_batch = plan->micro_batch,
                             .lanes = plan->lanes},
                   .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad_norm = 1}}};
    if (!tern_preset_find(plan->preset, &run->config.model)) {
        return tern_fail(TERN_ERR_USAGE, "there is no model preset '%s'", plan->preset);
    }
    TERN_RETURN_IF_ERR(tern_model_init(&run->model, &run->config.model, TERN_BF16));
    TERN_RETURN_IF_ERR(tern_roof_device_open(&plan->gpu, &run->device));
    TERN_RETURN_IF_ERR(tern_roof_device_open(&plan->gpu, &run->comm_device));
    TERN_RETURN_IF_ERR(tern_roof_device_open(&plan->gpu, &run->reader));
    TERN_RETURN_IF_ERR(tern_roof_device_open(&plan->gpu, &run->uploader));
    TERN_RETURN_IF_ERR(tern_roof_device_open(&plan->gpu, &run->host));
    TERN_RETURN_IF_ERR(tern_roof_comm_open(plan->ranks, run->host, run->host,
                                           assumed->words_seconds, 1e9, &run->words));
    TERN_RETURN_IF_ERR(tern_roof_comm_open(plan->ranks, run->device, run->comm_device,
                                           assumed->exchange_seconds, plan->gpu.machine->exchange,
                                           &run->data));
    return tern_train_state_plan(&run->state, &run->model.params, TERN_BF16, run->words,
                                 plan->lanes, TERN_LANE_CHUNK_GPU);
}

static tern_status run_build(struct run *run, const struct tern_roof_plan *plan)
{
    struct tern_pass_options options = pass_options(plan);
    run->state.data_comm = run->data;
    TERN_RETURN_IF_ERR(tern_train_state_alloc(&run->state, run->device));
    TERN_RETURN_IF_ERR(tern_pass_create(&run->model, run->device, &options, &run->pass));
    struct tern_stepper_queues queues = {run->device, run->comm_device, run->reader, run->uploader};
    TERN_RETURN_IF_ERR(
        tern_stepper_create(&run->config, &run->state, &queues, run->pass, &run->stepper));
    size_t own = (size_t)(plan->global_batch / plan->ranks * plan->sequence);
    run->tokens = tern_alloc_zero("roofline", own, sizeof *run->tokens);
    return run->tokens != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for a batch");
}

static tern_status run_step(struct run *run)
{
    struct tern_step_word mine = {0};
    const struct tern_step_word *words;
    struct tern_step_result result;
    TERN_RETURN_IF_ERR(tern_stepper_begin(run->stepper, run->tokens, run->tokens, NULL));
    if (tern_stepper_is_pending(run->stepper)) { /* the host reads while the device works */
        TERN_RETURN_IF_ERR(tern_stepper_settle(run->stepper, &result));
    }
    return tern_stepper_end(run->stepper, 1e-3, &mine, &words);
}

tern_status tern_roof_plan_bytes(struct tern_roof_plan *plan)
{
    struct run run;
    tern_status status;
    size_t workspace = 0;
    TERN_GOTO_IF_ERR(status, run_init(&run, plan), out);
    struct tern_pass_options options = pass_options(plan);
    struct tern_op_limits limits = tern_pass_limits(&run.model, &options);
    TERN_GOTO_IF_ERR(status, tern_device_prepare(run.device, &limits, &workspace), out);
    struct tern_state_bytes state = tern_train_state_bytes(&run.state);
    plan->bytes = state.weights + state.master + state.moments + state.gradients + state.reduce +
                  (int64_t)tern_pass_bytes(&run.model, &options) + (int64_t)workspace +
                  tern_stepper_bytes(&run.config, &run.state, true);
out:
    run_fini(&run);
    return status;
}

/* What was counted since `before`. */
static void subtract(struct tern_roof_count *now, const struct tern_roof_count *before)
{
    for (int i = 0; i < before->row_count; i++) {
        now->rows[i].calls -= before->rows[i].calls;
        now->rows[i].seconds -= before->rows[i].seconds;
        now->rows[i].flops -= before->rows[i].flops;
        now->rows[i].bytes -= before->rows[i].bytes;
    }
}

static void read_run(const struct run *run, struct tern_roof_step *out)
{
    out->seconds = tern_roof_device_now(run->device);
    out->exposed_seconds = tern_roof_comm_exposed(run->data);
    out->link_bytes = (double)run->data->counters.bytes_sent;
    out->exchanges = run->data->counters.exchanges;
    out->compute = *tern_roof_device_count(run->device);
    out->comm = *tern_roof_device_count(run->comm_device);
}

tern_status tern_roof_step_run(const struct tern_roof_plan *plan, struct tern_roof_step *out)
{
    struct run run;
    struct tern_roof_step first;
    tern_status status;
    TERN_GOTO_IF_ERR(status, run_init(&run, plan), out);
    TERN_GOTO_IF_ERR(status, run_build(&run, plan), out);
    /* the second step is the first that begins under the weights' way back from the one before */
    TERN_GOTO_IF_ERR(status, run_step(&run), out);
    read_run(&run, &first);
    TERN_GOTO_IF_ERR(status, run_step(&run), out);
    read_run(&run, out);
    out->seconds -= first.seconds;
    out->exposed_seconds -= first.exposed_seconds;
    out->link_bytes -= first.link_bytes;
    out->exchanges -= first.exchanges;
    subtract(&out->compute, &first.compute);
    subtract(&out->comm, &first.comm);
    double tokens = (double)(plan->global_batch * plan->sequence) / plan->ranks;
    out->tokens_per_second = tokens / out->seconds;
    out->model_flops = tokens * tern_model_train_flops_per_token(&run.model, plan->sequence);
    out->mfu = out->model_flops / out->seconds / plan->gpu.machine->bf16;
out:
    run_fini(&run);
    return status;
}

static bool fits(const struct tern_roof_plan *plan)
{
    double bytes = plan->gpu.machine->memory_gib * (1 << 30);
    return (double)plan->bytes <= (bytes - CONTEXT_BYTES) * MARGIN;
}

tern_status tern_roof_plan_fit(struct tern_roof_plan *plan,
                               bool *fits_out,
                               struct tern_roof_step *step_out)
{
    static const enum tern_recompute kinds[] = {TERN_RECOMPUTE_NONE, TERN_RECOMPUTE_ATTENTION,
                                                TERN_RECOMPUTE_BLOCK};
    *fits_out = false;
    for (int i = 0; i < 3; i++) {
        struct tern_roof_plan tried = *plan;
        struct tern_roof_step step;
        tried.recompute = kinds[i];
        tried.micro_batch = plan->global_batch / plan->lanes;
        TERN_RETURN_IF_ERR(tern_roof_plan_bytes(&tried));
        while (!fits(&tried) && tried.micro_batch > 1) {
            tried.micro_batch /= 2;
            TERN_RETURN_IF_ERR(tern_roof_plan_bytes(&tried));
        }
        if (!fits(&tried)) {
            *plan = *fits_out ? *plan : tried;
            continue;
        }
        TERN_RETURN_IF_ERR(tern_roof_step_run(&tried, &step));
        if (!*fits_out || step.seconds < step_out->seconds) {
            *plan = tried;
            *step_out = step;
            *fits_out = true;
        }
    }
    return TERN_OK;
}
