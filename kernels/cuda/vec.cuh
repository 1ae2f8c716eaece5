/* vec.cuh - f32 and bf16 elements in registers: W neighbours at once, in accesses of up to 16 bytes. */
#ifndef TERN_KERNELS_CUDA_VEC_CUH
#define TERN_KERNELS_CUDA_VEC_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/mma.cuh"

/* Elements in 16 bytes. */
template <typename T> struct tern_wide {
    enum {
        COUNT = 16 / (int)sizeof(T)
    };
};

/* Bytes as they lie in memory: 8 or 16 move in one access, 32 in two. */
template <int bytes> struct alignas(bytes < 16 ? bytes : 16) tern_words {
    uint32_t x[bytes / 4];
};

TERN_DEVICE float tern_get(const float *p)
{
    return *p;
}

TERN_DEVICE float tern_get(const tern_bf16 *p)
{
    return tern_load_bf16(*p);
}

TERN_DEVICE void tern_put(float *p, float x)
{
    *p = x;
}

TERN_DEVICE void tern_put(tern_bf16 *p, float x)
{
    *p = tern_store_bf16(x);
}

template <typename T, int W>
TERN_DEVICE void tern_unpack(const tern_words<W *(int)sizeof(T)> &raw, float (&x)[W])
{
    TERN_UNROLL
    for (int i = 0; i < W * (int)sizeof(T) / 4; i++) {
        if constexpr (sizeof(T) == 4) {
            x[i] = __uint_as_float(raw.x[i]);
        } else {
            x[2 * i] = __uint_as_float(raw.x[i] << 16);
            x[2 * i + 1] = __uint_as_float(raw.x[i] & 0xffff0000u);
        }
    }
}

template <typename T, int W>
TERN_DEVICE void tern_pack(const float (&x)[W], tern_words<W *(int)sizeof(T)> &raw)
{
    TERN_UNROLL
    for (int i = 0; i < W * (int)sizeof(T) / 4; i++) {
        if constexpr (sizeof(T) == 4) {
            raw.x[i] = __float_as_uint(x[i]);
        } else {
            raw.x[i] = tern_pack_bf16(x[2 * i], x[2 * i + 1]);
        }
    }
}

/* x[W] = p[0..W). W 1: any address; else p is aligned to the W elements, or to 16 bytes if they are more. */
template <typename T, int W> TERN_DEVICE void tern_load(const T *p, float (&x)[W])
{
    if constexpr (W == 1) {
        x[0] = tern_get(p);
    } else {
        tern_words<W *(int)sizeof(T)> raw =
            *reinterpret_cast<const tern_words<W *(int)sizeof(T)> *>(p);
        tern_unpack<T, W>(raw, x);
    }
}

/* p[0..W) = x[W], rounded to T. */
template <typename T, int W> TERN_DEVICE void tern_store(T *p, const float (&x)[W])
{
    if constexpr (W == 1) {
        tern_put(p, x[0]);
    } else {
        tern_words<W *(int)sizeof(T)> raw;
        tern_pack<T, W>(x, raw);
        *reinterpret_cast<tern_words<W *(int)sizeof(T)> *>(p) = raw;
    }
}

/* x as it reads back after being stored as T. */
template <typename T, int W> TERN_DEVICE void tern_round(float (&x)[W])
{
    if constexpr (sizeof(T) == 2) {
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            x[i] = tern_load_bf16(tern_store_bf16(x[i]));
        }
    }
}

/* Whether an address suits accesses of `bytes` (16 at a time if they are more); null suits. */
static inline bool tern_is_aligned(struct tern_dptr p, int64_t bytes)
{
    return p.addr % (uint64_t)(bytes < 16 ? bytes : 16) == 0;
}

TERN_HOST_DEVICE int64_t tern_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

TERN_HOST_DEVICE int64_t tern_max(int64_t a, int64_t b)
{
    return a < b ? b : a;
}

static inline int64_t tern_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks of a grid-stride loop over `items`, one a thread: no more than the GPU holds at once. */
static inline unsigned tern_blocks(const struct tern_cuda_device *cuda, int64_t items, int threads)
{
    int64_t held = (int64_t)cuda->multiprocessors * (2048 / threads);
    int64_t wanted = tern_div_up(items, threads);
    return (unsigned)tern_max(1, tern_min(wanted, held));
}

#endif
