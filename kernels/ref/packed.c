/* packed.c - packed weights of the reference: (n, k) in f64, each the exact value that its kind gives it. */
#include "kernels/packed.h"

#include "kernels/ref/ref.h"

size_t tern_ref_packed_bytes(struct tern_device *device,
                             enum tern_packed packed,
                             int64_t n,
                             int64_t k)
{
    (void)device;
    (void)packed;
    return (size_t)n * (size_t)k * sizeof(double);
}

static tern_status pack_piece(const struct tern_pack_args *args,
                              int64_t row,
                              int64_t first,
                              int64_t count,
                              double *out)
{
    struct tern_packed_group groups[TERN_PACKED_PIECE / TERN_PACKED_GROUP];
    float values[TERN_PACKED_PIECE];
    const void *src = tern_ref_ptr(args->src);
    if (!tern_packed_is_codes(args->packed)) {
        tern_packed_values(args, src, row, first, count, values);
        for (int64_t i = 0; i < count; i++) {
            bool is_half = args->packed == TERN_PACKED_BF16;
            out[i] = tern_ref_round(is_half ? TERN_BF16 : TERN_F32, (double)values[i]);
        }
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_packed_groups(args, src, row, first, count, groups));
    for (int64_t i = 0; i < count; i++) {
        const struct tern_packed_group *group = &groups[i / TERN_PACKED_GROUP];
        int64_t at = i % TERN_PACKED_GROUP;
        double scale = (double)group->scale[at / (TERN_PACKED_GROUP / 2)];
        out[i] = scale * (group->q[at] - tern_packed_zero(args->packed)) + (double)group->min;
    }
    return TERN_OK;
}

tern_status tern_ref_pack(struct tern_device *device, const struct tern_pack_args *args)
{
    (void)device;
    double *out = tern_ref_ptr(args->dst);
    for (int64_t row = 0; row < args->n; row++) {
        for (int64_t first = 0; first < args->k; first += TERN_PACKED_PIECE) {
            int64_t left = args->k - first;
            TERN_RETURN_IF_ERR(pack_piece(args, row, first,
                                          left < TERN_PACKED_PIECE ? left : TERN_PACKED_PIECE,
                                          out + row * args->k + first));
        }
    }
    return TERN_OK;
}

/* x[0..count) as the product takes it: codes times scale, rounded to bf16, or as it is. */
static void take(const struct tern_gemm_args *args, const float *x, int64_t count, double *out)
{
    int8_t codes[TERN_PACKED_GROUP];
    float scale = args->compute == TERN_I8 ? tern_packed_round_group(x, codes) : 0;
    for (int64_t i = 0; i < count; i++) {
        out[i] = args->compute == TERN_I8     ? (double)scale * codes[i]
                 : args->compute == TERN_BF16 ? tern_ref_round(TERN_BF16, (double)x[i])
                                              : (double)x[i];
    }
}

double tern_ref_packed_product(const struct tern_gemm_args *args, int64_t i, int64_t j)
{
    const double *b = (const double *)tern_ref_ptr(args->b) + j * args->k;
    double sum = 0;
    for (int64_t first = 0; first < args->k; first += TERN_PACKED_GROUP) {
        int64_t left = args->k - first, count = left < TERN_PACKED_GROUP ? left : TERN_PACKED_GROUP;
        float x[TERN_PACKED_GROUP];
        double a[TERN_PACKED_GROUP];
        for (int64_t p = 0; p < count; p++) {
            x[p] = (float)tern_ref_get(args->a, args->a_dtype, i * args->lda + first + p);
        }
        take(args, x, count, a);
        for (int64_t p = 0; p < count; p++) {
            sum += a[p] * b[first + p];
        }
    }
    return sum;
}
