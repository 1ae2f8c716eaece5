/* gemm_generic.c - the matrix product on any processor: 4-wide vectors, 6 x 8 tiles, and the
 * packing loops that define the panel formats. */
#include "kernels/cpu/gemm.h"

#include <math.h>
#include <string.h>

typedef float v4 __attribute__((vector_size(16)));

enum {
    MR = 6,
    NR = 8,
    K_BLOCK = 256
};

static float slice_value(const struct tern_gemm_slice *s, int64_t lane, int64_t p)
{
    int64_t i = lane * s->lane_stride + p * s->k_stride;
    if (s->dtype == TERN_BF16) {
        return tern_bf16_to_f32(((const tern_bf16 *)s->src)[i]);
    }
    float x;
    memcpy(&x, (const char *)s->src + i * 4, sizeof x); /* any alignment */
    return s->round ? tern_bf16_to_f32(tern_f32_to_bf16(x)) : x;
}

void tern_gemm_pack_f32(const struct tern_gemm_slice *s, int stride, void *panel)
{
    float *dst = panel;
    for (int64_t p = 0; p < s->k; p++) {
        for (int lane = 0; lane < stride; lane++) {
            dst[p * stride + lane] = lane < s->lanes ? slice_value(s, lane, p) : 0.0f;
        }
    }
}

void tern_gemm_pack_pairs(const struct tern_gemm_slice *s, int stride, void *panel)
{
    tern_bf16 *dst = panel;
    for (int64_t p = 0; p < (s->k + 1) / 2 * 2; p++) {
        for (int lane = 0; lane < stride; lane++) {
            float x = lane < s->lanes && p < s->k ? slice_value(s, lane, p) : 0.0f;
            dst[(p / 2 * stride + lane) * 2 + p % 2] = tern_f32_to_bf16(x);
        }
    }
}

void tern_gemm_pack_rows(const struct tern_gemm_slice *s, int stride, void *panel)
{
    tern_bf16 *dst = panel;
    for (int64_t p = 0; p < (s->k + 31) / 32 * 32; p++) {
        for (int lane = 0; lane < stride; lane++) {
            float x = lane < s->lanes && p < s->k ? slice_value(s, lane, p) : 0.0f;
            dst[(p / 32 * stride + lane) * 32 + p % 32] = tern_f32_to_bf16(x);
        }
    }
}

static void tile_generic(int64_t k,
                         const void *a,
                         const void *b,
                         float *c,
                         int64_t ldc,
                         int m,
                         int n,
                         bool add)
{
    const float *ap = a, *bp = b;
    v4 acc[MR][2] = {{{0}}};
    for (int64_t p = 0; p < k; p++, ap += MR, bp += NR) {
        v4 b0, b1;
        memcpy(&b0, bp, sizeof b0);
        memcpy(&b1, bp + 4, sizeof b1);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            v4 x = {ap[i], ap[i], ap[i], ap[i]};
            acc[i][0] += x * b0;
            acc[i][1] += x * b1;
        }
    }
    for (int i = 0; i < m; i++) {
        float row[NR];
        memcpy(row, acc[i], sizeof row);
        for (int j = 0; j < n; j++) {
            c[i * ldc + j] = add ? c[i * ldc + j] + row[j] : row[j];
        }
    }
}

static float gelu_tanh(float x)
{
    /* x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation
     * for x < 0. */
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * u));
}

static float load_value(const void *src, int64_t i, enum tern_dtype dtype)
{
    if (dtype == TERN_BF16) {
        return tern_bf16_to_f32(((const tern_bf16 *)src)[i]);
    }
    return ((const float *)src)[i];
}

static void store_value(void *dst, int64_t i, enum tern_dtype dtype, float x)
{
    if (dtype == TERN_BF16) {
        ((tern_bf16 *)dst)[i] = tern_f32_to_bf16(x);
    } else {
        ((float *)dst)[i] = x;
    }
}

static void finish_generic(const struct tern_gemm_finish *f)
{
    for (int64_t i = 0; i < f->m; i++) {
        for (int64_t j = 0; j < f->n; j++) {
            int64_t to = i * f->ldd + j;
            float x = f->c[i * f->ldc + j];
            x += f->bias != NULL ? load_value(f->bias, j, f->bias_dtype) : 0.0f;
            x += f->accumulate ? ((const float *)f->d)[to] : 0.0f;
            if (f->aux != NULL) {
                store_value(f->aux, to, f->d_dtype, x);
                x = gelu_tanh(load_value(f->aux, to, f->d_dtype));
            }
            store_value(f->d, to, f->d_dtype, x);
        }
    }
}

const struct tern_gemm_kernel tern_gemm_generic = {
    .mr = MR,
    .a_stride = MR,
    .nr = NR,
    .b_stride = NR,
    .k_unit = 1,
    .k_block = K_BLOCK,
    .a_format = TERN_PANEL_F32,
    .b_format = TERN_PANEL_F32,
    .pack_a = tern_gemm_pack_f32,
    .pack_b = tern_gemm_pack_f32,
    .tile = tile_generic,
    .finish = finish_generic,
};

/* b (n, k): eight partial sums a dot product, folded pairwise at the end. */
static void few_dots(const struct tern_gemm_few *few)
{
    enum {
        LANES = 8
    };
    for (int64_t j = 0; j < few->n; j++) {
        for (int64_t i = 0; i < few->m; i++) {
            const float *a = few->a + i * few->lda;
            float part[LANES] = {0};
            for (int64_t p = 0; p < few->k; p++) {
                part[p % LANES] += a[p] * load_value(few->b, j * few->ldb + p, few->b_dtype);
            }
            for (int half = LANES / 2; half > 0; half /= 2) {
                for (int lane = 0; lane < half; lane++) {
                    part[lane] += part[lane + half];
                }
            }
            few->c[i * few->ldc + j] = part[0];
        }
    }
}

static void few_run_generic(const struct tern_gemm_few *few)
{
    if (few->b_trans) {
        few_dots(few);
        return;
    }
    for (int64_t i = 0; i < few->m; i++) {
        memset(few->c + i * few->ldc, 0, (size_t)few->n * sizeof(float));
    }
    for (int64_t p = 0; p < few->k; p++) {
        for (int64_t i = 0; i < few->m; i++) {
            float x = few->a[i * few->lda + p];
            for (int64_t j = 0; j < few->n; j++) {
                few->c[i * few->ldc + j] += x * load_value(few->b, p * few->ldb + j, few->b_dtype);
            }
        }
    }
}

const struct tern_gemm_few_kernel tern_gemm_few_generic = {
    .run = few_run_generic,
    .finish = finish_generic,
};
