/* mma.cuh - tensor cores, matrix loads, asynchronous copies, 2^x: all PTX that Tern uses. Simulated by cusim_mma.cuh.
 *
 * Fragment layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and
 * "ldmatrix": for lane l, group g = l / 4, t = l % 4. */
#ifndef TERN_KERNELS_CUDA_MMA_CUH
#define TERN_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/target.cuh"

#ifdef TERN_CUSIM
#    include <cusim_mma.cuh>
#else

/* d (16, 8) += a (16, 16, row-major) * b (16, 8, column-major): bf16 factors, f32 sums. a: 8 values, two a register;
 * b: 4 values; d: rows g and g + 8, columns 2t and 2t + 1. */
TERN_DEVICE void tern_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit values from shared memory: lane l gives the address of row l % 8 of matrix l / 8 (16
 * bytes, 16-byte aligned); register i of lane l gets columns 2t, 2t + 1 of row g of matrix i. */
TERN_DEVICE void tern_ldmatrix_x4(uint32_t (&r)[4], const void *shared_row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed: register i gets rows 2t, 2t + 1 of column g of matrix i. */
TERN_DEVICE void tern_ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared_row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* 16 bytes from global to shared memory, behind the thread's back; bytes beyond `valid` (0 or 16) are zeros and are
 * not read. Both 16-byte aligned. */
TERN_DEVICE void tern_cp_async16(void *shared, const void *global, int valid)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                 :
                 : "r"(address), "l"(global), "r"(valid)
                 : "memory");
}

/* Closes the group of copies this thread started since the last commit. */
TERN_DEVICE void tern_cp_async_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most `left` of this thread's groups are under way. Other threads see the bytes after a barrier. */
template <int left> TERN_DEVICE void tern_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(left) : "memory");
}

/* 2^x within 2 ulp; results below the smallest normal number are 0. */
TERN_DEVICE float tern_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats as two bf16, the first in the low half. */
TERN_DEVICE uint32_t tern_pack_bf16(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    union {
        __nv_bfloat162 pair;
        uint32_t bits;
    } x;
    x.pair = pair;
    return x.bits;
}

#endif
#endif
