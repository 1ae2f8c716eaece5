/* gemm_avx512.h - helpers shared by the AVX-512 files of the matrix product: masks, rounding,
 * transposes, tile rows. */
#ifndef TERN_KERNELS_CPU_GEMM_AVX512_H
#define TERN_KERNELS_CPU_GEMM_AVX512_H

#include "kernels/cpu/gemm.h"

#include <immintrin.h>

/* Loops over register arrays must vanish before registers are assigned; gcc 12 at -O2 wants to be
 * told. */
#ifdef __clang__
#    define UNROLL _Pragma("unroll")
#else
#    define UNROLL _Pragma("GCC unroll 16")
#endif

#define EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)

static inline __mmask16 lane_mask(int64_t lanes)
{
    return lanes >= 16 ? (__mmask16)0xffff : lanes <= 0 ? 0 : (__mmask16)((1u << lanes) - 1);
}

/* Where a 32-column tile goes. */
struct tile_out {
    float *c;
    int64_t ldc;
    __mmask16 mask0, mask1;
    bool add, is_full;
};

static inline struct tile_out tile_out_of(float *c, int64_t ldc, int n, bool add)
{
    return (struct tile_out){.c = c,
                             .ldc = ldc,
                             .mask0 = lane_mask(n),
                             .mask1 = lane_mask(n - 16),
                             .add = add,
                             .is_full = n == 32};
}

static inline __attribute__((always_inline)) void store_row(struct tile_out out,
                                                            int64_t i,
                                                            __m512 c0,
                                                            __m512 c1)
{
    float *c = out.c + i * out.ldc;
    if (out.is_full) {
        if (out.add) {
            c0 = _mm512_add_ps(c0, _mm512_loadu_ps(c));
            c1 = _mm512_add_ps(c1, _mm512_loadu_ps(c + 16));
        }
        _mm512_storeu_ps(c, c0);
        _mm512_storeu_ps(c + 16, c1);
        return;
    }
    if (out.add) {
        c0 = _mm512_add_ps(c0, _mm512_maskz_loadu_ps(out.mask0, c));
        c1 = _mm512_add_ps(c1, _mm512_maskz_loadu_ps(out.mask1, c + 16));
    }
    _mm512_mask_storeu_ps(c, out.mask0, c0);
    _mm512_mask_storeu_ps(c + 16, out.mask1, c1);
}

/* Called before the loop over k, so that the rows of c are in L1 when the sums are done (+5 % at k
 * = 384). */
static inline __attribute__((always_inline)) void prefetch_out(struct tile_out out, int rows)
{
    UNROLL for (int i = 0; i < rows; i++)
    {
        const char *c = (const char *)(out.c + i * out.ldc);
        _mm_prefetch(c, _MM_HINT_T0);
        _mm_prefetch(c + 64, _MM_HINT_T0);
        _mm_prefetch(c + 124, _MM_HINT_T0);
    }
}

/* The bf16 nearest to each f32 (ties to even, NaN stays NaN), in the upper half of each 32-bit
 * lane. */
static inline __m512i bf16_bits(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
}

static inline __m512 round_to_bf16(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(bf16_bits(x), _mm512_set1_epi32((int)0xffff0000)));
}

/* r[i] lane j becomes r[j] lane i. */
static inline __attribute__((always_inline)) void transpose_16x16(__m512 r[16])
{
    __m512 t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    /* r[4g + c], 128-bit block q: rows 4g..4g+3 of column 4q + c. */
    UNROLL for (int c = 0; c < 4; c++)
    {
        t[c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    }
    /* t[c]: blocks (g0 q0, g0 q2, g1 q0, g1 q2); t[4 + c]: the same with q1, q3; t[8 + c], t[12 +
     * c]: g2, g3. */
    UNROLL for (int c = 0; c < 4; c++)
    {
        r[c] = _mm512_shuffle_f32x4(t[c], t[8 + c], 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(t[c], t[8 + c], 0xdd);
        r[4 + c] = _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0xdd);
    }
}

#endif
