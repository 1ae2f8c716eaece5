/* moe.cu - a mixture of experts: which experts a row goes to, the pairs of row and expert numbered by expert, and what
 * the experts gave brought together.
 *
 * Routing: a warp a row, an expert's logit is lane e % 32's; top_k scans, the softmax in f32. Numbering: a warp an
 * expert counts its pairs, one thread adds the counts up, a warp an expert gives its pairs their numbers in ascending
 * order; E N top_k / 32 steps twice, of numbers that the second cache holds. Bringing together: a thread takes W
 * elements of a row, top_k + 1 elements moved for each. */
#include "kernels/cuda/vec.cuh"

#include <limits.h>

enum {
    THREADS = 256,
    WARPS = THREADS / TERN_WARP
};

struct route {
    int32_t *experts; /* (N, top_k) */
    float *weights;   /* (N, top_k) */
    int32_t *pairs;   /* (N, top_k) */
    int32_t *rows;    /* (N * top_k) */
    int32_t *starts;  /* (E + 1) */
    int64_t n;
    int count, top_k; /* count: E */
    bool normalise;
};

/* The largest logit among `best` of two lanes; of equal ones the lower expert's. expert INT_MAX: none. */
struct best {
    float logit;
    int expert;
};

TERN_DEVICE best better(const best &a, const best &b)
{
    bool is_b = b.expert != INT_MAX && (a.expert == INT_MAX || b.logit > a.logit ||
                                        (b.logit == a.logit && b.expert < a.expert));
    /* member by member: a choice between two structs lies in local memory */
    return {is_b ? b.logit : a.logit, is_b ? b.expert : a.expert};
}

/* The best expert that no bit of `chosen` (bit i of a lane: expert lane + 32 i) has; the same in all lanes. */
template <typename T> TERN_DEVICE best best_of(const T *logits, int count, uint32_t chosen)
{
    int lane = (int)threadIdx.x % TERN_WARP;
    best found = {0, INT_MAX};
    for (int e = lane; e < count; e += TERN_WARP) {
        if ((chosen >> e / TERN_WARP & 1) == 0) {
            found = better(found, {tern_get(logits + e), e});
        }
    }
    for (int offset = TERN_WARP / 2; offset > 0; offset /= 2) {
        best other = {__shfl_xor_sync(TERN_WARP_ALL, found.logit, offset),
                      __shfl_xor_sync(TERN_WARP_ALL, found.expert, offset)};
        found = better(found, other);
    }
    /* lanes may disagree about what is no number */
    return {__shfl_sync(TERN_WARP_ALL, found.logit, 0),
            __shfl_sync(TERN_WARP_ALL, found.expert, 0)};
}

template <typename T>
__global__ void __launch_bounds__(THREADS) route_rows_kernel(struct route a, const T *logits)
{
    int lane = (int)threadIdx.x % TERN_WARP;
    int64_t stride = (int64_t)gridDim.x * WARPS;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / TERN_WARP; row < a.n;
         row += stride) {
        const T *x = logits + row * a.count;
        int32_t *experts = a.experts + row * a.top_k;
        uint32_t chosen = 0;
        float most = 0, sum = 0;
        for (int j = 0; j < a.top_k; j++) {
            best found = best_of(x, a.count, chosen);
            most = j == 0 ? found.logit : most;
            chosen |= found.expert % TERN_WARP == lane ? 1u << found.expert / TERN_WARP : 0;
            if (lane == 0) {
                experts[j] = found.expert;
            }
        }
        for (int e = lane; e < a.count; e += TERN_WARP) {
            bool counts = !a.normalise || (chosen >> e / TERN_WARP & 1) != 0;
            sum += counts ? expf(tern_get(x + e) - most) : 0.0f;
        }
        float by_sum = 1.0f / tern_warp_sum(sum);
        __syncwarp(); /* what lane 0 wrote */
        for (int j = lane; j < a.top_k; j += TERN_WARP) {
            a.weights[row * a.top_k + j] = expf(tern_get(x + experts[j]) - most) * by_sum;
        }
    }
}

/* starts[e + 1] = how many pairs are of expert e = blockIdx.x; one warp. */
static __global__ void __launch_bounds__(TERN_WARP) count_pairs_kernel(struct route a)
{
    int expert = (int)blockIdx.x, lane = (int)threadIdx.x;
    int64_t pairs = a.n * a.top_k;
    int count = 0;
    for (int64_t first = 0; first < pairs; first += TERN_WARP) {
        bool is_mine = first + lane < pairs && a.experts[first + lane] == expert;
        count += __popc(__ballot_sync(TERN_WARP_ALL, is_mine));
    }
    if (lane == 0) {
        a.starts[expert + 1] = count;
    }
}

static __global__ void add_counts_kernel(struct route a)
{
    a.starts[0] = 0;
    for (int e = 0; e < a.count; e++) {
        a.starts[e + 1] += a.starts[e];
    }
}

static __global__ void __launch_bounds__(TERN_WARP) number_pairs_kernel(struct route a)
{
    int expert = (int)blockIdx.x, lane = (int)threadIdx.x;
    int64_t pairs = a.n * a.top_k;
    int next = a.starts[expert];
    for (int64_t first = 0; first < pairs; first += TERN_WARP) {
        int64_t i = first + lane;
        bool is_mine = i < pairs && a.experts[i] == expert;
        unsigned mine = __ballot_sync(TERN_WARP_ALL, is_mine);
        if (is_mine) {
            int number = next + __popc(mine & ((1u << lane) - 1u));
            a.pairs[i] = number;
            a.rows[number] = (int32_t)(i / a.top_k);
        }
        next += __popc(mine);
    }
}

tern_status tern_cuda_moe_route(struct tern_device *device, const struct tern_moe_route_args *args)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    struct route a = {tern_ptr<int32_t>(args->experts),
                      tern_ptr<float>(args->weights),
                      tern_ptr<int32_t>(args->pairs),
                      tern_ptr<int32_t>(args->rows),
                      tern_ptr<int32_t>(args->starts),
                      args->n,
                      (int)args->expert_count,
                      (int)args->top_k,
                      args->normalise};
    unsigned blocks = tern_blocks(cuda, args->n * TERN_WARP, THREADS);
    if (args->dtype == TERN_BF16) {
        tern_launch(route_rows_kernel<tern_bf16>, blocks, THREADS, 0, cuda->stream, a,
                    tern_ptr<const tern_bf16>(args->logits));
    } else {
        tern_launch(route_rows_kernel<float>, blocks, THREADS, 0, cuda->stream, a,
                    tern_ptr<const float>(args->logits));
    }
    tern_launch(count_pairs_kernel, (unsigned)a.count, (int)TERN_WARP, 0, cuda->stream, a);
    tern_launch(add_counts_kernel, 1u, 1, 0, cuda->stream, a);
    tern_launch(number_pairs_kernel, (unsigned)a.count, (int)TERN_WARP, 0, cuda->stream, a);
    return tern_cuda_launched("moe_route");
}

template <typename T> struct combine {
    const T *x;           /* (N * top_k, C) */
    const float *weights; /* (N, top_k) */
    const int32_t *pairs; /* (N, top_k) */
    T *out;               /* (N, C) */
    int64_t n, c;
    int top_k;
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) combine_kernel(struct combine<T> a)
{
    uint64_t steps = (uint64_t)(a.c / W), total = (uint64_t)a.n * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t row = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        float sum[W] = {}, x[W];
        for (int j = 0; j < a.top_k; j++) {
            float weight = a.weights[row * a.top_k + j];
            tern_load(a.x + (int64_t)a.pairs[row * a.top_k + j] * a.c + col, x);
            TERN_UNROLL
            for (int e = 0; e < W; e++) {
                sum[e] = fmaf(weight, x[e], sum[e]);
            }
        }
        tern_store(a.out + row * a.c + col, sum);
    }
}

template <typename T>
static tern_status combine_any(struct tern_device *device, const struct tern_moe_combine_args *args)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    combine<T> a = {tern_ptr<const T>(args->x),
                    tern_ptr<const float>(args->weights),
                    tern_ptr<const int32_t>(args->pairs),
                    tern_ptr<T>(args->out),
                    args->n,
                    args->c,
                    (int)args->top_k};
    if (args->c % W == 0 && tern_is_aligned(args->x, 16) && tern_is_aligned(args->out, 16)) {
        tern_launch(combine_kernel<T, W>, tern_blocks(cuda, a.n * (a.c / W), THREADS), THREADS, 0,
                    cuda->stream, a);
    } else {
        tern_launch(combine_kernel<T, 1>, tern_blocks(cuda, a.n * a.c, THREADS), THREADS, 0,
                    cuda->stream, a);
    }
    return tern_cuda_launched("moe_combine");
}

tern_status tern_cuda_moe_combine(struct tern_device *device,
                                  const struct tern_moe_combine_args *args)
{
    return args->dtype == TERN_BF16 ? combine_any<tern_bf16>(device, args)
                                    : combine_any<float>(device, args);
}
