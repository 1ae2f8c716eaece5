/* attention.h - what attention forward and backward share: register tiles, packing, geometry.
 *
 * Everything is arranged so that a vector lane is a query: scores are kept transposed, S^T (keys,
 * queries), in panels of PANEL queries. Then maxima, sums and masks are vertical, K and V are read
 * in their natural layout as broadcast operands, and only Q is transposed, once a task. */
#ifndef TERN_KERNELS_CPU_ATTENTION_H
#define TERN_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

/* A register tile is TILE_ROWS x TILE_VECTORS accumulators. Key blocks and padded head widths are
 * multiples of TILE_ROWS. */
#if VF_AVX512
enum {
    TILE_ROWS = 8,
    TILE_VECTORS = 2
};
#elif VF_AVX2
enum {
    TILE_ROWS = 4,
    TILE_VECTORS = 3
};
#else
enum {
    TILE_ROWS = 4,
    TILE_VECTORS = 2
};
#endif
enum {
    PANEL = TILE_VECTORS * VF_LANES
};

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453

/* Queries are packed times this, so that scores come out in base 2, or, with a cap, as the tanh's argument. */
static inline float query_factor(const struct tern_attention_args *a)
{
    return a->softcap > 0 ? a->scale / a->softcap : a->scale * LOG2_E;
}

/* c (TILE_ROWS, vectors * VF_LANES) = [c +] sum over p < k of a[r*a_row + p*a_k] * b[p*ldb +
 * column]. */
VF_INLINE void tile_multiply(int vectors,
                             const float *a,
                             int64_t a_row,
                             int64_t a_k,
                             const float *b,
                             int64_t ldb,
                             float *c,
                             int64_t ldc,
                             int64_t k,
                             bool add)
{
    vf acc[TILE_ROWS][TILE_VECTORS];
    const float *rows[TILE_ROWS];
    VF_UNROLL for (int r = 0; r < TILE_ROWS; r++)
    {
        rows[r] = a + r * a_row;
        VF_UNROLL for (int v = 0; v < vectors; v++)
        {
            acc[r][v] = vf_zero();
            if (add) {
                acc[r][v] = vf_load(c + r * ldc + v * VF_LANES);
            }
        }
    }
    for (int64_t p = 0; p < k; p++) {
        vf column[TILE_VECTORS];
        VF_UNROLL for (int v = 0; v < vectors; v++)
        {
            column[v] = vf_load(b + v * VF_LANES);
        }
        VF_UNROLL for (int r = 0; r < TILE_ROWS; r++)
        {
            vf x = vf_set1(rows[r][p * a_k]);
            VF_UNROLL for (int v = 0; v < vectors; v++)
            {
                acc[r][v] = vf_fma(x, column[v], acc[r][v]);
            }
        }
        b += ldb;
    }
    VF_UNROLL for (int r = 0; r < TILE_ROWS; r++)
    {
        VF_UNROLL for (int v = 0; v < vectors; v++)
        {
            vf_store(c + r * ldc + v * VF_LANES, acc[r][v]);
        }
    }
}

/* The same for a panel's vectors [first, TILE_VECTORS) only. */
VF_INLINE void tile_from(int first,
                         const float *a,
                         int64_t a_row,
                         int64_t a_k,
                         const float *b,
                         int64_t ldb,
                         float *c,
                         int64_t ldc,
                         int64_t k,
                         bool add)
{
    int64_t skip = (int64_t)first * VF_LANES;
    if (first == 0) {
        tile_multiply(TILE_VECTORS, a, a_row, a_k, b, ldb, c, ldc, k, add);
    } else if (first == TILE_VECTORS - 1) {
        tile_multiply(1, a, a_row, a_k, b + skip, ldb, c + skip, ldc, k, add);
    } else if (first == TILE_VECTORS - 2) {
        tile_multiply(2, a, a_row, a_k, b + skip, ldb, c + skip, ldc, k, add);
    }
}

/* One tile row of c over n columns, n a multiple of VF_LANES. */
VF_INLINE void row_multiply(int64_t n,
                            const float *a,
                            int64_t a_row,
                            int64_t a_k,
                            const float *b,
                            int64_t ldb,
                            float *c,
                            int64_t ldc,
                            int64_t k,
                            bool add)
{
    int64_t j = 0;
    for (; j + PANEL <= n; j += PANEL) {
        tile_multiply(TILE_VECTORS, a, a_row, a_k, b + j, ldb, c + j, ldc, k, add);
    }
#if VF_AVX2
    if (n - j == 2 * VF_LANES) {
        tile_multiply(2, a, a_row, a_k, b + j, ldb, c + j, ldc, k, add);
    }
#endif
    if (n - j == VF_LANES) {
        tile_multiply(1, a, a_row, a_k, b + j, ldb, c + j, ldc, k, add);
    }
}

/* dst (cols, rows) = src (rows, cols) transposed; rows and cols are multiples of 4. */
VF_INLINE void transpose(const float *src,
                         int64_t lds,
                         int64_t rows,
                         int64_t cols,
                         float *dst,
                         int64_t ldd)
{
    for (int64_t i = 0; i < rows; i += 4) {
        for (int64_t j = 0; j < cols; j += 4) {
            const float *s = src + i * lds + j;
            float *d = dst + j * ldd + i;
#if defined(__SSE2__)
            __m128 r0 = _mm_loadu_ps(s), r1 = _mm_loadu_ps(s + lds);
            __m128 r2 = _mm_loadu_ps(s + 2 * lds), r3 = _mm_loadu_ps(s + 3 * lds);
            _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
            _mm_storeu_ps(d, r0);
            _mm_storeu_ps(d + ldd, r1);
            _mm_storeu_ps(d + 2 * ldd, r2);
            _mm_storeu_ps(d + 3 * ldd, r3);
#else
            for (int r = 0; r < 4; r++) {
                for (int c = 0; c < 4; c++) {
                    d[c * ldd + r] = s[r * lds + c];
                }
            }
#endif
        }
    }
}

/* dst (dp) f32 = factor * src[at .. at+d) in f32 or bf16, 0 from d on; dp is a multiple of
 * VF_LANES. */
VF_INLINE void load_row(float *dst,
                        const void *src,
                        int64_t at,
                        int64_t d,
                        int64_t dp,
                        float factor,
                        bool bf16)
{
    vf f = vf_set1(factor);
#define STEP(i, n) vf_store(dst + (i), vf_get_n(src, at + (i), n, bf16) * f)
    VF_EACH(d, STEP);
#undef STEP
    for (int64_t i = tern_cpu_round_up(d, VF_LANES); i < dp; i += VF_LANES) {
        vf_store(dst + i, vf_zero());
    }
}

VF_INLINE void load_row_any(float *dst,
                            const void *src,
                            int64_t at,
                            int64_t d,
                            int64_t dp,
                            float factor,
                            bool bf16)
{
    if (bf16) {
        load_row(dst, src, at, d, dp, factor, true);
    } else {
        load_row(dst, src, at, d, dp, factor, false);
    }
}

/* dst[at ..) = factor * src (d) f32, in f32 or bf16. */
VF_INLINE void store_row_any(void *dst,
                             int64_t at,
                             const float *src,
                             int64_t d,
                             float factor,
                             bool bf16)
{
    vf f = vf_set1(factor);
#define STEP_BF16(i, n) vf_put_n(dst, at + (i), vf_get_n(src, i, n, false) * f, n, true)
#define STEP_F32(i, n)  vf_put_n(dst, at + (i), vf_get_n(src, i, n, false) * f, n, false)
    if (bf16) {
        VF_EACH(d, STEP_BF16);
    } else {
        VF_EACH(d, STEP_F32);
    }
#undef STEP_F32
#undef STEP_BF16
}

/* dst (padded, dp): rows [first, first + count) of keys or values of head `kv` in batch `b`, zero
 * rows after. */
VF_INLINE void load_keys(float *dst,
                         const struct tern_attention_args *a,
                         struct tern_dptr from,
                         int64_t b,
                         int64_t kv,
                         int64_t first,
                         int64_t count,
                         int64_t padded,
                         int64_t dp)
{
    for (int64_t j = 0; j < count; j++) {
        int64_t at = b * a->kv_batch + (first + j) * a->kv_row + kv * a->d;
        load_row_any(dst + j * dp, tern_cpu_ptr(from), at, a->d, dp, 1.0f, a->dtype == TERN_BF16);
    }
    if (padded > count) {
        memset(dst + count * dp, 0, (size_t)((padded - count) * dp) * sizeof *dst);
    }
}

/* First key that the query at position `p` of sequence `b` sees; it never descends along a sequence. */
static inline int64_t first_key(const struct tern_attention_args *a, int64_t b, int64_t p)
{
    int64_t start =
        tern_cpu_start(a->starts, b * a->tq + p); /* with starts tq is tkv, and p the query */
    return a->window > 0 && p - a->window + 1 > start ? p - a->window + 1 : start;
}

/* Whether queries may see less than all keys before them. */
static inline bool has_first_key(const struct tern_attention_args *a)
{
    return a->window > 0 || !tern_dptr_is_null(a->starts);
}

/* How many vectors of a panel end before they reach row j, keys[v] being where vector v ends. */
VF_INLINE int vectors_done(const int64_t keys[TILE_VECTORS], int64_t j)
{
    int done = 0;
    while (done < TILE_VECTORS && keys[done] <= j) {
        done++;
    }
    return done;
}

static inline int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static inline int64_t most(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

#endif
