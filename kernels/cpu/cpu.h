/* cpu.h - inside the CPU backend: the device, its levels, its threads. Not for includers outside kernels/cpu. */
#ifndef TERN_KERNELS_CPU_CPU_H
#define TERN_KERNELS_CPU_CPU_H

#include "kernels/ops.h"

/* Instruction levels, each including those before it. AVX2 means AVX2 + FMA + F16C; AVX512 means F, BW, DQ, VL. */
enum tern_cpu_level {
    TERN_CPU_GENERIC, /* whatever the compiler's baseline is: any x86-64, any other architecture */
    TERN_CPU_AVX2,
    TERN_CPU_AVX512,
    TERN_CPU_AVX512_BF16,
    TERN_CPU_AVX512_VNNI,
    TERN_CPU_AMX,
    TERN_CPU_LEVEL_COUNT
};

struct tern_cpu_pool;

struct tern_cpu_device {
    struct tern_device base;
    struct tern_cpu_pool *pool;
    int threads;
    enum tern_cpu_level level;
    struct tern_op_limits limits;
    void *shared; /* workspace that one op uses as a whole */
    size_t shared_bytes;
    char *scratch; /* threads * scratch_bytes: one slice a thread */
    size_t scratch_bytes;
};

static inline struct tern_cpu_device *tern_cpu_device_of(struct tern_device *device)
{
    return (struct tern_cpu_device *)device;
}

/* On this backend a device address is a host address. */
static inline void *tern_cpu_ptr(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

/* Where the document of row n begins in its sequence. */
static inline int64_t tern_cpu_start(struct tern_dptr starts, int64_t n)
{
    return tern_dptr_is_null(starts) ? 0 : ((const int32_t *)tern_cpu_ptr(starts))[n];
}

/* Where row n stands: positions[n], or first + n % t in its sequence, counted from its document. */
static inline int64_t tern_cpu_position(struct tern_dptr positions,
                                        struct tern_dptr starts,
                                        int64_t first,
                                        int64_t t,
                                        int64_t n)
{
    return tern_dptr_is_null(positions) ? first + n % t - tern_cpu_start(starts, n)
                                        : ((const int32_t *)tern_cpu_ptr(positions))[n];
}

/* One piece of work; `thread` in [0, threads) picks scratch, and must not influence the result. */
typedef void (*tern_cpu_task)(void *arg, int64_t task, int thread);
/* Runs tasks [0, count) on the pool, the caller included; which thread gets which task is not fixed. Returns when all
 * are done. Threads spin briefly, then sleep. Nested calls are not allowed. */
void tern_cpu_parallel(struct tern_cpu_device *device,
                       int64_t count,
                       tern_cpu_task task,
                       void *arg);

static inline void *tern_cpu_scratch(struct tern_cpu_device *device, int thread)
{
    return device->scratch + (size_t)thread * device->scratch_bytes;
}

/* Which level this machine has, and which TERN_CPU_ISA allows (pure function of CPUID and the environment). */
enum tern_cpu_level tern_cpu_level_found(void);
const char *tern_cpu_level_name(enum tern_cpu_level level);
TERN_MUST_CHECK tern_status tern_cpu_level_allowed(enum tern_cpu_level *level_out);
/* Measured per processor family, not assumed from the name: does a bf16 dot product beat fp32 FMA here? */
bool tern_cpu_bf16_dot_is_fast(void);
/* Whether 512-bit int8 dot products (VNNI) are there; processors of level AVX512 differ. */
bool tern_cpu_has_vnni(void);

/* Bytes of shared workspace and of scratch a thread that the ops of gemm.c and of the other files need. */
void tern_cpu_gemm_needs(const struct tern_op_limits *limits,
                         int threads,
                         size_t *shared,
                         size_t *scratch);
void tern_cpu_ops_needs(const struct tern_op_limits *limits,
                        int threads,
                        size_t *shared,
                        size_t *scratch);

TERN_MUST_CHECK tern_status tern_cpu_open(int threads, struct tern_device **out);
/* Measured rate of the units that this level's gemm runs on, flop/s, all threads; 0: not known (AMX, generic). */
double tern_cpu_peak_flops(struct tern_device *device, enum tern_dtype compute);
/* Measured rate at which all threads together read memory that lies in no cache, bytes/s; takes 192 MiB for some tenths
 * of a second. 0: there is no memory. */
double tern_cpu_read_rate(struct tern_device *device);
const char *tern_cpu_reason(void); /* why this backend cannot run; "" if it can */

tern_status tern_cpu_gemm(struct tern_device *, const struct tern_gemm_args *);
tern_status tern_cpu_embed_fwd(struct tern_device *, const struct tern_embed_fwd_args *);
tern_status tern_cpu_embed_bwd(struct tern_device *, const struct tern_embed_bwd_args *);
tern_status tern_cpu_norm_fwd(struct tern_device *, const struct tern_norm_fwd_args *);
tern_status tern_cpu_norm_bwd(struct tern_device *, const struct tern_norm_bwd_args *);
tern_status tern_cpu_bias_bwd(struct tern_device *, const struct tern_bias_bwd_args *);
tern_status tern_cpu_attention_fwd(struct tern_device *, const struct tern_attention_args *);
tern_status tern_cpu_attention_bwd(struct tern_device *, const struct tern_attention_args *);
size_t tern_cpu_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype);
tern_status tern_cpu_kv_write(struct tern_device *, const struct tern_kv_write_args *);
tern_status tern_cpu_paged_attention(struct tern_device *,
                                     const struct tern_paged_attention_args *);
tern_status tern_cpu_rope(struct tern_device *, const struct tern_rope_args *);
tern_status tern_cpu_act_fwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_cpu_act_bwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_cpu_glu_fwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_cpu_glu_bwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_cpu_add(struct tern_device *, const struct tern_add_args *);
tern_status tern_cpu_cross_entropy(struct tern_device *, const struct tern_cross_entropy_args *);
tern_status tern_cpu_adamw(struct tern_device *, const struct tern_adamw_args *);
tern_status tern_cpu_sumsq(struct tern_device *, const struct tern_sumsq_args *);
tern_status tern_cpu_cast(struct tern_device *, const struct tern_cast_args *);
tern_status tern_cpu_softcap(struct tern_device *, const struct tern_softcap_args *);
tern_status tern_cpu_moe_route(struct tern_device *, const struct tern_moe_route_args *);
tern_status tern_cpu_moe_combine(struct tern_device *, const struct tern_moe_combine_args *);

#endif
