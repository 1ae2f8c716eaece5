/* cusim_mma.cuh - tensor cores, matrix loads, asynchronous copies, 2^x (kernels/cuda/mma.cuh) of the simulated CUDA. Values
 * go to the engine and come back in registers, so that no access hook fires on a thread's own fragments. */
#ifndef TERN_TESTS_CUSIM_MMA_CUH
#define TERN_TESTS_CUSIM_MMA_CUH

#include <cusim_target.cuh>

typedef float cusim_f32x4 __attribute__((vector_size(16)));
typedef uint32_t cusim_u32x4 __attribute__((vector_size(16)));

cusim_f32x4 cusim_mma_bf16(cusim_f32x4 d, cusim_u32x4 a, uint64_t b, cusim_site site);
cusim_u32x4 cusim_ldmatrix(const void *row, bool is_transposed, cusim_site site);
void cusim_cp_async(void *shared, const void *global, int valid);
void cusim_cp_async_commit();
void cusim_cp_async_wait(int left);

static inline void tern_mma_bf16(float (&d)[4],
                                 const uint32_t (&a)[4],
                                 const uint32_t (&b)[2],
                                 CUSIM_SITE)
{
    cusim_f32x4 sum = {d[0], d[1], d[2], d[3]};
    cusim_u32x4 factor = {a[0], a[1], a[2], a[3]};
    sum = cusim_mma_bf16(sum, factor, (uint64_t)b[1] << 32 | b[0], {file, line});
    d[0] = sum[0];
    d[1] = sum[1];
    d[2] = sum[2];
    d[3] = sum[3];
}

static inline void cusim_take(uint32_t (&r)[4], cusim_u32x4 loaded)
{
    r[0] = loaded[0];
    r[1] = loaded[1];
    r[2] = loaded[2];
    r[3] = loaded[3];
}

static inline void tern_ldmatrix_x4(uint32_t (&r)[4], const void *shared_row, CUSIM_SITE)
{
    cusim_take(r, cusim_ldmatrix(shared_row, false, {file, line}));
}

static inline void tern_ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared_row, CUSIM_SITE)
{
    cusim_take(r, cusim_ldmatrix(shared_row, true, {file, line}));
}

static inline void tern_cp_async16(void *shared, const void *global, int valid)
{
    cusim_cp_async(shared, global, valid);
}

static inline void tern_cp_async_commit()
{
    cusim_cp_async_commit();
}

template <int left> static inline void tern_cp_async_wait()
{
    cusim_cp_async_wait(left);
}

static inline float tern_exp2(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y; /* NaN stays */
}

static inline uint32_t tern_pack_bf16(float low, float high)
{
    return (uint32_t)tern_store_bf16(high) << 16 | tern_store_bf16(low);
}

#endif
