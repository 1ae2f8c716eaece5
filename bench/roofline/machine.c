/* machine.c - the GPUs, what is assumed, and the time of an op. */
#include "bench/roofline/roofline.h"
#include "kernels/cost.h"

#include <math.h>

/* Sheets: NVIDIA's data sheets, dense. Products: H100 and H200 794 TFLOP/s, A100 271, B200 1745, the best of a search over
 * shapes (stas00/ml-engineering, "Maximum Achievable Matmul FLOPS"); L4 and RTX 4090: 80 % and 90 % of the sheet, assumed.
 * Attention: FlashAttention-2's 350 TFLOP/s on Hopper; elsewhere what mma.sync can do there, by the same share of its rate:
 * assumed. Bus: 8 GPUs, NVLink 480, 480, 235, 838 GB/s (nccl-tests, ml-engineering); a pair: rings without NVLS, 370, 361,
 * 235, 682. PCIe machines: assumed. */
const struct tern_roof_machine tern_roof_machines[] = {
    {"H100", 132, 79.1, 989e12, 67e12, 3.35e12, 794e12, 350e12, 480e9, 370e9},
    {"H200", 132, 139.8, 989e12, 67e12, 4.8e12, 794e12, 350e12, 480e9, 361e9},
    {"A100-80", 108, 79.2, 312e12, 19.5e12, 2.04e12, 271e12, 190e12, 235e9, 235e9},
    {"B200", 148, 178.4, 2250e12, 75e12, 8.0e12, 1745e12, 410e12, 838e9, 682e9},
    {"L4", 58, 22.0, 121e12, 30.3e12, 0.3e12, 97e12, 70e12, 20e9, 20e9},
    {"RTX-4090", 128, 23.5, 165e12, 82.6e12, 1.01e12, 149e12, 140e12, 20e9, 20e9},
};
const int tern_roof_machine_count = sizeof tern_roof_machines / sizeof tern_roof_machines[0];

const struct tern_roof_assumptions tern_roof_assumed = {
    .memory_share = 0.9,
    .gemm_fill = 160,
    .gemm_tile_small = 0.9,
    .gemm_unaligned = 0.5,
    .attention_narrow = 0.75,
    .attention_backward = 0.8,
    .attention_products = 7.0 / 5,
    .attention_speedup = 1,
    .gap_seconds = 1.5e-6,
    .addition_seconds = 5e-9,
    .exchange_seconds = 10e-6,
    .words_seconds = 30e-6,
};

double tern_roof_memory_seconds(const struct tern_roof_gpu *gpu, double flops, double bytes)
{
    double memory = bytes / (gpu->machine->bytes * gpu->assumed.memory_share);
    return fmax(memory, flops / gpu->machine->f32);
}

/* Share of the multiprocessors that work on parts of d, when d is cut into tiles of 128 x width and each tile's sum into
 * `cuts` parts, whole waves at a time. */
static double wave_share(const struct tern_roof_machine *machine,
                         const struct tern_gemm_args *args,
                         double width,
                         double cuts)
{
    double tiles = ceil((double)args->m / 128) * ceil((double)args->n / width);
    double waves = ceil(tiles * cuts / machine->multiprocessors);
    double used = (double)args->m * (double)args->n / (tiles * 128 * width);
    return used * tiles * cuts / (waves * machine->multiprocessors);
}

static bool is_aligned(int64_t stride, enum tern_dtype dtype)
{
    return stride * (int64_t)tern_dtype_bytes(dtype) % 16 == 0;
}

double tern_roof_gemm_seconds(const struct tern_roof_gpu *gpu, const struct tern_gemm_args *args)
{
    const struct tern_roof_assumptions *assumed = &gpu->assumed;
    struct tern_cost cost = tern_cost_gemm(args);
    if (args->compute != TERN_BF16) {
        return tern_roof_memory_seconds(gpu, cost.flops, cost.bytes);
    }
    double share = 0;
    for (double cuts = 1; cuts <= 8 && (cuts == 1 || (double)args->k / cuts >= 1024); cuts *= 2) {
        double k = (double)args->k / cuts;
        double fill = k / (k + assumed->gemm_fill);
        double large = wave_share(gpu->machine, args, 256, cuts);
        double small = wave_share(gpu->machine, args, 128, cuts) * assumed->gemm_tile_small;
        share = fmax(share, fill * fmax(large, small));
    }
    bool aligned = is_aligned(args->lda, args->a_dtype) && is_aligned(args->ldb, args->b_dtype) &&
                   is_aligned(args->ldd, args->d_dtype);
    double rate = gpu->machine->gemm * share * (aligned ? 1 : assumed->gemm_unaligned);
    double memory = cost.bytes;
    /* the library multiplies bf16 only: other factors are converted first */
    memory += args->a_dtype == TERN_F32 ? 6.0 * (double)args->m * (double)args->k : 0;
    memory += args->b_dtype == TERN_F32 ? 6.0 * (double)args->n * (double)args->k : 0;
    return fmax(cost.flops / rate, tern_roof_memory_seconds(gpu, 0, memory));
}

/* Written once and read once, beside the products and not under them. */
static double partial_dq_seconds(const struct tern_roof_gpu *gpu,
                                 const struct tern_attention_args *args)
{
    int keys = gpu->assumed.dq_block_keys;
    double rows =
        keys > 0 ? tern_cost_attention_pairs(args->tq, args->tkv, args->window) / keys : 0;
    double values = rows * (double)(args->b * args->h * args->d);
    return tern_roof_memory_seconds(gpu, values, 2 * sizeof(float) * values);
}

double tern_roof_attention_seconds(const struct tern_roof_gpu *gpu,
                                   const struct tern_attention_args *args,
                                   bool backward)
{
    const struct tern_roof_assumptions *assumed = &gpu->assumed;
    struct tern_cost cost =
        backward ? tern_cost_attention_bwd(args) : tern_cost_attention_fwd(args);
    double rate = gpu->machine->attention * assumed->attention_speedup *
                  (args->d <= 64 ? assumed->attention_narrow : 1);
    /* the tiles on the diagonal are worked off whole; the rate was measured at T = 4096, where they are few */
    double whole = (double)(args->tkv + 128) / (double)args->tkv * 4096 / (4096 + 128);
    double seconds = cost.flops * whole / rate;
    if (backward) {
        seconds *= assumed->attention_products / assumed->attention_backward;
        seconds += partial_dq_seconds(gpu, args);
    }
    return fmax(seconds, tern_roof_memory_seconds(gpu, 0, cost.bytes));
}
