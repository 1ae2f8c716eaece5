/* gemm_avx2.c - the matrix product with AVX2 and FMA: 6 x 16 tiles, packing by 8 x 8 transposes. */
#include "kernels/cpu/gemm.h"

#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#    define UNROLL _Pragma("unroll")
#else
#    define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
    MR = 6,
    NR = 16,
    A_STRIDE = 8,
    K_BLOCK = 256
};

/* 12 sums, 2 vectors of b and 1 broadcast in 16 registers. */
#define TILE_ROWS(rows) \
    static void tile_##rows(int64_t k, const float *a, const float *b, __m256 c[][2]) \
    { \
        __m256 c0[rows], c1[rows]; \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            c0[i] = c1[i] = _mm256_setzero_ps(); \
        } \
        for (int64_t p = 0; p < k; p++, a += A_STRIDE, b += NR) { \
            __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8); \
            UNROLL for (int i = 0; i < (rows); i++) \
            { \
                __m256 x = _mm256_broadcast_ss(a + i); \
                c0[i] = _mm256_fmadd_ps(x, b0, c0[i]); \
                c1[i] = _mm256_fmadd_ps(x, b1, c1[i]); \
            } \
        } \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            c[i][0] = c0[i]; \
            c[i][1] = c1[i]; \
        } \
    }

TILE_ROWS(1)
TILE_ROWS(2)
TILE_ROWS(3)
TILE_ROWS(4)
TILE_ROWS(5)
TILE_ROWS(6)

static void tile_avx2(int64_t k,
                      const void *a,
                      const void *b,
                      float *c,
                      int64_t ldc,
                      int m,
                      int n,
                      bool add)
{
    static void (*const by_rows[])(int64_t, const float *, const float *, __m256[][2]) = {
        tile_1, tile_2, tile_3, tile_4, tile_5, tile_6,
    };
    __m256 sums[MR][2];
    by_rows[m - 1](k, a, b, sums);
    for (int i = 0; i < m; i++, c += ldc) {
        if (n == NR) {
            __m256 c0 = sums[i][0], c1 = sums[i][1];
            if (add) {
                c0 = _mm256_add_ps(c0, _mm256_loadu_ps(c));
                c1 = _mm256_add_ps(c1, _mm256_loadu_ps(c + 8));
            }
            _mm256_storeu_ps(c, c0);
            _mm256_storeu_ps(c + 8, c1);
            continue;
        }
        float row[NR];
        memcpy(row, sums[i], sizeof row);
        for (int j = 0; j < n; j++) {
            c[j] = add ? c[j] + row[j] : row[j];
        }
    }
}

/* The bf16 nearest to each f32 (ties to even, NaN stays NaN), in the upper half of each 32-bit
 * lane. */
static __m256i bf16_bits(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i out = _mm256_blendv_epi8(up, quiet, nan);
    return _mm256_and_si256(out, _mm256_set1_epi32((int)0xffff0000));
}

static __m256 round_to_bf16(__m256 x)
{
    return _mm256_castsi256_ps(bf16_bits(x));
}

/* The first `count` (at most 8) values from element i on; the rest 0 and not touched. */
static __m256 load_8(const void *src, int64_t i, bool is_bf16, int64_t count)
{
    if (is_bf16) {
        uint16_t half[8] = {0};
        const uint16_t *from = (const uint16_t *)src + i;
        if (count < 8) {
            memcpy(half, from, count > 0 ? (size_t)count * 2 : 0);
            from = half;
        }
        __m128i x = _mm_loadu_si128((const __m128i *)from);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    }
    const float *from = (const float *)src + i;
    if (count >= 8) {
        return _mm256_loadu_ps(from);
    }
    __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count),
                                      _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_maskload_ps(from, mask);
}

static void store_8(void *dst, int64_t i, bool is_bf16, int64_t count, __m256 x)
{
    size_t kept = count < 8 ? (size_t)count : 8;
    if (is_bf16) {
        __m256i high = _mm256_srli_epi32(bf16_bits(x), 16);
        __m128i half =
            _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
        memcpy((uint16_t *)dst + i, &half, kept * 2);
    } else {
        memcpy((float *)dst + i, &x, kept * 4);
    }
}

static void transpose_8x8(__m256 r[8])
{
    __m256 t[8];
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    memcpy(r, t, sizeof t);
}

static void pack_direct(const struct tern_gemm_slice *s, int group, int stride, float *dst)
{
    bool is_bf16 = s->dtype == TERN_BF16;
    bool round = s->round && !is_bf16;
    int64_t lanes = s->lanes - 8 * group;
    for (int64_t p = 0; p < s->k; p++) {
        __m256 x = _mm256_setzero_ps();
        if (lanes > 0) {
            x = load_8(s->src, p * s->k_stride + 8 * group, is_bf16, lanes);
        }
        _mm256_store_ps(dst + p * stride, round ? round_to_bf16(x) : x);
    }
}

static void pack_transposed(const struct tern_gemm_slice *s, int group, int stride, float *dst)
{
    bool is_bf16 = s->dtype == TERN_BF16;
    bool round = s->round && !is_bf16;
    for (int64_t p = 0; p < s->k; p += 8) {
        __m256 r[8];
        UNROLL for (int lane = 0; lane < 8; lane++)
        {
            __m256 x = _mm256_setzero_ps();
            if (8 * group + lane < s->lanes) {
                x = load_8(s->src, (8 * group + lane) * s->lane_stride + p, is_bf16, s->k - p);
            }
            r[lane] = round ? round_to_bf16(x) : x;
        }
        transpose_8x8(r);
        for (int i = 0; i < 8 && p + i < s->k; i++) {
            _mm256_store_ps(dst + (p + i) * stride, r[i]);
        }
    }
}

static void pack_avx2(const struct tern_gemm_slice *slice, int stride, void *panel)
{
    for (int group = 0; group < stride / 8; group++) {
        if (slice->lane_stride == 1) {
            pack_direct(slice, group, stride, (float *)panel + 8 * group);
        } else {
            pack_transposed(slice, group, stride, (float *)panel + 8 * group);
        }
    }
}

/* exp(x) as in gemm_avx512.c; x is held in [-104, 88] so that 2^n can be made of two normal
 * factors. */
static __m256 exp_8(__m256 x)
{
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-104.0f)), _mm256_set1_ps(88.7f));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 y = _mm256_set1_ps(1.0f / 5040);
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 720));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 120));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 24));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 6));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0.5f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1);
    __m256i second = _mm256_sub_epi32(whole, first);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
    __m256 f2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(y, f1), f2);
}

static __m256 gelu_8(__m256 x)
{
    __m256 cubic = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
    __m256 u = _mm256_fmadd_ps(cubic, _mm256_set1_ps(0.044715f), x);
    __m256 e = exp_8(_mm256_mul_ps(u, _mm256_set1_ps(-2.0f * 0.7978845608f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static void finish_avx2(const struct tern_gemm_finish *f)
{
    bool is_bf16 = f->d_dtype == TERN_BF16;
    bool bias_is_bf16 = f->bias_dtype == TERN_BF16;
    for (int64_t i = 0; i < f->m; i++) {
        for (int64_t j = 0; j < f->n; j += 8) {
            int64_t count = f->n - j;
            int64_t to = i * f->ldd + j;
            __m256 x = load_8(f->c, i * f->ldc + j, false, count);
            if (f->bias != NULL) {
                x = _mm256_add_ps(x, load_8(f->bias, j, bias_is_bf16, count));
            }
            if (f->accumulate) {
                x = _mm256_add_ps(x, load_8(f->d, to, false, count));
            }
            if (f->aux != NULL) {
                store_8(f->aux, to, is_bf16, count, x);
                x = gelu_8(is_bf16 ? round_to_bf16(x) : x);
            }
            store_8(f->d, to, is_bf16, count, x);
        }
    }
}

const struct tern_gemm_kernel tern_gemm_avx2 = {
    .mr = MR,
    .a_stride = A_STRIDE,
    .nr = NR,
    .b_stride = NR,
    .k_unit = 1,
    .k_block = K_BLOCK,
    .a_format = TERN_PANEL_F32,
    .b_format = TERN_PANEL_F32,
    .pack_a = pack_avx2,
    .pack_b = pack_avx2,
    .tile = tile_avx2,
    .finish = finish_avx2,
};

static float fold_8(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

/* b (n, k): one column against up to 4 rows, 8 partial sums a product. */
static void few_dots(const struct tern_gemm_few *few, int64_t j, int64_t i0, int rows)
{
    bool is_bf16 = few->b_dtype == TERN_BF16;
    __m256 sum[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        sum[i] = _mm256_setzero_ps();
    }
    for (int64_t p = 0; p < few->k; p += 8) {
        int64_t count = few->k - p;
        __m256 b = load_8(few->b, j * few->ldb + p, is_bf16, count);
        UNROLL for (int i = 0; i < 4; i++)
        {
            if (i < rows) {
                __m256 a = load_8(few->a, (i0 + i) * few->lda + p, false, count);
                sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        few->c[(i0 + i) * few->ldc + j] = fold_8(sum[i]);
    }
}

/* b (k, n): 16 columns at a time against up to 4 rows. */
static void few_axpy(const struct tern_gemm_few *few, int64_t j, int64_t i0, int rows)
{
    enum {
        AHEAD = 16
    };
    bool is_bf16 = few->b_dtype == TERN_BF16;
    int64_t bytes = is_bf16 ? 2 : 4;
    int64_t count = few->n - j;
    __m256 sum[4][2];
    UNROLL for (int i = 0; i < 4; i++)
    {
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    }
    for (int64_t p = 0; p < few->k; p++) {
        if (p + AHEAD < few->k) {
            const char *ahead = (const char *)few->b + ((p + AHEAD) * few->ldb + j) * bytes;
            _mm_prefetch(ahead, _MM_HINT_T0);
        }
        __m256 b0 = load_8(few->b, p * few->ldb + j, is_bf16, count);
        __m256 b1 = _mm256_setzero_ps();
        if (count > 8) {
            b1 = load_8(few->b, p * few->ldb + j + 8, is_bf16, count - 8);
        }
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m256 x = _mm256_set1_ps(i < rows ? few->a[(i0 + i) * few->lda + p] : 0.0f);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
    }
    for (int i = 0; i < rows; i++) {
        int64_t to = (i0 + i) * few->ldc + j;
        store_8(few->c, to, false, count, sum[i][0]);
        if (count > 8) {
            store_8(few->c, to + 8, false, count - 8, sum[i][1]);
        }
    }
}

static void few_run_avx2(const struct tern_gemm_few *few)
{
    int64_t step = few->b_trans ? 1 : 16;
    for (int64_t j = 0; j < few->n; j += step) {
        for (int64_t i = 0; i < few->m; i += 4) {
            int rows = few->m - i < 4 ? (int)(few->m - i) : 4;
            if (few->b_trans) {
                few_dots(few, j, i, rows);
            } else {
                few_axpy(few, j, i, rows);
            }
        }
    }
}

const struct tern_gemm_few_kernel tern_gemm_few_avx2 = {
    .run = few_run_avx2,
    .finish = finish_avx2,
};
