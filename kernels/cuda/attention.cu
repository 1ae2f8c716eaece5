/* attention.cu - the attention ops: which kernels a call takes, and the statistics of query rows for the backward. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_plain.cuh"

#include <limits.h>
#include <math.h>

enum {
    TOKENS_MAX = 1 << 30 /* of a sequence: positions and windows are int */
};

/* ---- statistics ---- */

/* stats[item][t] from lse, dout and out; rows from tq on get what makes their weights 0. `lanes` of a warp, a power of
 * two, share a row: with 16 bytes each if is_vector (8 * lanes >= D, aligned), else value by value. fp32 sums in a fixed
 * order. Moves 4 D bytes a row. */
__global__ __launch_bounds__(TERN_ATTENTION_THREADS) void tern_attention_stats_kernel(
    const tern_attention_params p,
    int lanes,
    bool is_vector)
{
    int64_t at = ((int64_t)blockIdx.x * TERN_ATTENTION_THREADS + threadIdx.x) / lanes;
    int lane = (int)threadIdx.x % lanes, t = (int)(at % p.stat_rows);
    int64_t item = at / p.stat_rows;
    bool is_there = item < p.items && t < p.tq;
    float delta = 0;
    if (is_there) {
        int64_t from = item / p.heads * p.out_batch + t * p.out_row + item % p.heads * p.d;
        if (is_vector && lane * 8 < p.d) {
            const uint16_t *x = (const uint16_t *)p.out + from,
                           *y = (const uint16_t *)p.dout + from;
            tern_vec16 out = *reinterpret_cast<const tern_vec16 *>(x + lane * 8);
            tern_vec16 dout = *reinterpret_cast<const tern_vec16 *>(y + lane * 8);
            TERN_UNROLL
            for (int i = 0; i < 4; i++) {
                delta = fmaf(tern_load_bf16((uint16_t)out.x[i]),
                             tern_load_bf16((uint16_t)dout.x[i]), delta);
                delta = fmaf(tern_load_bf16((uint16_t)(out.x[i] >> 16)),
                             tern_load_bf16((uint16_t)(dout.x[i] >> 16)), delta);
            }
        }
        for (int c = lane; !is_vector && c < p.d; c += lanes) {
            float out = p.is_bf16 ? tern_load_bf16(((const uint16_t *)p.out)[from + c])
                                  : ((const float *)p.out)[from + c];
            float dout = p.is_bf16 ? tern_load_bf16(((const uint16_t *)p.dout)[from + c])
                                   : ((const float *)p.dout)[from + c];
            delta = fmaf(out, dout, delta);
        }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        delta += __shfl_xor_sync(TERN_WARP_ALL, delta, offset);
    }
    if (lane == 0 && item < p.items) {
        float lse2 = is_there ? p.lse[item * p.tq + t] * TERN_LOG2_E : INFINITY;
        p.stats[at] = {lse2, delta};
    }
}

static tern_status launch_stats(const tern_attention_params &p, bool is_vector, cudaStream_t stream)
{
    int lanes = is_vector ? 8 : TERN_WARP;
    while (is_vector && 8 * lanes < p.d) {
        lanes *= 2;
    }
    int64_t rows = (int64_t)p.items * p.stat_rows, rows_a_block = TERN_ATTENTION_THREADS / lanes;
    int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
    if (blocks > INT_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "attention_bwd: b * h * tq is %lld, expected at most %lld",
                         (long long)rows, (long long)(INT_MAX * rows_a_block));
    }
    tern_launch(tern_attention_stats_kernel, dim3((unsigned)blocks), dim3(TERN_ATTENTION_THREADS),
                0, stream, p, lanes, is_vector);
    return tern_cuda_launched("attention_bwd (statistics)");
}

/* ---- which kernels ---- */

static tern_attention_launch *launcher_of(int64_t width)
{
    switch (width) {
    case 64:
        return tern_attention_launch_64;
    case 80:
        return tern_attention_launch_80;
    case 96:
        return tern_attention_launch_96;
    case 128:
        return tern_attention_launch_128;
    case 256:
        return tern_attention_launch_256;
    default:
        return NULL;
    }
}

/* Whether every row of every head starts at a multiple of 16 bytes, heads being a multiple of 16 bytes wide. */
static bool is_aligned(const struct tern_attention_args *args, bool is_backward)
{
    uint64_t bits = args->q.addr | args->k.addr | args->v.addr | args->out.addr;
    if (is_backward) {
        bits |= args->dout.addr | args->dq.addr | args->dk.addr | args->dv.addr;
    }
    int64_t strides = args->q_row | args->kv_row | args->out_row;
    if (args->b > 1) {
        strides |= args->q_batch | args->kv_batch | args->out_batch;
    }
    return bits % 16 == 0 && strides % 8 == 0;
}

/* A running maximum of unscaled scores needs a positive scale. */
static bool is_for_tensor_cores(const struct tern_attention_args *args, bool is_backward)
{
    bool is_usual = args->softcap == 0 && tern_dptr_is_null(args->starts);
    return is_usual && args->dtype == TERN_BF16 && launcher_of(args->d) != NULL &&
           args->scale > 0 && isfinite(args->scale * TERN_LOG2_E) && is_aligned(args, is_backward);
}

static int64_t stat_rows_of(int64_t tq)
{
    return (tq + TERN_ATTENTION_STAT_ROWS - 1) / TERN_ATTENTION_STAT_ROWS *
           TERN_ATTENTION_STAT_ROWS;
}

static tern_status params_of(const struct tern_attention_args *args,
                             const char *op,
                             tern_attention_params *out)
{
    int64_t heads = 0;
    if (args->tkv > TOKENS_MAX || __builtin_mul_overflow(args->b, args->h, &heads) ||
        heads > INT_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: tkv is %lld and b * h is %lld * %lld, expected at most %d and %d", op,
                         (long long)args->tkv, (long long)args->b, (long long)args->h, TOKENS_MAX,
                         INT_MAX);
    }
    *out = {};
    out->q = tern_ptr<void>(args->q);
    out->k = tern_ptr<void>(args->k);
    out->v = tern_ptr<void>(args->v);
    out->dout = tern_ptr<void>(args->dout);
    out->out = tern_ptr<void>(args->out);
    out->dq = tern_ptr<void>(args->dq);
    out->dk = tern_ptr<void>(args->dk);
    out->dv = tern_ptr<void>(args->dv);
    out->lse = tern_ptr<float>(args->lse);
    out->q_row = args->q_row;
    out->q_batch = args->q_batch;
    out->kv_row = args->kv_row;
    out->kv_batch = args->kv_batch;
    out->out_row = args->out_row;
    out->out_batch = args->out_batch;
    out->tq = (int)args->tq;
    out->tkv = (int)args->tkv;
    out->d = (int)args->d;
    out->heads = (int)args->h;
    out->group = (int)(args->h / args->kv_heads);
    out->window = (int)(args->window > 0 && args->window < args->tkv ? args->window : args->tkv);
    out->stat_rows = (int)stat_rows_of(args->tq);
    out->scale = args->scale;
    out->scale_log2 = args->scale * TERN_LOG2_E;
    out->is_bf16 = args->dtype == TERN_BF16;
    out->starts = tern_ptr<const int>(args->starts);
    out->softcap = args->softcap;
    out->by_cap = args->softcap > 0 ? args->scale / args->softcap : 0;
    return TERN_OK;
}

/* Enqueues one pass. p gets the order of its blocks. */
static tern_status launch(struct tern_cuda_device *cuda,
                          const struct tern_attention_args *args,
                          enum tern_attention_pass pass,
                          bool is_fast,
                          tern_attention_params *p)
{
    const struct tern_attention_tile *tile =
        is_fast ? tern_attention_pick(pass, args->d, (size_t)cuda->shared_bytes_max) : NULL;
    bool is_dkv = pass == TERN_ATTENTION_DKV;
    int64_t items = args->b * (is_dkv ? args->kv_heads : args->h),
            rows = is_dkv ? args->tkv : args->tq;
    int64_t block_rows = tile != NULL ? tern_attention_block_rows(tile)
                                      : tern_attention_plain_rows(pass, (int)args->d);
    int64_t blocks = (rows + block_rows - 1) / block_rows;
    if (blocks > INT_MAX / items) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "attention: %lld heads in %lld blocks of %lld rows, expected at most %d "
                         "blocks",
                         (long long)items, (long long)blocks, (long long)block_rows, INT_MAX);
    }
    /* blocks of a group of query heads share k and v; those of a key/value head share its q and dout */
    int64_t group = is_dkv ? 1 : p->group, shared_rows = is_dkv ? args->tq * p->group : args->tkv;
    p->items = (int)items;
    p->blocks = (int)blocks;
    p->section = (int)tern_attention_section(
        items, group, 2 * shared_rows * args->d * (int64_t)tern_dtype_bytes(args->dtype));
    if (tile == NULL) {
        return tern_attention_launch_plain(pass, *p, cuda->stream);
    }
    return launcher_of(args->d)(tile, *p, cuda->stream);
}

tern_status tern_cuda_attention_fwd(struct tern_device *device,
                                    const struct tern_attention_args *args)
{
    tern_attention_params p;
    TERN_RETURN_IF_ERR(params_of(args, "attention_fwd", &p));
    return launch(tern_cuda_device_of(device), args, TERN_ATTENTION_FWD,
                  is_for_tensor_cores(args, false), &p);
}

static size_t stats_bytes(int64_t b, int64_t h, int64_t tq)
{
    return (size_t)b * (size_t)h * (size_t)stat_rows_of(tq) * sizeof(tern_attention_stat);
}

size_t tern_cuda_attention_workspace(const struct tern_cuda_device *device,
                                     const struct tern_op_limits *limits)
{
    (void)device;
    return stats_bytes(limits->batch, limits->heads, limits->sequence);
}

tern_status tern_cuda_attention_bwd(struct tern_device *device,
                                    const struct tern_attention_args *args)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    tern_attention_params p;
    void *stats = NULL;
    TERN_RETURN_IF_ERR(params_of(args, "attention_bwd", &p));
    TERN_RETURN_IF_ERR(
        tern_cuda_need(cuda, "attention_bwd", stats_bytes(args->b, args->h, args->tq), &stats));
    p.stats = static_cast<tern_attention_stat *>(stats);
    p.items = (int)(args->b * args->h);
    bool is_fast = is_for_tensor_cores(args, true);
    TERN_RETURN_IF_ERR(launch_stats(p, is_fast, cuda->stream));
    TERN_RETURN_IF_ERR(launch(cuda, args, TERN_ATTENTION_DKV, is_fast, &p));
    return launch(cuda, args, TERN_ATTENTION_DQ, is_fast, &p);
}
