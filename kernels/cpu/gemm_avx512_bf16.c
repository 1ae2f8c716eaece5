/* gemm_avx512_bf16.c - the matrix product with bf16 dot products (vdpbf16ps): 14 x 32 tiles over
 * pairs of k. */
#include "kernels/cpu/gemm_avx512.h"

enum {
    MR = 14,
    NR = 32,
    A_STRIDE = 16,
    K_BLOCK = 768
};

/* As the fp32 tile, with a pair of k in each 32-bit lane. */
#define TILE_ROWS(rows) \
    static void tile_##rows(int64_t pairs, const int *a, const int *b, struct tile_out out) \
    { \
        __m512 c0[rows], c1[rows]; \
        prefetch_out(out, rows); \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            c0[i] = c1[i] = _mm512_setzero_ps(); \
        } \
        for (int64_t p = 0; p < pairs; p++, a += A_STRIDE, b += NR) { \
            __m512bh b0 = (__m512bh)_mm512_load_si512(b); \
            __m512bh b1 = (__m512bh)_mm512_load_si512(b + 16); \
            UNROLL for (int i = 0; i < (rows); i++) \
            { \
                __m512bh x = (__m512bh)_mm512_set1_epi32(a[i]); \
                c0[i] = _mm512_dpbf16_ps(c0[i], x, b0); \
                c1[i] = _mm512_dpbf16_ps(c1[i], x, b1); \
            } \
        } \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            store_row(out, i, c0[i], c1[i]); \
        } \
    }

EACH_ROW_COUNT(TILE_ROWS)

static void tile_dot(int64_t k,
                     const void *a,
                     const void *b,
                     float *c,
                     int64_t ldc,
                     int m,
                     int n,
                     bool add)
{
    static void (*const by_rows[])(int64_t, const int *, const int *, struct tile_out) = {
        tile_1, tile_2, tile_3,  tile_4,  tile_5,  tile_6,  tile_7,
        tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14,
    };
    by_rows[m - 1](k / 2, a, b, tile_out_of(c, ldc, n, add));
}

/* 16 lanes of row p, as bf16 in the low halves of 32-bit lanes. */
static __m512i load_lanes(const struct tern_gemm_slice *s, int64_t i, __mmask16 mask)
{
    if (s->dtype == TERN_BF16) {
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)s->src + i));
    }
    return _mm512_srli_epi32(bf16_bits(_mm512_maskz_loadu_ps(mask, (const float *)s->src + i)), 16);
}

static void pack_direct(const struct tern_gemm_slice *s, int group, int stride, int *dst)
{
    __mmask16 mask = lane_mask(s->lanes - 16 * group);
    for (int64_t p = 0; p < s->k; p += 2) {
        int64_t i = p * s->k_stride + 16 * group;
        __m512i low = load_lanes(s, i, mask);
        __m512i high = _mm512_setzero_si512();
        if (p + 1 < s->k) {
            high = load_lanes(s, i + s->k_stride, mask);
        }
        __m512i pair = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
        _mm512_store_si512(dst + p / 2 * stride, pair);
    }
}

/* Up to 32 consecutive values as bf16: 16 pairs. */
static __m512i load_pairs(const struct tern_gemm_slice *s, int64_t i, int64_t count)
{
    if (s->dtype == TERN_BF16) {
        __mmask32 mask = count >= 32 ? 0xffffffffu : (1u << count) - 1;
        return _mm512_maskz_loadu_epi16(mask, (const uint16_t *)s->src + i);
    }
    const float *src = (const float *)s->src + i;
    __m512i low = bf16_bits(_mm512_maskz_loadu_ps(lane_mask(count), src));
    __m512i high = bf16_bits(_mm512_maskz_loadu_ps(lane_mask(count - 16), src + 16));
    __m256i low16 = _mm512_cvtepi32_epi16(_mm512_srli_epi32(low, 16));
    __m256i high16 = _mm512_cvtepi32_epi16(_mm512_srli_epi32(high, 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low16), high16, 1);
}

static void pack_transposed(const struct tern_gemm_slice *s, int group, int stride, int *dst)
{
    int lanes = s->lanes - 16 * group;
    for (int64_t p = 0; p < s->k; p += 32) {
        __m512 r[16];
        UNROLL for (int lane = 0; lane < 16; lane++)
        {
            r[lane] = _mm512_setzero_ps();
            if (lane < lanes) {
                int64_t from = (16 * group + lane) * s->lane_stride + p;
                r[lane] = _mm512_castsi512_ps(load_pairs(s, from, s->k - p));
            }
        }
        transpose_16x16(r);
        int64_t pairs = (s->k - p + 1) / 2;
        for (int i = 0; i < 16 && i < pairs; i++) {
            _mm512_store_ps(dst + (p / 2 + i) * stride, r[i]);
        }
    }
}

static void pack_dot(const struct tern_gemm_slice *slice, int stride, void *panel)
{
    for (int group = 0; group < stride / 16; group++) {
        if (slice->lane_stride == 1) {
            pack_direct(slice, group, stride, (int *)panel + 16 * group);
        } else {
            pack_transposed(slice, group, stride, (int *)panel + 16 * group);
        }
    }
}

const struct tern_gemm_kernel tern_gemm_avx512_dot = {
    .mr = MR,
    .a_stride = A_STRIDE,
    .nr = NR,
    .b_stride = NR,
    .k_unit = 2,
    .k_block = K_BLOCK,
    .a_format = TERN_PANEL_PAIRS,
    .b_format = TERN_PANEL_PAIRS,
    .pack_a = pack_dot,
    .pack_b = pack_dot,
    .tile = tile_dot,
    .finish = tern_gemm_finish_avx512,
};
