/* gemm_avx512.c - the matrix product with fp32 FMA on AVX-512: 14 x 32 tiles, packing by 16 x 16
 * transposes. */
#include "kernels/cpu/gemm_avx512.h"

enum {
    MR = 14,
    NR = 32,
    A_STRIDE = 16,
    K_BLOCK = 384
};

/* Per step of k: two vectors of b, and each of the rows' values of a broadcast into two FMAs. 28
 * sums, 2 of b and 1 broadcast fill the 32 registers; 28 FMAs for 16 loads keep the FMA units, not
 * the load ports, the limit. */
#define TILE_ROWS(rows) \
    static void tile_##rows(int64_t k, const float *a, const float *b, struct tile_out out) \
    { \
        __m512 c0[rows], c1[rows]; \
        prefetch_out(out, rows); \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            c0[i] = c1[i] = _mm512_setzero_ps(); \
        } \
        for (int64_t p = 0; p < k; p++, a += A_STRIDE, b += NR) { \
            __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16); \
            UNROLL for (int i = 0; i < (rows); i++) \
            { \
                __m512 x = _mm512_set1_ps(a[i]); \
                c0[i] = _mm512_fmadd_ps(x, b0, c0[i]); \
                c1[i] = _mm512_fmadd_ps(x, b1, c1[i]); \
            } \
        } \
        UNROLL for (int i = 0; i < (rows); i++) \
        { \
            store_row(out, i, c0[i], c1[i]); \
        } \
    }

EACH_ROW_COUNT(TILE_ROWS)

static void tile_avx512(int64_t k,
                        const void *a,
                        const void *b,
                        float *c,
                        int64_t ldc,
                        int m,
                        int n,
                        bool add)
{
    static void (*const by_rows[])(int64_t, const float *, const float *, struct tile_out) = {
        tile_1, tile_2, tile_3,  tile_4,  tile_5,  tile_6,  tile_7,
        tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14,
    };
    by_rows[m - 1](k, a, b, tile_out_of(c, ldc, n, add));
}

static __m512 bf16_to_f32(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Up to 16 values; those outside the mask are 0 and not touched. */
static __m512 load_16(const void *src, int64_t i, bool is_bf16, __mmask16 mask)
{
    if (is_bf16) {
        return bf16_to_f32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)src + i));
    }
    return _mm512_maskz_loadu_ps(mask, (const float *)src + i);
}

/* k in place: row p of the source is lanes side by side. */
static void pack_direct(const struct tern_gemm_slice *s, int group, int stride, float *dst)
{
    bool is_bf16 = s->dtype == TERN_BF16;
    bool round = s->round && !is_bf16;
    __mmask16 mask = lane_mask(s->lanes - 16 * group);
    for (int64_t p = 0; p < s->k; p++) {
        __m512 x = load_16(s->src, p * s->k_stride + 16 * group, is_bf16, mask);
        _mm512_store_ps(dst + p * stride, round ? round_to_bf16(x) : x);
    }
}

static void pack_transposed(const struct tern_gemm_slice *s, int group, int stride, float *dst)
{
    bool is_bf16 = s->dtype == TERN_BF16;
    bool round = s->round && !is_bf16;
    int lanes = s->lanes - 16 * group;
    for (int64_t p = 0; p < s->k; p += 16) {
        __mmask16 mask = lane_mask(s->k - p);
        __m512 r[16];
        UNROLL for (int lane = 0; lane < 16; lane++)
        {
            __mmask16 row_mask = lane < lanes ? mask : 0;
            int64_t from = (16 * group + lane) * s->lane_stride + p;
            __m512 x = load_16(s->src, row_mask ? from : 0, is_bf16, row_mask);
            r[lane] = round ? round_to_bf16(x) : x;
        }
        transpose_16x16(r);
        int steps = s->k - p < 16 ? (int)(s->k - p) : 16;
        if (steps == 16) {
            UNROLL for (int i = 0; i < 16; i++)
            {
                _mm512_store_ps(dst + (p + i) * stride, r[i]);
            }
        } else {
            for (int i = 0; i < steps; i++) {
                _mm512_store_ps(dst + (p + i) * stride, r[i]);
            }
        }
    }
}

static void pack_avx512(const struct tern_gemm_slice *slice, int stride, void *panel)
{
    for (int group = 0; group < stride / 16; group++) {
        if (slice->lane_stride == 1) {
            pack_direct(slice, group, stride, (float *)panel + 16 * group);
        } else {
            pack_transposed(slice, group, stride, (float *)panel + 16 * group);
        }
    }
}

const struct tern_gemm_kernel tern_gemm_avx512 = {
    .mr = MR,
    .a_stride = A_STRIDE,
    .nr = NR,
    .b_stride = NR,
    .k_unit = 1,
    .k_block = K_BLOCK,
    .a_format = TERN_PANEL_F32,
    .b_format = TERN_PANEL_F32,
    .pack_a = pack_avx512,
    .pack_b = pack_avx512,
    .tile = tile_avx512,
    .finish = tern_gemm_finish_avx512,
};

/* exp(x) for x <= 88: 2^n * poly(r), r in [-ln2/2, ln2/2]; error below 2 ulp, 0 for x < -104. The
 * coefficients are Taylor's up to r^7 (the next term is 3e-9 at most). */
static __m512 exp_16(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.0f / 5040);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 720));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 120));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 24));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 6));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.5f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, n);
}

/* x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form without cancellation for x <
 * 0. */
static __m512 gelu_16(__m512 x)
{
    __m512 cubic = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    __m512 u = _mm512_fmadd_ps(cubic, _mm512_set1_ps(0.044715f), x);
    __m512 e = exp_16(_mm512_mul_ps(u, _mm512_set1_ps(-2.0f * 0.7978845608f)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static void store_16(void *dst, int64_t i, bool is_bf16, __mmask16 mask, __m512 x)
{
    if (is_bf16) {
        __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(x), 16));
        _mm256_mask_storeu_epi16((uint16_t *)dst + i, mask, half);
    } else {
        _mm512_mask_storeu_ps((float *)dst + i, mask, x);
    }
}

void tern_gemm_finish_avx512(const struct tern_gemm_finish *f)
{
    bool is_bf16 = f->d_dtype == TERN_BF16;
    bool bias_is_bf16 = f->bias_dtype == TERN_BF16;
    for (int64_t i = 0; i < f->m; i++) {
        for (int64_t j = 0; j < f->n; j += 16) {
            __mmask16 mask = lane_mask(f->n - j);
            int64_t to = i * f->ldd + j;
            __m512 x = _mm512_maskz_loadu_ps(mask, f->c + i * f->ldc + j);
            if (f->bias != NULL) {
                x = _mm512_add_ps(x, load_16(f->bias, j, bias_is_bf16, mask));
            }
            if (f->accumulate) {
                x = _mm512_add_ps(x, load_16(f->d, to, false, mask));
            }
            if (f->aux != NULL) {
                store_16(f->aux, to, is_bf16, mask, x);
                x = gelu_16(is_bf16 ? round_to_bf16(x) : x);
            }
            store_16(f->d, to, is_bf16, mask, x);
        }
    }
}

#define INLINE static inline __attribute__((always_inline))

/* One step of 16 along k: every row of a against every column of b. */
INLINE void dots_step(const struct tern_gemm_few *few,
                      int64_t p,
                      __mmask16 mask,
                      const int64_t *column,
                      int rows,
                      int columns,
                      bool is_bf16,
                      __m512 sum[][4])
{
    __m512 b[4];
    UNROLL for (int q = 0; q < columns; q++)
    {
        b[q] = load_16(few->b, column[q] * few->ldb + p, is_bf16, mask);
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        __m512 a = _mm512_maskz_loadu_ps(mask, few->a + i * few->lda + p);
        UNROLL for (int q = 0; q < columns; q++)
        {
            sum[i][q] = _mm512_fmadd_ps(a, b[q], sum[i][q]);
        }
    }
}

/* b (n, k): `columns` columns from j on against all rows over k in [p, end), 16 partial sums a
 * product; added to c when p > 0. Inlined with constants, so that the sums are registers; columns
 * past the end repeat the first. */
INLINE void few_dots(const struct tern_gemm_few *few,
                     int64_t j,
                     int64_t p,
                     int64_t end,
                     int rows,
                     int columns,
                     bool is_bf16)
{
    __m512 sum[TERN_GEMM_FEW_ROWS][4];
    int64_t column[4];
    bool add = p > 0;
    UNROLL for (int q = 0; q < columns; q++)
    {
        column[q] = j + q < few->n ? j + q : j;
        UNROLL for (int i = 0; i < rows; i++)
        {
            sum[i][q] = _mm512_setzero_ps();
        }
    }
    for (; p + 16 <= end; p += 16) {
        dots_step(few, p, 0xffff, column, rows, columns, is_bf16, sum);
    }
    if (p < end) {
        dots_step(few, p, lane_mask(end - p), column, rows, columns, is_bf16, sum);
    }
    UNROLL for (int q = 0; q < columns; q++)
    {
        UNROLL for (int i = 0; i < rows; i++)
        {
            if (q == 0 || column[q] != j) {
                float *c = few->c + i * few->ldc + column[q];
                float part = _mm512_reduce_add_ps(sum[i][q]);
                *c = add ? *c + part : part;
            }
        }
    }
}

/* b (k, n): `vectors` vectors of columns from j on against all rows. The rows of b ahead are
 * fetched by hand: their stride crosses pages, which the hardware does not follow. */
INLINE void few_axpy(const struct tern_gemm_few *few,
                     int64_t j,
                     int rows,
                     int vectors,
                     bool is_bf16)
{
    enum {
        AHEAD = 24
    };
    int64_t bytes = is_bf16 ? 2 : 4;
    __mmask16 mask[8];
    __m512 sum[TERN_GEMM_FEW_ROWS][8];
    UNROLL for (int q = 0; q < vectors; q++)
    {
        mask[q] = lane_mask(few->n - j - 16 * q);
        UNROLL for (int i = 0; i < rows; i++)
        {
            sum[i][q] = _mm512_setzero_ps();
        }
    }
    for (int64_t p = 0; p < few->k; p++) {
        uintptr_t ahead = (uintptr_t)few->b + (uintptr_t)(((p + AHEAD) * few->ldb + j) * bytes);
        __m512 b[8];
        UNROLL for (int q = 0; q < vectors; q++)
        {
            if (!is_bf16 || q % 2 == 0) {
                _mm_prefetch((const char *)(ahead + (uintptr_t)(16 * q * bytes)), _MM_HINT_T0);
            }
            b[q] = load_16(few->b, p * few->ldb + j + 16 * q, is_bf16, mask[q]);
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            __m512 a = _mm512_set1_ps(few->a[i * few->lda + p]);
            UNROLL for (int q = 0; q < vectors; q++)
            {
                sum[i][q] = _mm512_fmadd_ps(a, b[q], sum[i][q]);
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        UNROLL for (int q = 0; q < vectors; q++)
        {
            _mm512_mask_storeu_ps(few->c + i * few->ldc + j + 16 * q, mask[q], sum[i][q]);
        }
    }
}

/* Rows of a stay in L1 while all columns pass by. */
enum {
    FEW_K_BLOCK = 768
};

/* Columns and vectors at a time are what the registers hold beside the sums of so many rows. */
#define FEW_RUN(rows, columns, vectors) \
    static void few_run_##rows(const struct tern_gemm_few *few) \
    { \
        bool is_bf16 = few->b_dtype == TERN_BF16; \
        for (int64_t p = 0; few->b_trans && p < few->k; p += FEW_K_BLOCK) { \
            int64_t end = p + FEW_K_BLOCK < few->k ? p + FEW_K_BLOCK : few->k; \
            for (int64_t j = 0; j < few->n; j += (columns)) { \
                if (is_bf16) { \
                    few_dots(few, j, p, end, rows, columns, true); \
                } else { \
                    few_dots(few, j, p, end, rows, columns, false); \
                } \
            } \
        } \
        for (int64_t j = 0; !few->b_trans && j < few->n; j += 16 * (vectors)) { \
            if (is_bf16) { \
                few_axpy(few, j, rows, vectors, true); \
            } else { \
                few_axpy(few, j, rows, vectors, false); \
            } \
        } \
    }

FEW_RUN(1, 4, 8)
FEW_RUN(2, 4, 8)
FEW_RUN(3, 4, 6)
FEW_RUN(4, 4, 5)
FEW_RUN(5, 3, 4)
FEW_RUN(6, 3, 4)
FEW_RUN(7, 2, 3)
FEW_RUN(8, 2, 3)

static void few_run_avx512(const struct tern_gemm_few *few)
{
    static void (*const by_rows[])(const struct tern_gemm_few *) = {
        few_run_1, few_run_2, few_run_3, few_run_4, few_run_5, few_run_6, few_run_7, few_run_8,
    };
    by_rows[few->m - 1](few);
}

const struct tern_gemm_few_kernel tern_gemm_few_avx512 = {
    .run = few_run_avx512,
    .finish = tern_gemm_finish_avx512,
};
