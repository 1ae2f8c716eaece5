/* span.cuh - ops on n independent elements: one loop for all of them.
 *
 * Operands are f32 or bf16 vectors. Elements up to the first that is aligned in every operand go one at a time, then
 * STEP at a time, then the rest singly; where the operands do not line up, all go singly. An op is a struct of pointers
 * with INPUTS and two functions, span_load(op, at, item) and span_store(op, at, item), for W elements from `at` on: a
 * thread loads DEPTH items before it stores one, so that enough bytes are under way. */
#ifndef TERN_KERNELS_CUDA_SPAN_CUH
#define TERN_KERNELS_CUDA_SPAN_CUH

#include "kernels/cuda/vec.cuh"

enum {
    TERN_SPAN_THREADS = 256
};

/* Elements before the first step, steps, elements in all. */
struct tern_span {
    int64_t head, steps, count;
};

/* W elements of each input. */
template <int W, int inputs> struct tern_item {
    float x[inputs][W];
};

template <int STEP, int DEPTH, typename Op>
__global__ void __launch_bounds__(TERN_SPAN_THREADS) tern_span_kernel(Op op, struct tern_span span)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = thread; i < span.steps; i += DEPTH * stride) {
        tern_item<STEP, Op::INPUTS> item[DEPTH];
        TERN_UNROLL
        for (int d = 0; d < DEPTH; d++) {
            if (i + d * stride < span.steps) {
                span_load(op, span.head + (i + d * stride) * STEP, item[d]);
            }
        }
        TERN_UNROLL
        for (int d = 0; d < DEPTH; d++) {
            if (i + d * stride < span.steps) {
                span_store(op, span.head + (i + d * stride) * STEP, item[d]);
            }
        }
    }
    int64_t singles = span.count - span.steps * STEP;
    for (int64_t i = thread; i < singles; i += stride) {
        tern_item<1, Op::INPUTS> item;
        int64_t at = i < span.head ? i : i + span.steps * STEP;
        span_load(op, at, item);
        span_store(op, at, item);
    }
}

struct tern_span_operand {
    struct tern_dptr p; /* null: none */
    int64_t element_bytes;
};

template <int STEP, int count>
static struct tern_span tern_span_of(int64_t n, const struct tern_span_operand (&operands)[count])
{
    for (int64_t head = 0; head < STEP && head < n; head++) {
        bool is_aligned = true;
        for (int i = 0; i < count; i++) {
            struct tern_dptr p = operands[i].p;
            p.addr += (uint64_t)(p.addr == 0 ? 0 : head * operands[i].element_bytes);
            is_aligned = is_aligned && tern_is_aligned(p, STEP * operands[i].element_bytes);
        }
        if (is_aligned) {
            struct tern_span span = {head, (n - head) / STEP, n};
            return span;
        }
    }
    struct tern_span singles = {n, 0, n};
    return singles;
}

/* Runs an op over n elements. */
template <int STEP, int DEPTH, typename Op, int count>
static tern_status tern_span_run(struct tern_device *device,
                                 const char *name,
                                 Op op,
                                 int64_t n,
                                 const struct tern_span_operand (&operands)[count])
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    struct tern_span span = tern_span_of<STEP>(n, operands);
    int64_t singles = span.count - span.steps * STEP;
    int64_t items = tern_div_up(span.steps, DEPTH);
    tern_launch(tern_span_kernel<STEP, DEPTH, Op>,
                tern_blocks(cuda, tern_max(items, singles), TERN_SPAN_THREADS), TERN_SPAN_THREADS,
                0, cuda->stream, op, span);
    return tern_cuda_launched(name);
}

#endif
