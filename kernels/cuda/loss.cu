/* loss.cu - softmax cross-entropy of rows of f32 logits (R, V), in place or to bf16 gradients.
 *
 * A block a row. First pass: every thread keeps the maximum m of what it saw and the sum of exp(x - m), which the block
 * then brings to one maximum. Backward a second pass writes softmax - one_hot, from the row's end to its beginning: what
 * was read last is still in the first cache, the rest in the second. A row of 50,257 logits is 201 KB: memory sees it
 * once in and, backward, once out, in bf16 half of that. */
#include "kernels/cuda/vec.cuh"

#include <float.h>

enum {
    THREADS_MAX = 512, /* two blocks share a multiprocessor: one reads while the other adds up */
    THREADS_MIN = 64,
    VEC = 4,
    VECS = 4 /* accesses of a thread under way */
};

struct cross_entropy {
    float *logits; /* (R, V), row stride ld */
    const int32_t *targets;
    float *nll;
    tern_bf16 *dlogits; /* (R, V), row stride ldd; or null */
    int64_t rows, v, ld, ldd;
    float softcap; /* 0: none */
    bool is_backward;
};

/* A logit through the cap. CAPS is fixed at compile time, because tanh costs registers. */
template <bool CAPS> TERN_DEVICE float capped(float x, float cap)
{
    return CAPS ? cap * tanhf(x / cap) : x;
}

/* Elements before the first aligned one, aligned accesses, all elements. */
struct row_cut {
    int64_t head, vecs, count;
};

TERN_DEVICE struct row_cut cut_row(const float *x, int64_t count)
{
    struct row_cut cut;
    cut.head = (int64_t)((16 - (uintptr_t)x % 16) % 16 / sizeof(float));
    cut.head = tern_min(cut.head, count);
    cut.vecs = (count - cut.head) / VEC;
    cut.count = count;
    return cut;
}

/* Place of the i-th element that no aligned access covers, and how many there are. */
TERN_DEVICE int64_t single_at(const struct row_cut &cut, int64_t i)
{
    return i < cut.head ? i : i + cut.vecs * VEC;
}

TERN_DEVICE int64_t single_count(const struct row_cut &cut)
{
    return cut.count - cut.vecs * VEC;
}

/* Maximum and sum of what a thread saw. most starts finite, so that logits of -inf add 0. */
struct online {
    float most, sum;
};

template <int count> TERN_DEVICE void absorb(struct online &o, const float (&x)[count])
{
    float most = o.most;
    TERN_UNROLL
    for (int i = 0; i < count; i++) {
        most = fmaxf(most, x[i]);
    }
    if (most > o.most) {
        o.sum *= expf(o.most - most);
        o.most = most;
    }
    TERN_UNROLL
    for (int i = 0; i < count; i++) {
        o.sum += expf(x[i] - most);
    }
}

template <bool CAPS>
TERN_DEVICE struct online scan_row(const float *x, const struct row_cut &cut, float cap)
{
    struct online o = {-FLT_MAX, 0};
    for (int64_t i = threadIdx.x; i < cut.vecs; i += (int64_t)VECS * blockDim.x) {
        float vec[VECS][VEC];
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            int64_t at = i + (int64_t)v * blockDim.x;
            if (at < cut.vecs) {
                tern_load(x + cut.head + at * VEC, vec[v]);
                TERN_UNROLL
                for (int e = 0; e < VEC; e++) {
                    vec[v][e] = capped<CAPS>(vec[v][e], cap);
                }
            } else {
                TERN_UNROLL
                for (int e = 0; e < VEC; e++) {
                    vec[v][e] = -INFINITY;
                }
            }
        }
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            absorb(o, vec[v]);
        }
    }
    for (int64_t i = threadIdx.x; i < single_count(cut); i += blockDim.x) {
        const float single[1] = {capped<CAPS>(x[single_at(cut, i)], cap)};
        absorb(o, single);
    }
    return o;
}

/* What the second pass needs of a row. */
struct softmax {
    float most, by_sum;
    int64_t target;
    float cap;
};

template <bool CAPS> TERN_DEVICE float gradient_at(const struct softmax &row, float x, int64_t at)
{
    float logit = capped<CAPS>(x, row.cap), p = expf(logit - row.most) * row.by_sum;
    float gradient = at == row.target ? p - 1.0f : p, tanh_x = CAPS ? logit / row.cap : 0.0f;
    return CAPS ? gradient * (1.0f - tanh_x * tanh_x) : gradient;
}

/* to = softmax(x) less one at the target, from the end to the beginning; to may be x. Its aligned accesses are x's where
 * the two line up, as rows of equal strides do. */
template <bool CAPS, typename T>
TERN_DEVICE void write_gradient(const float *x,
                                T *to,
                                const struct row_cut &cut,
                                const struct softmax &row)
{
    bool is_wide = (uintptr_t)(to + cut.head) % (VEC * sizeof(T)) == 0;
    for (int64_t i = threadIdx.x; i < single_count(cut); i += blockDim.x) {
        int64_t at = single_at(cut, i);
        tern_put(to + at, gradient_at<CAPS>(row, x[at], at));
    }
    int64_t pass = (int64_t)VECS * blockDim.x;
    for (int64_t first = (cut.vecs - 1) / pass * pass; first >= 0; first -= pass) {
        float vec[VECS][VEC];
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            int64_t i = first + (int64_t)v * blockDim.x + threadIdx.x;
            if (i < cut.vecs) {
                tern_load(x + cut.head + i * VEC, vec[v]);
            }
        }
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            int64_t i = first + (int64_t)v * blockDim.x + threadIdx.x;
            int64_t at = cut.head + i * VEC;
            TERN_UNROLL
            for (int e = 0; e < VEC && i < cut.vecs; e++) {
                vec[v][e] = gradient_at<CAPS>(row, vec[v][e], at + e);
                if (!is_wide) {
                    tern_put(to + at + e, vec[v][e]);
                }
            }
            if (is_wide && i < cut.vecs) {
                tern_store(to + at, vec[v]);
            }
        }
    }
}

/* A row that counts nothing. */
template <typename T> TERN_DEVICE void clear_row(T *to, int64_t count)
{
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        to[i] = 0;
    }
}

template <bool CAPS>
__global__ void __launch_bounds__(THREADS_MAX, CAPS ? 1 : 2)
    cross_entropy_kernel(struct cross_entropy a)
{
    TERN_SHARED(float, scratch, [TERN_WARP]);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float *x = a.logits + row * a.ld;
        int64_t target = a.targets[row];
        tern_bf16 *dlogits = a.dlogits != nullptr ? a.dlogits + row * a.ldd : nullptr;
        if (target < 0 || target >= a.v) { /* for all threads alike */
            if (dlogits != nullptr) {
                clear_row(dlogits, a.v);
            } else if (a.is_backward) {
                clear_row(x, a.v);
            }
            if (threadIdx.x == 0) {
                a.nll[row] = 0;
            }
            continue;
        }
        float at_target = threadIdx.x == 0 ? capped<CAPS>(x[target], a.softcap) : 0;
        struct row_cut cut = cut_row(x, a.v);
        struct online o = scan_row<CAPS>(x, cut, a.softcap);
        float most = tern_block_max(o.most, &scratch[0]);
        float sum = tern_block_sum(o.sum * expf(o.most - most), &scratch[0]);
        if (threadIdx.x == 0) {
            a.nll[row] = (most - at_target) + logf(sum);
        }
        struct softmax softmax = {most, 1.0f / sum, target, a.softcap};
        if (dlogits != nullptr) {
            write_gradient<CAPS>(x, dlogits, cut, softmax);
        } else if (a.is_backward) {
            write_gradient<CAPS>(x, x, cut, softmax);
        }
    }
}

tern_status tern_cuda_cross_entropy(struct tern_device *device,
                                    const struct tern_cross_entropy_args *args)
{
    struct cross_entropy a = {tern_ptr<float>(args->logits),
                              tern_ptr<const int32_t>(args->targets),
                              tern_ptr<float>(args->nll),
                              tern_ptr<tern_bf16>(args->dlogits),
                              args->rows,
                              args->v,
                              args->ld,
                              args->ldd,
                              args->softcap,
                              args->backward};
    int threads = THREADS_MIN;
    while (threads < THREADS_MAX && (int64_t)threads * VEC * 2 < args->v) {
        threads *= 2;
    }
    unsigned grid = (unsigned)tern_min(args->rows, 1 << 24);
    cudaStream_t stream = tern_cuda_device_of(device)->stream;
    if (a.softcap > 0) {
        tern_launch(cross_entropy_kernel<true>, grid, threads, 0, stream, a);
    } else {
        tern_launch(cross_entropy_kernel<false>, grid, threads, 0, stream, a);
    }
    return tern_cuda_launched("cross_entropy");
}
