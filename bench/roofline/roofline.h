/* roofline.h - a training step counted op by op and timed by a table of assumptions, nothing run: a backend whose ops
 * only move a clock, under the real stepper. Inside bench/roofline. */
#ifndef TERN_BENCH_ROOFLINE_ROOFLINE_H
#define TERN_BENCH_ROOFLINE_ROOFLINE_H

#include "comm/comm.h"
#include "models/transformer.h"

enum {
    TERN_ROOF_LABEL_BYTES = 72,
    TERN_ROOF_ROWS_MAX = 96,
    TERN_ROOF_TICKETS_MAX = 4096
};

/* A GPU: what its sheet says, and what the best known kernels reach on it. FLOP/s and bytes/s. */
struct tern_roof_machine {
    const char *name;
    int multiprocessors;
    double memory_gib; /* that cudaMemGetInfo finds in all */
    double bf16, f32;  /* peaks, dense */
    double bytes;      /* memory bandwidth */
    double gemm;       /* best bf16 product of any shape */
    double attention;  /* forward, causal, T = 4096, D = 128, only visible pairs counted */
    double bus,
        exchange; /* 8 GPUs: all-reduce bus bandwidth; a pair, each way at once, by send and receive */
};

/* What is assumed of every machine. Each figure is printed beside the prediction. */
struct tern_roof_assumptions {
    double memory_share; /* of bandwidth, memory-bound ops */
    double gemm_fill;    /* k at which filling the pipeline costs as much as the product itself */
    double gemm_tile_small;    /* rate of 128 x 128 tiles, of that of 128 x 256 */
    double gemm_unaligned;     /* rate when rows are no multiple of 16 bytes apart */
    double attention_narrow;   /* rate at D <= 64, of that at 128 */
    double attention_backward; /* rate of the backward's products, of the forward's */
    double attention_products; /* products of the backward kernels, of the 5 of the formula */
    int dq_block_keys; /* backward: fp32 sums of dq leave each block of so many keys for memory, and come back
                                  to be added; 0: none do */
    double attention_speedup; /* of other kernels, over the rate in the machine's row */
    double gap_seconds;       /* between two kernels of a CUDA graph */
    double addition_seconds;  /* in double, when each needs the one before */
    double exchange_seconds;  /* latency of one exchange between GPUs */
    double words_seconds;     /* of one between hosts */
};

extern const struct tern_roof_machine tern_roof_machines[];
extern const int tern_roof_machine_count;
/* The kernels as they are. */
extern const struct tern_roof_assumptions tern_roof_assumed;

/* A machine and what is assumed of it. */
struct tern_roof_gpu {
    const struct tern_roof_machine *machine;
    struct tern_roof_assumptions assumed;
};

/* One kind of work: an op, a product of one shape, or a copy. */
struct tern_roof_row {
    char label[TERN_ROOF_LABEL_BYTES];
    int64_t calls;
    double seconds, flops, bytes;
    bool is_product; /* its FLOPs are a model's: gemm and attention */
};

/* What one queue did. */
struct tern_roof_count {
    struct tern_roof_row rows[TERN_ROOF_ROWS_MAX];
    int row_count;
};

/* Time that an op takes on a machine, seconds, without the gap before the next one. */
double tern_roof_gemm_seconds(const struct tern_roof_gpu *, const struct tern_gemm_args *);
double tern_roof_attention_seconds(const struct tern_roof_gpu *,
                                   const struct tern_attention_args *,
                                   bool backward);
double tern_roof_memory_seconds(const struct tern_roof_gpu *, double flops, double bytes);

/* A queue of the counting backend; its memory is never touched but by uploads and downloads. Owned: close. */
TERN_MUST_CHECK tern_status tern_roof_device_open(const struct tern_roof_gpu *gpu,
                                                  struct tern_device **out);
/* When everything enqueued so far is done, seconds since it was opened; set moves it forward. */
double tern_roof_device_now(const struct tern_device *device);
void tern_roof_device_wait_until(struct tern_device *device, double seconds);
const struct tern_roof_count *tern_roof_device_count(const struct tern_device *device);

/* Rank 0 of `ranks` whose other ranks do the same at the same time. Jobs run on `queue` after what `compute` has; messages
 * take latency_seconds and their bytes at bytes_per_second. queue may be compute: then nothing overlaps. Owned: close. */
TERN_MUST_CHECK tern_status tern_roof_comm_open(int ranks,
                                                struct tern_device *compute,
                                                struct tern_device *queue,
                                                double latency_seconds,
                                                double bytes_per_second,
                                                struct tern_comm **out);
/* Seconds that compute stood still for it, so far. */
double tern_roof_comm_exposed(const struct tern_comm *comm);

/* One way to train: what is given, and what `fit` chooses. */
struct tern_roof_plan {
    const char *preset;
    struct tern_roof_gpu gpu;
    int ranks, lanes;
    int64_t sequence, global_batch; /* of all ranks, sequences */
    int64_t micro_batch;
    enum tern_recompute recompute;
    int64_t bytes; /* of one GPU */
};

/* A step in the steady state, of one GPU of the group. */
struct tern_roof_step {
    double seconds, tokens_per_second; /* tokens of one GPU */
    double mfu;
    double model_flops;     /* of this GPU's tokens, by tern_model_train_flops_per_token */
    double exposed_seconds; /* waited for other ranks */
    double link_bytes;      /* sent to other GPUs */
    int64_t exchanges;
    struct tern_roof_count compute, comm;
};

/* GPU memory of a plan with its micro_batch and recompute: what `tern train` would put on its bill. */
TERN_MUST_CHECK tern_status tern_roof_plan_bytes(struct tern_roof_plan *plan);
/* The fastest micro_batch and recompute that fit, and its step; *fits_out false: none does, plan says the least. */
TERN_MUST_CHECK tern_status tern_roof_plan_fit(struct tern_roof_plan *plan,
                                               bool *fits_out,
                                               struct tern_roof_step *step_out);
/* The real stepper's step on the counting backend. */
TERN_MUST_CHECK tern_status tern_roof_step_run(const struct tern_roof_plan *plan,
                                               struct tern_roof_step *out);

#endif
